//! Report of a certificate manager: certificate, activity and last failure.

use std::fmt;

use time::{Duration, OffsetDateTime};
use windlass_pki::AltNames;

use crate::csr::CsrStage;
use crate::template::CertificatePurpose;

/// State of a certificate manager, for metrics, status and events.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeCertificateReport {
    /// What the certificate is for: client or serving.
    pub purpose: CertificatePurpose,
    /// The certificate in use; `None` before the first issuance. It may have expired.
    pub held: Option<CurrentCertificateReport>,
    /// What the manager is doing or waiting for.
    pub doing: ManagerActivity,
    /// The last failure; `None` once a certificate is stored again.
    pub trouble: Option<CertificateFailure>,
    /// Number of failures since the start.
    pub errors: u64,
    /// Number of certificates stored since the start.
    pub stored: u64,
    /// Number of unexpired certificates that the server rejected since the start.
    pub rejections: u64,
    /// Problems found in the certificate store at the start.
    pub warnings: Vec<String>,
}

/// Subject, names and validity of the certificate in use.
#[derive(Clone, Debug, PartialEq)]
pub struct CurrentCertificateReport {
    /// Common name of the subject, which is the Kubernetes user name.
    pub common_name: String,
    /// Organizations of the subject, which are the Kubernetes groups.
    pub organizations: Vec<String>,
    /// Subject alternative names of the certificate.
    pub names: AltNames,
    /// Its serial number, in hexadecimal digits.
    pub serial: String,
    /// Start of the validity, from the certificate.
    pub not_before: OffsetDateTime,
    /// When the first certificate of the chain expires.
    pub expires: OffsetDateTime,
    /// When the next certificate will be requested.
    pub rotate_at: OffsetDateTime,
    /// Required names that the certificate lacks, if any.
    pub lacking: Option<String>,
    /// When the server first rejected the certificate; `None` while it accepts it.
    pub rejected_since: Option<OffsetDateTime>,
}

/// The current activity of a certificate manager.
#[derive(Clone, Debug, PartialEq)]
pub enum ManagerActivity {
    /// Waiting until the next rotation is due.
    Holding,
    /// Waiting until the required content is known.
    Unspecified,
    /// Submitting a certificate signing request.
    Asking,
    /// Waiting for approval or issuance.
    Waiting {
        /// Name of the CertificateSigningRequest that is pending.
        request: String,
        /// What the request waits for, as far as is known.
        stage: CsrStage,
        /// Wall-clock time at which the manager submitted the request.
        since: OffsetDateTime,
    },
    /// Writing the issued certificate to disk.
    Storing,
    /// Waiting before the next attempt.
    Pausing {
        /// Wall-clock time of the next attempt; the clock may jump.
        until: OffsetDateTime,
    },
}

/// The last failure of a certificate manager, with a cause and a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFailure {
    /// The category of the failure, which decides the retry delay.
    pub cause: FailureCause,
    /// Error message for people, without secrets.
    pub message: String,
}

/// Categories of failures. Their names are event reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureCause {
    /// There is no credential to request with.
    NoCredential,
    /// The server rejected the credential (401).
    Unauthorized,
    /// The server rejected the request for lack of permission (403).
    Forbidden,
    /// The server does not serve CertificateSigningRequests.
    NotServed,
    /// The server failed or is overloaded.
    ServerError,
    /// The server cannot be reached, or timed out.
    Unreachable,
    /// The file system has no space or quota left.
    DiskFull,
    /// A disk operation failed for another reason.
    DiskFailed,
    /// The template cannot be encoded as a request.
    Unwritable,
    /// Another object has the name of our request.
    RequestTaken,
    /// The request was neither approved nor denied before the timeout.
    NotDecided,
    /// Our request was deleted or replaced.
    RequestGone,
    /// An approver denied the request; the next one uses a new key.
    RequestDenied,
    /// The signer marked our request as failed.
    RequestFailed,
    /// The issued certificate cannot be used.
    BadCertificate,
    /// The issued certificate lacks names or groups that were requested.
    NamesMissing,
    /// The server rejects the unexpired certificate, for example because it is revoked.
    CertificateRejected,
}

impl FailureCause {
    /// Returns the cause as an UpperCamelCase event reason.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::NoCredential => "NoCredential",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::NotServed => "NotServed",
            Self::ServerError => "ServerError",
            Self::Unreachable => "Unreachable",
            Self::DiskFull => "DiskFull",
            Self::DiskFailed => "DiskFailed",
            Self::Unwritable => "Unwritable",
            Self::RequestTaken => "RequestTaken",
            Self::NotDecided => "NotDecided",
            Self::RequestGone => "RequestGone",
            Self::RequestDenied => "RequestDenied",
            Self::RequestFailed => "RequestFailed",
            Self::BadCertificate => "BadCertificate",
            Self::NamesMissing => "NamesMissing",
            Self::CertificateRejected => "CertificateRejected",
        }
    }
}

impl fmt::Display for CertificateFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.cause.reason(), self.message)
    }
}

/// A change of a node certificate to report as a Kubernetes event.
#[derive(Clone, Debug, PartialEq)]
pub enum RotationNotice {
    /// A certificate was issued, stored and put into use.
    Stored {
        /// When the first certificate of the chain expires.
        expires: OffsetDateTime,
        /// Age of the replaced certificate; `None` if there was none.
        age: Option<Duration>,
    },
    /// A certificate was stored in place of one that the server rejected.
    Replaced {
        /// Serial number of the rejected certificate, in hexadecimal digits.
        serial: String,
    },
    /// A failure that differs from the previous one.
    Failed(CertificateFailure),
}
