//! A revocation at one server ends open HTTP/2 connections and watches at every server within a second.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::Method;
use serde_json::{Value, json};
use tokio::time::timeout;
use windlass_pki::{AltNames, IssuedSubject, PrivateKey, build_csr};
use windlass_testkit::{HttpClient, HttpConnection, HttpProtocol, WatchStream};

use super::shared_etcd::{CONFIG_MAPS, config_map, etcd, pair};
use crate::controllers::{REQUESTS, signing_flags, start_controllers, wait_for_certificate};
use crate::server::{PATIENCE, TestServer};

const USER: &str = "carol";

/// An open connection with a watch.
struct OpenConnection {
    requests: HttpConnection,
    watch: WatchStream,
}

impl OpenConnection {
    async fn open(client: &HttpClient) -> OpenConnection {
        let mut requests = client.connect_with(HttpProtocol::Http2).await.unwrap();
        assert_eq!(status(&mut requests).await, 200);
        let path = format!("{CONFIG_MAPS}?watch=true");
        let response = requests.start(Method::GET, &path, Default::default()).await.unwrap();
        OpenConnection { watch: WatchStream::new(response).unwrap(), requests }
    }

    /// Reads events of the watch until the one of this name.
    async fn wait_for_event(&mut self, name: &str) {
        loop {
            let event = timeout(PATIENCE, self.watch.next()).await.unwrap().unwrap().unwrap();
            if event["object"]["metadata"]["name"] == name {
                return;
            }
        }
    }
}

async fn status(connection: &mut HttpConnection) -> u16 {
    connection.request(Method::GET, CONFIG_MAPS, &Value::Null).await.unwrap().0
}

/// Requests and approves a client certificate for a user that may read everything. Returns it with its key, in PEM.
async fn client_certificate(http: &HttpClient) -> (Vec<u8>, Vec<u8>) {
    let key = PrivateKey::generate().unwrap();
    let pem = build_csr(&key, &IssuedSubject::new(USER, &[]), &AltNames::default()).unwrap();
    let request = json!({"metadata": {"name": USER}, "spec": {
        "request": STANDARD.encode(pem),
        "signerName": "kubernetes.io/kube-apiserver-client",
        "usages": ["client auth"],
    }});
    let (code, mut request) = http.request(Method::POST, REQUESTS, request).await;
    assert_eq!(code, 201, "{request}");
    request["status"]["conditions"] = json!([{"type": "Approved", "status": "True", "reason": "Tested"}]);
    let (code, answer) = http.request(Method::PUT, &format!("{REQUESTS}/{USER}/approval"), request).await;
    assert_eq!(code, 200, "{answer}");
    let binding = json!({"metadata": {"name": USER},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}]});
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let (code, answer) = http.request(Method::POST, bindings, binding).await;
    assert_eq!(code, 201, "{answer}");
    wait_for_certificate(http, USER, PATIENCE).await;
    let (_, request) = http.request(Method::GET, &format!("{REQUESTS}/{USER}"), Value::Null).await;
    let certificate = STANDARD.decode(request["status"]["certificate"].as_str().unwrap()).unwrap();
    (certificate, key.to_pem().unwrap().as_bytes().to_vec())
}

fn revoke(server: &TestServer, certificate: &[u8]) {
    let file = server.place().path().join("revoked.crt");
    fs::write(&file, certificate).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["cert", "revoke", "--yes", "--reason", "keyCompromise", "--kubeconfig"])
        .arg(server.kubeconfig())
        .arg(file)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn open_connections_are_rejected_at_every_server_within_a_second() {
    let etcd = etcd();
    let servers = pair(&etcd);
    let admin = servers[0].http();
    let flags = signing_flags(&servers[0]);
    let _controllers = start_controllers(&servers[0], &servers[0].kubeconfig(), "0", flags);
    let (certificate, key) = client_certificate(&admin).await;
    let ca = fs::read(servers[0].place().data().join("pki/ca.crt")).unwrap();
    let clients = servers.each_ref().map(|server| server.http().with_certificate(&ca, &certificate, &key));
    let mut open = [OpenConnection::open(&clients[0]).await, OpenConnection::open(&clients[1]).await];
    let (code, answer) = admin.request(Method::POST, CONFIG_MAPS, config_map("before")).await;
    assert_eq!(code, 201, "{answer}");
    for connection in &mut open {
        connection.wait_for_event("before").await;
    }

    revoke(&servers[1], &certificate);
    let revoked = Instant::now();
    for (connection, client) in open.iter_mut().zip(&clients) {
        assert_eq!(status(&mut connection.requests).await, 401);
        let event = timeout(PATIENCE, connection.watch.next()).await.unwrap().unwrap().unwrap();
        assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(401)), "{event}");
        let ended = timeout(PATIENCE, connection.watch.next()).await.unwrap();
        assert!(!matches!(ended, Ok(Some(_))), "the watch goes on");
        let mut another = client.connect_with(HttpProtocol::Http2).await.unwrap();
        assert_eq!(status(&mut another).await, 401);
    }
    assert!(revoked.elapsed() < Duration::from_secs(1), "{:?}", revoked.elapsed());
    // Other credentials are not affected.
    let (code, _) = admin.request(Method::GET, CONFIG_MAPS, Value::Null).await;
    assert_eq!(code, 200);
}
