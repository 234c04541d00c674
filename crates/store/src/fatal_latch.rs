//! The first fatal failure of a store, which both engines report and stop at.

use std::future::Future;
use std::path::PathBuf;

use tokio::sync::watch;

use crate::Error;

/// The first fatal error of a store, shared by its threads.
#[derive(Debug, Clone)]
pub(crate) struct FatalLatch {
    cause: watch::Sender<Option<Error>>,
    /// The database file, or `etcd at` and the endpoints, for the log.
    db: PathBuf,
}

impl FatalLatch {
    pub(crate) fn new(db: PathBuf) -> Self {
        Self { cause: watch::Sender::new(None), db }
    }

    /// Stops the store permanently, if it has not stopped already.
    pub(crate) fn trip(&self, error: &Error) {
        self.cause.send_if_modified(|cause| {
            if cause.is_some() {
                return false;
            }
            tracing::error!(db = %self.db.display(), %error, "store failed; no longer accepting writes");
            *cause = Some(error.clone());
            true
        });
    }

    /// Stops the store if the error is permanent.
    pub(crate) fn trip_if_fatal(&self, error: &Error) {
        if matches!(error, Error::Failed { .. }) {
            self.trip(error);
        }
    }

    /// Returns why the store failed, if it has.
    pub(crate) fn cause(&self) -> Option<Error> {
        self.cause.borrow().clone()
    }

    /// Waits for a fatal error; never resolves if the store closes without one.
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
