//! How each failure is retried, and with which key.

use crate::node_certificates::report::FailureCause;
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
        | FailureCause::DiskFailed => FailureClass::Transient,
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
        | FailureCause::RequestGone => RotationKey::Kept,
    }
}
