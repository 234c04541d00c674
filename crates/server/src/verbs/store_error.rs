//! Errors of the store, as clients get them.

use crate::error::Error;
use crate::server::Server;

/// Logs and counts an error of the store and returns the one for the client, which says whether to retry.
pub(crate) fn store_error(server: &Server, error: windlass_store::Error) -> Error {
    use windlass_store::Error as Store;
    tracing::error!(%error, "store request failed");
    let (reason, answer) = match error {
        Store::Future { .. } => ("behind", Error::Unavailable("store is behind; try again".into())),
        // The write may have reached the disk, and show after a restart.
        Store::Failed { .. } => ("failed", Error::Internal("store failed".into())),
        Store::Full { .. } => ("full", Error::Unavailable("store is full; nothing was changed".into())),
        Store::Unknown { .. } => {
            let text = "store timed out; the write may or may not have been applied";
            ("unknown", Error::Unavailable(text.into()))
        }
        Store::Conflict { .. }
        | Store::Compacted { .. }
        | Store::Corrupt { .. }
        | Store::Format { .. }
        | Store::Locked { .. }
        | Store::Refused { .. }
        | Store::Unavailable { .. }
        | Store::Closed => {
            let text = "store unavailable; nothing was changed";
            ("unavailable", Error::Unavailable(text.into()))
        }
    };
    server.metrics.store_refused(reason);
    answer
}
