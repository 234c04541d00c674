//! Several stores on one cluster.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_are_visible_to_all_after_catch_up() {
    let process = EtcdProcess::start_own(&[]);
    let [a, b] = [0, 1].map(|_| open(&process, "/shared").unwrap());
    let seen = record_keys(&b, b.revision());
    for n in 0..50 {
        let done = a.commit(put(&format!("{n}"), "1")).await.unwrap();
        assert!(b.catch_up().await.unwrap() >= done.revision);
        assert!(b.revision() >= done.revision);
        assert_eq!(seen.lock().unwrap().len(), n + 1);
    }
}

/// Writes by others advance the revision but are in no feed; still no caller waits in vain.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_other_writers_delay_no_caller() {
    let process = EtcdProcess::start_own(&[]);
    let mine = open(&process, "/mine").unwrap();
    let others = open(&process, "/mine2").unwrap();
    let start = mine.revision();
    let seen = record_keys(&mine, start);
    mine.commit(put("a", "1")).await.unwrap();
    for n in 0..5 {
        let foreign = others.commit(put(&format!("{n}"), "1")).await.unwrap().revision;
        assert!(mine.catch_up().await.unwrap() >= foreign);
        assert!(mine.revision() >= foreign);
    }
    mine.commit(delete("a")).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), ["a", "a"]);
    let page = mine.range(KeyRange::default()).await.unwrap();
    assert_eq!(page.items, []);
    // A store opened later finds the same history.
    let late = open(&process, "/mine").unwrap();
    let history = late.history(start, usize::MAX).await.unwrap();
    assert_eq!(history, mine.history(start, usize::MAX).await.unwrap());
    assert_eq!(history.len(), 2);
    assert_eq!(*record_keys(&late, start).lock().unwrap(), ["a", "a"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compaction_by_another_is_noticed() {
    let process = EtcdProcess::start_own(&[]);
    let [a, b] = [0, 1].map(|_| open(&process, "/shared").unwrap());
    let start = a.revision();
    for n in 0..10 {
        a.commit(put("k", format!("{n}"))).await.unwrap();
    }
    let floor = a.revision() - 2;
    a.compact(floor).await.unwrap();
    assert!(b.floor() < floor, "it does not know of the compaction yet");
    let stale = KeyRange { at: Some(floor - 1), ..KeyRange::default() };
    assert_eq!(b.range(stale).await, Err(Error::Compacted { floor }));
    assert_eq!(b.floor(), floor);
    let late = open(&process, "/shared").unwrap();
    assert_eq!(late.floor(), floor);
    b.compact(floor - 1).await.unwrap();
    for store in [&a, &b, &late] {
        assert_eq!(store.history(start, 1).await, Err(Error::Compacted { floor }));
        assert_eq!(store.history(floor - 1, 1).await, Err(Error::Compacted { floor }));
        assert_eq!(store.history(floor, 9).await.unwrap().len(), 2);
    }
}

/// Where etcd reports stream progress reliably, nothing is written to determine it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn catching_up_writes_only_where_it_must() {
    let process = EtcdProcess::start_own(&[]);
    let mine = open(&process, "/mine").unwrap();
    let others = open(&process, "/others").unwrap();
    mine.commit(put("k", "1")).await.unwrap();
    let marks = if mine.core.progress_requester().request() { 0 } else { 1 };
    for _ in 0..5 {
        let foreign = others.commit(put("k", "1")).await.unwrap().revision;
        assert!(mine.catch_up().await.unwrap() >= foreign);
        assert!(mine.revision() >= foreign);
        assert_eq!(others.catch_up().await.unwrap(), foreign + marks);
    }
}

/// History that a new sink requests may be compacted without this store's knowledge; the sink gets
/// the state instead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sink_whose_history_is_compacted_begins_with_the_state() {
    let process = EtcdProcess::start_own(&[]);
    let [a, b] = [0, 1].map(|_| open(&process, "/shared").unwrap());
    let start = b.revision();
    a.commit(put("goes", "1")).await.unwrap();
    a.commit(delete("goes")).await.unwrap();
    let last = a.commit(put("stays", "1")).await.unwrap().revision;
    a.compact(last).await.unwrap();
    assert!(b.floor() < last, "it does not know of the compaction yet");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    let take = move |message: crate::FeedMessage<'_>| {
        let mut seen = sink.lock().unwrap();
        match message {
            crate::FeedMessage::Changes(events) => {
                seen.extend(events.iter().map(|event| format!("{} changed", event.key)));
            }
            crate::FeedMessage::Reset(page) => {
                assert!(page.revision >= last);
                seen.extend(page.items.iter().map(|(key, _)| format!("{key} is there")));
            }
        }
    };
    b.watch(start, Box::new(take)).unwrap();
    a.commit(put("next", "1")).await.unwrap();
    b.catch_up().await.unwrap();
    assert_eq!(*seen.lock().unwrap(), ["stays is there", "next changed"]);
    // Once the compaction is known, the request is rejected.
    let refused = b.watch(start, Box::new(|_| {}));
    assert_eq!(refused, Err(Error::Compacted { floor: last }));
}
