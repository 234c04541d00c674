//! `windlass rotate`: replaces the CA of a signer and shows the progress.
//!
//! - `rotations`: reads CARotations, and finds the one that the user means.
//! - `plan`: what a rotation would do; `start`: creates one; `change`: changes a running one.
//! - `status`: shows rotations; `status_text` formats them for people.
//! - `completion`: waits for the end of a rotation; `hints`: what to do about one that is held.

mod change;
mod completion;
mod hints;
mod plan;
mod progress_bar;
mod rotations;
mod start;
mod status;
mod status_text;

use anyhow::Result;

use super::api_client;
use crate::cli::RotateCommand;

use change::SpecChange;

/// Exit code of `start --wait` if the rotation was held for longer than the timeout.
const HELD: i32 = 2;

/// Runs a subcommand of `windlass rotate`.
pub fn run(command: RotateCommand) -> Result<()> {
    let code = api_client::block_on(async {
        let done = match command {
            RotateCommand::Plan(arguments) => plan::run(arguments).await,
            RotateCommand::Start(arguments) => return start::run(*arguments).await,
            RotateCommand::Status(arguments) => status::run(arguments).await,
            RotateCommand::Pause(arguments) => change::run(arguments.change, &SpecChange::Pause).await,
            RotateCommand::Resume(arguments) => change::run(arguments.change, &SpecChange::Resume).await,
            RotateCommand::Rollback(arguments) => change::run(arguments.change, &SpecChange::Rollback).await,
            RotateCommand::Retire(arguments) => change::retire(arguments).await,
            RotateCommand::Exclude(arguments) => {
                change::run(arguments.change, &SpecChange::Exclude(arguments.nodes)).await
            }
            RotateCommand::Accept(arguments) => {
                change::run(arguments.change, &SpecChange::Accept(arguments.consumers)).await
            }
        };
        done.map(|()| 0)
    })?;
    if code != 0 {
        std::process::exit(code);
    }
    Ok(())
}
