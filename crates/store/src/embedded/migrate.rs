//! Data directories as source of an export and target of an import.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension};

use super::failure::PathContext;
use super::lock::{self, DirectoryLock};
use super::offline::check_file;
use super::reader;
use super::record::{ChangeRecord, to_sql};
use super::schema::{self, AccessMode, DatabaseMeta, connect, db_path, importing_path, publish};
use super::{create_dir, refuse_leftover_files, verify, watermark};
use crate::migrate::{ImportPlan, ImportStart, MigrationSource, MigrationTarget};
use crate::{Error, KeyRange, RangePage, Revision};

/// Number of objects per read.
const PAGE: usize = 1_000;
/// Bytes per transaction of an import.
const BATCH: usize = 4 << 20;

/// A database snapshot to export.
pub(crate) struct EmbeddedSource {
    path: PathBuf,
    /// Connection that stays in one transaction while open.
    conn: Connection,
    store: String,
    revision: Revision,
    count: u64,
}

impl EmbeddedSource {
    /// Opens and verifies the database of a directory. A server may be using it.
    pub(crate) fn open(dir: &Path) -> Result<Self, Error> {
        // Read before the database: a server may commit at any time, and the database only gets
        // newer.
        let noted = watermark::read(dir);
        let reading = Self::open_file(&db_path(dir))?;
        match noted {
            Some(noted) if noted > reading.revision => {
                Err(verify::behind_watermark_error(&reading.path, reading.revision, noted))
            }
            _ => Ok(reading),
        }
    }

    fn open_file(path: &Path) -> Result<Self, Error> {
        let conn = connect(path, AccessMode::Inspect)?;
        conn.execute_batch("BEGIN").with_path(path)?;
        schema::check_format(path, &conn)?;
        // A damaged index can hide a key; an export must not omit one silently.
        let revision = verify::verify(path, &conn)?.revision;
        let store = DatabaseMeta::read(path, &conn)?.store;
        let count = verify::count_keys(path, &conn)?;
        Ok(Self { path: path.to_owned(), conn, store, revision, count })
    }
}

impl MigrationSource for EmbeddedSource {
    fn origin(&self) -> (&'static str, String) {
        ("embedded", self.store.clone())
    }

    fn revision(&self) -> Revision {
        self.revision
    }

    fn count(&self) -> u64 {
        self.count
    }

    fn page(&mut self, at: Revision, after: Option<&str>) -> Result<RangePage, Error> {
        page(&self.path, &self.conn, at, after)
    }
}

fn page(path: &Path, conn: &Connection, at: Revision, after: Option<&str>) -> Result<RangePage, Error> {
    let range = KeyRange {
        prefix: String::new(),
        after: after.map(ToOwned::to_owned),
        limit: Some(PAGE),
        at: Some(at),
    };
    reader::range(path, conn, &range)
}

/// A database created by an import. It has a temporary name until it is complete.
///
/// The objects get revisions in key order, and the last revision is the floor: there is no history.
/// An interrupted import has therefore written the first objects of its file.
pub(crate) struct EmbeddedTarget {
    dir: PathBuf,
    path: PathBuf,
    conn: Connection,
    floor: Revision,
    /// Revision of the next imported object.
    next: Revision,
    /// Revision of the last object written by an earlier import; below `next` if none.
    imported: Revision,
    pending: usize,
    _lock: DirectoryLock,
}

impl EmbeddedTarget {
    /// Starts in a directory that is empty or does not exist, or resumes an import.
    pub(crate) fn begin(dir: &Path, plan: &ImportPlan) -> Result<ImportStart<Self>, Error> {
        create_dir(dir)?;
        let lock = lock::lock_directory(dir)?;
        let db = db_path(dir);
        if db.try_exists().with_path(&db)? {
            return Ok(ImportStart::Occupied);
        }
        let path = importing_path(&db);
        let floor = plan.above + plan.objects;
        if !path.try_exists().with_path(&path)? {
            refuse_leftover_files(dir)?;
            schema::create_at(&path, floor)?;
        }
        let conn = connect(&path, AccessMode::Write)?;
        schema::check_format(&path, &conn)?;
        if DatabaseMeta::read(&path, &conn)?.floor != floor {
            return Err(other_import_error(dir));
        }
        let there: i64 =
            conn.query_row("SELECT coalesce(max(rev), 0) FROM kv", [], |row| row.get(0)).with_path(&path)?;
        conn.execute_batch("BEGIN IMMEDIATE").with_path(&path)?;
        Ok(ImportStart::Ready(Self {
            dir: dir.to_owned(),
            path,
            conn,
            floor,
            next: plan.above + 1,
            imported: u64::try_from(there).unwrap_or_default(),
            pending: 0,
            _lock: lock,
        }))
    }

