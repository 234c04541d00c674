//! The authorized request is the executed one: with any query, duplicate or odd, list, watch and
//! get show the same objects, and never more than the caller may read.

use futures::FutureExt as _;
use http_body_util::BodyExt as _;

use super::*;
use windlass_testkit::{PODS, names, pod};

const TEAM: &str = "/api/v1/namespaces/team/configmaps";
const OLD: &str = "/api/v1/watch/namespaces/team/configmaps";

/// Objects visible in a response: the names of a list, or of the initial events of a watch.
#[derive(Debug, PartialEq)]
enum VisibleObjects {
    Refused(u16),
    Listed(Vec<String>),
    Watched(Vec<String>),
    One(String),
}

async fn read_visible(server: &TestServer, user: &str, path: &str) -> VisibleObjects {
    let (status, _, mut body) = request_as(server, user, Method::GET, path).open().await;
    let mut read = Vec::new();
    while let Some(Some(Ok(frame))) = body.frame().now_or_never() {
        read.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
    }
    if !status.is_success() {
        return VisibleObjects::Refused(status.as_u16());
    }
    let text = String::from_utf8(read).unwrap();
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or("?").to_owned();
    if let Ok(value) = serde_json::from_str::<Value>(&text) {
        if value["items"].is_array() {
            return VisibleObjects::Listed(names(&value).into_iter().map(str::to_owned).collect());
        }
        if value["type"].is_null() {
            return VisibleObjects::One(name(&value));
        }
    }
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    VisibleObjects::Watched(events.map(|event| name(&event["object"])).collect())
}

/// Three ConfigMaps in `team`, and users who may read one, list, watch or get.
async fn visibility_server() -> TestServer {
    let server = with_namespaces(&["team", "other"]).await;
    for name in ["a", "b"] {
        let map = json!({"metadata": {"name": name, "labels": {"l": name, "metadata.name": "a"}}});
        server.post(TEAM, &map).await.expect(201);
    }
    let maps = ["configmaps"];
    for (user, verbs, only) in [
        ("one", &["get", "list", "watch", "deletecollection"][..], &["a"][..]),
        ("lister", &["list"], &[]),
        ("watcher", &["watch"], &[]),
        ("getter", &["get"], &[]),
        ("reader", &["get", "list", "watch"], &[]),
    ] {
        grant_in(&server, "team", user, &[rule(verbs, "", &maps, only)]).await;
    }
    server
}

/// Selectors in every form, and what a user who may read only `a` sees.
const SELECTORS: &[(&str, Option<&[&str]>)] = &[
    ("", None),
    ("fieldSelector=metadata.name%3Da", Some(&["a"])),
    ("fieldSelector=metadata.name=a", Some(&["a"])),
    ("fieldSelector=metadata.name%3D%3Da", Some(&["a"])),
    ("%66ieldSelector=metadata%2Ename%3D%61", Some(&["a"])),
    ("fieldSelector=metadata.name%3Db", None),
    ("fieldSelector=metadata.name%3D", None),
    ("fieldSelector=metadata.name", None),
    ("fieldSelector=metadata.name!%3Db", None),
    ("fieldSelector=metadata.name!%3Da", None),
    ("fieldSelector=metadata.name%3Da&fieldSelector=metadata.name%3Db", Some(&["a"])),
    ("fieldSelector=metadata.name%3Db&fieldSelector=metadata.name%3Da", None),
    ("fieldSelector=metadata.name%3Da&fieldSelector=", Some(&["a"])),
    ("fieldSelector=&fieldSelector=metadata.name%3Da", None),
    ("fieldSelector&fieldSelector=metadata.name%3Da", None),
    ("fieldSelector=metadata.name%3Da&%66ieldSelector=metadata.name%3Db", Some(&["a"])),
    ("fieldSelector=metadata.name%3Da%2Cmetadata.name%3Db", Some(&[])),
    ("fieldSelector=metadata.name%3Da%2Cmetadata.name!%3Da", Some(&[])),
    ("fieldSelector=metadata.name%3Da%2Cmetadata.namespace%3Dother", Some(&[])),
    ("fieldSelector=metadata.namespace%3Dteam", None),
    ("fieldSelector=metadata.name%3D%2561", None),
    ("fieldSelector=metadata.name%3Da%00", None),
    ("fieldSelector=metadata.name%3DA", None),
    ("fieldSelector=metadata.name%3D..%2Fa", None),
    ("fieldSelector=metadata.name%3Dteam%2Fa", None),
    ("fieldSelector=metadata.name%3Da%7Cb", None),
    ("fieldselector=metadata.name%3Da", None),
    ("fieldSelector%5B%5D=metadata.name%3Da", None),
    ("labelSelector=l%3Da", None),
    ("labelSelector=metadata.name%3Da", None),
    ("labelSelector=l%3Db&fieldSelector=metadata.name%3Da", Some(&[])),
];

