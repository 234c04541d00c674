//! Acknowledged and possible changes, and whether the responses of a server agree with them.

use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectChange {
    /// Created (step 0) or changed.
    Put(u32),
    Delete,
}

/// Life of an object, as its only writer knows it. Names are never reused.
#[derive(Debug)]
pub struct ObjectLifetime {
    pub name: String,
    /// Acknowledged changes, with the version if the response had one.
    acknowledged: Vec<(ObjectChange, Option<u64>)>,
    /// Unacknowledged change, which may have happened.
    pub pending: Option<ObjectChange>,
}

impl ObjectLifetime {
    pub fn new(name: String) -> Self {
        Self { name, acknowledged: Vec::new(), pending: None }
    }

    pub fn acknowledge(&mut self, change: ObjectChange, version: Option<u64>) {
        self.acknowledged.push((change, version));
        self.pending = None;
    }

    /// Returns the expected state if only the acknowledged changes happened.
    fn state(&self) -> Option<StoredObject> {
        match self.acknowledged.last() {
            Some((ObjectChange::Put(step), Some(version))) => {
                Some(StoredObject { version: *version, step: *step })
            }
            _ => None,
        }
    }
}

/// An object as returned by a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredObject {
    pub version: u64,
    pub step: u32,
}

/// An event of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedChange {
    pub version: u64,
    pub kind: WatchEventType,
    pub name: String,
    pub step: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchEventType {
    Added,
    Modified,
    Deleted,
}

impl ObservedChange {
    fn change(&self) -> ObjectChange {
        match self.kind {
            WatchEventType::Added => {
                assert_eq!(self.step, 0, "{self:?}: added twice");
                ObjectChange::Put(0)
            }
            WatchEventType::Modified => {
                assert_ne!(self.step, 0, "{self:?}: changed into itself");
                ObjectChange::Put(self.step)
            }
            WatchEventType::Deleted => ObjectChange::Delete,
        }
    }
}

/// Knowledge of all rounds so far.
pub struct CrashHistory {
    /// Lifetimes of the round since the last check.
    fresh: Vec<ObjectLifetime>,
    /// Lifetimes with a known end, including the last unacknowledged change if it happened.
    settled: Vec<ObjectLifetime>,
    /// Objects that the next list must contain.
    present: BTreeMap<String, StoredObject>,
    versions: BTreeMap<u64, (String, ObjectChange)>,
    newest: u64,
}

impl CrashHistory {
    pub fn new(start: u64) -> Self {
        Self {
            fresh: Vec::new(),
            settled: Vec::new(),
            present: BTreeMap::new(),
            versions: BTreeMap::new(),
            newest: start,
        }
    }

    /// Returns the highest version in any response.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    pub fn acknowledged(&self) -> usize {
        self.settled.iter().map(|life| life.acknowledged.len()).sum()
    }

    pub fn add(&mut self, lives: Vec<ObjectLifetime>) {
        for life in lives {
            for (change, version) in &life.acknowledged {
                if let Some(version) = version {
                    assign_version(&mut self.versions, *version, &life.name, *change);
                    self.newest = self.newest.max(*version);
                }
            }
            self.fresh.push(life);
        }
    }

    /// Checks that events agree with responses and with other watches.
    pub fn observe(&mut self, seen: &[ObservedChange]) {
        for event in seen {
            assign_version(&mut self.versions, event.version, &event.name, event.change());
            self.newest = self.newest.max(event.version);
        }
    }

    /// Checks that a restarted server lists the acknowledged state, with or without unacknowledged
    /// changes.
    pub fn check(&mut self, version: u64, objects: &BTreeMap<String, StoredObject>) {
        assert!(version >= self.newest, "at {version} after {} was seen", self.newest);
        self.newest = version;
        for mut life in self.fresh.drain(..) {
            let found = objects.get(&life.name).copied();
            let happened = match (found, life.pending) {
                (found, _) if found == life.state() => false,
                (Some(found), Some(ObjectChange::Put(step))) => found.step == step,
                (None, Some(ObjectChange::Delete)) => true,
                _ => false,
            };
            assert!(happened || found == life.state(), "{found:?} is not what became of {life:?}");
            // A change that did not happen must not happen later.
            life.pending = life.pending.filter(|_| happened);
            if let Some(found) = found {
                let change = ObjectChange::Put(found.step);
                assign_version(&mut self.versions, found.version, &life.name, change);
                self.present.insert(life.name.clone(), found);
            }
            self.settled.push(life);
        }
        if self.present != *objects {
            let lost = self.present.iter().find(|(name, object)| objects.get(*name) != Some(object));
            let extra = objects.iter().find(|(name, _)| !self.present.contains_key(*name));
            panic!("lost or changed: {lost:?}; came back or out of nothing: {extra:?}");
        }
    }

    /// Checks that a watch delivered every change exactly once, in order, and nothing else.
    pub fn check_complete(&self, seen: &[ObservedChange], end: u64) {
        let mut received: BTreeMap<(&str, ObjectChange), u64> = BTreeMap::new();
        let mut last = 0;
        for event in seen.iter().filter(|event| event.version < end) {
            assert!(event.version > last, "{event:?} after {last}");
            last = event.version;
            let before = received.insert((&event.name, event.change()), event.version);
            assert_eq!(before, None, "{event:?} was delivered before");
        }
        for life in &self.settled {
            for (change, version) in &life.acknowledged {
                let Some(received) = received.remove(&(life.name.as_str(), *change)) else {
                    panic!("{change:?} of {} was acknowledged and never delivered", life.name);
                };
                assert!(
                    version.is_none_or(|version| version == received),
                    "{change:?} of {life:?} at {received}"
                );
            }
            if let Some(change) = life.pending {
                let happened = received.remove(&(life.name.as_str(), change));
                assert!(happened.is_some(), "{change:?} of {} happened and was never delivered", life.name);
            }
        }
        assert_eq!(received, BTreeMap::new(), "delivered, but never happened");
    }
}

/// Assigns a version to its change, which may have only one.
fn assign_version(
    versions: &mut BTreeMap<u64, (String, ObjectChange)>,
    version: u64,
    name: &str,
    change: ObjectChange,
) {
    let owner = versions.entry(version).or_insert_with(|| (name.to_owned(), change));
    assert_eq!((owner.0.as_str(), owner.1), (name, change), "version {version} was given out twice");
}
