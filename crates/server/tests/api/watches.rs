//! Watches: their start, events and end.

use http::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

use windlass_testkit::{MAPS, TestServer, brief, config_map, version};

const INITIAL: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

fn labelled(name: &str, color: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"color": color}}, "data": {"k": "v"}})
}

#[tokio::test]
async fn a_watch_starts_at_the_requested_revision() {
    let server = TestServer::start().await;
    let first = server.post(MAPS, &config_map("a")).await.expect(201);
    server.post(MAPS, &config_map("b")).await.expect(201);
    let at = version(&first);
    for (query, want) in [
        (String::new(), vec!["ADDED a", "ADDED b"]),
        ("&resourceVersion=0".into(), vec!["ADDED a", "ADDED b"]),
        (format!("&resourceVersion={at}"), vec!["ADDED b"]),
        (format!("&resourceVersion={}", server.revision()), vec![]),
    ] {
        let mut watch = server.watch(&format!("{MAPS}?watch=1{query}")).await;
        for want in want {
            assert_eq!(watch.brief().await, want, "{query}");
        }
        assert!(watch.has_no_event(), "{query}");
    }
}

#[tokio::test]
async fn changes_are_delivered_in_order() {
    let server = TestServer::start().await;
    let mut watch = server.watch(&format!("{MAPS}?watch=true")).await;
    assert!(watch.has_no_event());
    let made = server.post(MAPS, &config_map("a")).await.expect(201);
    let patch = json!({"data": {"k": "w"}});
    let changed = server.patch(&format!("{MAPS}/a"), "merge", &patch).await.expect(200);
    server.delete(&format!("{MAPS}/a")).await.expect(200);
    assert_eq!(watch.next().await, json!({"type": "ADDED", "object": made}));
    assert_eq!(watch.next().await, json!({"type": "MODIFIED", "object": changed}));
    let mut last = changed;
    last["metadata"]["resourceVersion"] = json!(server.revision().to_string());
    assert_eq!(watch.next().await, json!({"type": "DELETED", "object": last}));
    assert!(watch.has_no_event());
}

#[tokio::test]
async fn selecting_watchers_see_objects_enter_and_leave() {
    let server = TestServer::start().await;
    let path = format!("{MAPS}/a");
    let mut red = server.watch(&format!("{MAPS}?watch=1&labelSelector=color%3Dred")).await;
    let mut named = server.watch(&format!("{MAPS}?watch=1&fieldSelector=metadata.name%3Da")).await;
    server.post(MAPS, &labelled("a", "blue")).await.expect(201);
    let turned = server.put(&path, &labelled("a", "red")).await.expect(200);
    let back = server.put(&path, &labelled("a", "blue")).await.expect(200);
    server.put(&path, &labelled("a", "green")).await.expect(200);
    server.delete(&path).await.expect(200);
    server.post(MAPS, &labelled("b", "blue")).await.expect(201);
    assert_eq!(red.next().await, json!({"type": "ADDED", "object": turned}));
    // No longer selected: the last matching state, at the version of the change.
    let mut last = turned;
    last["metadata"]["resourceVersion"] = back["metadata"]["resourceVersion"].clone();
    assert_eq!(red.next().await, json!({"type": "DELETED", "object": last}));
    assert!(red.has_no_event());
    for want in ["ADDED a", "MODIFIED a", "MODIFIED a", "MODIFIED a", "DELETED a"] {
        assert_eq!(named.brief().await, want);
    }
    assert!(named.has_no_event());
}

