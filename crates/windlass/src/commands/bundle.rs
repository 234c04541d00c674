//! `windlass bundle`: what became of a Bundle.
//!
//! - `look`: what the server has: the Bundle, namespaces, targets.
//! - `verdict`: what is made of it.
//! - `text`: how that is said to people.

mod look;
mod text;
mod verdict;

use anyhow::Result;
use time::OffsetDateTime;

use super::{connect, print};
use crate::cli::{BundleCommand, BundleStatusArgs};

use verdict::Verdict;

/// Does what was asked about Bundles.
pub fn run(command: BundleCommand) -> Result<()> {
    let BundleCommand::Status(arguments) = command;
    let well = connect::block_on(status(arguments))?;
    if !well {
        std::process::exit(1);
    }
    Ok(())
}

async fn status(arguments: BundleStatusArgs) -> Result<bool> {
    let BundleStatusArgs { name, output, server } = arguments;
    let client = connect::client(server.kubeconfig.as_deref()).await?;
    let seen = look::look(&client, &name).await?;
    let now = OffsetDateTime::now_utc();
    let verdict = Verdict::of(&seen, now);
    print::show(&verdict, output.format, |format| text::text(&verdict, format, now))?;
    Ok(verdict.is_well())
}
