//! Fuzzes PEM text: blocks, certificates, keys. Parsed text survives a round trip.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windlass_fuzz::run_with_time_limit;
use windlass_pki::{PrivateKey, PublicKey, pem};

fuzz_target!(|data: &[u8]| {
    let blocks = run_with_time_limit(data, || pem::blocks(data));
    run_with_time_limit(data, || {
        let _ = pem::certificates(data);
        let _ = PrivateKey::from_pem(data);
        let _ = PublicKey::list_from_pem(data);
    });
    let Ok(blocks) = blocks else { return };
    let written: String =
        blocks.iter().map(|block| pem::encode(&block.label, &block.contents).to_string()).collect();
    let again = pem::blocks(written.as_bytes()).unwrap_or_default();
    assert_eq!(again.len(), blocks.len(), "blocks were lost");
    for (a, b) in again.iter().zip(&blocks) {
        assert!(a.label == b.label && a.contents == b.contents, "a block changed");
    }
});
