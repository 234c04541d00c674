//! Files that a store writes: their names until they are complete, and their errors.

use std::path::{Path, PathBuf};

use crate::Error;

/// Translates an error of the file system.
pub(crate) fn io_error(path: &Path, error: &std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::StorageFull => Error::Full { path: path.to_owned() },
        _ => Error::Unavailable { path: path.to_owned(), what: error.to_string() },
    }
}

/// The name of a database or an export until it is complete.
pub(crate) fn partial_path(file: &Path) -> PathBuf {
    with_suffix(file, ".partial")
}

/// Appends a suffix to the last component of a path.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Refuses to write a file with secrets where other users can replace it during the write.
pub(crate) fn refuse_untrusted(file: &Path) -> Result<(), Error> {
    let above = file.parent().unwrap_or(Path::new(""));
    let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
    match windlass_safe_path::find_untrusted_directory(above).map_err(|error| io_error(above, &error))? {
        None => Ok(()),
        Some(untrusted) => Err(Error::Refused {
            path: file.to_owned(),
            what: format!("is not written: {untrusted}; choose a directory that only you can write to"),
        }),
    }
}
