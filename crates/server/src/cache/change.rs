//! A change of an object, whose watch event is encoded once for all watchers.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bytes::Bytes;
use windlass_store::ChangeEvent;

use crate::object::{Object, UnreadableObject};
use crate::registry::kind::{Kind, ServedVersion};

/// A change in the window of a kind.
#[derive(Debug)]
pub struct ObjectChange {
    pub revision: u64,
    /// Object after the change; for a deletion its last state, at the revision of the deletion.
    pub object: Arc<Object>,
    /// Object before the change; `None` if the change created it.
    pub previous: Option<Arc<Object>>,
    /// Revision of this object's previous change, if it was in the window.
    pub before: Option<u64>,
    /// When this process received the change.
    pub seen: Instant,
    deleted: bool,
    kind: &'static Kind,
    /// One slot per served version and event type, filled by the first watcher that needs it.
    lines: Box<[OnceLock<Bytes>]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the documentation: they are the wire values")]
pub enum WatchEventType {
    Added,
    Modified,
    Deleted,
}

impl WatchEventType {
    /// Returns the type as encoded in watch events.
    pub fn as_str(self) -> &'static str {
        match self {
            WatchEventType::Added => "ADDED",
            WatchEventType::Modified => "MODIFIED",
            WatchEventType::Deleted => "DELETED",
        }
    }
}

impl ObjectChange {
    /// Builds a change from a committed event; `None` for the deletion of an unknown object.
    pub fn new(
        kind: &'static Kind,
        name: &str,
        event: &ChangeEvent,
        previous: Option<Arc<Object>>,
    ) -> Result<Option<ObjectChange>, UnreadableObject> {
        let (object, deleted) = match (&event.value, &previous) {
            (Some(value), _) => (Object::new(kind, name, event.revision, value)?, false),
            (None, Some(old)) => (old.deleted_at(event.revision), true),
            (None, None) => return Ok(None),
        };
        Ok(Some(ObjectChange { deleted, ..ObjectChange::from_objects(kind, Arc::new(object), previous) }))
    }

    /// Builds the change from `previous` to `object`.
    pub fn from_objects(
        kind: &'static Kind,
        object: Arc<Object>,
        previous: Option<Arc<Object>>,
    ) -> ObjectChange {
        ObjectChange {
            revision: object.revision,
            object,
            previous,
            before: None,
            seen: Instant::now(),
            deleted: false,
            kind,
            lines: (0..kind.served.len() * 3).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Returns true if the change deleted the object.
    pub fn is_delete(&self) -> bool {
        self.deleted
    }

    /// Returns the event type for a watcher that sees only objects matched by `selects`.
    pub fn event_type_for(&self, selects: impl Fn(&Object) -> bool) -> Option<WatchEventType> {
        let before = self.previous.as_deref().is_some_and(&selects);
        let after = !self.deleted && selects(&self.object);
        match (before, after) {
            (false, true) => Some(WatchEventType::Added),
            (true, true) => Some(WatchEventType::Modified),
            (true, false) => Some(WatchEventType::Deleted),
            (false, false) => None,
        }
    }

    /// Returns the object for an event of that type: when an existing object no longer matches, the
    /// watcher receives its last matching state, at this revision.
    pub fn object_for(&self, seen_as: WatchEventType) -> Arc<Object> {
        match (&self.previous, seen_as) {
            (Some(old), WatchEventType::Deleted) if !self.deleted => Arc::new(old.deleted_at(self.revision)),
            _ => self.object.clone(),
        }
    }

    /// Returns the event as a line of JSON, shared by all watchers of the same version.
    pub fn line(&self, served: &'static ServedVersion, seen_as: WatchEventType) -> Bytes {
        let version = self.kind.served.iter().position(|s| s == served).unwrap_or(0);
        let slot = &self.lines[version * 3 + seen_as as usize];
        slot.get_or_init(|| {
            let object = self.object_for(seen_as).json(self.kind, served);
            line(seen_as.as_str(), &object)
        })
        .clone()
    }
}

/// Encodes one watch event: `{"type":…,"object":…}` and a newline.
pub(crate) fn line(event: &str, object: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(object.len() + 40);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(event.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    out.extend_from_slice(object);
    out.extend_from_slice(b"}\n");
    out.into()
}
