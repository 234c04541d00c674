//! Replays what a real kubelet sends, from its start with a bootstrap token to a Ready node with a
//! Lease, and compares the status codes with those of kube-apiserver.
//!
//! `kubelet.jsonl` was recorded from a kubelet v1.37.0-rc.1. It is replayed in order with the
//! credentials that it names: the token, then the certificate obtained with it. Values that a
//! server generates (names of requests, UIDs, versions, times) are taken from our responses;
//! everything else is sent unchanged.

mod wire;

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use http::{Request, header};
use http_body_util::{BodyExt as _, Full};
use k8s_openapi::ByteString;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, Pod, Secret};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use windlass_controllers::ControllerOptions;
use windlass_controllers::csr_signer::{BuiltInSigner, KubernetesSigner};
use windlass_pki::{Certificate, CertificateDer};
use windlass_server::ClientCas;
use windlass_server::Peer;
use windlass_server::ResponseBody;
use windlass_server::handle_request;
use windlass_server::{Server, system_clock};

use crate::certificates::{NODE_TOKENS, authority, bind_as_kubeadm_does};
use crate::fixture::{PATIENCE, TestCluster, object};

const CERTIFICATE: &str = "/object/status/certificate";
const INITIAL_EVENTS_END: &str = "/object/metadata/annotations/k8s.io~1initial-events-end";
/// Protobuf field numbers: the object in its envelope, and the fields rewritten in it.
const RAW: u64 = 2;
const METADATA: u64 = 1;
const RESOURCE_VERSION: u64 = 6;
const CREATION_TIMESTAMP: u64 = 8;
const TOKEN: (&str, &str) = ("abcdef", "0123456789abcdef");

#[tokio::test]
async fn a_kubelet_joins_as_it_does_in_kubernetes() {
    let mut world = TestCluster::without_controllers().await;
    let files = tempfile::tempdir().unwrap();
    let ca = authority(files.path());
    let trusted = ClientCas::new(&[ca.current().unwrap().certificate().der().clone()]).unwrap();
    world.server().authenticator.client_cas.store(Arc::new(trusted));
    bind_as_kubeadm_does(&world.client).await;
    create_bootstrap_token(&world).await;
    world.run_controllers_with(ControllerOptions {
        approve_kubelet_serving: true,
        built_in: KubernetesSigner::ALL.map(|signer| BuiltInSigner { signer, ca: ca.clone() }).to_vec(),
        ..ControllerOptions::new(system_clock())
    });
    let mut kubelet = RecordedKubelet::new(world.server().clone());
    for line in include_str!("kubelet.jsonl").lines() {
        kubelet.replay(&serde_json::from_str(line).unwrap()).await;
    }
    assert!(kubelet.differences.is_empty(), "{}", kubelet.differences.join("\n"));
    assert_eq!((kubelet.sent, kubelet.watches.len()), (49, 14));
    let names = kubelet.issued.iter().map(|issued| issued.common_name());
    assert_eq!(names.collect::<Vec<_>>(), [Some("system:node:real-node"); 2]);
    assert_node_joined(&world).await;
    assert_watches_deliver(&world, &mut kubelet).await;
}

/// Creates what an administrator prepares for new nodes.
async fn create_bootstrap_token(world: &TestCluster) {
    let (id, secret) = TOKEN;
    let secret: Secret = object(json!({
        "metadata": {"name": format!("bootstrap-token-{id}")},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": id,
            "token-secret": secret,
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": NODE_TOKENS,
        },
    }));
    world.api("kube-system").create(&PostParams::default(), &secret).await.unwrap();
}

/// Asserts that other clients see the joined node.
async fn assert_node_joined(world: &TestCluster) {
    let nodes: Api<Node> = Api::all(world.client.clone());
    let node = nodes.get("real-node").await.unwrap();
    let conditions = node.status.and_then(|status| status.conditions).unwrap();
    let conditions = conditions.iter().map(|c| (c.type_.as_str(), c.status.as_str()));
    let wanted = ["MemoryPressure", "DiskPressure", "PIDPressure"].map(|kind| (kind, "False"));
    let wanted = wanted.into_iter().chain([("Ready", "True")]);
    assert_eq!(conditions.collect::<Vec<_>>(), wanted.collect::<Vec<_>>());
    let lease = world.api::<Lease>("kube-node-lease").get("real-node").await.unwrap();
    assert_eq!(lease.metadata.owner_references.unwrap()[0].uid, node.metadata.uid.unwrap());
    let spec = lease.spec.unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some("real-node"));
    // The last heartbeat in the recording, half a minute after the Lease was created.
    let renewed = json!(spec.renew_time);
    assert!(renewed.as_str().unwrap().starts_with("2026-11-15T20:19:3"), "{renewed}");
    let events = world.api::<Event>("default");
    let event = events.get("real-node.18e8515f662f4ad1").await.unwrap();
    assert_eq!(event.count, Some(3));
}

