//! Time until which this process is the leader, and a client that does not write after that.

use kube::Client;
use kube::client::Body;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request};
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::options::Clock;

/// Time until which this process leads. A process that was suspended finds it exceeded when it resumes, before it has
/// read anything.
pub struct LeaseGuard {
    until: watch::Sender<Option<DualClockTime>>,
    clock: Clock,
}

/// A time by two clocks: the monotonic one may stop during suspend, and the wall clock can be set. A deadline has
/// passed if it has passed by either.
#[derive(Clone, Copy, Debug)]
pub struct DualClockTime {
    monotonic: Instant,
    wall: OffsetDateTime,
}

/// Error of a request that was not sent.
#[derive(Debug)]
struct NotLeading;

impl LeaseGuard {
    /// Creates a guard for a process that does not lead yet.
    pub fn new(clock: Clock) -> LeaseGuard {
        LeaseGuard { until: watch::Sender::new(None), clock }
    }

    /// Returns the current time of the monotonic and the wall clock.
    pub fn now(&self) -> DualClockTime {
        DualClockTime { monotonic: Instant::now(), wall: (self.clock)() }
    }

    /// Extends the leadership to `lasts` after `from`.
    pub fn extend(&self, from: DualClockTime, lasts: Duration) {
        let wall = from.wall.checked_add(lasts.try_into().unwrap_or(time::Duration::ZERO));
        let until = DualClockTime { monotonic: from.monotonic + lasts, wall: wall.unwrap_or(from.wall) };
        self.until.send_replace(Some(until));
    }

    pub fn end(&self) {
        self.until.send_replace(None);
    }

    /// Returns when the leadership ends; `None` if this process does not lead.
    pub fn deadline(&self) -> Option<Instant> {
        self.until.borrow().map(|until| until.monotonic)
    }

    /// Whether this process leads now by both clocks.
    pub fn is_leading(&self) -> bool {
        let (now, until) = (self.now(), *self.until.borrow());
        until.is_some_and(|until| now.monotonic < until.monotonic && now.wall < until.wall)
    }

    /// Waits until this process does not lead.
    pub async fn wait_until_lost(&self) {
        let mut changes = self.until.subscribe();
        while self.is_leading() {
            changes.mark_unchanged();
            let Some(deadline) = self.deadline() else { return };
            let _ = tokio::time::timeout_at(deadline, changes.changed()).await;
        }
    }
}

/// Creates a client that reads like `client` and writes only while this process leads. Writes that are under way when
/// the leadership ends are cancelled.
///
/// Bytes on the network cannot be recalled; the difference between the renew deadline and the lease duration accounts
/// for them.
pub fn fenced_client(client: &Client, lease_guard: Arc<LeaseGuard>) -> Client {
    let namespace = client.default_namespace().to_owned();
    let client = client.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, lease_guard) = (client.clone(), lease_guard.clone());
        async move {
            if is_read(request.method()) {
                return client.send(request).await;
            }
            tokio::select! {
                biased;
                () = lease_guard.wait_until_lost() => Err(kube::Error::Service(Box::new(NotLeading))),
                answer = client.send(request) => answer,
            }
        }
    });
    Client::new(service, namespace)
}

fn is_read(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS].contains(method)
}

impl std::fmt::Display for NotLeading {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("not written: another process may be the leader")
    }
}

impl std::error::Error for NotLeading {}
