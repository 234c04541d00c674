//! Flow control between requests.

use bytes::Bytes;
use futures::FutureExt;
use http::Method;
use http_body_util::{BodyExt, Empty, StreamBody};
use serde_json::json;
use std::sync::Arc;
use windlass_server::InflightLimits;
use windlass_server::Peer;
use windlass_server::User;
use windlass_server::{Incoming, handle_request};

use windlass_testkit::{MAPS, TestRequest, TestServer, config_map};

/// Starts a server with one seat for reads and one for writes.
async fn narrow() -> TestServer {
    TestServer::with(|setup| setup.flow = InflightLimits { reads: 1, writes: 1 }).await
}

/// Returns a body that never arrives, so that its request holds its seat.
fn pending_body() -> Incoming {
    let never = futures::stream::pending::<Result<http_body::Frame<Bytes>, std::io::Error>>();
    StreamBody::new(never).map_err(Into::into).boxed_unsync()
}

fn create<'a>(server: &'a TestServer, token: &str) -> TestRequest<'a> {
    let asked = server.request(Method::POST, MAPS).header("content-type", "application/json");
    asked.header("authorization", &format!("Bearer {token}"))
}

#[tokio::test]
async fn a_watch_keeps_no_seat() {
    let server = narrow().await;
    let mut watches = Vec::new();
    for _ in 0..10 {
        watches.push(server.watch(&format!("{MAPS}?watch=1")).await);
    }
    server.get(MAPS).await.expect(200);
    server.post(MAPS, &config_map("a")).await.expect(201);
    for watch in &mut watches {
        assert_eq!(watch.brief().await, "ADDED a");
    }
}

/// Returns the value of a gauge of the level `Everyone`.
async fn gauge(server: &TestServer, name: &str) -> usize {
    // As a component of the process, which needs no seat.
    let admin = User::authenticated("admin", "", vec!["system:masters".into()]);
    let local = Arc::new(Peer::local(admin));
    let body = Empty::new().map_err(Into::into).boxed_unsync();
    let request = http::Request::builder().uri("/metrics").body(body).unwrap();
    let response = handle_request(&server.server, &local, request).await;
    let text = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&text).into_owned();
    let name = format!("apiserver_flowcontrol_current_{name}{{priority_level=\"global-default\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&name));
    line.unwrap_or_else(|| panic!("{name} in\n{text}")).parse().unwrap()
}

#[tokio::test]
async fn a_seat_is_held_until_the_response_is_read_or_dropped() {
    let server = narrow().await;
    for number in 0..3 {
        server.post(MAPS, &config_map(&format!("m{number}"))).await.expect(201);
    }
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let one = format!("{MAPS}/m0");
    let paths = [(MAPS, "application/json"), (MAPS, "application/yaml"), (MAPS, table)];
    for (path, accept) in paths.into_iter().chain([(one.as_str(), "application/json")]) {
        for is_read in [true, false] {
            let first = server.request(Method::GET, path).header("accept", accept);
            let (_, _, body) = first.open().await;
            let mut second = Box::pin(server.get(MAPS));
            assert!(second.as_mut().now_or_never().is_none(), "{path} as {accept}: a free seat");
            assert_eq!(gauge(&server, "executing_requests").await, 1);
            if is_read {
                body.collect().await.unwrap();
            } else {
                drop(body);
            }
            second.await.expect(200);
            assert_eq!(gauge(&server, "executing_seats").await, 0);
        }
    }
}

/// HTTP/2 takes a frame long before the client reads it, and then drops the body.
#[tokio::test]
async fn the_last_frame_of_a_large_response_holds_the_seat() {
    let server = narrow().await;
    let mut map = config_map("large");
    map["data"]["k"] = json!("v".repeat(100_000));
    server.post(MAPS, &map).await.expect(201);
    for accept in ["application/json", "application/yaml"] {
        for path in [MAPS.to_owned(), format!("{MAPS}/large")] {
            let request = server.request(Method::GET, &path).header("accept", accept);
            let (_, _, mut body) = request.open().await;
            let mut last = None;
            while let Some(frame) = body.frame().await {
                last = Some(frame.unwrap().into_data().unwrap());
            }
            drop(body);
            let last = last.unwrap();
            let is_copy = path.len() > MAPS.len() || accept.ends_with("yaml");
            assert_eq!(gauge(&server, "executing_seats").await, usize::from(is_copy), "{path}");
            drop(last);
            assert_eq!(gauge(&server, "executing_seats").await, 0, "{path}");
        }
    }
}

