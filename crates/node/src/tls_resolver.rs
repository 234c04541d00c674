//! Resolves the certificate for TLS handshakes: the one that is current at that moment.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;

use crate::key_pair::CertificateKeyPair;

/// The certificate to use, updated on rotation.
pub type CurrentKeyPair = watch::Receiver<Option<Arc<CertificateKeyPair>>>;

/// Certificate resolver for clients and servers. It returns no certificate while there is none.
pub struct TlsCertResolver {
    current: CurrentKeyPair,
    /// The last converted key pair: signing keys are not created for each handshake.
    ready: Mutex<Option<(Arc<CertificateKeyPair>, Arc<CertifiedKey>)>>,
}

impl TlsCertResolver {
    /// Creates a resolver that serves whatever key pair `current` holds at each handshake.
    pub fn new(current: CurrentKeyPair) -> Arc<Self> {
        Arc::new(Self { current, ready: Mutex::default() })
    }

    fn current_certified_key(&self) -> Option<Arc<CertifiedKey>> {
        let current = self.current.borrow().clone()?;
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((identity, key)) = ready.as_ref()
            && Arc::ptr_eq(identity, &current)
        {
            return Some(key.clone());
        }
        match build_certified_key(&current) {
            Ok(key) => {
                let key = Arc::new(key);
                *ready = Some((current, key.clone()));
                Some(key)
            }
            Err(error) => {
                tracing::warn!(error, "cannot use the certificate for TLS");
                None
            }
        }
    }
}

/// Returns whether both are the same certificate, or both are missing.
pub fn is_same_key_pair(
    one: Option<&Arc<CertificateKeyPair>>,
    other: Option<&Arc<CertificateKeyPair>>,
) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

fn build_certified_key(identity: &CertificateKeyPair) -> Result<CertifiedKey, String> {
    let chain = identity.chain().map(|one| CertificateDer::from(one.der().to_vec())).collect();
    let text = identity.key().to_pem().map_err(|error| error.to_string())?;
    let key = PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|error| error.to_string())?;
    let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key);
    Ok(CertifiedKey::new(chain, key.map_err(|error| error.to_string())?))
}

impl ResolvesClientCert for TlsCertResolver {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.current_certified_key()
    }

    fn has_certs(&self) -> bool {
        self.current.borrow().is_some()
    }
}

impl ResolvesServerCert for TlsCertResolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current_certified_key()
    }
}

impl fmt::Debug for TlsCertResolver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Presenter").finish_non_exhaustive()
    }
}
