//! Project tasks: `cargo xtask test`, `cargo xtask tidy`, `cargo xtask bench`, `cargo xtask
//! attack`, `cargo xtask fuzz`.

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

/// Development tasks of the Windlass repository
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum XtaskCommand {
    /// Install the test tools, build, and run all tests and tidy checks
    Test(test::TestArgs),
    /// Check file lengths, names, orphans, leftovers and the README
    Tidy,
    /// Benchmark the release binary over TLS and print a table of results
    Bench(bench::BenchArgs),
    /// Attack a local server and print the cost for the server and an honest client
    Attack(attack::AttackArgs),
    /// Fuzz all parsers; needs cargo-fuzz and a nightly compiler
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

/// Returns the workspace directory: the parent of this package at build time.
fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_path_buf()
}
