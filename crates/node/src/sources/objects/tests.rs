use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use kube::client::Body;
use serde_json::json;
use tokio::sync::mpsc;

use super::*;

fn map(version: u64) -> ObjectState<ConfigMap> {
    let version = version.to_string();
    let map = json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": version}});
    present_state(serde_json::from_value(map).unwrap())
}

#[test]
fn cached_state_persists_and_only_changes_wake() {
    let unknown = |why: &str| ObjectState::Unknown(Some(why.to_owned()));
    let table = [
        (ObjectState::Unknown(None), false, "Unknown(None)"),
        (unknown("x"), true, "Unknown(Some(\"x\"))"),
        (unknown("x"), false, "Unknown(Some(\"x\"))"),
        (unknown("y"), true, "Unknown(Some(\"y\"))"),
        (map(1), true, "Is(…)"),
        (map(1), false, "Is(…)"),
        (map(2), true, "Is(…)"),
        (unknown("x"), false, "Is(…)"),
        (ObjectState::Absent, true, "Absent"),
        (ObjectState::Absent, false, "Absent"),
        (unknown("x"), false, "Absent"),
        (map(3), true, "Is(…)"),
    ];
    let held = CachedObject::default();
    for (row, (now, changed, expected)) in table.into_iter().enumerate() {
        assert_eq!(held.set(now), changed, "row {row}");
        assert_eq!(format!("{:?}", held.get()), expected, "row {row}");
    }
}

#[tokio::test(start_paused = true)]
async fn not_all_begin_at_once() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    let service = tower::service_fn(move |_: http::Request<Body>| {
        counter.fetch_add(1, SeqCst);
        std::future::pending::<Result<http::Response<Body>, std::convert::Infallible>>()
    });
    let (send, _wakes) = mpsc::unbounded_channel();
    let objects = ObjectCache::new(Client::new(service, "default"), send);
    let id = |number: usize| ObjectId {
        kind: ObjectKind::ConfigMap,
        namespace: "default".into(),
        name: format!("m{number}"),
    };
    let all = (0..100).map(id).collect::<BTreeSet<_>>();
    objects.set_watched(&all);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(asked.load(SeqCst), STARTS);
    // Objects that are no longer watched free their slots.
    let begun = all.iter().take(50).cloned().collect();
    objects.set_watched(&begun);
    objects.set_watched(&all.iter().skip(50).cloned().collect());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(asked.load(SeqCst), 2 * STARTS);
}