#[tokio::test]
async fn cve_2026_73499_lists_watches_and_gets_show_the_same() {
    let server = visibility_server().await;
    for (query, wanted) in SELECTORS {
        let listed = read_visible(&server, "one", &format!("{TEAM}?{query}")).await;
        let watched = read_visible(&server, "one", &format!("{TEAM}?watch=1&{query}")).await;
        let owned = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        match wanted {
            Some(names) => {
                assert_eq!(listed, VisibleObjects::Listed(owned(names)), "{query}");
                assert_eq!(watched, VisibleObjects::Watched(owned(names)), "{query}");
            }
            None => {
                // An invalid selector requires no name, so access is denied before it is reported.
                assert_eq!(listed, VisibleObjects::Refused(403), "{query}");
                assert_eq!(watched, VisibleObjects::Refused(403), "{query}");
            }
        }
        // A user who may read all sees the same by both, and each object by itself.
        let listed = read_visible(&server, "reader", &format!("{TEAM}?{query}")).await;
        let watched = read_visible(&server, "reader", &format!("{TEAM}?watch=1&{query}")).await;
        match (listed, watched) {
            (VisibleObjects::Listed(listed), VisibleObjects::Watched(watched)) => {
                assert_eq!(listed, watched, "{query}");
                for name in listed {
                    let got = read_visible(&server, "reader", &format!("{TEAM}/{name}")).await;
                    assert_eq!(got, VisibleObjects::One(name), "{query}");
                }
            }
            (listed, watched) => assert_eq!(listed, watched, "{query}"),
        }
    }
    for name in ["b", "hidden"] {
        assert_eq!(
            read_visible(&server, "one", &format!("{TEAM}/{name}")).await,
            VisibleObjects::Refused(403)
        );
    }
}

/// `watch` is given twice, or is neither true nor false: the executed verb is the authorized one.
#[tokio::test]
async fn cve_2026_73499_the_verb_that_was_authorized_is_the_one_that_is_done() {
    let server = visibility_server().await;
    for query in [
        "",
        "watch=0",
        "watch=1",
        "watch=true",
        "watch=false",
        "watch",
        "watch=",
        "watch=no",
        "Watch=1",
        "watch=0&watch=1",
        "watch=1&watch=0",
        "watch=false&watch=true",
        "watch=&watch=0",
        "%77atch=1",
        "watch=%31",
        "watch=%30&%77atch=1",
        "allowWatchBookmarks=1",
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&watch=1",
        "timeoutSeconds=1&watch=1",
    ] {
        let path = format!("{TEAM}?{query}");
        let listed = read_visible(&server, "lister", &path).await;
        let watched = read_visible(&server, "watcher", &path).await;
        match (&listed, &watched) {
            (VisibleObjects::Listed(_), VisibleObjects::Refused(403))
            | (VisibleObjects::Refused(403), VisibleObjects::Watched(_)) => {}
            other => panic!("{query}: {other:?}"),
        }
        let seen = read_visible(&server, "getter", &path).await;
        assert_eq!(seen, VisibleObjects::Refused(403), "{query}");
        // A single object is read with get, whatever the query says.
        let path = format!("{TEAM}/a?{query}");
        assert_eq!(read_visible(&server, "getter", &path).await, VisibleObjects::One("a".into()), "{query}");
        for user in ["lister", "watcher"] {
            assert_eq!(
                read_visible(&server, user, &path).await,
                VisibleObjects::Refused(403),
                "{user} {query}"
            );
        }
    }
}

