//! Guarantees of the feed.

use super::*;

/// A few hundred writes by several concurrent writers, some of them rejected.
async fn load(store: &Arc<dyn Store>, seed: u64, writers: u64, writes: u64) {
    let tasks: Vec<_> = (0..writers)
        .map(|writer| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                let mut dice = SeededRng(seed * 1_000 + writer);
                for n in 0..writes {
                    let key = format!("k{}", dice.next_below(10));
                    let write = match dice.next_below(4) {
                        0 => delete(&key),
                        1 => put_if(&key, WritePrecondition::Absent, format!("{writer}/{n}")),
                        _ => put(&key, format!("{writer}/{n}")),
                    };
                    match store.commit(write).await {
                        Ok(_) | Err(Error::Conflict { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

pub(crate) async fn the_feed_is_ordered_unique_and_complete(fixture: fn() -> StoreFixture) {
    let fixture = fixture();
    let store = fixture.open();
    let start = store.revision();
    let first = RecordingSink::attach(&*store, start).unwrap();
    let late = tokio::spawn({
        let store = Arc::clone(&store);
        async move {
            // Sinks attached during commits, from the start and from now.
            let mut followers = Vec::new();
            for _ in 0..20 {
                for after in [start, store.revision()] {
                    followers.push((after, RecordingSink::attach(&*store, after).unwrap()));
                }
                tokio::task::yield_now().await;
            }
            followers
        }
    });
    load(&store, 3, 4, 60).await;
    let followers = late.await.unwrap();
    let history = store.history(start, usize::MAX).await.unwrap();
    StateReplay::from_events(start, &history);
    assert_eq!(history.last().unwrap().revision, store.revision());
    assert_eq!(first.events(), history);
    for (after, seen) in followers {
        let expected: Vec<_> = history.iter().filter(|e| e.revision > after).cloned().collect();
        assert_eq!(seen.events(), expected, "after {after}");
    }
}

pub(crate) async fn the_feed_resumes_from_any_revision(fixture: fn() -> StoreFixture) {
    let fixture = fixture();
    let store = fixture.open();
    let start = store.revision();
    load(&store, 4, 2, 30).await;
    let history = store.history(start, usize::MAX).await.unwrap();
    let newest = store.revision();
    let floor = history[history.len() / 2].revision;
    store.compact(floor).await.unwrap();
    // A store may start at a high revision.
    for after in [0, 1].into_iter().chain(start.saturating_sub(5)..=newest + 1) {
        let page = store.history(after, usize::MAX).await;
        let seen = RecordingSink::attach(&*store, after).map(|seen| seen.events());
        assert_eq!(page, seen, "after {after}");
        if after < floor {
            assert_eq!(seen, Err(Error::Compacted { floor }), "after {after}");
        } else if after > newest {
            assert_eq!(seen, Err(Error::Future { revision: newest }), "after {after}");
        } else {
            let expected: Vec<_> = history.iter().filter(|e| e.revision > after).cloned().collect();
            assert_eq!(seen, Ok(expected), "after {after}");
        }
    }
    let few = store.history(floor, 3).await.unwrap();
    let expected: Vec<_> = history.iter().filter(|e| e.revision > floor).take(3).cloned().collect();
    assert_eq!(few, expected);
}

pub(crate) async fn the_feed_carries_previous_values(fixture: fn() -> StoreFixture) {
    let fixture = fixture();
    let store = fixture.open();
    let start = store.revision();
    let live = RecordingSink::attach(&*store, start).unwrap();
    for write in [put("k", "1"), put("k", "2"), put("other", "x"), delete("k"), put("k", "3")] {
        commit_ok(&*store, write).await;
    }
    let replayed = RecordingSink::attach(&*store, start).unwrap();
    for events in [live.events(), replayed.events()] {
        let delivered: Vec<_> = events
            .iter()
            .map(|e| {
                let text = |b: &Bytes| String::from_utf8_lossy(b).into_owned();
                let old = e.previous.as_ref().map(|old| text(&old.value));
                (e.key.as_str(), e.value.as_ref().map(text), old, e.created == e.revision)
            })
            .collect();
        let some = |text: &str| Some(text.to_owned());
        let expected = [
            ("k", some("1"), None, true),
            ("k", some("2"), some("1"), false),
            ("other", some("x"), None, true),
            ("k", None, some("2"), false),
            ("k", some("3"), None, true),
        ];
        assert_eq!(delivered, expected);
    }
    // The previous value of an event outlives the event that set it.
    let second = live.events()[1].revision;
    store.compact(second).await.unwrap();
    let rest = store.history(second, usize::MAX).await.unwrap();
    assert_eq!(rest, live.events()[2..]);
}

pub(crate) async fn the_feed_comes_before_the_answer(fixture: fn() -> StoreFixture) {
    let fixture = fixture();
    let store = fixture.open();
    let seen = RecordingSink::attach(&*store, store.revision()).unwrap();
    let tasks: Vec<_> = (0..8)
        .map(|writer| {
            let (store, seen) = (Arc::clone(&store), seen.clone());
            tokio::spawn(async move {
                for n in 0..20 {
                    let answer = commit_ok(&*store, put(&format!("{writer}"), format!("{n}"))).await;
                    assert!(store.revision() >= answer.revision);
                    assert!(seen.events().iter().any(|e| e.revision == answer.revision));
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

pub(crate) async fn a_sink_that_panics_fails_the_store(fixture: fn() -> StoreFixture) {
    let fixture = fixture();
    let store = fixture.open();
    let start = store.revision();
    let healthy = RecordingSink::attach(&*store, start).unwrap();
    let fragile = |message: FeedMessage<'_>| {
        assert!(message.changes().iter().all(|e| e.key != "bad"), "cannot take it")
    };
    store.watch(start, Box::new(fragile)).unwrap();
    commit_ok(&*store, put("good", "1")).await;
    assert_eq!(store.failure(), None);
    let failed = store.failed();
    let Err(Error::Failed { what }) = store.commit(put("bad", "1")).await else {
        panic!("the failure was hidden");
    };
    assert!(what.contains("cannot take it"), "{what}");
    assert_eq!(failed.await, Error::Failed { what: what.clone() });
    assert_eq!(store.failure(), Some(Error::Failed { what: what.clone() }));
    assert_eq!(store.commit(put("good", "2")).await, Err(Error::Failed { what }));
    // The other sinks have received everything durable, and reads still work.
    assert_eq!(healthy.events().len(), 2);
    assert_eq!(read_all(&*store).await.len(), 2);
}
