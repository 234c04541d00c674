//! Tracks open connections: limits in total and per address, and eviction.
//!
//! A connection counts as unauthenticated until one of its requests has been authenticated.
//! Connections that anybody can open must not keep out authenticated ones: at a limit, the oldest
//! idle unauthenticated connection is closed, and the new one is refused only if there is none.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::time::Instant;
use windlass_runtime::metrics::MetricsRegistry;

use super::connection::ConnectionState;
use super::exchange::HttpExchange;
use crate::limits;
use crate::rate_limit::RateLimit;

/// Limits on the number of open connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Open connections in total (`--max-connections`); further ones are refused or evict idle
    /// ones.
    pub total: usize,
    /// Open connections per address, or per /64 of IPv6 (`--max-connections-per-address`).
    pub per_address: usize,
    /// Open connections in total without an authenticated request.
    pub unauthenticated: usize,
    /// Unwritten responses to unauthenticated requests.
    pub unauthenticated_answers: usize,
}

impl ConnectionLimits {
    /// Limits connections to `total`, reserving a share for addresses other than the busiest one.
    pub fn new(total: usize) -> ConnectionLimits {
        let total = total.max(1);
        let others = total / limits::CONNECTIONS_FOR_OTHERS;
        ConnectionLimits {
            total,
            per_address: total - others,
            unauthenticated: limits::UNAUTHENTICATED_CONNECTIONS.min(total),
            unauthenticated_answers: limits::UNAUTHENTICATED_ANSWERS,
        }
    }
}

impl Default for ConnectionLimits {
    fn default() -> ConnectionLimits {
        ConnectionLimits::new(limits::CONNECTIONS)
    }
}

/// Timeouts of the phases of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionDeadlines {
    /// From the TCP connection to the end of the TLS handshake.
    pub handshake: Duration,
    /// From the TLS handshake to the first complete request header.
    pub first_request: Duration,
    /// Longest time without an open request before graceful shutdown.
    pub idle: Duration,
    /// Longest time without progress in writing a response.
    pub unread: Duration,
    /// From graceful shutdown without open requests to the end of the connection.
    pub closing: Duration,
}

impl Default for ConnectionDeadlines {
    fn default() -> ConnectionDeadlines {
        ConnectionDeadlines {
            handshake: limits::HANDSHAKE,
            first_request: limits::HEADER_READ,
            idle: limits::IDLE,
            unread: limits::UNREAD,
            closing: limits::CLOSING,
        }
    }
}

/// The open connections of a listener.
pub struct ConnectionTracker {
    pub(super) deadlines: ConnectionDeadlines,
    limits: ConnectionLimits,
    /// Start of the clock for all times.
    started: Instant,
    open: Mutex<OpenConnections>,
    /// Unwritten responses to unauthenticated requests, oldest first.
    answers: Mutex<BTreeMap<u64, Weak<HttpExchange>>>,
    next: AtomicU64,
    pub(super) counts: ConnectionCounters,
    refusals: RateLimit,
    pub(super) accept_errors: RateLimit,
}

#[derive(Default)]
struct OpenConnections {
    total: usize,
    addresses: HashMap<IpAddr, usize>,
    unauthenticated: BTreeMap<u64, Weak<ConnectionState>>,
}

/// Connection counters since the start.
#[derive(Default)]
pub(super) struct ConnectionCounters {
    refused_total: AtomicU64,
    refused_address: AtomicU64,
    evicted: AtomicU64,
    pub(super) accept_errors: AtomicU64,
    pub(super) streams_reset: AtomicU64,
    pub(super) unread: AtomicU64,
    pub(super) idle: AtomicU64,
}

/// Samples of one counter, with their labels.
type CounterSamples = Vec<(Vec<(&'static str, &'static str)>, u64)>;

/// The limit that a new connection would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExceededLimit {
    Total,
    Address,
}

