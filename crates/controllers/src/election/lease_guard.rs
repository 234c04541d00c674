//! How long we may act as the leader, and a client that does not write beyond that.

use kube::Client;
use kube::client::Body;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request};
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::options::Clock;

/// The time until which we lead. A process that was stopped for a while finds it over when it goes
/// on, before it has learnt anything else.
pub struct LeaseGuard {
    until: watch::Sender<Option<DualClockTime>>,
    clock: Clock,
}

/// A time by two clocks. One stands still while the machine sleeps, the other can be set; what is
/// over by either is over.
#[derive(Clone, Copy, Debug)]
pub struct DualClockTime {
    monotonic: Instant,
    wall: OffsetDateTime,
}

/// Why a request was not sent.
#[derive(Debug)]
struct NotLeading;

impl LeaseGuard {
    /// Creates a guard for a process that does not lead yet.
    pub fn new(clock: Clock) -> LeaseGuard {
        LeaseGuard { until: watch::Sender::new(None), clock }
    }

    /// The current time by both the monotonic and the wall clock.
    pub fn now(&self) -> DualClockTime {
        DualClockTime { monotonic: Instant::now(), wall: (self.clock)() }
    }

    /// We lead for so long after a moment.
    pub fn extend(&self, from: DualClockTime, lasts: Duration) {
        let wall = from.wall.checked_add(lasts.try_into().unwrap_or(time::Duration::ZERO));
        let until =
            DualClockTime { monotonic: from.monotonic + lasts, wall: wall.unwrap_or(from.wall) };
        self.until.send_replace(Some(until));
    }

    /// We do not lead any more.
    pub fn end(&self) {
        self.until.send_replace(None);
    }

    /// When it ends, if it has not been ended.
    pub fn deadline(&self) -> Option<Instant> {
        self.until.borrow().map(|until| until.monotonic)
    }

    /// Whether this process leads at this moment by both clocks.
    pub fn is_leading(&self) -> bool {
        let (now, until) = (self.now(), *self.until.borrow());
        until.is_some_and(|until| now.monotonic < until.monotonic && now.wall < until.wall)
    }

    /// Returns when we do not lead.
    pub async fn wait_until_lost(&self) {
        let mut changes = self.until.subscribe();
        while self.is_leading() {
            changes.mark_unchanged();
            let Some(deadline) = self.deadline() else { return };
            let _ = tokio::time::timeout_at(deadline, changes.changed()).await;
        }
    }
}

/// A client that reads like `client` but writes only while we lead. What is under way when that
/// ends is given up.
///
/// Bytes that have left cannot be called back; that is what the time between the renewal deadline
/// and the lease's duration is for.
pub fn fenced_client(client: &Client, tenure: Arc<LeaseGuard>) -> Client {
    let namespace = client.default_namespace().to_owned();
    let client = client.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, tenure) = (client.clone(), tenure.clone());
        async move {
            if is_read(request.method()) {
                return client.send(request).await;
            }
            tokio::select! {
                biased;
                () = tenure.wait_until_lost() => Err(kube::Error::Service(Box::new(NotLeading))),
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
        formatter.write_str("another process leads, or may: not written")
    }
}

impl std::error::Error for NotLeading {}
