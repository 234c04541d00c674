//! What the mark says: how the store counts, and whether it may be served.
//!
//! etcd counts from 1, whatever the store that was moved into it had come to. So the store's
//! revision is etcd's plus a base. The base is the value of the mark, the one key that every
//! process on the store watches, so none goes on counting by another.

use std::fmt;

use bytes::Bytes;

use super::client::EtcdClient;
use super::keys::KeySpace;
use super::wire::{
    Compare, CompareResult, CompareTarget, CompareTo, KeyValue, PutRequest, Request, TxnRequest,
};
use crate::{Error, Revision};

/// How the store's revisions are derived from etcd's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RevisionOffset {
    /// What is added to etcd's revisions.
    pub(super) base: Revision,
    /// The oldest revision that may be asked for. What etcd has from before it was counted in
    /// another way, or put there by an import.
    pub(super) floor: Revision,
}

/// Parsed value of the store's meta key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MetaKeyValue {
    /// A store that counts so. A store that never was moved has no mark, or an empty one.
    Serving(RevisionOffset),
    /// An import that has not ended.
    Importing {
        /// The digest of the objects that are being imported.
        digest: String,
        /// The base the store will have.
        base: Revision,
    },
}

/// The base no store goes above: revisions must fit etcd's numbers, and leave room to count.
pub(super) const HIGHEST: Revision = 1 << 62;

/// Why a store with a mark is not opened.
const UNFINISHED: &str = "holds an import that was not finished; finish it with `windlass store \
                          import` and the same file, or take it back with `windlass store import \
                          --undo`";
pub(super) const STRANGE: &str = "has a mark that this program does not know; use the release that \
                                  wrote it, or a newer one";

impl MetaKeyValue {
    /// Reads the mark; `None` if it is none that this program would write.
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

/// Transactions that write the mark as it is, to be tried in turn until one succeeds. If none
/// does, the mark says something else.
pub(super) fn confirm_requests(keys: &KeySpace) -> Vec<TxnRequest> {
    let value = MetaKeyValue::Serving(keys.offset).encode();
    let same = value_equals(keys, value.clone());
    let mut conditions = vec![same.clone()];
    if value.is_empty() {
        // To etcd, a key that is absent does not even hold nothing. Between the first two tries
        // another process may make it.
        conditions.extend([key_absent(keys), same]);
    }
    let write = |condition| put_request(keys, value.clone(), condition);
    conditions.into_iter().map(write).collect()
}

/// A transaction that changes the mark if it is still the one that was read.
pub(super) fn replace_request(
    keys: &KeySpace,
    read: Option<&KeyValue>,
    mark: &MetaKeyValue,
) -> TxnRequest {
    let condition = match read {
        None => key_absent(keys),
        Some(kv) => {
            let at = CompareTo::ModRevision(kv.mod_revision);
            compare(keys, CompareTarget::Mod, at)
        }
    };
    put_request(keys, mark.encode(), condition)
}

/// How a store counts that may be served.
pub(super) fn serving_offset(
    client: &EtcdClient,
    found: Option<&KeyValue>,
) -> Result<RevisionOffset, Error> {
    let what = match MetaKeyValue::parse(found) {
        Some(MetaKeyValue::Serving(count)) => return Ok(count),
        Some(MetaKeyValue::Importing { .. }) => UNFINISHED,
        None => STRANGE,
    };
    Err(Error::Refused { path: client.name.clone(), what: what.to_owned() })
}

/// The mark holds these bytes.
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
            (
                "importing ab base 7",
                Some(MetaKeyValue::Importing { digest: "ab".to_owned(), base: 7 }),
            ),
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
