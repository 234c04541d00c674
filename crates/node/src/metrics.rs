//! What is known of the certificates, as Prometheus text, under kubelet's names.

pub mod volumes;

use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use time::{Duration, OffsetDateTime};

use crate::node_certificates::{NodeCertificateReport, RotationNotice};
use crate::template::CertificatePurpose;

/// Kubelet's bounds, in seconds: a minute to four years.
const BOUNDS: [i64; 10] =
    [60, 3_600, 14_400, 86_400, 604_800, 2_592_000, 7_776_000, 15_552_000, 31_104_000, 124_416_000];

/// How old serving certificates become before they are replaced.
#[derive(Debug, Default)]
pub struct RotationAges {
    counts: Mutex<AgeCounts>,
}

#[derive(Clone, Debug, Default)]
struct AgeCounts {
    /// Those of this bound and none below it.
    each: [u64; BOUNDS.len()],
    all: u64,
    seconds: f64,
}

impl RotationAges {
    /// Records the age of the replaced certificate; other notices are ignored.
    pub fn note(&self, notice: &RotationNotice) {
        if let RotationNotice::Stored { age: Some(age), .. } = notice {
            self.count(*age);
        }
    }

    fn count(&self, age: Duration) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let place = BOUNDS.iter().position(|&bound| age <= Duration::seconds(bound));
        if let Some(count) = place.and_then(|place| counts.each.get_mut(place)) {
            *count += 1;
        }
        counts.all += 1;
        counts.seconds += age.as_seconds_f64();
    }
}

/// Writes everything. Gauges of a certificate that is not there are left out: nothing expires then.
pub fn write(
    out: &mut String,
    reports: &[NodeCertificateReport],
    ages: &RotationAges,
    now: OffsetDateTime,
) {
    for report in reports {
        match report.purpose {
            CertificatePurpose::Client => write_client(out, report, now),
            CertificatePurpose::Serving => write_serving(out, report, ages, now),
        }
    }
    let name = "windlass_node_certificate_errors";
    head(out, name, "gauge", "1 while something stands in the way of a certificate, by reason");
    for report in reports {
        if let Some(trouble) = &report.trouble {
            let (certificate, reason) = (report.purpose.prefix(), trouble.cause.reason());
            let _ = writeln!(out, "{name}{{certificate=\"{certificate}\",reason=\"{reason}\"}} 1");
        }
    }
}

fn write_client(out: &mut String, report: &NodeCertificateReport, now: OffsetDateTime) {
    let prefix = "kubelet_certificate_manager_client";
    write_gauges(out, prefix, report, now);
    let name = format!("{prefix}_expiration_renew_errors");
    head(out, &name, "counter", "Failures to get another client certificate");
    let _ = writeln!(out, "{name} {}", report.errors);
}

fn write_serving(
    out: &mut String,
    report: &NodeCertificateReport,
    ages: &RotationAges,
    now: OffsetDateTime,
) {
    let prefix = "kubelet_certificate_manager_server";
    write_gauges(out, prefix, report, now);
    // Kubelet's name for it is of another pattern.
    let name = "kubelet_server_expiration_renew_errors";
    head(out, name, "counter", "Failures to get another serving certificate");
    let _ = writeln!(out, "{name} {}", report.errors);
    let name = format!("{prefix}_rotation_seconds");
    head(out, &name, "histogram", "How old serving certificates became before they were replaced");
    let counts = ages.counts.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut below = 0;
    for (bound, count) in BOUNDS.iter().zip(counts.each) {
        below += count;
        let _ = writeln!(out, "{name}_bucket{{le=\"{bound}\"}} {below}");
    }
    let _ = writeln!(out, "{name}_bucket{{le=\"+Inf\"}} {}", counts.all);
    let _ = writeln!(out, "{name}_sum {}\n{name}_count {}", counts.seconds, counts.all);
}

/// Until when it is good, and for how long: a negative number when that was.
fn write_gauges(
    out: &mut String,
    prefix: &str,
    report: &NodeCertificateReport,
    now: OffsetDateTime,
) {
    let expires = report.held.as_ref().map(|held| held.expires);
    let name = format!("{prefix}_expiration_seconds");
    head(out, &name, "gauge", "When the certificate expires, in seconds since 1970");
    if let Some(expires) = expires {
        let _ = writeln!(out, "{name} {}", expires.unix_timestamp());
    }
    let name = format!("{prefix}_ttl_seconds");
    head(out, &name, "gauge", "How long the certificate is still good; negative after its end");
    if let Some(expires) = expires {
        let _ = writeln!(out, "{name} {}", (expires - now).whole_seconds());
    }
}

/// Writing to a string does not fail.
fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_certificates::{CertificateFailure, FailureCause};
    use crate::testing::{START, report};

    fn text(reports: &[NodeCertificateReport], ages: &RotationAges, now: OffsetDateTime) -> String {
        let mut out = String::new();
        write(&mut out, reports, ages, now);
        out
    }

    #[test]
    fn a_certificate_has_so_long_to_live_and_then_less_than_nothing() {
        let report = report(CertificatePurpose::Client, Some(START + Duration::hours(1)));
        for (now, left) in [(START, "3600"), (START + Duration::hours(2), "-3600")] {
            let text = text(std::slice::from_ref(&report), &RotationAges::default(), now);
            let line = format!("\nkubelet_certificate_manager_client_ttl_seconds {left}\n");
            assert!(text.contains(&line), "{text}");
            let expires = (START + Duration::hours(1)).unix_timestamp();
            let line =
                format!("\nkubelet_certificate_manager_client_expiration_seconds {expires}\n");
            assert!(text.contains(&line), "{text}");
        }
    }

    #[test]
    fn without_a_certificate_there_are_errors_only() {
        let mut report = report(CertificatePurpose::Client, None);
        report.errors = 3;
        report.trouble =
            Some(CertificateFailure { cause: FailureCause::RequestDenied, message: "no".into() });
        let text = text(&[report], &RotationAges::default(), START);
        assert!(!text.contains("\nkubelet_certificate_manager_client_ttl_seconds"), "{text}");
        assert!(text.contains("\nkubelet_certificate_manager_client_expiration_renew_errors 3\n"));
        let trouble = "windlass_node_certificate_errors\
                       {certificate=\"kubelet-client\",reason=\"RequestDenied\"} 1\n";
        assert!(text.ends_with(trouble), "{text}");
    }

    #[test]
    fn ages_are_counted_up_to_each_bound() {
        let ages = RotationAges::default();
        for seconds in [60, 61, 3601, 200_000_000] {
            let age = Some(Duration::seconds(seconds));
            ages.note(&RotationNotice::Stored { expires: START, age });
        }
        ages.note(&RotationNotice::Stored { expires: START, age: None });
        let report = report(CertificatePurpose::Serving, None);
        let text = text(&[report], &ages, START);
        let name = "kubelet_certificate_manager_server_rotation_seconds";
        for line in [
            "_bucket{le=\"60\"} 1",
            "_bucket{le=\"3600\"} 2",
            "_bucket{le=\"14400\"} 3",
            "_bucket{le=\"124416000\"} 3",
            "_bucket{le=\"+Inf\"} 4",
            "_sum 200003722",
            "_count 4",
        ] {
            assert!(text.contains(&format!("\n{name}{line}\n")), "{line}: {text}");
        }
    }
}
