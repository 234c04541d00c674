//! Appends to one chain: everything that waits is written in one update of the newest segment.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::{Resource as _, ResourceExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};
use windlass_ledger::{
    EntryPosition, LedgerChain, LedgerEntry, SegmentBuilder, SegmentHeader, StoredSegment,
};
use windlass_runtime::client_error::describe;
use windlass_runtime::discovery::RecheckSignal;

use super::state::{LedgerState, ObservedSegment};
use super::{LedgerError, resource, segment_object};
use crate::csr::is_not_found;
use crate::options::Clock;

/// Longest time for which a confirmation waits for a record to be written with.
const CONFIRMATION_DELAY: Duration = Duration::from_secs(2);
/// Entries that are written at once. A segment has room for fewer.
const MAX_BATCH: usize = 512;
/// Attempts to write a batch before those who wait for it are told.
const ATTEMPTS: u32 = 5;
/// Time after which a request to the server has failed.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
/// Names per page when the newest segment is searched.
const PAGE: u32 = 500;

/// An entry to append, and who waits for it.
pub struct AppendRequest {
    /// The entry; a record may be shortened when it is written.
    pub entry: LedgerEntry,
    /// Receives the position; `None` for entries that can wait.
    pub reply: Option<oneshot::Sender<Result<EntryPosition, LedgerError>>>,
}

/// Appends to one chain, with one write at a time.
pub struct ChainWriter {
    chain: LedgerChain,
    api: Api<DynamicObject>,
    requests: mpsc::UnboundedReceiver<AppendRequest>,
    /// Entries that can wait, and when the first of them arrived.
    lazy: VecDeque<AppendRequest>,
    lazy_since: Option<Instant>,
    head: Option<ChainHead>,
    state: Arc<LedgerState>,
    clock: Clock,
    recheck: RecheckSignal,
}

/// The newest segment of a chain.
struct ChainHead {
    segment: SegmentBuilder,
    /// Resource version of its object; `None` if it has none yet.
    version: Option<String>,
    /// Latest expiry that its object states, which never decreases.
    latest_expiry: Option<i64>,
}

impl ChainHead {
    fn begin(segment: SegmentBuilder) -> ChainHead {
        ChainHead { segment, version: None, latest_expiry: None }
    }
}

impl ChainWriter {
    pub fn new(
        chain: LedgerChain,
        api: Api<DynamicObject>,
        requests: mpsc::UnboundedReceiver<AppendRequest>,
        state: Arc<LedgerState>,
        clock: Clock,
        recheck: RecheckSignal,
    ) -> ChainWriter {
        let (lazy, lazy_since, head) = (VecDeque::new(), None, None);
        ChainWriter { chain, api, requests, lazy, lazy_since, head, state, clock, recheck }
    }

    /// Writes until the future is dropped. What is being written then may or may not be stored.
    pub async fn run(&mut self) -> Infallible {
        // A former run may have ended between a write and its response.
        self.head = None;
        loop {
            let batch = self.next_batch().await;
            self.write_batch(batch).await;
        }
    }

    /// Waits for an entry that is urgent, or until those that can wait have waited long enough.
    async fn next_batch(&mut self) -> VecDeque<AppendRequest> {
        let mut urgent = VecDeque::new();
        while urgent.is_empty() {
            let due = self.lazy_since.map(|since| since + CONFIRMATION_DELAY);
            let is_due = due.is_some();
            tokio::select! {
                request = self.requests.recv() => match request {
                    Some(request) => self.sort(request, &mut urgent),
                    None => std::future::pending().await,
                },
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if is_due => break,
            }
        }
        // Lets all workers that are ready enqueue their records, so that these share one write.
        tokio::task::yield_now().await;
        while urgent.len() < MAX_BATCH
            && let Ok(request) = self.requests.try_recv()
        {
            self.sort(request, &mut urgent);
        }
        let mut batch = std::mem::take(&mut self.lazy);
        self.lazy_since = None;
        batch.extend(urgent);
        batch
    }

