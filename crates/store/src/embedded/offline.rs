//! Offline check, backup and restore of a data directory, for the command line.

use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use super::failure::PathContext;
use super::schema::{self, AccessMode, DatabaseMeta, connect, create_file, db_path, publish};
use super::{verify, watermark};
use crate::file_output::{partial_path, refuse_untrusted};
use crate::{Error, RESTORE_JUMP, Revision};

/// Summary of a verified store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreReport {
    /// Path of the SQLite database file.
    pub path: PathBuf,
    /// Random store ID, assigned at creation.
    pub store: String,
    /// Version of the on-disk data format.
    pub format: i64,
    /// Newest committed revision in the database.
    pub revision: Revision,
    /// Oldest revision with complete history.
    pub floor: Revision,
    /// Number of keys that currently exist, deleted keys excluded.
    pub keys: u64,
    /// Number of stored changes, current values included.
    pub records: u64,
    /// Size of the stored keys and values in bytes.
    pub bytes: u64,
}

/// Checks a data directory thoroughly. Works while a server has it open.
pub fn check(dir: &Path) -> Result<StoreReport, Error> {
    // Read before the database: a server may commit at any time, and the database only gets newer.
    let noted = watermark::read(dir);
    let report = check_file(&db_path(dir))?;
    match noted {
        Some(noted) if noted > report.revision => {
            Err(verify::behind_watermark_error(&report.path, report.revision, noted))
        }
        _ => Ok(report),
    }
}

/// Checks a database file, for example a backup.
pub fn check_file(path: &Path) -> Result<StoreReport, Error> {
    let conn = connect(path, AccessMode::Inspect)?;
    let tx = conn.unchecked_transaction().with_path(path)?;
    let report = inspect(path, &tx)?;
    drop(tx);
    Ok(report)
}

/// Copies the newest state of a data directory into one file. Works while a server has the
/// directory open. The file gets its name only when it is complete, verified and durable.
///
/// Until then it is in a directory whose name ends in `.partial` and which only its owner can
/// enter: SQLite opens the file and its journals by path, so no other user may put anything there.
pub fn backup(dir: &Path, file: &Path) -> Result<StoreReport, Error> {
    if file.try_exists().with_path(file)? {
        return Err(refused_error(file, "exists already"));
    }
    refuse_untrusted(file)?;
    let directory = partial_path(file);
    let unfinished = directory.join("data");
    let source_path = db_path(dir);
    let source = connect(&source_path, AccessMode::Inspect)?;
    schema::check_format(&source_path, &source)?;
    begin_directory(&directory)?;
    copy(&source_path, &source, &unfinished)?;
    let report = check_file(&unfinished)?;
    publish(&unfinished, file)?;
    fs::remove_dir(&directory).with_path(&directory)?;
    Ok(StoreReport { path: file.to_owned(), ..report })
}

/// Creates a data directory from a backup. The directory must be empty or not exist.
///
/// The restored store continues [`RESTORE_JUMP`] above the backup, without history.
pub fn restore(file: &Path, dir: &Path) -> Result<StoreReport, Error> {
    let saved = check_file(file)?;
    windlass_safe_path::create_directory(dir, 0o700).with_path(dir)?;
    if fs::read_dir(dir).with_path(dir)?.next().is_some() {
        return Err(refused_error(dir, "is not empty; a backup is restored only into an empty directory"));
    }
    let path = db_path(dir);
    let unfinished = partial_path(&path);
    let source = connect(file, AccessMode::Inspect)?;
    copy(file, &source, &unfinished)?;
    let mut conn = connect(&unfinished, AccessMode::Write)?;
    super::retention::raise_floor(&unfinished, &mut conn, saved.revision + RESTORE_JUMP)?;
    close(&unfinished, conn)?;
    let report = check_file(&unfinished)?;
    publish(&unfinished, &path)?;
    Ok(StoreReport { path, ..report })
}

/// Creates a directory that only its owner can enter, and removes remains of an earlier attempt.
fn begin_directory(path: &Path) -> Result<(), Error> {
    let create = || DirBuilder::new().mode(0o700).create(path);
    match create() {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        created => return created.with_path(path),
    }
    let there = fs::symlink_metadata(path).with_path(path)?;
    let is_own = there.uid() == rustix::process::geteuid().as_raw();
    if !(there.is_dir() && is_own && there.mode() & 0o077 == 0) {
        return Err(refused_error(path, "was not created by an earlier backup of the same user; remove it"));
    }
    schema::remove(&path.join("data"))
}

fn inspect(path: &Path, conn: &Connection) -> Result<StoreReport, Error> {
    schema::check_format(path, conn)?;
    let contents = verify::verify(path, conn)?;
    let meta = DatabaseMeta::read(path, conn)?;
    verify::verify_links(path, conn, meta.floor)?;
    Ok(StoreReport {
        path: path.to_owned(),
        store: meta.store,
        format: schema::FORMAT,
        revision: contents.revision,
        floor: meta.floor,
        keys: verify::count_keys(path, conn)?,
        records: contents.records,
        bytes: contents.bytes,
    })
}

/// Copies a database snapshot into a standalone file.
fn copy(from: &Path, source: &Connection, to: &Path) -> Result<(), Error> {
    create_file(to)?;
    let mut target = Connection::open(to).with_path(to)?;
    {
        let backup = Backup::new(source, &mut target).with_path(to)?;
        // All pages in one step, so that no commit on the source intervenes.
        match backup.step(-1).with_path(to)? {
            StepResult::Done => {}
            _ => {
                return Err(Error::Unavailable {
                    path: from.to_owned(),
                    what: "cannot copy the database: it is busy".to_owned(),
                });
            }
        }
    }
    // The copy inherits WAL mode from its source; one file is easier to handle.
    target.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(())).with_path(to)?;
    close(to, target)
}

fn close(path: &Path, conn: Connection) -> Result<(), Error> {
    conn.close().map_err(|(_, error)| error).with_path(path)
}

fn refused_error(path: &Path, what: &str) -> Error {
    Error::Refused { path: path.to_owned(), what: what.to_owned() }
}
