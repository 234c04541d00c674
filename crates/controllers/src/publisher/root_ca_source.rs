//! CA of the API server, reloaded when its file changes, and its published form.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use aws_lc_rs::digest::{SHA256, digest};
use tokio::sync::watch;
use windlass_pki::limits::{MAX_PEM_BYTES, MAX_TRUST_BUNDLE_BYTES};
use windlass_pki::{ForeignCertificate, parse_trust_anchors, pem};
use windlass_runtime::file_watch::{
    FileWatchTiming, ReloadOutcome, ReloadableFile, read_limited, reload_on_change,
};

/// Signer of the ClusterTrustBundle.
pub const SIGNER: &str = "kubernetes.io/kube-apiserver-serving";

/// CAs of the API server: fixed, or from a file whose last valid content stays in use.
pub struct RootCa {
    file: Option<PathBuf>,
    held: ReloadableFile<PublishedCa>,
}

/// The API server's CA certificates in the form that is published.
#[derive(Debug, PartialEq, Eq)]
pub struct PublishedCa {
    /// Content of the ConfigMaps, byte for byte as in the file.
    pub text: String,
    /// Content of the ClusterTrustBundle; `None` if no certificate may be in one.
    pub bundle: Option<RootCaBundle>,
}

/// A ClusterTrustBundle with the API server's CA certificates.
#[derive(Debug, PartialEq, Eq)]
pub struct RootCaBundle {
    /// Name of the object, derived from the text.
    pub name: String,
    /// CA certificates as PEM, without duplicates.
    pub text: String,
}

impl RootCa {
    /// Reads a file; fails if it is invalid. [`RootCa::watch`] reloads it.
    pub fn from_file(path: PathBuf) -> Result<Arc<RootCa>> {
        let held = ReloadableFile::new(load(&path)?);
        Ok(Arc::new(RootCa { file: Some(path), held }))
    }

    /// Creates a source that does not change.
    pub fn from_pem(pem: &[u8]) -> Result<Arc<RootCa>> {
        Ok(Arc::new(RootCa { file: None, held: ReloadableFile::new(PublishedCa::from_pem(pem)?) }))
    }

    /// Returns the CAs to publish.
    pub fn current(&self) -> Arc<PublishedCa> {
        self.held.current()
    }

    /// Returns a receiver that is notified when the CAs change.
    pub fn changes(&self) -> watch::Receiver<Arc<PublishedCa>> {
        self.held.subscribe()
    }

    /// Returns why the present file is rejected.
    pub fn error(&self) -> Option<String> {
        self.held.error()
    }

    /// Reads the file and uses it if it is valid. Reads from disk: do not call it in async code.
    pub fn reload(&self) {
        let Some(path) = &self.file else { return };
        match self.held.update(load(path)) {
            ReloadOutcome::Unchanged => {}
            ReloadOutcome::Changed => {
                tracing::info!(file = %path.display(), "root CA file changed; publishing it");
            }
            ReloadOutcome::Recovered => {
                tracing::info!(file = %path.display(), "root CA file is valid again");
            }
            ReloadOutcome::Rejected(error) => {
                tracing::error!(error, "root CA file rejected; still publishing the previous CAs");
            }
        }
    }

    /// Reloads the file when it changes.
    pub async fn watch(self: Arc<Self>) -> Infallible {
        let Some(path) = self.file.clone() else { return std::future::pending().await };
        reload_on_change([path], FileWatchTiming::default(), move || self.reload()).await
    }
}

fn load(path: &Path) -> Result<PublishedCa> {
    let pem = read_limited(path, MAX_PEM_BYTES)?;
    PublishedCa::from_pem(&pem).with_context(|| path.display().to_string())
}

impl PublishedCa {
    /// Parses PEM. Anything but certificates is an error.
    pub fn from_pem(pem: &[u8]) -> Result<PublishedCa> {
        let certificates = pem::certificates(pem)?;
        let text = std::str::from_utf8(pem).context("not UTF-8")?.to_owned();
        let mut anchors: Vec<ForeignCertificate> = Vec::new();
        for der in &certificates {
            let certificate = ForeignCertificate::from_der(der)?;
            let known = anchors.iter().any(|anchor| anchor.der() == certificate.der());
            if certificate.is_authority() && !known {
                anchors.push(certificate);
            }
        }
        let bundle = match parse_trust_anchors(&text, MAX_TRUST_BUNDLE_BYTES) {
            // Unchanged, so that it has the name that kube-controller-manager would give it.
            Ok(_) => Some(RootCaBundle::new(text.clone())),
            Err(_) if anchors.is_empty() => None,
            Err(_) => {
                let text = pem::encode_certificates(anchors.iter().map(ForeignCertificate::der));
                ensure!(text.len() <= MAX_TRUST_BUNDLE_BYTES, "too long for a trust bundle");
                Some(RootCaBundle::new(text))
            }
        };
        Ok(PublishedCa { text, bundle })
    }
}

