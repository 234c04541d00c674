//! What an agent knows about reads, for the next process.
//!
//! A file that was read stays read across a restart, as long as its anchors are the same. Opens while no agent is running
//! are not seen, so a file that was not read before stays so until it is opened again.

use std::path::Path;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use windlass_runtime::durable::{DiskError, FileSystem, PRIVATE_MODE};

use super::{AnchorFiles, AnchorReads, ReadState};
use crate::trust::object::digest_text;
use crate::volume::id::{VolumeId, VolumeOwner};
use crate::volume::trust_anchors::Digest;

/// Name of the file below the root directory.
pub const FILE: &str = "trust-reads.json";
/// Size limit of the file in bytes; a record has about 250.
const MAX_BYTES: usize = 8 << 20;

/// What is known about one source.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadRecord {
    /// UID of the pod; absent for the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pod_uid: Option<String>,
    volume: String,
    path: String,
    digest: String,
    #[serde(with = "time::serde::rfc3339")]
    changed: OffsetDateTime,
    read: bool,
}

/// Reads the records of an earlier process. Without them, nothing counts as read.
pub fn load(path: &Path, files: &FileSystem) -> Vec<ReadRecord> {
    let parsed = match files.read(path, MAX_BYTES) {
        Ok(Some(text)) => serde_json::from_slice(&text).map_err(|error| error.to_string()),
        Ok(None) => Ok(Vec::new()),
        Err(error) => Err(error.to_string()),
    };
    parsed.unwrap_or_else(|error| {
        let file = path.display();
        tracing::warn!(%file, error, "ignored the record of reads; trust anchors count as not read");
        Vec::new()
    })
}

/// Writes the records for the next process.
pub fn save(path: &Path, records: &[ReadRecord], files: &FileSystem) -> Result<(), DiskError> {
    let text = serde_json::to_vec(records).unwrap_or_default();
    files.replace(path, &text, PRIVATE_MODE)
}

impl ReadRecord {
    pub fn new(id: &VolumeId, path: &str, digest: Digest, reads: AnchorReads) -> Self {
        Self {
            pod_uid: pod_uid(id).map(str::to_owned),
            volume: id.name.clone(),
            path: path.to_owned(),
            digest: digest_text(&digest),
            changed: reads.changed,
            read: reads.state == ReadState::Read,
        }
    }

    pub fn is_of(&self, id: &VolumeId) -> bool {
        self.pod_uid.as_deref() == pod_uid(id) && self.volume == id.name
    }

    /// Returns what is known about these files, if this is their record and the anchors are the same.
    pub fn reads_of(&self, id: &VolumeId, files: &AnchorFiles) -> Option<AnchorReads> {
        let is_same = self.is_of(id) && self.path == files.path && self.digest == digest_text(&files.digest);
        let state = if self.read { ReadState::Read } else { ReadState::NotRead { since: self.changed } };
        is_same.then_some(AnchorReads { changed: self.changed, state })
    }
}

fn pod_uid(id: &VolumeId) -> Option<&str> {
    match &id.owner {
        VolumeOwner::Pod { uid, .. } => Some(uid),
        VolumeOwner::Host => None,
    }
}
