//! Why a key or a certificate was refused.

use crate::pem::PemError;
use crate::{IssuanceLint, SignatureError};

/// Why a key or a certificate could not be read, matched or made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not the PEM that is expected.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// The input is larger than this crate is willing to look at.
    #[error("{what} exceeds the limit of {limit}")]
    TooLarge {
        /// Name of the input that is too large.
        what: &'static str,
        /// Exceeded limit, one of the constants in [`crate::limits`].
        limit: usize,
    },
    /// The bytes are not what they should be.
    #[error("malformed {what}: {reason}")]
    Malformed {
        /// Name of the structure that was being parsed.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The key is well-formed, but of a kind or size that is not supported.
    #[error("unsupported key: {0}")]
    UnsupportedKey(&'static str),
    /// The private key does not belong to the certificate.
    #[error("the private key does not belong to the certificate")]
    KeyMismatch,
    /// The certificate may not sign other certificates.
    #[error("not a certificate authority: {0}")]
    NotAuthority(&'static str),
    /// A certificate of a chain has not been issued by the next.
    #[error("the certificates of the chain are not in order of issuance")]
    BrokenChain,
    /// The time asked for is empty, or empty once it is clipped to the authority's.
    #[error("validity is empty: {0}")]
    EmptyValidity(&'static str),
    /// A name that is to be certified cannot be.
    #[error("invalid {what}: {reason}")]
    InvalidName {
        /// Kind of name, for example a DNS name.
        what: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The requester has not shown that the key is its own.
    #[error("unable to verify certificate request signature: {0}")]
    Unproven(SignatureError),
    /// What was to be issued is not fit for it.
    #[error("refusing to issue, {}: {reason}", lint.name())]
    Lint {
        /// Lint that rejected the certificate before or after signing.
        lint: IssuanceLint,
        /// Reason for the rejection, for people.
        reason: &'static str,
    },
    /// The cryptographic library refused an operation that should not fail.
    #[error("cryptographic operation failed: {0}")]
    Crypto(&'static str),
}

impl Error {
    /// Whether what was asked for can never be issued, by whatever authority and however often it is
    /// tried.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Unproven(_)
            | Self::UnsupportedKey(_)
            | Self::InvalidName { .. }
            | Self::TooLarge { .. }
            | Self::Lint { lint: IssuanceLint::KeyStrength, .. } => true,
            Self::Lint { .. }
            | Self::Pem(_)
            | Self::Malformed { .. }
            | Self::KeyMismatch
            | Self::NotAuthority(_)
            | Self::BrokenChain
            | Self::EmptyValidity(_)
            | Self::Crypto(_) => false,
        }
    }

    /// Names what was being read when the DER decoder stopped.
    pub(crate) fn malformed(what: &'static str) -> impl Fn(der::Error) -> Self {
        move |error| Self::Malformed { what, reason: error.to_string() }
    }

    /// Encoding our own structures fails only beyond DER's 256 MiB.
    pub(crate) fn encoding(_: der::Error) -> Self {
        Self::TooLarge { what: "encoded certificate", limit: crate::limits::MAX_CERTIFICATE_BYTES }
    }
}
