//! Numbers about signers for their status: pending requests from the signing controllers, certificates from the ledger.

use std::collections::BTreeMap;
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

    fn lock(&self) -> MutexGuard<'_, StatisticsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SignerStatistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignerStatistics").finish_non_exhaustive()
    }
}
