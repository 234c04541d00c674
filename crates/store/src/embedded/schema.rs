//! The database file: its tables, its settings, and what must hold of it.
//!
//! The revision is the rowid, so that commits append and the feed is a scan. Invariants:
//!
//! - Above the floor every revision has its record, without gaps.
//! - At and below the floor there is at most one record per key, and none is a deletion.
//! - A record's `prev` is the record it replaced, or 0 if the key did not exist.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension};

use super::failure::OnPath;
use super::record::{Record, from_sql, to_sql};
use crate::{Error, Revision};

/// The only data format this program reads and writes.
pub(super) const FORMAT: i64 = 1;
/// The revision of an empty new store.
const FIRST: Revision = 1;
/// How long a statement waits for another process, such as a backup, to let go of the file.
pub(super) const BUSY: Duration = Duration::from_secs(5);

/// Every table and index, exactly as `sqlite_schema` keeps them.
const OBJECTS: [(&str, &str); 3] = [
    (
        "kv",
        "CREATE TABLE kv (rev INTEGER PRIMARY KEY, key TEXT NOT NULL, created INTEGER NOT NULL, \
         prev INTEGER NOT NULL, value BLOB, checksum INTEGER NOT NULL) STRICT",
    ),
    // The rowid is the last column of every index, so this is an index on (key, rev).
    ("kv_key", "CREATE INDEX kv_key ON kv (key)"),
    (
        "meta",
        "CREATE TABLE meta (format INTEGER NOT NULL, store TEXT NOT NULL, floor INTEGER NOT NULL, \
         checksum INTEGER NOT NULL) STRICT",
    ),
];

/// The database file in a data directory.
pub(super) fn db_path(dir: &Path) -> PathBuf {
    dir.join("windlass.db")
}

/// The write-ahead log beside a database file.
pub(super) fn wal_path(db: &Path) -> PathBuf {
    beside(db, "-wal")
}

/// The name a database has until it is complete.
pub(super) fn partial(db: &Path) -> PathBuf {
    beside(db, ".partial")
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Changing the database.
    Write,
    /// Reading it, never changing it, not even by tidying up at the end.
    Read,
}

/// Opens a database file that exists, with the settings durability depends on.
pub(super) fn connect(path: &Path, access: Access) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_NO_MUTEX
        | match access {
            Access::Write => OpenFlags::SQLITE_OPEN_READ_WRITE,
            Access::Read => OpenFlags::SQLITE_OPEN_READ_ONLY,
        };
    let conn = Connection::open_with_flags(path, flags).on(path)?;
    conn.busy_timeout(BUSY).on(path)?;
    conn.set_prepared_statement_cache_capacity(32);
    let cache_kib = match access {
        Access::Write => 16 << 10,
        Access::Read => 4 << 10,
    };
    // Both fullfsync settings only matter on macOS, where fsync alone does not reach the disk.
    conn.execute_batch(&format!(
        "PRAGMA synchronous = FULL;
         PRAGMA fullfsync = ON;
         PRAGMA checkpoint_fullfsync = ON;
         PRAGMA wal_autocheckpoint = 0;
         PRAGMA cell_size_check = ON;
         PRAGMA trusted_schema = OFF;
         PRAGMA cache_size = -{cache_kib};"
    ))
    .on(path)?;
    Ok(conn)
}

/// Switches a checked database to the write-ahead log, which the file then remembers.
pub(super) fn use_wal(path: &Path, conn: &Connection) -> Result<(), Error> {
    let mode: String =
        conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).on(path)?;
    if mode != "wal" {
        return Err(Error::Unavailable {
            path: path.to_owned(),
            what: format!("the file system does not allow a write-ahead log (mode {mode})"),
        });
    }
    Ok(())
}

/// Makes a new empty database. It appears under its name only when it is complete.
pub(super) fn create(dir: &Path) -> Result<(), Error> {
    let path = db_path(dir);
    let fresh = beside(&path, ".new");
    begin_file(&fresh)?;
    let conn = connect(&fresh, Access::Write)?;
    let store: String =
        conn.query_row("SELECT lower(hex(randomblob(16)))", [], |row| row.get(0)).on(&fresh)?;
    conn.execute_batch("BEGIN IMMEDIATE").on(&fresh)?;
    for (_, sql) in OBJECTS {
        conn.execute_batch(sql).on(&fresh)?;
    }
    Meta { store, floor: FIRST }.write(&fresh, &conn)?;
    conn.execute_batch("COMMIT").on(&fresh)?;
    conn.close().map_err(|(_, error)| error).on(&fresh)?;
    publish(&fresh, &path)
}

