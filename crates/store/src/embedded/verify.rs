//! Verification of a database against its checksums and invariants.
//!
//! SQLite has no page checksums, and a damaged index can hide a key without any error. The whole
//! database is therefore read at every start, before anything is served.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension};

use super::failure::PathContext;
use super::record::{ChangeRecord, damaged_error, from_sql, to_sql};
use super::schema::DatabaseMeta;
use crate::{Error, Revision};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct VerifiedContents {
    pub(super) revision: Revision,
    pub(super) floor: Revision,
    /// Number of changes in the database.
    pub(super) records: u64,
    /// Revision and value length of each change above the floor.
    pub(super) history: Vec<(Revision, u64)>,
    /// Size of all keys and values in bytes.
    pub(super) bytes: u64,
}

/// Reads and verifies the whole database; returns a summary.
pub(super) fn verify(path: &Path, conn: &Connection) -> Result<VerifiedContents, Error> {
    let corrupt = |what: String| Error::Corrupt { path: path.to_owned(), what };
    let answer: String = conn.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).with_path(path)?;
    if answer != "ok" {
        return Err(corrupt(answer));
    }
    let floor = DatabaseMeta::read(path, conn)?.floor;
    let mut contents = VerifiedContents { revision: floor, floor, ..VerifiedContents::default() };
    let mut statement = conn
        .prepare("SELECT rev, key, created, prev, value, checksum FROM kv ORDER BY rev")
        .with_path(path)?;
    let mut rows = statement.query([]).with_path(path)?;
    while let Some(row) = rows.next().with_path(path)? {
        let record = ChangeRecord::read(path, row, 0)?;
        let rev = record.rev;
        if rev > floor {
            if rev != contents.revision + 1 {
                return Err(corrupt(format!("record {} is missing", contents.revision + 1)));
            }
            contents.revision = rev;
            contents.history.push((rev, size(&record)));
        }
        if let Some(problem) = find_inconsistency(&record, floor) {
            return Err(corrupt(format!("record {rev}: {problem}")));
        }
        contents.records += 1;
        contents.bytes += size(&record);
    }
    Ok(contents)
}

/// Returns the error for a database that lacks acknowledged revisions.
pub(super) fn behind_watermark_error(path: &Path, revision: Revision, noted: Revision) -> Error {
    Error::Corrupt {
        path: path.to_owned(),
        what: format!(
            "it ends at revision {revision}, but revision {noted} was acknowledged; its \
             write-ahead log is damaged or missing, or an older copy was put in its place"
        ),
    }
}

/// Compares every record with the one it claims to replace.
pub(super) fn verify_links(path: &Path, conn: &Connection, floor: Revision) -> Result<(), Error> {
    let checks = [
        (
            "SELECT kv.rev FROM kv WHERE rev > ?1 AND prev <> coalesce((
                 SELECT CASE WHEN old.value IS NULL THEN 0 ELSE old.rev END FROM kv AS old
                 WHERE old.key = kv.key AND old.rev < kv.rev ORDER BY old.rev DESC LIMIT 1), 0)",
            "the record it replaced is not the one before it",
        ),
        (
            "SELECT kv.rev FROM kv JOIN kv AS old ON old.rev = kv.prev
             WHERE kv.rev > ?1 AND old.created <> kv.created",
            "the record it replaced was created at another revision",
        ),
        (
            "SELECT max(rev) FROM kv WHERE rev <= ?1 GROUP BY key HAVING count(*) > 1",
            "an older record of its key is left below the floor",
        ),
    ];
    for (sql, problem) in checks {
        let mut statement = conn.prepare(sql).with_path(path)?;
        let found = statement.query_row([to_sql(floor)], |row| row.get(0)).optional().with_path(path)?;
        if let Some(rev) = found {
            return Err(damaged_error(path, from_sql(path, rev)?, problem));
        }
    }
    Ok(())
}

/// Counts the keys that exist at the newest revision.
pub(super) fn count_keys(path: &Path, conn: &Connection) -> Result<u64, Error> {
    let sql = "SELECT count(*) FROM (SELECT max(rev) AS rev FROM kv GROUP BY key) AS newest
               CROSS JOIN kv ON kv.rev = newest.rev WHERE kv.value IS NOT NULL";
    let count = conn.query_row(sql, [], |row| row.get(0)).with_path(path)?;
    from_sql(path, count)
}

fn size(record: &ChangeRecord) -> u64 {
    (record.key.len() + record.value.as_ref().map_or(0, |value| value.len())) as u64
}

fn find_inconsistency(record: &ChangeRecord, floor: Revision) -> Option<&'static str> {
    let creates = record.created == record.rev;
    match record {
        r if r.rev == 0 || r.created == 0 => Some("its revision is 0"),
        r if r.created > r.rev => Some("its creation revision is later than its revision"),
        r if r.prev >= r.rev => Some("it replaces a later record"),
        r if creates != (r.prev == 0) => Some("its creation and its predecessor disagree"),
        r if r.value.is_none() && creates => Some("it deletes a key that did not exist"),
        r if r.value.is_none() && r.rev <= floor => Some("it is a deletion below the floor"),
        _ => None,
    }
}
