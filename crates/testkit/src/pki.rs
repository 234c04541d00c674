//! CAs and certificates that tests issue for themselves.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use time::macros::datetime;
use time::{Duration, OffsetDateTime};
use windlass_pki::{
    AltNames, CertificateAuthority, CertificateTemplate, CertificateUsages, ForeignCertificate,
    IssuedSubject, KeyPurpose, LeafTemplate, PrivateKey, PublicKey, Serial, Subject, SubjectKey,
    SystemRandom, Validity, issue_certificate, parse_certificate_blocks,
};

/// When tests in virtual time begin.
pub const START: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);

/// The CA of tests in virtual time; valid ten years before [`START`] and ninety years after it.
pub static AUTHORITY: LazyLock<CertificateAuthority> = LazyLock::new(|| {
    let from = START - Duration::days(3650);
    ca_with_validity("test", Validity::lasting(from, Duration::days(36500)).unwrap())
});

/// A random serial number for a new certificate.
pub fn random_serial() -> Serial {
    Serial::random(&SystemRandom::new()).unwrap()
}

/// A new self-signed CA with this common name, valid from a day ago for ten years.
pub fn self_signed_ca(name: &str) -> CertificateAuthority {
    let from = OffsetDateTime::now_utc() - Duration::DAY;
    ca_with_validity(name, Validity::lasting(from, Duration::days(3650)).unwrap())
}

/// A new self-signed CA with this common name and validity.
pub fn ca_with_validity(name: &str, validity: Validity) -> CertificateAuthority {
    let (subject, key) = (Subject::new(name, &[]).unwrap(), PrivateKey::generate().unwrap());
    CertificateAuthority::self_signed(&subject, validity, key, random_serial()).unwrap()
}

/// A leaf certificate without alternative names, to be issued with [`windlass_pki::issue`].
pub fn leaf_template<'a>(
    name: &str,
    purposes: &[KeyPurpose],
    validity: Validity,
    key: &'a PrivateKey,
) -> LeafTemplate<'a> {
    LeafTemplate {
        subject: Subject::new(name, &[]).unwrap(),
        alt_names: Vec::new(),
        purposes: purposes.to_vec(),
        validity,
        public_key: key.public_key(),
        serial: random_serial(),
    }
}

/// Replaces `ca.crt` and `ca.key` in a directory, each atomically; returns both paths.
pub fn write_ca(directory: &Path, ca: &CertificateAuthority) -> [PathBuf; 2] {
    let key = ca.key().to_pem().unwrap();
    // The key first: a certificate whose key is still to come would be rejected for longer.
    for (name, text) in [("ca.key", &**key), ("ca.crt", &ca.certificate().to_pem())] {
        let staged = directory.join(format!("staged-{name}"));
        std::fs::write(&staged, text).unwrap();
        std::fs::rename(&staged, directory.join(name)).unwrap();
    }
    ["ca.crt", "ca.key"].map(|name| directory.join(name))
}

/// A certificate that a signer would issue, of [`AUTHORITY`] and for client authentication.
pub struct CertificateFixture<'a> {
    /// Common name of the subject.
    pub common_name: &'a str,
    /// Organizations of the subject, which Kubernetes reads as groups.
    pub organizations: &'a [&'a str],
    /// Subject alternative names, empty for clients.
    pub names: AltNames,
    /// First instant at which it is valid.
    pub from: OffsetDateTime,
    /// Last instant at which it is valid.
    pub until: OffsetDateTime,
}

impl CertificateFixture<'_> {
    /// The client certificate of the node `n1`, valid for a day.
    pub fn client(from: OffsetDateTime) -> CertificateFixture<'static> {
        CertificateFixture {
            common_name: "system:node:n1",
            organizations: &["system:nodes"],
            names: AltNames::default(),
            from,
            until: from + Duration::days(1),
        }
    }

    /// Issues it for a key, as PEM.
    pub fn pem(&self, key: &PublicKey) -> String {
        self.pem_for_usages(key, &["digital signature", "client auth"])
    }

    /// Issues it for a key with the given key usages, as PEM.
    pub fn pem_for_usages(&self, key: &PublicKey, usages: &[&str]) -> String {
        let key = SubjectKey::from_der(key.as_der()).unwrap();
        let issued = issue_certificate(
            &AUTHORITY,
            &CertificateTemplate {
                subject: IssuedSubject::new(self.common_name, self.organizations),
                alt_names: self.names.clone(),
                usages: CertificateUsages::from_names(usages).unwrap(),
                validity: Validity::new(self.from, self.until).unwrap(),
                public_key: &key,
                serial: random_serial(),
                crl_distribution_points: Vec::new(),
            },
        );
        issued.unwrap().to_pem()
    }

    /// Issues it for a key, parsed as clients parse it.
    pub fn certificate(&self, key: &PublicKey) -> ForeignCertificate {
        parse_certificate_blocks(self.pem(key).as_bytes()).unwrap().remove(0)
    }
}
