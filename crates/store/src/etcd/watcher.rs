//! One stream of changes from etcd, in the store's terms.

use super::client::{Client, Failure, Inquiry, Stream};
use super::keys::Keys;
use super::mark::Mark;
use super::wire::{WatchCreateRequest, WatchEvent};
use crate::{Error, Event, Revision};

/// What a stream says.
#[derive(Debug)]
pub(super) struct News {
    /// Changes of the store's keys, in order.
    pub(super) events: Vec<Event>,
    /// Every change up to here has been told.
    pub(super) upto: Revision,
    /// Whether the last of them was one of the store's keys or the mark.
    pub(super) changed: bool,
}

/// Why a stream has ended.
#[derive(Debug)]
pub(super) enum End {
    /// History it has not told yet is gone.
    Compacted {
        /// The oldest revision a new stream can begin after.
        floor: Revision,
    },
    /// It may be opened again where it ended.
    Broken(Error),
}

/// Every change after a revision.
pub(super) struct Watcher {
    stream: Stream,
    told: Revision,
}

impl Watcher {
    /// Begins after a revision.
    ///
    /// etcd is asked for the revision itself too. After a compaction at `n` it agrees to begin at
    /// `n`, but may leave out a deletion that happened there; asked for one less, it refuses.
    pub(super) async fn start(
        client: &Client,
        keys: &Keys,
        after: Revision,
    ) -> Result<Self, Failure> {
        let order = WatchCreateRequest {
            key: keys.mark(),
            range_end: keys.end(),
            start_revision: keys.number(after).unwrap_or(1),
            progress_notify: true,
            prev_kv: true,
        };
        Ok(Self { stream: client.watch(order).await?, told: after })
    }

    /// Ends the stream; the next is another member's.
    pub(super) fn leave(self, client: &Client) {
        client.leave(&self.stream);
    }

    /// Whether its member has become silent.
    pub(super) fn is_silent(&self, client: &Client) -> bool {
        client.is_silent(&self.stream)
    }

    /// A way to ask how far the stream is, if the answer can be believed.
    pub(super) fn inquiry(&self) -> Inquiry {
        self.stream.inquiry()
    }

    /// Waits for what comes next. May be dropped while it waits; nothing is lost then.
    pub(super) async fn next(&mut self, client: &Client, keys: &Keys) -> Result<News, End> {
        loop {
            let response = match self.stream.message().await {
                Ok(Some(response)) => response,
                Ok(None) => return Err(End::Broken(client.unavailable("the watch ended"))),
                Err(status) => {
                    let error = client.explain(&status).into_error(&client.name);
                    return Err(End::Broken(error));
                }
            };
            let newest = client
                .check(response.header)
                .map_err(|failure| End::Broken(failure.into_error(&client.name)))?;
            if response.compact_revision > 0 {
                return Err(End::Compacted { floor: keys.revision(response.compact_revision) });
            }
            if response.canceled {
                return Err(End::Broken(client.unavailable(&response.cancel_reason)));
            }
            if response.created {
                continue;
            }
            // Without changes it is a sign that the stream has told everything.
            let last = response.events.iter().filter_map(|event| event.kv.as_ref()).last();
            let changed = last.is_some();
            let upto = keys.revision(last.map_or(newest, |kv| kv.mod_revision));
            if upto <= self.told {
                continue;
            }
            let mut events = Vec::with_capacity(response.events.len());
            for event in response.events {
                events.extend(translate(client, keys, event, self.told)?);
            }
            self.told = upto;
            return Ok(News { events, upto, changed });
        }
    }
}

/// A change, unless it was told before or is none of the store's.
fn translate(
    client: &Client,
    keys: &Keys,
    event: WatchEvent,
    told: Revision,
) -> Result<Option<Event>, End> {
    let Some(kv) = event.kv.filter(|kv| keys.revision(kv.mod_revision) > told) else {
        return Ok(None);
    };
    if kv.key == keys.mark() {
        let same = Mark::read(Some(&kv)) == Some(Mark::Counting(keys.count));
        return if same { Ok(None) } else { Err(End::Broken(client.recounted())) };
    }
    let at = keys.revision(kv.mod_revision);
    let Some(key) = keys.short(&kv.key) else { return Ok(None) };
    let previous = event.prev_kv.map(|kv| keys.stored(kv));
    let put = event.kind == 0;
    // etcd leaves the former value out when a compaction overtook the stream, and says nothing.
    if previous.is_none() && (!put || kv.version > 1) {
        return Err(End::Compacted { floor: at });
    }
    let created = previous.as_ref().map_or(at, |old| old.created);
    let value = put.then_some(kv.value);
    Ok(Some(Event { revision: at, key, value, created, previous }))
}

/// The revision that the history was last compacted at, which etcd tells only by refusing.
pub(super) async fn compacted_at(client: &Client, keys: &Keys) -> Result<Revision, Failure> {
    let order =
        WatchCreateRequest { key: keys.mark(), start_revision: 1, ..WatchCreateRequest::default() };
    let mut stream = client.watch(order).await?;
    let answer = async {
        loop {
            match stream.message().await {
                Ok(Some(response)) if response.compact_revision > 0 => {
                    client.check(response.header)?;
                    return Ok(keys.revision(response.compact_revision));
                }
                Ok(Some(response)) if !response.canceled => {}
                Ok(_) => return Err(Failure::Open(client.unavailable("the watch ended"))),
                Err(status) => return Err(client.explain(&status)),
            }
        }
    };
    match tokio::time::timeout(client.patience, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(Failure::Open(client.unavailable("no answer in time"))),
    }
}
