//! The server's state, shared by all requests.

use std::sync::Arc;

use time::OffsetDateTime;
use tokio::sync::watch;
use windlass_store::Store;

use crate::cache::Caches;
use crate::chain::authn::Authenticator;
use crate::metrics::Metrics;
use crate::registry::Registry;

/// Everything a request needs.
pub struct Server {
    /// Where objects are durable.
    pub store: Arc<dyn Store>,
    /// Where they are read from.
    pub caches: Arc<Caches>,
    /// Which kinds there are.
    pub registry: Registry,
    /// Who calls.
    pub authenticator: Authenticator,
    /// What is counted.
    pub metrics: Metrics,
    /// The wall clock.
    pub clock: Clock,
    /// Signs service-account tokens.
    pub tokens: Option<crate::tokens::TokenSigner>,
    /// Turns true when the server goes down; watches end then.
    pub shutdown: watch::Receiver<bool>,
}

/// Reads the time; an argument so that tests can set it.
pub type Clock = Arc<dyn Fn() -> OffsetDateTime + Send + Sync>;

/// The machine's own clock.
pub fn system_clock() -> Clock {
    Arc::new(OffsetDateTime::now_utc)
}

/// How many changes of the past are read back at a start, so that watches go on across it.
const REMEMBERED: usize = 10_000;

/// Fills caches from the store and keeps them up to date from then on.
pub async fn attach(
    store: &Arc<dyn Store>,
    caches: &Arc<Caches>,
) -> Result<(), windlass_store::Error> {
    let mut after: Option<String> = None;
    let mut revision = None;
    loop {
        let range = windlass_store::Range {
            prefix: String::new(),
            after: after.take(),
            limit: Some(5_000),
            at: revision,
        };
        let page = store.range(range).await?;
        for (key, stored) in &page.items {
            caches.load(key, stored.revision, &stored.value);
        }
        revision = Some(page.revision);
        match page.items.last() {
            Some((key, _)) if page.more => after = Some(key.clone()),
            _ => break,
        }
    }
    let revision = revision.unwrap_or_default();
    let floor = store.floor().max(revision.saturating_sub(REMEMBERED as u64));
    caches.loaded(revision, floor);
    let past = store.history(floor, REMEMBERED).await?;
    let past: Vec<_> = past.into_iter().take_while(|e| e.revision <= revision).collect();
    caches.remember(&past);
    let feed = caches.clone();
    store.follow(revision, Box::new(move |events| feed.apply(events)))
}
