//! The newest acknowledged revision, recorded outside the database.
//!
//! SQLite silently ends the replay of a damaged or missing write-ahead log, and an old copy of the
//! database opens like a new one. Both would lose acknowledged writes and reuse revisions. The
//! watermark is a few bytes beside the database, written after every commit and never synced: after
//! a power loss it may be behind, never ahead. A database behind its watermark is rejected.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use windlass_safe_path::private;

use crate::file_output::io_error;
use crate::{Error, Revision};

const FILE: &str = "revision";
/// Width of the largest revision, so that every write covers the previous one.
const WIDTH: usize = 20;

/// The open file that records the newest acknowledged revision.
#[derive(Debug)]
pub(super) struct WatermarkFile {
    path: PathBuf,
    file: File,
    warned: bool,
}

/// Returns the recorded revision; `None` if there is no usable watermark.
pub(super) fn read(dir: &Path) -> Option<Revision> {
    let text = std::fs::read_to_string(dir.join(FILE)).ok()?;
    text.trim().parse().ok()
}

impl WatermarkFile {
    pub(super) fn open(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(FILE);
        let file = private::open_regular(&path).map_err(|e| io_error(&path, &e))?;
        Ok(Self { path, file, warned: false })
    }

    /// Records a revision that is durable in the database.
    pub(super) fn record(&mut self, revision: Revision) {
        let text = format!("{revision:0WIDTH$}\n");
        match self.file.write_all_at(text.as_bytes(), 0) {
            Ok(()) => self.warned = false,
            // The watermark is only an additional check; commits do not depend on it.
            Err(error) if !self.warned => {
                self.warned = true;
                tracing::warn!(path = %self.path.display(), %error, "cannot write the revision watermark");
            }
            Err(_) => {}
        }
    }
}
