//! The doorway.

mod datadir;

fn main() {}
