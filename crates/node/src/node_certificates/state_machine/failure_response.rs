//! How each failure is retried, and with which key.

use time::OffsetDateTime;

use crate::clock;
use crate::node_certificates::report::{CertificateFailure, FailureCause};
use crate::node_certificates::state_machine::RotationKey;
use crate::renewal::FailureClass;

/// Returns how a failure is retried.
pub(super) fn failure_class(cause: FailureCause) -> FailureClass {
    match cause {
        // The same request is inspected again.
        FailureCause::NotDecided => FailureClass::Undecided,
        FailureCause::RequestTaken => FailureClass::Collision,
        FailureCause::NoCredential
        | FailureCause::Unauthorized
        | FailureCause::Forbidden
        | FailureCause::NotServed
        | FailureCause::ServerError
        | FailureCause::Unreachable
        | FailureCause::DiskFull
        | FailureCause::DiskFailed
        | FailureCause::CertificateRejected => FailureClass::Transient,
        FailureCause::Unwritable
        | FailureCause::RequestGone
        | FailureCause::RequestDenied
        | FailureCause::RequestFailed
        | FailureCause::BadCertificate
        | FailureCause::NamesMissing => FailureClass::Refused,
    }
}

/// A decided request stays decided; a new key gives a new request. The key is generated on use, so
/// that restarts cause no additional requests.
pub(super) fn key_after(cause: FailureCause) -> RotationKey {
    match cause {
        FailureCause::RequestTaken
        | FailureCause::RequestDenied
        | FailureCause::RequestFailed
        | FailureCause::BadCertificate
        | FailureCause::NamesMissing => RotationKey::Fresh,
        FailureCause::NoCredential
        | FailureCause::Unauthorized
        | FailureCause::Forbidden
        | FailureCause::NotServed
        | FailureCause::ServerError
        | FailureCause::Unreachable
        | FailureCause::DiskFull
        | FailureCause::DiskFailed
        | FailureCause::Unwritable
        | FailureCause::NotDecided
        | FailureCause::RequestGone
        | FailureCause::CertificateRejected => RotationKey::Kept,
    }
}

/// Describes that the server rejects an unexpired certificate.
pub(super) fn rejection_failure(
    serial: &str,
    since: OffsetDateTime,
    expires: OffsetDateTime,
) -> CertificateFailure {
    let message = format!(
        "the server has rejected the certificate with serial number {serial} since {}, although it is valid until \
         {}; it may be revoked; requesting another one with the bootstrap credential",
        clock::text(since),
        clock::text(expires)
    );
    CertificateFailure { cause: FailureCause::CertificateRejected, message }
}
