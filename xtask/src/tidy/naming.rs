//! Naming rules: a type name is unique within its crate, and a doc comment says more than the name.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Minimum words of a one-line doc comment; fewer only repeat the item's name.
const MIN_DOC_WORDS: usize = 3;

/// Doc comments below are help texts, which may be short.
const HELP_TEXTS: &str = "crates/windlass/src/cli";

/// Locations of type definitions, as `file:line`.
type Definitions = BTreeMap<(PathBuf, String), Vec<String>>;

/// Reports duplicate type names within a crate, and doc comments that are too short.
pub fn check(root: &Path, files: &[PathBuf], findings: &mut Vec<String>) {
    let mut definitions = Definitions::new();
    for file in files.iter().filter(|file| super::is_rust_file(file)) {
        let Ok(text) = fs::read_to_string(root.join(file)) else { continue };
        collect_types(file, &text, &mut definitions);
        if !file.display().to_string().starts_with(HELP_TEXTS) {
            short_docs(file, &text, findings);
        }
    }
    for ((package, name), places) in definitions {
        // Every crate has an `Error`, and modules may have one besides.
        if places.len() > 1 && name != "Error" {
            let package = package.display();
            findings.push(format!("{package}: type {name} is defined at {}", places.join(", ")));
        }
    }
}

fn collect_types(file: &Path, text: &str, definitions: &mut Definitions) {
    let package = package(file);
    for (number, line) in text.lines().enumerate() {
        if let Some(name) = type_name(line) {
            let place = format!("{}:{}", file.display(), number + 1);
            definitions.entry((package.clone(), name.to_owned())).or_default().push(place);
        }
    }
}

fn package(file: &Path) -> PathBuf {
    let depth = if file.starts_with("crates") { 2 } else { 1 };
    file.iter().take(depth).collect()
}

/// Returns the name of a struct, enum, trait or union that a line defines.
fn type_name(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let item = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1.trim_start(),
        Some(rest) => rest.strip_prefix(' ')?,
        None => line,
    };
    let rest = ["struct ", "enum ", "trait ", "union "].iter().find_map(|word| item.strip_prefix(word))?;
    let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
    let name = rest.get(..end)?;
    name.starts_with(|first: char| first.is_ascii_uppercase()).then_some(name)
}

fn short_docs(file: &Path, text: &str, findings: &mut Vec<String>) {
    let lines: Vec<&str> = text.lines().collect();
    let is_doc = |index: Option<usize>| {
        index.and_then(|index| lines.get(index)).is_some_and(|line| line.trim_start().starts_with("///"))
    };
    for (index, line) in lines.iter().enumerate() {
        let Some(comment) = line.trim_start().strip_prefix("///") else { continue };
        let is_alone = !is_doc(index.checked_sub(1)) && !is_doc(Some(index + 1));
        if is_alone && comment.split_whitespace().count() < MIN_DOC_WORDS {
            let (file, number) = (file.display(), index + 1);
            findings.push(format!("{file}:{number}: doc comment repeats the name:{comment}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_names_are_found() {
        for (line, expected) in [
            ("pub struct WorkQueue<K> {", Some("WorkQueue")),
            ("    pub(crate) enum CsrState<'a> {", Some("CsrState")),
            ("trait Engine: Send {", Some("Engine")),
            ("pub fn structure() {}", None),
            ("structural", None),
        ] {
            assert_eq!(type_name(line), expected, "{line}");
        }
    }

    #[test]
    fn short_doc_comments_are_found() {
        let text = "/// Its name.\nname: String,\n/// First line.\n/// Second.\nx: u8,\n/// Seconds since renewal.\ny: u8,\n";
        let mut findings = Vec::new();
        short_docs(Path::new("a.rs"), text, &mut findings);
        assert_eq!(findings, ["a.rs:1: doc comment repeats the name: Its name."]);
    }

    #[test]
    fn a_name_used_twice_in_a_crate_is_found() {
        let mut definitions = Definitions::new();
        collect_types(Path::new("crates/a/src/x.rs"), "struct Place;\nstruct Error;", &mut definitions);
        collect_types(Path::new("crates/a/src/y.rs"), "enum Place {}", &mut definitions);
        collect_types(Path::new("crates/b/src/y.rs"), "enum Place {}", &mut definitions);
        let places = &definitions[&(PathBuf::from("crates/a"), "Place".to_owned())];
        assert_eq!(places, &["crates/a/src/x.rs:1", "crates/a/src/y.rs:1"]);
    }
}
