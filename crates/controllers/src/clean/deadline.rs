//! Until when a request is kept: a pure function of the request.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use time::{Duration, OffsetDateTime};
use windlass_pki::parse_certificate_blocks;

use crate::requests::{APPROVED, DENIED, FAILED, Request, condition, conditions, has_certificate};

/// How long what is settled is kept, for those who want to see how.
const SETTLED: Duration = Duration::HOUR;
/// How long what waits is kept.
const WAITING: Duration = Duration::DAY;
/// How long a pod's request is kept, whatever became of it.
const POD: Duration = Duration::minutes(15);

/// When a request is deleted; none if it does not say when it was made.
///
/// Whoever writes a condition says when, and may say anything: no request is older than itself.
pub fn of_request(request: &Request) -> Option<OffsetDateTime> {
    let created = time_of(request.metadata.creation_timestamp.as_ref()?)?;
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
        let (since, keep) = match condition.last_update_time.as_ref().and_then(time_of) {
            Some(time) => (time.max(created), keep),
            None => (created, WAITING),
        };
        earliest = sooner(earliest, since.checked_add(keep));
    }
    if condition(request, APPROVED).is_some() {
        earliest = sooner(earliest, expiry(request).map(|end| end.max(created)));
    }
    earliest.or_else(|| created.checked_add(WAITING))
}

/// When a pod's request is deleted that was made then.
pub fn of_pod_request(created: &Time) -> Option<OffsetDateTime> {
    time_of(created)?.checked_add(POD)
}

/// The end of the certificate, if there is one that can be read.
fn expiry(request: &Request) -> Option<OffsetDateTime> {
    let text = &request.status.as_ref()?.certificate.as_ref()?.0;
    let certificates = parse_certificate_blocks(text).ok()?;
    Some(certificates.first()?.not_after())
}

fn sooner(a: Option<OffsetDateTime>, b: Option<OffsetDateTime>) -> Option<OffsetDateTime> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
    }
}

fn time_of(Time(time): &Time) -> Option<OffsetDateTime> {
    // A time that is not set is the year 1 in Go.
    let set = *time > Timestamp::UNIX_EPOCH;
    set.then(|| OffsetDateTime::from_unix_timestamp(time.as_second()).ok()).flatten()
}

#[cfg(test)]
mod tests;
