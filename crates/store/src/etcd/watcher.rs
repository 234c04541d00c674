//! One watch stream from etcd, converted to the store's types.

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
    /// Revision up to which every change has been delivered.
    pub(super) upto: Revision,
    /// Whether the last change was of one of the store's keys or the meta key.
    pub(super) changed: bool,
}

/// Reason why a stream has ended.
#[derive(Debug)]
pub(super) enum WatchEnd {
    /// History that the stream has not delivered is compacted.
    Compacted {
        /// Oldest revision after which a new stream can start.
        floor: Revision,
    },
    /// The stream may be resumed where it ended.
    Broken(Error),
}

/// A watch of every change after a revision.
pub(super) struct EtcdWatcher {
    stream: WatchStream,
    delivered: Revision,
}

impl EtcdWatcher {
    /// Starts after a revision.
    ///
    /// Requests the revision itself from etcd too. After a compaction at `n` etcd accepts a start
    /// at `n`, but may omit a deletion that happened there; for one less, it reports the
    /// compaction.
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

    /// Ends the stream; the next one uses another member.
    pub(super) fn abandon(self, client: &EtcdClient) {
        client.abandon(&self.stream);
    }

    /// Returns true if the stream's member has stopped responding.
    pub(super) fn is_silent(&self, client: &EtcdClient) -> bool {
        client.is_silent(&self.stream)
    }

    /// Returns a progress requester, if the member's progress is reliable.
    pub(super) fn progress_requester(&self) -> ProgressRequester {
        self.stream.progress_requester()
    }

    /// Waits for the next batch. Cancellation-safe; nothing is lost.
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
                return Err(WatchEnd::Compacted { floor: keys.revision(response.compact_revision) });
            }
            if response.canceled {
                return Err(WatchEnd::Broken(client.unavailable(&response.cancel_reason)));
            }
            if response.created {
                continue;
            }
            // A response without changes means that the stream has delivered everything.
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

/// Converts a change, unless it was delivered before or is not one of the store's.
fn to_watch_batch(
    client: &EtcdClient,
    keys: &KeySpace,
    event: WatchEvent,
    delivered: Revision,
) -> Result<Option<ChangeEvent>, WatchEnd> {
    let Some(kv) = event.kv.filter(|kv| keys.revision(kv.mod_revision) > delivered) else {
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
    // etcd silently omits the previous value when a compaction overtook the stream.
    if previous.is_none() && (!put || kv.version > 1) {
        return Err(WatchEnd::Compacted { floor: at });
    }
    let created = previous.as_ref().map_or(at, |old| old.created);
    let value = put.then_some(kv.value);
    Ok(Some(ChangeEvent { revision: at, key, value, created, previous }))
}

/// Returns the revision of the last compaction, which etcd reveals only in an error.
pub(super) async fn compacted_at(client: &EtcdClient, keys: &KeySpace) -> Result<Revision, CallFailure> {
    let order =
        WatchCreateRequest { key: keys.meta_key(), start_revision: 1, ..WatchCreateRequest::default() };
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
