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
    /// The certificate it has.
    pub held: Option<CurrentCertificateReport>,
    /// What it does.
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

/// A certificate.
#[derive(Clone, Debug, PartialEq)]
pub struct CurrentCertificateReport {
    /// Its user.
    pub common_name: String,
    /// Its groups.
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

/// What a manager does.
#[derive(Clone, Debug, PartialEq)]
pub enum ManagerActivity {
    /// It waits until it is time for the next certificate.
    Holding,
    /// It waits until somebody says what has to be in the certificate.
    Unspecified,
    /// It asks for a certificate.
    Asking,
    /// It waits for one.
    Waiting {
        /// The request.
        request: String,
        /// What the request waits for, as far as is known.
        stage: CsrStage,
        /// Since when.
        since: OffsetDateTime,
    },
    /// It stores one.
    Storing,
    /// It pauses before it tries again.
    Pausing {
        /// Until when.
        until: OffsetDateTime,
    },
}

/// Something that went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFailure {
    /// What kind of thing.
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
    /// We may not ask.
    Forbidden,
    /// The server does not have requests for certificates.
    NotServed,
    /// The server errs, or has too much to do.
    ServerError,
    /// The server cannot be reached, or does not answer.
    Unreachable,
    /// The disk is full.
    DiskFull,
    /// The disk does not do what it should.
    DiskFailed,
    /// What is wanted cannot be written as a request.
    Unwritable,
    /// Our request's name is taken by another one.
    RequestTaken,
    /// Nobody decided in time.
    NotDecided,
    /// Our request was deleted or replaced.
    RequestGone,
    /// Our request was denied.
    RequestDenied,
    /// The signer refused our request.
    RequestFailed,
    /// The certificate is of no use.
    BadCertificate,
    /// The certificate lacks something.
    NamesMissing,
}

impl FailureCause {
    /// Its name.
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

/// Something worth an event.
#[derive(Clone, Debug, PartialEq)]
pub enum RotationNotice {
    /// A certificate was stored.
    Stored {
        /// Until when it is good.
        expires: OffsetDateTime,
        /// How old the one before had become.
        age: Option<Duration>,
    },
    /// Something else went wrong than before.
    Trouble(CertificateFailure),
}
