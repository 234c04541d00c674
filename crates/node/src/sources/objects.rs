//! Those ConfigMaps and Secrets that volumes name, each with a watch of its own: a node may see no
//! others.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug};
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::serde::de::DeserializeOwned;
use kube::runtime::watcher::Event;
use kube::{Api, Client, Resource};
use tokio::sync::Semaphore;

use super::feed::{Fed, Feed, Trouble};
use super::{Task, Wake, Wakes};

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// A ConfigMap.
    ConfigMap,
    /// A Secret.
    Secret,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// What it is.
    pub kind: ObjectKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// What is known of an object.
#[derive(Clone)]
pub enum Known<T> {
    /// Nothing yet, for this reason if there is one.
    Unknown(Option<String>),
    /// There is none.
    Absent,
    /// It is this.
    Is(Arc<T>),
}

/// The objects that are wanted.
pub struct Objects {
    client: Client,
    wakes: Wakes,
    watched: Mutex<BTreeMap<ObjectId, Watched>>,
    starts: Arc<Semaphore>,
}

/// How many watches may be beginning at a time.
const STARTS: usize = 16;
/// How often the server may say no before it is told to others. Right after a pod was bound it may
/// not know yet that the node is allowed to see what the pod names.
const LENIENT: u32 = 2;

impl Objects {
    /// None are wanted yet.
    pub fn new(client: Client, wakes: Wakes) -> Self {
        let starts = Arc::new(Semaphore::new(STARTS));
        Self { client, wakes, watched: Mutex::default(), starts }
    }

    /// From now on exactly these are watched. Those that were watched already go on.
    pub fn want(&self, wanted: &BTreeSet<ObjectId>) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.retain(|id, _| wanted.contains(id));
        for id in wanted {
            if !watched.contains_key(id) {
                watched.insert(id.clone(), self.watch(id));
            }
        }
    }

    /// A ConfigMap.
    pub fn config_map(&self, namespace: &str, name: &str) -> Known<ConfigMap> {
        match self.slot(ObjectKind::ConfigMap, namespace, name) {
            Some(Slot::ConfigMap(slot)) => slot.get(),
            Some(Slot::Secret(_)) | None => Known::Unknown(None),
        }
    }

    /// A Secret.
    pub fn secret(&self, namespace: &str, name: &str) -> Known<Secret> {
        match self.slot(ObjectKind::Secret, namespace, name) {
            Some(Slot::Secret(slot)) => slot.get(),
            Some(Slot::ConfigMap(_)) | None => Known::Unknown(None),
        }
    }

    fn slot(&self, kind: ObjectKind, namespace: &str, name: &str) -> Option<Slot> {
        let id = ObjectId { kind, namespace: namespace.to_owned(), name: name.to_owned() };
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.get(&id).map(|watched| watched.slot.clone())
    }

    fn watch(&self, id: &ObjectId) -> Watched {
        match id.kind {
            ObjectKind::ConfigMap => {
                let slot = Arc::new(Held::default());
                let task = Task::spawn(self.watcher(id, &slot).run());
                Watched { slot: Slot::ConfigMap(slot), _task: task }
            }
            ObjectKind::Secret => {
                let slot = Arc::new(Held::default());
                let task = Task::spawn(self.watcher(id, &slot).run());
                Watched { slot: Slot::Secret(slot), _task: task }
            }
        }
    }

    fn watcher<K: Object>(&self, id: &ObjectId, slot: &Arc<Held<K>>) -> Watcher<K> {
        Watcher {
            api: Api::namespaced(self.client.clone(), &id.namespace),
            id: id.clone(),
            slot: slot.clone(),
            starts: self.starts.clone(),
            wakes: self.wakes.clone(),
            present: false,
            refusals: 0,
        }
    }
}

/// Never what is in it.
impl<T> Debug for Known<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(why) => f.debug_tuple("Unknown").field(why).finish(),
            Self::Absent => f.write_str("Absent"),
            Self::Is(_) => f.write_str("Is(…)"),
        }
    }
}

