//! The page about Bundles, done as it says.
