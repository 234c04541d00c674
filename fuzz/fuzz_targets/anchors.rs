//! Fuzzes the PEM text of a trust bundle.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windlass_fuzz::run_with_time_limit;
use windlass_pki::{limits, parse_certificate_blocks, parse_trust_anchors};

fuzz_target!(|data: &[u8]| {
    run_with_time_limit(data, || {
        let _ = parse_certificate_blocks(data);
        let Ok(text) = std::str::from_utf8(data) else { return };
        match parse_trust_anchors(text, limits::MAX_TRUST_BUNDLE_BYTES) {
            Ok(anchors) => {
                assert!(anchors.iter().all(|anchor| anchor.certificate().is_authority()))
            }
            Err(error) => drop(error.to_string()),
        }
    });
});
