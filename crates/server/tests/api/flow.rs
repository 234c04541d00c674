//! How requests wait for each other.

use bytes::Bytes;
use futures::FutureExt;
use http::Method;
use http_body_util::{BodyExt, StreamBody};
use serde_json::json;
use windlass_server::body::Incoming;
use windlass_server::chain::flow::Limits;

use super::fixture::{Asked, MAPS, TestServer, config_map};

/// A server that works on one request that reads and one that writes at a time.
async fn narrow() -> TestServer {
    TestServer::with(|setup| setup.flow = Limits { reads: 1, writes: 1 }).await
}

/// A body that never comes: its request keeps its seat.
fn silence() -> Incoming {
    let never = futures::stream::pending::<Result<http_body::Frame<Bytes>, std::io::Error>>();
    StreamBody::new(never).map_err(Into::into).boxed_unsync()
}

fn create<'a>(server: &'a TestServer, token: &str) -> Asked<'a> {
    let asked = server.ask(Method::POST, MAPS).header("content-type", "application/json");
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

#[tokio::test]
async fn a_seat_is_free_again_when_its_client_leaves() {
    let server = narrow().await;
    let mut slow = Box::pin(create(&server, "admin-token").open_with(silence()));
    assert!(slow.as_mut().now_or_never().is_none());
    let mut next = Box::pin(create(&server, "alice-token").json(&config_map("a")).send());
    assert!(next.as_mut().now_or_never().is_none(), "the only seat is taken");
    server.get(MAPS).await.expect(200);
    let metrics = server.ask(Method::GET, "/metrics").send().await;
    let text = String::from_utf8_lossy(&metrics.body).into_owned();
    let waiting =
        "apiserver_flowcontrol_current_inqueue_requests{priority_level=\"global-default\"} 1";
    assert!(text.contains(waiting), "{text}");
    drop(slow);
    let answer = next.await;
    assert!(matches!(answer.status.as_u16(), 201 | 403), "it was worked on: {}", answer.status);
    server.post(MAPS, &config_map("b")).await.expect(201);
}

#[tokio::test]
async fn slow_bodies_of_one_user_leave_seats_to_others() {
    let server = TestServer::with(|setup| setup.flow = Limits { reads: 8, writes: 8 }).await;
    let mut held = Vec::new();
    for _ in 0..20 {
        // Every user may ask this.
        let asked =
            server.ask(Method::POST, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews");
        let asked = asked.header("content-type", "application/json");
        let asked = asked.header("authorization", "Bearer alice-token");
        let mut slow = Box::pin(asked.open_with(silence()));
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
        let mut slow = Box::pin(create(&server, "admin-token").open_with(silence()));
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
