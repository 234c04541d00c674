//! One conformance suite for every engine.
//!
//! An engine runs it with `conformance!(fixture)`, where `fixture` is a function that creates a
//! `StoreFixture`. The tests use only [`Store`] and do not assume that revisions are without gaps.

mod compaction;
mod concurrency;
mod expectations;
mod feed;
mod lifecycle;
mod model;
mod reads;

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;

pub(crate) use compaction::*;
pub(crate) use concurrency::*;
pub(crate) use expectations::*;
pub(crate) use feed::*;
pub(crate) use lifecycle::*;
pub(crate) use model::*;
pub(crate) use reads::*;

use crate::{
    ChangeEvent, CommittedWrite, Error, FeedMessage, KeyChange, KeyRange, Revision, Store, StoredValue,
    WritePrecondition, WriteRequest,
};

/// Declares the tests of all guarantees for one engine.
macro_rules! conformance {
    ($fixture:path) => {
        $crate::suite::conformance!(@ $fixture:
            expectations_are_checked,
            a_write_tells_what_it_replaced,
            keys_and_values_are_any_bytes,
            a_range_has_its_prefix_in_order,
            pages_continue_where_they_stopped,
            pages_agree_under_concurrent_writes,
            past_revisions_can_be_read,
            concurrent_writes_are_linearizable,
            one_of_many_creators_wins,
            the_feed_is_ordered_unique_and_complete,
            the_feed_resumes_from_any_revision,
            the_feed_carries_previous_values,
            the_feed_comes_before_the_answer,
            a_sink_that_panics_fails_the_store,
            compaction_keeps_what_exists,
            a_deletion_at_the_compaction_revision_stays_deleted,
            compaction_leaves_no_gap_under_load,
            a_restart_keeps_everything,
            revisions_are_not_reused_after_compaction_and_restart,
            a_closed_store_says_so,
            a_store_agrees_with_its_model,
        );
    };
    (@ $fixture:path: $($name:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                $crate::suite::$name($fixture).await;
            }
        )*
    };
}
pub(crate) use conformance;

/// A location for one store, which can be reopened after it was closed.
pub(crate) struct StoreFixture {
    pub(crate) open: Box<dyn Fn() -> Arc<dyn Store> + Send + Sync>,
    /// Values that must outlive the stores.
    pub(crate) _keep: Box<dyn Any + Send + Sync>,
}

impl StoreFixture {
    fn open(&self) -> Arc<dyn Store> {
        (self.open)()
    }
}

fn put(key: &str, value: impl Into<Vec<u8>>) -> WriteRequest {
    put_if(key, WritePrecondition::Any, value)
}

fn put_if(key: &str, expect: WritePrecondition, value: impl Into<Vec<u8>>) -> WriteRequest {
    WriteRequest { key: key.to_owned(), expect, change: KeyChange::Put(Bytes::from(value.into())) }
}

fn delete(key: &str) -> WriteRequest {
    delete_if(key, WritePrecondition::Any)
}

fn delete_if(key: &str, expect: WritePrecondition) -> WriteRequest {
    WriteRequest { key: key.to_owned(), expect, change: KeyChange::Delete }
}

async fn commit_ok(store: &dyn Store, write: WriteRequest) -> CommittedWrite {
    let text = format!("{write:?}");
    store.commit(write).await.unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[derive(Clone, Default)]
struct RecordingSink(Arc<Mutex<Vec<ChangeEvent>>>);

impl RecordingSink {
    fn attach(store: &dyn Store, after: Revision) -> Result<Self, Error> {
        let seen = Self::default();
        let sink = seen.clone();
        store.watch(
            after,
            Box::new(move |message| match message {
                FeedMessage::Changes(events) => sink.0.lock().unwrap().extend_from_slice(events),
                FeedMessage::Reset(_) => panic!("undelivered history was compacted"),
            }),
        )?;
        Ok(seen)
    }

    fn events(&self) -> Vec<ChangeEvent> {
        self.0.lock().unwrap().clone()
    }
}

/// The states of a store, rebuilt from its events.
#[derive(Default)]
struct StateReplay {
    states: BTreeMap<Revision, BTreeMap<String, StoredValue>>,
}

impl StateReplay {
    /// Applies events to an empty store at `start`, and checks that they are consistent.
    fn from_events(start: Revision, events: &[ChangeEvent]) -> Self {
        let mut state: BTreeMap<String, StoredValue> = BTreeMap::new();
        let mut states = BTreeMap::from([(start, state.clone())]);
        let mut last = start;
        for event in events {
            assert!(event.revision > last, "{} after {last}", event.revision);
            last = event.revision;
            let previous = match &event.value {
                Some(value) => {
                    let (revision, created) = (event.revision, event.created);
                    state.insert(event.key.clone(), StoredValue { revision, created, value: value.clone() })
                }
                None => Some(state.remove(&event.key).expect("a deletion of what exists")),
            };
            let created = previous.as_ref().map_or(event.revision, |old| old.created);
            assert_eq!(event.created, created, "of {event:?}");
            assert_eq!(event.previous, previous, "of {event:?}");
            states.insert(event.revision, state.clone());
        }
        Self { states }
    }

    fn state_at(&self, revision: Revision) -> &BTreeMap<String, StoredValue> {
        self.states.range(..=revision).next_back().expect("a state this old").1
    }
}

async fn read_all(store: &dyn Store) -> BTreeMap<String, StoredValue> {
    store.range(KeyRange::default()).await.unwrap().items.into_iter().collect()
}

/// Random numbers that are identical in every run.
struct SeededRng(u64);

impl SeededRng {
    fn next_below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }
}
