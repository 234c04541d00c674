//! `windlass bundle`: shows the status of a Bundle.
//!
//! - `snapshot`: fetches the Bundle, namespaces and targets from the server.
//! - `status_report`: evaluates them.
//! - `text`: formats the report for people.

mod snapshot;
mod status_report;
mod text;

use anyhow::Result;
use time::OffsetDateTime;

use super::{api_client, print};
use crate::cli::{BundleCommand, BundleStatusArgs};

use status_report::BundleStatusReport;

/// Runs a subcommand of `windlass bundle`.
pub fn run(command: BundleCommand) -> Result<()> {
    let BundleCommand::Status(arguments) = command;
    let well = api_client::block_on(status(arguments))?;
    if !well {
        std::process::exit(1);
    }
    Ok(())
}

async fn status(arguments: BundleStatusArgs) -> Result<bool> {
    let BundleStatusArgs { name, namespace, output, server } = arguments;
    let client = api_client::connect(&server).await?;
    let seen = snapshot::fetch_snapshot(&client, &name, namespace.as_deref()).await?;
    let now = OffsetDateTime::now_utc();
    let verdict = BundleStatusReport::from_snapshot(&seen, now);
    print::show(&verdict, output.format, |format| text::text(&verdict, format, now))?;
    Ok(verdict.is_healthy())
}
