//! Deletes requests whose retention period has ended: CertificateSigningRequests that are answered or that nobody
//! answers, and PodCertificateRequests.
//!
//! Each object has its own deadline, so none is kept much longer than intended. A delete has the UID and resource version
//! as preconditions: an object that changed, or another one of the same name, stays.

mod deadline;
mod deadline_queue;

use std::convert::Infallible;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::api::{DeleteParams, DynamicObject, ObjectMeta};
use kube::core::ApiResource;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client, ResourceExt as _};
use time::OffsetDateTime;
use tokio::sync::Notify;
use windlass_runtime::backoff::Backoff;
use windlass_runtime::watch::{ListTracker, TrackedEvent, watch_metadata, watch_objects};
use windlass_runtime::work_queue::WorkQueue;
use windlass_runtime::workers::{Requeue, run_workers};

use crate::csr::{Csr, write_outcome};
use crate::metrics::{CLEANING, MetricFamilies};
use crate::namespaced_name::NamespacedName;
use crate::options::Clock;

use deadline_queue::DeadlineQueue;

const WORKERS: usize = 4;
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(60));

/// Deletes CertificateSigningRequests when they are due.
pub async fn run_csr_cleaner(client: Client, clock: Clock, metrics: Arc<MetricFamilies>) -> Infallible {
    let cleaner = Arc::new(RequestCleaner::new(clock, &metrics));
    let api: Api<Csr> = Api::all(client);
    let mut tracker = ListTracker::default();
    let (plural, config) = ("certificatesigningrequests", Config::default());
    let watch = watch_objects(api.clone(), plural, config, cleaner.queue.metrics(), |event| {
        let Ok(event) = event else { return };
        cleaner.observe(event, &mut tracker, Csr::name_any, |request| {
            (&request.metadata, deadline::csr_deadline(request))
        });
    });
    let delete = |name: String, params: DeleteParams| {
        let api = api.clone();
        async move { api.delete(&name, &params).await.map(drop) }
    };
    tokio::join!(watch, cleaner.clone().run(delete)).0
}

/// Deletes PodCertificateRequests, of which only the age matters.
pub async fn run_pod_request_cleaner(
    client: Client,
    resource: ApiResource,
    clock: Clock,
    metrics: Arc<MetricFamilies>,
) -> Infallible {
    let cleaner = Arc::new(RequestCleaner::new(clock, &metrics));
    let mut tracker = ListTracker::default();
    let metrics = cleaner.queue.metrics();
    let watch = watch_metadata(client.clone(), &resource, None, metrics, |event| {
        cleaner.observe(event, &mut tracker, NamespacedName::from_object, |request| {
            let created = request.metadata.creation_timestamp.as_ref();
            (&request.metadata, created.and_then(deadline::pod_request_deadline))
        });
    });
    let delete = |key: NamespacedName, params: DeleteParams| {
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &key.namespace, &resource);
        async move { api.delete(&key.name, &params).await.map(drop) }
    };
    tokio::join!(watch, cleaner.clone().run(delete)).0
}

struct RequestCleaner<K> {
    deadlines: Mutex<DeadlineQueue<K>>,
    changed: Notify,
    queue: Arc<WorkQueue<K>>,
    clock: Clock,
}

impl<K: Clone + Ord + Hash + std::fmt::Display + Send + 'static> RequestCleaner<K> {
    fn new(clock: Clock, metrics: &MetricFamilies) -> RequestCleaner<K> {
        let queue = Arc::new(WorkQueue::new(metrics.queue(CLEANING), BACKOFF));
        RequestCleaner { deadlines: Mutex::new(DeadlineQueue::new()), changed: Notify::new(), queue, clock }
    }

    /// Applies a watch event. `read` returns the metadata of an object and the time at which it is deleted.
    fn observe<O>(
        &self,
        event: Event<O>,
        tracker: &mut ListTracker<K>,
        key: impl Fn(&O) -> K,
        read: impl Fn(&O) -> (&ObjectMeta, Option<OffsetDateTime>),
    ) {
        match tracker.track(event, key) {
            Some(TrackedEvent::Applied(key, object)) => match read(&object) {
                (meta, Some(deadline)) => self.lock().insert(key, meta, deadline, (self.clock)()),
                (_, None) => self.lock().remove_key(&key),
            },
            Some(TrackedEvent::Deleted(key, _)) => self.lock().remove_key(&key),
            Some(TrackedEvent::Listed(keys)) => self.lock().retain(&keys),
            None => {}
        }
        self.changed.notify_one();
    }

    /// Deletes objects when they are due.
    async fn run<F, R>(self: Arc<Self>, delete: F) -> Infallible
    where
        F: Fn(K, DeleteParams) -> R,
        R: Future<Output = Result<(), kube::Error>> + Send + 'static,
    {
        let reconcile = |key: K| {
            let preconditions = self.lock().preconditions(&key, (self.clock)());
            let deletion = preconditions.map(|preconditions| {
                let preconditions = Some(preconditions);
                delete(key, DeleteParams { preconditions, ..DeleteParams::default() })
            });
            async move {
                match deletion {
                    // An object that changed is retried: the watch brings it with another deadline.
                    Some(deletion) => write_outcome(deletion.await.map(|()| Requeue::Done)),
                    None => Ok(Requeue::Done),
                }
            }
        };
        tokio::join!(self.enqueue_due(), run_workers(self.queue.clone(), WORKERS, reconcile)).0
    }

    async fn enqueue_due(&self) -> Infallible {
        loop {
            let (due, next) = {
                let mut deadlines = self.lock();
                (deadlines.pop_due((self.clock)()), deadlines.next_due())
            };
            for key in due {
                self.queue.add(key);
            }
            match next {
                Some(next) => {
                    let _ = tokio::time::timeout_at(next, self.changed.notified()).await;
                }
                None => self.changed.notified().await,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, DeadlineQueue<K>> {
        self.deadlines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
