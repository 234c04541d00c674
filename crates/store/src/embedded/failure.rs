//! What an SQLite or I/O error means for the store.
//!
//! A full disk is transient. An I/O error is not: after a failed fsync the content of the disk is
//! unknown, and a second fsync may succeed without having written it. The store then stops accepting
//! writes.

use std::path::Path;

use rusqlite::ErrorCode;
use rusqlite::ffi;

use crate::Error;
use crate::file_output::io_error;

/// Converts an error of a connection on `path`.
pub(super) fn sqlite_error(path: &Path, error: &rusqlite::Error) -> Error {
    use rusqlite::Error as E;
    let path = path.to_owned();
    match error {
        E::SqliteFailure(code, text) => {
            let what = text.clone().unwrap_or_else(|| code.to_string());
            match code.code {
                ErrorCode::DiskFull => Error::Full { path },
                // The shared-memory file could not grow: the disk is full, and nothing was written.
                ErrorCode::SystemIoFailure if code.extended_code == ffi::SQLITE_IOERR_SHMSIZE => {
                    Error::Full { path }
                }
                // A short read where a page should be means that the file was truncated.
                ErrorCode::SystemIoFailure if code.extended_code == ffi::SQLITE_IOERR_SHORT_READ => {
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
                // Our statements match the schema that was checked at startup, so a mismatch means
                // that the file was changed since.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Errors are temporary, report corruption, or stop the store.
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