    fn sort(&mut self, request: AppendRequest, urgent: &mut VecDeque<AppendRequest>) {
        if request.reply.is_some() {
            urgent.push_back(request);
        } else {
            self.lazy_since.get_or_insert_with(Instant::now);
            self.lazy.push_back(request);
            self.state.metrics().set_lag(self.chain, self.lazy.len());
        }
    }

    async fn write_batch(&mut self, mut batch: VecDeque<AppendRequest>) {
        let mut failures = 0;
        while !batch.is_empty() {
            let started = Instant::now();
            match self.write_some(&mut batch).await {
                Ok(()) => self.state.metrics().observe_write(started.elapsed()),
                Err(error) => {
                    self.state.metrics().count_failure();
                    failures += 1;
                    if failures >= ATTEMPTS || !error.is_conflict {
                        self.fail(batch, &error.error);
                        return;
                    }
                }
            }
        }
        self.state.metrics().set_lag(self.chain, self.lazy.len());
    }

    /// Tells those who wait that nothing was recorded. What can wait is kept for the next write.
    fn fail(&mut self, batch: VecDeque<AppendRequest>, error: &LedgerError) {
        tracing::warn!(chain = self.chain.name(), %error, "cannot write the ledger");
        for AppendRequest { entry, reply } in batch {
            match reply {
                Some(reply) => drop(reply.send(Err(error.clone()))),
                None => {
                    self.lazy_since.get_or_insert_with(Instant::now);
                    self.lazy.push_back(AppendRequest { entry, reply: None });
                }
            }
        }
    }

    /// Writes as much of a batch as the newest segment has room for, and removes it from the batch.
    async fn write_some(&mut self, batch: &mut VecDeque<AppendRequest>) -> Result<(), WriteError> {
        let mut head = match self.head.take() {
            Some(head) => head,
            None => self.load_head().await?,
        };
        if head.segment.is_full() {
            head = ChainHead::begin(head.segment.successor());
        }
        let (mut segment, first) = (head.segment.clone(), head.segment.entry_count());
        let mut positions = Vec::new();
        for request in batch.iter_mut() {
            match segment.append(&mut request.entry) {
                Ok(position) => positions.push(position),
                Err(_) => break,
            }
        }
        // A segment without certificates is kept as if one of them expired now.
        let latest = segment.latest_expiry().max(head.latest_expiry);
        let latest_expiry = latest.unwrap_or_else(|| (self.clock)().unix_timestamp());
        let version = self.store(&segment, head.version.as_deref(), latest_expiry).await?;
        let bytes = segment.data().len();
        let header = *segment.header();
        self.head = version.map(|version| ChainHead {
            segment,
            version: Some(version),
            latest_expiry: Some(latest_expiry),
        });
        let written: Vec<AppendRequest> = batch.drain(..positions.len()).collect();
        let entries: Vec<LedgerEntry> = written.iter().map(|request| request.entry.clone()).collect();
        let observed = ObservedSegment { header: &header, first, entries: &entries, latest_expiry, bytes };
        self.state.observe(&observed);
        self.state.metrics().count_entries(self.chain, entries.len());
        for (request, position) in written.into_iter().zip(positions) {
            if let Some(reply) = request.reply {
                // A worker that stopped waiting leaves its record open.
                let _ = reply.send(Ok(position));
            }
        }
        Ok(())
    }

    /// Stores a segment as the successor of what was read last. Returns its resource version; `None` if others have
    /// appended to it since.
    async fn store(
        &self,
        segment: &SegmentBuilder,
        version: Option<&str>,
        latest_expiry: i64,
    ) -> Result<Option<String>, WriteError> {
        let object = segment_object::build(segment, &resource(), version, latest_expiry)?;
        let (name, params) = (segment.header().name(), PostParams::default());
        let written = match version {
            Some(_) => timeout(REQUEST_TIMEOUT, self.api.replace(&name, &params, &object)).await,
            None => timeout(REQUEST_TIMEOUT, self.api.create(&params, &object)).await,
        };
        let error = match written {
            Ok(Ok(stored)) => return Ok(Some(stored.resource_version().unwrap_or_default())),
            Ok(Err(error)) => WriteError::from(&error),
            Err(_) => WriteError::from(LedgerError::new(format!("timed out after {REQUEST_TIMEOUT:?}"))),
        };
        if error.is_not_found {
            self.recheck.notify_one();
        }
        // The response may have been lost after the server stored the segment. Bytes are never changed, so what was
        // written is a prefix of what is there.
        match self.get(&name).await {
            Ok(Some((stored, version))) if stored.data.starts_with(segment.data()) => {
                Ok((stored.data.len() == segment.data().len()).then_some(version))
            }
            _ => Err(error),
        }
    }

