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

/// What an event says.
#[derive(Debug)]
pub enum ObjectEvent<K> {
    /// An object is this.
    Applied(NamespacedName, K),
    /// An object is gone, and was this.
    Deleted(NamespacedName, K),
    /// All have been listed; what is known and not among them is gone.
    Listed(HashSet<NamespacedName>),
    /// Nothing.
    Ignored,
}

impl RelistTracker {
    /// What an event says.
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
            Event::Apply(object) => ObjectEvent::Applied(NamespacedName::from_object(&object), object),
            Event::Delete(object) => ObjectEvent::Deleted(NamespacedName::from_object(&object), object),
            Event::InitDone => ObjectEvent::Listed(std::mem::take(&mut self.listed)),
        }
    }
}
