//! One kind in two groups: events as `v1` and as `events.k8s.io/v1`.

use serde_json::json;

use windlass_testkit::{TestServer, names};

const OLD: &str = "/api/v1/namespaces/default/events";
const NEW: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

#[tokio::test]
async fn events_are_shared_by_both_groups() {
    let server = TestServer::start().await;
    let old = json!({
        "metadata": {"name": "old"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "Because", "message": "text", "type": "Normal", "count": 3,
        "source": {"component": "c"},
    });
    server.post(OLD, &old).await.expect(201);
    let new = json!({
        "metadata": {"name": "new"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "Because", "action": "Do", "note": "text", "type": "Normal",
        "reportingController": "example.com/c", "reportingInstance": "i",
    });
    server.post(NEW, &new).await.expect(201);
    let seen = server.get(&format!("{NEW}/old")).await.expect(200);
    assert_eq!(seen["apiVersion"], "events.k8s.io/v1");
    assert_eq!((&seen["note"], &seen["regarding"]["name"]), (&json!("text"), &json!("p")));
    assert_eq!((&seen["deprecatedCount"], &seen["message"]), (&json!(3), &json!(null)));
    let seen = server.get(&format!("{OLD}/new")).await.expect(200);
    assert_eq!((&seen["message"], &seen["involvedObject"]["name"]), (&json!("text"), &json!("p")));
    assert_eq!(seen["reportingComponent"], "example.com/c");
    for path in [OLD, NEW] {
        let list = server.get(path).await.expect(200);
        assert_eq!(names(&list), ["new", "old"]);
        assert_eq!(list["kind"], "EventList");
    }
}

#[tokio::test]
async fn each_group_is_watched_in_its_own_form() {
    let server = TestServer::start().await;
    let mut old = server.watch(&format!("{OLD}?watch=1")).await;
    let mut new = server.watch(&format!("{NEW}?watch=1")).await;
    let event = json!({
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "message": "text",
    });
    server.post(OLD, &event).await.expect(201);
    server.delete(&format!("{NEW}/e")).await.expect(200);
    for kind in ["ADDED", "DELETED"] {
        let (old, new) = (old.next().await, new.next().await);
        assert_eq!((&old["type"], &new["type"]), (&json!(kind), &json!(kind)));
        assert_eq!((&old["object"]["apiVersion"], &old["object"]["message"]), (&json!("v1"), &json!("text")));
        assert_eq!(new["object"]["apiVersion"], "events.k8s.io/v1");
        assert_eq!((&new["object"]["note"], &new["object"]["message"]), (&json!("text"), &json!(null)));
    }
}

#[tokio::test]
async fn events_are_found_by_what_they_are_about() {
    let server = TestServer::start().await;
    for (name, kind, about) in [("a", "Pod", "p"), ("b", "Pod", "q"), ("c", "Node", "p")] {
        let event = json!({
            "metadata": {"name": name},
            "involvedObject": {"kind": kind, "name": about, "namespace": "default"},
            "type": "Normal", "reason": "R",
        });
        server.post(OLD, &event).await.expect(201);
    }
    for (query, want) in [
        ("fieldSelector=involvedObject.name%3Dp", vec!["a", "c"]),
        ("fieldSelector=involvedObject.name%3Dp,involvedObject.kind%3DPod", vec!["a"]),
        ("fieldSelector=type!%3DNormal", vec![]),
        ("fieldSelector=reason%3DR", vec!["a", "b", "c"]),
    ] {
        let list = server.get(&format!("{OLD}?{query}")).await.expect(200);
        assert_eq!(names(&list), want, "{query}");
    }
}

#[tokio::test]
async fn patches_meet_the_form_of_the_group_they_come_through() {
    let server = TestServer::start().await;
    let event = json!({
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "message": "one",
    });
    server.post(OLD, &event).await.expect(201);
    let seen = server.patch(&format!("{OLD}/e"), "merge", &json!({"message": "two"})).await;
    assert_eq!(seen.expect(200)["message"], "two");
    // The new form has no field `message`: it is dropped with a warning.
    let seen = server.patch(&format!("{NEW}/e"), "merge", &json!({"message": "three"})).await;
    assert_eq!(seen.warnings(), ["299 - \"unknown field \\\"message\\\"\""]);
    assert_eq!(seen.expect(200)["note"], "two");
}

#[tokio::test]
async fn an_event_is_applied_in_the_form_of_its_group() {
    let server = TestServer::start().await;
    let body = |note: &str| {
        json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
            "reason": "Because", "action": "Do", "note": note, "type": "Normal",
            "reportingController": "example.com/c", "reportingInstance": "i",
        })
    };
    let path = format!("{NEW}/e?fieldManager=m");
    let made = server.patch(&path, "apply", &body("one")).await.expect(201);
    assert_eq!((&made["note"], &made["regarding"]["name"]), (&json!("one"), &json!("p")));
    assert_eq!(server.get(&format!("{OLD}/e")).await.expect(200)["message"], "one");
    let again = server.patch(&path, "apply", &body("one")).await.expect(200);
    assert_eq!(again["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
}
