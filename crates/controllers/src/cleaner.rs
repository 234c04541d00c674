//! Deletes requests that are settled, or that nobody settles: those for certificates, and those
//! of pods.
//!
//! Each object has its own moment, so nothing is kept much longer than it is to be, and a delete
//! names the object as it was seen: one that changed, or that has the same name, stays.

mod deadline;
mod deadline_queue;

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::api::{DeleteParams, DynamicObject, ObjectMeta};
use kube::core::ApiResource;
use kube::runtime::watcher::Event;
use kube::{Api, Client, ResourceExt as _};
use time::OffsetDateTime;
use tokio::sync::Notify;

use crate::csr::{Csr, is_conflict, is_not_found};
use crate::metrics::CLEANING;
use crate::namespaced_name::NamespacedName;
use crate::options::Clock;
use crate::resource_watch::{self, Metadata};
use crate::work_queue::{RetryBackoff, WorkQueue};
use crate::workers::{self, ReconcileOutcome};

use deadline_queue::DeadlineQueue;

const WORKERS: usize = 4;
const BACKOFF: RetryBackoff =
    RetryBackoff::new(Duration::from_millis(200), Duration::from_secs(60));

/// Removes requests of the cluster; does not end.
pub async fn run_csr_cleaner(client: Client, clock: Clock) {
    let cleaner = Arc::new(RequestCleaner::new(clock));
    let api: Api<Csr> = Api::all(client);
    let watch = resource_watch::watch_objects(
        api.clone(),
        "certificatesigningrequests",
        None,
        &CLEANING,
        {
            let mut listed = HashSet::new();
            let cleaner = cleaner.clone();
            move |event| {
                cleaner.observe(event, &mut listed, |request: &Csr| {
                    (request.name_any(), &request.metadata, deadline::csr_deadline(request))
                });
            }
        },
    );
    let delete = move |name: String, how: DeleteParams| {
        let api = api.clone();
        async move { api.delete(&name, &how).await.map(drop) }
    };
    tokio::join!(watch, cleaner.run(delete));
}

/// Removes pods' requests, of which only the age matters; does not end.
pub async fn run_pod_request_cleaner(client: Client, resource: ApiResource, clock: Clock) {
    let cleaner = Arc::new(RequestCleaner::new(clock));
    let watch = resource_watch::watch_metadata(client.clone(), &resource, None, &CLEANING, {
        let mut listed = HashSet::new();
        let cleaner = cleaner.clone();
        move |event| {
            cleaner.observe(event, &mut listed, |request: &Metadata| {
                let key = NamespacedName::from_object(request);
                let created = request.metadata.creation_timestamp.as_ref();
                (key, &request.metadata, created.and_then(deadline::pod_request_deadline))
            });
        }
    });
    let resource = resource.clone();
    let delete = move |key: NamespacedName, how: DeleteParams| {
        let api: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), &key.namespace, &resource);
        async move { api.delete(&key.name, &how).await.map(drop) }
    };
    tokio::join!(watch, cleaner.run(delete));
}

struct RequestCleaner<K> {
    agenda: Mutex<DeadlineQueue<K>>,
    changed: Notify,
    queue: Arc<WorkQueue<K>>,
    clock: Clock,
}

impl<K: Clone + Ord + Hash + std::fmt::Display + Send + 'static> RequestCleaner<K> {
    fn new(clock: Clock) -> RequestCleaner<K> {
        let queue = Arc::new(WorkQueue::new(&CLEANING, BACKOFF));
        RequestCleaner {
            agenda: Mutex::new(DeadlineQueue::new()),
            changed: Notify::new(),
            queue,
            clock,
        }
    }

    /// Notes what a watch tells. `read` finds an object's key and how long it is kept.
    fn observe<O>(
        &self,
        event: Event<O>,
        listed: &mut HashSet<K>,
        read: impl Fn(&O) -> (K, &ObjectMeta, Option<OffsetDateTime>),
    ) {
        let put = |object: &O| {
            let (key, meta, deadline) = read(object);
            match deadline {
                Some(deadline) => self.lock().insert(key, meta, deadline, (self.clock)()),
                None => self.lock().remove_key(&key),
            }
        };
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(object) => {
                listed.insert(read(&object).0);
                put(&object);
            }
            Event::InitDone => self.lock().retain(&std::mem::take(listed)),
            Event::Apply(object) => put(&object),
            Event::Delete(object) => self.lock().remove_key(&read(&object).0),
        }
        self.changed.notify_one();
    }

    /// Deletes what is due when it is; does not end.
    async fn run<F, R>(self: Arc<Self>, delete: F)
    where
        F: Fn(K, DeleteParams) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Result<(), kube::Error>> + Send + 'static,
    {
        let reconcile = |key: K| {
            let (cleaner, delete) = (self.clone(), delete.clone());
            async move { cleaner.clean(key, delete).await }
        };
        tokio::join!(self.enqueue_due(), workers::run(self.queue.clone(), WORKERS, reconcile));
    }

    async fn enqueue_due(&self) {
        loop {
            let (due, next) = {
                let mut agenda = self.lock();
                (agenda.pop_due((self.clock)()), agenda.next_due())
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

    async fn clean<F, R>(&self, key: K, delete: F) -> anyhow::Result<ReconcileOutcome>
    where
        F: Fn(K, DeleteParams) -> R,
        R: Future<Output = Result<(), kube::Error>>,
    {
        let Some(preconditions) = self.lock().preconditions(&key, (self.clock)()) else {
            return Ok(ReconcileOutcome::Done);
        };
        let how = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match delete(key.clone(), how).await {
            Ok(()) => Ok(ReconcileOutcome::Done),
            Err(error) if is_not_found(&error) => Ok(ReconcileOutcome::Done),
            // It changed: the watch brings it, with another moment.
            Err(error) if is_conflict(&error) => {
                Ok(ReconcileOutcome::Requeue("it was changed meanwhile".into()))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, DeadlineQueue<K>> {
        self.agenda.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
