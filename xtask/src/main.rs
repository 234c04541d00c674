//! The project's chores: `cargo xtask test`, `cargo xtask tidy`, `cargo xtask bench`, `cargo xtask attack`,
//! `cargo xtask fuzz`.

#![allow(clippy::print_stdout, reason = "a command line tool answers on stdout")]

mod attack;
mod bench;
mod fuzz;
mod test;
mod tidy;
mod tools;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

/// Chores of the Windlass repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum XtaskCommand {
    /// Install what the tests need, build, and run every test and the tidiness checks.
    Test(test::TestArgs),
    /// Check what the compiler does not: file lengths, names, orphans, leftovers, the README.
    Tidy,
    /// Start the release binary, drive it over TLS, and print a table of what was measured.
    Bench(bench::BenchArgs),
    /// Attack a server that is started for it, and print what it costs the server and an honest client.
    Attack(attack::AttackArgs),
    /// Try inputs by the million on everything that parses; needs cargo-fuzz and a nightly compiler.
    Fuzz(fuzz::FuzzArgs),
}

fn main() -> ExitCode {
    let done = match XtaskCommand::parse() {
        XtaskCommand::Test(args) => test::run(&root(), &args),
        XtaskCommand::Tidy => tidy::run(&root()),
        XtaskCommand::Bench(args) => bench::run(&root(), &args),
        XtaskCommand::Attack(args) => attack::run(&root(), &args),
        XtaskCommand::Fuzz(args) => fuzz::run(&root(), &args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace's directory: where this package's parent was at build time.
fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_path_buf()
}
