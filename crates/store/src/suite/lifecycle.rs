//! Restarting and closing stores.

use super::*;

pub(crate) async fn a_restart_keeps_everything(fixture: fn() -> StoreFixture) {
    let fixture = fixture();
    let mut store = fixture.open();
    let start = store.revision();
    let mut dice = SeededRng(8);
    let mut events = Vec::new();
    for round in 0..5 {
        let before = store.revision();
        let seen = RecordingSink::attach(&*store, before).unwrap();
        for n in 0..20 {
            let key = format!("{}", dice.next_below(10));
            let write =
                if dice.next_below(3) == 0 { delete(&key) } else { put(&key, format!("{round}/{n}")) };
            let _ = store.commit(write).await;
        }
        events.extend(seen.events());
        let (revision, floor, all) = (store.revision(), store.floor(), read_all(&*store).await);
        if round % 2 == 0 {
            store.close().await.unwrap();
        }
        drop(store);
        store = fixture.open();
        assert_eq!((store.revision(), store.floor()), (revision, floor));
        assert_eq!(read_all(&*store).await, all);
        assert_eq!(store.history(start, usize::MAX).await.unwrap(), events);
    }
    let replay = StateReplay::from_events(start, &events);
    assert_eq!(&read_all(&*store).await, replay.state_at(store.revision()));
}

pub(crate) async fn revisions_are_not_reused_after_compaction_and_restart(fixture: fn() -> StoreFixture) {
    let fixture = fixture();
    let mut store = fixture.open();
    let mut newest = store.revision();
    for _ in 0..3 {
        commit_ok(&*store, put("k", "1")).await;
        let died = commit_ok(&*store, delete("k")).await.revision;
        assert!(died > newest);
        newest = died;
        // Nothing is left of the newest change, but its revision is not reused.
        store.compact(newest).await.unwrap();
        store.close().await.unwrap();
        drop(store);
        store = fixture.open();
        assert_eq!((store.revision(), store.floor()), (newest, newest));
        assert_eq!(store.range(KeyRange::default()).await.unwrap().revision, newest);
        assert_eq!(store.history(newest, 1).await, Ok(vec![]));
    }
    assert!(commit_ok(&*store, put("k", "1")).await.revision > newest);
}

pub(crate) async fn a_closed_store_says_so(fixture: fn() -> StoreFixture) {
    let fixture = fixture();
    let store = fixture.open();
    let start = store.revision();
    let (sink, dropped) = std::sync::mpsc::channel::<()>();
    store
        .watch(
            start,
            Box::new(move |message| {
                message.changes().iter().for_each(|_| sink.send(()).unwrap_or_default());
            }),
        )
        .unwrap();
    commit_ok(&*store, put("k", "1")).await;
    // Writes pending when the store closes are committed or rejected, never left hanging.
    let waiting: Vec<_> = (0..20)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.commit(put(&format!("{n}"), "1")).await })
        })
        .collect();
    store.close().await.unwrap();
    for task in waiting {
        assert!(matches!(task.await.unwrap(), Ok(_) | Err(Error::Closed)));
    }
    assert_eq!(store.commit(put("k", "2")).await, Err(Error::Closed));
    assert_eq!(store.range(KeyRange::default()).await, Err(Error::Closed));
    assert_eq!(store.history(start, 1).await, Err(Error::Closed));
    assert_eq!(store.compact(start + 1).await, Err(Error::Closed));
    assert_eq!(store.watch(start, Box::new(|_| {})), Err(Error::Closed));
    assert_eq!(store.close().await, Ok(()));
    assert_eq!(dropped.iter().count() as u64, store.revision() - start, "its sinks are dropped");
}
