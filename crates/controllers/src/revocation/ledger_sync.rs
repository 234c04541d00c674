//! Watches CertificateRevocations, completes their status, and records them in the ledger.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client};
use serde_json::json;
use time::OffsetDateTime;
use windlass_api::timestamp;
use windlass_runtime::backoff::Backoff;
use windlass_runtime::watch::{RelistBuffer, SnapshotEvent, watch_objects};
use windlass_runtime::work_queue::WorkQueue;
use windlass_runtime::workers::{Requeue, run_workers};

use super::RevocationContext;
use super::cache::RevocationCache;
use super::ledger_plan::{LedgerChange, is_hold, plan};
use super::object::{self, CertificateKey, KnownRevocation};
use super::publisher::ListPublisher;
use crate::csr::is_not_found;
use crate::ledger::Ledger;
use crate::metrics::REVOCATIONS;
use crate::options::Clock;

/// Revocations that are recorded concurrently. Those that wait together are recorded with one write.
const WORKERS: usize = 64;
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(60));

/// Keeps the ledger in line with the objects.
pub struct LedgerSync {
    api: Api<DynamicObject>,
    resource: ApiResource,
    cache: Arc<RevocationCache>,
    publisher: Arc<ListPublisher>,
    ledger: Ledger,
    clock: Clock,
    queue: Arc<WorkQueue<String>>,
}

impl LedgerSync {
    pub fn new(
        client: Client,
        resource: ApiResource,
        cache: Arc<RevocationCache>,
        publisher: Arc<ListPublisher>,
        context: &RevocationContext,
    ) -> Arc<LedgerSync> {
        Arc::new(LedgerSync {
            api: Api::all_with(client, &resource),
            resource,
            cache,
            publisher,
            ledger: context.ledger.clone(),
            clock: context.clock.clone(),
            queue: Arc::new(WorkQueue::new(context.metrics.queue(REVOCATIONS), BACKOFF)),
        })
    }

    /// Records revocations until the future is dropped.
    pub async fn run(self: Arc<Self>) -> Infallible {
        let mut buffer = RelistBuffer::default();
        let metrics = self.queue.metrics();
        let plural = self.resource.plural.clone();
        let watch = watch_objects(self.api.clone(), &plural, Config::default(), metrics, |event| {
            if let Ok(event) = event {
                self.observe(&mut buffer, event);
            }
        });
        let loaded = async {
            self.ledger.wait_until_loaded().await;
            self.enqueue_all();
            self.publisher.note_all();
        };
        let reconcile = |name: String| self.clone().reconcile(name);
        let workers = run_workers(self.queue.clone(), WORKERS, reconcile);
        tokio::join!(watch, loaded, workers).0
    }

    fn observe(
        &self,
        buffer: &mut RelistBuffer<Option<(CertificateKey, KnownRevocation)>>,
        event: Event<DynamicObject>,
    ) {
        match buffer.push(event, |object| object::parse_or_log(&object)) {
            None | Some(SnapshotEvent::Applied(None)) => {}
            Some(SnapshotEvent::Applied(Some((key, revocation)))) => {
                if self.cache.set(&key, revocation) {
                    self.publisher.note_changes([&key.0]);
                }
                self.enqueue(&key);
            }
            Some(SnapshotEvent::Deleted(found)) => {
                let Some((key, _)) = object::parse(&found) else { return };
                self.cache.remove(&key);
                self.publisher.note_changes([&key.0]);
                self.enqueue(&key);
            }
            Some(SnapshotEvent::Replaced(all)) => {
                let changed = self.cache.replace(all.into_iter().flatten().collect());
                self.publisher.note_changes(changed.iter().map(|(authority, _)| authority));
                self.enqueue_all();
            }
        }
    }

    /// Enqueues all certificates with an object, and those that the ledger has on hold.
    fn enqueue_all(&self) {
        let held = self.ledger.revocations(|_, info| is_hold(info.reason));
        let held = held.into_iter().map(|(authority, serial, _)| (authority, serial));
        self.cache.keys().into_iter().chain(held).for_each(|key| self.enqueue(&key));
    }

    /// Enqueues a certificate if something is to be done for it.
    fn enqueue(&self, key: &CertificateKey) {
        let is_complete = self.cache.get(key).is_none_or(|object| object.has_time);
        if !is_complete || matches!(self.plan(key), LedgerChange::Append(_)) {
            self.queue.add(object::name(key));
        }
    }

    fn plan(&self, key: &CertificateKey) -> LedgerChange {
        // All are enqueued again when both have been read.
        if !self.cache.is_synced() || self.ledger.is_loaded() != Some(true) {
            return LedgerChange::None;
        }
        let object = self.cache.get(key);
        let is_own = |object: &KnownRevocation| self.publisher.is_used_by(&key.0, &object.signer);
        let recorded = self.ledger.revocation(&key.0, key.1);
        let change = plan(key, &recorded, object.as_deref(), is_own, (self.clock)().unix_timestamp());
        if let LedgerChange::ForeignSigner(signer) = &change {
            let name = object::name(key);
            tracing::warn!(name, signer, "CertificateRevocation names another signer; ignoring it");
        }
        change
    }

    async fn reconcile(self: Arc<Self>, name: String) -> anyhow::Result<Requeue> {
        let Some(key) = object::parse_name(&name) else { return Ok(Requeue::Done) };
        if let Some(object) = self.cache.get(&key).filter(|object| !object.has_time) {
            self.set_revoked_time(&name, &object).await?;
        }
        if let LedgerChange::Append(record) = self.plan(&key) {
            self.ledger.revoke(record).await?;
        }
        Ok(Requeue::Done)
    }

    /// Sets the time where the server did not. It is that of the object, so that it does not depend on when a controller
    /// ran.
    async fn set_revoked_time(&self, name: &str, object: &KnownRevocation) -> Result<(), kube::Error> {
        let Ok(time) = OffsetDateTime::from_unix_timestamp(object.revoked_at) else { return Ok(()) };
        let body = json!({
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": {"name": name},
            "status": {"revokedTime": timestamp::format(time)},
        });
        match self.api.patch_status(name, &PatchParams::default(), &Patch::Merge(body)).await {
            Err(error) if !is_not_found(&error) => Err(error),
            _ => Ok(()),
        }
    }
}
