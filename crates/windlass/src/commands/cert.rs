//! `windlass cert`: shows and revokes issued certificates, and verifies the ledger that records them, on any server.
//!
//! - `ledger`: reads segments and revocations of the server.
//! - `target`: certificates that arguments name: serial numbers, files and servers.
//! - `lookup`: finds the certificate of a target in the ledger.
//! - `request`, `anchors`: its request, and the delivery of its trust anchor.
//! - `view`: certificates of the ledger for text and structured output.
//! - `list`, `show`, `revoke`, `verify`: the subcommands.

mod anchors;
pub mod ledger;
mod list;
mod lookup;
mod request;
mod revoke;
mod show;
mod target;
mod verify;
pub mod view;

use anyhow::Result;

use super::api_client;
use crate::cli::CertCommand;

/// Runs a subcommand of `windlass cert`.
pub fn run(command: CertCommand) -> Result<()> {
    let well = api_client::block_on(async {
        match command {
            CertCommand::List(arguments) => list::run(*arguments).await.map(|()| true),
            CertCommand::Show(arguments) => show::run(arguments).await.map(|()| true),
            CertCommand::Revoke(arguments) => revoke::run(*arguments).await.map(|()| true),
            CertCommand::VerifyLedger(arguments) => verify::run(arguments).await,
        }
    })?;
    if !well {
        std::process::exit(1);
    }
    Ok(())
}
