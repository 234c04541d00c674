//! The conformance suite on this engine, and tests of what only it has: files, damage, locks, full
//! disks.

use super::*;
use crate::suite::{Fixture, conformance};

conformance!(fixture);

fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new(dir.path());
    Fixture {
        open: Box::new(move || Arc::new(Embedded::open(options.clone()).unwrap())),
        _keep: Box::new(dir),
    }
}