#[tokio::test]
async fn a_namespace_is_seen_alone_and_all_are_seen_together() {
    let server = TestServer::start().await;
    let mut one = server.watch(&format!("{MAPS}?watch=1")).await;
    let mut all = server.watch("/api/v1/configmaps?watch=1").await;
    let mut old_one = server.watch("/api/v1/watch/namespaces/default/configmaps").await;
    let mut old_all = server.watch("/api/v1/watch/configmaps").await;
    let mut old_name = server.watch("/api/v1/watch/namespaces/default/configmaps/b").await;
    server.post("/api/v1/namespaces/kube-public/configmaps", &config_map("x")).await.expect(201);
    server.post(MAPS, &config_map("a")).await.expect(201);
    server.post(MAPS, &config_map("b")).await.expect(201);
    for (watch, wants) in [
        (&mut one, &["ADDED a", "ADDED b"][..]),
        (&mut all, &["ADDED x", "ADDED a", "ADDED b"][..]),
        (&mut old_one, &["ADDED a", "ADDED b"][..]),
        (&mut old_all, &["ADDED x", "ADDED a", "ADDED b"][..]),
        (&mut old_name, &["ADDED b"][..]),
    ] {
        for want in wants {
            assert_eq!(watch.brief().await, *want);
        }
        assert!(watch.has_no_event());
    }
}

/// As in Kubernetes, the path of one object is a GET whatever the query says.
#[tokio::test]
async fn a_get_of_one_object_is_no_watch() {
    let server = TestServer::start().await;
    let made = server.post(MAPS, &config_map("a")).await.expect(201);
    assert_eq!(server.get(&format!("{MAPS}/a?watch=1")).await.expect(200), made);
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark() {
    let server = TestServer::start().await;
    for (name, color) in [("a", "red"), ("b", "blue")] {
        server.post(MAPS, &labelled(name, color)).await.expect(201);
    }
    let public = "/api/v1/namespaces/kube-public/configmaps";
    let revision = server.revision();
    for (path, want) in [
        (format!("{MAPS}?watch=1&{INITIAL}"), vec!["ADDED a", "ADDED b"]),
        (format!("{MAPS}?watch=1&{INITIAL}&labelSelector=color%3Dred"), vec!["ADDED a"]),
        (format!("{MAPS}?watch=1&{INITIAL}&labelSelector=color%3Dnone"), vec![]),
        (format!("{MAPS}?watch=1&{INITIAL}&resourceVersion=0"), vec!["ADDED a", "ADDED b"]),
        (format!("{MAPS}?watch=1&{INITIAL}&resourceVersion={revision}"), vec!["ADDED a", "ADDED b"]),
        (format!("{public}?watch=1&{INITIAL}"), vec![]),
    ] {
        let mut watch = server.watch(&path).await;
        for want in want {
            assert_eq!(watch.brief().await, want, "{path}");
        }
        let end = watch.next().await;
        assert_eq!(end["type"], "BOOKMARK", "{path}");
        assert_eq!(
            end["object"],
            json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {
                "resourceVersion": revision.to_string(),
                "annotations": {"k8s.io/initial-events-end": "true"},
            }}),
            "{path}"
        );
        assert!(watch.has_no_event(), "{path}");
    }
    // Followed by all changes.
    let mut watch = server.watch(&format!("{public}?watch=1&{INITIAL}")).await;
    assert_eq!(watch.brief().await, "BOOKMARK");
    server.post(public, &config_map("late")).await.expect(201);
    assert_eq!(watch.brief().await, "ADDED late");
    // Without the initial state: only changes.
    let none = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    let mut watch = server.watch(&format!("{MAPS}?watch=1&{none}")).await;
    assert!(watch.has_no_event());
    server.post(MAPS, &config_map("later")).await.expect(201);
    assert_eq!(watch.brief().await, "ADDED later");
}

#[tokio::test]
async fn options_that_do_not_go_together() {
    let server = TestServer::start().await;
    for query in [
        "sendInitialEvents=true",
        "sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=1",
        "resourceVersionMatch=NotOlderThan&resourceVersion=1",
    ] {
        server.get(&format!("{MAPS}?watch=1&{query}")).await.fails(422, "Invalid");
    }
    server.get(&format!("{MAPS}?watch=1&resourceVersion=x")).await.fails(400, "BadRequest");
    server.get(&format!("{MAPS}?watch=1&timeoutSeconds=x")).await.fails(400, "BadRequest");
}

