//! A data directory that is read for an export, or made by an import.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension};

use super::failure::OnPath;
use super::lock::{self, Lock};
use super::offline::check_file;
use super::reader;
use super::record::{Record, to_sql};
use super::schema::{self, Access, Meta, connect, db_path, importing, publish};
use super::{make_dir, refuse_remains, verify, watermark};
use crate::moving::{Plan, Source, Start, Target};
use crate::{Error, Page, Range, Revision};

/// How many objects are read at once.
const PAGE: usize = 1_000;
/// How many bytes go into one transaction of an import.
const BATCH: usize = 4 << 20;

/// A database, as it is at one moment.
pub(crate) struct Reading {
    path: PathBuf,
    /// In one transaction for as long as it is open.
    conn: Connection,
    store: String,
    revision: Revision,
    count: u64,
}

impl Reading {
    /// Opens and verifies the database of a directory. A server may be using it.
    pub(crate) fn open(dir: &Path) -> Result<Self, Error> {
        // Read first: a server may commit at any time, and the database only gets newer.
        let noted = watermark::read(dir);
        let reading = Self::of(&db_path(dir))?;
        match noted {
            Some(noted) if noted > reading.revision => {
                Err(verify::behind(&reading.path, reading.revision, noted))
            }
            _ => Ok(reading),
        }
    }

    fn of(path: &Path) -> Result<Self, Error> {
        let conn = connect(path, Access::Inspect)?;
        conn.execute_batch("BEGIN").on(path)?;
        schema::recognise(path, &conn)?;
        // A damaged index can hide a key; an export must not leave one out without a word.
        let revision = verify::verify(path, &conn)?.revision;
        let store = Meta::read(path, &conn)?.store;
        let count = verify::count_keys(path, &conn)?;
        Ok(Self { path: path.to_owned(), conn, store, revision, count })
    }
}

impl Source for Reading {
    fn origin(&self) -> (&'static str, String) {
        ("embedded", self.store.clone())
    }

    fn revision(&self) -> Revision {
        self.revision
    }

    fn count(&self) -> u64 {
        self.count
    }

    fn page(&mut self, at: Revision, after: Option<&str>) -> Result<Page, Error> {
        page(&self.path, &self.conn, at, after)
    }
}

fn page(path: &Path, conn: &Connection, at: Revision, after: Option<&str>) -> Result<Page, Error> {
    let range = Range {
        prefix: String::new(),
        after: after.map(ToOwned::to_owned),
        limit: Some(PAGE),
        at: Some(at),
    };
    reader::range(path, conn, &range)
}

/// A database that an import makes. It has another name until it is complete.
///
/// The objects get revisions in the order of their keys, of which the last is the floor: there is
/// no history. So what an interrupted import has put are the first objects of its file.
pub(crate) struct Filling {
    dir: PathBuf,
    path: PathBuf,
    conn: Connection,
    floor: Revision,
    /// The revision of the next object.
    next: Revision,
    /// The revision of the last object that an earlier import has put; below `next` if none.
    there: Revision,
    pending: usize,
    _lock: Lock,
}

impl Filling {
    /// Begins in a directory that is empty or does not exist, or goes on.
    pub(crate) fn begin(dir: &Path, plan: &Plan) -> Result<Start<Self>, Error> {
        make_dir(dir)?;
        let lock = lock::lock(dir)?;
        let db = db_path(dir);
        if db.try_exists().on(&db)? {
            return Ok(Start::Occupied);
        }
        let path = importing(&db);
        let floor = plan.above + plan.objects;
        if !path.try_exists().on(&path)? {
            refuse_remains(dir)?;
            schema::create_at(&path, floor)?;
        }
        let conn = connect(&path, Access::Write)?;
        schema::recognise(&path, &conn)?;
        if Meta::read(&path, &conn)?.floor != floor {
            return Err(another(dir));
        }
        let there: i64 = conn
            .query_row("SELECT coalesce(max(rev), 0) FROM kv", [], |row| row.get(0))
            .on(&path)?;
        conn.execute_batch("BEGIN IMMEDIATE").on(&path)?;
        Ok(Start::Ready(Self {
            dir: dir.to_owned(),
            path,
            conn,
            floor,
            next: plan.above + 1,
            there: u64::try_from(there).unwrap_or_default(),
            pending: 0,
            _lock: lock,
        }))
    }

    /// Removes what an import has put.
    pub(crate) fn undo(dir: &Path) -> Result<(), Error> {
        let path = importing(&db_path(dir));
        if !path.try_exists().on(&path)? {
            let what = "holds no import that was not finished".to_owned();
            return Err(Error::Refused { path: dir.to_owned(), what });
        }
        let _lock = lock::lock(dir)?;
        schema::remove(&path)
    }

    fn insert(&mut self, record: &Record) -> Result<(), Error> {
        let Record { rev, key, created, prev, value, .. } = record;
        let value = value.as_deref().unwrap_or_default();
        self.conn
            .prepare_cached("INSERT INTO kv VALUES (?1, ?2, ?3, ?4, ?5, ?6)")
            .and_then(|mut statement| {
                let (rev, created, prev) = (to_sql(*rev), to_sql(*created), to_sql(*prev));
                statement.execute((rev, key, created, prev, value, record.checksum()))
            })
            .on(&self.path)?;
        self.pending += key.len() + value.len();
        if self.pending > BATCH {
            self.pending = 0;
            self.conn.execute_batch("COMMIT; BEGIN IMMEDIATE").on(&self.path)?;
        }
        Ok(())
    }

    fn found(&self, rev: Revision) -> Result<Option<Record>, Error> {
        let sql = "SELECT rev, key, created, prev, value, checksum FROM kv WHERE rev = ?1";
        let mut statement = self.conn.prepare_cached(sql).on(&self.path)?;
        let read = |row: &rusqlite::Row<'_>| Ok(Record::read(&self.path, row, 0));
        statement.query_row([to_sql(rev)], read).optional().on(&self.path)?.transpose()
    }
}

/// The error for what another import has put.
fn another(dir: &Path) -> Error {
    let what = "holds a part of another import; finish that one with its file, or take it back with \
                `windlass store import --undo`";
    Error::Refused { path: dir.to_owned(), what: what.to_owned() }
}

impl Source for Filling {
    fn origin(&self) -> (&'static str, String) {
        ("embedded", String::new())
    }

    fn revision(&self) -> Revision {
        self.floor
    }

    fn count(&self) -> u64 {
        0
    }

    fn page(&mut self, at: Revision, after: Option<&str>) -> Result<Page, Error> {
        page(&self.path, &self.conn, at, after)
    }
}

impl Target for Filling {
    fn put(&mut self, key: String, value: Bytes) -> Result<bool, Error> {
        let rev = self.next;
        self.next += 1;
        let record = Record { rev, key, created: rev, prev: 0, value: Some(value) };
        if rev > self.there {
            self.insert(&record)?;
            return Ok(false);
        }
        match self.found(rev)? {
            Some(found) if found == record => Ok(true),
            Some(found) if found.key == record.key => {
                let what = format!("holds {} with another value than the file", record.key);
                Err(Error::Refused { path: self.dir.clone(), what })
            }
            _ => Err(another(&self.dir)),
        }
    }

    fn settle(&mut self) -> Result<(), Error> {
        self.conn.execute_batch("COMMIT").on(&self.path)
    }

    fn publish(self: Box<Self>) -> Result<Revision, Error> {
        self.conn.close().map_err(|(_, error)| error).on(&self.path)?;
        let report = check_file(&self.path)?;
        publish(&self.path, &db_path(&self.dir))?;
        Ok(report.revision)
    }
}
