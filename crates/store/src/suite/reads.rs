//! Ranges: prefixes, pages, past revisions.

use super::*;
use crate::Page;

fn keys(page: &Page) -> Vec<&str> {
    page.items.iter().map(|(key, _)| key.as_str()).collect()
}

fn prefix(prefix: &str) -> Range {
    Range { prefix: prefix.to_owned(), ..Range::default() }
}

pub(crate) async fn a_range_has_its_prefix_in_order(fixture: fn() -> Fixture) {
    let fixture = fixture();
    let store = fixture.open();
    let start = store.revision();
    let empty = store.range(Range::default()).await.unwrap();
    assert_eq!(empty, Page { revision: start, items: vec![], more: false });
    for key in
        ["b/2", "a", "b", "b0", "b/", "b/10", "c", "B/1", "b/\u{10ffff}", "ä/1", "b.1", "gone"]
    {
        must(&*store, put(key, key)).await;
    }
    must(&*store, delete("gone")).await;
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

pub(crate) async fn pages_continue_where_they_stopped(fixture: fn() -> Fixture) {
    let fixture = fixture();
    let store = fixture.open();
    for n in 0..10 {
        must(&*store, put(&format!("in/{n}"), "v")).await;
    }
    must(&*store, put("a", "v")).await;
    must(&*store, put("z", "v")).await;
    must(&*store, delete("in/4")).await;
    must(&*store, delete("in/9")).await;
    let all: Vec<String> = [0, 1, 2, 3, 5, 6, 7, 8].map(|n| format!("in/{n}")).to_vec();
    for limit in 1..=9 {
        let mut found: Vec<String> = Vec::new();
        loop {
            let after = found.last().cloned();
            let range = Range { after, limit: Some(limit), ..prefix("in/") };
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
    let after = |key: &str| Range { after: Some(key.to_owned()), ..prefix("in/") };
    // A key to continue after need not exist, nor lie within the prefix.
    assert_eq!(store.range(after("in/4")).await.unwrap().items.len(), 4);
    assert_eq!(store.range(after("a")).await.unwrap().items.len(), 8);
    assert_eq!(store.range(after("z")).await.unwrap().items.len(), 0);
}

pub(crate) async fn pages_agree_under_concurrent_writes(fixture: fn() -> Fixture) {
    let fixture = fixture();
    let store = fixture.open();
    for n in 0..50 {
        must(&*store, put(&format!("{n:02}"), "0")).await;
    }
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let writer = tokio::spawn({
        let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
        async move {
            let mut dice = Dice(1);
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let key = format!("{:02}", dice.roll(60));
                let write = if dice.roll(3) == 0 { delete(&key) } else { put(&key, "1") };
                match store.commit(write).await {
                    Ok(_) | Err(Error::Conflict { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    });
    for _ in 0..20 {
        let first = store.range(Range { limit: Some(7), ..Range::default() }).await.unwrap();
        let at = Some(first.revision);
        let (mut items, mut more) = (first.items, first.more);
        while more {
            let after = items.last().map(|(key, _)| key.clone());
            let range = Range { after, limit: Some(7), at, ..Range::default() };
            let page = store.range(range).await.unwrap();
            assert_eq!(Some(page.revision), at);
            items.extend(page.items);
            more = page.more;
        }
        let whole = store.range(Range { at, ..Range::default() }).await.unwrap();
        assert_eq!(items, whole.items);
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    writer.await.unwrap();
}

pub(crate) async fn past_revisions_can_be_read(fixture: fn() -> Fixture) {
    let fixture = fixture();
    let store = fixture.open();
    let start = store.revision();
    let seen = Seen::follow(&*store, start).unwrap();
    let mut dice = Dice(2);
    for n in 0..60 {
        let key = format!("{}", dice.roll(8));
        let write = if dice.roll(3) == 0 { delete(&key) } else { put(&key, format!("{n}")) };
        let _ = store.commit(write).await;
    }
    let replay = Replay::of(start, &seen.events());
    for at in start..=store.revision() {
        let page = store.range(Range { at: Some(at), ..Range::default() }).await.unwrap();
        assert_eq!(page.revision, at);
        assert_eq!(&page.items.into_iter().collect::<BTreeMap<_, _>>(), replay.at(at), "at {at}");
    }
    let revision = store.revision();
    for beyond in [revision + 1, Revision::MAX] {
        let range = Range { at: Some(beyond), ..Range::default() };
        assert_eq!(store.range(range).await, Err(Error::Future { revision }));
    }
}
