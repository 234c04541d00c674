//! One row of the log, with a checksum over its fields.

use std::path::Path;

use bytes::Bytes;
use rusqlite::Row;

use super::failure::PathContext;
use crate::{ChangeEvent, Error, Revision, StoredValue};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChangeRecord {
    pub(super) rev: Revision,
    pub(super) key: String,
    /// Revision that created this incarnation of the key.
    pub(super) created: Revision,
    /// Revision that this change replaced; 0 when it created the key.
    pub(super) prev: Revision,
    /// `None` when this change deleted the key.
    pub(super) value: Option<Bytes>,
}

impl ChangeRecord {
    /// Reads a record from the columns starting at `first`, and verifies its checksum.
    pub(super) fn read(path: &Path, row: &Row<'_>, first: usize) -> Result<Self, Error> {
        let rev = from_sql(path, row.get(first).with_path(path)?)?;
        let read = || -> rusqlite::Result<_> {
            let key: String = row.get(first + 1)?;
            let value: Option<&[u8]> = match row.get_ref(first + 4)? {
                rusqlite::types::ValueRef::Null => None,
                found => Some(found.as_blob()?),
            };
            let value = value.map(Bytes::copy_from_slice);
            Ok((key, row.get(first + 2)?, row.get(first + 3)?, value, row.get::<_, i64>(first + 5)?))
        };
        let (key, created, prev, value, checksum) =
            read().map_err(|e| damaged_error(path, rev, &e.to_string()))?;
        let created = from_sql(path, created)?;
        let record = Self { rev, key, created, prev: from_sql(path, prev)?, value };
        if i64::from(record.checksum()) != checksum {
            return Err(damaged_error(path, rev, "its checksum does not match"));
        }
        Ok(record)
    }

    pub(super) fn checksum(&self) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        for number in [self.rev, self.created, self.prev, self.key.len() as u64] {
            hasher.update(&number.to_le_bytes());
        }
        hasher.update(self.key.as_bytes());
        hasher.update(&[u8::from(self.value.is_none())]);
        hasher.update(self.value.as_deref().unwrap_or_default());
        hasher.finalize()
    }

    /// Returns the state after this change; `None` if it deleted the key.
    pub(super) fn into_stored(self) -> Option<(String, StoredValue)> {
        let stored = StoredValue { revision: self.rev, created: self.created, value: self.value? };
        Some((self.key, stored))
    }

    pub(super) fn into_event(self, previous: Option<StoredValue>) -> ChangeEvent {
        ChangeEvent { revision: self.rev, key: self.key, value: self.value, created: self.created, previous }
    }
}

pub(super) fn damaged_error(path: &Path, rev: Revision, why: &str) -> Error {
    Error::Corrupt { path: path.to_owned(), what: format!("record {rev}: {why}") }
}

/// Converts a revision to SQLite's integer type.
pub(super) fn to_sql(revision: Revision) -> i64 {
    // Nothing is stored beyond this revision, so clamping preserves every comparison.
    i64::try_from(revision).unwrap_or(i64::MAX)
}

/// Converts a revision from SQLite's integer type.
pub(super) fn from_sql(path: &Path, number: i64) -> Result<Revision, Error> {
    Revision::try_from(number).map_err(|_| Error::Corrupt {
        path: path.to_owned(),
        what: format!("{number} is not a valid revision"),
    })
}
