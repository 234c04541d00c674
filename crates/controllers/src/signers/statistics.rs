//! Numbers about signers for their status: pending requests from the signing controllers, certificates from the ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use time::OffsetDateTime;
use windlass_ledger::AuthorityTotals;

/// Numbers about all signers, for the life of the process.
#[derive(Default)]
pub struct SignerStatistics {
    state: Mutex<StatisticsState>,
}

#[derive(Default)]
struct StatisticsState {
    /// Functions that count the pending requests of a signer, by kind of request.
    pending: BTreeMap<&'static str, PendingCounter>,
    /// Numbers from the ledger by signer and authority id.
    authorities: BTreeMap<(String, String), AuthorityStatistics>,
    last_issued: BTreeMap<String, OffsetDateTime>,
    /// Revocation lists by authority id, each with the signers that use the authority.
    lists: BTreeMap<String, (BTreeSet<String>, ListState)>,
}

/// State of the revocation list of one authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListState {
    /// The list is current.
    Published,
    /// There is no list, it is not current, or it is incomplete.
    Failed {
        /// Reason of the condition, in CamelCase.
        reason: &'static str,
        /// Cause for operators, which names the authority.
        message: String,
    },
}

impl ListState {
    pub(crate) fn failed(reason: &'static str, message: String) -> ListState {
        ListState::Failed { reason, message }
    }
}

type PendingCounter = Box<dyn Fn(&str) -> usize + Send>;

/// Certificates that one authority has issued, according to the ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuthorityStatistics {
    /// Certificates in the ledger, including expired ones that are still retained.
    pub issued: u64,
    /// Certificates that have not expired.
    pub unexpired: u64,
    /// Latest expiry among the certificates; `None` without certificates.
    pub latest_expiry: Option<OffsetDateTime>,
}

impl SignerStatistics {
    /// Sets the function that counts the pending requests of one kind for a signer.
    pub(crate) fn set_pending_source(
        &self,
        kind: &'static str,
        count: impl Fn(&str) -> usize + Send + 'static,
    ) {
        self.lock().pending.insert(kind, Box::new(count));
    }

    /// Counts the requests that wait for a signer.
    pub fn pending_requests(&self, signer: &str) -> usize {
        self.lock().pending.values().map(|count| count(signer)).sum()
    }

    /// Replaces the numbers of all authorities by those of the ledger.
    pub(crate) fn set_authorities(&self, totals: &[AuthorityTotals]) {
        let encode = |each: &AuthorityTotals| {
            let latest_expiry =
                each.latest_expiry.and_then(|at| OffsetDateTime::from_unix_timestamp(at).ok());
            let statistics =
                AuthorityStatistics { issued: each.issued, unexpired: each.unexpired, latest_expiry };
            ((each.signer.clone(), each.authority.to_string()), statistics)
        };
        self.lock().authorities = totals.iter().map(encode).collect();
    }

    /// Returns the numbers of one authority; `None` if the ledger does not know it.
    pub fn authority(&self, signer: &str, authority_id: &str) -> Option<AuthorityStatistics> {
        self.lock().authorities.get(&(signer.to_owned(), authority_id.to_owned())).copied()
    }

    /// Records when a signer issued its newest certificate.
    pub fn record_issued(&self, signer: &str, time: OffsetDateTime) {
        self.lock().last_issued.insert(signer.to_owned(), time);
    }

    /// Returns when a signer last issued a certificate in this process.
    pub fn last_issued(&self, signer: &str) -> Option<OffsetDateTime> {
        self.lock().last_issued.get(signer).copied()
    }

    /// Sets the state of the revocation list of an authority that these signers use.
    pub(crate) fn set_list(&self, signers: &BTreeSet<String>, authority_id: &str, list: ListState) {
        self.lock().lists.insert(authority_id.to_owned(), (signers.clone(), list));
    }

    /// Forgets the list of an authority that is not held any more.
    pub(crate) fn remove_list(&self, authority_id: &str) {
        self.lock().lists.remove(authority_id);
    }

    /// Forgets all lists, because this process does not sign them any more.
    pub(crate) fn clear_lists(&self) {
        self.lock().lists.clear();
    }

    /// Returns the states of the lists of a signer's authorities; empty until one was signed.
    pub fn lists(&self, signer: &str) -> Vec<ListState> {
        let state = self.lock();
        let own = state.lists.values().filter(|(signers, _)| signers.contains(signer));
        own.map(|(_, list)| list.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, StatisticsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SignerStatistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignerStatistics").finish_non_exhaustive()
    }
}
