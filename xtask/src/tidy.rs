//! `cargo xtask tidy`: repository rules that no compiler checks.

mod naming;
mod orphans;
mod readme;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// Maximum number of lines per file; a longer file contains more than one concept.
const MAX_LINES: usize = 600;

/// Files that may be longer, with reasons.
const LONG_FILES: &[(&str, &str)] = &[];

/// Module names that describe nothing.
const EMPTY_NAMES: &[&str] = &["util", "utils", "common", "helper", "helpers", "misc"];

/// Runs all checks, prints every finding, and fails if there is one.
pub fn run(root: &Path) -> Result<()> {
    let files = git_files(root)?;
    let own_home = own_home();
    let mut findings = Vec::new();
    for file in &files {
        names(file, &mut findings);
        let Ok(text) = fs::read_to_string(root.join(file)) else {
            continue; // Binary, or deleted and not yet committed.
        };
        length(file, &text, &mut findings);
        leftovers(file, &text, own_home.as_deref(), &mut findings);
    }
    stale_exceptions(root, &mut findings);
    orphans::check(root, &files, &mut findings)?;
    naming::check(root, &files, &mut findings);
    readme::check(root, &mut findings)?;

    for finding in &findings {
        println!("tidy: {finding}");
    }
    if !findings.is_empty() {
        bail!("tidy: {} findings", findings.len());
    }
    println!("tidy: {} files, nothing to say", files.len());
    Ok(())
}

/// Returns the files that git tracks or would track.
fn git_files(root: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("cannot run git")?;
    ensure!(output.status.success(), "git ls-files: {}", output.status);
    let files = String::from_utf8(output.stdout)?;
    Ok(files.lines().map(PathBuf::from).collect())
}

fn is_rust_file(file: &Path) -> bool {
    file.extension() == Some(OsStr::new("rs"))
}

fn length(file: &Path, text: &str, findings: &mut Vec<String>) {
    let lines = text.lines().count();
    let excused = LONG_FILES.iter().any(|(long, _)| Path::new(long) == file);
    if is_rust_file(file) && lines > MAX_LINES && !excused {
        findings.push(format!(
            "{}: {lines} lines, more than {MAX_LINES}: split it, or give a reason in LONG_FILES",
            file.display()
        ));
    }
}

/// Reports exceptions that are no longer needed.
fn stale_exceptions(root: &Path, findings: &mut Vec<String>) {
    for (long, _) in LONG_FILES {
        let lines = fs::read_to_string(root.join(long)).map_or(0, |text| text.lines().count());
        if lines <= MAX_LINES {
            findings.push(format!("{long}: in LONG_FILES but not long"));
        }
    }
}

fn names(file: &Path, findings: &mut Vec<String>) {
    let parts = file.iter().filter_map(OsStr::to_str);
    for part in parts {
        let stem = part.strip_suffix(".rs").unwrap_or(part);
        if EMPTY_NAMES.contains(&stem) {
            findings.push(format!("{}: \"{stem}\" says nothing about what it holds", file.display()));
        }
    }
}

/// Returns the home directory of the current user: no file of the project may name it.
fn own_home() -> Option<String> {
    let home = std::path::PathBuf::from(std::env::var_os("HOME")?);
    home.parent()?;
    Some(format!("{}/", home.display()))
}

/// Reports to-do notes and paths of a personal machine.
fn leftovers(file: &Path, text: &str, own_home: Option<&str>, findings: &mut Vec<String>) {
    let kinds = ["rs", "md", "toml", "py", "sh", "yaml", "yml"];
    let text_file =
        file.extension().and_then(OsStr::to_str).is_some_and(|extension| kinds.contains(&extension));
    // This file contains the patterns that it searches for.
    if !text_file || file.ends_with("xtask/src/tidy.rs") {
        return;
    }
    let notes = ["TODO", "FIXME", "XXX:", "todo!("];
    for (number, line) in text.lines().enumerate() {
        for found in notes.iter().filter(|note| line.contains(**note)) {
            findings.push(format!("{}:{}: {found}", file.display(), number + 1));
        }
        for found in own_home.iter().filter(|home| line.contains(**home)) {
            findings.push(format!("{}:{}: a path of one machine ({found})", file.display(), number + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_are_found_where_people_write() {
        let cases = [
            ("crates/api/src/a.rs", "// TODO: later", 1),
            ("docs/a.md", "see /home/jane/notes", 1),
            ("crates/api/src/a.rs", "let todo = 1;", 0),
            ("crates/api/testdata/a.json", "{\"a\":\"TODO\"}", 0),
        ];
        for (file, text, expected) in cases {
            let mut findings = Vec::new();
            leftovers(Path::new(file), text, Some("/home/jane/"), &mut findings);
            assert_eq!(findings.len(), expected, "{file}: {text}");
        }
    }

    #[test]
    fn empty_names_are_found_in_folders_and_files() {
        for (file, expected) in [
            ("crates/api/src/util.rs", 1),
            ("crates/api/src/common/a.rs", 1),
            ("crates/api/src/utility.rs", 0),
        ] {
            let mut findings = Vec::new();
            names(Path::new(file), &mut findings);
            assert_eq!(findings.len(), expected, "{file}");
        }
    }

    #[test]
    fn long_files_need_a_reason() {
        let mut findings = Vec::new();
        length(Path::new("a.rs"), &"x\n".repeat(600), &mut findings);
        assert!(findings.is_empty());
        length(Path::new("a.rs"), &"x\n".repeat(601), &mut findings);
        assert_eq!(findings.len(), 1);
    }
}
