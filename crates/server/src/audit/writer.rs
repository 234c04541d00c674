//! The thread that writes events, and its queue.

use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

use time::{Duration, OffsetDateTime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use windlass_runtime::metrics::MetricsRegistry;

use super::file::LogFile;
use crate::limits;
use crate::metrics::UNLABELED;
use crate::server::Clock;

pub(super) enum AuditOutput {
    File(Box<LogFile>),
    Stdout,
}

#[derive(Default)]
pub(super) struct AuditCounters {
    events: AtomicU64,
    lost: AtomicU64,
    suppressed: AtomicU64,
    failing: AtomicBool,
}

impl AuditCounters {
    /// Counts an event suppressed by the rate limit on unauthenticated callers.
    pub(super) fn suppressed(&self) {
        self.suppressed.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns true if the last event could not be written.
    pub(super) fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }

    /// Registers the counts, under the names of Kubernetes where it has one.
    pub(super) fn register(self: &Arc<Self>, registry: &MetricsRegistry) {
        let (events, lost) = (self.clone(), self.clone());
        let (suppressed, failing) = (self.clone(), self.clone());
        registry.register_scraped_counter("apiserver_audit_event", "Audit events made", move || {
            vec![(UNLABELED, events.events.load(Ordering::Relaxed))]
        });
        registry.register_scraped_counter(
            "apiserver_audit_error",
            "Audit events that could not be written",
            move || vec![([("plugin", "log")], lost.lost.load(Ordering::Relaxed))],
        );
        registry.register_scraped_counter(
            "windlass_audit_events_suppressed",
            "Audit events of unauthenticated requests dropped by the rate limit",
            move || vec![(UNLABELED, suppressed.suppressed.load(Ordering::Relaxed))],
        );
        registry.register_scraped_gauge(
            "windlass_audit_log_failing",
            "1 while audit events cannot be written",
            move || vec![(UNLABELED, u32::from(failing.is_failing()))],
        );
    }
}

/// Sends lines to the writer thread.
pub(super) struct AuditWriter {
    shared: Arc<SharedAuditQueue>,
    room: Arc<Semaphore>,
    /// The same capacity again, for lines whose sender cannot wait.
    overflow_room: Arc<Semaphore>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct SharedAuditQueue {
    queue: Mutex<AuditQueue>,
    wake: Condvar,
    counts: Arc<AuditCounters>,
}

#[derive(Default)]
struct AuditQueue {
    lines: Vec<AuditLine>,
    closed: bool,
}

struct AuditLine {
    bytes: Vec<u8>,
    /// Queue capacity, released once the line is written.
    _room: Option<OwnedSemaphorePermit>,
    /// Notified once the line is written.
    waiter: Option<oneshot::Sender<Result<(), io::ErrorKind>>>,
}

impl AuditWriter {
    /// Spawns the writer thread; fails if the operating system cannot create it.
    pub(super) fn start(
        output: AuditOutput,
        counts: Arc<AuditCounters>,
        clock: Clock,
    ) -> io::Result<AuditWriter> {
        let shared = Arc::new(SharedAuditQueue { queue: Mutex::default(), wake: Condvar::new(), counts });
        let work = AuditWriterThread { shared: shared.clone(), output, clock, complained: None };
        let thread = std::thread::Builder::new().name("audit".into()).spawn(move || work.run())?;
        let room = || Arc::new(Semaphore::new(limits::AUDIT_QUEUE));
        let (room, late) = (room(), room());
        Ok(AuditWriter { shared, room, overflow_room: late, thread: Mutex::new(Some(thread)) })
    }

    /// Waits for queue capacity for a line of `bytes` bytes.
    pub(super) async fn reserve(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        self.room.clone().acquire_many_owned(permits_for(bytes)).await.ok()
    }

    /// Queues a line without waiting for it to be written; `room` is released afterwards.
    pub(super) fn push(&self, bytes: Vec<u8>, room: Option<OwnedSemaphorePermit>) {
        self.enqueue(AuditLine { bytes, _room: room, waiter: None });
    }

    /// Queues a line and waits until it is written.
    pub(super) async fn write(
        &self,
        bytes: Vec<u8>,
        room: Option<OwnedSemaphorePermit>,
    ) -> Result<(), io::ErrorKind> {
        let (waiter, written) = oneshot::channel();
        self.enqueue(AuditLine { bytes, _room: room, waiter: Some(waiter) });
        // The thread ended without writing the line.
        written.await.unwrap_or(Err(io::ErrorKind::BrokenPipe))
    }

    fn enqueue(&self, line: AuditLine) {
        let mut queue = self.shared.lock();
        self.shared.counts.events.fetch_add(1, Ordering::Relaxed);
        if queue.closed {
            self.shared.counts.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let was_empty = queue.lines.is_empty();
        queue.lines.push(line);
        drop(queue);
        if was_empty {
            self.shared.wake.notify_one();
        }
    }

    /// Queues a line when the caller cannot wait; a second capacity of equal size exists for these.
    pub(super) fn push_late(&self, bytes: Vec<u8>) {
        if let Ok(room) = self.overflow_room.clone().try_acquire_many_owned(permits_for(bytes.len())) {
            return self.push(bytes, Some(room));
        }
        self.shared.counts.events.fetch_add(1, Ordering::Relaxed);
        // Logged once only: a caller who can cause this could flood the process log too.
        if self.shared.counts.lost.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::error!(
                "audit event lost: queue full; later losses are only counted in apiserver_audit_error_total"
            );
        }
    }

    /// Flushes the queue and stops the thread.
    pub(super) fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.wake.notify_one();
        let thread = self.thread.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("audit writer panicked");
        }
    }
}