#[tokio::test]
async fn a_watch_ends_when_its_time_is_up() {
    let server = TestServer::start().await;
    server.post(MAPS, &config_map("a")).await.expect(201);
    let started = Instant::now();
    let mut watch = server.watch(&format!("{MAPS}?watch=1&timeoutSeconds=1")).await;
    let events: Vec<String> = watch.rest().await.iter().map(brief).collect();
    assert_eq!(events, ["ADDED a"]);
    let took = started.elapsed();
    assert!(took >= Duration::from_secs(1) && took < Duration::from_secs(10), "{took:?}");
}

/// Clients that accept bookmarks get a final one, so that the next watch starts as late as
/// possible.
#[tokio::test]
async fn a_watch_that_ends_says_how_far_it_came() {
    let server = TestServer::start().await;
    let at = server.revision();
    let query = format!("watch=1&timeoutSeconds=1&allowWatchBookmarks=true&resourceVersion={at}");
    let mut watch = server.watch(&format!("{MAPS}?{query}")).await;
    // Another kind changes; this one does not.
    server.post("/api/v1/nodes", &json!({"metadata": {"name": "n"}})).await.expect(201);
    server.post(MAPS, &config_map("a")).await.expect(201);
    let last = server.revision();
    let events = watch.rest().await;
    assert_eq!(events.iter().map(brief).collect::<Vec<_>>(), ["ADDED a", "BOOKMARK"]);
    let end = &events[1]["object"];
    assert_eq!((version(end), &end["kind"]), (last, &json!("ConfigMap")));
    assert_eq!(end["metadata"]["annotations"], Value::Null);
}

#[tokio::test]
async fn times_that_no_clock_has() {
    let server = TestServer::start().await;
    server.post(MAPS, &config_map("a")).await.expect(201);
    for seconds in ["9223372036854775807", "99999999999", "0", "-5"] {
        let path = format!("{MAPS}?watch=1&timeoutSeconds={seconds}");
        assert_eq!(server.watch(&path).await.brief().await, "ADDED a", "{seconds}");
    }
}

#[tokio::test]
async fn a_version_from_before_the_history_is_an_error_event() {
    let server = TestServer::start().await;
    for i in 0..5 {
        server.post(MAPS, &config_map(&format!("m{i}"))).await.expect(201);
    }
    let old = server.revision() - 3;
    server.store.compact(server.revision()).await.unwrap();
    let server = server.restart().await;
    let mut watch = server.watch(&format!("{MAPS}?watch=1&resourceVersion={old}")).await;
    let event = watch.next().await;
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(event["object"]["reason"], "Expired");
    let message = event["object"]["message"].as_str().unwrap();
    assert!(message.starts_with(&format!("too old resource version: {old} (")), "{message}");
    assert_eq!(watch.try_next().await, None);
}

#[tokio::test]
async fn watches_continue_across_a_restart() {
    let server = TestServer::start().await;
    let at = server.revision();
    server.post(MAPS, &labelled("a", "red")).await.expect(201);
    server.put(&format!("{MAPS}/a"), &labelled("a", "blue")).await.expect(200);
    server.delete(&format!("{MAPS}/a")).await.expect(200);
    let server = server.restart().await;
    let path = format!("{MAPS}?watch=1&resourceVersion={at}");
    let mut watch = server.watch(&path).await;
    let mut red = server.watch(&format!("{path}&labelSelector=color%3Dred")).await;
    for want in ["ADDED a", "MODIFIED a", "DELETED a"] {
        assert_eq!(watch.brief().await, want);
    }
    assert_eq!(red.brief().await, "ADDED a");
    assert_eq!(red.brief().await, "DELETED a");
    server.post(MAPS, &labelled("b", "red")).await.expect(201);
    assert_eq!(watch.brief().await, "ADDED b");
    assert_eq!(red.brief().await, "ADDED b");
}

