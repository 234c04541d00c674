//! What a request asks for: parsed once, at the front, into types the rest can trust.

pub(crate) mod info;
pub(crate) mod negotiation;
pub(crate) mod options;
pub(crate) mod query;
pub(crate) mod selection;
