//! Concurrent clients: their recorded operations must be linearizable.
//!
//! Every operation is recorded with what was known to be committed when it started and when it
//! ended. The feed is the claimed order. Each acknowledged write must be in the feed exactly once,
//! at its revision, and fit the state there; each rejection and each read must fit a state between
//! its start and its end.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::RangePage;

const CLIENTS: u64 = 8;
const OPERATIONS: u64 = 60;
const KEYS: u64 = 5;

/// One operation, with the newest revision acknowledged to anyone before it started.
struct RecordedOperation {
    floor: Revision,
    ceiling: Revision,
    what: ClientOperation,
}

enum ClientOperation {
    Write(WriteRequest, Result<CommittedWrite, Error>),
    List(RangePage),
}

pub(crate) async fn concurrent_writes_are_linearizable(fixture: fn() -> StoreFixture) {
    let fixture = fixture();
    let store = fixture.open();
    let start = store.revision();
    let feed = RecordingSink::attach(&*store, start).unwrap();
    let acknowledged = Arc::new(AtomicU64::new(start));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|n| tokio::spawn(client(n, Arc::clone(&store), Arc::clone(&acknowledged))))
        .collect();
    let mut recorded = Vec::new();
    for client in clients {
        recorded.extend(client.await.unwrap());
    }
    check_linearizable(start, &feed.events(), &recorded);
    assert!(recorded.iter().any(|r| matches!(r.what, ClientOperation::Write(_, Err(_)))), "some raced");
}

/// Reads and writes a few keys, with the last observed revisions as preconditions.
async fn client(n: u64, store: Arc<dyn Store>, acknowledged: Arc<AtomicU64>) -> Vec<RecordedOperation> {
    let mut dice = SeededRng(9_000 + n);
    let mut known: BTreeMap<String, Revision> = BTreeMap::new();
    let mut recorded = Vec::new();
    for i in 0..OPERATIONS {
        let key = format!("{}", dice.next_below(KEYS));
        let floor = acknowledged.load(Ordering::SeqCst);
        let what = if dice.next_below(5) == 0 {
            let page = store.range(KeyRange::default()).await.unwrap();
            known = page.items.iter().map(|(key, s)| (key.clone(), s.revision)).collect();
            ClientOperation::List(page)
        } else {
            let expect = match known.get(&key) {
                Some(revision) => WritePrecondition::Revision(*revision),
                None => WritePrecondition::Absent,
            };
            // Every value is written once, so it identifies the write.
            let write = if known.contains_key(&key) && dice.next_below(4) == 0 {
                delete_if(&key, expect)
            } else {
                put_if(&key, expect, format!("{n}/{i}"))
            };
            let answer = store.commit(write.clone()).await;
            match (&answer, &write.change) {
                (Ok(done), KeyChange::Put(_)) => drop(known.insert(key, done.revision)),
                (Ok(_), KeyChange::Delete) => drop(known.remove(&key)),
                (Err(Error::Conflict { current: Some(current) }), _) => {
                    known.insert(key, *current);
                }
                (Err(Error::Conflict { current: None }), _) => drop(known.remove(&key)),
                (Err(error), _) => panic!("{error}"),
            }
            if let Ok(done) = &answer {
                acknowledged.fetch_max(done.revision, Ordering::SeqCst);
            }
            ClientOperation::Write(write, answer)
        };
        // Everything applied by now is in the store, if not yet acknowledged to its client.
        let ceiling = store.range(KeyRange { limit: Some(1), ..KeyRange::default() }).await.unwrap();
        recorded.push(RecordedOperation { floor, ceiling: ceiling.revision, what });
    }
    recorded
}

fn check_linearizable(start: Revision, events: &[ChangeEvent], recorded: &[RecordedOperation]) {
    let replay = StateReplay::from_events(start, events);
    let mut by_revision: BTreeMap<Revision, &ChangeEvent> =
        events.iter().map(|event| (event.revision, event)).collect();
    for RecordedOperation { floor, ceiling, what } in recorded {
        match what {
            ClientOperation::Write(write, Ok(done)) => {
                assert!(*floor < done.revision && done.revision <= *ceiling, "{write:?}: {done:?}");
                let event = by_revision.remove(&done.revision).expect("in the feed, once");
                assert_eq!(event.key, write.key);
                assert_eq!(event.previous, done.previous);
                let value = match &write.change {
                    KeyChange::Put(value) => Some(value),
                    KeyChange::Delete => None,
                };
                assert_eq!(event.value.as_ref(), value);
                let before = replay.state_at(done.revision - 1).get(&write.key).map(|s| s.revision);
                assert!(precondition_holds(write.expect, before), "{write:?} on {before:?}");
            }
            ClientOperation::Write(write, Err(Error::Conflict { current })) => {
                let fits = (*floor..=*ceiling).any(|at| {
                    let state = replay.state_at(at).get(&write.key).map(|s| s.revision);
                    state == *current && !precondition_holds(write.expect, state)
                });
                assert!(fits, "{write:?} was refused for {current:?} in {floor}..={ceiling}");
            }
            ClientOperation::Write(write, Err(error)) => panic!("{write:?}: {error}"),
            ClientOperation::List(page) => {
                assert!(*floor <= page.revision && page.revision <= *ceiling, "a stale read");
                let items: BTreeMap<_, _> = page.items.iter().cloned().collect();
                assert_eq!(&items, replay.state_at(page.revision));
            }
        }
    }
    assert_eq!(by_revision.len(), 0, "{by_revision:?} were acknowledged to no caller");
}

fn precondition_holds(expect: WritePrecondition, current: Option<Revision>) -> bool {
    match expect {
        WritePrecondition::Any => true,
        WritePrecondition::Absent => current.is_none(),
        WritePrecondition::Revision(revision) => current == Some(revision),
    }
}

pub(crate) async fn one_of_many_creators_wins(fixture: fn() -> StoreFixture) {
    let fixture = fixture();
    let store = fixture.open();
    for round in 0..20 {
        let key = format!("{round}");
        let creators: Vec<_> = (0..CLIENTS)
            .map(|n| {
                let (store, key) = (Arc::clone(&store), key.clone());
                tokio::spawn(async move {
                    (n, store.commit(put_if(&key, WritePrecondition::Absent, format!("{n}"))).await)
                })
            })
            .collect();
        let mut winners = Vec::new();
        let mut losers = Vec::new();
        for creator in creators {
            match creator.await.unwrap() {
                (n, Ok(done)) => winners.push((n, done.revision)),
                (_, Err(error)) => losers.push(error),
            }
        }
        let [(winner, revision)] = winners[..] else { panic!("{winners:?}") };
        assert!(losers.iter().all(|e| *e == Error::Conflict { current: Some(revision) }));
        let stored = store.get(&key).await.unwrap().unwrap();
        assert_eq!((stored.revision, stored.value), (revision, Bytes::from(format!("{winner}"))));
    }
}
