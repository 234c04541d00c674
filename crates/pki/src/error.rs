//! Errors of parsing, matching and issuing keys and certificates.

use crate::pem::PemError;
use crate::{IssuanceLint, SignatureError};

/// Error of parsing, matching or issuing a key or certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not the expected PEM.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// The input exceeds a size limit of this crate.
    #[error("{what} exceeds the limit of {limit}")]
    TooLarge {
        /// Name of the input that is too large.
        what: &'static str,
        /// Exceeded limit, one of the constants in [`crate::limits`].
        limit: usize,
    },
    /// The DER or other encoding is malformed.
    #[error("malformed {what}: {reason}")]
    Malformed {
        /// Name of the structure that was being parsed.
        what: &'static str,
        /// Description of the syntax error.
        reason: String,
    },
    /// The key is well-formed, but its kind or size is not supported.
    #[error("unsupported key: {0}")]
    UnsupportedKey(&'static str),
    /// The private key does not match the certificate.
    #[error("the private key does not belong to the certificate")]
    KeyMismatch,
    /// The certificate may not sign other certificates.
    #[error("not a certificate authority: {0}")]
    NotAuthority(&'static str),
    /// A certificate of a chain was not issued by the next one.
    #[error("the certificates of the chain are not in order of issuance")]
    BrokenChain,
    /// A certificate revocation list cannot be signed, or does not verify.
    #[error("certificate revocation list: {0}")]
    RevocationList(&'static str),
    /// The requested validity is empty, or empty once clipped to that of the CA.
    #[error("validity is empty: {0}")]
    EmptyValidity(&'static str),
    /// A requested name cannot be certified.
    #[error("invalid {what}: {reason}")]
    InvalidName {
        /// Kind of name, for example a DNS name.
        what: &'static str,
        /// Reason why the name is invalid.
        reason: &'static str,
    },
    /// The requester has not proved possession of the key.
    #[error("unable to verify certificate request signature: {0}")]
    Unproven(SignatureError),
    /// A lint rejected the certificate.
    #[error("refusing to issue, {}: {reason}", lint.name())]
    Lint {
        /// Lint that rejected the certificate before or after signing.
        lint: IssuanceLint,
        /// Human-readable reason for the rejection.
        reason: &'static str,
    },
    /// An external key cannot sign now, for example because its token was removed. The request that
    /// needed it is good: retry it later.
    #[error("key unavailable: {0}")]
    KeyUnavailable(String),
    /// The cryptographic library failed an operation that should not fail.
    #[error("cryptographic operation failed: {0}")]
    Crypto(&'static str),
}

impl Error {
    /// Returns true if no CA can ever issue this request, so that a retry is pointless.
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
            | Self::RevocationList(_)
            | Self::EmptyValidity(_)
            | Self::KeyUnavailable(_)
            | Self::Crypto(_) => false,
        }
    }

    /// Returns a mapper from DER errors that names the structure being parsed.
    pub(crate) fn malformed(what: &'static str) -> impl Fn(der::Error) -> Self {
        move |error| Self::Malformed { what, reason: error.to_string() }
    }

    /// Encoding our own structures fails only beyond DER's 256 MiB.
    pub(crate) fn encoding(_: der::Error) -> Self {
        Self::TooLarge { what: "encoded certificate", limit: crate::limits::MAX_CERTIFICATE_BYTES }
    }
}
