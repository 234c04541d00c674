//! Which objects a client asks for: by their labels, and by some of their fields.

pub mod fields;
pub mod labels;
