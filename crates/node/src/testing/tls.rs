//! Certificates that TLS believes in.

use time::{Duration, OffsetDateTime};
use windlass_pki::{
    AltNames, CertificateTemplate, CertificateUsages, IssuedSubject, PrivateKey, Serial,
    SubjectKey, SystemRandom, Validity, issue_certificate, parse_certificate_blocks,
};

use super::AUTHORITY;
use crate::key_pair::CertificateKeyPair;

/// The authority of all tests.
pub fn authority_der() -> Vec<u8> {
    AUTHORITY.certificate().der().to_vec()
}

/// A serving certificate of 127.0.0.1, good now.
pub fn loopback_identity() -> CertificateKeyPair {
    let key = PrivateKey::generate().unwrap();
    let public_key = SubjectKey::from_der(key.public_key().as_der()).unwrap();
    let from = OffsetDateTime::now_utc() - Duration::hours(1);
    let ip_addresses = vec!["127.0.0.1".parse().unwrap()];
    let issued = issue_certificate(
        &AUTHORITY,
        &CertificateTemplate {
            subject: IssuedSubject::new("system:node:n1", &["system:nodes"]),
            alt_names: AltNames { ip_addresses, ..AltNames::default() },
            usages: CertificateUsages::from_names(&["digital signature", "server auth"]).unwrap(),
            validity: Validity::new(from, from + Duration::days(1)).unwrap(),
            public_key: &public_key,
            serial: Serial::random(&SystemRandom::new()).unwrap(),
        },
    );
    let chain = parse_certificate_blocks(issued.unwrap().to_pem().as_bytes()).unwrap();
    CertificateKeyPair::new(chain, key).unwrap()
}