impl ConnectionTracker {
    /// Creates a tracker without connections, shared by all tasks of a listener.
    pub fn new(limits: ConnectionLimits, deadlines: ConnectionDeadlines) -> Arc<ConnectionTracker> {
        Arc::new(ConnectionTracker {
            deadlines,
            limits,
            started: Instant::now(),
            open: Mutex::default(),
            answers: Mutex::default(),
            next: AtomicU64::new(1),
            counts: ConnectionCounters::default(),
            refusals: RateLimit::new(1, limits::CONNECTION_LOG_RATE),
            accept_errors: RateLimit::new(1, limits::CONNECTION_LOG_RATE),
        })
    }

    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns a new, strictly increasing number.
    pub(super) fn number(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }

    /// Admits a new connection from `address`, evicting another if necessary.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr) -> Result<ConnectionGuard, ExceededLimit> {
        let address = prefix(address);
        let admitted = {
            let mut open = self.lock();
            match open.evict_for(&self.limits, address) {
                Ok(evicted) => {
                    let connection = Arc::new(ConnectionState::new(self.clone(), address));
                    open.insert(&connection);
                    Ok((connection, evicted))
                }
                Err(exceeded) => Err(exceeded),
            }
        };
        match admitted {
            Ok((connection, evicted)) => {
                for evicted in evicted {
                    self.counts.evicted.fetch_add(1, Relaxed);
                    evicted.abort();
                }
                Ok(ConnectionGuard(connection))
            }
            Err(exceeded) => {
                self.refuse(exceeded, address);
                Err(exceeded)
            }
        }
    }

    fn refuse(&self, exceeded: ExceededLimit, address: IpAddr) {
        let (count, limit, flag) = match exceeded {
            ExceededLimit::Total => (&self.counts.refused_total, self.limits.total, "--max-connections"),
            ExceededLimit::Address => {
                (&self.counts.refused_address, self.limits.per_address, "--max-connections-per-address")
            }
        };
        count.fetch_add(1, Relaxed);
        if let Some(suppressed) = self.refusals.admit(1, std::time::Instant::now()) {
            tracing::warn!(%address, limit, flag, suppressed, "connection refused: too many open");
        }
    }

    /// Closes the oldest idle unauthenticated connection, if any: file descriptors are exhausted.
    pub(super) fn evict_one(&self) {
        let evicted = {
            let mut open = self.lock();
            let evicted = open.oldest_idle(None);
            if let Some(evicted) = &evicted {
                open.remove(evicted);
            }
            evicted
        };
        if let Some(evicted) = evicted {
            self.counts.evicted.fetch_add(1, Relaxed);
            evicted.abort();
        }
    }

    /// Marks the connection as authenticated, so that it is no longer evicted.
    pub(super) fn authenticated(&self, connection: &ConnectionState) {
        self.lock().unauthenticated.remove(&connection.id);
    }

    /// Counts an unwritten response to an unauthenticated request. Beyond the limit, closes the
    /// connection of the oldest one: a client that reads its responses does not have the oldest.
    pub(super) fn add_answer(&self, exchange: &Arc<HttpExchange>) -> u64 {
        let number = self.number();
        let mut dropped = Vec::new();
        {
            let mut answers = lock(&self.answers);
            answers.insert(number, Arc::downgrade(exchange));
            while answers.len() > self.limits.unauthenticated_answers {
                let Some((_, oldest)) = answers.pop_first() else { break };
                dropped.extend(oldest.upgrade());
            }
        }
        // Outside the lock, because dropping an exchange takes it.
        for exchange in dropped {
            self.counts.evicted.fetch_add(1, Relaxed);
            exchange.connection.abort();
        }
        number
    }

    /// Removes a response that is written or abandoned.
    pub(super) fn remove_answer(&self, number: u64) {
        lock(&self.answers).remove(&number);
    }

    /// Registers the metrics of these connections.
    pub fn register_metrics(self: &Arc<Self>, registry: &MetricsRegistry) {
        let tracker = self.clone();
        registry.register_scraped_gauge("windlass_server_connections", "Open connections", move || {
            let (total, unauthenticated) = {
                let open = tracker.lock();
                (open.total, open.unauthenticated.len())
            };
            let authenticated = total.saturating_sub(unauthenticated);
            vec![
                ([("authenticated", "true")], authenticated),
                ([("authenticated", "false")], unauthenticated),
            ]
        });
        let counter = |name, help, read: fn(&ConnectionCounters) -> CounterSamples| {
            let tracker = self.clone();
            registry.register_scraped_counter(name, help, move || read(&tracker.counts));
        };
        counter(
            "windlass_server_connections_refused",
            "Connections refused, by the limit exceeded",
            |counts| {
                let limit = |name, count: &AtomicU64| (vec![("limit", name)], count.load(Relaxed));
                vec![limit("total", &counts.refused_total), limit("address", &counts.refused_address)]
            },
        );
        counter(
            "windlass_server_connections_closed",
            "Connections closed by the server, by reason",
            |counts| {
                let reason = |name, count: &AtomicU64| (vec![("reason", name)], count.load(Relaxed));
                vec![
                    reason("evicted", &counts.evicted),
                    reason("idle", &counts.idle),
                    reason("unread", &counts.unread),
                ]
            },
        );
        counter(
            "windlass_server_streams_reset",
            "HTTP/2 streams reset because the client did not read",
            |counts| vec![(Vec::new(), counts.streams_reset.load(Relaxed))],
        );
        counter(
            "windlass_server_accept_errors",
            "Connections that could not be accepted, for example because the process is out of file descriptors",
            |counts| vec![(Vec::new(), counts.accept_errors.load(Relaxed))],
        );
    }

    fn lock(&self) -> MutexGuard<'_, OpenConnections> {
        lock(&self.open)
    }
}

