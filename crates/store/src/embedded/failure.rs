//! What an SQLite or I/O error means for the store.
//!
//! A full disk passes. An I/O error does not: after a failed fsync nobody can say what is on disk,
//! and asking again may answer "fine" without it being so. The store then stops accepting writes.

use std::future::Future;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use rusqlite::ffi;
use tokio::sync::watch;

use crate::Error;

/// Translates an error of a connection on `path`.
pub(super) fn sqlite_error(path: &Path, error: &rusqlite::Error) -> Error {
    use rusqlite::Error as E;
    let path = path.to_owned();
    match error {
        E::SqliteFailure(code, text) => {
            let what = text.clone().unwrap_or_else(|| code.to_string());
            match code.code {
                ErrorCode::DiskFull => Error::Full { path },
                // The shared-memory file could not grow: no space, and nothing was written.
                ErrorCode::SystemIoFailure if code.extended_code == ffi::SQLITE_IOERR_SHMSIZE => {
                    Error::Full { path }
                }
                // A short read of a file that should have the page means it was cut off.
                ErrorCode::SystemIoFailure
                    if code.extended_code == ffi::SQLITE_IOERR_SHORT_READ =>
                {
                    Error::Corrupt { path, what }
                }
                ErrorCode::SystemIoFailure if code.extended_code != ffi::SQLITE_IOERR_NOMEM => {
                    Error::Failed {
                        what: format!(
                            "I/O error on {}: {what} (SQLite code {})",
                            path.display(),
                            code.extended_code
                        ),
                    }
                }
                // Our own statements are right for the schema that was checked at the start, so
                // what no longer fits it has changed under us.
                ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::ConstraintViolation
                | ErrorCode::TypeMismatch
                | ErrorCode::SchemaChanged
                | ErrorCode::Unknown => Error::Corrupt { path, what },
                _ => Error::Unavailable { path, what },
            }
        }
        E::FromSqlConversionFailure(..)
        | E::IntegralValueOutOfRange(..)
        | E::Utf8Error(..)
        | E::InvalidColumnType(..)
        | E::SqlInputError { .. }
        | E::QueryReturnedNoRows
        | E::QueryReturnedMoreThanOneRow => Error::Corrupt { path, what: error.to_string() },
        _ => Error::Unavailable { path, what: error.to_string() },
    }
}

/// Translates an error of the file system.
pub(crate) fn io_error(path: &Path, error: &std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::StorageFull => Error::Full { path: path.to_owned() },
        _ => Error::Unavailable { path: path.to_owned(), what: error.to_string() },
    }
}

/// Attaches the path of the file to the results of its connection.
pub(super) trait PathContext<T> {
    fn with_path(self, path: &Path) -> Result<T, Error>;
}

impl<T> PathContext<T> for rusqlite::Result<T> {
    fn with_path(self, path: &Path) -> Result<T, Error> {
        self.map_err(|error| sqlite_error(path, &error))
    }
}

impl<T> PathContext<T> for std::io::Result<T> {
    fn with_path(self, path: &Path) -> Result<T, Error> {
        self.map_err(|error| io_error(path, &error))
    }
}

/// The first fatal failure of a store, shared by its threads.
#[derive(Debug, Clone)]
pub(crate) struct FatalLatch {
    cause: watch::Sender<Option<Error>>,
    db: PathBuf,
}

impl FatalLatch {
    pub(crate) fn new(db: PathBuf) -> Self {
        Self { cause: watch::Sender::new(None), db }
    }

    /// Stops the store for good, if it has not stopped already.
    pub(crate) fn trip(&self, error: &Error) {
        self.cause.send_if_modified(|cause| {
            if cause.is_some() {
                return false;
            }
            tracing::error!(db = %self.db.display(), %error, "the store stops accepting writes");
            *cause = Some(error.clone());
            true
        });
    }

    /// Stops the store if this error is of the kind that does not pass.
    pub(crate) fn trip_if_fatal(&self, error: &Error) {
        if matches!(error, Error::Failed { .. }) {
            self.trip(error);
        }
    }

    pub(crate) fn cause(&self) -> Option<Error> {
        self.cause.borrow().clone()
    }

    /// Waits for the failure; never resolves if the store ends without one.
    pub(crate) fn wait(&self) -> impl Future<Output = Error> + Send + 'static {
        let mut cause = self.cause.subscribe();
        async move {
            let found = cause.wait_for(Option::is_some).await.map(|found| (*found).clone());
            match found {
                Ok(Some(error)) => error,
                _ => std::future::pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which errors pass, which mean damage, and which end the store.
    #[test]
    fn sqlite_errors_have_their_meaning() {
        let cases = [
            (ffi::SQLITE_FULL, "no space"),
            (ffi::SQLITE_IOERR_SHMSIZE, "no space"),
            (ffi::SQLITE_IOERR_FSYNC, "store failed"),
            (ffi::SQLITE_IOERR_DIR_FSYNC, "store failed"),
            (ffi::SQLITE_IOERR_WRITE, "store failed"),
            (ffi::SQLITE_IOERR_TRUNCATE, "store failed"),
            (ffi::SQLITE_IOERR_SHORT_READ, "is corrupt"),
            (ffi::SQLITE_CORRUPT, "is corrupt"),
            (ffi::SQLITE_CORRUPT_INDEX, "is corrupt"),
            (ffi::SQLITE_NOTADB, "is corrupt"),
            (ffi::SQLITE_CONSTRAINT_PRIMARYKEY, "is corrupt"),
            (ffi::SQLITE_BUSY, "x.db: error code"),
            (ffi::SQLITE_IOERR_NOMEM, "x.db: error code"),
            (ffi::SQLITE_NOMEM, "x.db: error code"),
        ];
        for (code, expected) in cases {
            let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            let text = sqlite_error(Path::new("x.db"), &error).to_string().to_lowercase();
            assert!(text.contains(expected) && text.contains("x.db"), "{code}: {text}");
        }
    }
}
