//! Several servers on one etcd, and etcd failures.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::json;
use windlass_store::{FeedMessage, KeyRange};

use super::conformance;
use super::etcd::TestEtcd;
use windlass_testkit::{MAPS, TestServer, config_map, names, version};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_answers_are_given_again_on_etcd() {
    let etcd = TestEtcd::start();
    conformance::compare_all(&TestServer::start_on_store(etcd.open()).await).await;
}

/// Writes acknowledged by one server are immediately visible at another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_may_move_between_servers() {
    let etcd = TestEtcd::start();
    let a = TestServer::start_on_store(etcd.open()).await;
    let b = TestServer::start_on_store(etcd.open()).await;
    let mut resumed = None;
    for n in 0..20 {
        let name = format!("m{n}");
        let path = format!("{MAPS}/{name}");
        let made = a.post(MAPS, &config_map(&name)).await.expect(201);
        assert_eq!(b.get(&path).await.expect(200), made);
        let listed = b.get(MAPS).await.expect(200);
        assert!(names(&listed).contains(&name.as_str()));
        // A revision returned by one server is valid at the other.
        let at = version(&listed).max(version(&made));
        a.get(&format!("{MAPS}?resourceVersion={at}")).await.expect(200);
        a.get(&format!("{MAPS}?resourceVersion={at}&resourceVersionMatch=Exact&limit=1")).await.expect(200);
        resumed.get_or_insert(at);
        let mut changed = made;
        changed["data"] = json!({"k": "w"});
        let changed = b.put(&path, &changed).await.expect(200);
        assert_eq!(a.get(&path).await.expect(200), changed);
        a.delete(&path).await.expect(200);
        assert_eq!(b.get(&path).await.status, 404);
    }
    let from = resumed.unwrap();
    let query = format!("{MAPS}?watch=1&resourceVersion={from}&allowWatchBookmarks=true");
    let (mut here, mut there) = (a.watch(&query).await, b.watch(&query).await);
    for _ in 0..3 * 20 - 1 {
        let event = here.next().await;
        assert_eq!(there.next().await, event);
    }
}

/// The feed restarts: reads show the new state, and watches end because they missed changes.
#[tokio::test]
async fn watches_end_when_the_feed_resyncs() {
    let server = TestServer::start().await;
    for name in ["goes", "stays"] {
        server.post(MAPS, &config_map(name)).await.expect(201);
    }
    let list = server.get(MAPS).await.expect(200);
    let from = version(&list);
    let mut all = server.watch(&format!("{MAPS}?watch=1&resourceVersion={from}")).await;
    let one = "fieldSelector=metadata.name%3Dstays";
    let mut single = server.watch(&format!("{MAPS}?watch=1&resourceVersion={from}&{one}")).await;
    assert!(all.has_no_event() && single.has_no_event());
    let mut page = server.store.range(KeyRange::default()).await.unwrap();
    page.items.retain(|(key, _)| !key.ends_with("/goes"));
    page.revision += 10;
    server.server.caches.handle_message(FeedMessage::Reset(&page));
    for watch in [&mut all, &mut single] {
        let event = watch.next().await;
        assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
        assert_eq!(watch.try_next().await, None);
    }
    let anew = server.get(MAPS).await.expect(200);
    let mut left = names(&list);
    left.retain(|name| *name != "goes");
    assert_eq!(names(&anew), left);
    assert_eq!(version(&anew), page.revision);
    let late = server.watch(&format!("{MAPS}?watch=1&resourceVersion={from}")).await.rest().await;
    assert_eq!(late[0]["object"]["code"], 410);
    let at = version(&anew);
    let mut next = server.watch(&format!("{MAPS}?watch=1&resourceVersion={at}")).await;
    assert!(next.has_no_event());
}

/// Requests that need etcd fail while it is unavailable; those served from the cache succeed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_reports_an_unreachable_etcd() {
    let mut etcd = TestEtcd::start();
    let server = TestServer::start_on_store(etcd.open_hasty()).await;
    server.post(MAPS, &config_map("a")).await.expect(201);
    assert_eq!(server.get("/readyz").await.status, 200);
    etcd.kill();
    for (method, path, body) in [
        (Method::POST, MAPS.to_owned(), config_map("b")),
        (Method::GET, MAPS.to_owned(), json!(null)),
        (Method::GET, format!("{MAPS}/a"), json!(null)),
    ] {
        let answer = server.request(method, &path).json(&body).send().await;
        answer.fails(503, "ServiceUnavailable");
        assert_eq!(answer.headers["retry-after"], "1");
    }
    server.get(&format!("{MAPS}?resourceVersion=0")).await.expect(200);
    server.get(&format!("{MAPS}/a?resourceVersion=0")).await.expect(200);
    wait_for_status(&server, "/readyz", 500).await;
    assert_eq!(server.get("/livez").await.status, 200, "to start it again would not help");
    let metrics = server.get("/metrics").await;
    let text = String::from_utf8_lossy(&metrics.body).into_owned();
    assert!(text.contains("windlass_store_errors_total{reason=\"unavailable\"}"), "{text}");
    etcd.restart();
    wait_for_status(&server, "/readyz", 200).await;
    server.post(MAPS, &config_map("c")).await.expect(201);
    assert!(!names(&server.get(MAPS).await.expect(200)).contains(&"b"));
}

async fn wait_for_status(server: &TestServer, path: &str, code: u16) {
    let begun = Instant::now();
    while server.get(path).await.status != code {
        assert!(begun.elapsed() < Duration::from_secs(60), "{path} is not {code}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
