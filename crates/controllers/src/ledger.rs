//! Writes the ledger: every certificate is recorded before it is signed.
//!
//! - [`Ledger`] is the handle of the signers. [`Ledger::record`] returns a [`RecordedIssuance`] once the record is stored,
//!   and signing requires one (`issuance`).
//! - `chain_writer` appends to one chain. All that waits is written in one update of the newest segment, which the server
//!   rejects if another process has written since: then the segment is read again. So neither two writers nor a former
//!   leader can break the chain.
//! - `segment_object` is the LedgerSegment as an object of the API.
//! - `state` is what all segments contain; `loader` reads them when the process becomes the leader.
//! - `maintenance` finds out what became of records without a confirmation, deletes segments whose certificates have
//!   expired, looks for missing ones (`gap_check`), and updates the metrics.
//!
//! Where the kind is not served, certificates are issued without a record, and a metric and the log say so.

mod chain_writer;
mod gap_check;
mod issuance;
mod loader;
mod maintenance;
mod metrics;
mod pruning;
mod resolution;
mod segment_object;
mod state;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::core::ApiResource;
use tokio::sync::{mpsc, oneshot, watch};
use windlass_api::ledger_segment;
use windlass_ledger::{
    AuthorityId, AuthorityTotals, EntryPosition, IssuanceRecord, LedgerChain, LedgerEntry, RevocationInfo,
    RevocationRecord, SerialNumber,
};
use windlass_runtime::discovery::{ApiKind, CONTROLLER_PACING, KindPresence, RecheckSignal, watch_presence};

use crate::metrics::MetricFamilies;
use crate::options::Clock;

use chain_writer::{AppendRequest, ChainWriter};
use maintenance::LedgerMaintenance;
use state::LedgerState;

pub use segment_object::parse_segment;

pub(crate) use issuance::PreparedCertificate;
pub(crate) use metrics::LedgerMetrics;
pub(crate) use state::RecordedRevocation;

/// LedgerSegments: parts of the ledger of issued certificates.
const LEDGER_SEGMENTS: ApiKind = ApiKind {
    group: ledger_segment::RESOURCE.group,
    versions: &[ledger_segment::RESOURCE.version],
    plural: ledger_segment::RESOURCE.plural,
    kind: ledger_segment::RESOURCE.kind,
};

/// Time that a signer waits until it is known whether the server has a ledger.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(30);

/// Reason for which a certificate could not be recorded. It must not be signed then.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot record the certificate in the ledger: {message}")]
pub struct LedgerError {
    message: String,
}

impl LedgerError {
    fn new(message: impl Into<String>) -> LedgerError {
        LedgerError { message: message.into() }
    }
}

/// Proof that a certificate is recorded, or that the server has no ledger. Signing needs one, and [`Ledger::record`] is
/// the only way to get it.
#[derive(Debug)]
#[must_use = "confirm or abandon the record"]
pub struct RecordedIssuance {
    serial: SerialNumber,
    /// Where it is recorded; `None` if the server has no ledger.
    place: Option<(LedgerChain, EntryPosition)>,
}

impl RecordedIssuance {
    #[cfg(test)]
    pub(crate) fn for_test(serial: SerialNumber) -> RecordedIssuance {
        RecordedIssuance { serial, place: None }
    }
}

/// Handle on the ledger. Clones share it.
#[derive(Clone)]
pub struct Ledger {
    shared: Arc<LedgerShared>,
}

struct LedgerShared {
    /// One for each chain, in the order of [`LedgerChain::ALL`].
    chains: Vec<mpsc::UnboundedSender<AppendRequest>>,
    presence: watch::Sender<KindPresence>,
    state: Arc<LedgerState>,
    clock: Clock,
}

/// What runs for a ledger as long as this process leads.
pub struct LedgerTask {
    client: Client,
    shared: Arc<LedgerShared>,
    writers: Vec<Arc<tokio::sync::Mutex<ChainWriter>>>,
    recheck: RecheckSignal,
}

