//! The certificates that the server itself depends on: renewed in time if they are its own, and
//! reported before they end if they are not.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use time::OffsetDateTime;
use windlass_controllers::Clock;
use windlass_controllers::signers::CustomSigner;

use super::Settings;
use crate::datadir::Renewal;
use crate::expiry::{Monitor, Monitored, Role};

/// How often to look whether something is due. By the wall clock, which jumps when a machine wakes up.
const LOOK: Duration = Duration::from_secs(60);
/// How often the same failure is logged.
const REPEAT: time::Duration = time::Duration::HOUR;

/// Renews and reports certificates while the server runs.
pub struct Certificates {
    renewal: Renewal,
    pub monitor: Monitor,
    clock: Clock,
    /// A renewal that failed is tried again, whatever part of it was done.
    failed: Mutex<Option<(OffsetDateTime, String)>>,
}

impl Certificates {
    pub fn new(settings: &Settings, custom: &[CustomSigner], clock: Clock) -> Self {
        Self::of(settings.data.renewal(), monitored(settings, custom), clock)
    }

    fn of(renewal: Renewal, monitored: Vec<Monitored>, clock: Clock) -> Self {
        let monitor = Monitor::new(monitored, clock.clone());
        Self { renewal, monitor, clock, failed: Mutex::default() }
    }

    /// Looks at all certificates now and then; does not end.
    pub async fn keep(self: Arc<Self>) {
        loop {
            let certificates = self.clone();
            // A panic in there is caught by the runtime, and the next round tries again.
            let _ = tokio::task::spawn_blocking(move || certificates.look()).await;
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Renews what is due, and reports what ends. The server reads its certificate again when the file
    /// changes.
    fn look(&self) {
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
                    let told = failed.as_ref().is_some_and(|(when, last)| {
                        *last == error && now >= *when && now - *when < REPEAT
                    });
                    if !told {
                        tracing::error!(
                            error,
                            "cannot renew certificates; trying again every minute"
                        );
                        *failed = Some((now, error));
                    }
                }
            }
        }
        drop(failed);
        self.monitor.check();
    }
}

/// What the server depends on.
fn monitored(settings: &Settings, custom: &[CustomSigner]) -> Vec<Monitored> {
    let layout = &settings.data.layout;
    let mut all = Vec::new();
    if settings.tls.certificate == layout.pki("server.crt") {
        all.push(Monitored::file("serving", Role::Renewed, &settings.tls.certificate));
        all.push(Monitored::file("serving-ca", Role::OwnAuthority, layout.pki("ca.crt")));
    } else {
        all.push(Monitored::file("serving", Role::Provided, &settings.tls.certificate));
    }
    let own = settings.client_ca == layout.pki("client-ca.crt");
    let role = if own { Role::OwnAuthority } else { Role::Authority };
    all.push(Monitored::file("client-ca", role, &settings.client_ca));
    if settings.data.has_kubeconfig() {
        all.push(Monitored::file("admin", Role::Renewed, layout.pki("admin.crt")));
    }
    if settings.controllers.is_some() {
        let file = layout.pki("kubelet-serving-ca.crt");
        all.push(Monitored::file("kubelet-serving-ca", Role::OwnAuthority, file));
    }
    let proxies = settings.access.requestheader_client_ca_file.iter();
    all.extend(proxies.map(|file| Monitored::file("requestheader-ca", Role::Authority, file)));
    let etcd = &settings.etcd;
    let client = etcd.etcd_certfile.iter();
    all.extend(client.map(|file| Monitored::file("etcd-client", Role::Provided, file)));
    let ca = etcd.etcd_cafile.iter();
    all.extend(ca.map(|file| Monitored::file("etcd-ca", Role::Authority, file)));
    all.extend(signer_cas(custom));
    all
}

/// The CAs of custom signers.
pub fn signer_cas(custom: &[CustomSigner]) -> impl Iterator<Item = Monitored> {
    custom
        .iter()
        .map(|signer| Monitored::signer(signer.custom.name.as_str(), signer.ca.certificate_file()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

    use windlass_pki::Certificate;

    use super::*;
    use crate::serve::tests::data;

    /// As a process that runs on while the clock does, for a year and a day.
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
        let file = data.layout.pki("server.crt");
        let monitored = vec![Monitored::file("serving", Role::Renewed, &file)];
        let certificates = Certificates::of(data.renewal(), monitored, clock.clone());
        let serving = || Certificate::from_pem(&fs::read(&file).unwrap()).unwrap();
        let (first, kubeconfig) = (serving(), fs::read(data.layout.kubeconfig()).unwrap());
        certificates.look();
        assert_eq!(serving().der(), first.der(), "nothing is due");

        // While it cannot be renewed, it is tried again.
        days.store(250, SeqCst);
        let key = data.layout.pki("client-ca.key");
        let good = fs::read(&key).unwrap();
        fs::write(&key, "garbage").unwrap();
        certificates.look();
        assert_eq!(serving().der(), first.der(), "all of it or nothing");
        fs::write(&key, good).unwrap();
        for day in [250, 340, 364, 366] {
            days.store(day, SeqCst);
            certificates.look();
            let found = serving();
            assert!(found.validity().contains(clock()), "day {day}");
            assert!(found.der() != first.der() && found.public_key() == first.public_key());
            assert_eq!(certificates.monitor.check(), 0, "nothing to report on day {day}");
        }
        assert!(fs::read(data.layout.kubeconfig()).unwrap() != kubeconfig);
        let mut text = String::new();
        certificates.monitor.metrics(&mut text);
        let ends = serving().validity().not_after().unix_timestamp();
        assert!(text.contains(&format!("{{certificate=\"serving\"}} {ends}\n")), "{text}");
    }
}
