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
use windlass_server::chain::admission::Plugins;
use windlass_server::local::Local;
use windlass_server::server::{Server, Setup, start, system_clock};
use windlass_server::user::{MASTERS, User};
use windlass_store::{Change, Embedded, Expect, Options, Store as _, Write};

/// A running server and its controllers; its data goes with it.
pub struct World {
    pub client: Client,
    server: Arc<Server>,
    down: watch::Sender<bool>,
    controllers: Option<JoinHandle<()>>,
    _dir: tempfile::TempDir,
}

/// A test that waits longer than this has failed.
pub const PATIENCE: Duration = Duration::from_secs(30);

impl World {
    /// A server whose controllers run.
    pub async fn start() -> World {
        let mut world = World::without_controllers().await;
        world.run_controllers();
        world
    }

    /// A server alone, for what has to be there before the controllers look.
    pub async fn without_controllers() -> World {
        World::holding(&[]).await
    }

    /// The same, with objects that the server would not take: their keys and what is stored there.
    pub async fn holding(objects: &[(&str, String)]) -> World {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(Embedded::open(Options::new(dir.path())).unwrap());
        for (key, text) in objects {
            let change = Change::Put(text.clone().into());
            let write = Write { key: (*key).to_owned(), expect: Expect::Any, change };
            store.commit(write).await.unwrap();
        }
        let (down, shutdown) = watch::channel(false);
        let server = start(Setup {
            // The loops are tried without the accounts that one of them makes.
            plugins: Plugins { service_account: false, ..Plugins::default() },
            ..Setup::new(store, shutdown)
        })
        .await
        .unwrap();
        let user = User::authenticated("admin", "", vec![MASTERS.into()]);
        let client = Client::new(Local::new(server.clone(), user), "default");
        World { client, server, down, controllers: None, _dir: dir }
    }

    /// The server itself, for credentials.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// The server as somebody else sees it.
    pub fn client_of(&self, name: &str, groups: &[&str]) -> Client {
        let groups = groups.iter().map(|&group| group.to_owned()).collect();
        let user = User::authenticated(name, "", groups);
        Client::new(Local::new(self.server.clone(), user), "default")
    }

    /// Starts the controllers.
    pub fn run_controllers(&mut self) {
        self.run_controllers_with(windlass_controllers::Options::new(system_clock()));
    }

    /// Starts the controllers as they are told.
    pub fn run_controllers_with(&mut self, options: windlass_controllers::Options) {
        let shutdown = self.down.subscribe();
        let controllers = windlass_controllers::run(self.client.clone(), options, shutdown);
        self.controllers = Some(tokio::spawn(controllers));
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
    pub fn all<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// The namespaces.
    pub fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.client.clone())
    }

    /// Makes a namespace.
    pub async fn namespace(&self, name: &str) {
        let namespace = object(json!({"metadata": {"name": name}}));
        self.namespaces().create(&PostParams::default(), &namespace).await.unwrap();
    }

    /// Makes a ConfigMap in `default` with this metadata.
    pub async fn config_map(&self, metadata: Value) -> ConfigMap {
        let map: ConfigMap = object(json!({"metadata": metadata}));
        self.all("default").create(&PostParams::default(), &map).await.unwrap()
    }

    /// Deletes a ConfigMap of `default`.
    pub async fn delete_config_map(&self, name: &str, how: DeleteParams) {
        let _ = self.all::<ConfigMap>("default").delete(name, &how).await.unwrap();
    }
}

/// A typed object from JSON.
pub fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// An owner reference to an object.
pub fn owner<K: Resource<DynamicType = ()>>(object: &K, blocks: bool) -> Value {
    json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "name": object.name_any(),
        "uid": object.meta().uid,
        "blockOwnerDeletion": blocks,
    })
}

/// Waits until an object is as `good` wants it; `None` stands for one that is not there.
pub async fn until<K>(
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
pub async fn until_gone<K>(api: &Api<K>, name: &str)
where
    K: Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Serialize
        + Send
        + 'static,
{
    until(api, name, "be gone", |found| found.is_none()).await;
}
