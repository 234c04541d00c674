//! A certificate, those that vouch for it, and its key.

use time::OffsetDateTime;
use windlass_pki::{BlockError, Error, ForeignCertificate, PrivateKey, PublicKey, SubjectKey, pem};
use zeroize::Zeroizing;

/// A certificate that can be used: key and certificate match.
#[derive(Debug)]
pub struct CertificateKeyPair {
    leaf: ForeignCertificate,
    others: Vec<ForeignCertificate>,
    key: PrivateKey,
}

/// Why something is not an [`CertificateKeyPair`].
#[derive(Debug, thiserror::Error)]
pub enum KeyPairError {
    /// The text is not PEM.
    #[error(transparent)]
    Pem(#[from] pem::PemError),
    /// A signer's text is not what it should be.
    #[error(transparent)]
    Blocks(#[from] BlockError),
    /// A certificate or the key cannot be read.
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
    /// Joins a key and its certificate, which comes first in the chain.
    pub fn new(chain: Vec<ForeignCertificate>, key: PrivateKey) -> Result<Self, KeyPairError> {
        let mut chain = chain.into_iter();
        let leaf = chain.next().ok_or(KeyPairError::Empty)?;
        if !matches_key(&leaf, key.public_key()) {
            return Err(KeyPairError::Mismatch);
        }
        Ok(Self { leaf, others: chain.collect(), key })
    }

    /// Reads certificates and a key that stand in one text.
    pub fn from_pem(text: &[u8]) -> Result<Self, KeyPairError> {
        let (mut chain, mut keys) = (Vec::new(), room(text.len()));
        for block in pem::blocks(text)? {
            if block.label == pem::CERTIFICATE {
                chain.push(ForeignCertificate::from_der(&block.contents)?);
            } else {
                // The reader of keys judges what it is.
                keys.push_str(&pem::encode(&block.label, &block.contents));
            }
        }
        Self::new(chain, PrivateKey::from_pem(keys.as_bytes())?)
    }

    /// Reads certificates from one text and the key from another. They may be the same.
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

    /// Writes the certificates and then the key, as kubelet does.
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

    /// The certificate, and those that vouch for it.
    pub fn chain(&self) -> impl Iterator<Item = &ForeignCertificate> {
        std::iter::once(&self.leaf).chain(&self.others)
    }

    /// Returns the private key, which matches the leaf certificate.
    pub fn key(&self) -> &PrivateKey {
        &self.key
    }

    /// When the first of its certificates ends.
    pub fn expires(&self) -> OffsetDateTime {
        self.chain().map(ForeignCertificate::not_after).fold(self.leaf.not_after(), Ord::min)
    }

    /// Whether nothing of it has expired. That it has not begun is for those to say who verify it:
    /// their clock may be the right one.
    pub fn is_valid_at(&self, now: OffsetDateTime) -> bool {
        self.expires() >= now
    }
}

/// Whether a certificate is for this key.
pub fn matches_key(certificate: &ForeignCertificate, key: &PublicKey) -> bool {
    SubjectKey::from_der(key.as_der()).is_ok_and(|key| *certificate.public_key() == key)
}

/// Room for text with a key: growing would leave copies of it behind. Lines may be shorter than they were.
fn room(bytes: usize) -> Zeroizing<String> {
    Zeroizing::new(String::with_capacity(bytes.saturating_mul(2)))
}
