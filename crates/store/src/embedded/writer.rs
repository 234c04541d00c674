//! The commit thread: the only writer of the database.
//!
//! It takes all pending writes, applies them in one transaction, syncs once, delivers the events to
//! the sinks, and only then replies. A single write is committed immediately; writes that arrive
//! meanwhile form the next batch. Between batches it compacts history and checkpoints the WAL.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};
use tokio::sync::oneshot;

use super::checkpoint::CheckpointScheduler;
use super::failure::PathContext;
use super::lock::DirectoryLock;
use super::reader;
use super::record::{ChangeRecord, to_sql};
use super::retention::{CompactionStride, RetentionPolicy, raise_floor};
use super::watermark::WatermarkFile;
use crate::fatal_latch::FatalLatch;
use crate::sink::deliver_changes;
use crate::{ChangeEvent, CommittedWrite, Error, KeyChange, Revision, Sink, WritePrecondition, WriteRequest};

/// Maximum writes per transaction, which bounds the latency of the first.
const BATCH_WRITES: usize = 256;
/// Approximate maximum bytes per transaction.
const BATCH_BYTES: usize = 8 << 20;
/// Interval at which an idle store checks for history to compact.
const TICK: Duration = Duration::from_secs(1);
/// Delay before housekeeping is retried after a failure.
const REST: Duration = Duration::from_secs(1);
/// Maximum events per batch of a replay.
pub(super) const REPLAY: usize = 1_000;

/// Command to the commit thread.
pub(super) enum WriterCommand {
    Write(WriteJob),
    AttachSink { after: Revision, sink: Sink, done: SyncSender<Result<(), Error>> },
    Compact { upto: Revision, done: oneshot::Sender<Result<(), Error>> },
    Close,
}

/// A write and its reply channel.
pub(super) struct WriteJob {
    pub(super) write: WriteRequest,
    pub(super) done: oneshot::Sender<Result<CommittedWrite, Error>>,
}

/// Shared position of the store, readable by all threads.
#[derive(Debug)]
pub(super) struct StorePosition {
    pub(super) revision: AtomicU64,
    pub(super) floor: AtomicU64,
}

/// State owned by the commit thread, the only writer of the database.
pub(super) struct CommitWriter {
    pub(super) path: PathBuf,
    pub(super) conn: Connection,
    pub(super) inbox: Receiver<WriterCommand>,
    pub(super) position: Arc<StorePosition>,
    pub(super) latch: FatalLatch,
    pub(super) sinks: Vec<Sink>,
    pub(super) watermark: WatermarkFile,
    pub(super) checkpoints: CheckpointScheduler,
    pub(super) retention: RetentionPolicy,
    pub(super) stride: CompactionStride,
    /// Compactions that were requested and are not finished.
    pub(super) compactions: Vec<(Revision, oneshot::Sender<Result<(), Error>>)>,
    pub(super) resting_until: Option<Instant>,
    /// Lock that is released last, when everything else is closed.
    pub(super) lock: DirectoryLock,
}

impl CommitWriter {
    /// Runs until the store is closed.
    pub(super) fn run(mut self) {
        let fuse = self.latch.clone();
        let result = catch_unwind(AssertUnwindSafe(|| {
            while self.run_once().is_continue() {}
            self.finish();
        }));
        if result.is_err() {
            fuse.trip(&Error::Failed { what: "the commit thread panicked".to_owned() });
        }
    }

    fn run_once(&mut self) -> std::ops::ControlFlow<()> {
        use std::ops::ControlFlow::{Break, Continue};
        let wait = if self.compaction_target().is_some() { Duration::ZERO } else { TICK };
        let next = match self.inbox.recv_timeout(wait) {
            Ok(WriterCommand::Write(job)) => self.commit_with(job),
            Ok(command) => Some(command),
            Err(RecvTimeoutError::Timeout) => {
                if !wait.is_zero() {
                    self.checkpoints.on_idle(&self.conn);
                }
                None
            }
            Err(RecvTimeoutError::Disconnected) => return Break(()),
        };
        match next {
            Some(WriterCommand::Close) => return Break(()),
            Some(WriterCommand::AttachSink { after, sink, done }) => {
                let _ = done.send(self.attach_sink(after, sink));
            }
            Some(WriterCommand::Compact { upto, done }) => self.request_compaction(upto, done),
            Some(WriterCommand::Write(_)) | None => {}
        }
        self.compact_step();
        Continue(())
    }

