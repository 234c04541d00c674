//! Compaction removes history and nothing else.

use super::*;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) async fn compaction_keeps_what_exists(fixture: fn() -> StoreFixture) {
    let fixture = fixture();
    let store = fixture.open();
    let start = store.revision();
    let seen = RecordingSink::attach(&*store, start).unwrap();
    let mut dice = SeededRng(5);
    for n in 0..120 {
        let key = format!("{}", dice.next_below(12));
        let write = if dice.next_below(3) == 0 { delete(&key) } else { put(&key, format!("{n}")) };
        let _ = store.commit(write).await;
    }
    let events = seen.events();
    let replay = StateReplay::from_events(start, &events);
    let newest = store.revision();
    assert_eq!(store.compact(newest + 1).await, Err(Error::Future { revision: newest }));
    let mut floor = start;
    for step in [3, 1, 0, 20, 40, 7] {
        floor += step;
        store.compact(floor).await.unwrap();
        assert_eq!(store.floor(), floor);
        // Everything below is compacted already; repeating it is no error.
        store.compact(floor.saturating_sub(2)).await.unwrap();
        assert_eq!(store.floor(), floor);
        for at in floor..=newest {
            let page = store.range(KeyRange { at: Some(at), ..KeyRange::default() }).await.unwrap();
            assert_eq!(&page.items.into_iter().collect::<BTreeMap<_, _>>(), replay.state_at(at));
        }
        let below = store.range(KeyRange { at: Some(floor - 1), ..KeyRange::default() }).await;
        assert_eq!(below, Err(Error::Compacted { floor }));
        let expected: Vec<_> = events.iter().filter(|e| e.revision > floor).cloned().collect();
        assert_eq!(store.history(floor, usize::MAX).await.unwrap(), expected);
    }
    store.compact(newest).await.unwrap();
    assert_eq!((store.floor(), store.revision()), (newest, newest));
    assert_eq!(&read_all(&*store).await, replay.state_at(newest));
    assert_eq!(store.history(newest, usize::MAX).await, Ok(vec![]));
}

pub(crate) async fn a_deletion_at_the_compaction_revision_stays_deleted(fixture: fn() -> StoreFixture) {
    let fixture = fixture();
    let store = fixture.open();
    commit_ok(&*store, put("k", "1")).await;
    let second = commit_ok(&*store, put("k", "2")).await.revision;
    let died = commit_ok(&*store, delete("k")).await.revision;
    commit_ok(&*store, put("other", "1")).await;

    store.compact(second).await.unwrap();
    let delivered = RecordingSink::attach(&*store, second).unwrap().events();
    assert_eq!(delivered[0].revision, died, "who resumes just before the deletion sees it");
    assert_eq!(delivered[0].previous.as_ref().unwrap().value, "2");

    store.compact(died).await.unwrap();
    let floor = died;
    assert_eq!(RecordingSink::attach(&*store, died - 1).err(), Some(Error::Compacted { floor }));
    let delivered = RecordingSink::attach(&*store, died).unwrap().events();
    assert_eq!(delivered.iter().map(|e| e.key.as_str()).collect::<Vec<_>>(), ["other"]);
    for at in [Some(died), None] {
        let page = store.range(KeyRange { at, ..KeyRange::default() }).await.unwrap();
        assert!(page.items.iter().all(|(key, _)| key != "k"), "at {at:?}");
    }
    assert_eq!(store.commit(delete("k")).await, Err(Error::Conflict { current: None }));
    let again = commit_ok(&*store, put_if("k", WritePrecondition::Absent, "3")).await;
    assert_eq!((again.created, again.previous), (again.revision, None));
}

pub(crate) async fn compaction_leaves_no_gap_under_load(fixture: fn() -> StoreFixture) {
    let fixture = fixture();
    let store = fixture.open();
    let start = store.revision();
    let witness = RecordingSink::attach(&*store, start).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut dice = SeededRng(600 + writer);
                while !stop.load(Ordering::Relaxed) {
                    let key = format!("{}", dice.next_below(6));
                    let write = if dice.next_below(2) == 0 { delete(&key) } else { put(&key, "v") };
                    match store.commit(write).await {
                        Ok(_) | Err(Error::Conflict { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            })
        })
        .collect();
    let mut dice = SeededRng(7);
    let mut resumed = Vec::new();
    let mut refused = 0;
    for _ in 0..60 {
        let newest = store.revision();
        store.compact(newest.saturating_sub(dice.next_below(5)).max(1)).await.unwrap();
        let after = newest.saturating_sub(dice.next_below(10)).max(start);
        match RecordingSink::attach(&*store, after) {
            Ok(seen) => resumed.push((after, seen)),
            Err(Error::Compacted { floor }) => {
                assert!(after < floor && floor <= store.floor());
                refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
        // A list and a watch from its revision are complete together, or the list is too old by
        // then.
        let page = store.range(KeyRange::default()).await.unwrap();
        if let Ok(seen) = RecordingSink::attach(&*store, page.revision) {
            resumed.push((page.revision, seen));
        }
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    let events = witness.events();
    StateReplay::from_events(start, &events);
    assert!(!resumed.is_empty() && refused > 0, "both outcomes were met");
    for (after, seen) in resumed {
        let expected: Vec<_> = events.iter().filter(|e| e.revision > after).cloned().collect();
        assert_eq!(seen.events(), expected, "after {after}");
    }
}
