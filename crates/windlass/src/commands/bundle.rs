//! `windlass bundle`: what became of a Bundle.
//!
//! - `look`: what the server has: the Bundle, namespaces, targets.
//! - `verdict`: what is made of it.
//! - `text`: how that is said to people.

mod snapshot;
mod status_report;
mod text;

use anyhow::Result;
use time::OffsetDateTime;

use super::{api_client, print};
use crate::cli::{BundleCommand, BundleStatusArgs};

use status_report::BundleStatusReport;

/// Does what was asked about Bundles.
pub fn run(command: BundleCommand) -> Result<()> {
    let BundleCommand::Status(arguments) = command;
    let well = api_client::block_on(status(arguments))?;
    if !well {
        std::process::exit(1);
    }
    Ok(())
}

async fn status(arguments: BundleStatusArgs) -> Result<bool> {
    let BundleStatusArgs { name, output, server } = arguments;
    let client = api_client::connect(&server).await?;
    let seen = snapshot::fetch_snapshot(&client, &name).await?;
    let now = OffsetDateTime::now_utc();
    let verdict = BundleStatusReport::from_snapshot(&seen, now);
    print::show(&verdict, output.format, |format| text::text(&verdict, format, now))?;
    Ok(verdict.is_healthy())
}
