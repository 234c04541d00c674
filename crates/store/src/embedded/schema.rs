//! The database file: tables, settings and invariants.
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

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension};

use super::failure::PathContext;
use super::record::{from_sql, to_sql};
use crate::file_output::with_suffix;
use crate::{Error, Revision};

/// The only supported data format.
pub(super) const FORMAT: i64 = 1;
/// Revision of a new, empty store.
const FIRST: Revision = 1;
/// Timeout of a statement that waits for another process, for example a backup, to release the
/// file.
pub(super) const BUSY: Duration = Duration::from_secs(5);

/// All tables and indexes, exactly as `sqlite_schema` stores them.
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

/// Returns the database file of a data directory.
pub(super) fn db_path(dir: &Path) -> PathBuf {
    dir.join("windlass.db")
}

/// Returns the write-ahead log of a database file.
pub(super) fn wal_path(db: &Path) -> PathBuf {
    with_suffix(db, "-wal")
}

/// Returns the name of a database during an import.
pub(super) fn importing_path(db: &Path) -> PathBuf {
    with_suffix(db, ".import")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AccessMode {
    Write,
    /// Read-only access to everything, including damaged data.
    Inspect,
    Read,
}

/// Opens an existing database file with the settings that durability depends on.
pub(super) fn connect(path: &Path, access: AccessMode) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_NO_MUTEX
        | match access {
            AccessMode::Write | AccessMode::Inspect => OpenFlags::SQLITE_OPEN_READ_WRITE,
            AccessMode::Read => OpenFlags::SQLITE_OPEN_READ_ONLY,
        };
    let conn = Connection::open_with_flags(path, flags).with_path(path)?;
    conn.busy_timeout(BUSY).with_path(path)?;
    conn.set_prepared_statement_cache_capacity(32);
    // The operating system caches the file anyway, and the server holds every current object; the
    // writer only looks up the key index.
    let cache_kib = match access {
        AccessMode::Write => 4 << 10,
        AccessMode::Inspect | AccessMode::Read => 512,
    };
    if access == AccessMode::Inspect {
        // By default, closing the last connection checkpoints the WAL.
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).with_path(path)?;
    }
    // Both fullfsync settings matter only on macOS, where fsync alone does not reach the disk.
    conn.execute_batch(&format!(
        "PRAGMA synchronous = FULL;
         PRAGMA fullfsync = ON;
         PRAGMA checkpoint_fullfsync = ON;
         PRAGMA wal_autocheckpoint = 0;
         PRAGMA cell_size_check = ON;
         PRAGMA trusted_schema = OFF;
         PRAGMA temp_store = MEMORY;
         PRAGMA cache_size = -{cache_kib};"
    ))
    .with_path(path)?;
    Ok(conn)
}

/// Switches a verified database to WAL mode, which the file then remembers.
pub(super) fn use_wal(path: &Path, conn: &Connection) -> Result<(), Error> {
    let mode: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).with_path(path)?;
    if mode != "wal" {
        return Err(Error::Unavailable {
            path: path.to_owned(),
            what: format!("the file system does not allow a write-ahead log (mode {mode})"),
        });
    }
    Ok(())
}

/// Creates a new empty database. It gets its name only when it is complete.
pub(super) fn create(dir: &Path) -> Result<(), Error> {
    create_at(&db_path(dir), FIRST)
}

/// Creates a new empty database at any path, with a revision.
pub(super) fn create_at(path: &Path, floor: Revision) -> Result<(), Error> {
    let fresh = with_suffix(path, ".new");
    create_file(&fresh)?;
    let conn = connect(&fresh, AccessMode::Write)?;
    let store: String =
        conn.query_row("SELECT lower(hex(randomblob(16)))", [], |row| row.get(0)).with_path(&fresh)?;
    conn.execute_batch("BEGIN IMMEDIATE").with_path(&fresh)?;
    for (_, sql) in OBJECTS {
        conn.execute_batch(sql).with_path(&fresh)?;
    }
    DatabaseMeta { store, floor }.write(&fresh, &conn)?;
    conn.execute_batch("COMMIT").with_path(&fresh)?;
    conn.close().map_err(|(_, error)| error).with_path(&fresh)?;
    publish(&fresh, path)
}

/// Creates an empty file that only its owner can read, and removes remains of an earlier attempt.
pub(super) fn create_file(path: &Path) -> Result<(), Error> {
    remove(path)?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options.open(path).map(drop).with_path(path)
}

