//! Renewal of the certificates of a data directory while its server runs.

use std::path::PathBuf;

use anyhow::Result;
use time::{Duration, OffsetDateTime};
use windlass_pki::{Certificate, CertificateAuthority, Validity};
use windlass_runtime::durable::FileSystem;

use super::{DataDirLayout, PkiBuilder, ServerSite, admin_request, disk_error, read, serving_request};

/// Fraction of the lifetime after which a certificate is renewed: as early as kubelets do, which
/// leaves time to notice failures.
const RENEWED_AFTER: f64 = 2.0 / 3.0;
/// Maximum fraction of the lifetime by which the renewal is earlier, so that servers that were
/// installed together do not renew together.
const JITTER: f64 = 0.05;

/// Renewed key pairs, each with its CA.
const RENEWED: [(&str, &str); 2] = [("server", "ca"), ("admin", "client-ca")];

/// Renews the serving certificate and the administrator's credential. Use it only while the
/// directory is locked.
#[derive(Debug, Clone)]
pub struct CertificateRenewal {
    layout: DataDirLayout,
    site: ServerSite,
}

impl CertificateRenewal {
    pub(super) fn new(layout: DataDirLayout, site: ServerSite) -> Self {
        Self { layout, site }
    }

    /// Returns whether a certificate is due for renewal. Unreadable ones are not: they may be about
    /// to be replaced, and the next start reports them.
    pub fn is_due(&self, now: OffsetDateTime) -> bool {
        RENEWED.iter().any(|(leaf, authority)| {
            let certificate = |name: &str| {
                let text = read(&self.layout.pair(name).certificate).ok()??;
                Certificate::from_pem(&text).ok()
            };
            let (leaf, authority) = (certificate(leaf), certificate(authority));
            leaf.zip(authority).is_some_and(|(leaf, authority)| is_renewal_due(&leaf, &authority, now))
        })
    }

    /// Renews due certificates with the same keys, and updates the kubeconfig. Each file is
    /// replaced atomically; the next renewal completes what a crash interrupts. Returns the written
    /// files.
    pub fn renew(&self, now: OffsetDateTime) -> Result<Vec<PathBuf>> {
        let mut making = PkiBuilder { layout: &self.layout, now, files: Vec::new() };
        making.credentials(&self.site, &serving_request(&self.site)?, &admin_request()?)?;
        let files = making.files;
        FileSystem::default().write_all(&files).map_err(disk_error)?;
        Ok(files.into_iter().map(|file| file.path).collect())
    }
}

pub(super) fn is_renewal_due(leaf: &Certificate, authority: &Certificate, now: OffsetDateTime) -> bool {
    // A new certificate would not expire later.
    leaf.validity().not_after() < authority.validity().not_after()
        && now >= renewal_time(&leaf.validity(), jitter(leaf))
}

/// Returns when a certificate is renewed; `jitter` ranges from 0 to 1.
fn renewal_time(validity: &Validity, jitter: f64) -> OffsetDateTime {
    let lifetime = validity.not_after() - validity.not_before();
    let after = Duration::seconds_f64(lifetime.as_seconds_f64() * (RENEWED_AFTER - JITTER * jitter));
    validity.not_before().saturating_add(after)
}

/// Derives a jitter that differs between certificates and is stable for each.
fn jitter(certificate: &Certificate) -> f64 {
    let [first, ..] = certificate.fingerprint();
    f64::from(first) / f64::from(u8::MAX)
}

impl PkiBuilder<'_> {
    /// Issues the serving certificate, the administrator's certificate and its kubeconfig.
    pub(super) fn credentials(
        &mut self,
        site: &ServerSite,
        serving: &super::LeafRequest,
        administrator: &super::LeafRequest,
    ) -> Result<()> {
        let ca: CertificateAuthority = self.authority("ca", "windlass-ca")?;
        let client_ca = self.authority("client-ca", "windlass-client-ca")?;
        self.leaf(&ca, "server", serving)?;
        let admin = self.leaf(&client_ca, "admin", administrator)?;
        if site.write_kubeconfig {
            self.kubeconfig(&site.client_url(), &ca, &admin)?;
        }
        Ok(())
    }
}