struct Watched {
    slot: Slot,
    _task: Task,
}

#[derive(Clone)]
enum Slot {
    ConfigMap(Arc<Held<ConfigMap>>),
    Secret(Arc<Held<Secret>>),
}

/// What is known of one object. Each watch has one of its own, so that one that ends cannot disturb
/// the next.
struct Held<K>(Mutex<Known<K>>);

impl<K> Default for Held<K> {
    fn default() -> Self {
        Self(Mutex::new(Known::Unknown(None)))
    }
}

impl<K: Object> Held<K> {
    fn get(&self) -> Known<K> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether it is something else than before.
    fn set(&self, now: Known<K>) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = match (&*known, &now) {
            (Known::Unknown(before), Known::Unknown(now)) => before == now,
            (Known::Absent, Known::Absent) => true,
            (Known::Is(before), Known::Is(now)) => {
                let (before, now) = (before.meta(), now.meta());
                before.uid == now.uid
                    && before.resource_version.is_some()
                    && before.resource_version == now.resource_version
            }
            // What was known stays when it cannot be seen any more.
            (Known::Absent | Known::Is(_), Known::Unknown(_)) => return false,
            (Known::Unknown(_), Known::Absent | Known::Is(_))
            | (Known::Absent, Known::Is(_))
            | (Known::Is(_), Known::Absent) => false,
        };
        if !same {
            *known = now;
        }
        !same
    }
}

/// The two are alike.
trait Object:
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

impl Object for ConfigMap {
    fn is_immutable(&self) -> bool {
        self.immutable == Some(true)
    }
}

impl Object for Secret {
    fn is_immutable(&self) -> bool {
        self.immutable == Some(true)
    }
}

struct Watcher<K> {
    api: Api<K>,
    id: ObjectId,
    slot: Arc<Held<K>>,
    starts: Arc<Semaphore>,
    wakes: Wakes,
    /// Whether it was in the list that is coming.
    present: bool,
    refusals: u32,
}

impl<K: Object> Watcher<K> {
    /// Ends only when the object cannot change.
    async fn run(mut self) {
        let mut starting = self.starts.clone().acquire_owned().await.ok();
        let only = format!("metadata.name={}", self.id.name);
        let mut feed = Feed::new(self.api.clone(), Some(&only));
        loop {
            let fed = feed.next().await;
            if !matches!(fed, Fed::Event(Event::Init)) {
                drop(starting.take());
            }
            if let Some(now) = self.take(fed)
                && self.slot.set(now)
            {
                // Nobody is there to be woken only when everything ends.
                let _ = self.wakes.send(Wake::Object(self.id.clone()));
            }
            if let Known::Is(object) = self.slot.get()
                && object.is_immutable()
            {
                return;
            }
        }
    }

    /// What is known after this, if it says something.
    fn take(&mut self, fed: Fed<K>) -> Option<Known<K>> {
        match fed {
            Fed::Event(Event::Init) => {
                self.present = false;
                None
            }
            Fed::Event(Event::InitApply(object)) => {
                self.present = true;
                Some(is(object))
            }
            Fed::Event(Event::Apply(object)) => Some(is(object)),
            Fed::Event(Event::InitDone) => (!self.present).then_some(Known::Absent),
            Fed::Event(Event::Delete(_)) => Some(Known::Absent),
            Fed::Trouble(Trouble::Refused(_)) if self.refusals < LENIENT => {
                self.refusals += 1;
                None
            }
            Fed::Trouble(trouble) => {
                tracing::debug!(id = ?self.id, why = trouble.text(), "a watch broke off");
                Some(Known::Unknown(Some(trouble.text().to_owned())))
            }
        }
    }
}

fn is<K: Object>(mut object: K) -> Known<K> {
    object.meta_mut().managed_fields = None;
    Known::Is(Arc::new(object))
}
