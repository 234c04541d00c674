//! Ranges: prefixes, pages, past revisions.

use super::*;
use crate::RangePage;

fn keys(page: &RangePage) -> Vec<&str> {
    page.items.iter().map(|(key, _)| key.as_str()).collect()
}

fn prefix(prefix: &str) -> KeyRange {
    KeyRange { prefix: prefix.to_owned(), ..KeyRange::default() }
}

pub(crate) async fn a_range_has_its_prefix_in_order(fixture: fn() -> StoreFixture) {
    let fixture = fixture();
    let store = fixture.open();
    let start = store.revision();
    let empty = store.range(KeyRange::default()).await.unwrap();
    assert_eq!(empty, RangePage { revision: start, items: vec![], more: false });
    for key in ["b/2", "a", "b", "b0", "b/", "b/10", "c", "B/1", "b/\u{10ffff}", "ä/1", "b.1", "gone"] {
        commit_ok(&*store, put(key, key)).await;
    }
    commit_ok(&*store, delete("gone")).await;
    let cases: [(&str, &[&str]); 9] = [
        ("b/", &["b/", "b/10", "b/2", "b/\u{10ffff}"]),
        ("b/1", &["b/10"]),
        ("b", &["b", "b.1", "b/", "b/10", "b/2", "b/\u{10ffff}", "b0"]),
        ("b/\u{10ffff}", &["b/\u{10ffff}"]),
        ("ä", &["ä/1"]),
        ("gone", &[]),
        ("zzz", &[]),
        ("%", &[]),
        ("", &["B/1", "a", "b", "b.1", "b/", "b/10", "b/2", "b/\u{10ffff}", "b0", "c", "ä/1"]),
    ];
    for (wanted, expected) in cases {
        let page = store.range(prefix(wanted)).await.unwrap();
        assert_eq!(keys(&page), expected, "prefix {wanted:?}");
        assert_eq!((page.revision, page.more), (store.revision(), false), "prefix {wanted:?}");
        assert!(page.items.iter().all(|(key, stored)| stored.value == *key));
    }
}

pub(crate) async fn pages_continue_where_they_stopped(fixture: fn() -> StoreFixture) {
    let fixture = fixture();
    let store = fixture.open();
    for n in 0..10 {
        commit_ok(&*store, put(&format!("in/{n}"), "v")).await;
    }
    commit_ok(&*store, put("a", "v")).await;
    commit_ok(&*store, put("z", "v")).await;
    commit_ok(&*store, delete("in/4")).await;
    commit_ok(&*store, delete("in/9")).await;
    let all: Vec<String> = [0, 1, 2, 3, 5, 6, 7, 8].map(|n| format!("in/{n}")).to_vec();
    for limit in 1..=9 {
        let mut found: Vec<String> = Vec::new();
        loop {
            let after = found.last().cloned();
            let range = KeyRange { after, limit: Some(limit), ..prefix("in/") };
            let page = store.range(range).await.unwrap();
            assert!(page.items.len() == limit || !page.more);
            found.extend(page.items.into_iter().map(|(key, _)| key));
            assert_eq!(page.more, found.len() < all.len(), "limit {limit}, {found:?}");
            if !page.more {
                break;
            }
        }
        assert_eq!(found, all, "limit {limit}");
    }
    let after = |key: &str| KeyRange { after: Some(key.to_owned()), ..prefix("in/") };
    // A key to continue after need not exist, nor lie within the prefix.
    assert_eq!(store.range(after("in/4")).await.unwrap().items.len(), 4);
    assert_eq!(store.range(after("a")).await.unwrap().items.len(), 8);
    assert_eq!(store.range(after("z")).await.unwrap().items.len(), 0);
}

pub(crate) async fn pages_agree_under_concurrent_writes(fixture: fn() -> StoreFixture) {
    let fixture = fixture();
    let store = fixture.open();
    for n in 0..50 {
        commit_ok(&*store, put(&format!("{n:02}"), "0")).await;
    }
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let writer = tokio::spawn({
        let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
        async move {
            let mut dice = SeededRng(1);
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let key = format!("{:02}", dice.next_below(60));
                let write = if dice.next_below(3) == 0 { delete(&key) } else { put(&key, "1") };
                match store.commit(write).await {
                    Ok(_) | Err(Error::Conflict { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    });
    for _ in 0..20 {
        let first = store.range(KeyRange { limit: Some(7), ..KeyRange::default() }).await.unwrap();
        let at = Some(first.revision);
        let (mut items, mut more) = (first.items, first.more);
        while more {
            let after = items.last().map(|(key, _)| key.clone());
            let range = KeyRange { after, limit: Some(7), at, ..KeyRange::default() };
            let page = store.range(range).await.unwrap();
            assert_eq!(Some(page.revision), at);
            items.extend(page.items);
            more = page.more;
        }
        let whole = store.range(KeyRange { at, ..KeyRange::default() }).await.unwrap();
        assert_eq!(items, whole.items);
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    writer.await.unwrap();
}

pub(crate) async fn past_revisions_can_be_read(fixture: fn() -> StoreFixture) {
    let fixture = fixture();
    let store = fixture.open();
    let start = store.revision();
    let seen = RecordingSink::attach(&*store, start).unwrap();
    let mut dice = SeededRng(2);
    for n in 0..60 {
        let key = format!("{}", dice.next_below(8));
        let write = if dice.next_below(3) == 0 { delete(&key) } else { put(&key, format!("{n}")) };
        let _ = store.commit(write).await;
    }
    let replay = StateReplay::from_events(start, &seen.events());
    for at in start..=store.revision() {
        let page = store.range(KeyRange { at: Some(at), ..KeyRange::default() }).await.unwrap();
        assert_eq!(page.revision, at);
        assert_eq!(&page.items.into_iter().collect::<BTreeMap<_, _>>(), replay.state_at(at), "at {at}");
    }
    let revision = store.revision();
    for beyond in [revision + 1, Revision::MAX] {
        let range = KeyRange { at: Some(beyond), ..KeyRange::default() };
        assert_eq!(store.range(range).await, Err(Error::Future { revision }));
    }
}
