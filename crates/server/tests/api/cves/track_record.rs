//! `docs/track-record.md` must name the actual tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Every test named after a vulnerability is listed, and every listed test exists in the named
/// file.
#[test]
fn the_track_record_is_true() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let (mut found, mut all) = (BTreeSet::new(), BTreeSet::new());
    for file in super::sources(&root.join("crates")) {
        let shown = file.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        for line in fs::read_to_string(&file).unwrap().lines() {
            let name = line.trim_start().trim_start_matches("async ").strip_prefix("fn ");
            let name = name.and_then(|rest| rest.split('(').next()).unwrap_or_default();
            if name.starts_with("cve_") || name.starts_with("ghsa_") {
                found.insert(format!("{shown}::{name}"));
            }
            all.insert(format!("{shown}::{name}"));
        }
    }
    let text = fs::read_to_string(root.join("docs/track-record.md")).unwrap();
    let quoted = text.split('`').filter(|word| word.starts_with("crates/"));
    let listed: BTreeSet<String> = quoted.map(str::to_owned).collect();
    let unlisted: Vec<_> = found.difference(&listed).collect();
    let missing: Vec<_> = listed.difference(&all).collect();
    assert!(unlisted.is_empty(), "not in docs/track-record.md: {unlisted:#?}");
    assert!(missing.is_empty(), "no such test: {missing:#?}");
    assert!(found.len() > 40, "only {} tests", found.len());
}
