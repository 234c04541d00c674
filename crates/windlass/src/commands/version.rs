//! `windlass version`.

use std::io::{self, Write};

use anyhow::{Context, Result};

/// Prints the program's version.
pub fn run() -> Result<()> {
    writeln!(io::stdout().lock(), "windlass {}", env!("CARGO_PKG_VERSION"))
        .context("cannot write to standard output")
}