#[tokio::test]
async fn a_long_list_takes_more_seats() {
    let server = TestServer::with(|setup| setup.flow = InflightLimits { reads: 140, writes: 140 }).await;
    let other = "/api/v1/namespaces/other/configmaps";
    let namespaces = "/api/v1/namespaces";
    server.post(namespaces, &json!({"metadata": {"name": "other"}})).await.expect(201);
    for number in 0..150 {
        server.post(MAPS, &config_map(&format!("m{number}"))).await.expect(201);
    }
    server.post(other, &config_map("m")).await.expect(201);
    for (path, seats) in [
        (MAPS.to_owned(), 2),
        (format!("{MAPS}?limit=100"), 1),
        (format!("{MAPS}?limit=101"), 2),
        (format!("{MAPS}/m0"), 1),
        (format!("{MAPS}?fieldSelector=metadata.name%3Dm0"), 1),
        // All are examined, but few are sent.
        (format!("{MAPS}?labelSelector=none"), 1),
        (other.to_owned(), 1),
        ("/api/v1/configmaps".to_owned(), 2),
        (format!("{MAPS}?watch=true"), 2),
        (format!("{MAPS}?watch=true&resourceVersion={}", server.revision()), 0),
    ] {
        let (_, _, body) = server.request(Method::GET, &path).open().await;
        assert_eq!(gauge(&server, "executing_seats").await, seats, "{path}");
        assert_eq!(gauge(&server, "executing_requests").await, seats.min(1), "{path}");
        drop(body);
    }
    assert_eq!(gauge(&server, "executing_seats").await, 0);
}

#[tokio::test]
async fn a_watch_has_a_seat_until_its_initial_objects_are_sent() {
    let server = narrow().await;
    server.post(MAPS, &config_map("a")).await.expect(201);
    let mut watch = server.watch(&format!("{MAPS}?watch=1")).await;
    assert_eq!(gauge(&server, "executing_requests").await, 1);
    assert_eq!(watch.brief().await, "ADDED a");
    assert_eq!(gauge(&server, "executing_requests").await, 0);
    server.get(MAPS).await.expect(200);
}

/// Seats alone would let a user hold hundreds of copies of the largest object.
#[tokio::test]
async fn copies_that_are_not_read_have_a_bound() {
    let server = TestServer::start().await;
    let mut map = config_map("large");
    map["data"]["k"] = json!("v".repeat(1_000_000));
    server.post(MAPS, &map).await.expect(201);
    for path in [MAPS.to_owned(), format!("{MAPS}/large")] {
        let open =
            async || server.request(Method::GET, &path).header("accept", "application/yaml").open().await;
        let mut held = Vec::new();
        let refused = loop {
            let (status, headers, body) = open().await;
            if status != 200 {
                break (status.as_u16(), headers["retry-after"].to_str().unwrap().to_owned());
            }
            held.push(body);
            assert!(held.len() < 40, "no bound");
        };
        assert_eq!(refused, (429, "1".to_owned()));
        assert!(held.len() > 30, "{}", held.len());
        held.pop();
        assert_eq!(open().await.0, 200, "there is room again");
        // Cached bytes are not a copy.
        let (status, _, _body) = server.request(Method::GET, &path).open().await;
        assert_eq!(status, 200);
    }
}

#[tokio::test]
async fn a_seat_is_free_again_when_its_client_leaves() {
    let server = narrow().await;
    let mut slow = Box::pin(create(&server, "admin-token").open_with(pending_body()));
    assert!(slow.as_mut().now_or_never().is_none());
    let mut next = Box::pin(create(&server, "alice-token").json(&config_map("a")).send());
    assert!(next.as_mut().now_or_never().is_none(), "the only seat is taken");
    server.get(MAPS).await.expect(200);
    let metrics = server.request(Method::GET, "/metrics").send().await;
    let text = String::from_utf8_lossy(&metrics.body).into_owned();
    let waiting = "apiserver_flowcontrol_current_inqueue_requests{priority_level=\"global-default\"} 1";
    assert!(text.contains(waiting), "{text}");
    drop(slow);
    let answer = next.await;
    assert!(matches!(answer.status.as_u16(), 201 | 403), "it was worked on: {}", answer.status);
    server.post(MAPS, &config_map("b")).await.expect(201);
}

#[tokio::test]
async fn slow_bodies_of_one_user_leave_seats_to_others() {
    let server = TestServer::with(|setup| setup.flow = InflightLimits { reads: 8, writes: 8 }).await;
    let mut held = Vec::new();
    for _ in 0..20 {
        // Every user may create this review.
        let asked = server.request(Method::POST, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews");
        let asked = asked.header("content-type", "application/json");
        let asked = asked.header("authorization", "Bearer alice-token");
        let mut slow = Box::pin(asked.open_with(pending_body()));
        assert!(slow.as_mut().now_or_never().is_none());
        held.push(slow);
    }
    server.post(MAPS, &config_map("a")).await.expect(201);
}

#[tokio::test]
async fn leases_and_health_are_not_behind_others() {
    let server = narrow().await;
    let mut held = Vec::new();
    for _ in 0..5 {
        let mut slow = Box::pin(create(&server, "admin-token").open_with(pending_body()));
        assert!(slow.as_mut().now_or_never().is_none());
        held.push(slow);
    }
    let refused = create(&server, "admin-token").json(&config_map("a")).send().await;
    refused.fails(429, "TooManyRequests");
    assert_eq!(refused.headers["retry-after"], "1");
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    server.post(leases, &json!({"metadata": {"name": "l"}})).await.expect(201);
    let renewal = json!({"spec": {"holderIdentity": "me"}});
    server.patch(&format!("{leases}/l"), "merge", &renewal).await.expect(200);
    assert_eq!(server.get("/readyz").await.status, 200);
}