/// Deprecated watch paths are watches with any method, and never of a subresource.
#[tokio::test]
async fn cve_2026_73499_old_watch_paths_are_watches_and_nothing_else() {
    let server = visibility_server().await;
    for (path, shown) in [
        (OLD.to_owned(), &["a", "b", "hidden"][..]),
        (format!("{OLD}/a"), &["a"]),
        (format!("{OLD}/a?fieldSelector=metadata.name%3Db"), &[]),
        (format!("{OLD}?fieldSelector=metadata.name%3Db"), &["b"]),
        (format!("{OLD}?watch=0"), &["a", "b", "hidden"]),
    ] {
        let shown = shown.iter().map(|n| (*n).to_owned()).collect();
        assert_eq!(read_visible(&server, "watcher", &path).await, VisibleObjects::Watched(shown), "{path}");
        for user in ["lister", "getter"] {
            assert_eq!(
                read_visible(&server, user, &path).await,
                VisibleObjects::Refused(403),
                "{user} {path}"
            );
        }
    }
    for (path, wanted) in [
        (format!("{OLD}/a"), VisibleObjects::Watched(vec!["a".into()])),
        (format!("{OLD}/b"), VisibleObjects::Refused(403)),
        (format!("{OLD}/b?fieldSelector=metadata.name%3Da"), VisibleObjects::Refused(403)),
    ] {
        assert_eq!(read_visible(&server, "one", &path).await, wanted, "{path}");
    }
    grant_in(&server, "team", "owner", &[everything()]).await;
    let before = server.revision();
    let map = json!({"metadata": {"name": "new"}});
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
        for path in [OLD.to_owned(), format!("{OLD}/a"), format!("{OLD}/new")] {
            let asked = request_as(&server, "owner", method.clone(), &path).json(&map);
            assert_eq!(asked.send().await.status, 405, "{method} {path}");
        }
    }
    assert_eq!(server.revision(), before);
    server.post("/api/v1/namespaces/team/pods", &pod("p")).await.expect(201);
    let status = rule(&["watch"], "", &["pods/status"], &[]);
    grant_in(&server, "team", "status-watcher", &[status]).await;
    let path = "/api/v1/watch/namespaces/team/pods/p/status";
    assert_eq!(read_visible(&server, "status-watcher", path).await, VisibleObjects::Refused(404));
}

#[tokio::test]
async fn cve_2026_73499_a_collection_is_deleted_as_far_as_it_was_authorized() {
    let server = visibility_server().await;
    let a = "fieldSelector=metadata.name%3Da";
    let b = "fieldSelector=metadata.name%3Db";
    for query in [String::new(), b.into(), format!("{b}&{a}"), format!("labelSelector=l%3Da&{b}")] {
        let path = format!("{TEAM}?{query}");
        request_as(&server, "one", Method::DELETE, &path).send().await.fails(403, "Forbidden");
    }
    let path = format!("{TEAM}?{a}&{b}");
    let gone = request_as(&server, "one", Method::DELETE, &path).send().await.expect(200);
    assert_eq!(names(&gone), ["a"]);
    assert_eq!(names(&server.get(TEAM).await.expect(200)), ["b", "hidden"]);
}

/// Nodes see by the authorized selector, not by the second one.
#[tokio::test]
async fn cve_2026_73499_a_node_that_says_two_selectors_sees_by_the_first() {
    let server = TestServer::start().await;
    for node in ["node-1", "node-2"] {
        let mut made = pod(node);
        made["spec"]["nodeName"] = json!(node);
        server.post(PODS, &made).await.expect(201);
    }
    let by = |name: &str| format!("fieldSelector=spec.nodeName%3D{name}");
    let ask = |query: String| {
        let asked = server.request(Method::GET, &format!("/api/v1/pods?{query}"));
        asked.header("authorization", "Bearer node-1-token").send()
    };
    let list = ask(format!("{}&{}", by("node-1"), by("node-2"))).await.expect(200);
    assert_eq!(names(&list), ["node-1"]);
    ask(format!("{}&{}", by("node-2"), by("node-1"))).await.fails(403, "Forbidden");
    let both = format!("{}%2Cspec.nodeName%3Dnode-2", by("node-1"));
    assert_eq!(names(&ask(both).await.expect(200)), [""; 0]);
    let not = "fieldSelector=spec.nodeName!%3Dnode-2".to_owned();
    ask(not).await.fails(403, "Forbidden");
}