#[tokio::test]
async fn a_reconnecting_watcher_gets_every_event_once() {
    let server = TestServer::start().await;
    let start = server.revision();
    let mut wanted = Vec::new();
    for i in 0..600 {
        let name = format!("m{}", i % 7);
        let path = format!("{MAPS}/{name}");
        if i % 7 == 0 && i > 7 {
            server.delete(&path).await.expect(200);
        } else {
            let body = json!({"metadata": {"name": name}, "data": {"i": i.to_string()}});
            if server.put(&path, &body).await.status == 404 {
                server.post(MAPS, &body).await.expect(201);
            }
        }
        wanted.push(server.revision());
        if i % 7 == 0 && i > 7 {
            let body = json!({"metadata": {"name": name}});
            server.post(MAPS, &body).await.expect(201);
            wanted.push(server.revision());
        }
    }
    let mut seen = Vec::new();
    let mut at = start;
    // Reconnects after every few events.
    while seen.len() < wanted.len() {
        let mut watch = server.watch(&format!("{MAPS}?watch=1&resourceVersion={at}")).await;
        for _ in 0..(seen.len() % 50 + 1).min(wanted.len() - seen.len()) {
            let event = watch.next().await;
            at = version(&event["object"]);
            seen.push(at);
        }
    }
    assert_eq!(seen, wanted);
}

#[tokio::test]
async fn a_slow_watcher_is_closed_and_others_are_not_delayed() {
    let server = TestServer::start().await;
    let mut slow = server.watch(&format!("{MAPS}?watch=1")).await;
    let mut quick = server.watch(&format!("{MAPS}?watch=1")).await;
    let mut others = server.watch("/api/v1/namespaces/default/pods?watch=1").await;
    server.post(MAPS, &json!({"metadata": {"name": "big"}})).await.expect(201);
    assert_eq!(quick.brief().await, "ADDED big");
    // More than the change window holds.
    for i in 0..30 {
        let mut big = json!({"metadata": {"name": "big"}, "data": {"k": "x".repeat(1_000_000)}});
        big["data"]["i"] = json!(i.to_string());
        server.put(&format!("{MAPS}/big"), &big).await.expect(200);
        assert_eq!(quick.brief().await, "MODIFIED big");
    }
    let event = slow.next().await;
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(slow.try_next().await, None);
    server.post(MAPS, &config_map("after")).await.expect(201);
    assert_eq!(quick.brief().await, "ADDED after");
    assert!(others.has_no_event());
}

#[tokio::test]
async fn a_shutdown_ends_watches() {
    let server = TestServer::start().await;
    let mut idle = server.watch(&format!("{MAPS}?watch=1")).await;
    assert!(idle.has_no_event());
    server.post(MAPS, &config_map("a")).await.expect(201);
    server.shut_down();
    assert_eq!(idle.brief().await, "ADDED a");
    assert_eq!(idle.try_next().await, None);
}

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const PARTIAL: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";

