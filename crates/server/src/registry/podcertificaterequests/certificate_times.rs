//! Times of an issued certificate in a status.

use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::timestamp;
use windlass_pki::ForeignCertificate;

use crate::registry::object_fields::{integer, text};

const SHORTEST: Duration = Duration::hours(1);
/// Tolerated clock skew of signers.
const SKEW: Duration = Duration::minutes(5);
/// Minimum lifetime of a certificate before and after its renewal time.
const MARGIN: Duration = Duration::minutes(10);

/// Validity of a certificate, and when to renew it.
pub(super) struct CertificateTimes {
    not_before: OffsetDateTime,
    not_after: OffsetDateTime,
    begin_refresh_at: OffsetDateTime,
    /// Requested maximum lifetime in seconds.
    max_seconds: i64,
}

impl CertificateTimes {
    /// Parses the times, all of which are required.
    pub(super) fn from_request(request: &Value, errors: &mut FieldErrors) -> Option<CertificateTimes> {
        let mut read = |field: &str, words: &str| {
            let time = timestamp::parse(text(request, &format!("/status/{field}"))).ok();
            if time.is_none() {
                errors.required(&FieldPath::new("status").child(field), words);
            }
            time
        };
        let consistent = "must be present and consistent with the issued certificate";
        let within = "must be present and in the range [notbefore+10min, notafter-10min]";
        let not_before = read("notBefore", consistent);
        let not_after = read("notAfter", consistent);
        let begin_refresh_at = read("beginRefreshAt", within);
        Some(CertificateTimes {
            not_before: not_before?,
            not_after: not_after?,
            begin_refresh_at: begin_refresh_at?,
            max_seconds: integer(request, "/spec/maxExpirationSeconds").unwrap_or_default(),
        })
    }

    /// Checks that the times match the leaf, are current, and leave time to use it. Reports only
    /// the first violation.
    pub(super) fn check(&self, leaf: &ForeignCertificate, now: OffsetDateTime, errors: &mut FieldErrors) {
        let before = errors.len();
        self.check_beginning(leaf, now, errors);
        if errors.len() == before {
            self.check_end(leaf, errors);
        }
        if errors.len() == before {
            self.check_renewal(errors);
        }
    }

    fn check_beginning(&self, leaf: &ForeignCertificate, now: OffsetDateTime, errors: &mut FieldErrors) {
        let words = if self.not_before != leaf.not_before() {
            "must be set to the NotBefore time encoded in the leaf certificate"
        } else if (self.not_before - now).abs() >= SKEW {
            "must be set to within 5 minutes of kube-apiserver's current time"
        } else {
            return;
        };
        report_invalid("notBefore", self.not_before, words, errors);
    }

    fn check_end(&self, leaf: &ForeignCertificate, errors: &mut FieldErrors) {
        let lifetime = self.not_after - self.not_before;
        let words = if self.not_after != leaf.not_after() {
            let words = "must be set to the NotAfter time encoded in the leaf certificate";
            return report_invalid("notAfter", self.not_after, words, errors);
        } else if lifetime < SHORTEST {
            "leaf certificate lifetime must be >= 1 hour".to_owned()
        } else if lifetime > Duration::seconds(self.max_seconds) {
            let max_seconds = self.max_seconds;
            format!("leaf certificate lifetime must be <= spec.maxExpirationSeconds ({max_seconds})")
        } else {
            return;
        };
        // Kubernetes shows a lifetime in nanoseconds.
        let shown = i64::try_from(lifetime.whole_nanoseconds()).unwrap_or(i64::MAX);
        errors.invalid(&FieldPath::new("status").child("certificateChain"), &json!(shown), &words);
    }

    fn check_renewal(&self, errors: &mut FieldErrors) {
        let words = if self.begin_refresh_at < self.not_before + MARGIN {
            "must be at least 10 minutes after status.notBefore"
        } else if self.begin_refresh_at > self.not_after - MARGIN {
            "must be at least 10 minutes before status.notAfter"
        } else {
            return;
        };
        report_invalid("beginRefreshAt", self.begin_refresh_at, words, errors);
    }
}

fn report_invalid(field: &str, time: OffsetDateTime, words: &str, errors: &mut FieldErrors) {
    errors.invalid_str(&FieldPath::new("status").child(field), &timestamp::format(time), words);
}
