//! Fuzzes the chain that a signer writes to the status of a pod certificate request.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windlass_fuzz::run_with_time_limit;
use windlass_pki::IssuedChain;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    run_with_time_limit(data, || {
        let Ok(chain) = IssuedChain::parse(text) else { return };
        let _ = chain.leaf_faults();
        let _ = chain.check_rest();
        assert!(chain.is_for_key(chain.leaf().public_key()));
    });
});
