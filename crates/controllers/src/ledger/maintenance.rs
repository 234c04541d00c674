//! What the leader does for the ledger besides writing: read all of it once, then resolve, prune and count.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::time::Duration;

use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::{Api, Client};
use windlass_ledger::{EntryPosition, IssuanceRecord, LedgerChain, LedgerEntry, RequestKind, decode_entries};
use windlass_runtime::backoff::Backoff;
use windlass_runtime::client_error::describe;
use windlass_runtime::discovery::{KindPresence, POD_CERTIFICATE_REQUESTS};

use super::chain_writer::AppendRequest;
use super::resolution::{self, RecordOutcome};
use super::{Ledger, LedgerError, gap_check, loader, pruning, resource, segment_object};
use crate::options::Clock;

/// Interval between two updates of metrics and of the numbers in the status of signers.
const TICK: Duration = Duration::from_secs(5);
/// Number of ticks between two attempts to resolve records: 15 seconds.
const RESOLVE_TICKS: u64 = 3;
/// Number of ticks between two attempts to prune and searches for missing segments: ten minutes.
const PRUNE_TICKS: u64 = 120;
/// Age of a record, in seconds, from which its signer is presumed dead.
const OPEN_AGE: i64 = 20;
const LOAD_BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(60));

type RecordPlace = (LedgerChain, EntryPosition);

/// Maintenance of the ledger by the leader.
pub struct LedgerMaintenance {
    client: Client,
    api: Api<DynamicObject>,
    ledger: Ledger,
    clock: Clock,
    /// Records that are open, with what their segments say of them.
    open: HashMap<RecordPlace, Box<IssuanceRecord>>,
    /// Records that nobody can resolve any more.
    given_up: HashSet<RecordPlace>,
}

impl LedgerMaintenance {
    pub fn new(client: Client, ledger: Ledger, clock: Clock) -> LedgerMaintenance {
        let api = segment_object::api(client.clone(), &resource());
        LedgerMaintenance { client, api, ledger, clock, open: HashMap::new(), given_up: HashSet::new() }
    }

    pub async fn run(mut self) -> Infallible {
        self.load().await;
        for tick in 0.. {
            let now = (self.clock)().unix_timestamp();
            if tick % PRUNE_TICKS == 0 {
                for chain in LedgerChain::ALL {
                    if let Err(error) = pruning::prune(&self.ledger, &self.api, chain, now).await {
                        tracing::warn!(chain = chain.name(), %error, "cannot prune the ledger; retrying");
                    }
                }
                if let Err(error) = gap_check::check(&self.api, &self.ledger.shared.state).await {
                    tracing::warn!(error = describe(&error), "cannot look for missing segments; retrying");
                }
                // Segments stay for a week after that; their certificates need not be in memory.
                self.ledger.shared.state.remove_expired(now);
            }
            if tick % RESOLVE_TICKS == 0
                && let Err(error) = self.resolve(now).await
            {
                tracing::warn!(%error, "cannot resolve open records; retrying");
            }
            self.ledger.shared.state.publish_totals(now);
            tokio::time::sleep(TICK).await;
        }
        std::future::pending().await
    }

    /// Reads all segments, once the kind is served.
    async fn load(&self) {
        let mut presence = self.ledger.shared.presence.subscribe();
        for failures in 0.. {
            let served = presence.wait_for(|presence| matches!(presence, KindPresence::Served(_)));
            if served.await.is_err() {
                return std::future::pending().await;
            }
            match loader::load(&self.api, &self.ledger.shared.state).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::warn!(error = describe(&error), "cannot read the ledger; retrying");
                }
            }
            tokio::time::sleep(LOAD_BACKOFF.delay(failures, rand::random())).await;
        }
    }

    async fn resolve(&mut self, now: i64) -> Result<(), LedgerError> {
        let state = self.ledger.shared.state.clone();
        let places = state.unresolved(now - OPEN_AGE);
        state.metrics().set_unresolved(places.len());
        let known: HashSet<RecordPlace> = places.iter().copied().collect();
        self.open.retain(|place, _| known.contains(place));
        self.given_up.retain(|place| known.contains(place));
        let places: Vec<RecordPlace> =
            places.into_iter().filter(|place| !self.given_up.contains(place)).collect();
        if places.is_empty() {
            return Ok(());
        }
        self.read_records(&places).await?;
        let pods = POD_CERTIFICATE_REQUESTS.find(&self.client).await.map_err(from_client)?;
        for place in places {
            let Some(record) = self.open.get(&place) else { continue };
            let outcome = match self.requests(record, pods.as_ref()) {
                Some(api) => {
                    let request = api.get_opt(&record.request.name).await.map_err(from_client)?;
                    resolution::decide(record, request.as_ref())
                }
                None => RecordOutcome::Unknown,
            };
            self.settle(place, outcome);
        }
        Ok(())
    }

    fn settle(&mut self, (chain, position): RecordPlace, outcome: RecordOutcome) {
        let entry = match outcome {
            RecordOutcome::Pending => return,
            RecordOutcome::Unknown => {
                self.given_up.insert((chain, position));
                return;
            }
            RecordOutcome::Issued => LedgerEntry::Issued(position),
            RecordOutcome::Abandoned => LedgerEntry::Abandoned(position),
        };
        if let Some(sender) = self.ledger.sender(chain) {
            let _ = sender.send(AppendRequest { entry, reply: None });
        }
    }

    /// Returns the API of the kind of request that a record answers; `None` if it is not served.
    fn requests(&self, record: &IssuanceRecord, pods: Option<&ApiResource>) -> Option<Api<DynamicObject>> {
        match record.request.kind {
            RequestKind::CertificateSigningRequest => {
                let resource = ApiResource::erase::<crate::csr::Csr>(&());
                Some(Api::all_with(self.client.clone(), &resource))
            }
            RequestKind::PodCertificateRequest => {
                Some(Api::namespaced_with(self.client.clone(), &record.request.namespace, pods?))
            }
        }
    }

    /// Reads the records at these places from their segments, unless they are known.
    async fn read_records(&mut self, places: &[RecordPlace]) -> Result<(), LedgerError> {
        let unknown = places.iter().filter(|place| !self.open.contains_key(place));
        let segments: HashSet<(LedgerChain, u64)> =
            unknown.map(|(chain, position)| (*chain, position.sequence)).collect();
        let wanted: HashSet<&RecordPlace> = places.iter().collect();
        for (chain, sequence) in segments {
            let found = self.api.get_opt(&chain.segment_name(sequence)).await.map_err(from_client)?;
            let Some(object) = found else { continue };
            let stored = segment_object::parse(&object)?;
            let entries = decode_entries(&stored.header, &stored.data)
                .map_err(|error| LedgerError::new(error.to_string()))?;
            for (index, entry) in (0..).zip(entries) {
                let place = (chain, EntryPosition { sequence, index });
                if let LedgerEntry::Issuance(record) = entry
                    && wanted.contains(&place)
                {
                    self.open.insert(place, record);
                }
            }
        }
        Ok(())
    }
}

fn from_client(error: kube::Error) -> LedgerError {
    LedgerError::new(describe(&error))
}
