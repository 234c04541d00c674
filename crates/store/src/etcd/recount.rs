//! Raising the revisions of a store, after etcd's have gone back.

use super::client::{Client, Failure};
use super::keys::Keys;
use super::mark::{self, Count, HIGHEST, Mark};
use super::{EtcdOptions, runtime, wait};
use crate::embedded::Fuse;
use crate::{Error, Revision};

/// What [`raise_revision`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Raised {
    /// The revision the store was at.
    pub from: Revision,
    /// The revision it is at now.
    pub to: Revision,
}

/// Raises the revisions of a store on etcd by a number, so that none is given out twice after the
/// cluster was restored from a snapshot. History from before cannot be asked for any more.
///
/// A server that has the store open fails, and has to be started again. Blocks until it is done.
pub fn raise_revision(options: EtcdOptions, by: u64) -> Result<Raised, Error> {
    let (runtime, name) = runtime(&options)?;
    let raised = wait(runtime.handle(), async move {
        let client = Client::open(&options, name.clone(), Fuse::new(name)).await?;
        raise(&client, Keys::below(&options.prefix), by).await
    });
    runtime.shutdown_background();
    raised
}

async fn raise(client: &Client, mut keys: Keys, by: u64) -> Result<Raised, Error> {
    let fail = |failure: Failure| failure.into_error(&client.name);
    loop {
        let (newest, found) = client.mark(&keys).await.map_err(fail)?;
        keys.count = mark::counting(client, found.as_ref())?;
        let from = keys.revision(newest);
        let base = keys.count.base.checked_add(by).filter(|base| *base <= HIGHEST);
        let Some(base) = base else {
            let what = format!("cannot go up by {by} from revision {from}");
            return Err(Error::Refused { path: client.name.clone(), what });
        };
        keys.count.base = base;
        let to = keys.revision(newest);
        let raised = Mark::Counting(Count { base, floor: to });
        let answer = client.txn(mark::replace(&keys, found.as_ref(), &raised)).await;
        // A server may have written the mark since; then nothing was done.
        if answer.map_err(fail)?.succeeded {
            return Ok(Raised { from, to });
        }
    }
}
