//! What can go wrong in a store, and what a caller can do about it.

use std::path::PathBuf;

use crate::Revision;

/// Why a store refused or failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The expectation of a write does not hold; nothing was changed.
    #[error("{}", conflict(*current))]
    Conflict {
        /// The revision that last changed the key; `None` when it does not exist.
        current: Option<Revision>,
    },
    /// The revision asked for lies before the retained history.
    #[error("the requested revision has been compacted; the oldest available is {floor}")]
    Compacted {
        /// The oldest revision that can be asked for.
        floor: Revision,
    },
    /// The revision asked for has not happened yet.
    #[error("the requested revision is in the future; the newest is {revision}")]
    Future {
        /// Newest revision that can be requested now.
        revision: Revision,
    },
    /// The disk is full. Nothing was changed; writes work again when there is space.
    #[error("no space left for {}", path.display())]
    Full {
        /// The file that could not grow.
        path: PathBuf,
    },
    /// What is on disk is not what was written there.
    #[error("{} is corrupt: {what}", path.display())]
    Corrupt {
        /// Path of the damaged file.
        path: PathBuf,
        /// What is wrong with it, naming the record where there is one.
        what: String,
    },
    /// The data was written in a format this program does not know.
    #[error(
        "{} has data format {found}, but this program supports format {supported}; \
         use the release that wrote it, or a newer one",
        path.display()
    )]
    Format {
        /// Path of the file with the unsupported format.
        path: PathBuf,
        /// The format it says it has.
        found: i64,
        /// The only format this program reads and writes.
        supported: i64,
    },
    /// Another process has the data directory open.
    #[error("{} is in use by another process{}", dir.display(), holder_text(*holder))]
    Locked {
        /// Data directory that another process has locked.
        dir: PathBuf,
        /// The process that holds it, as far as it can be told.
        holder: Option<u32>,
    },
    /// A directory or file that must not exist yet does.
    #[error("{} {what}", path.display())]
    Refused {
        /// Path of the directory, file or store that was refused.
        path: PathBuf,
        /// Reason, phrased to follow the path in a sentence.
        what: String,
    },
    /// The change may have been made or not: its answer was lost. The feed tells.
    #[error("{}: the outcome of the write is unknown: {what}", path.display())]
    Unknown {
        /// Path of the database file, or `etcd at` and the endpoints.
        path: PathBuf,
        /// How the answer was lost.
        what: String,
    },
    /// The operation failed now and may work later; a change was not made.
    #[error("{}: {what}", path.display())]
    Unavailable {
        /// The file it failed on.
        path: PathBuf,
        /// Description of the failure, including its cause.
        what: String,
    },
    /// The store stopped for good, because it can no longer tell what is on disk.
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
