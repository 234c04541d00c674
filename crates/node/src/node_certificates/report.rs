//! What a manager holds, what it waits for and why.

use std::fmt;

use time::{Duration, OffsetDateTime};
use windlass_pki::AltNames;

use crate::csr::CsrStage;
use crate::template::CertificatePurpose;

/// Everything that can be told of a manager.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeCertificateReport {
    /// What its certificate is for.
    pub purpose: CertificatePurpose,
    /// The certificate in use; `None` before the first issuance. It may have expired.
    pub held: Option<CurrentCertificateReport>,
    /// What the manager is doing or waiting for.
    pub doing: ManagerActivity,
    /// What went wrong last, until a certificate is stored again.
    pub trouble: Option<CertificateFailure>,
    /// How often something went wrong.
    pub errors: u64,
    /// How many certificates were stored.
    pub stored: u64,
    /// What was not as it should be on disk when it began.
    pub warnings: Vec<String>,
}

/// Subject, names and validity of the certificate in use.
#[derive(Clone, Debug, PartialEq)]
pub struct CurrentCertificateReport {
    /// Common name of the subject, which is the Kubernetes user name.
    pub common_name: String,
    /// Organizations of the subject, which are the Kubernetes groups.
    pub organizations: Vec<String>,
    /// The names it speaks for.
    pub names: AltNames,
    /// Its serial number, in hexadecimal digits.
    pub serial: String,
    /// From when on it is good.
    pub not_before: OffsetDateTime,
    /// Until when it is good.
    pub expires: OffsetDateTime,
    /// When the next one will be asked for.
    pub rotate_at: OffsetDateTime,
    /// What is not in it that should be.
    pub lacking: Option<String>,
}

/// The current activity of a certificate manager.
#[derive(Clone, Debug, PartialEq)]
pub enum ManagerActivity {
    /// It waits until it is time for the next certificate.
    Holding,
    /// It waits until somebody says what has to be in the certificate.
    Unspecified,
    /// It asks for a certificate.
    Asking,
    /// It waits for the request to be approved or signed.
    Waiting {
        /// Name of the CertificateSigningRequest that is pending.
        request: String,
        /// What the request waits for, as far as is known.
        stage: CsrStage,
        /// Wall-clock time at which the manager submitted the request.
        since: OffsetDateTime,
    },
    /// It writes the issued certificate to disk.
    Storing,
    /// It pauses before it tries again.
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
    /// What it is, in words. No secrets are in it.
    pub message: String,
}

/// The kinds of things that go wrong. Their names are the reasons of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureCause {
    /// There is nothing to ask with.
    NoCredential,
    /// The server does not know us.
    Unauthorized,
    /// The server rejected the request for lack of permission (403).
    Forbidden,
    /// The server does not have requests for certificates.
    NotServed,
    /// The server errs, or has too much to do.
    ServerError,
    /// The server cannot be reached, or does not answer.
    Unreachable,
    /// The file system has no space or quota left.
    DiskFull,
    /// The disk does not do what it should.
    DiskFailed,
    /// What is wanted cannot be written as a request.
    Unwritable,
    /// Our request's name is taken by another one.
    RequestTaken,
    /// The request was neither approved nor denied before the timeout.
    NotDecided,
    /// Our request was deleted or replaced.
    RequestGone,
    /// An approver denied the request; the next one uses a new key.
    RequestDenied,
    /// The signer refused our request.
    RequestFailed,
    /// The certificate is of no use.
    BadCertificate,
    /// The issued certificate lacks names or groups that were requested.
    NamesMissing,
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
        /// Until when it is good.
        expires: OffsetDateTime,
        /// How old the one before had become.
        age: Option<Duration>,
    },
    /// Something else went wrong than before.
    Trouble(CertificateFailure),
}
