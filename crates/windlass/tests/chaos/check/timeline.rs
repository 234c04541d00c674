//! Stored states by revision and by key.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Excluded, Included};

use crate::history::{Content, ListedObject, Objects, Revision, StoreChange};

pub struct StoreTimeline<'a> {
    /// By resource, because watches and lists cover one resource.
    resources: HashMap<&'a str, BTreeMap<Revision, &'a StoreChange>>,
    /// States of each key, starting with the one before its creation.
    keys: HashMap<&'a str, Vec<StateSpan<'a>>>,
    by_revision: BTreeMap<Revision, &'a StoreChange>,
}

/// Range of revisions in which a key had a state, up to the next change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateSpan<'a> {
    pub from: Revision,
    pub upto: Revision,
    pub content: Option<&'a Content>,
}

/// State of a key that was never written.
const NEVER: StateSpan<'static> = StateSpan { from: 0, upto: Revision::MAX, content: None };

impl<'a> StoreTimeline<'a> {
    pub fn new(changes: &'a [StoreChange]) -> Self {
        let mut timeline =
            Self { resources: HashMap::new(), keys: HashMap::new(), by_revision: BTreeMap::new() };
        for change in changes {
            let resource = change.key.split('/').next().unwrap_or_default();
            timeline.resources.entry(resource).or_default().insert(change.revision, change);
            let spans = timeline.keys.entry(&change.key).or_insert_with(|| vec![NEVER]);
            if let Some(last) = spans.last_mut() {
                last.upto = change.revision - 1;
            }
            let content = change.content.as_ref();
            spans.push(StateSpan { from: change.revision, upto: Revision::MAX, content });
            timeline.by_revision.insert(change.revision, change);
        }
        timeline
    }

    pub fn change_at(&self, revision: Revision) -> Option<&'a StoreChange> {
        self.by_revision.get(&revision).copied()
    }

    /// Returns the changes of a resource after a revision up to another.
    pub fn between(
        &self,
        resource: &str,
        after: Revision,
        upto: Revision,
    ) -> impl Iterator<Item = &'a StoreChange> {
        let range = (after < upto).then_some((Excluded(after), Included(upto)));
        let changes = self.resources.get(resource).zip(range);
        changes.into_iter().flat_map(|(changes, range)| changes.range(range)).map(|(_, c)| *c)
    }

    pub fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.keys.keys().copied()
    }

    /// Returns the content of a key right before a revision, with its version.
    pub fn before(&self, key: &str, revision: Revision) -> Option<(Revision, &'a Content)> {
        let spans = self.spans(key);
        let earlier = spans.partition_point(|span| span.from < revision);
        let last = spans.get(earlier.checked_sub(1)?)?;
        last.content.map(|content| (last.from, content))
    }

    /// Returns the states of a key in order.
    pub fn spans(&self, key: &str) -> &[StateSpan<'a>] {
        self.keys.get(key).map_or(&[NEVER], Vec::as_slice)
    }

    pub fn state(&self, resource: &str, revision: Revision) -> Objects {
        let mut objects = Objects::new();
        for change in self.between(resource, 0, revision) {
            apply(&mut objects, change);
        }
        objects
    }
}

/// Applies a change to a state.
pub fn apply(objects: &mut Objects, change: &StoreChange) {
    match &change.content {
        Some(content) => {
            let object = ListedObject { version: change.revision, content: content.clone() };
            objects.insert(change.key.clone(), object);
        }
        None => {
            objects.remove(&change.key);
        }
    }
}
