//! Expiry of certificates, and how early it is reported: in the log, as a metric and by
//! `windlass signer check`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use time::{Duration, OffsetDateTime};
use windlass_api::age::human_duration;
use windlass_api::timestamp;
use windlass_controllers::Clock;
use windlass_pki::{ForeignCertificate, pem};
use windlass_runtime::metrics::MetricsRegistry;

/// Interval between repetitions of a warning.
const REPEAT: Duration = Duration::DAY;
/// Time before its expiry at which a certificate is reported.
const LEAF_PERIOD: Duration = Duration::days(30);
/// The same for a long-lived CA: replacing one takes planning.
const AUTHORITY_PERIOD: Duration = Duration::days(180);
/// The period is at most this fraction of the lifetime, so that certificates that are renewed daily are not
/// reported daily.
const PERIODS_PER_LIFETIME: i32 = 5;

const METRIC: &str = "windlass_certificate_expiration_timestamp_seconds";

/// Who replaces a certificate before it expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateRole {
    /// Windlass issues it to itself and renews it.
    Renewed,
    /// The user provides and renews the file.
    Provided,
    /// A CA that Windlass created. It is never replaced automatically.
    OwnAuthority,
    /// A CA that the user provides and replaces.
    Authority,
}

impl CertificateRole {
    /// Returns how long before its expiry a certificate is reported.
    pub fn warning_period(self, lifetime: Duration) -> Duration {
        let maximum = match self {
            CertificateRole::Renewed | CertificateRole::Provided => LEAF_PERIOD,
            CertificateRole::OwnAuthority | CertificateRole::Authority => AUTHORITY_PERIOD,
        };
        maximum.min(lifetime / PERIODS_PER_LIFETIME)
    }

    const fn remedy(self) -> &'static str {
        match self {
            CertificateRole::Renewed => {
                "renew it by starting windlass, or see the log for the reason why the renewal fails"
            }
            CertificateRole::Provided | CertificateRole::Authority => {
                "renew it by replacing the file, which a running server reloads"
            }
            CertificateRole::OwnAuthority => {
                "replace it as described in docs/certificates.md, \"Replacing a CA\""
            }
        }
    }
}

#[derive(Clone, Debug)]
pub struct MonitoredCertificate {
    /// Its name in log and metric.
    pub name: String,
    pub role: CertificateRole,
    pub source: CertificateSource,
    /// Whether its expiry is exported as a metric; the CAs of signers have separate metrics.
    pub metric: bool,
}

/// Where the certificate is read from at each check.
#[derive(Clone, Debug)]
pub enum CertificateSource {
    /// A file, read at every check.
    File(PathBuf),
    /// PEM text, the CA embedded in a kubeconfig.
    Text(Vec<u8>),
}

impl MonitoredCertificate {
    /// Monitors a certificate file, with a metric.
    pub fn file(name: &str, role: CertificateRole, path: impl Into<PathBuf>) -> Self {
        Self { name: name.to_owned(), role, source: CertificateSource::File(path.into()), metric: true }
    }

    /// Monitors the CA file of a signer.
    pub fn signer(name: &str, path: &Path) -> Self {
        Self { metric: false, ..Self::file(name, CertificateRole::Authority, path) }
    }

    /// Reads the certificate now; of several in a file, the one that expires first counts.
    pub fn read(&self) -> Result<CertificateLifetime> {
        let (text, origin) = match &self.source {
            CertificateSource::Text(text) => (text.clone(), "certificate of the kubeconfig".to_owned()),
            CertificateSource::File(path) => {
                let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
                (text, path.display().to_string())
            }
        };
        let mut ends_first: Option<CertificateLifetime> = None;
        for der in pem::certificates(&text).with_context(|| origin.clone())? {
            let certificate = ForeignCertificate::from_der(&der).with_context(|| origin.clone())?;
            let (begins, ends) = (certificate.not_before(), certificate.not_after());
            if ends_first.as_ref().is_none_or(|first| ends < first.ends) {
                ends_first =
                    Some(CertificateLifetime { origin: origin.clone(), begins, ends, role: self.role });
            }
        }
        ends_first.with_context(|| format!("{origin} contains no certificate"))
    }
}

