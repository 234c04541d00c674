//! Runs the documentation page about the ledger, on one with the certificates that it names.

use super::ledger_seed::{LedgerSeed, node_record, pod_record, record};
use super::{NEW, OLD, ledger_server};
use crate::server::PATIENCE;
use crate::trust_docs::{code_blocks, paste, programs};

const PAGE: &str = include_str!("../../../../../docs/ledger.md");

#[test]
fn everything_can_be_pasted() {
    let admin = ledger_server();
    let mut seed = LedgerSeed::new();
    seed.issue(node_record("71c0a5", OLD, "n1", 0));
    seed.issue(node_record("71c0a6", NEW, "n1", 1));
    seed.issue(record("4f0c9a7be2d85310", OLD, "example.com/web", 90));
    seed.issue(pod_record("5d21", NEW, "shop", "web-0"));
    seed.store(&admin);
    let programs = programs(admin.server.place().path());
    let script = format!("export KUBECONFIG={}\n", admin.kubeconfig.display());
    let said = paste(&admin.server, &(script + &code_blocks(PAGE, "sh").concat()), &programs, PATIENCE * 4);
    for words in [
        "4f0c9a7be2d85310   example.com/web",
        &format!("certificaterevocation.windlass.dev/{OLD}-4f0c9a7be2d85310 revoked (certificateHold)"),
        " valid again (revocation withdrawn)",
        "HEAD\n",
    ] {
        assert!(said.contains(words), "{words} in\n{said}");
    }
}