impl Ledger {
    /// Creates a ledger and the task that writes it.
    pub fn new(client: Client, clock: Clock, metrics: &MetricFamilies) -> (Ledger, Arc<LedgerTask>) {
        let state = Arc::new(LedgerState::new(metrics));
        let recheck = RecheckSignal::default();
        let (mut chains, mut writers) = (Vec::new(), Vec::new());
        for chain in LedgerChain::ALL {
            let (sender, requests) = mpsc::unbounded_channel();
            let api = segment_object::api(client.clone(), &resource());
            let writer =
                ChainWriter::new(chain, api, requests, state.clone(), clock.clone(), recheck.clone());
            writers.push(Arc::new(tokio::sync::Mutex::new(writer)));
            chains.push(sender);
        }
        let presence = watch::Sender::new(KindPresence::Unknown);
        let shared = Arc::new(LedgerShared { chains, presence, state, clock });
        let task = Arc::new(LedgerTask { client, shared: shared.clone(), writers, recheck });
        (Ledger { shared }, task)
    }

    /// Creates a ledger that records nothing, as where the server has none.
    pub fn disabled() -> Ledger {
        let clock: Clock = Arc::new(|| time::OffsetDateTime::UNIX_EPOCH);
        let state = Arc::new(LedgerState::new(&MetricFamilies::unregistered()));
        let presence = watch::Sender::new(KindPresence::NotServed);
        Ledger { shared: Arc::new(LedgerShared { chains: Vec::new(), presence, state, clock }) }
    }

    /// Records a certificate that is about to be signed; returns when the record is stored.
    pub async fn record(&self, record: IssuanceRecord) -> Result<RecordedIssuance, LedgerError> {
        let serial = record.serial;
        if !self.is_served().await? {
            return Ok(RecordedIssuance { serial, place: None });
        }
        let chain = LedgerChain::for_validity(record.not_before, record.not_after);
        let position = self.append(chain, LedgerEntry::Issuance(Box::new(record))).await?;
        Ok(RecordedIssuance { serial, place: Some((chain, position)) })
    }

    /// Notes that the certificate was written to its request. This is stored soon, with the next record.
    pub fn confirm(&self, recorded: RecordedIssuance) {
        self.append_later(recorded, LedgerEntry::Issued);
    }

    /// Notes that the certificate was not written to its request and never will be.
    pub fn abandon(&self, recorded: RecordedIssuance) {
        self.append_later(recorded, LedgerEntry::Abandoned);
    }

    /// Notes that the write of the certificate to its request failed. If the server did not reject it, the certificate
    /// may have been stored: then the record stays open until the request tells.
    pub fn settle_failed_write(&self, recorded: RecordedIssuance, error: &kube::Error) {
        let is_rejected = |code: u16| (400..500).contains(&code) && !matches!(code, 408 | 429);
        if matches!(error, kube::Error::Api(status) if is_rejected(status.code)) {
            self.abandon(recorded);
        }
    }

    /// Records a revocation, in the chain of the certificate if that is known.
    pub async fn revoke(&self, revocation: RevocationRecord) -> Result<(), LedgerError> {
        if !self.is_served().await? {
            return Ok(());
        }
        let chain = self.shared.state.chain_of(&revocation.authority, revocation.serial);
        let entry = LedgerEntry::Revoked(Box::new(revocation));
        self.append(chain.unwrap_or(LedgerChain::Long), entry).await.map(drop)
    }

