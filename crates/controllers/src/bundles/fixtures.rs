//! Certificates and Bundles for tests.

use serde_json::{Value, json};
use time::macros::datetime;
use time::{Duration, OffsetDateTime};
use windlass_api::trust_bundle::Bundle;
use windlass_pki::{CertificateAuthority, KeyPurpose, PrivateKey, Validity, issue, pem};
use windlass_testkit::{ca_with_validity, leaf_template};

/// Roots that are valid from 2026 to 2056.
pub const P256: &str = include_str!("../../../pki/tests/verdicts/ca-p256.pem");
pub const ED25519: &str = include_str!("../../../pki/tests/verdicts/ca-ed25519.pem");
pub const RSA: &str = include_str!("../../../pki/tests/verdicts/ca-rsa2048.pem");

/// A time at which those are valid.
pub fn now() -> OffsetDateTime {
    datetime!(2026-06-01 00:00 UTC)
}

pub fn expired_ca() -> String {
    ca_valid_until(now() - Duration::SECOND)
}

/// A CA certificate that is valid until then.
pub fn ca_valid_until(end: OffsetDateTime) -> String {
    authority(end).certificate().to_pem()
}

/// A certificate that is not a CA.
pub fn leaf_certificate() -> String {
    let authority = authority(now() + Duration::DAY);
    let key = PrivateKey::generate().unwrap();
    let leaf = leaf_template("leaf", &[KeyPurpose::ClientAuth], authority.certificate().validity(), &key);
    pem::encode_certificates([issue(&authority, &leaf).unwrap().as_slice()])
}

fn authority(end: OffsetDateTime) -> CertificateAuthority {
    let validity = Validity::new(end - Duration::days(30), end).unwrap();
    ca_with_validity("ca", validity)
}

/// A Bundle called `bundle` with these sources and this target.
pub fn bundle(sources: Value, target: Value) -> Bundle {
    let mut spec = json!({"sources": sources});
    if !target.is_null() {
        spec["target"] = target;
    }
    let metadata = json!({"name": "bundle", "uid": "123", "generation": 2});
    let mut object = json!({"metadata": metadata, "spec": spec});
    windlass_api::trust_bundle::set_defaults(&mut object);
    Bundle::from_value(&object).unwrap()
}
