//! One change to one object, with its watch event encoded once for everybody.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bytes::Bytes;
use windlass_store::ChangeEvent;

use crate::object::{Object, UnreadableObject};
use crate::registry::kind::{Kind, ServedVersion};

/// A change as the window keeps it.
#[derive(Debug)]
pub struct ObjectChange {
    /// The revision of the change.
    pub revision: u64,
    /// The object after it; for a deletion its last state, at the deletion's revision.
    pub object: Arc<Object>,
    /// Object before the change; `None` if the change created it.
    pub previous: Option<Arc<Object>>,
    /// The revision of the change of this object before this one, if the window knew of it.
    pub before: Option<u64>,
    /// When this process learned of it.
    pub seen: Instant,
    deleted: bool,
    kind: &'static Kind,
    /// One slot per served version and event type, filled by the first watcher that needs it.
    lines: Box<[OnceLock<Bytes>]>,
}

/// The type of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the documentation: they are the wire values")]
pub enum WatchEventType {
    Added,
    Modified,
    Deleted,
}

impl WatchEventType {
    /// As it stands on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            WatchEventType::Added => "ADDED",
            WatchEventType::Modified => "MODIFIED",
            WatchEventType::Deleted => "DELETED",
        }
    }
}

impl ObjectChange {
    /// Makes a change of a committed event. `None` for the deletion of what was not there.
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
        Ok(Some(ObjectChange {
            deleted,
            ..ObjectChange::from_objects(kind, Arc::new(object), previous)
        }))
    }

    /// The change that made `object` of `previous`.
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

    /// Whether the object went away.
    pub fn is_delete(&self) -> bool {
        self.deleted
    }

    /// What the change is to somebody who sees only objects that `selects` lets through.
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

    /// The object that goes with an event of that type: who loses sight of an object that still
    /// exists is shown its last visible state, at this revision.
    pub fn object_for(&self, seen_as: WatchEventType) -> Arc<Object> {
        match (&self.previous, seen_as) {
            (Some(old), WatchEventType::Deleted) if !self.deleted => {
                Arc::new(old.deleted_at(self.revision))
            }
            _ => self.object.clone(),
        }
    }

    /// The event as a line of JSON, shared by everyone who asks for the same.
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
