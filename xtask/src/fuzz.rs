//! `cargo xtask fuzz`: every fuzz target for a while, from its seeds.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::tools::{on_path, succeed};

/// Inputs as long as the time limit of the targets speaks of.
const MAX_BYTES: usize = 64 << 10;

/// What to fuzz, and for how long.
#[derive(clap::Args)]
pub struct FuzzArgs {
    /// How long each target runs.
    #[arg(long, default_value_t = 20)]
    seconds: u32,
    /// Only this fuzz target [default: all targets]
    target: Option<String>,
}

/// Run the targets one after another; the first that finds something ends the run.
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
        // The code under test has no `unsafe`: a panic is what there is to find, and without a
        // sanitizer several times as many inputs are tried.
        let mut fuzz = Command::new("cargo");
        fuzz.args(["+nightly", "fuzz", "run", "--sanitizer", "none", name])
            .args([found, seeds])
            .arg("--")
            .arg(format!("-max_total_time={}", args.seconds))
            .arg(format!("-max_len={MAX_BYTES}"))
            .args(["-timeout=10", "-print_final_stats=1"])
            .current_dir(root);
        succeed(without_cargo(&mut fuzz)).with_context(|| {
            format!("{name} found something: the input is under fuzz/artifacts/{name}")
        })?;
    }
    println!("xtask fuzz: {} targets, nothing found", chosen.len());
    Ok(())
}

/// The targets are the files.
fn targets(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder.join("fuzz_targets"))? {
        let file = entry?.path();
        names.extend(file.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

/// Says what to install where something is missing.
fn available() -> Result<()> {
    ensure!(
        on_path("cargo-fuzz").is_some(),
        "cargo-fuzz is not on PATH; install it with `cargo install cargo-fuzz`"
    );
    let mut nightly = Command::new("cargo");
    nightly.args(["+nightly", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    let there = without_cargo(&mut nightly).status().is_ok_and(|status| status.success());
    ensure!(
        there,
        "libFuzzer needs a nightly compiler; install it with `rustup toolchain install nightly`"
    );
    Ok(())
}

/// Forgets the toolchain that runs this: rustup would otherwise not look at `+nightly`.
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
