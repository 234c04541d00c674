//! Controllers of several servers: one process leads at a time.

use std::time::{Duration, Instant};

use hyper::Method;
use rustix::process::Signal;
use serde_json::Value;
use windlass_testkit::HttpClient;

use super::shared_etcd::{command, etcd, launch, pair, share};
use crate::controllers::{ControllersProcess, REQUESTS, node_request, signing_flags};
use crate::server::{PATIENCE, TestDataDir, TestServer};
use crate::traffic::IssuanceTraffic;

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/windlass-controllers";

/// Waits until another process than `but` holds the lease; returns its identity.
async fn leader(http: &HttpClient, but: Option<&str>) -> String {
    let started = Instant::now();
    loop {
        let (_, lease) = http.request(Method::GET, LEASE, Value::Null).await;
        if let Some(holder) = lease["spec"]["holderIdentity"].as_str()
            && !holder.is_empty()
            && Some(holder) != but
        {
            return holder.to_owned();
        }
        assert!(started.elapsed() < PATIENCE * 2, "nobody but {but:?} takes {lease}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn start(server: &TestServer, name: &str) -> ControllersProcess {
    let flags = [
        "--leader-elect-lease-duration=2s".to_owned(),
        "--leader-elect-renew-deadline=1s".to_owned(),
        "--leader-elect-retry-period=250ms".to_owned(),
        format!("--leader-elect-identity={name}"),
    ];
    let flags = flags.into_iter().chain(signing_flags(server));
    ControllersProcess::start(server, &server.kubeconfig(), name, flags)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_gets_one_certificate_whichever_server_it_came_to() {
    let etcd = etcd();
    let servers = pair(&etcd);
    let mut processes = [start(&servers[0], "0-0"), start(&servers[1], "1-0")];
    let traffic = IssuanceTraffic::start(&servers[0].http(), 2, Duration::from_millis(100));
    let mut leading = None;
    for round in 1..=4 {
        let holder = leader(&servers[round % 2].http(), leading.as_deref()).await;
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
    let started = Instant::now();
    loop {
        let (_, found) = http.request(Method::GET, &format!("{REQUESTS}/{name}"), Value::Null).await;
        if found["status"]["certificate"].is_string() {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "nobody signs {found}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_of_everything_in_one_process_elect_one_too() {
    let etcd = etcd();
    let up = |place: TestDataDir| {
        let command = command("up", &place, &etcd, ["--no-node", "--listen", "127.0.0.1:0"]);
        launch(place, command)
    };
    let first = up(TestDataDir::new());
    let holder = leader(&first.http(), None).await;
    let place = TestDataDir::new();
    share(first.place(), &place);
    let second = up(place);
    for (index, server) in [&first, &second].into_iter().enumerate() {
        request_and_wait_for_certificate(&server.http(), &format!("request-{index}")).await;
    }
    let http = second.http();
    assert_eq!(leader(&http, None).await, holder, "the second stands by");
    // It releases the lease when it stops.
    drop(first.stop());
    leader(&http, Some(&holder)).await;
    request_and_wait_for_certificate(&http, "request-2").await;
    let (_, lease) = http.request(Method::GET, LEASE, Value::Null).await;
    assert!(lease["spec"]["leaseTransitions"].as_i64() >= Some(1), "{lease}");
}