    /// Waits until all segments have been read, which is never where the server has no ledger.
    pub(crate) async fn wait_until_loaded(&self) {
        let mut loaded = self.shared.state.subscribe_loaded();
        if loaded.wait_for(|loaded| *loaded).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns whether its contents are known; `None` if the server has no ledger.
    pub(crate) fn is_loaded(&self) -> Option<bool> {
        match *self.shared.presence.borrow() {
            KindPresence::NotServed => None,
            KindPresence::Unknown | KindPresence::Served(_) => {
                Some(*self.shared.state.subscribe_loaded().borrow())
            }
        }
    }

    /// Returns what is known of the revocation of a certificate, as far as segments have been read.
    pub(crate) fn revocation(&self, authority: &AuthorityId, serial: SerialNumber) -> RecordedRevocation {
        self.shared.state.revocation(authority, serial)
    }

    /// Lists the latest revocations of the certificates that `wanted` accepts, withdrawals included.
    pub(crate) fn revocations(
        &self,
        wanted: impl Fn(&AuthorityId, RevocationInfo) -> bool,
    ) -> Vec<(AuthorityId, SerialNumber, RevocationInfo)> {
        self.shared.state.revocations(wanted)
    }

    /// Counts certificates per signer and authority; empty until all segments have been read.
    pub fn totals(&self) -> Vec<AuthorityTotals> {
        self.shared.state.totals((self.shared.clock)().unix_timestamp())
    }

    /// Counts as [`Ledger::totals`]; `None` until all segments have been read, or if the server has no ledger.
    pub fn known_totals(&self) -> Option<Vec<AuthorityTotals>> {
        self.shared.state.is_loaded().then(|| self.totals())
    }

    /// Lists outstanding certificates of a signer that other authorities than `active` have signed, at most `limit`:
    /// authority, serial number and expiry in seconds since 1970.
    pub fn outstanding_of_others(
        &self,
        signer: &str,
        active: &str,
        limit: usize,
    ) -> Vec<(AuthorityId, SerialNumber, i64)> {
        let now = (self.shared.clock)().unix_timestamp();
        self.shared.state.outstanding_of_others(signer, active, limit, now)
    }

    async fn is_served(&self) -> Result<bool, LedgerError> {
        let mut presence = self.shared.presence.subscribe();
        let known = presence.wait_for(|presence| *presence != KindPresence::Unknown);
        match tokio::time::timeout(DISCOVERY_TIMEOUT, known).await {
            Ok(Ok(presence)) => Ok(*presence != KindPresence::NotServed),
            _ => Err(LedgerError::new("the server does not say whether it serves LedgerSegments")),
        }
    }

    fn sender(&self, chain: LedgerChain) -> Option<&mpsc::UnboundedSender<AppendRequest>> {
        let chains = LedgerChain::ALL.iter().zip(&self.shared.chains);
        chains.into_iter().find(|(each, _)| **each == chain).map(|(_, sender)| sender)
    }

    async fn append(&self, chain: LedgerChain, entry: LedgerEntry) -> Result<EntryPosition, LedgerError> {
        let (reply, answer) = oneshot::channel();
        let request = AppendRequest { entry, reply: Some(reply) };
        let sent = self.sender(chain).is_some_and(|sender| sender.send(request).is_ok());
        let stopped = || LedgerError::new("the writer has stopped");
        if sent { answer.await.map_err(|_| stopped())? } else { Err(stopped()) }
    }

    fn append_later(&self, recorded: RecordedIssuance, entry: fn(EntryPosition) -> LedgerEntry) {
        if let Some((chain, position)) = recorded.place
            && let Some(sender) = self.sender(chain)
        {
            // Without a writer this process does not lead any more, and the next leader finds out.
            let _ = sender.send(AppendRequest { entry: entry(position), reply: None });
        }
    }
}

impl LedgerTask {
    /// Writes the ledger until the future is dropped.
    pub async fn run(self: Arc<Self>) -> Infallible {
        let _reset = ResetOnDrop(self.shared.state.clone());
        let writers = self.writers.iter().cloned().map(|writer| async move {
            let mut writer = writer.lock().await;
            writer.run().await
        });
        let ledger = Ledger { shared: self.shared.clone() };
        let maintenance = LedgerMaintenance::new(self.client.clone(), ledger, self.shared.clock.clone());
        let discovery = watch_presence(
            self.client.clone(),
            LEDGER_SEGMENTS,
            CONTROLLER_PACING,
            self.recheck.clone(),
            self.shared.presence.clone(),
        );
        tokio::join!(discovery, futures::future::join_all(writers), self.report_presence(), maintenance.run())
            .0
    }

    /// Says in a metric and the log whether certificates are recorded.
    async fn report_presence(&self) {
        let mut presence = self.shared.presence.subscribe();
        loop {
            let current = presence.borrow_and_update().clone();
            let metrics = self.shared.state.metrics();
            match current {
                KindPresence::Unknown => {}
                KindPresence::Served(_) => metrics.set_available(true),
                KindPresence::NotServed => {
                    metrics.set_available(false);
                    tracing::warn!(
                        "LedgerSegments are not served; certificates are issued without a record. Install the \
                         CustomResourceDefinition that `windlass crds ledgersegments` prints"
                    );
                }
            }
            if presence.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}

/// Removes the values of a process that does not lead any more from the metrics.
struct ResetOnDrop(Arc<LedgerState>);

impl Drop for ResetOnDrop {
    fn drop(&mut self) {
        self.0.metrics().reset();
    }
}

/// The only version of the kind that is understood.
fn resource() -> ApiResource {
    let definition = ledger_segment::RESOURCE;
    ApiResource {
        group: definition.group.into(),
        version: definition.version.into(),
        api_version: format!("{}/{}", definition.group, definition.version),
        kind: definition.kind.into(),
        plural: definition.plural.into(),
    }
}
