//! Until when a request is kept: a pure function of the request.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use time::{Duration, OffsetDateTime};
use windlass_pki::parse_certificate_blocks;

use crate::csr::{APPROVED, Csr, DENIED, FAILED, condition, conditions, has_certificate};

/// How long what is settled is kept, for those who want to see how.
const SETTLED: Duration = Duration::HOUR;
/// How long what waits is kept.
const WAITING: Duration = Duration::DAY;
/// How long a pod's request is kept, whatever became of it.
const POD: Duration = Duration::minutes(15);

/// When a request is deleted; none if it does not say when it was made.
///
/// Whoever writes a condition says when, and may say anything: no request is older than itself.
pub fn csr_deadline(request: &Csr) -> Option<OffsetDateTime> {
    let created = to_offset_date_time(request.metadata.creation_timestamp.as_ref()?)?;
    let mut earliest = None;
    for condition in conditions(request) {
        let keep = match condition.type_.as_str() {
            DENIED | FAILED => SETTLED,
            APPROVED if has_certificate(request) => SETTLED,
            APPROVED => WAITING,
            // Somebody's own, which says nothing about whether it is done.
            _ => continue,
        };
        // Without a time nobody knows how long it has been so, only that it was not before.
        let (since, keep) = match condition.last_update_time.as_ref().and_then(to_offset_date_time)
        {
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

/// When a pod's request is deleted that was made then.
pub fn pod_request_deadline(created: &Time) -> Option<OffsetDateTime> {
    to_offset_date_time(created)?.checked_add(POD)
}

/// The end of the certificate, if there is one that can be read.
fn certificate_expiry(request: &Csr) -> Option<OffsetDateTime> {
    let text = &request.status.as_ref()?.certificate.as_ref()?.0;
    let certificates = parse_certificate_blocks(text).ok()?;
    Some(certificates.first()?.not_after())
}

fn earlier_of(a: Option<OffsetDateTime>, b: Option<OffsetDateTime>) -> Option<OffsetDateTime> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
    }
}

fn to_offset_date_time(Time(time): &Time) -> Option<OffsetDateTime> {
    // A time that is not set is the year 1 in Go.
    let set = *time > Timestamp::UNIX_EPOCH;
    set.then(|| OffsetDateTime::from_unix_timestamp(time.as_second()).ok()).flatten()
}

#[cfg(test)]
mod tests;
