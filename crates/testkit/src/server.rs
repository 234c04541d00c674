//! The API server in this process, on a data directory that is removed with it.

use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::Method;
use kube::Client;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::watch;
use windlass_pki::PrivateKey;
use windlass_server::{
    AdmissionPlugins, Authenticator, LocalClient, MASTERS, Server, ServerOptions, TokenFile, TokenSigner,
    TokenVerifier, User, start,
};
use windlass_store::{EmbeddedOptions, EmbeddedStore, KeyChange, Store, WritePrecondition, WriteRequest};

use crate::request::{TestRequest, TestResponse, TestWatch};

/// Issuer and audience of service-account tokens.
pub const ISSUER: &str = "https://kubernetes.default.svc";

/// The users of [`TestServer`], in the format of `--token-auth-file`.
pub const TOKENS: &str = include_str!("tokens.csv");

/// A running server; its data is removed when it is dropped.
pub struct TestServer {
    /// The server itself, for what has no path in the API.
    pub server: Arc<Server>,
    /// The store below the server, to read or write past it.
    pub store: Arc<dyn Store>,
    down: watch::Sender<bool>,
    dir: TempDir,
}

/// Adapts the server's options before it starts.
type OptionsChange<'a> = Box<dyn FnOnce(&mut ServerOptions) + 'a>;

/// What a [`TestServer`] is started with.
#[derive(Default)]
pub struct TestServerBuilder<'a> {
    dir: Option<TempDir>,
    store: Option<Arc<dyn Store>>,
    objects: Vec<(String, String)>,
    change: Option<OptionsChange<'a>>,
}

impl<'a> TestServerBuilder<'a> {
    /// Uses a store of any engine instead of a new embedded one.
    pub fn store(self, store: Arc<dyn Store>) -> Self {
        Self { store: Some(store), ..self }
    }

    /// Stores objects before the server starts, also ones that it would reject: keys and JSON texts.
    pub fn stored_objects(mut self, objects: &[(&str, String)]) -> Self {
        self.objects.extend(objects.iter().map(|(key, text)| ((*key).to_owned(), text.clone())));
        self
    }

    /// Changes the server's options, such as its clock, plugins or feature gates.
    pub fn options(self, change: impl FnOnce(&mut ServerOptions) + 'a) -> Self {
        Self { change: Some(Box::new(change)), ..self }
    }

    /// Starts the server. By default its users are those of [`TOKENS`], and pods are stored as they are sent: most
    /// tests create them in namespaces without service accounts.
    pub async fn start(self) -> TestServer {
        let dir = self.dir.unwrap_or_else(|| tempfile::tempdir().unwrap());
        let store = self.store.unwrap_or_else(|| {
            let options = EmbeddedOptions::new(dir.path().join("store"));
            Arc::new(EmbeddedStore::open(options).unwrap())
        });
        for (key, text) in self.objects {
            let change = KeyChange::Put(text.into());
            store.commit(WriteRequest { key, expect: WritePrecondition::Any, change }).await.unwrap();
        }
        let (down, shutdown) = watch::channel(false);
        let key = PrivateKey::generate().unwrap();
        let keys = [key.public_key().clone()];
        let verifier = TokenVerifier::new(vec![ISSUER.into()], Vec::new(), &keys).unwrap();
        let mut options = ServerOptions {
            authenticator: Authenticator {
                tokens: ArcSwap::from_pointee(TokenFile::parse(TOKENS).unwrap()),
                service_accounts: Some(Arc::new(verifier)),
                ..Authenticator::default()
            },
            tokens: Some(TokenSigner::new(key, ISSUER).unwrap()),
            plugins: AdmissionPlugins { service_account: false, ..AdmissionPlugins::default() },
            ..ServerOptions::new(store.clone(), shutdown)
        };
        if let Some(change) = self.change {
            change(&mut options);
        }
        TestServer { server: start(options).await.unwrap(), store, down, dir }
    }
}

