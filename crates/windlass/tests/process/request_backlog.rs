//! Controllers that start with a backlog of thousands of requests.

use std::time::Instant;

use hyper::Method;
use tokio::task::JoinSet;
use windlass_testkit::HttpClient;

use crate::controllers::{
    REQUESTS, node_request, server, signing_flags, start_controllers, wait_for_certificate,
};
use crate::server::{PATIENCE, TestDataDir, long};

const CLIENTS: usize = 8;
/// Memory limit of the controllers: they do not cache the requests, but a small entry for each,
/// with the time of its deletion and that it has no owner. The rest is what all controllers take,
/// with requests in progress and the ledger.
fn memory_limit_kib(count: usize) -> u64 {
    80 * 1024 + u64::try_from(count).unwrap() * 6 / 10
}

/// Creates this many requests; every fifth is from a node, and the others are for a signer that
/// does not run here.
async fn fill(http: &HttpClient, count: usize) -> Vec<String> {
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let http = http.clone();
        clients.spawn(async move {
            let mut connection = http.connect().await.unwrap();
            let mut nodes = Vec::new();
            let node = node_request("");
            for number in (client..count).step_by(CLIENTS) {
                let (name, mut request) = (format!("r-{number}"), node.clone());
                request["metadata"]["name"] = name.clone().into();
                if number % 5 == 0 {
                    nodes.push(name);
                } else {
                    request["spec"]["signerName"] = "example.com/nobody".into();
                }
                let (code, answer) = connection.request(Method::POST, REQUESTS, &request).await.unwrap();
                assert_eq!(code, 201, "{answer}");
            }
            nodes
        });
    }
    clients.join_all().await.into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_requests_at_startup_are_all_answered() {
    let count = if long() { 100_000 } else { 5_000 };
    let server = server(TestDataDir::new(), [""; 0]);
    let http = server.http();
    let nodes = fill(&http, count).await;
    let flags = signing_flags(&server).into_iter().chain(["--leader-elect=false".into()]);
    let started = Instant::now();
    let controllers = start_controllers(&server, &server.kubeconfig(), "crowd", flags);
    for name in &nodes {
        let patience = PATIENCE.max(PATIENCE * u32::try_from(count / 5_000).unwrap());
        wait_for_certificate(&http, name, patience).await;
    }
    let took = started.elapsed();
    // New requests are processed, too.
    let (code, _) = http.request(Method::POST, REQUESTS, node_request("last")).await;
    assert_eq!(code, 201);
    wait_for_certificate(&http, "last", PATIENCE).await;
    let (memory, lines) = (controllers.memory_kib("VmHWM"), controllers.log().lines().count());
    eprintln!("{} of {count} issued in {took:?} with {memory} KiB", nodes.len());
    assert!(memory < memory_limit_kib(count), "{memory} KiB");
    assert!(lines < 100, "{}", controllers.log());
}
