//! A server in this process that the node `n1` watches.

use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::client::Body;
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use time::Duration as Span;
use tokio::sync::watch;
use tower::Service as _;
use windlass_node::clock::{self, Clock, ClockReading};
use windlass_server::{LocalClient, Server, ServerFeatureGates, User};
use windlass_testkit::TestServer;

pub use windlass_testkit::{PATIENCE, create};

pub struct WatchingFixture {
    server: TestServer,
    /// How far the node's clock is ahead, in seconds.
    pub ahead: Arc<AtomicI64>,
}

/// The server that the node uses, and the number of tokens it requested.
#[derive(Clone)]
pub struct SwitchableServer {
    server: Arc<Mutex<Arc<Server>>>,
    pub tokens: Arc<AtomicUsize>,
}

impl WatchingFixture {
    pub async fn start() -> Self {
        Self::start_with(ServerFeatureGates::default()).await
    }

    pub async fn start_with(features: ServerFeatureGates) -> Self {
        let server = TestServer::with(|options| options.features = features).await;
        Self { server, ahead: Arc::default() }
    }

    pub fn shut_down(&self) {
        self.server.shut_down();
    }

    pub fn admin(&self) -> Client {
        self.server.client()
    }

    pub fn line(&self) -> SwitchableServer {
        let server = Arc::new(Mutex::new(self.server.server.clone()));
        SwitchableServer { server, tokens: Arc::default() }
    }

    /// Returns a client with the credentials of the node `n1`.
    pub fn node(&self) -> Client {
        self.line().client()
    }

    pub fn clock(&self) -> Clock {
        let (system, ahead) = (clock::system(), self.ahead.clone());
        Arc::new(move || {
            let now = system();
            ClockReading { wall: now.wall + Span::seconds(ahead.load(SeqCst)), ..now }
        })
    }

    /// Returns the API of a kind in `default`.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::default_namespaced(self.admin())
    }

    /// Creates a pod on a node, with these sources in a volume.
    pub async fn create_pod(&self, name: &str, node: &str, sources: Value) -> Pod {
        let pod = json!({
            "metadata": {"name": name},
            "spec": {
                "nodeName": node, "serviceAccountName": "default",
                "containers": [{"name": "c", "image": "i"}],
                "volumes": [{"name": "v", "projected": {"sources": sources}}],
            },
        });
        create(&self.api(), pod).await
    }
}

impl SwitchableServer {
    /// Switches the node to another server.
    pub fn switch(&self, to: &WatchingFixture) {
        *self.server.lock().unwrap() = to.server.server.clone();
    }

    pub fn client(&self) -> Client {
        let this = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let path = request.uri().path();
            if path.contains("/serviceaccounts/") && path.ends_with("/token") {
                this.tokens.fetch_add(1, SeqCst);
            }
            let groups = vec!["system:nodes".into(), "system:authenticated".into()];
            let user = User::authenticated("system:node:n1", "", groups);
            let mut server = LocalClient::new(this.server.lock().unwrap().clone(), user);
            async move { Ok::<_, Infallible>(server.call(request).await.unwrap()) }
        });
        Client::new(service, "default")
    }
}

pub async fn change<K>(api: &Api<K>, name: &str, value: Value)
where
    K: Clone + DeserializeOwned + Debug,
{
    api.patch(name, &PatchParams::default(), &Patch::Merge(value)).await.unwrap();
}

/// Deletes at once, even a running pod.
pub async fn delete<K>(api: &Api<K>, name: &str)
where
    K: Clone + DeserializeOwned + Debug,
{
    let _ = api.delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
}

/// Waits until the value of a channel satisfies a condition.
pub async fn until<T: Clone>(reported: &mut watch::Receiver<T>, what: &str, good: impl Fn(&T) -> bool) -> T {
    let waiting = reported.wait_for(|now| good(now));
    match tokio::time::timeout(PATIENCE, waiting).await {
        Ok(now) => now.unwrap().clone(),
        Err(_) => panic!("it never was that {what}"),
    }
}

/// Advances virtual time at once.
pub async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}
