//! One stream of changes from etcd, in the store's terms.

use super::client::{CallFailure, EtcdClient, ProgressRequester, WatchStream};
use super::keys::KeySpace;
use super::meta_key::MetaKeyValue;
use super::wire::{WatchCreateRequest, WatchEvent};
use crate::{ChangeEvent, Error, Revision};

/// One response of a watch stream, translated to store revisions.
#[derive(Debug)]
pub(super) struct WatchBatch {
    /// Changes of the store's keys, in order.
    pub(super) events: Vec<ChangeEvent>,
    /// Every change up to here has been told.
    pub(super) upto: Revision,
    /// Whether the last of them was one of the store's keys or the mark.
    pub(super) changed: bool,
}

/// Why a stream has ended.
#[derive(Debug)]
pub(super) enum WatchEnd {
    /// History it has not told yet is gone.
    Compacted {
        /// The oldest revision a new stream can begin after.
        floor: Revision,
    },
    /// It may be opened again where it ended.
    Broken(Error),
}

/// Every change after a revision.
pub(super) struct EtcdWatcher {
    stream: WatchStream,
    delivered: Revision,
}

impl EtcdWatcher {
    /// Begins after a revision.
    ///
    /// etcd is asked for the revision itself too. After a compaction at `n` it agrees to begin at
    /// `n`, but may leave out a deletion that happened there; asked for one less, it refuses.
    pub(super) async fn start(
        client: &EtcdClient,
        keys: &KeySpace,
        after: Revision,
    ) -> Result<Self, CallFailure> {
        let order = WatchCreateRequest {
            key: keys.meta_key(),
            range_end: keys.end(),
            start_revision: keys.etcd_revision(after).unwrap_or(1),
            progress_notify: true,
            prev_kv: true,
        };
        Ok(Self { stream: client.watch(order).await?, delivered: after })
    }

    /// Ends the stream; the next is another member's.
    pub(super) fn abandon(self, client: &EtcdClient) {
        client.abandon(&self.stream);
    }

    /// Whether its member has become silent.
    pub(super) fn is_silent(&self, client: &EtcdClient) -> bool {
        client.is_silent(&self.stream)
    }

    /// A way to ask how far the stream is, if the answer can be believed.
    pub(super) fn progress_requester(&self) -> ProgressRequester {
        self.stream.progress_requester()
    }

    /// Waits for what comes next. May be dropped while it waits; nothing is lost then.
    pub(super) async fn next(
        &mut self,
        client: &EtcdClient,
        keys: &KeySpace,
    ) -> Result<WatchBatch, WatchEnd> {
        loop {
            let response = match self.stream.message().await {
                Ok(Some(response)) => response,
                Ok(None) => return Err(WatchEnd::Broken(client.unavailable("the watch ended"))),
                Err(status) => {
                    let error = client.explain(&status).into_error(&client.name);
                    return Err(WatchEnd::Broken(error));
                }
            };
            let newest = client
                .check(response.header)
                .map_err(|failure| WatchEnd::Broken(failure.into_error(&client.name)))?;
            if response.compact_revision > 0 {
                return Err(WatchEnd::Compacted {
                    floor: keys.revision(response.compact_revision),
                });
            }
            if response.canceled {
                return Err(WatchEnd::Broken(client.unavailable(&response.cancel_reason)));
            }
            if response.created {
                continue;
            }
            // Without changes it is a sign that the stream has told everything.
            let last = response.events.iter().filter_map(|event| event.kv.as_ref()).last();
            let changed = last.is_some();
            let upto = keys.revision(last.map_or(newest, |kv| kv.mod_revision));
            if upto <= self.delivered {
                continue;
            }
            let mut events = Vec::with_capacity(response.events.len());
            for event in response.events {
                events.extend(to_watch_batch(client, keys, event, self.delivered)?);
            }
            self.delivered = upto;
            return Ok(WatchBatch { events, upto, changed });
        }
    }
}

/// A change, unless it was told before or is none of the store's.
fn to_watch_batch(
    client: &EtcdClient,
    keys: &KeySpace,
    event: WatchEvent,
    told: Revision,
) -> Result<Option<ChangeEvent>, WatchEnd> {
    let Some(kv) = event.kv.filter(|kv| keys.revision(kv.mod_revision) > told) else {
        return Ok(None);
    };
    if kv.key == keys.meta_key() {
        let same = MetaKeyValue::parse(Some(&kv)) == Some(MetaKeyValue::Serving(keys.offset));
        return if same { Ok(None) } else { Err(WatchEnd::Broken(client.fail_offset_changed())) };
    }
    let at = keys.revision(kv.mod_revision);
    let Some(key) = keys.store_key(&kv.key) else { return Ok(None) };
    let previous = event.prev_kv.map(|kv| keys.stored_value(kv));
    let put = event.kind == 0;
    // etcd leaves the former value out when a compaction overtook the stream, and says nothing.
    if previous.is_none() && (!put || kv.version > 1) {
        return Err(WatchEnd::Compacted { floor: at });
    }
    let created = previous.as_ref().map_or(at, |old| old.created);
    let value = put.then_some(kv.value);
    Ok(Some(ChangeEvent { revision: at, key, value, created, previous }))
}

/// The revision that the history was last compacted at, which etcd tells only by refusing.
pub(super) async fn compacted_at(
    client: &EtcdClient,
    keys: &KeySpace,
) -> Result<Revision, CallFailure> {
    let order = WatchCreateRequest {
        key: keys.meta_key(),
        start_revision: 1,
        ..WatchCreateRequest::default()
    };
    let mut stream = client.watch(order).await?;
    let answer = async {
        loop {
            match stream.message().await {
                Ok(Some(response)) if response.compact_revision > 0 => {
                    client.check(response.header)?;
                    return Ok(keys.revision(response.compact_revision));
                }
                Ok(Some(response)) if !response.canceled => {}
                Ok(_) => return Err(CallFailure::Unknown(client.unavailable("the watch ended"))),
                Err(status) => return Err(client.explain(&status)),
            }
        }
    };
    match tokio::time::timeout(client.patience, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(CallFailure::Unknown(client.unavailable("timed out"))),
    }
}