impl RootCaBundle {
    fn new(text: String) -> RootCaBundle {
        RootCaBundle { name: bundle_name(&text), text }
    }
}

/// Computes the name of the bundle with this text.
fn bundle_name(text: &str) -> String {
    let hash = digest(&SHA256, text.as_bytes());
    let hex: String = hash.as_ref().iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    format!("{}:{hex}", SIGNER.replace('/', ":"))
}

#[cfg(test)]
mod tests {
    use time::{Duration, OffsetDateTime};
    use windlass_pki::{
        CertificateAuthority, KeyPurpose, LeafTemplate, PrivateKey, Serial, Subject, SystemRandom, Validity,
        issue,
    };

    use super::*;

    fn validity() -> Validity {
        Validity::lasting(OffsetDateTime::now_utc(), Duration::days(1)).unwrap()
    }

    fn serial() -> Serial {
        Serial::random(&SystemRandom::new()).unwrap()
    }

    fn authority() -> CertificateAuthority {
        let (subject, key) = (Subject::new("ca", &[]).unwrap(), PrivateKey::generate().unwrap());
        CertificateAuthority::self_signed(&subject, validity(), key, serial()).unwrap()
    }

    fn leaf_certificate(authority: &CertificateAuthority) -> String {
        let key = PrivateKey::generate().unwrap();
        let leaf = LeafTemplate {
            subject: Subject::new("leaf", &[]).unwrap(),
            alt_names: Vec::new(),
            purposes: vec![KeyPurpose::ServerAuth],
            validity: validity(),
            public_key: key.public_key(),
            serial: serial(),
        };
        pem::encode_certificates([issue(authority, &leaf).unwrap().as_slice()])
    }

    #[test]
    fn a_bundle_is_named_as_kubernetes_does() {
        let text = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert_eq!(bundle_name(text), "kubernetes.io:kube-apiserver-serving:7cc358aa45100f42d57b76e9");
    }

    #[test]
    fn a_bundle_has_each_authority_once_and_nothing_else() {
        let (one, two) = (authority(), authority());
        let leaf = leaf_certificate(&one);
        let (one, two) = (one.certificate().to_pem(), two.certificate().to_pem());
        for (text, bundle) in [
            (one.clone(), Some(one.clone())),
            (format!("{one}{two}"), Some(format!("{one}{two}"))),
            (format!("{one}{two}{one}"), Some(format!("{one}{two}"))),
            (format!("{leaf}{two}"), Some(two.clone())),
            (leaf.clone(), None),
        ] {
            let published = PublishedCa::from_pem(text.as_bytes()).unwrap();
            assert_eq!(published.text, text);
            let found = published.bundle.as_ref().map(|bundle| bundle.text.clone());
            assert_eq!(found, bundle);
            if let Some(bundle) = found {
                assert!(parse_trust_anchors(&bundle, MAX_TRUST_BUNDLE_BYTES).is_ok());
            }
        }
        for bad in ["", "text", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert!(PublishedCa::from_pem(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_file_that_became_invalid_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.crt");
        let (one, two) = (authority().certificate().to_pem(), authority().certificate().to_pem());
        std::fs::write(&path, &one).unwrap();
        let source = RootCa::from_file(path.clone()).unwrap();
        let changes = source.changes();
        for (contents, current, problem) in [
            (one.as_str(), &one, false),
            ("", &one, true),
            (&two[..two.len() / 2], &one, true),
            (&two, &two, false),
        ] {
            std::fs::write(&path, contents).unwrap();
            source.reload();
            assert_eq!(source.current().text, *current);
            assert_eq!(source.error().is_some(), problem);
        }
        std::fs::remove_file(&path).unwrap();
        source.reload();
        assert_eq!(source.current().text, two);
        assert!(changes.has_changed().unwrap());
        assert!(RootCa::from_file(path).is_err());
    }
}
