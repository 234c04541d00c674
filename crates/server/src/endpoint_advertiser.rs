//! The Service `default/kubernetes` with its Endpoints and EndpointSlice: where clients in the
//! cluster find the API servers.
//!
//! Each server on a shared store renews a Lease in `kube-system` and removes the addresses of
//! servers whose Lease has not been renewed for [`EXPIRY`], as observed by this server's own
//! clock, so that clocks of different machines are never compared. The Service is headless, because
//! nothing here routes to a cluster IP; one that an administrator creates instead is left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;
use windlass_api::timestamp;

use crate::cache::{KindCache, WalkAction};
use crate::local_client::LocalClient;
use crate::server::Server;
use crate::user::{MASTERS, User};

/// Interval of Lease renewal and reconciliation.
const INTERVAL: Duration = Duration::from_secs(10);

/// A server whose Lease was not renewed for this long is gone; two renewals may fail.
const EXPIRY: Duration = Duration::from_secs(35);

/// Label of API server Leases, as in Kubernetes.
const IDENTITY_LABEL: &str = "apiserver.kubernetes.io/identity";
const IDENTITY: &str = "windlass-server";

/// Keeps the Service `default/kubernetes` and its endpoints up to date until the server shuts down, then withdraws the
/// server's address. Without an address, the objects are created without an endpoint.
pub async fn advertise_endpoints(server: Arc<Server>, address: Option<SocketAddr>) {
    let mut shutting_down = server.shutting_down.clone();
    let mut advertiser = EndpointAdvertiser::new(server, address);
    loop {
        advertiser.reconcile(Instant::now()).await;
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            _ = shutting_down.wait_for(|shutting_down| *shutting_down) => break,
        }
    }
    advertiser.withdraw().await;
}

/// Publishes one server's address and removes those of servers that are gone.
pub struct EndpointAdvertiser {
    server: Arc<Server>,
    local: LocalClient,
    address: Option<SocketAddr>,
    /// Last known revision of each Lease, and when it was first observed.
    leases: BTreeMap<String, (u64, Instant)>,
}

impl EndpointAdvertiser {
    /// Publishes nothing before the first [`EndpointAdvertiser::reconcile`].
    pub fn new(server: Arc<Server>, address: Option<SocketAddr>) -> EndpointAdvertiser {
        let owner = User::authenticated("system:apiserver", "", vec![MASTERS.into()]);
        let local = LocalClient::new(server.clone(), owner);
        EndpointAdvertiser { server, local, address, leases: BTreeMap::new() }
    }

    /// Reconciles the objects with the servers alive at `now`.
    pub async fn reconcile(&mut self, now: Instant) {
        let mut addresses: BTreeSet<SocketAddr> = self.address.into_iter().collect();
        if self.server.store.is_shared() {
            if let Some(address) = self.address {
                self.renew_lease(address).await;
            }
            addresses.extend(self.live_servers(now));
            self.delete_expired(now).await;
        }
        self.create_if_missing("/api/v1", "services", service(self.address)).await;
        self.publish(&addresses).await;
    }

    /// Removes this server's address if the store is shared with other servers.
    pub async fn withdraw(&mut self) {
        let Some(address) = self.address.filter(|_| self.server.store.is_shared()) else { return };
        let path = format!("{LEASES}/{}", lease_name(address));
        self.send(Method::DELETE, &path, None).await;
        let mut addresses = self.live_servers(Instant::now());
        addresses.remove(&address);
        self.publish(&addresses).await;
    }

    async fn publish(&self, addresses: &BTreeSet<SocketAddr>) {
        let endpoints = endpoints(addresses);
        self.replace_if_changed("/api/v1", "endpoints", "subsets", endpoints).await;
        let slice = endpoint_slice(addresses);
        let group = "/apis/discovery.k8s.io/v1";
        self.replace_if_changed(group, "endpointslices", "endpoints", slice).await;
    }

