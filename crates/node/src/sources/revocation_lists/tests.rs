use serde_json::json;

use super::*;
use crate::testing::revocation_list;

fn object(name: &str, crl: &[u8]) -> DynamicObject {
    let spec = json!({"signerName": "a.b/c", "authorityID": name, "crl": STANDARD.encode(crl)});
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
}

fn authorities(cache: &RevocationListCache) -> Vec<&str> {
    cache.lists.lists_of("a.b/c").map(|(authority, _)| authority).collect()
}

#[test]
fn the_cache_follows_events() {
    let mut cache = RevocationListCache::default();
    let (one, two) = (revocation_list(1), revocation_list(2));
    for (event, is_changed, expected) in [
        (Event::Init, false, vec![]),
        (Event::InitApply(object("0b", &one)), false, vec![]),
        (Event::InitApply(object("0a", &one)), false, vec![]),
        (Event::InitDone, true, vec!["0a", "0b"]),
        (Event::Apply(object("0a", &one)), false, vec!["0a", "0b"]),
        (Event::Apply(object("0a", &two)), true, vec!["0a", "0b"]),
        (Event::Apply(object("0c", &two)), true, vec!["0a", "0b", "0c"]),
        (Event::Delete(object("0b", &one)), true, vec!["0a", "0c"]),
        // A relist without 0c.
        (Event::Init, false, vec!["0a", "0c"]),
        (Event::InitApply(object("0a", &two)), false, vec!["0a", "0c"]),
        (Event::InitDone, true, vec!["0a"]),
    ] {
        let what = format!("{event:?}");
        assert_eq!(cache.apply(event), is_changed, "{what}");
        assert_eq!(authorities(&cache), expected, "{what}");
    }
    assert_eq!(cache.lists.get("0a").unwrap().der, two);
    assert_eq!(cache.lists.lists_of("other.b/c").count(), 0);
}

#[test]
fn an_invalid_list_leaves_the_earlier_one_in_place() {
    let mut cache = RevocationListCache::default();
    let list = revocation_list(1);
    for event in [Event::Init, Event::InitApply(object("0a", &list)), Event::InitDone] {
        cache.apply(event);
    }
    assert!(!cache.apply(Event::Apply(object("0a", b"not a list"))));
    assert!(!cache.apply(Event::Apply(object("0d", b"not a list"))));
    assert!(!cache.apply(Event::Apply(object("../x", &list))), "the name becomes a file name");
    assert_eq!(authorities(&cache), ["0a"]);
    assert_eq!(cache.lists.get("0a").unwrap().der, list);
    for event in [Event::Init, Event::InitApply(object("0a", b"")), Event::InitDone] {
        cache.apply(event);
    }
    assert_eq!(cache.lists.get("0a").unwrap().der, list);
}
