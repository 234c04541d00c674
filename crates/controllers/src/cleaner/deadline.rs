//! Retention of requests: when each is deleted, as a pure function of the request.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use time::{Duration, OffsetDateTime};
use windlass_pki::parse_certificate_blocks;
use windlass_runtime::csr::{APPROVED, DENIED, FAILED, certificate, condition, conditions, status_counts};

use crate::csr::Csr;

/// Retention of answered requests, so that the answer can be inspected.
const SETTLED: Duration = Duration::HOUR;
/// Retention of pending requests, and of approved ones without a certificate.
const WAITING: Duration = Duration::DAY;
/// Retention of PodCertificateRequests, whatever their state is.
const POD: Duration = Duration::minutes(15);

/// Computes when a request is deleted; `None` if it has no creation time.
///
/// The times of conditions are set by their writers, so none counts as earlier than the creation of the request.
pub fn csr_deadline(request: &Csr) -> Option<OffsetDateTime> {
    let created = to_offset_date_time(request.metadata.creation_timestamp.as_ref()?)?;
    let mut earliest = None;
    for condition in conditions(request).iter().filter(|each| status_counts(&each.status)) {
        let keep = match condition.type_.as_str() {
            DENIED | FAILED => SETTLED,
            APPROVED if certificate(request).is_some() => SETTLED,
            APPROVED => WAITING,
            // Conditions of other writers do not say whether the request is answered.
            _ => continue,
        };
        // Without a time, the condition may be as old as the request.
        let (since, keep) = match condition.last_update_time.as_ref().and_then(to_offset_date_time) {
            Some(time) => (time.max(created), keep),
            None => (created, WAITING),
        };
        earliest = earlier_of(earliest, since.checked_add(keep));
    }
    if condition(request, APPROVED).is_some() {
        earliest = earlier_of(earliest, certificate_expiry(request).map(|end| end.max(created)));
    }
    earliest.or_else(|| created.checked_add(WAITING))
}

/// Computes when a PodCertificateRequest is deleted.
pub fn pod_request_deadline(created: &Time) -> Option<OffsetDateTime> {
    to_offset_date_time(created)?.checked_add(POD)
}

/// Expiry of the first certificate; `None` if there is none that can be parsed.
fn certificate_expiry(request: &Csr) -> Option<OffsetDateTime> {
    let certificates = parse_certificate_blocks(certificate(request)?).ok()?;
    Some(certificates.first()?.not_after())
}

fn earlier_of(a: Option<OffsetDateTime>, b: Option<OffsetDateTime>) -> Option<OffsetDateTime> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
    }
}

fn to_offset_date_time(Time(time): &Time) -> Option<OffsetDateTime> {
    // An unset time is the year 1 in Go.
    let set = *time > Timestamp::UNIX_EPOCH;
    set.then(|| OffsetDateTime::from_unix_timestamp(time.as_second()).ok()).flatten()
}

#[cfg(test)]
mod tests;