/// Removes a database if it exists. Removes the journals first: left alone, they would be applied
/// to the next database.
pub(super) fn remove(path: &Path) -> Result<(), Error> {
    for remains in [with_suffix(path, "-journal"), wal_path(path), path.to_owned()] {
        match fs::remove_file(&remains) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_path(&remains);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Renames a finished file durably. No connection may have it open.
pub(crate) fn publish(from: &Path, to: &Path) -> Result<(), Error> {
    File::open(from).and_then(|file| file.sync_all()).with_path(from)?;
    fs::rename(from, to).with_path(to)?;
    sync_dir(to.parent().unwrap_or(Path::new(".")))
}

/// Makes the directory entries durable.
pub(super) fn sync_dir(dir: &Path) -> Result<(), Error> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    File::open(dir).and_then(|file| file.sync_all()).with_path(dir)
}

/// Metadata stored in the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DatabaseMeta {
    /// Random store ID, assigned at creation.
    pub(super) store: String,
    pub(super) floor: Revision,
}

impl DatabaseMeta {
    /// Reads the metadata; rejects anything that is not a store of this format.
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
            .with_path(path)?;
        let Some((format, store, floor, checksum)) = row else {
            return Err(corrupt("its meta table is empty"));
        };
        let meta = Self { store, floor: from_sql(path, floor)? };
        if i64::from(meta.checksum(format)) != checksum {
            return Err(corrupt("the checksum of its meta record does not match"));
        }
        Ok(meta)
    }

    /// Replaces the metadata within the caller's transaction.
    pub(super) fn write(&self, path: &Path, conn: &Connection) -> Result<(), Error> {
        conn.prepare_cached("DELETE FROM meta").and_then(|mut s| s.execute([])).with_path(path)?;
        conn.prepare_cached("INSERT INTO meta VALUES (?1, ?2, ?3, ?4)")
            .and_then(|mut statement| {
                let checksum = self.checksum(FORMAT);
                statement.execute((FORMAT, &self.store, to_sql(self.floor), checksum))
            })
            .with_path(path)?;
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

/// Rejects a file that is not a store of the supported format.
///
/// Checks only the format first: a newer format may have changed everything else.
pub(super) fn check_format(path: &Path, conn: &Connection) -> Result<(), Error> {
    let corrupt = |what: String| Error::Corrupt { path: path.to_owned(), what };
    let tables: i64 = conn
        .query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'meta'", [], |row| row.get(0))
        .with_path(path)?;
    if tables == 0 {
        return Err(corrupt("it does not hold a store (it has no meta table)".to_owned()));
    }
    let format: Option<i64> =
        conn.query_row("SELECT format FROM meta", [], |row| row.get(0)).optional().with_path(path)?;
    refuse_foreign_header(path, conn)?;
    match format {
        None => return Err(corrupt("its meta table is empty".to_owned())),
        Some(FORMAT) => {}
        Some(found) => {
            let path = path.to_owned();
            return Err(Error::Format { path, found, supported: FORMAT });
        }
    }
    let mut statement = conn.prepare("SELECT name, sql FROM sqlite_schema ORDER BY name").with_path(path)?;
    let mut rows = statement.query([]).with_path(path)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().with_path(path)? {
        let pair: (String, String) = (row.get(0).with_path(path)?, row.get(1).with_path(path)?);
        found.push(pair);
    }
    let expected = OBJECTS.iter().map(|(name, sql)| (*name, *sql));
    if !found.iter().map(|(name, sql)| (name.as_str(), sql.as_str())).eq(expected) {
        return Err(corrupt("its tables are not those of a store".to_owned()));
    }
    Ok(())
}

/// Rejects a file that is readable but not writable, before anything depends on it.
pub(super) fn refuse_read_only(path: &Path, conn: &Connection) -> Result<(), Error> {
    if conn.is_readonly(rusqlite::MAIN_DB).with_path(path)? {
        let what = "it cannot be written".to_owned();
        return Err(Error::Unavailable { path: path.to_owned(), what });
    }
    Ok(())
}

/// Rejects a file that SQLite refuses to write despite its permissions: its header was changed.
fn refuse_foreign_header(path: &Path, conn: &Connection) -> Result<(), Error> {
    let permitted = rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
    if permitted && conn.is_readonly(rusqlite::MAIN_DB).with_path(path)? {
        let what = "its header requires a format that cannot be written".to_owned();
        return Err(Error::Corrupt { path: path.to_owned(), what });
    }
    Ok(())
}
