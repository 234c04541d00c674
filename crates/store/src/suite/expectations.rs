//! Preconditions, and results of writes.

use super::*;

pub(crate) async fn expectations_are_checked(fixture: fn() -> StoreFixture) {
    let fixture = fixture();
    let store = fixture.open();
    let lives = commit_ok(&*store, put("lives", "1")).await.revision;
    commit_ok(&*store, put("dead", "1")).await;
    let died = commit_ok(&*store, delete("dead")).await.revision;
    let newest = store.revision();

    // Writes that must fail, and the current revision in the error.
    let refused: [(WriteRequest, Option<Revision>); 14] = [
        (put_if("lives", WritePrecondition::Absent, "x"), Some(lives)),
        (put_if("lives", WritePrecondition::Revision(lives - 1), "x"), Some(lives)),
        (put_if("lives", WritePrecondition::Revision(newest), "x"), Some(lives)),
        (put_if("lives", WritePrecondition::Revision(0), "x"), Some(lives)),
        (put_if("never", WritePrecondition::Revision(lives), "x"), None),
        (put_if("never", WritePrecondition::Revision(0), "x"), None),
        (put_if("dead", WritePrecondition::Revision(died), "x"), None),
        (delete_if("lives", WritePrecondition::Absent), Some(lives)),
        (delete_if("lives", WritePrecondition::Revision(lives + 1)), Some(lives)),
        (delete_if("never", WritePrecondition::Any), None),
        (delete_if("never", WritePrecondition::Absent), None),
        (delete_if("never", WritePrecondition::Revision(lives)), None),
        (delete_if("dead", WritePrecondition::Any), None),
        (delete_if("dead", WritePrecondition::Revision(died)), None),
    ];
    for (write, current) in refused {
        let answer = store.commit(write.clone()).await;
        assert_eq!(answer, Err(Error::Conflict { current }), "{write:?}");
    }
    assert_eq!(store.revision(), newest, "a refused write takes no revision");
    assert_eq!(read_all(&*store).await.len(), 1, "a refused write changes nothing");

    let accepted = [
        put_if("lives", WritePrecondition::Revision(lives), "2"),
        put_if("dead", WritePrecondition::Absent, "2"),
        put_if("never", WritePrecondition::Absent, "1"),
        put_if("other", WritePrecondition::Any, "1"),
        put_if("other", WritePrecondition::Any, "2"),
        delete_if("other", WritePrecondition::Any),
    ];
    let mut last = newest;
    for write in accepted {
        let revision = commit_ok(&*store, write.clone()).await.revision;
        assert!(revision > last, "{write:?}");
        last = revision;
    }
    assert_eq!(store.revision(), last);
}

pub(crate) async fn a_write_tells_what_it_replaced(fixture: fn() -> StoreFixture) {
    let fixture = fixture();
    let store = fixture.open();
    let first = commit_ok(&*store, put("k", "1")).await;
    assert_eq!((first.created, first.previous), (first.revision, None));
    let stored = |revision, value: &'static str| {
        Some(StoredValue { revision, created: first.revision, value: Bytes::from_static(value.as_bytes()) })
    };
    let second = commit_ok(&*store, put("k", "2")).await;
    assert_eq!(second.created, first.revision);
    assert_eq!(second.previous, stored(first.revision, "1"));
    // Writing the same bytes again is a change like any other.
    let third = commit_ok(&*store, put("k", "2")).await;
    assert_eq!(third.previous, stored(second.revision, "2"));
    let gone = commit_ok(&*store, delete("k")).await;
    assert_eq!(gone.created, first.revision);
    assert_eq!(gone.previous, stored(third.revision, "2"));
    assert_eq!(store.get("k").await, Ok(None));
    let again = commit_ok(&*store, put("k", "3")).await;
    assert_eq!((again.created, again.previous), (again.revision, None));
    let expected =
        StoredValue { revision: again.revision, created: again.revision, value: Bytes::from_static(b"3") };
    assert_eq!(store.get("k").await, Ok(Some(expected)));
}

pub(crate) async fn keys_and_values_are_any_bytes(fixture: fn() -> StoreFixture) {
    let fixture = fixture();
    let store = fixture.open();
    let seen = RecordingSink::attach(&*store, store.revision()).unwrap();
    let keys = ["/", "a b", "100%_", "ключ", "\u{10ffff}", "'; DROP TABLE kv; --", "\u{7f}", "ÿ"];
    let values: [Vec<u8>; 5] =
        [vec![], vec![0], b"\xff\xfe\0'\"".to_vec(), (0..=255).collect(), vec![7; 1 << 20]];
    let mut expected = BTreeMap::new();
    for (n, key) in keys.into_iter().enumerate() {
        let value = values[n % values.len()].clone();
        commit_ok(&*store, put(key, value.clone())).await;
        expected.insert(key.to_owned(), Bytes::from(value));
    }
    let found = read_all(&*store).await;
    let found: BTreeMap<_, _> = found.into_iter().map(|(key, s)| (key, s.value)).collect();
    assert!(found == expected);
    for (key, value) in &expected {
        assert_eq!(store.get(key).await.unwrap().unwrap().value, value, "{key:?}");
    }
    let delivered: BTreeMap<_, _> =
        seen.events().into_iter().map(|event| (event.key, event.value.unwrap())).collect();
    assert!(delivered == expected);
}
