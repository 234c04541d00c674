//! Lists that begin anew tell by silence what is gone.

use std::collections::HashSet;

use kube::Resource;
use kube::runtime::watcher::Event;

use crate::namespaced_name::NamespacedName;

/// What has been listed since a list began.
#[derive(Debug, Default)]
pub struct RelistTracker {
    listed: HashSet<NamespacedName>,
}

/// A watch event, with the end of a relist resolved to the set of listed objects.
#[derive(Debug)]
pub enum ObjectEvent<K> {
    /// The object was created, changed or listed; this is its current state.
    Applied(NamespacedName, K),
    /// An object is gone, and was this.
    Deleted(NamespacedName, K),
    /// All have been listed; what is known and not among them is gone.
    Listed(HashSet<NamespacedName>),
    /// The event marks the start of a list and needs no action.
    Ignored,
}

impl RelistTracker {
    /// Translates a watch event and tracks which objects a list has returned.
    pub fn observe<K: Resource>(&mut self, event: Event<K>) -> ObjectEvent<K> {
        match event {
            Event::Init => {
                self.listed.clear();
                ObjectEvent::Ignored
            }
            Event::InitApply(object) => {
                let at = NamespacedName::from_object(&object);
                self.listed.insert(at.clone());
                ObjectEvent::Applied(at, object)
            }
            Event::Apply(object) => {
                ObjectEvent::Applied(NamespacedName::from_object(&object), object)
            }
            Event::Delete(object) => {
                ObjectEvent::Deleted(NamespacedName::from_object(&object), object)
            }
            Event::InitDone => ObjectEvent::Listed(std::mem::take(&mut self.listed)),
        }
    }
}
