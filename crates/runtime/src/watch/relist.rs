//! What a list means for a caller: which of the objects it knows are gone.

use std::collections::HashSet;
use std::hash::Hash;

use kube::runtime::watcher::Event;

/// Turns watch events into objects and, after each list, the keys of all objects in it. Objects are not buffered.
#[derive(Debug)]
pub struct ListTracker<Id> {
    listed: HashSet<Id>,
}

/// Event of a [`ListTracker`]; each object comes with its key.
#[derive(Clone, Debug, PartialEq)]
pub enum TrackedEvent<K, Id: Eq + Hash> {
    /// The object exists: it was listed, created or changed.
    Applied(Id, K),
    /// The object was deleted; this is its last state.
    Deleted(Id, K),
    /// A list is complete. Objects with other keys were deleted before the watch started.
    Listed(HashSet<Id>),
}

impl<Id> Default for ListTracker<Id> {
    fn default() -> Self {
        Self { listed: HashSet::new() }
    }
}

impl<Id: Clone + Eq + Hash> ListTracker<Id> {
    /// Tracks an event. `key` identifies an object; `None` is the start of a list, at which nothing is known yet.
    pub fn track<K>(&mut self, event: Event<K>, key: impl Fn(&K) -> Id) -> Option<TrackedEvent<K, Id>> {
        Some(match event {
            Event::Init => {
                // An earlier list that did not complete says nothing.
                self.listed.clear();
                return None;
            }
            Event::InitApply(object) => {
                let key = key(&object);
                self.listed.insert(key.clone());
                TrackedEvent::Applied(key, object)
            }
            Event::Apply(object) => TrackedEvent::Applied(key(&object), object),
            Event::Delete(object) => TrackedEvent::Deleted(key(&object), object),
            Event::InitDone => TrackedEvent::Listed(std::mem::take(&mut self.listed)),
        })
    }
}

/// Turns watch events into complete lists and single changes: a cache that is built from them is never half a list.
///
/// Objects are converted as they arrive, so that a list of large objects is not held twice.
#[derive(Debug)]
pub struct RelistBuffer<T> {
    listed: Vec<T>,
}

/// Event of a [`RelistBuffer`], with objects as its caller keeps them.
#[derive(Clone, Debug, PartialEq)]
pub enum SnapshotEvent<K, T = K> {
    /// These objects exist and no others.
    Replaced(Vec<T>),
    /// The object was created or changed.
    Applied(T),
    /// The object was deleted; this is its last state.
    Deleted(K),
}

impl<T> Default for RelistBuffer<T> {
    fn default() -> Self {
        Self { listed: Vec::new() }
    }
}

impl<T> RelistBuffer<T> {
    /// Adds an event. `None` while a list is incomplete.
    pub fn push<K>(
        &mut self,
        event: Event<K>,
        mut convert: impl FnMut(K) -> T,
    ) -> Option<SnapshotEvent<K, T>> {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(object) => self.listed.push(convert(object)),
            Event::InitDone => {
                return Some(SnapshotEvent::Replaced(std::mem::take(&mut self.listed)));
            }
            Event::Apply(object) => return Some(SnapshotEvent::Applied(convert(object))),
            Event::Delete(object) => return Some(SnapshotEvent::Deleted(object)),
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Event::{Apply, Delete, Init, InitApply, InitDone};

    #[test]
    fn a_tracker_delivers_objects_at_once_and_keys_after_the_list() {
        let mut tracker = ListTracker::default();
        let mut track = |event| tracker.track(event, |object: &&str| object.len());
        let listed = |keys: &[usize]| Some(TrackedEvent::Listed(keys.iter().copied().collect()));
        assert_eq!(track(Init), None);
        assert_eq!(track(InitApply("a")), Some(TrackedEvent::Applied(1, "a")));
        // The list broke off and starts again.
        assert_eq!(track(Init), None);
        assert_eq!(track(InitApply("bb")), Some(TrackedEvent::Applied(2, "bb")));
        assert_eq!(track(InitDone), listed(&[2]));
        assert_eq!(track(Apply("ccc")), Some(TrackedEvent::Applied(3, "ccc")));
        assert_eq!(track(Delete("bb")), Some(TrackedEvent::Deleted(2, "bb")));
        assert_eq!((track(Init), track(InitDone)), (None, listed(&[])));
    }

    #[test]
    fn a_buffer_delivers_lists_as_a_whole() {
        let mut buffer = RelistBuffer::default();
        let mut push = |event| buffer.push(event, |object: &str| object.to_uppercase());
        for event in [Init, InitApply("x"), Init, InitApply("a"), InitApply("b")] {
            assert_eq!(push(event), None);
        }
        let replaced = SnapshotEvent::Replaced(vec!["A".to_owned(), "B".to_owned()]);
        assert_eq!(push(InitDone), Some(replaced));
        assert_eq!(push(Apply("c")), Some(SnapshotEvent::Applied("C".to_owned())));
        assert_eq!(push(Delete("a")), Some(SnapshotEvent::Deleted("a")));
        assert_eq!((push(Init), push(InitDone)), (None, Some(SnapshotEvent::Replaced(vec![]))));
    }
}
