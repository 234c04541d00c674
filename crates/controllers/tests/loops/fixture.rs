//! A server with its controllers, and waiting for what they do.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, DeleteParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use windlass_runtime::metrics::MetricsRegistry;
use windlass_server::AdmissionPlugins;
use windlass_server::LocalClient;
use windlass_server::{MASTERS, User};
use windlass_server::{Server, ServerOptions, start, system_clock};
use windlass_store::{
    EmbeddedOptions, EmbeddedStore, KeyChange, Store as _, WritePrecondition, WriteRequest,
};

/// A running server and its controllers; its data goes with it.
pub struct TestCluster {
    pub client: Client,
    server: Arc<Server>,
    down: watch::Sender<bool>,
    controllers: Option<JoinHandle<()>>,
    metrics: MetricsRegistry,
    _dir: tempfile::TempDir,
}

/// A test that waits longer than this has failed.
pub const PATIENCE: Duration = Duration::from_secs(30);

impl TestCluster {
    /// A server whose controllers run.
    pub async fn start() -> TestCluster {
        let mut world = TestCluster::without_controllers().await;
        world.run_controllers();
        world
    }

    /// A server alone, for what has to be there before the controllers look.
    pub async fn without_controllers() -> TestCluster {
        TestCluster::with_stored_objects(&[]).await
    }

    /// The same, with objects that the server would not take: their keys and what is stored there.
    pub async fn with_stored_objects(objects: &[(&str, String)]) -> TestCluster {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(EmbeddedStore::open(EmbeddedOptions::new(dir.path())).unwrap());
        for (key, text) in objects {
            let change = KeyChange::Put(text.clone().into());
            let write =
                WriteRequest { key: (*key).to_owned(), expect: WritePrecondition::Any, change };
            store.commit(write).await.unwrap();
        }
        let (down, shutdown) = watch::channel(false);
        let server = start(ServerOptions {
            // The loops are tried without the accounts that one of them makes.
            plugins: AdmissionPlugins { service_account: false, ..AdmissionPlugins::default() },
            ..ServerOptions::new(store, shutdown)
        })
        .await
        .unwrap();
        let user = User::authenticated("admin", "", vec![MASTERS.into()]);
        let client = Client::new(LocalClient::new(server.clone(), user), "default");
        TestCluster {
            client,
            server,
            down,
            controllers: None,
            metrics: MetricsRegistry::new(),
            _dir: dir,
        }
    }

    /// The server itself, for credentials.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// The server as somebody else sees it.
    pub fn client_as(&self, name: &str, groups: &[&str]) -> Client {
        let groups = groups.iter().map(|&group| group.to_owned()).collect();
        let user = User::authenticated(name, "", groups);
        Client::new(LocalClient::new(self.server.clone(), user), "default")
    }

    pub fn run_controllers(&mut self) {
        self.run_controllers_with(windlass_controllers::ControllerOptions::new(system_clock()));
    }

    /// Starts the controllers as they are told.
    pub fn run_controllers_with(&mut self, options: windlass_controllers::ControllerOptions) {
        self.metrics = options.metrics.clone();
        let shutdown = self.down.subscribe();
        let controllers = windlass_controllers::run(self.client.clone(), options, shutdown);
        self.controllers = Some(tokio::spawn(controllers));
    }

    /// Metrics of the controllers that were started last, as they are scraped.
    pub fn metrics(&self) -> String {
        self.metrics.encode()
    }

    /// Ends the controllers at once, so that others can be started.
    pub async fn stop_controllers(&mut self) {
        let controllers = self.controllers.take().unwrap();
        controllers.abort();
        assert!(controllers.await.unwrap_err().is_cancelled());
    }

    /// Tells the controllers to end and waits until they have.
    pub async fn shut_down(mut self) {
        self.down.send_replace(true);
        self.controllers.take().unwrap().await.unwrap();
    }

    /// Objects of a kind in a namespace.
    pub fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.client.clone())
    }

    pub async fn create_namespace(&self, name: &str) {
        let namespace = object(json!({"metadata": {"name": name}}));
        self.namespaces().create(&PostParams::default(), &namespace).await.unwrap();
    }

    /// Makes a ConfigMap in `default` with this metadata.
    pub async fn create_config_map(&self, metadata: Value) -> ConfigMap {
        let map: ConfigMap = object(json!({"metadata": metadata}));
        self.api("default").create(&PostParams::default(), &map).await.unwrap()
    }

    /// Deletes a ConfigMap of `default`.
    pub async fn delete_config_map(&self, name: &str, how: DeleteParams) {
        let _ = self.api::<ConfigMap>("default").delete(name, &how).await.unwrap();
    }
}

/// A typed object from JSON.
pub fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// An owner reference to an object.
pub fn owner_reference<K: Resource<DynamicType = ()>>(object: &K, blocks: bool) -> Value {
    json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "name": object.name_any(),
        "uid": object.meta().uid,
        "blockOwnerDeletion": blocks,
    })
}

/// Waits until an object is as `good` wants it; `None` stands for one that is not there.
pub async fn wait_until<K>(
    api: &Api<K>,
    name: &str,
    what: &str,
    good: impl Fn(Option<&K>) -> bool,
) -> Option<K>
where
    K: Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Serialize
        + Send
        + 'static,
{
    let waiting =
        kube::runtime::wait::await_condition(api.clone(), name, |found: Option<&K>| good(found));
    match tokio::time::timeout(PATIENCE, waiting).await {
        Ok(found) => found.unwrap(),
        Err(_) => {
            let now = api.get_opt(name).await.unwrap().map(|o| serde_json::to_value(o).unwrap());
            panic!("{name} was to {what}, but is {now:?}");
        }
    }
}

/// Waits until an object is gone.
pub async fn wait_until_removed<K>(api: &Api<K>, name: &str)
where
    K: Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Serialize
        + Send
        + 'static,
{
    wait_until(api, name, "be gone", |found| found.is_none()).await;
}
