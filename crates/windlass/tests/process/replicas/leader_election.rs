//! Controllers of several servers: one process leads at a time.

use std::time::Duration;

use hyper::Method;
use rustix::process::Signal;
use serde_json::Value;
use windlass_testkit::{ChildProcess, HttpClient};

use super::shared_etcd::{command, etcd, launch, pair, share};
use crate::controllers::{
    LEASE, REQUESTS, election_flags, node_request, start_controllers, wait_for_certificate, wait_for_leader,
};
use crate::server::{PATIENCE, TestDataDir, TestServer};
use crate::traffic::IssuanceTraffic;

fn start(server: &TestServer, name: &str) -> ChildProcess {
    start_controllers(server, &server.kubeconfig(), name, election_flags(server, name))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_gets_one_certificate_whichever_server_it_came_to() {
    let etcd = etcd();
    let servers = pair(&etcd);
    let mut processes = [start(&servers[0], "0-0"), start(&servers[1], "1-0")];
    let traffic = IssuanceTraffic::start(&servers[0].http(), 2, Duration::from_millis(100));
    let mut leading = None;
    for round in 1..=4 {
        let holder = wait_for_leader(&servers[round % 2].http(), leading.as_deref()).await;
        traffic.wait_for_issuance().await;
        request_and_wait_for_certificate(&servers[1].http(), &format!("other-{round}")).await;
        let which: usize = holder[..1].parse().unwrap();
        processes[which].signal(Signal::KILL);
        processes[which] = start(&servers[which], &format!("{which}-{round}"));
        leading = Some(holder);
    }
    let seen = traffic.finish().await;
    assert!(seen.len() > 8, "too few to tell: {}", seen.len());
    let twice: Vec<_> = seen.iter().filter(|(_, had)| had.len() != 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

/// Creates a request and waits for its certificate.
async fn request_and_wait_for_certificate(http: &HttpClient, name: &str) {
    let (status, made) = http.request(Method::POST, REQUESTS, node_request(name)).await;
    assert_eq!(status, 201, "{made}");
    wait_for_certificate(http, name, PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_of_everything_in_one_process_elect_one_too() {
    let etcd = etcd();
    let up = |place: TestDataDir| {
        let command = command("up", &place, &etcd, ["--no-node", "--listen", "127.0.0.1:0"]);
        launch(place, command)
    };
    let first = up(TestDataDir::new());
    let holder = wait_for_leader(&first.http(), None).await;
    let place = TestDataDir::new();
    share(first.place(), &place);
    let second = up(place);
    for (index, server) in [&first, &second].into_iter().enumerate() {
        request_and_wait_for_certificate(&server.http(), &format!("request-{index}")).await;
    }
    let http = second.http();
    assert_eq!(wait_for_leader(&http, None).await, holder, "the second stands by");
    // It releases the lease when it stops.
    drop(first.stop());
    wait_for_leader(&http, Some(&holder)).await;
    request_and_wait_for_certificate(&http, "request-2").await;
    let (_, lease) = http.request(Method::GET, LEASE, Value::Null).await;
    assert!(lease["spec"]["leaseTransitions"].as_i64() >= Some(1), "{lease}");
}
