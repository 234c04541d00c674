//! A server with its controllers.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, DeleteParams};
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use windlass_controllers::ControllerOptions;
use windlass_runtime::metrics::MetricsRegistry;
use windlass_server::{Server, system_clock};
use windlass_testkit::{TestServer, create};

pub use windlass_testkit::{PATIENCE, object, owner_reference, wait_until, wait_until_removed};

/// A running server and its controllers; its data is removed when it is dropped.
pub struct TestCluster {
    pub client: Client,
    server: TestServer,
    controllers: Option<JoinHandle<()>>,
    metrics: MetricsRegistry,
}

impl TestCluster {
    /// Starts a server with its controllers.
    pub async fn start() -> TestCluster {
        let mut world = TestCluster::without_controllers().await;
        world.run_controllers();
        world
    }

    /// A server alone, for objects that must exist before the controllers start.
    pub async fn without_controllers() -> TestCluster {
        TestCluster::with_stored_objects(&[]).await
    }

    /// The same, with objects that the server would reject: their keys and JSON texts.
    pub async fn with_stored_objects(objects: &[(&str, String)]) -> TestCluster {
        let server = TestServer::builder().stored_objects(objects).start().await;
        let metrics = MetricsRegistry::new();
        TestCluster { client: server.client(), server, controllers: None, metrics }
    }

    pub fn server(&self) -> &Arc<Server> {
        &self.server.server
    }

    pub fn client_as(&self, name: &str, groups: &[&str]) -> Client {
        self.server.client_as(name, groups)
    }

    pub fn run_controllers(&mut self) {
        self.run_controllers_with(ControllerOptions::new(system_clock()));
    }

    pub fn run_controllers_with(&mut self, options: ControllerOptions) {
        self.metrics = options.metrics.clone();
        let shutdown = self.server.shutdown();
        let controllers = windlass_controllers::run(self.client.clone(), options, shutdown);
        self.controllers = Some(tokio::spawn(controllers));
    }

    /// Metrics of the controllers that were started last, as they are scraped.
    pub fn metrics(&self) -> String {
        self.metrics.encode()
    }

    /// Stops the controllers immediately, so that others can be started.
    pub async fn stop_controllers(&mut self) {
        let controllers = self.controllers.take().unwrap();
        controllers.abort();
        assert!(controllers.await.unwrap_err().is_cancelled());
    }

    /// Shuts the controllers down and waits until they have ended.
    pub async fn shut_down(mut self) {
        self.server.shut_down();
        self.controllers.take().unwrap().await.unwrap();
    }

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
        create(&self.namespaces(), json!({"metadata": {"name": name}})).await;
    }

    /// Creates a ConfigMap in `default` with this metadata.
    pub async fn create_config_map(&self, metadata: Value) -> ConfigMap {
        create(&self.api("default"), json!({"metadata": metadata})).await
    }

    /// Deletes a ConfigMap in the namespace `default`.
    pub async fn delete_config_map(&self, name: &str, how: DeleteParams) {
        let _ = self.api::<ConfigMap>("default").delete(name, &how).await.unwrap();
    }
}
