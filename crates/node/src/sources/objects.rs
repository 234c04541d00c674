//! The ConfigMaps and Secrets that volumes reference, each with its own watch: a node is not
//! authorized to see others.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug};
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::serde::de::DeserializeOwned;
use kube::runtime::watcher::Event;
use kube::{Api, Client, Resource, ResourceExt as _};
use tokio::sync::Semaphore;

use super::{AbortOnDrop, ChangeSender, SourceChange};
use windlass_runtime::watch::{ListTracker, ObjectWatch, TrackedEvent, WatchError, WatchErrorKind};

/// The kind of a watched object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// A ConfigMap of the core API group.
    ConfigMap,
    /// A Secret of the core API group.
    Secret,
}

/// Kind, namespace and name of a watched object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// Whether the object is a ConfigMap or a Secret.
    pub kind: ObjectKind,
    /// The namespace of the object, which is the pod's or projection's.
    pub namespace: String,
    /// The name of the object, as a volume references it.
    pub name: String,
}

/// Cached state of a watched object.
#[derive(Clone)]
pub enum ObjectState<T> {
    /// Not known yet, with the reason if there is one.
    Unknown(Option<String>),
    /// The server has no object of this name.
    Absent,
    /// The object as last received from the watch.
    Present(Arc<T>),
}

/// Cache of the watched ConfigMaps and Secrets.
pub struct ObjectCache {
    client: Client,
    wakes: ChangeSender,
    watched: Mutex<BTreeMap<ObjectId, WatchedObject>>,
    starts: Arc<Semaphore>,
}

/// Number of watches that may start at the same time.
const STARTS: usize = 16;
/// Rejections by the server before they are reported. Right after a pod was bound, the server may
/// not know yet that the node is authorized to see the pod's objects.
const LENIENT: u32 = 2;

impl ObjectCache {
    /// Creates a cache that watches nothing until `set_watched` is called.
    pub fn new(client: Client, wakes: ChangeSender) -> Self {
        let starts = Arc::new(Semaphore::new(STARTS));
        Self { client, wakes, watched: Mutex::default(), starts }
    }

    /// Watches exactly these objects from now on. Existing watches continue.
    pub fn set_watched(&self, wanted: &BTreeSet<ObjectId>) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.retain(|id, _| wanted.contains(id));
        for id in wanted {
            if !watched.contains_key(id) {
                watched.insert(id.clone(), self.watch(id));
            }
        }
    }

    /// Returns the cached state of a ConfigMap; `Unknown` if it is not watched.
    pub fn config_map(&self, namespace: &str, name: &str) -> ObjectState<ConfigMap> {
        match self.slot(ObjectKind::ConfigMap, namespace, name) {
            Some(ObjectSlot::ConfigMap(slot)) => slot.get(),
            Some(ObjectSlot::Secret(_)) | None => ObjectState::Unknown(None),
        }
    }

    /// Returns the cached state of a Secret; `Unknown` if it is not watched.
    pub fn secret(&self, namespace: &str, name: &str) -> ObjectState<Secret> {
        match self.slot(ObjectKind::Secret, namespace, name) {
            Some(ObjectSlot::Secret(slot)) => slot.get(),
            Some(ObjectSlot::ConfigMap(_)) | None => ObjectState::Unknown(None),
        }
    }

    fn slot(&self, kind: ObjectKind, namespace: &str, name: &str) -> Option<ObjectSlot> {
        let id = ObjectId { kind, namespace: namespace.to_owned(), name: name.to_owned() };
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.get(&id).map(|watched| watched.slot.clone())
    }

    fn watch(&self, id: &ObjectId) -> WatchedObject {
        match id.kind {
            ObjectKind::ConfigMap => {
                let slot = Arc::new(CachedObject::default());
                let task = AbortOnDrop::spawn(self.watcher(id, &slot).run());
                WatchedObject { slot: ObjectSlot::ConfigMap(slot), _task: task }
            }
            ObjectKind::Secret => {
                let slot = Arc::new(CachedObject::default());
                let task = AbortOnDrop::spawn(self.watcher(id, &slot).run());
                WatchedObject { slot: ObjectSlot::Secret(slot), _task: task }
            }
        }
    }

    fn watcher<K: ProjectableObject>(&self, id: &ObjectId, slot: &Arc<CachedObject<K>>) -> ObjectWatcher<K> {
        ObjectWatcher {
            api: Api::namespaced(self.client.clone(), &id.namespace),
            id: id.clone(),
            slot: slot.clone(),
            starts: self.starts.clone(),
            wakes: self.wakes.clone(),
            list: ListTracker::default(),
            refusals: 0,
        }
    }
}

