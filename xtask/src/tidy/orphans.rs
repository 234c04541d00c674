//! Rust files that no `mod` line reaches and that are therefore not compiled.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::is_rust_file;

/// Follows the `mod` lines from every crate root and reports unreachable files.
pub fn check(root: &Path, files: &[PathBuf], findings: &mut Vec<String>) -> Result<()> {
    let rust: BTreeSet<&PathBuf> =
        files.iter().filter(|file| is_rust_file(file) && root.join(file).exists()).collect();
    let mut waiting: Vec<PathBuf> =
        rust.iter().filter(|file| is_crate_root(file)).map(|file| (*file).clone()).collect();
    let mut reached = BTreeSet::new();
    while let Some(file) = waiting.pop() {
        if !reached.insert(file.clone()) {
            continue;
        }
        let Ok(text) = fs::read_to_string(root.join(&file)) else {
            continue;
        };
        waiting.extend(children(&file, &text).into_iter().filter(|child| rust.contains(child)));
    }
    for file in rust {
        if !reached.contains(file) {
            findings.push(format!("{}: no `mod` line reaches it", file.display()));
        }
    }
    Ok(())
}

/// Returns true for files that Cargo compiles without a `mod` line.
fn is_crate_root(file: &Path) -> bool {
    let parts: Vec<&str> = file.iter().filter_map(OsStr::to_str).collect();
    match parts.as_slice() {
        [.., "src", "lib.rs" | "main.rs"] | [.., "build.rs"] => true,
        [.., "tests" | "benches" | "examples" | "bin" | "fuzz_targets", name] => {
            // `src/…/tests.rs` is a file, not this folder.
            name.ends_with(".rs")
        }
        [.., "tests" | "benches" | "examples" | "bin", _, "main.rs"] => true,
        _ => false,
    }
}

/// Returns the files that the `mod name;`, `#[path]` and `include!` lines of a file may refer to.
fn children(file: &Path, text: &str) -> Vec<PathBuf> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let stem = file.file_stem().and_then(OsStr::to_str).unwrap_or("");
    let beside = matches!(stem, "lib" | "main" | "mod") || is_crate_root(file);
    let inner = if beside { folder.to_path_buf() } else { folder.join(stem) };
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = module_name(line) {
            found.push(inner.join(format!("{name}.rs")));
            found.push(inner.join(name).join("mod.rs"));
        }
        let named = line
            .strip_prefix("#[path = \"")
            .or_else(|| line.split_once("include!(\"").map(|(_, rest)| rest))
            .and_then(|rest| rest.split_once('"'));
        if let Some((path, _)) = named {
            found.push(normal(&folder.join(path)));
        }
    }
    found
}

/// Returns `name` of `mod name;`, `pub mod name;`, `pub(crate) mod name;`, with or without a
/// preceding attribute.
fn module_name(line: &str) -> Option<&str> {
    let line = line.split("//").next()?.trim();
    let declared = line.strip_suffix(';')?;
    let (before, name) = declared.rsplit_once("mod ")?;
    let before = before.trim();
    let visible = before.is_empty()
        || before == "pub"
        || before.ends_with(']')
        || (before.starts_with("pub(") && before.ends_with(')'));
    visible.then(|| name.trim())
}

/// Returns the path without `..`, as git writes it.
fn normal(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path {
        if part == ".." {
            parts.pop();
        } else if part != "." {
            parts.push(part);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_lines_are_recognised() {
        for (line, expected) in [
            ("mod a;", Some("a")),
            ("pub mod a;", Some("a")),
            ("pub(crate) mod a; // why", Some("a")),
            ("#[cfg(test)] mod tests;", Some("tests")),
            ("// mod a;", None),
            ("mod a {", None),
            ("let x = mod a;", None),
        ] {
            assert_eq!(module_name(line), expected, "{line}");
        }
    }

    #[test]
    fn a_module_is_where_rust_expects_it() {
        for (file, text, expected) in [
            ("crates/a/src/lib.rs", "mod b;", "crates/a/src/b.rs"),
            ("crates/a/src/b.rs", "mod c;", "crates/a/src/b/c.rs"),
            ("crates/a/src/b/mod.rs", "mod c;", "crates/a/src/b/c.rs"),
            ("crates/a/tests/t.rs", "mod c;", "crates/a/tests/c.rs"),
            ("crates/a/tests/p/main.rs", "mod c;", "crates/a/tests/p/c.rs"),
            ("crates/a/src/b.rs", "#[path = \"../x/c.rs\"]", "crates/a/x/c.rs"),
        ] {
            assert!(children(Path::new(file), text).contains(&PathBuf::from(expected)), "{file}: {text}");
        }
    }

    #[test]
    fn roots_are_what_cargo_compiles() {
        for (file, expected) in [
            ("crates/a/src/main.rs", true),
            ("crates/a/tests/t.rs", true),
            ("crates/a/tests/p/main.rs", true),
            ("crates/a/tests/p/kubectl.rs", false),
            ("crates/a/src/embedded/tests.rs", false),
            ("crates/a/build.rs", true),
        ] {
            assert_eq!(is_crate_root(Path::new(file)), expected, "{file}");
        }
    }
}
