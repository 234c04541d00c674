//! Errors of a store, and what a caller can do about them.

use std::path::PathBuf;

use crate::Revision;

/// Error of a store operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The precondition of a write does not hold; nothing was changed.
    #[error("{}", conflict(*current))]
    Conflict {
        /// Revision that last changed the key; `None` when it does not exist.
        current: Option<Revision>,
    },
    /// The requested revision is older than the retained history.
    #[error("the requested revision has been compacted; the oldest available is {floor}")]
    Compacted {
        /// Oldest revision that can be requested.
        floor: Revision,
    },
    /// The requested revision is in the future.
    #[error("the requested revision is in the future; the newest is {revision}")]
    Future {
        /// Newest revision that can be requested now.
        revision: Revision,
    },
    /// The disk is full. Nothing was changed; writes work again once there is space.
    #[error("no space left for {}", path.display())]
    Full {
        /// Path of the file that could not grow.
        path: PathBuf,
    },
    /// The data on disk differs from what was written.
    #[error("{} is corrupt: {what}", path.display())]
    Corrupt {
        /// Path of the damaged file.
        path: PathBuf,
        /// Description of the damage, naming the record where possible.
        what: String,
    },
    /// The data has an unknown format.
    #[error(
        "{} has data format {found}, but this program supports format {supported}; \
         use the release that wrote it, or a newer one",
        path.display()
    )]
    Format {
        /// Path of the file with the unsupported format.
        path: PathBuf,
        /// Format version found in the file.
        found: i64,
        /// Only format version that this program supports.
        supported: i64,
    },
    /// Another process has the data directory open.
    #[error("{} is in use by another process{}", dir.display(), holder_text(*holder))]
    Locked {
        /// Data directory that another process has locked.
        dir: PathBuf,
        /// Process ID of the lock holder, if known.
        holder: Option<u32>,
    },
    /// A directory or file exists that must not exist yet.
    #[error("{} {what}", path.display())]
    Refused {
        /// Path of the rejected directory, file or store.
        path: PathBuf,
        /// Reason, phrased to follow the path in a sentence.
        what: String,
    },
    /// The change may or may not have been applied: the reply was lost. The feed shows the outcome.
    #[error("{}: the outcome of the write is unknown: {what}", path.display())]
    Unknown {
        /// Path of the database file, or `etcd at` and the endpoints.
        path: PathBuf,
        /// Reason why the reply was lost.
        what: String,
    },
    /// The operation failed temporarily; a change was not applied.
    #[error("{}: {what}", path.display())]
    Unavailable {
        /// Path of the file on which it failed.
        path: PathBuf,
        /// Description of the failure, including its cause.
        what: String,
    },
    /// The store stopped permanently, because the state on disk is unknown.
    #[error("store failed: {what}; restart")]
    Failed {
        /// Description of the first fatal failure; later ones are dropped.
        what: String,
    },
    /// The store was closed; reopen it to continue.
    #[error("the store is closed")]
    Closed,
}

fn conflict(current: Option<Revision>) -> String {
    match current {
        Some(revision) => format!("the key was changed: it is at revision {revision}"),
        None => "the key does not exist".to_owned(),
    }
}

fn holder_text(holder: Option<u32>) -> String {
    match holder {
        Some(pid) => format!(" (process {pid})"),
        None => String::new(),
    }
}