    async fn get(&self, name: &str) -> Result<Option<(StoredSegment, String)>, WriteError> {
        let found = match timeout(REQUEST_TIMEOUT, self.api.get_opt(name)).await {
            Ok(found) => found.map_err(|error| WriteError::from(&error))?,
            Err(_) => return Err(LedgerError::new(format!("timed out after {REQUEST_TIMEOUT:?}")).into()),
        };
        let Some(object) = found else { return Ok(None) };
        let stored = segment_object::parse(&object)?;
        Ok(Some((stored, object.resource_version().unwrap_or_default())))
    }

    /// Reads the newest segment of the chain, or begins the first.
    async fn load_head(&self) -> Result<ChainHead, WriteError> {
        let newest = self.find_newest().await?;
        let Some(newest) = newest else {
            let segment = SegmentBuilder::new(SegmentHeader::first(self.chain));
            return Ok(ChainHead::begin(segment));
        };
        let name = self.chain.segment_name(newest);
        let Some((stored, version)) = self.get(&name).await? else {
            return Err(WriteError {
                is_conflict: true,
                ..LedgerError::new(format!("{name} is gone")).into()
            });
        };
        let head = match SegmentBuilder::resume(stored.header, &stored.data) {
            Ok((segment, entries)) => {
                self.state.observe(&ObservedSegment {
                    header: &stored.header,
                    first: 0,
                    entries: &entries,
                    latest_expiry: stored.latest_expiry,
                    bytes: stored.data.len(),
                });
                let latest_expiry = Some(stored.latest_expiry);
                ChainHead { segment, version: Some(version), latest_expiry }
            }
            Err(error) => {
                // A newer version of this program may have written it. The chain continues behind it.
                tracing::warn!(segment = name, %error, "cannot decode the newest segment; beginning another");
                let header = SegmentHeader {
                    chain: self.chain,
                    sequence: stored.header.sequence + 1,
                    previous_hash: stored.header.hash(&stored.data),
                };
                ChainHead::begin(SegmentBuilder::new(header))
            }
        };
        Ok(head)
    }

    /// Finds the newest segment by the names of all segments.
    async fn find_newest(&self) -> Result<Option<u64>, WriteError> {
        let (mut newest, mut params) = (None, ListParams::default().limit(PAGE));
        loop {
            let page = match timeout(REQUEST_TIMEOUT, self.api.list_metadata(&params)).await {
                Ok(page) => page.map_err(|error| WriteError::from(&error))?,
                Err(_) => return Err(LedgerError::new(format!("timed out after {REQUEST_TIMEOUT:?}")).into()),
            };
            for object in &page.items {
                let name = object.meta().name.as_deref().unwrap_or_default();
                if let Some((chain, sequence)) = LedgerChain::parse_segment_name(name)
                    && chain == self.chain
                {
                    newest = newest.max(Some(sequence));
                }
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = ListParams::default().limit(PAGE).continue_token(&token),
                None => return Ok(newest),
            }
        }
    }
}

/// Reason for which a segment was not stored.
struct WriteError {
    error: LedgerError,
    /// Another process has written the chain: read it again.
    is_conflict: bool,
    is_not_found: bool,
}

impl From<LedgerError> for WriteError {
    fn from(error: LedgerError) -> WriteError {
        WriteError { error, is_conflict: false, is_not_found: false }
    }
}

impl From<&kube::Error> for WriteError {
    fn from(error: &kube::Error) -> WriteError {
        let is_conflict = matches!(error, kube::Error::Api(status) if status.code == 409);
        let error_text = LedgerError::new(describe(error));
        WriteError { error: error_text, is_conflict, is_not_found: is_not_found(error) }
    }
}
