//! Garbage collector: deletes objects whose owners are gone, according to their owner references and the propagation
//! policy.
//!
//! Watches of all kinds maintain an [owner graph](graph::OwnerGraph). It only selects candidates: the
//! [decision](decision::decide) is based on what the server returns at that moment.

mod decision;
mod executor;
mod graph;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::Client;
use kube::runtime::watcher::Event;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use windlass_runtime::backoff::Backoff;
use windlass_runtime::metrics::ControllerMetrics;
use windlass_runtime::watch::{ObjectMetadata, watch_metadata};
use windlass_runtime::work_queue::WorkQueue;
use windlass_runtime::workers::run_workers;

use crate::api_catalog::{ApiCatalog, CatalogSnapshot, ServedResource};
use crate::namespaces::TerminatingNamespaces;
use crate::uid::ObjectUid;

use graph::{KindId, OwnerGraph};

const WORKERS: usize = 8;
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_secs(300));

/// Kinds without owners and dependents that exist in large numbers.
const IGNORED: [(&str, &str); 2] = [("", "events"), ("events.k8s.io", "events")];

/// Runs the controller. Returns only if a watch panicked.
pub async fn run(
    client: Client,
    catalog: Arc<ApiCatalog>,
    terminating: Arc<TerminatingNamespaces>,
    metrics: Arc<ControllerMetrics>,
) {
    let collector = Arc::new(GarbageCollector {
        client,
        catalog,
        terminating,
        queue: Arc::new(WorkQueue::new(metrics, BACKOFF)),
        graph: Mutex::new(OwnerGraph::new()),
        complete: watch::channel(false).0,
    });
    let work = async {
        let mut complete = collector.complete.subscribe();
        // The sender lives as long as the garbage collector.
        let _ = complete.wait_for(|complete| *complete).await;
        let reconcile = |uid| executor::reconcile(collector.clone(), uid);
        run_workers(collector.queue.clone(), WORKERS, reconcile).await;
    };
    tokio::join!(watch_all(collector.clone()), work);
}

/// State that watches and workers share.
struct GarbageCollector {
    client: Client,
    catalog: Arc<ApiCatalog>,
    terminating: Arc<TerminatingNamespaces>,
    queue: Arc<WorkQueue<ObjectUid>>,
    graph: Mutex<OwnerGraph>,
    /// Turns true when every kind was listed once. Nothing is deleted before.
    complete: watch::Sender<bool>,
}

impl GarbageCollector {
    fn graph(&self) -> MutexGuard<'_, OwnerGraph> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enqueue(&self, uids: impl IntoIterator<Item = ObjectUid>) {
        for uid in uids {
            self.queue.add(uid);
        }
    }

    /// Applies a watch event to the graph.
    fn observe(&self, kind: KindId, event: Event<ObjectMetadata>) {
        let mut graph = self.graph();
        let affected = match event {
            Event::Init => {
                graph.begin_listing(kind);
                return;
            }
            Event::InitApply(object) | Event::Apply(object) => graph.observe(kind, &object.metadata),
            Event::Delete(object) => {
                if let Some(namespace) = &object.metadata.namespace {
                    self.terminating.object_removed(namespace);
                }
                let uid = object.metadata.uid.as_deref().unwrap_or_default();
                graph.remove(&ObjectUid::from(uid))
            }
            Event::InitDone => graph.finish_listing(kind),
        };
        if *self.complete.borrow() {
            drop(graph);
            self.enqueue(affected);
        } else if graph.first_unlisted_kind().is_none() {
            let suspects = graph.suspects();
            drop(graph);
            self.enqueue(suspects);
            self.complete.send_replace(true);
        }
    }
}

/// Watches every kind that supports watch and delete, as discovery finds them.
async fn watch_all(collector: Arc<GarbageCollector>) {
    let mut changes = collector.catalog.changes();
    let mut watches = JoinSet::new();
    let mut watched: HashMap<KindId, AbortHandle> = HashMap::new();
    loop {
        let snapshot = changes.borrow_and_update().clone();
        let wanted = collectable_resources(&snapshot);
        let (new, gone) = collector.graph().set_kinds(&wanted, &snapshot.failures);
        for kind in gone {
            if let Some(handle) = watched.remove(&kind) {
                handle.abort();
            }
            let orphaned = collector.graph().remove_kind(kind);
            collector.enqueue(orphaned);
        }
        for (kind, resource) in new {
            let collector = collector.clone();
            let handle = watches.spawn(async move {
                let client = collector.client.clone();
                watch_metadata(client, &resource.api, None, collector.queue.metrics(), |event| {
                    collector.observe(kind, event);
                })
                .await;
            });
            watched.insert(kind, handle);
        }
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            // A watch that was not aborted here has panicked; the supervisor restarts the controller.
            Some(Err(error)) = watches.join_next() => if error.is_panic() { return },
        }
    }
}

fn collectable_resources(snapshot: &CatalogSnapshot) -> Vec<Arc<ServedResource>> {
    let all = snapshot.preferred(&["delete", "list", "watch"]);
    all.filter(|resource| !IGNORED.contains(&resource.group_resource())).cloned().collect()
}
