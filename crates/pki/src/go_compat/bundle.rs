//! The text of a source of a trust-manager Bundle.

use aws_lc_rs::digest::{SHA256, digest};

use super::certificate::ForeignCertificate;
use super::{CERTIFICATE, pem_scan};
use crate::Error;

/// Why a text is not a source. Displayed, each is what trust-manager says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// A block is of another kind; a private key, perhaps.
    #[error("invalid PEM block in bundle: only CERTIFICATE blocks are permitted but found '{0}'")]
    Label(String),
    /// A PEM block has headers, which are not permitted.
    #[error("invalid PEM block in bundle; blocks are not permitted to have PEM headers")]
    Headers,
    /// A block is not one certificate.
    #[error("invalid PEM block in bundle; invalid PEM certificate: {0}")]
    Malformed(String),
}

/// Certificates parsed from the PEM text of a Bundle source.
#[derive(Debug, Clone, Default)]
pub struct BundleCertificates {
    /// The certificates, in order; one may occur more than once.
    pub certificates: Vec<ForeignCertificate>,
    /// How many were passed over because they are known and cannot be read.
    pub skipped: usize,
}

/// Labels are shown up to so many characters.
const SHOWN: usize = 64;

/// SHA-256 of the root EC-ACC, which has a negative serial number and was in Debian's collection. It
/// is passed over; others like it are refused, as everything that Go cannot read.
const EC_ACC: [u8; 32] = [
    0x88, 0x49, 0x7f, 0x01, 0x60, 0x2f, 0x31, 0x54, 0x24, 0x6a, 0xe2, 0x8c, 0x4d, 0x5a, 0xef, 0x10,
    0xf1, 0xd8, 0x7e, 0xbb, 0x76, 0x62, 0x6f, 0x4a, 0xe0, 0xb7, 0xf9, 0x5b, 0xa7, 0x96, 0x87, 0x99,
];

/// Reads certificates and nothing else; there may be none. Text around the blocks is passed over,
/// and so is what Go does not take for a block. Neither order, nor time, nor repetition, nor who is
/// an authority is looked at.
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
