//! `cargo xtask fuzz`: runs every fuzz target for a limited time, from its seeds.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::tools::{on_path, succeed};

/// Maximum input length: what the targets' time limit refers to.
const MAX_BYTES: usize = 64 << 10;

/// Targets to fuzz and duration
#[derive(clap::Args)]
pub struct FuzzArgs {
    /// Seconds to run each target
    #[arg(long, default_value_t = 20)]
    seconds: u32,
    /// Only this fuzz target [default: all targets]
    target: Option<String>,
}

/// Runs the targets one after another; stops at the first finding.
pub fn run(root: &Path, args: &FuzzArgs) -> Result<()> {
    let folder = root.join("fuzz");
    let all = targets(&folder)?;
    let chosen: Vec<&String> =
        all.iter().filter(|name| args.target.as_ref().is_none_or(|t| t == *name)).collect();
    if chosen.is_empty() {
        bail!("there is no such target; there are {}", all.join(", "));
    }
    available()?;
    for name in &chosen {
        println!("xtask fuzz: {name}");
        let (found, seeds) = (folder.join("corpus").join(name), folder.join("seeds").join(name));
        fs::create_dir_all(&found)?;
        // The code under test has no `unsafe`: only panics can be found, and without a sanitizer
        // several times as many inputs are tried.
        let mut fuzz = Command::new("cargo");
        fuzz.args(["+nightly", "fuzz", "run", "--sanitizer", "none", name])
            .args([found, seeds])
            .arg("--")
            .arg(format!("-max_total_time={}", args.seconds))
            .arg(format!("-max_len={MAX_BYTES}"))
            .args(["-timeout=10", "-print_final_stats=1"])
            .current_dir(root);
        succeed(without_cargo(&mut fuzz))
            .with_context(|| format!("{name} found something: the input is under fuzz/artifacts/{name}"))?;
    }
    println!("xtask fuzz: {} targets, nothing found", chosen.len());
    Ok(())
}

/// Returns the targets, one per file.
fn targets(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder.join("fuzz_targets"))? {
        let file = entry?.path();
        names.extend(file.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

/// Checks for required tools and names what to install.
fn available() -> Result<()> {
    ensure!(
        on_path("cargo-fuzz").is_some(),
        "cargo-fuzz is not on PATH; install it with `cargo install cargo-fuzz`"
    );
    let mut nightly = Command::new("cargo");
    nightly.args(["+nightly", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    let there = without_cargo(&mut nightly).status().is_ok_and(|status| status.success());
    ensure!(there, "libFuzzer needs a nightly compiler; install it with `rustup toolchain install nightly`");
    Ok(())
}

/// Removes the current toolchain from the environment: rustup would otherwise ignore `+nightly`.
fn without_cargo(command: &mut Command) -> &mut Command {
    for name in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        command.env_remove(name);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_built_and_has_seeds() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let names = targets(&folder).unwrap();
        assert!(!names.is_empty());
        for name in &names {
            assert!(manifest.contains(&format!("\"fuzz_targets/{name}.rs\"")), "{name}");
            assert!(fs::read_dir(folder.join("seeds").join(name)).unwrap().count() > 0, "{name}");
        }
        assert_eq!(manifest.matches("[[bin]]").count(), names.len());
    }
}
