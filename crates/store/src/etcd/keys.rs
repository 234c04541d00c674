//! Mapping of the store's keys and revisions to those of the cluster, which may contain other keys
//! too.

use bytes::Bytes;

use super::meta_key::RevisionOffset;
use super::wire::KeyValue;
use crate::{KeyRange, Revision, StoredValue};

/// The keys of one store: all that start with its prefix.
///
/// The prefix itself is a key too, the meta key: it defines how revisions are counted, and is
/// hidden from readers. Writing it adds a change to the feed that shows the feed's progress.
#[derive(Debug, Clone)]
pub(super) struct KeySpace {
    prefix: String,
    pub(super) offset: RevisionOffset,
}

impl KeySpace {
    /// Creates a key space below a prefix; appends `/` if missing.
    pub(super) fn with_prefix(prefix: &str) -> Self {
        Self { prefix: format!("{}/", prefix.trim_end_matches('/')), offset: RevisionOffset::default() }
    }

    pub(super) fn meta_key(&self) -> Bytes {
        Bytes::copy_from_slice(self.prefix.as_bytes())
    }

    /// Returns the key by which servers agree on who compacts. No feed shows it.
    pub(super) fn compaction_key(&self) -> Bytes {
        Bytes::from(format!("{}.compaction", self.prefix.trim_end_matches('/')))
    }

    pub(super) fn end(&self) -> Bytes {
        after_prefix(self.prefix.as_bytes())
    }

    pub(super) fn etcd_key(&self, key: &str) -> Bytes {
        Bytes::from(format!("{}{key}", self.prefix))
    }

    /// Returns the store's name of a key; `None` for the meta key and for keys that no store has
    /// written.
    pub(super) fn store_key(&self, key: &[u8]) -> Option<String> {
        let rest = key.strip_prefix(self.prefix.as_bytes())?;
        if rest.is_empty() {
            return None;
        }
        let key = std::str::from_utf8(rest).ok().map(ToOwned::to_owned);
        if key.is_none() {
            tracing::warn!(prefix = %self.prefix, "skipped a key that is not valid UTF-8");
        }
        key
    }

    /// Returns the inclusive start and exclusive end of a range; `None` if it is empty.
    pub(super) fn bounds(&self, range: &KeyRange) -> Option<(Bytes, Bytes)> {
        let from = match range.after.as_deref() {
            Some(after) if after >= range.prefix.as_str() => successor(&self.etcd_key(after)),
            _ if range.prefix.is_empty() => successor(&self.meta_key()),
            _ => self.etcd_key(&range.prefix),
        };
        let end = after_prefix(&self.etcd_key(&range.prefix));
        (from < end).then_some((from, end))
    }

    /// Converts an etcd revision, which is never negative, to a store revision.
    pub(super) fn revision(&self, number: i64) -> Revision {
        self.offset.base + u64::try_from(number).unwrap_or_default()
    }

    /// Converts a store revision to an etcd revision; `None` if it is before etcd's first or after
    /// its last.
    pub(super) fn etcd_revision(&self, revision: Revision) -> Option<i64> {
        let number = revision.checked_sub(self.offset.base)?;
        i64::try_from(number).ok().filter(|number| *number > 0)
    }

    /// Converts an etcd key-value to a stored value.
    pub(super) fn stored_value(&self, kv: KeyValue) -> StoredValue {
        StoredValue {
            revision: self.revision(kv.mod_revision),
            created: self.revision(kv.create_revision),
            value: kv.value,
        }
    }
}

/// Returns the key right after another.
pub(super) fn successor(key: &[u8]) -> Bytes {
    Bytes::from([key, &[0]].concat())
}

/// Returns the first key after all with a prefix. The prefix starts with text, so there is one.
fn after_prefix(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        // No UTF-8 byte is 255.
        *last = last.saturating_add(1);
    }
    Bytes::from(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_the_prefix_and_not_the_mark() {
        let keys = KeySpace::with_prefix("/windlass");
        let bounds = |prefix: &str, after: Option<&str>| {
            let range = KeyRange {
                prefix: prefix.to_owned(),
                after: after.map(ToOwned::to_owned),
                ..KeyRange::default()
            };
            keys.bounds(&range)
                .map(|(from, end)| (from.escape_ascii().to_string(), end.escape_ascii().to_string()))
        };
        let some = |from: &str, end: &str| Some((from.to_owned(), end.to_owned()));
        assert_eq!(bounds("", None), some("/windlass/\\x00", "/windlass0"));
        assert_eq!(bounds("a/", None), some("/windlass/a/", "/windlass/a0"));
        assert_eq!(bounds("a/", Some("a/b")), some("/windlass/a/b\\x00", "/windlass/a0"));
        assert_eq!(bounds("b/", Some("a")), some("/windlass/b/", "/windlass/b0"));
        assert_eq!(bounds("b/", Some("c")), None);
        assert_eq!(keys.compaction_key(), "/windlass.compaction");
        assert!(keys.compaction_key() < keys.meta_key());
        assert_eq!(keys.store_key(b"/windlass/"), None);
        assert_eq!(keys.store_key(b"/windlassa"), None);
        assert_eq!(keys.store_key(b"/windlass/a"), Some("a".to_owned()));
    }

    #[test]
    fn revisions_are_counted_from_the_base() {
        let mut keys = KeySpace::with_prefix("/windlass");
        for (base, revision, number) in [
            (0, 1, Some(1)),
            (0, 0, None),
            (0, u64::MAX, None),
            (100, 101, Some(1)),
            (100, 100, None),
            (100, 7, None),
        ] {
            keys.offset.base = base;
            assert_eq!(keys.etcd_revision(revision), number, "{base} {revision}");
            if let Some(number) = number {
                assert_eq!(keys.revision(number), revision);
            }
        }
    }
}
