//! The meta key: how the store counts revisions, and whether it may be served.
//!
//! etcd counts from 1, regardless of the revision of a store that was migrated to it. The store's
//! revision is therefore etcd's plus a base. The base is the value of the meta key, which every
//! process on the store watches, so that none continues with another base.

use std::fmt;

use bytes::Bytes;

use super::client::EtcdClient;
use super::keys::KeySpace;
use super::wire::{
    Compare, CompareResult, CompareTarget, CompareTo, KeyValue, PutRequest, Request, TxnRequest,
};
use crate::{Error, Revision};

/// Mapping from etcd revisions to store revisions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RevisionOffset {
    /// Number that is added to etcd's revisions.
    pub(super) base: Revision,
    /// Oldest revision that may be requested. Older revisions in etcd were counted differently, or
    /// written by an import.
    pub(super) floor: Revision,
}

/// Parsed value of the store's meta key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MetaKeyValue {
    /// A store with this offset. A store that was never migrated has no meta key, or an empty one.
    Serving(RevisionOffset),
    /// An import that has not finished.
    Importing {
        /// Digest of the objects being imported.
        digest: String,
        /// Base of the store after the import.
        base: Revision,
    },
}

/// Highest base: revisions must fit etcd's numbers, and leave room to count.
pub(super) const HIGHEST: Revision = 1 << 62;

/// Reason why a store with this meta key is not opened.
const UNFINISHED: &str = "holds an import that was not finished; finish it with `windlass store \
                          import` and the same file, or take it back with `windlass store import \
                          --undo`";
pub(super) const STRANGE: &str = "has a mark that this program does not know; use the release that \
                                  wrote it, or a newer one";

impl MetaKeyValue {
    /// Parses the meta key; `None` if this program would not write it.
    pub(super) fn parse(found: Option<&KeyValue>) -> Option<Self> {
        let text = std::str::from_utf8(found.map_or(b"".as_slice(), |kv| &kv.value)).ok()?;
        let number = |text: &str| text.parse().ok().filter(|number| *number <= HIGHEST);
        let words: Vec<_> = text.split(' ').collect();
        Some(match *words {
            [""] => Self::Serving(RevisionOffset::default()),
            ["base", base, "floor", floor] => {
                Self::Serving(RevisionOffset { base: number(base)?, floor: number(floor)? })
            }
            ["importing", digest, "base", base] => {
                Self::Importing { digest: digest.to_owned(), base: number(base)? }
            }
            _ => return None,
        })
    }

    pub(super) fn encode(&self) -> Bytes {
        Bytes::from(self.to_string())
    }
}

impl fmt::Display for MetaKeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Serving(count) if *count == RevisionOffset::default() => Ok(()),
            Self::Serving(RevisionOffset { base, floor }) => write!(f, "base {base} floor {floor}"),
            Self::Importing { digest, base } => write!(f, "importing {digest} base {base}"),
        }
    }
}

/// Returns transactions that write the meta key unchanged, to be tried in turn until one succeeds.
/// If none does, the meta key has another value.
pub(super) fn confirm_requests(keys: &KeySpace) -> Vec<TxnRequest> {
    let value = MetaKeyValue::Serving(keys.offset).encode();
    let same = value_equals(keys, value.clone());
    let mut conditions = vec![same.clone()];
    if value.is_empty() {
        // To etcd, an absent key is not equal to an empty one. Another process may create it
        // between the first two tries.
        conditions.extend([key_absent(keys), same]);
    }
    let write = |condition| put_request(keys, value.clone(), condition);
    conditions.into_iter().map(write).collect()
}

/// Returns a transaction that replaces the meta key if it is still the one that was read.
pub(super) fn replace_request(keys: &KeySpace, read: Option<&KeyValue>, mark: &MetaKeyValue) -> TxnRequest {
    let condition = match read {
        None => key_absent(keys),
        Some(kv) => {
            let at = CompareTo::ModRevision(kv.mod_revision);
            compare(keys, CompareTarget::Mod, at)
        }
    };
    put_request(keys, mark.encode(), condition)
}

/// Returns the revision offset of a store that may be served.
pub(super) fn serving_offset(client: &EtcdClient, found: Option<&KeyValue>) -> Result<RevisionOffset, Error> {
    let what = match MetaKeyValue::parse(found) {
        Some(MetaKeyValue::Serving(count)) => return Ok(count),
        Some(MetaKeyValue::Importing { .. }) => UNFINISHED,
        None => STRANGE,
    };
    Err(Error::Refused { path: client.name.clone(), what: what.to_owned() })
}

/// Compares the meta key with these bytes.
pub(super) fn value_equals(keys: &KeySpace, value: Bytes) -> Compare {
    compare(keys, CompareTarget::Value, CompareTo::Value(value))
}

fn key_absent(keys: &KeySpace) -> Compare {
    compare(keys, CompareTarget::Version, CompareTo::Version(0))
}

fn compare(keys: &KeySpace, target: CompareTarget, to: CompareTo) -> Compare {
    let result = CompareResult::Equal.into();
    Compare { result, target: target.into(), key: keys.meta_key(), to: Some(to) }
}

fn put_request(keys: &KeySpace, value: Bytes, condition: Compare) -> TxnRequest {
    let put = PutRequest { key: keys.meta_key(), value, prev_kv: false };
    let success = vec![Request::Put(put).into()];
    TxnRequest { compare: vec![condition], success, failure: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meta_key_values_round_trip() {
        let read = |text: &str| {
            let value = Bytes::copy_from_slice(text.as_bytes());
            MetaKeyValue::parse(Some(&KeyValue { value, ..KeyValue::default() }))
        };
        let count = |base, floor| MetaKeyValue::Serving(RevisionOffset { base, floor });
        for (text, mark) in [
            ("", Some(count(0, 0))),
            ("base 7 floor 12", Some(count(7, 12))),
            ("importing ab base 7", Some(MetaKeyValue::Importing { digest: "ab".to_owned(), base: 7 })),
            ("7", None),
            ("base 7", None),
            ("base -7 floor 12", None),
            ("base 9223372036854775807 floor 1", None),
            ("base 7 floor 12 more", None),
        ] {
            assert_eq!(read(text), mark, "{text}");
            if let Some(mark) = mark {
                assert_eq!(mark.to_string(), text);
            }
        }
        assert_eq!(MetaKeyValue::parse(None), Some(count(0, 0)));
    }
}
