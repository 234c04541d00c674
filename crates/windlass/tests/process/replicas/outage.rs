//! etcd is unavailable: which requests succeed, which are refused, and the recovery.

use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Full};
use hyper::{Method, Request};
use serde_json::{Value, json};
use windlass_testkit::etcd::EtcdCluster;
use windlass_testkit::{HttpClient, wait_for_async};

use super::shared_etcd::{CONFIG_MAPS, config_map, etcd, pair, version};
use crate::kubectl::Kubectl;
use crate::server::{ADMIN_TOKEN, PATIENCE};

/// Time without etcd after which a server must stop being ready.
const BOUND: Duration = Duration::from_secs(10);

/// Returns the status, `Retry-After` and body of a response.
async fn response_parts(http: &HttpClient, method: Method, path: &str, body: &Value) -> (u16, String, Value) {
    let mut connection = http.connect().await.unwrap();
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "windlass")
        .header("authorization", format!("Bearer {ADMIN_TOKEN}"))
        .header("content-type", "application/json");
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = request.body(Full::from(body)).unwrap();
    let response = connection.exchange(request).await.unwrap();
    let status = response.status().as_u16();
    let retry = response.headers().get("retry-after").map(|value| value.to_str().unwrap());
    let retry = retry.unwrap_or_default().to_owned();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, retry, serde_json::from_slice(&body).unwrap_or_default())
}

async fn health(http: &HttpClient, path: &str) -> u16 {
    http.request(Method::GET, path, Value::Null).await.0
}

/// Waits until `/readyz` has this status; returns how long that took.
async fn until_ready_is(http: &HttpClient, wanted: u16) -> Duration {
    let begun = Instant::now();
    wait_for_async(&format!("/readyz is never {wanted}"), async || {
        assert_eq!(health(http, "/livez").await, 200, "to start it again would not help");
        health(http, "/readyz").await == wanted
    })
    .await;
    begun.elapsed()
}

fn kill(etcd: &mut EtcdCluster) {
    for member in etcd.members_mut() {
        member.kill().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_reads_are_answered_and_others_are_rejected_during_an_etcd_outage() {
    let mut etcd = etcd();
    let [a, b] = pair(&etcd);
    let http = a.http();
    let (_, made) = http.request(Method::POST, CONFIG_MAPS, config_map("kept")).await;
    let from = version(&made);
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}");
    let mut events = http.watch(&path).await.unwrap().unwrap();
    kill(&mut etcd);
    let killed = Instant::now();

    // It stays ready for some time, in which a cluster can elect a new leader.
    assert_eq!(health(&http, "/readyz").await, 200);
    for path in [format!("{CONFIG_MAPS}?resourceVersion=0"), format!("{CONFIG_MAPS}/kept?resourceVersion=0")]
    {
        let (status, found) = http.request(Method::GET, &path, Value::Null).await;
        assert_eq!(status, 200, "{found}");
        assert!(found.to_string().contains("kept"), "{found}");
    }
    let write = async { response_parts(&http, Method::POST, CONFIG_MAPS, &config_map("refused")).await };
    let read = async { response_parts(&http, Method::GET, CONFIG_MAPS, &Value::Null).await };
    let (written, read) = tokio::join!(write, read);
    for (status, retry, body) in [written, read] {
        assert_eq!((status, &body["reason"]), (503, &json!("ServiceUnavailable")), "{body}");
        assert_eq!(retry, "1", "{body}");
        // Responses do not reveal the address of etcd.
        assert!(!body.to_string().contains("127.0.0.1"), "{body}");
    }
    assert!(killed.elapsed() < PATIENCE, "{:?}", killed.elapsed());

    until_ready_is(&http, 500).await;
    let cut_off = killed.elapsed();
    assert!(cut_off > BOUND - Duration::from_secs(2), "{cut_off:?}");
    assert!(cut_off < BOUND + PATIENCE, "{cut_off:?}");
    until_ready_is(&b.http(), 500).await;
    let (_, text) = http.request(Method::GET, "/readyz?verbose", Value::Null).await;
    assert!(text.as_str().unwrap().contains("[-]etcd-readiness failed"), "{text}");

    for member in etcd.members_mut() {
        member.restart(&[]).unwrap();
    }
    until_ready_is(&http, 200).await;
    until_ready_is(&b.http(), 200).await;
    let (status, made) = b.http().request(Method::POST, CONFIG_MAPS, config_map("after")).await;
    assert_eq!(status, 201, "{made}");
    assert_eq!(http.request(Method::GET, &format!("{CONFIG_MAPS}/after"), Value::Null).await.0, 200);
    assert_eq!(http.request(Method::GET, &format!("{CONFIG_MAPS}/refused"), Value::Null).await.0, 404);
    // The watch stayed open and missed nothing.
    let event = tokio::time::timeout(PATIENCE, events.next()).await;
    let event = event.expect("an event").unwrap().unwrap();
    assert_eq!(event["object"]["metadata"]["name"], "after", "{event}");
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_shows_the_errors() {
    let mut etcd = etcd();
    let [a, _b] = pair(&etcd);
    let kubectl = Kubectl::with_server(a);
    kubectl.ok(&["get", "namespaces"]);
    kill(&mut etcd);
    until_ready_is(&kubectl.server.http(), 500).await;
    // kubectl retries several times, as instructed, and then reports the reason.
    for args in [&["get", "configmaps"][..], &["create", "configmap", "a"]] {
        let begun = Instant::now();
        let said = tokio::task::block_in_place(|| kubectl.fails(args));
        let took = begun.elapsed();
        assert!(said.contains("store unreachable"), "after {took:?}: {said}");
    }
}