/// Counts a connection until dropped. The connection state itself may be dropped by any holder,
/// under any lock.
pub(super) struct ConnectionGuard(pub(super) Arc<ConnectionState>);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.connections.lock().remove(&self.0);
    }
}

impl OpenConnections {
    /// Removes the connections evicted for a new one from `address`.
    fn evict_for(
        &mut self,
        limits: &ConnectionLimits,
        address: IpAddr,
    ) -> Result<Vec<Arc<ConnectionState>>, ExceededLimit> {
        let mut evicted = Vec::new();
        if self.addresses.get(&address).is_some_and(|count| *count >= limits.per_address) {
            let oldest = self.oldest_idle(Some(address)).ok_or(ExceededLimit::Address)?;
            self.remove(&oldest);
            evicted.push(oldest);
        }
        let full = self.total >= limits.total;
        if full || self.unauthenticated.len() >= limits.unauthenticated {
            let oldest = self.oldest_idle(None).ok_or(ExceededLimit::Total)?;
            self.remove(&oldest);
            evicted.push(oldest);
        }
        Ok(evicted)
    }

    /// Returns the oldest unauthenticated connection without an open request.
    fn oldest_idle(&self, address: Option<IpAddr>) -> Option<Arc<ConnectionState>> {
        let connections = self.unauthenticated.values().filter_map(Weak::upgrade);
        connections
            .filter(|connection| address.is_none_or(|address| connection.address == address))
            .find(|connection| connection.is_idle())
    }

    fn insert(&mut self, connection: &Arc<ConnectionState>) {
        self.total += 1;
        *self.addresses.entry(connection.address).or_default() += 1;
        self.unauthenticated.insert(connection.id, Arc::downgrade(connection));
    }

    /// Removes a connection from all counts, once.
    fn remove(&mut self, connection: &ConnectionState) {
        if !connection.release() {
            return;
        }
        self.total -= 1;
        self.unauthenticated.remove(&connection.id);
        if let Some(count) = self.addresses.get_mut(&connection.address) {
            *count -= 1;
            if *count == 0 {
                self.addresses.remove(&connection.address);
            }
        }
    }
}

/// Returns the unit of per-address limits: an IPv6 host can use any address of its /64.
fn prefix(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (!0 << 64)).into(),
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests;
