//! Reads of state at a revision and of history, each from one consistent snapshot.
//!
//! A read transaction that starts after a commit was acknowledged sees that commit.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::types::Value;
use rusqlite::{Connection, Transaction};
use tokio::sync::Semaphore;

use super::failure::PathContext;
use super::record::{ChangeRecord, damaged_error, from_sql, to_sql};
use super::schema::{AccessMode, DatabaseMeta, connect};
use crate::{ChangeEvent, Error, KeyRange, RangePage, Revision};

/// A few read connections shared by async callers.
#[derive(Debug)]
pub(super) struct ReaderPool {
    path: PathBuf,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Connection>>,
}

impl ReaderPool {
    pub(super) fn new(path: PathBuf, connections: usize) -> Arc<Self> {
        let permits = Arc::new(Semaphore::new(connections.max(1)));
        Arc::new(Self { path, permits, idle: Mutex::new(Vec::new()) })
    }

    /// Runs a read on a blocking thread with a separate snapshot.
    pub(super) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Path, &Transaction<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| Error::Closed)?;
        let readers = Arc::clone(self);
        let task = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            readers.with_connection(read)
        });
        match task.await {
            Ok(result) => result,
            Err(_) => {
                Err(Error::Unavailable { path: self.path.clone(), what: "a read was abandoned".to_owned() })
            }
        }
    }

    /// Runs a read on the current thread.
    pub(super) fn with_connection<T>(
        &self,
        read: impl FnOnce(&Path, &Transaction<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if self.permits.is_closed() {
            return Err(Error::Closed);
        }
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let result = match idle {
            Some(conn) => Ok(conn),
            None => connect(&self.path, AccessMode::Read),
        }
        .and_then(|mut conn| {
            let tx = conn.transaction().with_path(&self.path)?;
            let answer = read(&self.path, &tx)?;
            drop(tx);
            if !self.permits.is_closed() {
                self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(conn);
            }
            Ok(answer)
        });
        // A failed read says nothing about what was written.
        result.map_err(|error| match error {
            Error::Failed { what } => Error::Unavailable { path: self.path.clone(), what },
            other => other,
        })
    }

    /// Cancels all reads that have not started.
    pub(super) fn close(&self) {
        self.permits.close();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Returns the newest revision and the floor of a snapshot.
fn bounds(path: &Path, conn: &Connection) -> Result<(Revision, Revision), Error> {
    let floor = DatabaseMeta::read(path, conn)?.floor;
    let newest: Option<i64> = conn
        .prepare_cached("SELECT max(rev) FROM kv")
        .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
        .with_path(path)?;
    // Compaction may have dropped the newest records if they were deletions; the floor remembers
    // the revision.
    let newest = newest.map(|number| from_sql(path, number)).transpose()?;
    Ok((newest.unwrap_or(floor).max(floor), floor))
}

fn check_bounds(asked: Revision, (newest, floor): (Revision, Revision)) -> Result<(), Error> {
    if asked < floor {
        return Err(Error::Compacted { floor });
    }
    if asked > newest {
        return Err(Error::Future { revision: newest });
    }
    Ok(())
}

/// Selects the newest record at a revision of every key in the bounds, unless it is a deletion.
///
/// The subquery runs as a co-routine over the index alone and yields keys in order; `CROSS JOIN`
/// keeps it the outer loop. A page therefore costs what it returns, not what the range holds.
const RANGE: &str = "
    SELECT kv.rev, kv.key, kv.created, kv.prev, kv.value, kv.checksum
    FROM (SELECT max(rev) AS rev FROM kv WHERE key >= ?1 AND key < ?2 AND rev <= ?3 GROUP BY key)
        AS newest
    CROSS JOIN kv ON kv.rev = newest.rev
    WHERE kv.value IS NOT NULL
    LIMIT ?4";

/// Reads one page of keys, all at the same revision.
pub(super) fn range(path: &Path, conn: &Connection, range: &KeyRange) -> Result<RangePage, Error> {
    let bounds = bounds(path, conn)?;
    let revision = range.at.unwrap_or(bounds.0);
    check_bounds(revision, bounds)?;
    let mut page = RangePage { revision, items: Vec::new(), more: false };
    let (from, to) = key_bounds(range);
    let limit = range.limit.unwrap_or(usize::MAX);
    // One more than requested shows whether there is more.
    let fetch = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    let mut statement = conn.prepare_cached(RANGE).with_path(path)?;
    let mut rows = statement.query((from, to, to_sql(revision), fetch)).with_path(path)?;
    while let Some(row) = rows.next().with_path(path)? {
        if page.items.len() == limit {
            page.more = true;
            break;
        }
        let record = ChangeRecord::read(path, row, 0)?;
        let rev = record.rev;
        let Some((key, stored)) = record.into_stored() else {
            return Err(damaged_error(path, rev, "it is a deletion where a value was found"));
        };
        if page.items.last().is_some_and(|(last, _)| *last >= key) {
            return Err(damaged_error(path, rev, "its key is out of order"));
        }
        page.items.push((key, stored));
    }
    Ok(page)
}

/// Returns the inclusive lower and exclusive upper key bound of a range.
fn key_bounds(range: &KeyRange) -> (String, Value) {
    let from = match &range.after {
        // The successor of a key is the key with the smallest character appended.
        Some(after) if *after >= range.prefix => format!("{after}\0"),
        _ => range.prefix.clone(),
    };
    // A blob sorts after every text.
    let to = after_prefix(&range.prefix).map_or(Value::Blob(Vec::new()), Value::Text);
    (from, to)
}

/// Returns the smallest text greater than every text with this prefix, if there is one.
fn after_prefix(prefix: &str) -> Option<String> {
    let mut chars = prefix.chars();
    while let Some(last) = chars.next_back() {
        let next = match last {
            // Surrogates are not characters.
            '\u{d7ff}' => Some('\u{e000}'),
            other => char::from_u32(u32::from(other) + 1),
        };
        if let Some(next) = next {
            return Some(format!("{}{next}", chars.as_str()));
        }
    }
    None
}

const HISTORY: &str = "
    SELECT kv.rev, kv.key, kv.created, kv.prev, kv.value, kv.checksum,
           old.rev, old.key, old.created, old.prev, old.value, old.checksum
    FROM kv LEFT JOIN kv AS old ON old.rev = kv.prev
    WHERE kv.rev > ?1 ORDER BY kv.rev LIMIT ?2";

/// Returns the changes after a revision; fails if there is a gap.
pub(super) fn history(
    path: &Path,
    conn: &Connection,
    after: Revision,
    limit: usize,
) -> Result<Vec<ChangeEvent>, Error> {
    check_bounds(after, bounds(path, conn)?)?;
    let mut statement = conn.prepare_cached(HISTORY).with_path(path)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows = statement.query((to_sql(after), limit)).with_path(path)?;
    let mut events: Vec<ChangeEvent> = Vec::new();
    while let Some(row) = rows.next().with_path(path)? {
        let record = ChangeRecord::read(path, row, 0)?;
        let expected = events.last().map_or(after, |event| event.revision) + 1;
        if record.rev != expected {
            return Err(damaged_error(path, expected, "it is missing"));
        }
        let previous = match record.prev {
            0 => None,
            prev => Some(previous(path, row, prev, &record)?),
        };
        events.push(record.into_event(previous));
    }
    Ok(events)
}

fn previous(
    path: &Path,
    row: &rusqlite::Row<'_>,
    prev: Revision,
    record: &ChangeRecord,
) -> Result<crate::StoredValue, Error> {
    let found: Option<i64> = row.get(6).with_path(path)?;
    if found.is_none() {
        return Err(damaged_error(
            path,
            prev,
            &format!("record {} replaced it, but it is missing", record.rev),
        ));
    }
    let old = ChangeRecord::read(path, row, 6)?;
    match old.into_stored() {
        Some((key, stored)) if key == record.key => Ok(stored),
        _ => Err(damaged_error(path, record.rev, "the record it replaced is not of its key")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix() {
        let cases = [
            ("", None),
            ("a", Some("b")),
            ("a/", Some("a0")),
            ("a\u{d7ff}", Some("a\u{e000}")),
            ("a\u{10ffff}", Some("b")),
            ("\u{10ffff}\u{10ffff}", None),
        ];
        for (prefix, end) in cases {
            assert_eq!(after_prefix(prefix).as_deref(), end, "{prefix:?}");
        }
    }

    /// The order and cost of a page depend on SQLite's query plan.
    #[test]
    fn queries_run_along_the_indexes() {
        let dir = tempfile::tempdir().unwrap();
        super::super::schema::create(dir.path()).unwrap();
        let path = super::super::schema::db_path(dir.path());
        let conn = connect(&path, AccessMode::Read).unwrap();
        let plan = |sql: &str| -> Vec<String> {
            let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let count = statement.parameter_count();
            let rows = statement.query_map(rusqlite::params_from_iter(vec![1; count]), |row| row.get(3));
            rows.unwrap().map(Result::unwrap).collect()
        };
        assert_eq!(
            plan(RANGE),
            [
                "CO-ROUTINE newest",
                "SEARCH kv USING COVERING INDEX kv_key (key>? AND key<?)",
                "SCAN newest",
                "SEARCH kv USING INTEGER PRIMARY KEY (rowid=?)",
            ]
        );
        assert_eq!(
            plan(HISTORY),
            [
                "SEARCH kv USING INTEGER PRIMARY KEY (rowid>?)",
                "SEARCH old USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN",
            ]
        );
    }
}
