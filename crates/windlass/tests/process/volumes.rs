//! Projected volumes, by a real agent on a real server: what is in the objects is in the files.

mod anchors;
mod world;