    /// Removes the data that an import wrote.
    pub(crate) fn undo(dir: &Path) -> Result<(), Error> {
        let path = importing_path(&db_path(dir));
        if !path.try_exists().with_path(&path)? {
            let what = "has no unfinished import".to_owned();
            return Err(Error::Refused { path: dir.to_owned(), what });
        }
        let _lock = lock::lock_directory(dir)?;
        schema::remove(&path)
    }

    fn insert(&mut self, record: &ChangeRecord) -> Result<(), Error> {
        let ChangeRecord { rev, key, created, prev, value, .. } = record;
        let value = value.as_deref().unwrap_or_default();
        self.conn
            .prepare_cached("INSERT INTO kv VALUES (?1, ?2, ?3, ?4, ?5, ?6)")
            .and_then(|mut statement| {
                let (rev, created, prev) = (to_sql(*rev), to_sql(*created), to_sql(*prev));
                statement.execute((rev, key, created, prev, value, record.checksum()))
            })
            .with_path(&self.path)?;
        self.pending += key.len() + value.len();
        if self.pending > BATCH {
            self.pending = 0;
            self.conn.execute_batch("COMMIT; BEGIN IMMEDIATE").with_path(&self.path)?;
        }
        Ok(())
    }

    fn find_record(&self, rev: Revision) -> Result<Option<ChangeRecord>, Error> {
        let sql = "SELECT rev, key, created, prev, value, checksum FROM kv WHERE rev = ?1";
        let mut statement = self.conn.prepare_cached(sql).with_path(&self.path)?;
        let read = |row: &rusqlite::Row<'_>| Ok(ChangeRecord::read(&self.path, row, 0));
        statement.query_row([to_sql(rev)], read).optional().with_path(&self.path)?.transpose()
    }
}

/// Returns the error for data of another import.
fn other_import_error(dir: &Path) -> Error {
    let what = "holds a part of another import; finish that one with its file, or take it back with \
                `windlass store import --undo`";
    Error::Refused { path: dir.to_owned(), what: what.to_owned() }
}

impl MigrationSource for EmbeddedTarget {
    fn origin(&self) -> (&'static str, String) {
        ("embedded", String::new())
    }

    fn revision(&self) -> Revision {
        self.floor
    }

    fn count(&self) -> u64 {
        0
    }

    fn page(&mut self, at: Revision, after: Option<&str>) -> Result<RangePage, Error> {
        page(&self.path, &self.conn, at, after)
    }
}

impl MigrationTarget for EmbeddedTarget {
    fn put(&mut self, key: String, value: Bytes) -> Result<bool, Error> {
        let rev = self.next;
        self.next += 1;
        let record = ChangeRecord { rev, key, created: rev, prev: 0, value: Some(value) };
        if rev > self.imported {
            self.insert(&record)?;
            return Ok(false);
        }
        match self.find_record(rev)? {
            Some(found) if found == record => Ok(true),
            Some(found) if found.key == record.key => {
                let what = format!("holds {} with a value that differs from the file", record.key);
                Err(Error::Refused { path: self.dir.clone(), what })
            }
            _ => Err(other_import_error(&self.dir)),
        }
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.conn.execute_batch("COMMIT").with_path(&self.path)
    }

    fn publish(self: Box<Self>) -> Result<Revision, Error> {
        self.conn.close().map_err(|(_, error)| error).with_path(&self.path)?;
        let report = check_file(&self.path)?;
        publish(&self.path, &db_path(&self.dir))?;
        Ok(report.revision)
    }
}
