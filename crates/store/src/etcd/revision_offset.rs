//! Raises the revisions of a store after etcd's have gone back.

use super::client::{CallFailure, EtcdClient};
use super::keys::KeySpace;
use super::meta_key::{self, HIGHEST, MetaKeyValue, RevisionOffset};
use super::{EtcdOptions, block_on, runtime};
use crate::fatal_latch::FatalLatch;
use crate::{Error, Revision};

/// Result of [`raise_revision`]: the revision before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RaisedRevision {
    /// Revision of the store before the change.
    pub from: Revision,
    /// Revision of the store after the change.
    pub to: Revision,
}

/// Raises the revisions of a store on etcd by a number, so that none is reused after the cluster
/// was restored from a snapshot. Earlier history can no longer be requested.
///
/// A server that has the store open fails, and must be restarted. Blocks until done.
pub fn raise_revision(options: EtcdOptions, by: u64) -> Result<RaisedRevision, Error> {
    let (runtime, name) = runtime(&options)?;
    let raised = block_on(runtime.handle(), async move {
        let client = EtcdClient::open(&options, name.clone(), FatalLatch::new(name)).await?;
        raise_offset(&client, KeySpace::with_prefix(&options.prefix), by).await
    });
    runtime.shutdown_background();
    raised
}

async fn raise_offset(client: &EtcdClient, mut keys: KeySpace, by: u64) -> Result<RaisedRevision, Error> {
    let fail = |failure: CallFailure| failure.into_error(&client.name);
    loop {
        let (newest, found) = client.get_meta_key(&keys).await.map_err(fail)?;
        keys.offset = meta_key::serving_offset(client, found.as_ref())?;
        let from = keys.revision(newest);
        let base = keys.offset.base.checked_add(by).filter(|base| *base <= HIGHEST);
        let Some(base) = base else {
            let what = format!("cannot raise revision {from} by {by}");
            return Err(Error::Refused { path: client.name.clone(), what });
        };
        keys.offset.base = base;
        let to = keys.revision(newest);
        let raised = MetaKeyValue::Serving(RevisionOffset { base, floor: to });
        let answer = client.txn(meta_key::replace_request(&keys, found.as_ref(), &raised)).await;
        // A server may have written the meta key since; then nothing was done.
        if answer.map_err(fail)?.succeeded {
            return Ok(RaisedRevision { from, to });
        }
    }
}