    /// Commits a write together with all pending ones; returns the next command, if any.
    fn commit_with(&mut self, first: WriteJob) -> Option<WriterCommand> {
        let mut bytes = size(&first.write);
        let mut batch = vec![first];
        let mut next = None;
        while batch.len() < BATCH_WRITES && bytes < BATCH_BYTES {
            match self.inbox.try_recv() {
                Ok(WriterCommand::Write(job)) => {
                    bytes += size(&job.write);
                    batch.push(job);
                }
                Ok(other) => {
                    next = Some(other);
                    break;
                }
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
        self.commit(batch);
        self.checkpoints.after_commit(&self.conn);
        next
    }

    fn commit(&mut self, mut batch: Vec<WriteJob>) {
        // Callers that stopped waiting gave up before anything was written.
        batch.retain(|job| !job.done.is_closed());
        if batch.is_empty() {
            return;
        }
        let outcome = match self.latch.cause() {
            Some(error) => Err(error),
            None => self.transact(&batch),
        };
        let answers = match outcome {
            Ok((answers, events)) => match self.publish(&events) {
                Ok(()) => answers,
                Err(error) => vec![Err(error); batch.len()],
            },
            Err(error) => {
                self.latch.trip_if_fatal(&error);
                vec![Err(error); batch.len()]
            }
        };
        for (job, answer) in batch.into_iter().zip(answers) {
            let _ = job.done.send(answer);
        }
    }

    /// Applies a batch in one synced transaction. On error nothing was applied.
    #[expect(clippy::type_complexity, reason = "an answer for each write, and what happened")]
    fn transact(
        &mut self,
        batch: &[WriteJob],
    ) -> Result<(Vec<Result<CommittedWrite, Error>>, Vec<ChangeEvent>), Error> {
        let path = &self.path;
        let outcome = (|| {
            let tx = self.conn.transaction_with_behavior(TransactionBehavior::Immediate).with_path(path)?;
            let mut revision = self.position.revision.load(Ordering::Acquire);
            let mut answers = Vec::with_capacity(batch.len());
            let mut events = Vec::with_capacity(batch.len());
            for job in batch {
                match apply(path, &tx, &job.write, revision + 1) {
                    Ok(event) => {
                        revision = event.revision;
                        answers.push(Ok(committed(&event)));
                        events.push(event);
                    }
                    Err(WriteRefusal::Write(error)) => answers.push(Err(error)),
                    Err(WriteRefusal::Batch(error)) => return Err(error),
                }
            }
            if !events.is_empty() {
                tx.commit().with_path(path)?;
            }
            Ok((answers, events))
        })();
        if !self.conn.is_autocommit() {
            let what = "a failed transaction could not be rolled back".to_owned();
            return Err(Error::Failed { what });
        }
        outcome
    }

    /// Delivers durable events to all sinks.
    fn publish(&mut self, events: &[ChangeEvent]) -> Result<(), Error> {
        let Some(last) = events.last() else { return Ok(()) };
        self.watermark.record(last.revision);
        for event in events {
            self.retention.record(event.revision, event_size(event));
        }
        let mut result = Ok(());
        self.sinks.retain_mut(|sink| match deliver_changes(sink, events) {
            Ok(()) => true,
            Err(error) => {
                self.latch.trip(&error);
                result = Err(error);
                false
            }
        });
        self.position.revision.store(last.revision, Ordering::Release);
        result
    }

    /// Replays missed events to a sink, then delivers live events to it.
    fn attach_sink(&mut self, after: Revision, mut sink: Sink) -> Result<(), Error> {
        if let Some(error) = self.latch.cause() {
            return Err(error);
        }
        let mut seen = after;
        loop {
            let events = reader::history(&self.path, &self.conn, seen, REPLAY)?;
            let Some(last) = events.last() else { break };
            seen = last.revision;
            deliver_changes(&mut sink, &events)?;
        }
        self.sinks.push(sink);
        Ok(())
    }

    fn request_compaction(&mut self, upto: Revision, done: oneshot::Sender<Result<(), Error>>) {
        let revision = self.position.revision.load(Ordering::Acquire);
        let answer = match self.latch.cause() {
            Some(error) => Err(error),
            None if upto > revision => Err(Error::Future { revision }),
            None if upto <= self.position.floor.load(Ordering::Acquire) => Ok(()),
            None => {
                self.compactions.push((upto, done));
                return;
            }
        };
        let _ = done.send(answer);
    }

    /// Returns the desired floor if it is above the current one.
    fn compaction_target(&self) -> Option<Revision> {
        if self.latch.cause().is_some() || self.resting_until.is_some_and(|t| Instant::now() < t) {
            return None;
        }
        let revision = self.position.revision.load(Ordering::Acquire);
        let asked = self.compactions.iter().map(|(upto, _)| *upto).max();
        let target = asked.max(self.retention.target(revision))?;
        (target > self.position.floor.load(Ordering::Acquire)).then_some(target)
    }

    /// Compacts a few revisions of history, if any are due.
    fn compact_step(&mut self) {
        let Some(target) = self.compaction_target() else { return };
        let floor = self.position.floor.load(Ordering::Acquire);
        let upto = self.stride.next_target(floor, target);
        let started = Instant::now();
        match raise_floor(&self.path, &mut self.conn, upto) {
            Ok(()) => {
                self.stride.record_duration(started.elapsed());
                self.position.floor.store(upto, Ordering::Release);
                self.retention.set_floor(upto);
                let done = self.compactions.extract_if(.., |(wanted, _)| *wanted <= upto);
                for (_, done) in done {
                    let _ = done.send(Ok(()));
                }
                self.checkpoints.after_commit(&self.conn);
            }
            Err(error) => {
                self.latch.trip_if_fatal(&error);
                tracing::warn!(%error, "compaction failed");
                for (_, done) in self.compactions.drain(..) {
                    let _ = done.send(Err(error.clone()));
                }
                self.resting_until = Some(started + REST);
            }
        }
    }

    /// Replies to pending commands, and leaves a database without a WAL.
    fn finish(mut self) {
        let Self { inbox, compactions, sinks, .. } = &mut self;
        for command in inbox.try_iter() {
            match command {
                WriterCommand::Write(job) => drop(job.done.send(Err(Error::Closed))),
                WriterCommand::AttachSink { done, .. } => drop(done.send(Err(Error::Closed))),
                WriterCommand::Compact { done, .. } => drop(done.send(Err(Error::Closed))),
                WriterCommand::Close => {}
            }
        }
        for (_, done) in compactions.drain(..) {
            let _ = done.send(Err(Error::Closed));
        }
        sinks.clear();
        self.checkpoints.stop(&self.conn);
        let Self { conn, lock, .. } = self;
        drop(conn);
        drop(lock);
    }
}

/// Reason why a write was not applied.
enum WriteRefusal {
    /// The write itself is invalid; others in the batch are not affected.
    Write(Error),
    /// The transaction cannot continue and fails.
    Batch(Error),
}

fn apply(
    path: &Path,
    tx: &Transaction<'_>,
    write: &WriteRequest,
    revision: Revision,
) -> Result<ChangeEvent, WriteRefusal> {
    let current = current(path, tx, &write.key).map_err(|error| match error {
        Error::Corrupt { .. } => WriteRefusal::Write(error),
        other => WriteRefusal::Batch(other),
    })?;
    let current = current.and_then(ChangeRecord::into_stored).map(|(_, stored)| stored);
    let at = current.as_ref().map(|stored| stored.revision);
    let holds = match write.expect {
        WritePrecondition::Any => true,
        WritePrecondition::Absent => at.is_none(),
        WritePrecondition::Revision(expected) => at == Some(expected),
    };
    let value = match &write.change {
        KeyChange::Put(value) => Some(value.clone()),
        KeyChange::Delete => None,
    };
    if !holds || (value.is_none() && at.is_none()) {
        return Err(WriteRefusal::Write(Error::Conflict { current: at }));
    }
    let record = ChangeRecord {
        rev: revision,
        key: write.key.clone(),
        created: current.as_ref().map_or(revision, |stored| stored.created),
        prev: at.unwrap_or(0),
        value,
    };
    insert(path, tx, &record).map_err(WriteRefusal::Batch)?;
    Ok(record.into_event(current))
}

/// Returns the newest record of a key.
fn current(path: &Path, tx: &Transaction<'_>, key: &str) -> Result<Option<ChangeRecord>, Error> {
    let sql = "SELECT rev, key, created, prev, value, checksum FROM kv
               WHERE key = ?1 ORDER BY rev DESC LIMIT 1";
    let mut statement = tx.prepare_cached(sql).with_path(path)?;
    let found = statement.query_row([key], |row| Ok(ChangeRecord::read(path, row, 0))).optional();
    found.with_path(path)?.transpose()
}

fn insert(path: &Path, tx: &Transaction<'_>, record: &ChangeRecord) -> Result<(), Error> {
    let mut statement =
        tx.prepare_cached("INSERT INTO kv VALUES (?1, ?2, ?3, ?4, ?5, ?6)").with_path(path)?;
    let columns = (
        to_sql(record.rev),
        &record.key,
        to_sql(record.created),
        to_sql(record.prev),
        record.value.as_deref(),
        record.checksum(),
    );
    statement.execute(columns).with_path(path)?;
    Ok(())
}

fn committed(event: &ChangeEvent) -> CommittedWrite {
    let ChangeEvent { revision, created, previous, .. } = event;
    CommittedWrite { revision: *revision, created: *created, previous: previous.clone() }
}

fn size(write: &WriteRequest) -> usize {
    write.key.len()
        + match &write.change {
            KeyChange::Put(value) => value.len(),
            KeyChange::Delete => 0,
        }
}

fn event_size(event: &ChangeEvent) -> u64 {
    (event.key.len() + event.value.as_ref().map_or(0, |value| value.len())) as u64
}
