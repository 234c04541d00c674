//! The Service `default/kubernetes` and the addresses behind it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use windlass_server::EndpointAdvertiser;

use super::etcd::TestEtcd;
use windlass_testkit::TestServer;

const SERVICE: &str = "/api/v1/namespaces/default/services/kubernetes";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints/kubernetes";
const SLICE: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

fn advertiser(server: &TestServer, address: &str) -> EndpointAdvertiser {
    EndpointAdvertiser::new(server.server.clone(), Some(address.parse::<SocketAddr>().unwrap()))
}

/// Returns the addresses in the Endpoints, which must equal those in the EndpointSlice.
async fn addresses(server: &TestServer) -> Vec<String> {
    let endpoints = server.get(ENDPOINTS).await.expect(200);
    let of = |list: &Value, at: &str| -> Vec<String> {
        let list = list.as_array().into_iter().flatten();
        list.map(|item| item.pointer(at).unwrap().as_str().unwrap().to_owned()).collect()
    };
    let found = of(&endpoints["subsets"][0]["addresses"], "/ip");
    let slice = server.get(SLICE).await.expect(200);
    assert_eq!(of(&slice["endpoints"], "/addresses/0"), found);
    found
}

#[tokio::test]
async fn clients_in_the_cluster_find_the_server() {
    let server = TestServer::start().await;
    let mut advertiser = advertiser(&server, "192.0.2.7:6443");
    advertiser.reconcile(Instant::now()).await;
    let service = server.get(SERVICE).await.expect(200);
    assert_eq!(service["spec"]["ports"][0]["targetPort"], 6443);
    assert_eq!(service["metadata"]["labels"]["provider"], "kubernetes");
    assert_eq!(addresses(&server).await, ["192.0.2.7"]);
    let slice = server.get(SLICE).await.expect(200);
    assert_eq!(slice["metadata"]["labels"]["kubernetes.io/service-name"], "kubernetes");
    assert_eq!((&slice["addressType"], &slice["ports"][0]["port"]), (&json!("IPv4"), &json!(6443)));

    // Nothing is written while nothing changes; removed objects are restored.
    let before = server.revision();
    advertiser.reconcile(Instant::now()).await;
    assert_eq!(server.revision(), before);
    server.delete(SERVICE).await.expect(200);
    let edited = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "kubernetes"},
        "subsets": [{"addresses": [{"ip": "192.0.2.99"}], "ports": [{"port": 1}]}]});
    server.put(ENDPOINTS, &edited).await.expect(200);
    advertiser.reconcile(Instant::now()).await;
    server.get(SERVICE).await.expect(200);
    assert_eq!(addresses(&server).await, ["192.0.2.7"]);
}

#[tokio::test]
async fn a_server_without_a_network_has_no_endpoint() {
    let server = TestServer::start().await;
    EndpointAdvertiser::new(server.server.clone(), None).reconcile(Instant::now()).await;
    server.get(SERVICE).await.expect(200);
    assert_eq!(addresses(&server).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_on_one_store_share_the_endpoints() {
    let etcd = TestEtcd::start();
    let (a, b) =
        (TestServer::start_on_store(etcd.open()).await, TestServer::start_on_store(etcd.open()).await);
    let (mut first, mut second) = (advertiser(&a, "192.0.2.1:6443"), advertiser(&b, "192.0.2.2:6443"));
    let start = Instant::now();
    let after = |seconds| start + Duration::from_secs(seconds);
    first.reconcile(start).await;
    b.get(LEASES).await.expect(200); // now b's cache has what a wrote
    second.reconcile(start).await;
    a.get(LEASES).await.expect(200);
    first.reconcile(after(10)).await;
    assert_eq!(addresses(&b).await, ["192.0.2.1", "192.0.2.2"]);

    // The second server stops renewing: its address and its Lease are removed.
    first.reconcile(after(40)).await;
    assert_eq!(addresses(&a).await, ["192.0.2.1", "192.0.2.2"]);
    first.reconcile(after(50)).await;
    assert_eq!(addresses(&a).await, ["192.0.2.1"]);
    b.get(&format!("{LEASES}/apiserver-192-0-2-2-6443")).await.fails(404, "NotFound");

    // It returns, and withdraws gracefully.
    second.reconcile(after(60)).await;
    assert_eq!(addresses(&a).await, ["192.0.2.1", "192.0.2.2"]);
    second.withdraw().await;
    assert_eq!(addresses(&a).await, ["192.0.2.1"]);
}
