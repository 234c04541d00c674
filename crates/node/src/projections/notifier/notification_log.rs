//! The last notification of each target, on disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::clock;
use crate::volume::trust_anchors::Digest;
use windlass_runtime::durable::{DiskError, FileSystem, PRIVATE_MODE};

/// Size limit in bytes; far above any list of notifications.
const MAX_FILE: usize = 1 << 20;

/// The digest that each target was last notified of, by notification ID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotificationLog(BTreeMap<String, String>);

#[derive(Default, Serialize, Deserialize)]
struct NotificationLogFile {
    /// Time of the write, for human readers.
    at: String,
    #[serde(rename = "told")]
    notified: BTreeMap<String, String>,
}

impl NotificationLog {
    /// Reads the log of an earlier process. An unreadable log counts as empty, so targets are
    /// notified again.
    pub fn read(files: &FileSystem, directory: &Path, projection: &str) -> Self {
        let path = path(directory, projection);
        match files.read(&path, MAX_FILE) {
            Ok(Some(bytes)) => match serde_json::from_slice::<NotificationLogFile>(&bytes) {
                Ok(contents) => Self(contents.notified),
                Err(error) => {
                    tracing::warn!(file = %path.display(), %error, "cannot parse notification log");
                    Self::default()
                }
            },
            Ok(None) => Self::default(),
            Err(error) => {
                tracing::warn!("{error}");
                Self::default()
            }
        }
    }

    /// Writes the log to disk.
    pub fn write(
        self,
        files: &FileSystem,
        directory: &Path,
        projection: &str,
        now: OffsetDateTime,
    ) -> Result<(), DiskError> {
        let contents = NotificationLogFile { at: clock::text(now), notified: self.0 };
        // Strings always serialize to JSON.
        let bytes = serde_json::to_vec_pretty(&contents).unwrap_or_default();
        files.create_directory(directory)?;
        files.replace(&path(directory, projection), &bytes, PRIVATE_MODE)
    }

    /// Returns whether a target was last notified of this digest.
    pub fn knows(&self, id: &str, digest: &Digest) -> bool {
        self.0.get(id).is_some_and(|last| *last == hex(digest))
    }

    /// Records that a target was notified of this digest; `write` persists it.
    pub fn insert(&mut self, id: String, digest: Digest) {
        self.0.insert(id, hex(&digest));
    }

    /// Removes all entries whose notification ID is not listed.
    pub fn retain(&mut self, ids: &[String]) {
        self.0.retain(|id, _| ids.contains(id));
    }
}

/// Deletes the log of a projection; succeeds if there is none.
pub fn remove(files: &FileSystem, directory: &Path, projection: &str) -> Result<(), DiskError> {
    files.remove(&path(directory, projection))
}

fn path(directory: &Path, projection: &str) -> PathBuf {
    directory.join(format!("{projection}.told"))
}

fn hex(digest: &Digest) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