/// Never shows the content of the object.
impl<T> Debug for ObjectState<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(why) => f.debug_tuple("Unknown").field(why).finish(),
            Self::Absent => f.write_str("Absent"),
            Self::Present(_) => f.write_str("Is(…)"),
        }
    }
}

struct WatchedObject {
    slot: ObjectSlot,
    _task: AbortOnDrop,
}

#[derive(Clone)]
enum ObjectSlot {
    ConfigMap(Arc<CachedObject<ConfigMap>>),
    Secret(Arc<CachedObject<Secret>>),
}

/// State of one object. Each watch has its own, so that one that ends cannot disturb its successor.
struct CachedObject<K>(Mutex<ObjectState<K>>);

impl<K> Default for CachedObject<K> {
    fn default() -> Self {
        Self(Mutex::new(ObjectState::Unknown(None)))
    }
}

impl<K: ProjectableObject> CachedObject<K> {
    fn get(&self) -> ObjectState<K> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the state. Returns whether it changed.
    fn set(&self, now: ObjectState<K>) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = match (&*known, &now) {
            (ObjectState::Unknown(before), ObjectState::Unknown(now)) => before == now,
            (ObjectState::Absent, ObjectState::Absent) => true,
            (ObjectState::Present(before), ObjectState::Present(now)) => {
                let (before, now) = (before.meta(), now.meta());
                before.uid == now.uid
                    && before.resource_version.is_some()
                    && before.resource_version == now.resource_version
            }
            // The known state remains when the object can no longer be watched.
            (ObjectState::Absent | ObjectState::Present(_), ObjectState::Unknown(_)) => {
                return false;
            }
            (ObjectState::Unknown(_), ObjectState::Absent | ObjectState::Present(_))
            | (ObjectState::Absent, ObjectState::Present(_))
            | (ObjectState::Present(_), ObjectState::Absent) => false,
        };
        if !same {
            *known = now;
        }
        !same
    }
}

trait ProjectableObject:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    fn is_immutable(&self) -> bool;
}

impl ProjectableObject for ConfigMap {
    fn is_immutable(&self) -> bool {
        self.immutable == Some(true)
    }
}

impl ProjectableObject for Secret {
    fn is_immutable(&self) -> bool {
        self.immutable == Some(true)
    }
}

struct ObjectWatcher<K> {
    api: Api<K>,
    id: ObjectId,
    slot: Arc<CachedObject<K>>,
    starts: Arc<Semaphore>,
    wakes: ChangeSender,
    list: ListTracker<String>,
    refusals: u32,
}

impl<K: ProjectableObject> ObjectWatcher<K> {
    /// Returns only if the object is immutable.
    async fn run(mut self) {
        let mut starting = self.starts.clone().acquire_owned().await.ok();
        let only = format!("metadata.name={}", self.id.name);
        let mut events = ObjectWatch::with_fields(self.api.clone(), Some(&only));
        loop {
            let event = events.next().await;
            if !matches!(event, Ok(Event::Init)) {
                drop(starting.take());
            }
            if let Some(now) = self.apply(event)
                && self.slot.set(now)
            {
                // The receiver lives as long as the agent.
                let _ = self.wakes.send(SourceChange::Object(self.id.clone()));
            }
            if let ObjectState::Present(object) = self.slot.get()
                && object.is_immutable()
            {
                return;
            }
        }
    }

    /// The state after an event; `None` if the event says nothing about it.
    fn apply(&mut self, event: Result<Event<K>, WatchError>) -> Option<ObjectState<K>> {
        match event {
            Ok(event) => match self.list.track(event, |object| object.name_any())? {
                TrackedEvent::Applied(_, object) => Some(present_state(object)),
                TrackedEvent::Deleted(..) => Some(ObjectState::Absent),
                TrackedEvent::Listed(names) => names.is_empty().then_some(ObjectState::Absent),
            },
            Err(error) if error.kind == WatchErrorKind::Refused && self.refusals < LENIENT => {
                self.refusals += 1;
                None
            }
            Err(error) => {
                let ObjectId { kind, namespace, name } = &self.id;
                tracing::debug!(?kind, namespace, name, %error, "watch of an object ended; resuming");
                Some(ObjectState::Unknown(Some(error.message)))
            }
        }
    }
}

fn present_state<K: ProjectableObject>(mut object: K) -> ObjectState<K> {
    object.meta_mut().managed_fields = None;
    ObjectState::Present(Arc::new(object))
}
