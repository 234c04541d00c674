use serde_json::json;

use super::*;

fn pod(uid: &str, version: u64) -> Pod {
    serde_json::from_value(json!({"metadata": {
        "name": "a", "uid": uid, "resourceVersion": version.to_string(),
        "managedFields": [{"manager": "somebody"}],
    }}))
    .unwrap()
}

fn shown(known: &PodCache) -> Option<Vec<(String, String)>> {
    let pods = known.pods.as_ref()?;
    let shown = pods.iter().map(|(uid, pod)| {
        assert_eq!(pod.metadata.managed_fields, None);
        (uid.clone(), pod.metadata.resource_version.clone().unwrap())
    });
    Some(shown.collect())
}

#[test]
fn events_come_to_a_set() {
    use Event::{Apply, Delete, Init, InitApply, InitDone};
    let table = [
        (Init, false, None),
        (InitApply(pod("u1", 1)), false, None),
        (InitApply(pod("u2", 2)), false, None),
        (InitDone, true, Some("u1=1 u2=2")),
        (Apply(pod("u1", 3)), true, Some("u1=3 u2=2")),
        (Apply(pod("u1", 3)), false, Some("u1=3 u2=2")),
        (Delete(pod("u3", 4)), false, Some("u1=3 u2=2")),
        // A list without changes.
        (Init, false, Some("u1=3 u2=2")),
        (InitApply(pod("u2", 2)), false, Some("u1=3 u2=2")),
        (InitApply(pod("u1", 3)), false, Some("u1=3 u2=2")),
        (InitDone, false, Some("u1=3 u2=2")),
        // An interrupted list, and a complete one.
        (Init, false, Some("u1=3 u2=2")),
        (InitApply(pod("u4", 5)), false, Some("u1=3 u2=2")),
        (Init, false, Some("u1=3 u2=2")),
        (InitApply(pod("u1", 6)), false, Some("u1=3 u2=2")),
        (InitDone, true, Some("u1=6")),
        (Delete(pod("u1", 7)), true, Some("")),
        // An empty list is also complete.
        (Init, false, Some("")),
        (InitDone, false, Some("")),
    ];
    let mut known = PodCache::default();
    for (row, (event, changed, expected)) in table.into_iter().enumerate() {
        assert_eq!(known.apply(event), changed, "row {row}");
        let shown = shown(&known).map(|pods| {
            let pods = pods.iter().map(|(uid, version)| format!("{uid}={version}"));
            pods.collect::<Vec<_>>().join(" ")
        });
        assert_eq!(shown.as_deref(), expected, "row {row}");
    }
}
