//! `windlass version`: prints the version.

use anyhow::Result;
use serde_json::json;

use super::print;
use crate::cli::VersionArgs;

pub fn run(arguments: &VersionArgs) -> Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let document = json!({ "version": version });
    print::show(&document, arguments.output.format, |_| format!("windlass {version}\n"))
}
