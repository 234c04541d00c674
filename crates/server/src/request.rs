//! What a request asks for: parsed once, at the front, into types the rest can trust.

pub mod info;
pub mod negotiation;
pub mod options;
pub mod query;
pub mod selection;
