//! All CertificateRevocations, by CA.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_ledger::{AuthorityId, SerialNumber};

use super::object::{CertificateKey, KnownRevocation};

/// Revocations of one CA, by serial number.
type AuthorityRevocations = BTreeMap<SerialNumber, Arc<KnownRevocation>>;

/// What the watch has delivered.
#[derive(Debug, Default)]
pub struct RevocationCache {
    state: Mutex<RevocationMaps>,
}

#[derive(Debug, Default)]
struct RevocationMaps {
    by_authority: HashMap<AuthorityId, AuthorityRevocations>,
    /// Whether a list was complete, so that what is missing does not exist.
    is_synced: bool,
}

impl RevocationCache {
    /// Whether what is missing does not exist.
    pub fn is_synced(&self) -> bool {
        self.lock().is_synced
    }

    /// Returns the revocation of a certificate.
    pub fn get(&self, (authority, serial): &CertificateKey) -> Option<Arc<KnownRevocation>> {
        self.lock().by_authority.get(authority)?.get(serial).cloned()
    }

    /// Returns the revocations of a CA.
    pub fn of_authority(&self, authority: &AuthorityId) -> Vec<(SerialNumber, Arc<KnownRevocation>)> {
        let state = self.lock();
        let found = state.by_authority.get(authority).into_iter().flatten();
        found.map(|(serial, revocation)| (*serial, revocation.clone())).collect()
    }

    /// Lists all certificates with a revocation.
    pub fn keys(&self) -> Vec<CertificateKey> {
        let state = self.lock();
        let keys = |(authority, serials): (&AuthorityId, &AuthorityRevocations)| {
            let authority = authority.clone();
            serials.keys().map(move |serial| (authority.clone(), *serial)).collect::<Vec<_>>()
        };
        state.by_authority.iter().flat_map(keys).collect()
    }

    /// Sets the revocation of a certificate; returns whether it changed.
    pub fn set(&self, (authority, serial): &CertificateKey, revocation: KnownRevocation) -> bool {
        let mut state = self.lock();
        let serials = state.by_authority.entry(authority.clone()).or_default();
        let before = serials.insert(*serial, Arc::new(revocation.clone()));
        before.is_none_or(|before| *before != revocation)
    }

    /// Removes the revocation of a certificate.
    pub fn remove(&self, (authority, serial): &CertificateKey) {
        let mut state = self.lock();
        if let Some(serials) = state.by_authority.get_mut(authority) {
            serials.remove(serial);
            if serials.is_empty() {
                state.by_authority.remove(authority);
            }
        }
    }

    /// Replaces all revocations; returns the certificates whose revocation changed, appeared or disappeared.
    pub fn replace(&self, all: Vec<(CertificateKey, KnownRevocation)>) -> Vec<CertificateKey> {
        let mut state = self.lock();
        let mut before = std::mem::take(&mut state.by_authority);
        state.is_synced = true;
        let mut changed = Vec::new();
        for ((authority, serial), revocation) in all {
            let known = before.get_mut(&authority).and_then(|serials| serials.remove(&serial));
            if known.is_none_or(|known| *known != revocation) {
                changed.push((authority.clone(), serial));
            }
            state.by_authority.entry(authority).or_default().insert(serial, Arc::new(revocation));
        }
        let gone = before.into_iter().flat_map(|(authority, serials)| {
            serials.into_keys().map(move |serial| (authority.clone(), serial)).collect::<Vec<_>>()
        });
        changed.extend(gone);
        changed
    }

    fn lock(&self) -> MutexGuard<'_, RevocationMaps> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use windlass_ledger::RevocationReason;

    use super::*;

    fn key(serial: u8) -> CertificateKey {
        (AuthorityId::from_bytes(&[7; 20]).unwrap(), SerialNumber::from_bytes(&[serial]).unwrap())
    }

    fn revocation(revoked_at: i64) -> KnownRevocation {
        KnownRevocation {
            signer: "a.b/c".into(),
            reason: RevocationReason::Superseded,
            not_after: 1000,
            revoked_at,
            requester: String::new(),
            has_time: true,
        }
    }

    #[test]
    fn a_list_tells_what_changed_and_what_is_gone() {
        let cache = RevocationCache::default();
        assert!(!cache.is_synced());
        let first = cache.replace(vec![(key(1), revocation(1)), (key(2), revocation(1))]);
        assert_eq!((first, cache.is_synced()), (vec![key(1), key(2)], true));
        assert!(cache.set(&key(3), revocation(1)));
        assert!(!cache.set(&key(3), revocation(1)));
        let second = cache.replace(vec![(key(1), revocation(1)), (key(3), revocation(2))]);
        assert_eq!(second, [key(3), key(2)]);
        cache.remove(&key(3));
        assert_eq!(cache.keys(), [key(1)]);
        assert_eq!(cache.of_authority(&key(1).0).len(), 1);
        assert_eq!((cache.get(&key(3)), cache.get(&key(1)).map(|found| found.revoked_at)), (None, Some(1)));
    }
}