/// Makes an empty file that only its owner can read, without remains of an earlier attempt.
pub(super) fn begin_file(path: &Path) -> Result<(), Error> {
    for remains in [path.to_owned(), beside(path, "-journal"), wal_path(path)] {
        match fs::remove_file(&remains) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).on(&remains);
            }
            _ => {}
        }
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options.open(path).map(drop).on(path)
}

/// Gives a finished database file its name, durably. No connection may have it open.
pub(super) fn publish(from: &Path, to: &Path) -> Result<(), Error> {
    File::open(from).and_then(|file| file.sync_all()).on(from)?;
    fs::rename(from, to).on(to)?;
    sync_dir(to.parent().unwrap_or(Path::new(".")))
}

/// Makes the names in a directory durable.
pub(super) fn sync_dir(dir: &Path) -> Result<(), Error> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    File::open(dir).and_then(|file| file.sync_all()).on(dir)
}

/// What the database says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Meta {
    /// A random name, given when the store was made.
    pub(super) store: String,
    pub(super) floor: Revision,
}

impl Meta {
    /// Reads it, refusing what is not a store of this format.
    pub(super) fn read(path: &Path, conn: &Connection) -> Result<Self, Error> {
        let corrupt = |what: &str| Error::Corrupt { path: path.to_owned(), what: what.to_owned() };
        let row = conn
            .prepare_cached("SELECT format, store, floor, checksum FROM meta")
            .and_then(|mut statement| {
                statement
                    .query_row([], |row| {
                        let text: String = row.get(1)?;
                        Ok((row.get(0)?, text, row.get::<_, i64>(2)?, row.get::<_, i64>(3)?))
                    })
                    .optional()
            })
            .on(path)?;
        let Some((format, store, floor, checksum)) = row else {
            return Err(corrupt("its meta table is empty"));
        };
        let meta = Self { store, floor: from_sql(path, floor)? };
        if i64::from(meta.checksum(format)) != checksum {
            return Err(corrupt("the checksum of its meta record does not match"));
        }
        Ok(meta)
    }

    /// Replaces it, within the caller's transaction.
    pub(super) fn write(&self, path: &Path, conn: &Connection) -> Result<(), Error> {
        conn.prepare_cached("DELETE FROM meta").and_then(|mut s| s.execute([])).on(path)?;
        conn.prepare_cached("INSERT INTO meta VALUES (?1, ?2, ?3, ?4)")
            .and_then(|mut statement| {
                let checksum = self.checksum(FORMAT);
                statement.execute((FORMAT, &self.store, to_sql(self.floor), checksum))
            })
            .on(path)?;
        Ok(())
    }

    fn checksum(&self, format: i64) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&format.to_le_bytes());
        hasher.update(&self.floor.to_le_bytes());
        hasher.update(self.store.as_bytes());
        hasher.finalize()
    }
}

/// Refuses a file that is not a store of the supported format.
///
/// The format is looked at first, and only it: a newer format may have changed everything else.
pub(super) fn recognise(path: &Path, conn: &Connection) -> Result<(), Error> {
    let corrupt = |what: String| Error::Corrupt { path: path.to_owned(), what };
    let tables: i64 = conn
        .query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'meta'", [], |row| row.get(0))
        .on(path)?;
    if tables == 0 {
        return Err(corrupt("it does not hold a store (it has no meta table)".to_owned()));
    }
    let format: Option<i64> =
        conn.query_row("SELECT format FROM meta", [], |row| row.get(0)).optional().on(path)?;
    match format {
        None => return Err(corrupt("its meta table is empty".to_owned())),
        Some(FORMAT) => {}
        Some(found) => {
            let path = path.to_owned();
            return Err(Error::Format { path, found, supported: FORMAT });
        }
    }
    let mut statement =
        conn.prepare("SELECT name, sql FROM sqlite_schema ORDER BY name").on(path)?;
    let mut rows = statement.query([]).on(path)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().on(path)? {
        let pair: (String, String) = (row.get(0).on(path)?, row.get(1).on(path)?);
        found.push(pair);
    }
    let expected = OBJECTS.iter().map(|(name, sql)| (*name, *sql));
    if !found.iter().map(|(name, sql)| (name.as_str(), sql.as_str())).eq(expected) {
        return Err(corrupt("its tables are not those of a store".to_owned()));
    }
    Ok(())
}

