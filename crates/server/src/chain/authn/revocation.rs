//! Revoked client certificates.
//!
//! A CertificateRevocation is named after authority and serial number, so the cache of the kind is the
//! index. A verified certificate remembers at which revision of the cache it was found valid; until
//! the next change of the kind, a request costs one atomic comparison.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use windlass_api::revocation::object_name;
use windlass_pki::Certificate;

use super::client_cert::{ClientCertError, VerifiedClientCert};
use crate::cache::{KindCache, ResourceCaches};
use crate::registry::revocations::REVOCATIONS_KIND;
use crate::server::Server;

/// Pause between two rounds of waking all watches, so that many revocations do not wake them as often.
const WAKE_INTERVAL: Duration = Duration::from_millis(100);

/// No revision of the store, for a certificate that has not been checked.
const UNCHECKED: u64 = u64::MAX;

/// Decides whether a client certificate is revoked.
pub struct RevocationChecker {
    /// `None` if the server does not serve revocations.
    cache: Option<Arc<KindCache>>,
}

/// Names of the revocations that would revoke a verified chain, and what is known about them.
pub struct ChainRevocation {
    names: Vec<String>,
    /// Revision of the cache at which none of them existed.
    valid_at: AtomicU64,
    /// Whether the log says that the chain is revoked.
    is_reported: AtomicBool,
}

impl ChainRevocation {
    /// Creates the state of a chain from pairs of certificate and issuer, both verified.
    pub(super) fn new(names: Vec<String>) -> ChainRevocation {
        ChainRevocation { names, valid_at: AtomicU64::new(UNCHECKED), is_reported: AtomicBool::new(false) }
    }
}

pub(super) fn revocation_name(issuer: &Certificate, serial_hex: &str) -> String {
    object_name(&issuer.authority_id(), serial_hex)
}

impl RevocationChecker {
    pub(crate) fn new(caches: &ResourceCaches) -> RevocationChecker {
        RevocationChecker { cache: caches.for_kind(&REVOCATIONS_KIND).cloned() }
    }

    /// Rejects a certificate if it or one of its intermediates is revoked.
    pub(super) fn check(&self, certificate: &VerifiedClientCert) -> Result<(), ClientCertError> {
        let Some(cache) = &self.cache else { return Ok(()) };
        let chain = &certificate.revocation;
        if chain.valid_at.load(Ordering::Acquire) == cache.last() {
            return Ok(());
        }
        let (is_revoked, revision) = cache.contains_any(&chain.names);
        if !is_revoked {
            chain.is_reported.store(false, Ordering::Relaxed);
            chain.valid_at.store(revision, Ordering::Release);
            return Ok(());
        }
        // Once per connection: a client that retries must not fill the log.
        if !chain.is_reported.swap(true, Ordering::Relaxed) {
            let (user, revocation) = (&certificate.common_name, chain.names.join(" or "));
            tracing::warn!(user, revocation, "client certificate refused: it is revoked");
        }
        Err(ClientCertError::Revoked)
    }

    /// Returns the newest revision of revocations without locking; that change may not be visible yet.
    pub(crate) fn newest(&self) -> u64 {
        self.cache.as_ref().map_or(0, |cache| cache.last())
    }

    /// Returns the newest revision of revocations that is visible to a check after this call.
    pub(crate) fn visible(&self) -> u64 {
        self.cache.as_ref().map_or(0, |cache| cache.visible_last())
    }
}

/// Wakes all watches after a change of revocations, so that idle ones of revoked clients end as well.
pub(crate) async fn end_watches_on_revocation(server: Arc<Server>) {
    let Some(cache) = server.revocations.cache.clone() else { return };
    let (mut newest, mut shutdown) = (cache.subscribe(), server.shutdown.clone());
    let mut seen = *newest.borrow_and_update();
    loop {
        tokio::select! {
            changed = newest.changed() => if changed.is_err() { return },
            _ = shutdown.wait_for(|down| *down) => return,
        }
        // Waking the watches notifies this receiver too, without a new revision.
        let revision = *newest.borrow_and_update();
        if revision > seen {
            seen = revision;
            server.caches.wake_watchers();
            tokio::time::sleep(WAKE_INTERVAL).await;
        }
    }
}
