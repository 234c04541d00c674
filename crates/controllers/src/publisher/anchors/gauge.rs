//! Tells which signers' bundles are somebody else's.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

/// By signer. There are as many as the user's file describes.
static FOREIGN: Mutex<BTreeMap<String, bool>> = Mutex::new(BTreeMap::new());

/// Notes whether the bundle of a signer is somebody else's; says whether that is new.
pub fn record_foreign(signer: &str, foreign: bool) -> bool {
    let mut signers = FOREIGN.lock().unwrap_or_else(PoisonError::into_inner);
    signers.insert(signer.to_owned(), foreign) != Some(foreign)
}

/// Writes it as Prometheus text.
pub fn metrics(out: &mut String) {
    let name = "windlass_signer_bundle_conflict";
    let help = "Whether the signer's anchors are not published because the bundle is another's";
    // Writing to a string does not fail.
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge");
    for (signer, foreign) in FOREIGN.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        let _ = writeln!(out, "{name}{{signer=\"{signer}\"}} {}", i64::from(*foreign));
    }
}
