//! Fuzzes bearer tokens. The key is generated per run, so no input can be signed by it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

use windlass_fuzz::run_with_time_limit;
use windlass_pki::PrivateKey;
use windlass_server::TokenVerifier;

static VERIFIER: LazyLock<TokenVerifier> = LazyLock::new(|| {
    let key = PrivateKey::generate().expect("a key");
    let issuers = vec!["https://kubernetes.default.svc".to_owned()];
    TokenVerifier::new(issuers, Vec::new(), &[key.public_key().clone()]).expect("a verifier")
});

fuzz_target!(|data: &[u8]| {
    let Ok(token) = std::str::from_utf8(data) else { return };
    LazyLock::force(&VERIFIER);
    assert!(run_with_time_limit(data, || VERIFIER.verify(token)).is_err(), "a token that nobody signed");
});