/// Asserts that later changes to the node and its pods arrive on the open watches.
async fn assert_watches_deliver(world: &TestCluster, kubelet: &mut RecordedKubelet) {
    let nodes: Api<Node> = Api::all(world.client.clone());
    let label = Patch::Merge(json!({"metadata": {"labels": {"checked": "yes"}}}));
    nodes.patch("real-node", &PatchParams::default(), &label).await.unwrap();
    let pod: Pod = object(json!({
        "metadata": {"name": "web"},
        "spec": {"nodeName": "real-node", "containers": [{"name": "web", "image": "web"}]},
    }));
    world.api("default").create(&PostParams::default(), &pod).await.unwrap();
    let mut heard = 0;
    for watch in &mut kubelet.watches {
        let wanted = match watch.path.as_str() {
            "/api/v1/nodes" => "/object/metadata/labels/checked",
            "/api/v1/pods" => "/object/spec/nodeName",
            _ => continue,
        };
        watch.wait_for_event(|event| event.pointer(wanted).is_some()).await;
        heard += 1;
    }
    assert_eq!(heard, 4);
}

/// The recorded kubelet, replayed against our server.
struct RecordedKubelet {
    server: Arc<Server>,
    /// Recorded names and our replacements for them.
    names: Vec<(&'static str, String)>,
    /// Resource version of the Lease after its last write.
    lease: String,
    /// Creation time of the Lease, encoded as protobuf.
    created: Vec<u8>,
    issued: Vec<Certificate>,
    watches: Vec<OpenWatch>,
    differences: Vec<String>,
    sent: usize,
}

impl RecordedKubelet {
    fn new(server: Arc<Server>) -> RecordedKubelet {
        let (names, issued, watches) = (Vec::new(), Vec::new(), Vec::new());
        let (lease, created, differences) = (String::new(), Vec::new(), Vec::new());
        RecordedKubelet { server, names, lease, created, issued, watches, differences, sent: 0 }
    }

    /// Replays a step and records a status that differs from the recording.
    async fn replay(&mut self, step: &Value) {
        let text = |name: &str| step[name].as_str().unwrap_or_default();
        let path = self.path(text("path")).await;
        let (status, body) = self.send(step, &path).await;
        self.sent += 1;
        if status != step["status"].as_u64().unwrap() {
            let body = body.collect().await.unwrap().to_bytes();
            let answer = String::from_utf8_lossy(&body).into_owned();
            let asked = format!("{} {path}", text("method"));
            self.differences.push(format!("{asked}: {status} instead of {}: {answer}", step["status"]));
            return;
        }
        if path.contains("watch=true") {
            self.open_watch(&path, body).await;
            return;
        }
        let body = body.collect().await.unwrap().to_bytes();
        let answer: Value = serde_json::from_slice(&body).unwrap();
        self.record_names(text("method"), &answer);
    }

    async fn send(&self, step: &Value, path: &str) -> (u64, ResponseBody) {
        let mut request = Request::builder()
            .method(step["method"].as_str().unwrap())
            .uri(path)
            .header(header::ACCEPT, step["accept"].as_str().unwrap())
            .header(header::USER_AGENT, "kubelet/v1.37.0 (linux/amd64) kubernetes/$Format");
        if let Some(media) = step["contentType"].as_str() {
            request = request.header(header::CONTENT_TYPE, media);
        }
        let chain = match step["as"].as_str().unwrap() {
            "bearer" => {
                let (id, secret) = TOKEN;
                request = request.header(header::AUTHORIZATION, format!("Bearer {id}.{secret}"));
                Vec::new()
            }
            "certificate system:node:real-node" => self.credential(),
            other => panic!("nobody is {other}"),
        };
        let body = Full::from(self.body(step)).map_err(Into::into).boxed_unsync();
        let peer = std::sync::Arc::new(Peer::from_tls("127.0.0.1:1".parse().unwrap(), chain));
        let response = handle_request(&self.server, &peer, request.body(body).unwrap()).await;
        let (parts, body) = response.into_parts();
        (parts.status.as_u16().into(), body)
    }

    /// Returns the certificate that was obtained with the token.
    fn credential(&self) -> Vec<CertificateDer<'static>> {
        self.issued.first().map(|issued| issued.der().clone()).into_iter().collect()
    }

