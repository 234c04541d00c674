//! Fuzzes a public key and its proof of possession. The first two bytes are the length of the key.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windlass_fuzz::run_with_time_limit;
use windlass_pki::SubjectKey;

fuzz_target!(|data: &[u8]| {
    let Some((length, rest)) = data.split_first_chunk::<2>() else { return };
    let length = usize::from(u16::from_be_bytes(*length)).min(rest.len());
    let (key, proof) = rest.split_at(length);
    run_with_time_limit(data, || {
        let Ok(key) = SubjectKey::from_der(key) else { return };
        let _ = key.pod_key_type();
        let _ = key.to_public_key();
        let _ = key.verify_possession(b"9f1c7b9e-6d0b-4a55-8f39-0d5b6f0c1a11", proof);
    });
});
