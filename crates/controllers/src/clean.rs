//! Deletes requests that are settled, or that nobody settles: those for certificates, and those
//! of pods.
//!
//! Each object has its own moment, so nothing is kept much longer than it is to be, and a delete
//! names the object as it was seen: one that changed, or that has the same name, stays.

mod agenda;
mod deadline;

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

use crate::feed::{self, Metadata};
use crate::metrics::CLEANING;
use crate::namespaced::Namespaced;
use crate::options::Clock;
use crate::pool::{self, Next};
use crate::queue::{Backoff, Queue};
use crate::requests::{Request, is_conflict, is_gone};

use agenda::Agenda;

const WORKERS: usize = 4;
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(60));

/// Removes requests of the cluster; does not end.
pub async fn requests(client: Client, clock: Clock) {
    let cleaner = Arc::new(Cleaner::new(clock));
    let api: Api<Request> = Api::all(client);
    let watch = feed::follow_whole(api.clone(), "certificatesigningrequests", None, &CLEANING, {
        let mut listed = HashSet::new();
        let cleaner = cleaner.clone();
        move |event| {
            cleaner.see(event, &mut listed, |request: &Request| {
                (request.name_any(), &request.metadata, deadline::of_request(request))
            });
        }
    });
    let delete = move |name: String, how: DeleteParams| {
        let api = api.clone();
        async move { api.delete(&name, &how).await.map(drop) }
    };
    tokio::join!(watch, cleaner.work(delete));
}

/// Removes pods' requests, of which only the age matters; does not end.
pub async fn pod_requests(client: Client, resource: ApiResource, clock: Clock) {
    let cleaner = Arc::new(Cleaner::new(clock));
    let watch = feed::follow(client.clone(), &resource, None, &CLEANING, {
        let mut listed = HashSet::new();
        let cleaner = cleaner.clone();
        move |event| {
            cleaner.see(event, &mut listed, |request: &Metadata| {
                let key = Namespaced::of(request);
                let created = request.metadata.creation_timestamp.as_ref();
                (key, &request.metadata, created.and_then(deadline::of_pod_request))
            });
        }
    });
    let resource = resource.clone();
    let delete = move |key: Namespaced, how: DeleteParams| {
        let api: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), &key.namespace, &resource);
        async move { api.delete(&key.name, &how).await.map(drop) }
    };
    tokio::join!(watch, cleaner.work(delete));
}

struct Cleaner<K> {
    agenda: Mutex<Agenda<K>>,
    changed: Notify,
    queue: Arc<Queue<K>>,
    clock: Clock,
}

impl<K: Clone + Ord + Hash + std::fmt::Display + Send + 'static> Cleaner<K> {
    fn new(clock: Clock) -> Cleaner<K> {
        let queue = Arc::new(Queue::new(&CLEANING, BACKOFF));
        Cleaner { agenda: Mutex::new(Agenda::new()), changed: Notify::new(), queue, clock }
    }

    /// Notes what a watch tells. `read` finds an object's key and how long it is kept.
    fn see<O>(
        &self,
        event: Event<O>,
        listed: &mut HashSet<K>,
        read: impl Fn(&O) -> (K, &ObjectMeta, Option<OffsetDateTime>),
    ) {
        let put = |object: &O| {
            let (key, meta, deadline) = read(object);
            match deadline {
                Some(deadline) => self.lock().put(key, meta, deadline, (self.clock)()),
                None => self.lock().forget(&key),
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
            Event::Delete(object) => self.lock().forget(&read(&object).0),
        }
        self.changed.notify_one();
    }

    /// Deletes what is due when it is; does not end.
    async fn work<F, R>(self: Arc<Self>, delete: F)
    where
        F: Fn(K, DeleteParams) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Result<(), kube::Error>> + Send + 'static,
    {
        let reconcile = |key: K| {
            let (cleaner, delete) = (self.clone(), delete.clone());
            async move { cleaner.clean(key, delete).await }
        };
        tokio::join!(self.wait(), pool::work(self.queue.clone(), WORKERS, reconcile));
    }

    async fn wait(&self) {
        loop {
            let (due, next) = {
                let mut agenda = self.lock();
                (agenda.due((self.clock)()), agenda.next())
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

    async fn clean<F, R>(&self, key: K, delete: F) -> anyhow::Result<Next>
    where
        F: Fn(K, DeleteParams) -> R,
        R: Future<Output = Result<(), kube::Error>>,
    {
        let Some(preconditions) = self.lock().preconditions(&key, (self.clock)()) else {
            return Ok(Next::Done);
        };
        let how = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match delete(key.clone(), how).await {
            Ok(()) => Ok(Next::Done),
            Err(error) if is_gone(&error) => Ok(Next::Done),
            // It changed: the watch brings it, with another moment.
            Err(error) if is_conflict(&error) => Ok(Next::Wait("it was changed meanwhile".into())),
            Err(error) => Err(error.into()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Agenda<K>> {
        self.agenda.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