    async fn renew_lease(&self, address: SocketAddr) {
        let name = lease_name(address);
        let mut lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": name,
                "namespace": "kube-system",
                "labels": {IDENTITY_LABEL: IDENTITY},
            },
            "spec": {
                "holderIdentity": address.to_string(),
                "leaseDurationSeconds": EXPIRY.as_secs(),
                "renewTime": timestamp::format_micro((self.server.clock)()),
            },
        });
        let cache = self.cache("coordination.k8s.io", "leases");
        match cache.and_then(|cache| cache.get(&format!("kube-system/{name}"))) {
            Some(current) => {
                lease["metadata"]["resourceVersion"] = current.revision.to_string().into();
                self.send(Method::PUT, &format!("{LEASES}/{name}"), Some(lease)).await;
            }
            None => self.send(Method::POST, LEASES, Some(lease)).await,
        }
    }

    /// Returns the addresses from Leases of API servers that are still renewed.
    fn live_servers(&mut self, now: Instant) -> BTreeSet<SocketAddr> {
        let Some(cache) = self.cache("coordination.k8s.io", "leases") else {
            return BTreeSet::new();
        };
        let mut live = BTreeSet::new();
        let mut seen = BTreeMap::new();
        for object in cache.snapshot("kube-system/", None, |_| WalkAction::Include).objects {
            let lease = object.stored_value();
            if lease["metadata"]["labels"][IDENTITY_LABEL] != IDENTITY {
                continue;
            }
            let known = self.leases.get(object.name());
            let since = match known {
                Some((revision, since)) if *revision == object.revision => *since,
                _ => now,
            };
            seen.insert(object.name().to_owned(), (object.revision, since));
            let address = lease["spec"]["holderIdentity"].as_str().and_then(|a| a.parse().ok());
            if let Some(address) = address.filter(|_| now.duration_since(since) < EXPIRY) {
                live.insert(address);
            }
        }
        self.leases = seen;
        live
    }

    fn cache(&self, group: &str, plural: &str) -> Option<&Arc<KindCache>> {
        let (kind, _) = self.server.registry.by_path(group, "v1", plural)?;
        self.server.caches.for_kind(kind)
    }

    async fn create_if_missing(&self, root: &str, plural: &str, object: Value) {
        if self.current(root, plural).is_none() {
            let path = format!("{root}/namespaces/default/{plural}");
            self.send(Method::POST, &path, Some(object)).await;
        }
    }

    /// Writes the object if `field` has changed.
    async fn replace_if_changed(&self, root: &str, plural: &str, field: &str, object: Value) {
        let path = format!("{root}/namespaces/default/{plural}");
        match self.current(root, plural) {
            None => self.send(Method::POST, &path, Some(object)).await,
            Some(current) if current.get(field) != object.get(field) => {
                self.send(Method::PUT, &format!("{path}/kubernetes"), Some(object)).await;
            }
            Some(_) => {}
        }
    }

    /// Deletes Leases of servers that are gone. A returning server creates its Lease again.
    async fn delete_expired(&mut self, now: Instant) {
        let is_expired = |(_, since): &(u64, Instant)| now.duration_since(*since) >= EXPIRY;
        let expired = self.leases.iter().filter(|(_, seen)| is_expired(seen));
        let names: Vec<String> = expired.map(|(name, _)| name.clone()).collect();
        for name in names {
            self.send(Method::DELETE, &format!("{LEASES}/{name}"), None).await;
        }
    }

    fn current(&self, root: &str, plural: &str) -> Option<Value> {
        let group = root.strip_prefix("/apis/").map_or("", |path| path.trim_end_matches("/v1"));
        self.cache(group, plural)?.get("default/kubernetes").map(|object| object.stored_value())
    }

    async fn send(&self, method: Method, path: &str, body: Option<Value>) {
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(USER_AGENT, "windlass")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::from(body));
        let Ok(request) = request else { return };
        let Ok(response) = self.local.clone().oneshot(request).await;
        // Another server may have been faster; the next reconciliation compares again.
        let expected = [StatusCode::CONFLICT, StatusCode::NOT_FOUND].contains(&response.status());
        if !response.status().is_success() && !expected {
            let code = response.status().as_u16();
            let body = response.into_body().collect().await.map(|body| body.to_bytes());
            let message = serde_json::from_slice::<Value>(&body.unwrap_or_default());
            let message = message.unwrap_or_default();
            let message = message["message"].as_str().unwrap_or_default();
            tracing::warn!(path, code, message, "cannot publish the address of the API server");
        }
    }
}

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

/// One Lease per address, so that it survives a restart.
fn lease_name(address: SocketAddr) -> String {
    let ip = address.ip().to_string().replace(['.', ':'], "-");
    format!("apiserver-{}-{}", ip.trim_matches('-'), address.port())
}

fn service(address: Option<SocketAddr>) -> Value {
    let port = address.map_or(443, |address| address.port());
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "sessionAffinity": "None",
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": port}],
        },
    })
}

fn endpoints(servers: &BTreeSet<SocketAddr>) -> Value {
    // Servers on different ports cannot share a subset.
    let mut by_port: BTreeMap<u16, Vec<Value>> = BTreeMap::new();
    for server in servers {
        by_port.entry(server.port()).or_default().push(json!({"ip": server.ip().to_string()}));
    }
    let subset = |(port, addresses): (u16, Vec<Value>)| {
        let port = json!({"name": "https", "port": port, "protocol": "TCP"});
        json!({"addresses": addresses, "ports": [port]})
    };
    let mut object = json!({
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            // Kubernetes' mirroring controller must not create a second slice.
            "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
        },
    });
    if !by_port.is_empty() {
        object["subsets"] = by_port.into_iter().map(subset).collect();
    }
    object
}

/// Returns the slice of the servers with the most common port and address family: a slice has one
/// of each, and servers of one cluster are configured alike.
fn endpoint_slice(servers: &BTreeSet<SocketAddr>) -> Value {
    let mut groups: BTreeMap<(bool, u16), Vec<Value>> = BTreeMap::new();
    for server in servers {
        let endpoint = json!({
            "addresses": [server.ip().to_string()],
            "conditions": {"ready": true},
        });
        groups.entry((server.is_ipv6(), server.port())).or_default().push(endpoint);
    }
    let largest = groups.into_iter().max_by_key(|(_, endpoints)| endpoints.len());
    let ((is_ipv6, port), endpoints) = largest.unwrap_or(((false, 443), Vec::new()));
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"kubernetes.io/service-name": "kubernetes"},
        },
        "addressType": if is_ipv6 { "IPv6" } else { "IPv4" },
        "endpoints": endpoints,
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
    })
}
