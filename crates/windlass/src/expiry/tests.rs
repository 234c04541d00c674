use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use time::macros::datetime;
use windlass_pki::Validity;

use super::*;

const NOW: OffsetDateTime = datetime!(2026-06-01 12:00 UTC);

fn certificate(days: i64) -> String {
    let validity = Validity::lasting(NOW, Duration::days(days)).unwrap();
    windlass_testkit::ca_with_validity("c", validity).certificate().to_pem()
}

/// Returns a clock that is set in days from now.
fn clock() -> (Arc<AtomicI64>, Clock) {
    let days = Arc::new(AtomicI64::new(0));
    let read = days.clone();
    (days, Arc::new(move || NOW + Duration::days(read.load(SeqCst))))
}

#[test]
fn long_lives_are_reported_early_and_short_ones_late() {
    for (role, lifetime, period) in [
        (CertificateRole::Renewed, 365, 30),
        (CertificateRole::Provided, 365, 30),
        (CertificateRole::Provided, 5, 1),
        (CertificateRole::Authority, 3650, 180),
        (CertificateRole::OwnAuthority, 3650, 180),
        (CertificateRole::OwnAuthority, 100, 20),
    ] {
        let found = role.warning_period(Duration::days(lifetime));
        assert_eq!(found, Duration::days(period), "{role:?} {lifetime}");
    }
}

#[test]
fn an_end_is_reported_early_daily_and_when_it_has_come() {
    let folder = tempfile::tempdir().unwrap();
    let (leaf, ca) = (folder.path().join("leaf.crt"), folder.path().join("ca.crt"));
    fs::write(&leaf, certificate(365)).unwrap();
    fs::write(&ca, certificate(3650)).unwrap();
    let (days, clock) = clock();
    let monitored = vec![
        MonitoredCertificate::file("serving", CertificateRole::Provided, &leaf),
        MonitoredCertificate::file("client-ca", CertificateRole::OwnAuthority, &ca),
        MonitoredCertificate::signer("example.com/a", &ca),
        MonitoredCertificate::file("absent", CertificateRole::Provided, folder.path().join("absent")),
    ];
    let metrics = MetricsRegistry::new();
    let monitor = ExpiryMonitor::new(monitored, clock, &metrics);
    for (day, lines) in [
        (0, 0),
        (334, 0),
        (336, 1),
        (336, 0),
        (337, 1),
        // The message changes when the certificate has expired.
        (366, 1),
        (366, 0),
        (367, 1),
    ] {
        days.store(day, SeqCst);
        assert_eq!(monitor.check(), lines, "day {day}");
    }
    fs::write(&leaf, certificate(36_500)).unwrap();
    assert_eq!(monitor.check(), 0, "it was replaced");
    days.store(3471, SeqCst);
    assert_eq!(monitor.check(), 2, "the CA, for clients and for its signer");

    let text = metrics.encode();
    let ends = (NOW + Duration::days(3650)).unix_timestamp();
    assert!(text.contains(&format!("{METRIC}{{certificate=\"client-ca\"}} {ends}\n")), "{text}");
    assert!(text.contains("{certificate=\"serving\"}"), "{text}");
    assert!(!text.contains("absent") && !text.contains("example.com/a"), "{text}");
}

#[test]
fn the_earliest_expiry_in_a_file_counts() {
    let text = format!("{}{}{}", certificate(100), certificate(10), certificate(1000));
    let monitored = MonitoredCertificate {
        source: CertificateSource::Text(text.into_bytes()),
        ..MonitoredCertificate::file("client", CertificateRole::Provided, "")
    };
    let lifetime = monitored.read().unwrap();
    assert_eq!(lifetime.report(NOW + Duration::days(7)), None);
    let (urgency, text) = lifetime.report(NOW + Duration::days(9)).unwrap();
    assert_eq!(urgency, ExpiryUrgency::Soon);
    let wanted = "certificate of the kubeconfig expires 2026-06-11T12:00:00Z (in 24h); ";
    assert!(text.starts_with(wanted), "{text}");
    let (urgency, text) = lifetime.report(NOW + Duration::days(11)).unwrap();
    assert_eq!(urgency, ExpiryUrgency::Over);
    assert!(
        text.starts_with("certificate of the kubeconfig expired 2026-06-11T12:00:00Z (24h ago); "),
        "{text}"
    );
}
