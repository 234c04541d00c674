//! Entry point: parses the command line, starts logging and runs the command.

mod cli;
mod cluster_identity;
mod commands;
mod datadir;
mod descriptors;
mod expiry;
mod logging;
mod serve;
mod shell;

use std::process::ExitCode;

use clap::Parser;

/// Exit code after SIGINT: 128 plus the signal number.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    logging::start(&cli.logging);
    match commands::run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("windlass: {}", windlass_runtime::client_error::describe(error.as_ref()));
            match error.chain().any(|cause| cause.is::<commands::InterruptedError>()) {
                true => ExitCode::from(INTERRUPTED),
                false => ExitCode::FAILURE,
            }
        }
    }
}
