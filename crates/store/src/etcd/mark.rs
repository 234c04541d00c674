//! What the mark says: how the store counts, and whether it may be served.
//!
//! etcd counts from 1, whatever the store that was moved into it had come to. So the store's
//! revision is etcd's plus a base. The base is the value of the mark, the one key that every
//! process on the store watches, so none goes on counting by another.

use std::fmt;

use bytes::Bytes;

use super::client::Client;
use super::keys::Keys;
use super::wire::{
    Compare, CompareResult, CompareTarget, CompareTo, KeyValue, PutRequest, Request, TxnRequest,
};
use crate::{Error, Revision};

/// How a store counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Count {
    /// What is added to etcd's revisions.
    pub(super) base: Revision,
    /// The oldest revision that may be asked for. What etcd has from before it was counted in
    /// another way, or put there by an import.
    pub(super) floor: Revision,
}

/// What the mark holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mark {
    /// A store that counts so. A store that never was moved has no mark, or an empty one.
    Counting(Count),
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

impl Mark {
    /// Reads the mark; `None` if it is none that this program would write.
    pub(super) fn read(found: Option<&KeyValue>) -> Option<Self> {
        let text = std::str::from_utf8(found.map_or(b"".as_slice(), |kv| &kv.value)).ok()?;
        let number = |text: &str| text.parse().ok().filter(|number| *number <= HIGHEST);
        let words: Vec<_> = text.split(' ').collect();
        Some(match *words {
            [""] => Self::Counting(Count::default()),
            ["base", base, "floor", floor] => {
                Self::Counting(Count { base: number(base)?, floor: number(floor)? })
            }
            ["importing", digest, "base", base] => {
                Self::Importing { digest: digest.to_owned(), base: number(base)? }
            }
            _ => return None,
        })
    }

    pub(super) fn value(&self) -> Bytes {
        Bytes::from(self.to_string())
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Counting(count) if *count == Count::default() => Ok(()),
            Self::Counting(Count { base, floor }) => write!(f, "base {base} floor {floor}"),
            Self::Importing { digest, base } => write!(f, "importing {digest} base {base}"),
        }
    }
}

/// Transactions that write the mark as it is, to be tried in turn until one succeeds. If none
/// does, the mark says something else.
pub(super) fn confirm(keys: &Keys) -> Vec<TxnRequest> {
    let value = Mark::Counting(keys.count).value();
    let same = holds(keys, value.clone());
    let mut conditions = vec![same.clone()];
    if value.is_empty() {
        // To etcd, a key that is absent does not even hold nothing. Between the first two tries
        // another process may make it.
        conditions.extend([absent(keys), same]);
    }
    let write = |condition| write(keys, value.clone(), condition);
    conditions.into_iter().map(write).collect()
}

/// A transaction that changes the mark if it is still the one that was read.
pub(super) fn replace(keys: &Keys, read: Option<&KeyValue>, mark: &Mark) -> TxnRequest {
    let condition = match read {
        None => absent(keys),
        Some(kv) => {
            let at = CompareTo::ModRevision(kv.mod_revision);
            compare(keys, CompareTarget::Mod, at)
        }
    };
    write(keys, mark.value(), condition)
}

/// How a store counts that may be served.
pub(super) fn counting(client: &Client, found: Option<&KeyValue>) -> Result<Count, Error> {
    let what = match Mark::read(found) {
        Some(Mark::Counting(count)) => return Ok(count),
        Some(Mark::Importing { .. }) => UNFINISHED,
        None => STRANGE,
    };
    Err(Error::Refused { path: client.name.clone(), what: what.to_owned() })
}

/// The mark holds these bytes.
pub(super) fn holds(keys: &Keys, value: Bytes) -> Compare {
    compare(keys, CompareTarget::Value, CompareTo::Value(value))
}

fn absent(keys: &Keys) -> Compare {
    compare(keys, CompareTarget::Version, CompareTo::Version(0))
}

fn compare(keys: &Keys, target: CompareTarget, to: CompareTo) -> Compare {
    let result = CompareResult::Equal.into();
    Compare { result, target: target.into(), key: keys.mark(), to: Some(to) }
}

fn write(keys: &Keys, value: Bytes, condition: Compare) -> TxnRequest {
    let put = PutRequest { key: keys.mark(), value, prev_kv: false };
    let success = vec![Request::Put(put).into()];
    TxnRequest { compare: vec![condition], success, failure: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_says_what_was_written() {
        let read = |text: &str| {
            let value = Bytes::copy_from_slice(text.as_bytes());
            Mark::read(Some(&KeyValue { value, ..KeyValue::default() }))
        };
        let count = |base, floor| Mark::Counting(Count { base, floor });
        for (text, mark) in [
            ("", Some(count(0, 0))),
            ("base 7 floor 12", Some(count(7, 12))),
            ("importing ab base 7", Some(Mark::Importing { digest: "ab".to_owned(), base: 7 })),
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
        assert_eq!(Mark::read(None), Some(count(0, 0)));
    }
}
