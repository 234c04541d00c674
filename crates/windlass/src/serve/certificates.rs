//! Certificates that the server depends on: its own are renewed, and others are reported before
//! they expire.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use time::OffsetDateTime;
use windlass_controllers::Clock;
use windlass_controllers::signers::CustomSigner;
use windlass_runtime::metrics::MetricsRegistry;

use super::ServerSettings;
use crate::datadir::CertificateRenewal;
use crate::expiry::{CertificateRole, ExpiryMonitor, MonitoredCertificate};

/// Interval of checks by the wall clock, which jumps when a machine resumes from sleep.
const LOOK: Duration = Duration::from_secs(60);
/// Interval at which the same failure is logged again.
const REPEAT: time::Duration = time::Duration::HOUR;

/// Renews and reports certificates while the server runs.
pub struct CertificateMaintainer {
    renewal: CertificateRenewal,
    monitor: ExpiryMonitor,
    clock: Clock,
    /// Time and message of the last failure; a failed renewal is retried completely.
    failed: Mutex<Option<(OffsetDateTime, String)>>,
}

impl CertificateMaintainer {
    pub fn new(
        settings: &ServerSettings,
        custom: &[CustomSigner],
        clock: Clock,
        metrics: &MetricsRegistry,
    ) -> Self {
        let monitor = ExpiryMonitor::new(monitored(settings, custom), clock.clone(), metrics);
        Self::from_parts(settings.data.renewal(), monitor, clock)
    }

    fn from_parts(renewal: CertificateRenewal, monitor: ExpiryMonitor, clock: Clock) -> Self {
        Self { renewal, monitor, clock, failed: Mutex::default() }
    }

    /// Checks all certificates periodically; runs until it is cancelled.
    pub async fn run(self: Arc<Self>) {
        loop {
            let certificates = self.clone();
            // The runtime catches a panic, and the next round retries.
            let _ = tokio::task::spawn_blocking(move || certificates.renew_and_report()).await;
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Renews due certificates and reports expiring ones. The server reloads its certificate when
    /// the file changes.
    fn renew_and_report(&self) {
        let now = (self.clock)();
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.is_some() || self.renewal.is_due(now) {
            match self.renewal.renew(now) {
                Ok(files) => {
                    let files = files.iter().map(|file| file.display().to_string());
                    let files = files.collect::<Vec<_>>().join(", ");
                    tracing::info!(files, "renewed certificates");
                    *failed = None;
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    let repeated = failed
                        .as_ref()
                        .is_some_and(|(when, last)| *last == error && now >= *when && now - *when < REPEAT);
                    if !repeated {
                        tracing::error!(error, "certificate renewal failed; retrying every minute");
                        *failed = Some((now, error));
                    }
                }
            }
        }
        drop(failed);
        self.monitor.check();
    }
}

/// Lists the certificates that the server depends on.
fn monitored(settings: &ServerSettings, custom: &[CustomSigner]) -> Vec<MonitoredCertificate> {
    let layout = &settings.data.layout;
    let mut all = Vec::new();
    if settings.tls.certificate == layout.pki_file("server.crt") {
        all.push(MonitoredCertificate::file("serving", CertificateRole::Renewed, &settings.tls.certificate));
        all.push(MonitoredCertificate::file(
            "serving-ca",
            CertificateRole::OwnAuthority,
            layout.pki_file("ca.crt"),
        ));
    } else {
        all.push(MonitoredCertificate::file("serving", CertificateRole::Provided, &settings.tls.certificate));
    }
    let own = settings.client_ca == layout.pki_file("client-ca.crt");
    let role = if own { CertificateRole::OwnAuthority } else { CertificateRole::Authority };
    all.push(MonitoredCertificate::file("client-ca", role, &settings.client_ca));
    if settings.data.has_kubeconfig() {
        all.push(MonitoredCertificate::file("admin", CertificateRole::Renewed, layout.pki_file("admin.crt")));
    }
    if settings.controllers.is_some() {
        let file = layout.pki_file("kubelet-serving-ca.crt");
        all.push(MonitoredCertificate::file("kubelet-serving-ca", CertificateRole::OwnAuthority, file));
    }
    let proxies = settings.options.access.requestheader_client_ca_file.iter();
    all.extend(
        proxies.map(|file| MonitoredCertificate::file("requestheader-ca", CertificateRole::Authority, file)),
    );
    let etcd = &settings.options.etcd;
    let client = etcd.etcd_certfile.iter();
    all.extend(client.map(|file| MonitoredCertificate::file("etcd-client", CertificateRole::Provided, file)));
    let ca = etcd.etcd_cafile.iter();
    all.extend(ca.map(|file| MonitoredCertificate::file("etcd-ca", CertificateRole::Authority, file)));
    all.extend(signer_cas(custom));
    all
}

/// Returns the CAs of custom signers that are in files, for monitoring.
pub fn signer_cas(custom: &[CustomSigner]) -> impl Iterator<Item = MonitoredCertificate> {
    custom.iter().filter_map(|signer| {
        let file = signer.ca.certificate_file()?;
        Some(MonitoredCertificate::signer(signer.custom.name.as_str(), file))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

    use windlass_pki::Certificate;

    use super::*;
    use crate::serve::tests::data;

    /// Simulates a process that runs for a year and a day.
    #[test]
    fn a_server_never_shows_an_expired_certificate() {
        let directory = tempfile::tempdir().unwrap();
        let data = data(directory.path());
        let start = OffsetDateTime::now_utc();
        let days = Arc::new(AtomicI64::new(0));
        let clock: Clock = {
            let days = days.clone();
            Arc::new(move || start + time::Duration::days(days.load(SeqCst)))
        };
        let file = data.layout.pki_file("server.crt");
        let monitored = vec![MonitoredCertificate::file("serving", CertificateRole::Renewed, &file)];
        let metrics = MetricsRegistry::new();
        let monitor = ExpiryMonitor::new(monitored, clock.clone(), &metrics);
        let certificates = CertificateMaintainer::from_parts(data.renewal(), monitor, clock.clone());
        let serving = || Certificate::from_pem(&fs::read(&file).unwrap()).unwrap();
        let (first, kubeconfig) = (serving(), fs::read(data.layout.kubeconfig()).unwrap());
        certificates.renew_and_report();
        assert_eq!(serving().der(), first.der(), "nothing is due");

        // A failed renewal is retried.
        days.store(250, SeqCst);
        let key = data.layout.pki_file("client-ca.key");
        let good = fs::read(&key).unwrap();
        fs::write(&key, "garbage").unwrap();
        certificates.renew_and_report();
        assert_eq!(serving().der(), first.der(), "all of it or nothing");
        fs::write(&key, good).unwrap();
        for day in [250, 340, 364, 366] {
            days.store(day, SeqCst);
            certificates.renew_and_report();
            let found = serving();
            assert!(found.validity().contains(clock()), "day {day}");
            assert!(found.der() != first.der() && found.public_key() == first.public_key());
            assert_eq!(certificates.monitor.check(), 0, "nothing to report on day {day}");
        }
        assert!(fs::read(data.layout.kubeconfig()).unwrap() != kubeconfig);
        let text = metrics.encode();
        let ends = serving().validity().not_after().unix_timestamp();
        assert!(text.contains(&format!("{{certificate=\"serving\"}} {ends}\n")), "{text}");
    }
}
