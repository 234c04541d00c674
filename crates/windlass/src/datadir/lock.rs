//! One process to a data directory.

use std::fs::{File, TryLockError};
use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use windlass_safe_path::private;

/// Held until dropped, or until the process ends however it ends.
#[derive(Debug)]
pub struct DataDirLock {
    _file: File,
}

impl DataDirLock {
    /// Takes the lock, or says who has it.
    pub fn acquire(path: &Path) -> Result<Self> {
        let context = || format!("cannot lock {}", path.display());
        // What it leads to is cut to nothing below.
        let mut file = private::open_regular(path).with_context(context)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Whoever holds it may not have written its number yet.
                let _ = (&mut file).take(20).read_to_string(&mut holder);
                let holder = match holder.trim() {
                    "" => String::new(),
                    pid => format!(" (process {pid})"),
                };
                let directory = path.parent().unwrap_or(path).display();
                bail!("another windlass{holder} is using the data directory {directory}");
            }
            Err(TryLockError::Error(error)) => return Err(error).with_context(context),
        }
        file.set_len(0).with_context(context)?;
        writeln!(file, "{}", std::process::id()).with_context(context)?;
        Ok(Self { _file: file })
    }
}