/// What a verified database holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) revision: Revision,
    pub(super) floor: Revision,
    /// How many changes are stored.
    pub(super) records: u64,
    /// How long the values of the changes above the floor are, with the revision of each.
    pub(super) history: Vec<(Revision, u64)>,
    /// The bytes of all keys and values.
    pub(super) bytes: u64,
}

/// Reads the whole database and compares it with its own checksums and invariants.
///
/// SQLite has no checksums on pages, and a damaged index can hide a key without any error. So this
/// runs at every start, before anything is served.
pub(super) fn verify(path: &Path, conn: &Connection) -> Result<Contents, Error> {
    let corrupt = |what: String| Error::Corrupt { path: path.to_owned(), what };
    let answer: String =
        conn.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).on(path)?;
    if answer != "ok" {
        return Err(corrupt(answer));
    }
    let floor = Meta::read(path, conn)?.floor;
    let mut contents = Contents { revision: floor, floor, ..Contents::default() };
    let mut statement = conn
        .prepare("SELECT rev, key, created, prev, value, checksum FROM kv ORDER BY rev")
        .on(path)?;
    let mut rows = statement.query([]).on(path)?;
    while let Some(row) = rows.next().on(path)? {
        let record = Record::read(path, row, 0)?;
        let rev = record.rev;
        if rev > floor {
            if rev != contents.revision + 1 {
                return Err(corrupt(format!("record {} is missing", contents.revision + 1)));
            }
            contents.revision = rev;
            contents.history.push((rev, size(&record)));
        }
        if let Some(problem) = nonsense(&record, floor) {
            return Err(corrupt(format!("record {rev}: {problem}")));
        }
        contents.records += 1;
        contents.bytes += size(&record);
    }
    Ok(contents)
}

/// Refuses a database whose end does not reach what was acknowledged.
pub(super) fn behind(path: &Path, revision: Revision, noted: Revision) -> Error {
    Error::Corrupt {
        path: path.to_owned(),
        what: format!(
            "it ends at revision {revision}, but revision {noted} was acknowledged; its \
             write-ahead log is damaged or missing, or an older copy was put in its place"
        ),
    }
}

/// Compares every record with the one it says it replaced.
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
        let mut statement = conn.prepare(sql).on(path)?;
        let found = statement.query_row([to_sql(floor)], |row| row.get(0)).optional().on(path)?;
        if let Some(rev) = found {
            return Err(super::record::damaged(path, from_sql(path, rev)?, problem));
        }
    }
    Ok(())
}

/// How many keys exist at the newest revision.
pub(super) fn count_keys(path: &Path, conn: &Connection) -> Result<u64, Error> {
    let sql = "SELECT count(*) FROM (SELECT max(rev) AS rev FROM kv GROUP BY key) AS newest
               CROSS JOIN kv ON kv.rev = newest.rev WHERE kv.value IS NOT NULL";
    let count = conn.query_row(sql, [], |row| row.get(0)).on(path)?;
    from_sql(path, count)
}

fn size(record: &Record) -> u64 {
    (record.key.len() + record.value.as_ref().map_or(0, |value| value.len())) as u64
}

fn nonsense(record: &Record, floor: Revision) -> Option<&'static str> {
    let creates = record.created == record.rev;
    match record {
        r if r.rev == 0 || r.created == 0 => Some("its revision is 0"),
        r if r.created > r.rev => Some("it was created after itself"),
        r if r.prev >= r.rev => Some("it replaces a later record"),
        r if creates != (r.prev == 0) => Some("its creation and its predecessor disagree"),
        r if r.value.is_none() && creates => Some("it deletes a key that did not exist"),
        r if r.value.is_none() && r.rev <= floor => Some("it is a deletion below the floor"),
        _ => None,
    }
}
