//! Request parsing: path, query and headers, parsed once into typed values.

pub(crate) mod info;
pub(crate) mod negotiation;
pub(crate) mod options;
pub(crate) mod query;
pub(crate) mod selection;
