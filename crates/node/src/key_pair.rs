//! A certificate with its intermediates and its key.

use time::OffsetDateTime;
use windlass_pki::{BlockError, Error, ForeignCertificate, PrivateKey, PublicKey, SubjectKey, pem};
use zeroize::Zeroizing;

/// A certificate chain with the matching private key.
#[derive(Debug)]
pub struct CertificateKeyPair {
    leaf: ForeignCertificate,
    others: Vec<ForeignCertificate>,
    key: PrivateKey,
}

/// Why something is not a [`CertificateKeyPair`].
#[derive(Debug, thiserror::Error)]
pub enum KeyPairError {
    /// The text is not PEM.
    #[error(transparent)]
    Pem(#[from] pem::PemError),
    /// The signer's text is not a valid chain.
    #[error(transparent)]
    Blocks(#[from] BlockError),
    /// A certificate or the key cannot be parsed.
    #[error(transparent)]
    Unreadable(#[from] Error),
    /// The input contains no certificate at all.
    #[error("no certificate found")]
    Empty,
    /// The certificate is for another key.
    #[error("the certificate belongs to another key")]
    Mismatch,
}

impl CertificateKeyPair {
    /// Creates a pair from a key and its chain, leaf first.
    pub fn new(chain: Vec<ForeignCertificate>, key: PrivateKey) -> Result<Self, KeyPairError> {
        let mut chain = chain.into_iter();
        let leaf = chain.next().ok_or(KeyPairError::Empty)?;
        if !matches_key(&leaf, key.public_key()) {
            return Err(KeyPairError::Mismatch);
        }
        Ok(Self { leaf, others: chain.collect(), key })
    }

    /// Parses certificates and a key from one text.
    pub fn from_pem(text: &[u8]) -> Result<Self, KeyPairError> {
        let (mut chain, mut keys) = (Vec::new(), room(text.len()));
        for block in pem::blocks(text)? {
            if block.label == pem::CERTIFICATE {
                chain.push(ForeignCertificate::from_der(&block.contents)?);
            } else {
                // The key parser validates the label.
                keys.push_str(&pem::encode(&block.label, &block.contents));
            }
        }
        Self::new(chain, PrivateKey::from_pem(keys.as_bytes())?)
    }

    /// Parses certificates from one text and the key from another. They may be the same.
    pub fn from_cert_and_key(certificates: &[u8], key: &[u8]) -> Result<Self, KeyPairError> {
        let wanted = |label: &str, certificate| (label == pem::CERTIFICATE) == certificate;
        let mut joined = room(certificates.len().saturating_add(key.len()));
        for (text, certificate) in [(certificates, true), (key, false)] {
            for block in pem::blocks(text)?.iter().filter(|b| wanted(&b.label, certificate)) {
                joined.push_str(&pem::encode(&block.label, &block.contents));
            }
        }
        Self::from_pem(joined.as_bytes())
    }

    /// Encodes the certificates and then the key, as kubelet does.
    pub fn to_pem(&self) -> Result<Zeroizing<String>, Error> {
        let certificates = pem::encode_certificates(self.chain().map(|c| c.der()));
        let key = self.key.to_pem()?;
        let mut text = room(certificates.len().saturating_add(key.len()));
        text.push_str(&certificates);
        text.push_str(&key);
        Ok(text)
    }

    /// Returns the leaf certificate, which is for this key.
    pub fn leaf(&self) -> &ForeignCertificate {
        &self.leaf
    }

    /// Returns the certificate and its intermediates, leaf first.
    pub fn chain(&self) -> impl Iterator<Item = &ForeignCertificate> {
        std::iter::once(&self.leaf).chain(&self.others)
    }

    /// Returns the private key, which matches the leaf certificate.
    pub fn key(&self) -> &PrivateKey {
        &self.key
    }

    /// Returns when the first of its certificates expires.
    pub fn expires(&self) -> OffsetDateTime {
        self.chain().map(ForeignCertificate::not_after).fold(self.leaf.not_after(), Ord::min)
    }

    /// Returns whether no certificate has expired. Certificates that are not valid yet are left to
    /// verifiers, whose clock may be the right one.
    pub fn is_valid_at(&self, now: OffsetDateTime) -> bool {
        self.expires() >= now
    }
}

/// Returns whether a certificate is for this key.
pub fn matches_key(certificate: &ForeignCertificate, key: &PublicKey) -> bool {
    SubjectKey::from_der(key.as_der()).is_ok_and(|key| *certificate.public_key() == key)
}

/// Allocates space for text with a key: growing would leave copies of it behind. Lines may be
/// shorter than they were.
fn room(bytes: usize) -> Zeroizing<String> {
    Zeroizing::new(String::with_capacity(bytes.saturating_mul(2)))
}
