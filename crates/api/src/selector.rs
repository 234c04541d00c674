//! Label and field selectors of list and watch requests.

pub mod fields;
pub mod labels;
