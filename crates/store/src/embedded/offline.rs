//! Checking, backing up and restoring a data directory, for the command line.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use super::failure::OnPath;
use super::schema::{self, Access, Meta, connect, db_path, private_file, publish};
use super::watermark;
use crate::{Error, Revision};

/// How far a restored store's revision lies above the one in its backup.
///
/// Clients may remember revisions from after the backup. None of those is ever given out again, as
/// long as fewer changes than this were made between the backup and the restore.
pub const RESTORE_JUMP: Revision = 1_000_000;

/// What a sound store holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The database file.
    pub path: PathBuf,
    /// The random name the store was given when it was made.
    pub store: String,
    /// The data format.
    pub format: i64,
    /// The newest revision.
    pub revision: Revision,
    /// The oldest revision with complete history.
    pub floor: Revision,
    /// How many keys exist.
    pub keys: u64,
    /// How many changes are stored, current values included.
    pub records: u64,
    /// The bytes of the stored keys and values.
    pub bytes: u64,
}

/// Checks a data directory thoroughly. Also works while a server has it open.
pub fn check(dir: &Path) -> Result<Report, Error> {
    let report = check_file(&db_path(dir))?;
    match watermark::read(dir) {
        Some(noted) if noted > report.revision => {
            // A server may have committed between the two reads; then a second look agrees.
            let again = check_file(&db_path(dir))?;
            if noted > again.revision {
                return Err(schema::behind(&again.path, again.revision, noted));
            }
            Ok(again)
        }
        _ => Ok(report),
    }
}

/// Checks a database file, for example a backup.
pub fn check_file(path: &Path) -> Result<Report, Error> {
    let conn = connect(path, Access::Read)?;
    let tx = conn.unchecked_transaction().on(path)?;
    let report = inspect(path, &tx)?;
    drop(tx);
    Ok(report)
}

/// Copies the newest state of a data directory into one file. Also works while a server has the
/// directory open. The file appears under its name only when it is complete, verified and durable.
pub fn backup(dir: &Path, file: &Path) -> Result<Report, Error> {
    if file.try_exists().on(file)? {
        return Err(refused(file, "exists already"));
    }
    let partial = beside(file, ".partial");
    let source_path = db_path(dir);
    let source = connect(&source_path, Access::Read)?;
    schema::recognise(&source_path, &source)?;
    copy(&source_path, &source, &partial)?;
    let report = check_file(&partial)?;
    publish(&partial, file)?;
    Ok(Report { path: file.to_owned(), ..report })
}

/// Makes a data directory from a backup. The directory must be empty or not exist.
///
/// The restored store continues [`RESTORE_JUMP`] above the backup, without history.
pub fn restore(file: &Path, dir: &Path) -> Result<Report, Error> {
    let saved = check_file(file)?;
    fs::create_dir_all(dir).on(dir)?;
    if fs::read_dir(dir).on(dir)?.next().is_some() {
        return Err(refused(
            dir,
            "is not empty; a backup is restored only into an empty directory",
        ));
    }
    let path = db_path(dir);
    let partial = beside(&path, ".partial");
    let source = connect(file, Access::Read)?;
    copy(file, &source, &partial)?;
    let mut conn = connect(&partial, Access::Write)?;
    super::retention::raise_floor(&partial, &mut conn, saved.revision + RESTORE_JUMP)?;
    close(&partial, conn)?;
    let report = check_file(&partial)?;
    publish(&partial, &path)?;
    Ok(Report { path, ..report })
}

fn inspect(path: &Path, conn: &Connection) -> Result<Report, Error> {
    schema::recognise(path, conn)?;
    let contents = schema::verify(path, conn)?;
    let meta = Meta::read(path, conn)?;
    schema::verify_links(path, conn, meta.floor)?;
    Ok(Report {
        path: path.to_owned(),
        store: meta.store,
        format: schema::FORMAT,
        revision: contents.revision,
        floor: meta.floor,
        keys: schema::count_keys(path, conn)?,
        records: contents.records,
        bytes: contents.bytes,
    })
}

/// Copies a database, as it is at one moment, into a file that stands alone.
fn copy(from: &Path, source: &Connection, to: &Path) -> Result<(), Error> {
    private_file(to)?;
    let mut target = Connection::open(to).on(to)?;
    {
        let backup = Backup::new(source, &mut target).on(to)?;
        // All pages in one step, so that commits on the source cannot come between.
        match backup.step(-1).on(to)? {
            StepResult::Done => {}
            _ => {
                return Err(Error::Unavailable {
                    path: from.to_owned(),
                    what: "it is busy and could not be copied".to_owned(),
                });
            }
        }
    }
    // The copy remembers the write-ahead log of its source; one file is easier to keep.
    target.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(())).on(to)?;
    close(to, target)
}

fn close(path: &Path, conn: Connection) -> Result<(), Error> {
    conn.close().map_err(|(_, error)| error).on(path)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn refused(path: &Path, what: &str) -> Error {
    Error::Refused { path: path.to_owned(), what: what.to_owned() }
}