impl TestServer {
    /// Starts a server with the defaults of [`TestServerBuilder::start`].
    pub async fn start() -> TestServer {
        TestServer::builder().start().await
    }

    /// Chooses what the server is started with.
    pub fn builder<'a>() -> TestServerBuilder<'a> {
        TestServerBuilder::default()
    }

    /// As [`TestServer::start`], with other options.
    pub async fn with(change: impl FnOnce(&mut ServerOptions)) -> TestServer {
        TestServer::builder().options(change).start().await
    }

    /// Starts a server on a store of any engine.
    pub async fn start_on_store(store: Arc<dyn Store>) -> TestServer {
        TestServer::builder().store(store).start().await
    }

    /// Stops the server and starts another on the same data, with the default options.
    pub async fn restart(self) -> TestServer {
        self.restart_with(|_| {}).await
    }

    /// Stops the server and starts another on the same data, with other options.
    pub async fn restart_with(self, change: impl FnOnce(&mut ServerOptions)) -> TestServer {
        let TestServer { server, store, down, dir } = self;
        down.send_replace(true);
        store.close().await.unwrap();
        drop((server, store));
        TestServerBuilder { dir: Some(dir), ..TestServer::builder() }.options(change).start().await
    }

    /// A directory for other files of the test, removed with the server.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Whether the server shuts down, for tasks that end with it.
    pub fn shutdown(&self) -> watch::Receiver<bool> {
        self.down.subscribe()
    }

    /// Ends the watches, as a shutdown does.
    pub fn shut_down(&self) {
        self.down.send_replace(true);
    }

    /// A `kube` client of an administrator, by default in the namespace `default`.
    pub fn client(&self) -> Client {
        self.client_as("admin", &[MASTERS])
    }

    /// A `kube` client of any user, by default in the namespace `default`.
    pub fn client_as(&self, name: &str, groups: &[&str]) -> Client {
        Client::new(self.transport_as(name, groups), "default")
    }

    /// The transport of a user's client, to put something between it and the server.
    pub fn transport_as(&self, name: &str, groups: &[&str]) -> LocalClient {
        let groups = groups.iter().map(|&group| group.to_owned()).collect();
        LocalClient::new(self.server.clone(), User::authenticated(name, "", groups))
    }

    /// A request as the administrator, still to be sent.
    pub fn request(&self, method: Method, path: &str) -> TestRequest<'_> {
        TestRequest::new(&self.server, method, path).header("authorization", "Bearer admin-token")
    }

    /// GET as the administrator.
    pub async fn get(&self, path: &str) -> TestResponse {
        self.request(Method::GET, path).send().await
    }

    /// POST of a JSON body as the administrator.
    pub async fn post(&self, path: &str, body: &Value) -> TestResponse {
        self.request(Method::POST, path).json(body).send().await
    }

    /// PUT of a JSON body as the administrator.
    pub async fn put(&self, path: &str, body: &Value) -> TestResponse {
        self.request(Method::PUT, path).json(body).send().await
    }

    /// DELETE without a body as the administrator.
    pub async fn delete(&self, path: &str) -> TestResponse {
        self.request(Method::DELETE, path).send().await
    }

    /// PATCH with a body of the given type: `json`, `merge`, `strategic` or `apply`.
    pub async fn patch(&self, path: &str, how: &str, body: &Value) -> TestResponse {
        let media = match how {
            "json" => "application/json-patch+json",
            "merge" => "application/merge-patch+json",
            "strategic" => "application/strategic-merge-patch+json",
            "apply" => "application/apply-patch+yaml",
            other => panic!("unknown patch type {other}"),
        };
        self.request(Method::PATCH, path).header("content-type", media).json(body).send().await
    }

    /// A GET whose response is a stream of events.
    pub async fn watch(&self, path: &str) -> TestWatch {
        self.request(Method::GET, path).watch().await
    }

    /// The newest revision of the store.
    pub fn revision(&self) -> u64 {
        self.store.revision()
    }
}
