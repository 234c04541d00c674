//! Trust bundles: PEM text with a cluster's trust anchors.

use std::collections::HashMap;
use std::fmt;

use super::certificate::ForeignCertificate;
use super::{CERTIFICATE, pem_scan};

/// A CA certificate that is trusted to sign others.
#[derive(Debug, Clone)]
pub struct TrustAnchor(ForeignCertificate);

/// Error of parsing a trust bundle. Its `Display` text equals Kubernetes' message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnchorError {
    /// The text exceeds the size limit.
    TooLong {
        /// Maximum length of the text in bytes.
        limit: usize,
    },
    /// At least one block is not a trust anchor; at most one error per block, in order.
    Entries(Vec<EntryError>),
    /// The text contains no PEM block.
    Missing,
    /// Some anchors are duplicated: the indices of each such anchor, in order.
    Duplicates(Vec<Vec<usize>>),
}

/// Error in one block of a trust bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryError {
    /// Index of the block, counted from 0. Blocks that Go cannot parse are not counted.
    pub index: usize,
    /// Reason why the block is not a trust anchor.
    pub fault: EntryFault,
}

/// Reason why one block is not a trust anchor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryFault {
    /// The label is not `CERTIFICATE`.
    Label(String),
    /// The PEM block has headers, which are not permitted.
    Headers,
    /// The block is not exactly one certificate. Contains the reason, which Kubernetes does not
    /// report.
    Malformed(String),
    /// It is not an authority: its basic constraints do not allow it, or it has none. That basic
    /// constraints are invalid is never said: then it is malformed, in Go as here.
    NotAuthority,
}

impl TrustAnchor {
    /// Returns the parsed certificate of the anchor.
    pub fn certificate(&self) -> &ForeignCertificate {
        &self.0
    }

    /// Returns the DER encoding of the certificate.
    pub fn der(&self) -> &[u8] {
        self.0.der()
    }
}

/// Parses a trust bundle: at least one CA certificate, without headers, duplicates or other blocks.
/// Text around the blocks is allowed. Takes linear time.
pub fn parse_trust_anchors(text: &str, limit: usize) -> Result<Vec<TrustAnchor>, AnchorError> {
    if text.len() > limit {
        return Err(AnchorError::TooLong { limit });
    }
    let mut anchors = Vec::new();
    let mut errors = Vec::new();
    for (index, block) in pem_scan::blocks(text.as_bytes()).enumerate() {
        match parse_anchor(&block) {
            Ok(anchor) => anchors.push(anchor),
            Err(fault) => errors.push(EntryError { index, fault }),
        }
    }
    if !errors.is_empty() {
        return Err(AnchorError::Entries(errors));
    }
    if anchors.is_empty() {
        return Err(AnchorError::Missing);
    }
    let duplicates = duplicates(&anchors);
    if duplicates.is_empty() { Ok(anchors) } else { Err(AnchorError::Duplicates(duplicates)) }
}

fn parse_anchor(block: &pem_scan::ScannedBlock<'_>) -> Result<TrustAnchor, EntryFault> {
    if block.label != CERTIFICATE {
        return Err(EntryFault::Label(String::from_utf8_lossy(block.label).into_owned()));
    }
    if block.has_headers {
        return Err(EntryFault::Headers);
    }
    let certificate = ForeignCertificate::from_der(&block.contents);
    let certificate = certificate.map_err(|error| EntryFault::Malformed(error.to_string()))?;
    if certificate.is_authority() { Ok(TrustAnchor(certificate)) } else { Err(EntryFault::NotAuthority) }
}

/// Returns the indices of byte-identical anchors, ordered by the first index.
fn duplicates(anchors: &[TrustAnchor]) -> Vec<Vec<usize>> {
    let mut indices = HashMap::<&[u8], Vec<usize>>::new();
    for (index, anchor) in anchors.iter().enumerate() {
        indices.entry(anchor.der()).or_default().push(index);
    }
    let mut duplicates = indices.into_values().filter(|all| all.len() > 1).collect::<Vec<_>>();
    duplicates.sort_unstable();
    duplicates
}

impl AnchorError {
    /// Returns Kubernetes' messages, one per cause. Callers that know the field report an oversized
    /// text themselves.
    pub fn messages(&self) -> Vec<String> {
        match self {
            Self::TooLong { limit } => vec![format!("may not be more than {limit} bytes")],
            Self::Entries(errors) => errors.iter().map(EntryError::to_string).collect(),
            Self::Missing => vec!["at least one trust anchor must be provided".to_owned()],
            Self::Duplicates(sets) => sets
                .iter()
                .map(|set| {
                    let set = set.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
                    format!("duplicate trust anchor (indices [{set}])")
                })
                .collect(),
        }
    }
}

impl fmt::Display for AnchorError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.messages().join(", "))
    }
}

impl std::error::Error for AnchorError {}

impl fmt::Display for EntryError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "entry {} ", self.index)?;
        match &self.fault {
            EntryFault::Label(label) => write!(formatter, "has bad block type: {label}"),
            EntryFault::Headers => formatter.write_str("has PEM block headers"),
            EntryFault::Malformed(_) => formatter.write_str("does not parse as X.509"),
            EntryFault::NotAuthority => formatter.write_str("does not have the CA bit set"),
        }
    }
}

#[cfg(test)]
mod tests;
