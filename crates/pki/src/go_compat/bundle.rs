//! Text of a trust-manager Bundle source.

use aws_lc_rs::digest::{SHA256, digest};

use super::certificate::ForeignCertificate;
use super::{CERTIFICATE, pem_scan};
use crate::Error;

/// Error of parsing a source. Its `Display` text equals trust-manager's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// A block has another label, perhaps that of a private key.
    #[error("invalid PEM block in bundle: only CERTIFICATE blocks are permitted but found '{0}'")]
    Label(String),
    /// A PEM block has headers, which are not permitted.
    #[error("invalid PEM block in bundle; blocks are not permitted to have PEM headers")]
    Headers,
    /// A block does not contain exactly one certificate.
    #[error("invalid PEM block in bundle; invalid PEM certificate: {0}")]
    Malformed(String),
}

/// Certificates parsed from the PEM text of a Bundle source.
#[derive(Debug, Clone, Default)]
pub struct BundleCertificates {
    /// The certificates in order; duplicates are kept.
    pub certificates: Vec<ForeignCertificate>,
    /// Number of skipped certificates that are known to be unparsable.
    pub skipped: usize,
}

/// Maximum number of label characters in messages.
const SHOWN: usize = 64;

/// SHA-256 of the root EC-ACC, which has a negative serial number and was part of Debian's CA
/// bundle. It is skipped; other certificates that Go cannot parse are rejected.
const EC_ACC: [u8; 32] = [
    0x88, 0x49, 0x7f, 0x01, 0x60, 0x2f, 0x31, 0x54, 0x24, 0x6a, 0xe2, 0x8c, 0x4d, 0x5a, 0xef, 0x10, 0xf1,
    0xd8, 0x7e, 0xbb, 0x76, 0x62, 0x6f, 0x4a, 0xe0, 0xb7, 0xf9, 0x5b, 0xa7, 0x96, 0x87, 0x99,
];

/// Parses certificates; zero are allowed. Ignores text around the blocks and anything that Go does
/// not recognize as a block. Does not check order, validity, duplicates or CA flags.
pub fn parse_bundle(text: &[u8]) -> Result<BundleCertificates, BundleError> {
    let mut found = BundleCertificates::default();
    for block in pem_scan::blocks(text) {
        if block.label != CERTIFICATE {
            let label = String::from_utf8_lossy(block.label).chars().take(SHOWN).collect();
            return Err(BundleError::Label(label));
        }
        if block.has_headers {
            return Err(BundleError::Headers);
        }
        match ForeignCertificate::from_der(&block.contents) {
            Ok(certificate) => found.certificates.push(certificate),
            Err(_) if digest(&SHA256, &block.contents).as_ref() == EC_ACC => found.skipped += 1,
            Err(Error::Malformed { reason, .. }) => {
                return Err(BundleError::Malformed(format!("x509: {reason}")));
            }
            Err(error) => return Err(BundleError::Malformed(error.to_string())),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
