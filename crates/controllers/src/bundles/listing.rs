//! Lists that begin anew tell by silence what is gone.

use std::collections::HashSet;

use kube::Resource;
use kube::runtime::watcher::Event;

use crate::namespaced::Namespaced;

/// What has been listed since a list began.
#[derive(Debug, Default)]
pub struct Listing {
    listed: HashSet<Namespaced>,
}

/// What an event says.
#[derive(Debug)]
pub enum News<K> {
    /// An object is this.
    Is(Namespaced, K),
    /// An object is gone, and was this.
    Gone(Namespaced, K),
    /// All have been listed; what is known and not among them is gone.
    Listed(HashSet<Namespaced>),
    /// Nothing.
    Nothing,
}

impl Listing {
    /// What an event says.
    pub fn hear<K: Resource>(&mut self, event: Event<K>) -> News<K> {
        match event {
            Event::Init => {
                self.listed.clear();
                News::Nothing
            }
            Event::InitApply(object) => {
                let at = Namespaced::of(&object);
                self.listed.insert(at.clone());
                News::Is(at, object)
            }
            Event::Apply(object) => News::Is(Namespaced::of(&object), object),
            Event::Delete(object) => News::Gone(Namespaced::of(&object), object),
            Event::InitDone => News::Listed(std::mem::take(&mut self.listed)),
        }
    }
}