/// Validity period of a certificate; of several in a file, that of the first to expire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateLifetime {
    origin: String,
    role: CertificateRole,
    begins: OffsetDateTime,
    ends: OffsetDateTime,
}

/// Whether a certificate expires soon or has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiryUrgency {
    Soon,
    Over,
}

impl CertificateLifetime {
    /// Returns the message to report now, if any.
    pub fn report(&self, now: OffsetDateTime) -> Option<(ExpiryUrgency, String)> {
        let Self { origin, role, begins, ends } = self;
        let (left, remedy, on) = (*ends - now, role.remedy(), timestamp::format(*ends));
        if left.is_negative() {
            let ago = human_duration(-left.whole_seconds());
            let text = format!("{origin} expired {on} ({ago} ago); {remedy}");
            return Some((ExpiryUrgency::Over, text));
        }
        (left < role.warning_period(*ends - *begins)).then(|| {
            let left = human_duration(left.whole_seconds());
            (ExpiryUrgency::Soon, format!("{origin} expires {on} (in {left}); {remedy}"))
        })
    }
}

/// Reports certificates that expire soon or have expired.
pub struct ExpiryMonitor {
    monitored: Arc<[MonitoredCertificate]>,
    clock: Clock,
    reported: Mutex<BTreeMap<String, (OffsetDateTime, ExpiryUrgency)>>,
}

impl ExpiryMonitor {
    /// Creates a monitor of these certificates and registers their expiry; call [`ExpiryMonitor::check`] periodically.
    pub fn new(monitored: Vec<MonitoredCertificate>, clock: Clock, metrics: &MetricsRegistry) -> Self {
        let monitored: Arc<[MonitoredCertificate]> = monitored.into();
        let scraped = monitored.clone();
        let help = "Expiry of the certificate; of several, the earliest";
        metrics.register_scraped_gauge(METRIC, help, move || expiry_samples(&scraped));
        Self { monitored, clock, reported: Mutex::default() }
    }

    /// Logs certificates that expire soon or have expired: at first, when the urgency rises, and once a day. Returns the
    /// number of lines. Blocks on the disk.
    pub fn check(&self) -> usize {
        let now = (self.clock)();
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let mut logged = 0;
        for monitored in self.monitored.iter() {
            let name = monitored.name.as_str();
            let report = match monitored.read() {
                Ok(lifetime) => lifetime.report(now),
                // The component that uses the file reports the error.
                Err(_) => continue,
            };
            let Some((urgency, text)) = report else {
                reported.remove(name);
                continue;
            };
            let silent = reported
                .get(name)
                .is_some_and(|(when, last)| *last == urgency && now >= *when && now - *when < REPEAT);
            if silent {
                continue;
            }
            match urgency {
                ExpiryUrgency::Soon => tracing::warn!(certificate = name, "{text}"),
                ExpiryUrgency::Over => tracing::error!(certificate = name, "{text}"),
            }
            reported.insert(name.to_owned(), (now, urgency));
            logged += 1;
        }
        logged
    }
}

/// Reads the expiry of each certificate. One that cannot be read has no sample.
fn expiry_samples(monitored: &[MonitoredCertificate]) -> Vec<(Vec<(String, String)>, i64)> {
    let exposed = monitored.iter().filter(|each| each.metric);
    let sample = |each: &MonitoredCertificate| {
        let CertificateLifetime { ends, .. } = each.read().ok()?;
        Some((vec![("certificate".to_owned(), each.name.clone())], ends.unix_timestamp()))
    };
    exposed.filter_map(sample).collect()
}

#[cfg(test)]
mod tests;