#[tokio::test]
async fn tables_are_watched_row_by_row() {
    let server = TestServer::start().await;
    server.post(MAPS, &config_map("a")).await.expect(201);
    let path = format!("{MAPS}?watch=1");
    let mut watch = server.request(Method::GET, &path).header("accept", TABLE).watch().await;
    let first = watch.next().await;
    server.post(MAPS, &config_map("b")).await.expect(201);
    let second = watch.next().await;
    for (event, name) in [(&first, "a"), (&second, "b")] {
        assert_eq!((&event["type"], &event["object"]["kind"]), (&json!("ADDED"), &json!("Table")));
        assert_eq!(event["object"]["rows"][0]["cells"][0], name);
        assert_eq!(event["object"]["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    }
    assert!(first["object"]["columnDefinitions"].as_array().is_some_and(|c| !c.is_empty()));
    assert_eq!(second["object"]["columnDefinitions"], Value::Null);
}

#[tokio::test]
async fn metadata_is_watched_alone_bookmarks_included() {
    let server = TestServer::start().await;
    server.post(MAPS, &config_map("a")).await.expect(201);
    let path = format!("{MAPS}?watch=1&{INITIAL}");
    let mut watch = server.request(Method::GET, &path).header("accept", PARTIAL).watch().await;
    let added = watch.next().await;
    assert_eq!(added["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(added["object"]["apiVersion"], "meta.k8s.io/v1");
    assert_eq!(added["object"]["metadata"]["name"], "a");
    assert_eq!(added["object"]["data"], Value::Null);
    // A metadata client can decode nothing else, so the bookmark uses that view too.
    let end = watch.next().await;
    assert_eq!(
        end,
        json!({"type": "BOOKMARK", "object": {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": {
                "resourceVersion": server.revision().to_string(),
                "annotations": {"k8s.io/initial-events-end": "true"},
            },
        }})
    );
}

#[tokio::test]
async fn a_watch_may_start_at_a_version_that_is_yet_to_come() {
    let server = TestServer::start().await;
    let soon = server.revision() + 1;
    let mut watch = server.watch(&format!("{MAPS}?watch=1&resourceVersion={soon}")).await;
    assert!(watch.has_no_event());
    for name in ["a", "b"] {
        server.post(MAPS, &config_map(name)).await.expect(201);
    }
    assert_eq!(watch.next().await["object"]["metadata"]["name"], "b");
}

/// A watcher of one object receives the same events for it as a watcher of all objects, while
/// others change.
#[tokio::test]
async fn single_object_watches_see_only_that_object() {
    const OBJECTS: usize = 8;
    const ROUNDS: usize = 40;
    let server = TestServer::start().await;
    let path = "/api/v1/namespaces/default/configmaps";
    let from = server.revision();
    let mut singles = Vec::new();
    for number in 0..OBJECTS {
        let select = format!("{path}?watch=1&resourceVersion={from}&fieldSelector=metadata.name%3D");
        singles.push(server.watch(&format!("{select}m{number}")).await);
    }
    let mut all = server.watch(&format!("{path}?watch=1&resourceVersion={from}")).await;
    for round in 0..ROUNDS {
        // Each object is created, changed and deleted at its own interval.
        for number in 0..OBJECTS {
            let name = format!("m{number}");
            let rhythm = 2 + number % 3;
            match (round + number) % rhythm {
                0 => drop(server.post(path, &config_map(&name)).await),
                beat if beat == rhythm - 1 => {
                    drop(server.delete(&format!("{path}/{name}")).await);
                }
                _ => {
                    let change = json!({"data": {"round": round.to_string()}});
                    let object = format!("{path}/{name}");
                    server.patch(&object, "merge", &change).await;
                }
            }
        }
    }
    server.post(path, &config_map("end")).await.expect(201);
    let mut reported: Vec<Vec<String>> = vec![Vec::new(); OBJECTS];
    loop {
        let event = all.next().await;
        let name = event["object"]["metadata"]["name"].as_str().unwrap().to_owned();
        let Some(number) = name.strip_prefix('m') else { break };
        let number: usize = number.parse().unwrap();
        reported[number].push(format!("{} {}", brief(&event), version(&event["object"])));
    }
    for (number, single) in singles.iter_mut().enumerate() {
        assert!(reported[number].len() > ROUNDS / 2, "{:?}", reported[number]);
        for expected in &reported[number] {
            let event = single.next().await;
            assert_eq!(format!("{} {}", brief(&event), version(&event["object"])), *expected);
        }
        assert!(single.has_no_event());
    }
}

#[tokio::test]
async fn single_object_watches_get_bookmarks_for_other_changes() {
    let server = TestServer::start().await;
    let path = "/api/v1/namespaces/default/configmaps";
    server.post(path, &config_map("mine")).await.expect(201);
    let one = "fieldSelector=metadata.name%3Dmine";
    let mut watch =
        server.watch(&format!("{path}?watch=1&{one}&allowWatchBookmarks=true&timeoutSeconds=1")).await;
    assert_eq!(watch.brief().await, "ADDED mine");
    let other = server.post(path, &config_map("other")).await.expect(201);
    let mark = watch.next().await;
    assert_eq!(mark["type"], "BOOKMARK");
    assert!(version(&mark["object"]) >= version(&other), "{mark}");
}
