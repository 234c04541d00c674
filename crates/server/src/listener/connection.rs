//! One connection: its open requests, and when it is to be closed.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::connections::{ConnectionTracker, lock};
use super::exchange::HttpExchange;

/// How often the answers that are being written are checked for progress, as a part of the time they may go
/// without.
const CHECKS: u32 = 4;

/// The state of a connection, shared by its task, its requests and whoever looks for room.
pub(super) struct ConnectionState {
    pub(super) connections: Arc<ConnectionTracker>,
    pub(super) id: u64,
    /// The client's address, or its /64.
    pub(super) address: IpAddr,
    /// Requests that are not completely answered.
    exchanges: Mutex<BTreeMap<u64, Weak<HttpExchange>>>,
    open: AtomicUsize,
    /// Since when no request is open.
    idle_since: AtomicU64,
    requested: AtomicBool,
    authenticated: AtomicBool,
    /// When the graceful shutdown began; 0 if it did not.
    closing_since: AtomicU64,
    graceful: Notify,
    abort: Notify,
    /// Whether it is no longer counted.
    released: AtomicBool,
}

/// What is to be done about a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ConnectionVerdict {
    /// Nothing; check again after this time.
    Wait(Duration),
    /// It is idle: shut it down gracefully.
    Idle,
    /// Close it at once, for this reason.
    Abort(&'static str),
}

impl ConnectionState {
    pub(super) fn new(connections: Arc<ConnectionTracker>, address: IpAddr) -> ConnectionState {
        let (id, now) = (connections.number(), connections.now());
        ConnectionState {
            connections,
            id,
            address,
            exchanges: Mutex::default(),
            open: AtomicUsize::new(0),
            idle_since: AtomicU64::new(now),
            requested: AtomicBool::new(false),
            authenticated: AtomicBool::new(false),
            closing_since: AtomicU64::new(0),
            graceful: Notify::new(),
            abort: Notify::new(),
            released: AtomicBool::new(false),
        }
    }

    /// Whether no request is open.
    pub(super) fn is_idle(&self) -> bool {
        self.open.load(Relaxed) == 0
    }

    /// The TLS handshake is over: the time to the first request begins.
    pub(super) fn established(&self) {
        self.idle_since.store(self.connections.now(), Relaxed);
    }

    pub(super) fn insert(&self, number: u64, exchange: &Arc<HttpExchange>) {
        self.requested.store(true, Relaxed);
        self.open.fetch_add(1, Relaxed);
        lock(&self.exchanges).insert(number, Arc::downgrade(exchange));
    }

    /// A request is completely answered, or given up.
    pub(super) fn remove(&self, number: u64) {
        lock(&self.exchanges).remove(&number);
        self.idle_since.store(self.connections.now(), Relaxed);
        self.open.fetch_sub(1, Relaxed);
    }

    pub(super) fn set_authenticated(&self) {
        if !self.authenticated.swap(true, Relaxed) {
            self.connections.authenticated(self);
        }
    }

    /// Whether any request was authenticated.
    pub(super) fn is_authenticated(&self) -> bool {
        self.authenticated.load(Relaxed)
    }

    /// Ends the connection after the requests that are open. A client that goes on sending requests
    /// instead of leaving is cut off.
    pub(super) fn close_gracefully(&self) {
        let now = self.connections.now().max(1);
        match self.closing_since.compare_exchange(0, now, Relaxed, Relaxed) {
            Ok(_) => self.graceful.notify_one(),
            Err(since) if now - since >= millis(self.connections.deadlines.closing) => self.abort(),
            Err(_) => {}
        }
    }

    /// Whether a graceful shutdown has begun.
    pub(super) fn is_closing(&self) -> bool {
        self.closing_since.load(Relaxed) != 0
    }

    /// Waits until a graceful shutdown is requested.
    pub(super) async fn closing(&self) {
        self.graceful.notified().await;
    }

    /// Closes the connection at once.
    pub(super) fn abort(&self) {
        self.abort.notify_one();
    }

    /// Waits until the connection is to be closed at once.
    pub(super) async fn aborted(&self) {
        self.abort.notified().await;
    }

    /// Takes the connection out of the counts; false if it was already.
    pub(super) fn release(&self) -> bool {
        !self.released.swap(true, Relaxed)
    }

    /// Resets the streams that the client does not read, and says what is to be done about the
    /// connection at `now`.
    pub(super) fn check(&self, now: u64) -> ConnectionVerdict {
        let deadlines = &self.connections.deadlines;
        // The last reference may be dropped here, which takes the lock.
        let exchanges: Vec<_> = lock(&self.exchanges).values().filter_map(Weak::upgrade).collect();
        if exchanges.is_empty() {
            return self.check_idle(now);
        }
        let mut wait = deadlines.unread / CHECKS;
        for exchange in exchanges {
            let Some(since) = exchange.blocked_since() else { continue };
            let left = millis(deadlines.unread).saturating_sub(now.saturating_sub(since));
            if left > 0 {
                wait = wait.min(Duration::from_millis(left));
            } else if exchange.reset() {
                self.connections.counts.streams_reset.fetch_add(1, Relaxed);
            } else {
                self.connections.counts.unread.fetch_add(1, Relaxed);
                return ConnectionVerdict::Abort("the client does not read");
            }
        }
        ConnectionVerdict::Wait(wait)
    }

    fn check_idle(&self, now: u64) -> ConnectionVerdict {
        let deadlines = &self.connections.deadlines;
        let (closing, requested) = (self.is_closing(), self.requested.load(Relaxed));
        let (allowed, since) = match (closing, requested) {
            (true, _) => (
                deadlines.closing,
                self.closing_since.load(Relaxed).max(self.idle_since.load(Relaxed)),
            ),
            (false, true) => (deadlines.idle, self.idle_since.load(Relaxed)),
            (false, false) => (deadlines.first_request, self.idle_since.load(Relaxed)),
        };
        let left = millis(allowed).saturating_sub(now.saturating_sub(since));
        match (closing, requested) {
            _ if left > 0 => ConnectionVerdict::Wait(Duration::from_millis(left)),
            (true, _) => ConnectionVerdict::Abort("client did not close the connection"),
            (false, true) => {
                self.connections.counts.idle.fetch_add(1, Relaxed);
                ConnectionVerdict::Idle
            }
            (false, false) => ConnectionVerdict::Abort("timed out waiting for a request"),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
