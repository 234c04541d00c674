//! State of one connection: its open requests, and when to close it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::connections::{ConnectionTracker, lock};
use super::exchange::HttpExchange;

/// Progress checks of responses per unread timeout.
const CHECKS: u32 = 4;

/// State of a connection, shared by its task, its requests and the connection tracker.
pub(super) struct ConnectionState {
    pub(super) connections: Arc<ConnectionTracker>,
    pub(super) id: u64,
    /// Address of the client, or its /64 for IPv6.
    pub(super) address: IpAddr,
    /// Requests whose responses are not completely written.
    exchanges: Mutex<BTreeMap<u64, Weak<HttpExchange>>>,
    open: AtomicUsize,
    /// Time since which no request is open.
    idle_since: AtomicU64,
    requested: AtomicBool,
    authenticated: AtomicBool,
    /// Start of the graceful shutdown; 0 if not started.
    closing_since: AtomicU64,
    graceful: Notify,
    abort: Notify,
    /// Whether the connection is no longer counted.
    released: AtomicBool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ConnectionVerdict {
    /// Nothing; check again after this time.
    Wait(Duration),
    /// Shut it down gracefully, because it is idle.
    Idle,
    /// Close it immediately, for this reason.
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

    /// Returns true if no request is open.
    pub(super) fn is_idle(&self) -> bool {
        self.open.load(Relaxed) == 0
    }

    /// Starts the timeout of the first request after the TLS handshake.
    pub(super) fn established(&self) {
        self.idle_since.store(self.connections.now(), Relaxed);
    }

    pub(super) fn insert(&self, number: u64, exchange: &Arc<HttpExchange>) {
        self.requested.store(true, Relaxed);
        self.open.fetch_add(1, Relaxed);
        lock(&self.exchanges).insert(number, Arc::downgrade(exchange));
    }

    /// Removes a request that is completely answered or abandoned.
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

    /// Returns true if any request was authenticated.
    pub(super) fn is_authenticated(&self) -> bool {
        self.authenticated.load(Relaxed)
    }

    /// Closes the connection after the open requests. A client that keeps sending requests is
    /// disconnected.
    pub(super) fn close_gracefully(&self) {
        let now = self.connections.now().max(1);
        match self.closing_since.compare_exchange(0, now, Relaxed, Relaxed) {
            Ok(_) => self.graceful.notify_one(),
            Err(since) if now - since >= millis(self.connections.deadlines.closing) => self.abort(),
            Err(_) => {}
        }
    }

    /// Returns true if a graceful shutdown has begun.
    pub(super) fn is_closing(&self) -> bool {
        self.closing_since.load(Relaxed) != 0
    }

    /// Waits until a graceful shutdown is requested.
    pub(super) async fn closing(&self) {
        self.graceful.notified().await;
    }

    /// Closes the connection without waiting for requests.
    pub(super) fn abort(&self) {
        self.abort.notify_one();
    }

    /// Waits until the connection must be closed immediately.
    pub(super) async fn aborted(&self) {
        self.abort.notified().await;
    }

    /// Removes the connection from the counts; false if already removed.
    pub(super) fn release(&self) -> bool {
        !self.released.swap(true, Relaxed)
    }

    /// Resets streams that the client does not read, and returns what to do with the connection at
    /// `now`.
    pub(super) fn check(&self, now: u64) -> ConnectionVerdict {
        let deadlines = &self.connections.deadlines;
        // Dropping the last reference takes the lock, so it must happen outside of it.
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
            (true, _) => {
                (deadlines.closing, self.closing_since.load(Relaxed).max(self.idle_since.load(Relaxed)))
            }
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