    /// Returns a recorded path with our names. A watch resumes at the current version of an earlier
    /// watch of the same resource.
    async fn path(&mut self, recorded: &str) -> String {
        let mut path = recorded.to_owned();
        for (theirs, ours) in &self.names {
            path = path.replace(theirs, ours);
        }
        let Some((before, rest)) = path.split_once("&resourceVersion=") else { return path };
        let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let things = path.split('?').next().unwrap();
        let earlier = self.watches.iter_mut().find(|watch| watch.path == things).unwrap();
        earlier.catch_up();
        let version = &earlier.version;
        format!("{before}&resourceVersion={version}{rest}")
    }

    /// Returns a recorded body with our names, which have the same length, and our versions, which
    /// may not.
    fn body(&self, step: &Value) -> Bytes {
        let Some(encoded) = step["body"].as_str() else { return Bytes::new() };
        let ByteString(mut body) = object(json!(encoded));
        for (theirs, ours) in self.names.iter().filter(|(t, o)| t.len() == o.len()) {
            while let Some(at) = body.windows(theirs.len()).position(|w| w == theirs.as_bytes()) {
                body[at..at + ours.len()].copy_from_slice(ours.as_bytes());
            }
        }
        if step["method"] != "PUT" {
            return body.into();
        }
        let (magic, message) = body.split_at(4);
        let message = wire::replace_field(message, &[RAW, METADATA, RESOURCE_VERSION], self.lease.as_bytes());
        let message = wire::replace_field(&message, &[RAW, METADATA, CREATION_TIMESTAMP], &self.created);
        [magic, &message].concat().into()
    }

    /// Records names in a response that later requests use.
    fn record_names(&mut self, method: &str, answer: &Value) {
        let metadata = |name: &str| answer["metadata"][name].as_str().unwrap().to_owned();
        match (method, answer["kind"].as_str().unwrap()) {
            ("POST", "CertificateSigningRequest") => {
                let theirs = if self.issued.is_empty() { "csr-6pj6w" } else { "csr-swc4b" };
                self.names.push((theirs, metadata("name")));
            }
            ("POST", "Node") => {
                self.names.push(("b4ac56df-3828-43c0-9b2d-b6db239da4c2", metadata("uid")));
            }
            ("POST", "Lease") => {
                self.names.push(("d417c552-2283-4950-992c-d76e1501d850", metadata("uid")));
                self.lease = metadata("resourceVersion");
                let created = OffsetDateTime::parse(&metadata("creationTimestamp"), &Rfc3339);
                self.created = wire::timestamp(created.unwrap());
            }
            ("PUT", "Lease") => self.lease = metadata("resourceVersion"),
            _ => {}
        }
    }

    /// Reads a watch as far as the kubelet does before it continues.
    async fn open_watch(&mut self, path: &str, body: ResponseBody) {
        let things = path.split('?').next().unwrap().to_owned();
        let mut watch = OpenWatch { path: things, body, pending: Vec::new(), version: String::new() };
        if watch.path.ends_with("/certificatesigningrequests") {
            let found = watch.wait_for_event(|event| event.pointer(CERTIFICATE).is_some()).await;
            let ByteString(text) = object(found.pointer(CERTIFICATE).unwrap().clone());
            self.issued.push(Certificate::from_pem(&text).unwrap());
        } else if path.contains("sendInitialEvents=true") {
            watch.wait_for_event(|event| event.pointer(INITIAL_EVENTS_END).is_some()).await;
        }
        self.watches.push(watch);
    }
}

struct OpenWatch {
    path: String,
    body: ResponseBody,
    pending: Vec<u8>,
    version: String,
}

impl OpenWatch {
    /// Reads until `good` accepts an event.
    async fn wait_for_event(&mut self, good: impl Fn(&Value) -> bool) -> Value {
        loop {
            while let Some(event) = self.next_buffered() {
                if good(&event) {
                    return event;
                }
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await;
            let frame = frame.unwrap_or_else(|_| panic!("{}: no such event came", self.path));
            self.pending.extend_from_slice(&frame.unwrap().unwrap().into_data().unwrap());
        }
    }

    /// Reads the events that have arrived; events of finished writes arrive without waiting.
    fn catch_up(&mut self) {
        while let Some(Some(frame)) = self.body.frame().now_or_never() {
            self.pending.extend_from_slice(&frame.unwrap().into_data().unwrap());
            while self.next_buffered().is_some() {}
        }
    }

    fn next_buffered(&mut self) -> Option<Value> {
        let end = self.pending.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = self.pending.drain(..=end).collect();
        let event: Value = serde_json::from_slice(&line).unwrap();
        assert_ne!(event["type"], "ERROR", "{}: {event}", self.path);
        self.version = event["object"]["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        Some(event)
    }
}
