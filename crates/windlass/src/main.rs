//! The doorway: reads the command line, sets up logging, runs the command.

mod cli;
mod commands;
mod datadir;
mod descriptors;
mod expiry;
mod logging;
mod plane;
mod serve;
mod shell;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    logging::start(&cli.logging);
    match commands::run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("windlass: {error:#}");
            ExitCode::FAILURE
        }
    }
}
