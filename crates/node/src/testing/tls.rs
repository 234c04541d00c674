//! Certificates that TLS accepts.

use time::{Duration, OffsetDateTime};
use windlass_pki::{AltNames, PrivateKey, parse_certificate_blocks};

use super::{AUTHORITY, CertificateFixture};
use crate::key_pair::CertificateKeyPair;

/// The CA of all tests, as DER.
pub fn authority_der() -> Vec<u8> {
    AUTHORITY.certificate().der().to_vec()
}

/// A currently valid serving certificate for 127.0.0.1.
pub fn loopback_identity() -> CertificateKeyPair {
    let key = PrivateKey::generate().unwrap();
    let ip_addresses = vec!["127.0.0.1".parse().unwrap()];
    let names = AltNames { ip_addresses, ..AltNames::default() };
    let from = OffsetDateTime::now_utc() - Duration::hours(1);
    let fixture = CertificateFixture { names, ..CertificateFixture::client(from) };
    let pem = fixture.pem_for_usages(key.public_key(), &["digital signature", "server auth"]);
    CertificateKeyPair::new(parse_certificate_blocks(pem.as_bytes()).unwrap(), key).unwrap()
}
