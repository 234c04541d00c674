//! What clients verify the API server with, as its file changes, and what is published of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use aws_lc_rs::digest::{SHA256, digest};
use tokio::sync::watch;
use windlass_pki::limits::MAX_TRUST_BUNDLE_BYTES;
use windlass_pki::{ForeignCertificate, parse_trust_anchors, pem};

use crate::followed::{self, LastGood, Reading};

/// The signer whose trust bundle this is.
pub const SIGNER: &str = "kubernetes.io/kube-apiserver-serving";

/// The CAs of the API server: those of a file, never worse than they last were, or given once.
pub struct RootCa {
    file: Option<PathBuf>,
    held: LastGood<Published>,
}

/// What is published.
#[derive(Debug, PartialEq, Eq)]
pub struct Published {
    /// The text of the ConfigMaps, as it came.
    pub text: String,
    /// The trust bundle; `None` if no certificate of the text may be in one.
    pub bundle: Option<Bundle>,
}

/// A trust bundle.
#[derive(Debug, PartialEq, Eq)]
pub struct Bundle {
    /// Its name, which depends on the text.
    pub name: String,
    /// The certificates.
    pub text: String,
}

impl RootCa {
    /// The CAs of a file, which must be good. [`RootCa::watch`] follows it.
    pub fn file(path: PathBuf) -> Result<Arc<RootCa>> {
        let held = LastGood::new(load(&path)?);
        Ok(Arc::new(RootCa { file: Some(path), held }))
    }

    /// CAs that do not change.
    pub fn fixed(pem: &[u8]) -> Result<Arc<RootCa>> {
        Ok(Arc::new(RootCa { file: None, held: LastGood::new(Published::of(pem)?) }))
    }

    /// What is to be published.
    pub fn current(&self) -> Arc<Published> {
        self.held.current()
    }

    /// Tells of every change.
    pub fn changes(&self) -> watch::Receiver<Arc<Published>> {
        self.held.changes()
    }

    /// Why the file as it is now is not used.
    pub fn problem(&self) -> Option<String> {
        self.held.problem()
    }

    /// Reads the file once and uses it if it is good. Reads from disk: not for async code.
    pub fn reload(&self) {
        let Some(path) = &self.file else { return };
        match self.held.take(load(path)) {
            Reading::Same => {}
            Reading::Changed => {
                tracing::info!(file = %path.display(), "the root CAs changed; publishing them");
            }
            Reading::Wrong(error) => {
                tracing::error!(error, "the root CAs cannot be used; the last good ones stay");
            }
        }
    }

    /// Follows the file; does not end.
    pub async fn watch(self: Arc<Self>) {
        let Some(path) = self.file.clone() else { return std::future::pending().await };
        followed::follow(&[path], move || self.reload()).await;
    }
}

fn load(path: &Path) -> Result<Published> {
    Published::of(&followed::read(path)?).with_context(|| path.display().to_string())
}

impl Published {
    /// What is published of a PEM text. Anything but certificates in it is an error.
    pub fn of(pem: &[u8]) -> Result<Published> {
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
            // As it is, so that it has the name kube-controller-manager would give it.
            Ok(_) => Some(Bundle::new(text.clone())),
            Err(_) if anchors.is_empty() => None,
            Err(_) => {
                let text = pem::encode_certificates(anchors.iter().map(ForeignCertificate::der));
                ensure!(text.len() <= MAX_TRUST_BUNDLE_BYTES, "too long for a trust bundle");
                Some(Bundle::new(text))
            }
        };
        Ok(Published { text, bundle })
    }
}

impl Bundle {
    fn new(text: String) -> Bundle {
        Bundle { name: name(&text), text }
    }
}

/// What the bundle with this text is called.
fn name(text: &str) -> String {
    let hash = digest(&SHA256, text.as_bytes());
    let hex: String = hash.as_ref().iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    format!("{}:{hex}", SIGNER.replace('/', ":"))
}

#[cfg(test)]
mod tests {
    use time::{Duration, OffsetDateTime};
    use windlass_pki::{
        Authority, Leaf, PrivateKey, Purpose, Serial, Subject, SystemRandom, Validity, issue,
    };

    use super::*;

    fn validity() -> Validity {
        Validity::lasting(OffsetDateTime::now_utc(), Duration::days(1)).unwrap()
    }

    fn serial() -> Serial {
        Serial::random(&SystemRandom::new()).unwrap()
    }

    fn authority() -> Authority {
        let (subject, key) = (Subject::new("ca", &[]).unwrap(), PrivateKey::generate().unwrap());
        Authority::self_signed(&subject, validity(), key, serial()).unwrap()
    }

    fn leaf(authority: &Authority) -> String {
        let key = PrivateKey::generate().unwrap();
        let leaf = Leaf {
            subject: Subject::new("leaf", &[]).unwrap(),
            alt_names: Vec::new(),
            purposes: vec![Purpose::ServerAuth],
            validity: validity(),
            public_key: key.public_key(),
            serial: serial(),
        };
        pem::encode_certificates([issue(authority, &leaf).unwrap().as_slice()])
    }

    #[test]
    fn a_bundle_is_named_as_kubernetes_does() {
        let text = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert_eq!(name(text), "kubernetes.io:kube-apiserver-serving:7cc358aa45100f42d57b76e9");
    }

    #[test]
    fn a_bundle_has_each_authority_once_and_nothing_else() {
        let (one, two) = (authority(), authority());
        let leaf = leaf(&one);
        let (one, two) = (one.certificate().to_pem(), two.certificate().to_pem());
        for (text, bundle) in [
            (one.clone(), Some(one.clone())),
            (format!("{one}{two}"), Some(format!("{one}{two}"))),
            (format!("{one}{two}{one}"), Some(format!("{one}{two}"))),
            (format!("{leaf}{two}"), Some(two.clone())),
            (leaf.clone(), None),
        ] {
            let published = Published::of(text.as_bytes()).unwrap();
            assert_eq!(published.text, text);
            let found = published.bundle.as_ref().map(|bundle| bundle.text.clone());
            assert_eq!(found, bundle);
            if let Some(bundle) = found {
                assert!(parse_trust_anchors(&bundle, MAX_TRUST_BUNDLE_BYTES).is_ok());
            }
        }
        for bad in ["", "text", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert!(Published::of(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_file_that_became_bad_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.crt");
        let (one, two) = (authority().certificate().to_pem(), authority().certificate().to_pem());
        std::fs::write(&path, &one).unwrap();
        let source = RootCa::file(path.clone()).unwrap();
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
            assert_eq!(source.problem().is_some(), problem);
        }
        std::fs::remove_file(&path).unwrap();
        source.reload();
        assert_eq!(source.current().text, two);
        assert!(changes.has_changed().unwrap());
        assert!(RootCa::file(path).is_err());
    }
}
