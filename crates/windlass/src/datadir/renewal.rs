//! Renewing, while a server runs, what its data directory has issued to it.

use std::path::PathBuf;

use anyhow::Result;
use time::{Duration, OffsetDateTime};
use windlass_pki::{Certificate, CertificateAuthority, Validity};
use windlass_runtime::durable::FileSystem;

use super::{
    DataDirLayout, PkiBuilder, ServerSite, admin_request, disk_error, read, serving_request,
};

/// The part of a lifetime after which a certificate is renewed: as early as kubelets do it, so that
/// there is time to notice that it does not work.
const RENEWED_AFTER: f64 = 2.0 / 3.0;
/// The part by which it may be earlier, so that servers that were installed together are not renewed
/// together.
const JITTER: f64 = 0.05;

/// Pairs that are renewed, and the authority of each.
const RENEWED: [(&str, &str); 2] = [("server", "ca"), ("admin", "client-ca")];

/// Renews the serving certificate and the administrator's credential. To be used only while the
/// directory is held.
#[derive(Debug, Clone)]
pub struct CertificateRenewal {
    layout: DataDirLayout,
    site: ServerSite,
}

impl CertificateRenewal {
    pub(super) fn new(layout: DataDirLayout, site: ServerSite) -> Self {
        Self { layout, site }
    }

    /// Whether a certificate is to be renewed now. What cannot be read is not: somebody may be
    /// replacing it, and the next start reports it.
    pub fn is_due(&self, now: OffsetDateTime) -> bool {
        RENEWED.iter().any(|(leaf, authority)| {
            let certificate = |name: &str| {
                let text = read(&self.layout.pair(name).certificate).ok()??;
                Certificate::from_pem(&text).ok()
            };
            let (leaf, authority) = (certificate(leaf), certificate(authority));
            leaf.zip(authority)
                .is_some_and(|(leaf, authority)| is_renewal_due(&leaf, &authority, now))
        })
    }

    /// Issues what is due, for the same keys, and puts it into the kubeconfig. Each file is replaced
    /// as a whole; what a crash leaves undone is done the next time. Returns the files written.
    pub fn renew(&self, now: OffsetDateTime) -> Result<Vec<PathBuf>> {
        let mut making = PkiBuilder { layout: &self.layout, now, files: Vec::new() };
        making.credentials(&self.site, &serving_request(&self.site)?, &admin_request()?)?;
        let files = making.files;
        FileSystem::default().write_all(&files).map_err(disk_error)?;
        Ok(files.into_iter().map(|file| file.path).collect())
    }
}

/// Whether it is time to renew a certificate.
pub(super) fn is_renewal_due(
    leaf: &Certificate,
    authority: &Certificate,
    now: OffsetDateTime,
) -> bool {
    // Another one would end no later.
    leaf.validity().not_after() < authority.validity().not_after()
        && now >= renewal_time(&leaf.validity(), jitter(leaf))
}

/// When a certificate is renewed; `jitter` is from 0 to 1.
fn renewal_time(validity: &Validity, jitter: f64) -> OffsetDateTime {
    let lifetime = validity.not_after() - validity.not_before();
    let after =
        Duration::seconds_f64(lifetime.as_seconds_f64() * (RENEWED_AFTER - JITTER * jitter));
    validity.not_before().saturating_add(after)
}

/// Different for every certificate, and the same whenever it is asked for.
fn jitter(certificate: &Certificate) -> f64 {
    let [first, ..] = certificate.fingerprint();
    f64::from(first) / f64::from(u8::MAX)
}

impl PkiBuilder<'_> {
    /// The server's own certificate, the administrator's, and the kubeconfig with it.
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
