//! Certificates that a signer submits, and a pod's certificate chain.

use super::certificate::ForeignCertificate;
use super::key::SubjectKey;
use super::{CERTIFICATE, email, pem_scan};
use crate::Error;

/// Error of parsing certificate blocks. Its `Display` text equals Kubernetes' message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// A block has a label other than `CERTIFICATE`.
    #[error("only CERTIFICATE PEM blocks are allowed, found {0:?}")]
    Label(String),
    /// A PEM block has headers, which are not permitted.
    #[error("no PEM block headers are permitted")]
    Headers,
    /// A block does not contain valid certificates.
    #[error(transparent)]
    Malformed(Error),
    /// A `CERTIFICATE` block contains no certificate.
    #[error("found CERTIFICATE PEM block containing 0 certificates")]
    Empty,
    /// The text contains no PEM block.
    #[error("must contain at least one CERTIFICATE PEM block")]
    Missing,
}

/// Parses at least one certificate. A block may contain several concatenated certificates. Text
/// around the blocks is allowed; order and validity are not checked.
pub fn parse_certificate_blocks(text: &[u8]) -> Result<Vec<ForeignCertificate>, BlockError> {
    let mut certificates = Vec::new();
    for block in pem_scan::blocks(text) {
        if block.label != CERTIFICATE {
            return Err(BlockError::Label(String::from_utf8_lossy(block.label).into_owned()));
        }
        if block.has_headers {
            return Err(BlockError::Headers);
        }
        let several = ForeignCertificate::several_from_der(&block.contents);
        let several = several.map_err(BlockError::Malformed)?;
        if several.is_empty() {
            return Err(BlockError::Empty);
        }
        certificates.extend(several);
    }
    if certificates.is_empty() { Err(BlockError::Missing) } else { Ok(certificates) }
}

/// Returns the contents of all `CERTIFICATE` blocks, without their headers. Skips other blocks and
/// surrounding text; does not check that the contents are certificates.
pub fn labelled_certificates(text: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    pem_scan::blocks(text).filter(|block| block.label == CERTIFICATE).map(|block| block.contents)
}

/// A certificate issued for a key, and the PEM text of the chain that starts with it.
///
/// Kubernetes validates the leaf first, then other fields, and the rest of the chain last. To
/// report errors in the same order, call [`Self::check_rest`] last.
#[derive(Debug, Clone)]
pub struct IssuedChain<'a> {
    leaf: ForeignCertificate,
    text: &'a [u8],
}

/// Error of parsing a chain. Its `Display` text equals Kubernetes' message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// The text contains no PEM block.
    #[error("issued certificate chain must contain at least one certificate")]
    Missing,
    /// The first block has a label other than `CERTIFICATE`.
    #[error("issued certificate chain must consist entirely of CERTIFICATE PEM blocks")]
    LeafLabel,
    /// The first block does not contain exactly one certificate.
    #[error("leaf certificate does not parse as valid X.509")]
    MalformedLeaf,
    /// A later block has another label. The spelling is Kubernetes'.
    #[error("issued certificate chain must consist entirely of CERTFICATE PEM blocks")]
    Label,
    /// A later block does not contain exactly one certificate.
    #[error("intermediate certificate does not parse as valid X.509")]
    Malformed,
}

/// Invalid name of a leaf. Its `Display` text equals Kubernetes' message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeafFault {
    /// A DNS name is empty.
    #[error("leaf certificate should not contain empty DNSName")]
    EmptyDnsName,
    /// A DNS name has an empty label in the middle.
    #[error("leaf certificate's DNSName should not contain '..'")]
    DoubleDot,
    /// A DNS name starts or ends with an empty label.
    #[error("leaf certificate's DNSName should not start or end with '.'")]
    OuterDot,
    /// An e-mail address is syntactically invalid.
    #[error("leaf certificate should not contain invalid EmailAddress")]
    EmailAddress,
}

impl<'a> IssuedChain<'a> {
    /// Parses the leaf, the first certificate. PEM headers are tolerated.
    pub fn parse(text: &'a str) -> Result<Self, ChainError> {
        let text = text.as_bytes();
        let block = pem_scan::blocks(text).next().ok_or(ChainError::Missing)?;
        if block.label != CERTIFICATE {
            return Err(ChainError::LeafLabel);
        }
        let leaf = ForeignCertificate::from_der(&block.contents);
        Ok(Self { leaf: leaf.map_err(|_| ChainError::MalformedLeaf)?, text })
    }

    /// Returns the first certificate of the chain, the leaf.
    pub fn leaf(&self) -> &ForeignCertificate {
        &self.leaf
    }

    /// Returns each invalid name of the leaf with its fault.
    pub fn leaf_faults(&self) -> Vec<(&str, LeafFault)> {
        let mut faults = Vec::new();
        for name in &self.leaf.alt_names().dns_names {
            if name.is_empty() {
                faults.push((name.as_str(), LeafFault::EmptyDnsName));
            }
            if name.contains("..") {
                faults.push((name, LeafFault::DoubleDot));
            }
            if name.starts_with('.') || name.ends_with('.') {
                faults.push((name, LeafFault::OuterDot));
            }
        }
        for address in &self.leaf.alt_names().email_addresses {
            if !email::is_address(address) {
                faults.push((address, LeafFault::EmailAddress));
            }
        }
        faults
    }

    /// Returns true if the leaf certifies this key.
    pub fn is_for_key(&self, key: &SubjectKey) -> bool {
        self.leaf.public_key() == key
    }

    /// Checks that the blocks after the leaf are certificates. Does not check that they form a
    /// chain.
    pub fn check_rest(&self) -> Result<(), ChainError> {
        for block in pem_scan::blocks(self.text).skip(1) {
            if block.label != CERTIFICATE {
                return Err(ChainError::Label);
            }
            ForeignCertificate::from_der(&block.contents).map_err(|_| ChainError::Malformed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
