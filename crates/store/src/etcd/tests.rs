//! The conformance suite on a real etcd, and tests of what only this engine has.
//!
//! `cargo xtask test` says in `WINDLASS_ETCD` where etcd is; without it, it is looked for on
//! `PATH`. A process is used by one store at a time and again by the next, because the suite
//! expects no other writer.

mod process;

use super::*;
use crate::suite::{Fixture, conformance};
use process::Process;

conformance!(fixture);

/// A new prefix on an etcd that nobody else uses, with no history before it.
fn fixture() -> Fixture {
    let process = Process::take();
    let mut options = EtcdOptions::new([process.url()]);
    options.prefix = format!("/test-{}", process.uses());
    let store = Etcd::open(options.clone()).unwrap();
    wait(&store.handle, {
        let core = Arc::clone(&store.core);
        async move { reader::compact(&core, core.position()).await }
    })
    .unwrap();
    Fixture {
        open: Box::new(move || Arc::new(Etcd::open(options.clone()).unwrap())),
        _keep: Box::new(process),
    }
}
