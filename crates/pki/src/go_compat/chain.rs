//! What a signer hands in: certificates, and a pod's certificate with its chain.

use super::certificate::ForeignCertificate;
use super::key::SubjectKey;
use super::{CERTIFICATE, email, pem_scan};
use crate::Error;

/// Why a text does not hold certificates. Displayed, each is what Kubernetes says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// A block is of another kind.
    #[error("only CERTIFICATE PEM blocks are allowed, found {0:?}")]
    Label(String),
    /// A PEM block has headers, which are not permitted.
    #[error("no PEM block headers are permitted")]
    Headers,
    /// A block does not hold certificates.
    #[error(transparent)]
    Malformed(Error),
    /// A `CERTIFICATE` block contains no certificate.
    #[error("found CERTIFICATE PEM block containing 0 certificates")]
    Empty,
    /// The text contains no PEM block.
    #[error("must contain at least one CERTIFICATE PEM block")]
    Missing,
}

/// Reads certificates, at least one. A block may hold several, one after the other. Text around the
/// blocks is allowed; order and validity are not looked at.
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

/// What is in the blocks of a text that are labelled as certificates, without their headers. Other
/// blocks and the text around them are passed over; whether it is a certificate is not looked at.
pub fn labelled_certificates(text: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    pem_scan::blocks(text).filter(|block| block.label == CERTIFICATE).map(|block| block.contents)
}

/// A certificate that was issued for a key, and the text of the chain that it begins.
///
/// Kubernetes looks at the leaf first, then at other things, and only then at the rest of the chain;
/// so does whoever calls [`Self::check_rest`] last.
#[derive(Debug, Clone)]
pub struct IssuedChain<'a> {
    leaf: ForeignCertificate,
    text: &'a [u8],
}

/// Why a text is not a chain. Displayed, each is what Kubernetes says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// The text contains no PEM block.
    #[error("issued certificate chain must contain at least one certificate")]
    Missing,
    /// The first block is of another kind.
    #[error("issued certificate chain must consist entirely of CERTIFICATE PEM blocks")]
    LeafLabel,
    /// The first block is not one certificate.
    #[error("leaf certificate does not parse as valid X.509")]
    MalformedLeaf,
    /// A later block is of another kind. The spelling is Kubernetes'.
    #[error("issued certificate chain must consist entirely of CERTFICATE PEM blocks")]
    Label,
    /// A later block is not one certificate.
    #[error("intermediate certificate does not parse as valid X.509")]
    Malformed,
}

/// What is wrong with a name of a leaf. Displayed, each is what Kubernetes says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeafFault {
    /// A DNS name is empty.
    #[error("leaf certificate should not contain empty DNSName")]
    EmptyDnsName,
    /// A DNS name has an empty label in the middle.
    #[error("leaf certificate's DNSName should not contain '..'")]
    DoubleDot,
    /// A DNS name has an empty label at one end.
    #[error("leaf certificate's DNSName should not start or end with '.'")]
    OuterDot,
    /// An e-mail address is none.
    #[error("leaf certificate should not contain invalid EmailAddress")]
    EmailAddress,
}

impl<'a> IssuedChain<'a> {
    /// Reads the first certificate. Headers are tolerated.
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

    /// What is wrong with the names of the leaf: each name with its fault.
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

    /// Whether the leaf was issued for this key.
    pub fn is_for_key(&self, key: &SubjectKey) -> bool {
        self.leaf.public_key() == key
    }

    /// Checks that what follows the leaf are certificates. Whether they belong together is not
    /// looked at.
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