/// Returns the queue capacity of a line: a client can make it a hundred times as long as usual.
pub(super) fn permits_for(bytes: usize) -> u32 {
    let places = bytes.div_ceil(limits::AUDIT_EVENT).clamp(1, limits::AUDIT_QUEUE);
    u32::try_from(places).unwrap_or(u32::MAX)
}

impl Drop for AuditWriter {
    fn drop(&mut self) {
        self.close();
    }
}

impl SharedAuditQueue {
    fn lock(&self) -> MutexGuard<'_, AuditQueue> {
        self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Waits for queued lines; empty after [`PROBE_EVERY`] without any, `None` at shutdown.
    fn next(&self) -> Option<Vec<AuditLine>> {
        let queue = self.lock();
        let waiting = |queue: &mut AuditQueue| queue.lines.is_empty() && !queue.closed;
        let mut queue = if self.counts.is_failing() {
            let waited = self.wake.wait_timeout_while(queue, PROBE_EVERY, waiting);
            waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0
        } else {
            let waited = self.wake.wait_while(queue, waiting);
            waited.unwrap_or_else(|poisoned| poisoned.into_inner())
        };
        let lines = std::mem::take(&mut queue.lines);
        if lines.is_empty() && queue.closed { None } else { Some(lines) }
    }
}

/// Interval of retries after a disk failure while no events arrive: a server that is unready for
/// that reason gets no requests.
const PROBE_EVERY: std::time::Duration = std::time::Duration::from_secs(1);

/// Minimum interval between log messages about a failing disk.
const COMPLAIN_EVERY: Duration = Duration::MINUTE;

struct AuditWriterThread {
    shared: Arc<SharedAuditQueue>,
    output: AuditOutput,
    clock: Clock,
    complained: Option<OffsetDateTime>,
}

impl AuditWriterThread {
    fn run(mut self) {
        while let Some(lines) = self.shared.next() {
            if lines.is_empty() {
                self.probe();
            } else {
                self.write(lines);
            }
        }
        if let AuditOutput::File(file) = &self.output {
            file.sync();
        }
    }

    fn probe(&mut self) {
        if let AuditOutput::File(file) = &mut self.output
            && file.probe().is_ok()
        {
            self.recovered();
        }
    }

    fn write(&mut self, mut lines: Vec<AuditLine>) {
        let mut waiters: Vec<_> = lines.iter_mut().map(|line| line.waiter.take()).collect();
        let mut waiters = waiters.drain(..);
        let mut outcomes = Vec::new();
        let mut done = |count: usize, written: io::Result<()>| {
            let result = match &written {
                Ok(()) => Ok(()),
                Err(error) => Err(error.kind()),
            };
            for waiter in waiters.by_ref().take(count).flatten() {
                // The result is counted even if the waiter is gone.
                let _ = waiter.send(result);
            }
            outcomes.push((count, written));
        };
        let bytes = lines.iter().map(|line| line.bytes.as_slice());
        match &mut self.output {
            AuditOutput::File(file) => file.append(bytes, done),
            AuditOutput::Stdout => {
                let all: Vec<u8> = bytes.flatten().copied().collect();
                let mut out = io::stdout().lock();
                done(lines.len(), out.write_all(&all).and_then(|()| out.flush()));
            }
        }
        for (count, written) in outcomes {
            match written {
                Ok(()) => self.recovered(),
                Err(error) => self.failed(count, &error),
            }
        }
    }

    fn failed(&mut self, lost: usize, error: &io::Error) {
        let counts = &self.shared.counts;
        counts.lost.fetch_add(lost as u64, Ordering::Relaxed);
        counts.failing.store(true, Ordering::Relaxed);
        let now = (self.clock)();
        if self.complained.is_none_or(|last| now - last >= COMPLAIN_EVERY) {
            self.complained = Some(now);
            tracing::error!(%error, lost, "audit events lost: write failed");
        }
    }

    fn recovered(&mut self) {
        if self.shared.counts.failing.swap(false, Ordering::Relaxed) {
            let lost = self.shared.counts.lost.load(Ordering::Relaxed);
            self.complained = None;
            tracing::warn!(lost, "audit log recovered");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_take_the_room_of_many() {
        let all = limits::AUDIT_QUEUE as u32;
        let most = limits::AUDIT_QUEUE * limits::AUDIT_EVENT;
        for (bytes, want) in
            [(0, 1), (limits::AUDIT_EVENT, 1), (limits::AUDIT_EVENT + 1, 2), (most, all), (usize::MAX, all)]
        {
            assert_eq!(permits_for(bytes), want, "{bytes}");
        }
    }
}
