//! A server on a store of its own, and requests to it.

use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use futures::FutureExt;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tokio::sync::watch;
use windlass_pki::CertificateDer;
use windlass_server::{Incoming, ResponseBody, handle_request};

use windlass_server::AdmissionPlugins;
use windlass_server::Peer;
use windlass_server::{Authenticator, TokenFile};
use windlass_server::{Server, ServerOptions, start};
use windlass_server::{TokenSigner, TokenVerifier};
use windlass_store::{EmbeddedOptions, EmbeddedStore, Store};

/// A running server; its data goes with it.
pub struct TestServer {
    pub server: Arc<Server>,
    pub store: Arc<dyn Store>,
    down: watch::Sender<bool>,
    dir: tempfile::TempDir,
}

pub struct TestResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A request in the making.
pub struct TestRequest<'a> {
    server: &'a TestServer,
    method: Method,
    path: String,
    headers: HeaderMap,
    chain: Vec<CertificateDer<'static>>,
    body: Bytes,
}

/// Who issues tokens of service accounts, and whom they are for.
pub const ISSUER: &str = "https://kubernetes.default.svc";

impl TestServer {
    /// A fresh server whose users are those of `tokens.csv`. It leaves pods as they are sent: most
    /// tests make them in namespaces without accounts.
    pub async fn start() -> TestServer {
        TestServer::with(|_| {}).await
    }

    /// As [`TestServer::start`], with something changed.
    pub async fn with(change: impl FnOnce(&mut ServerOptions)) -> TestServer {
        TestServer::start_in(tempfile::tempdir().unwrap(), change).await
    }

    /// The server again, on the same data, with the usual settings.
    pub async fn restart(self) -> TestServer {
        self.restart_with(|_| {}).await
    }

    /// The server again, on the same data, with something changed.
    pub async fn restart_with(self, change: impl FnOnce(&mut ServerOptions)) -> TestServer {
        let TestServer { server, store, down, dir } = self;
        down.send_replace(true);
        store.close().await.unwrap();
        drop((server, store));
        TestServer::start_in(dir, change).await
    }

    /// A server on a store of any engine.
    pub async fn start_on_store(store: Arc<dyn Store>) -> TestServer {
        TestServer::start_on_store_in(store, tempfile::tempdir().unwrap(), |_| {}).await
    }

    async fn start_in(
        dir: tempfile::TempDir,
        change: impl FnOnce(&mut ServerOptions),
    ) -> TestServer {
        let store = Arc::new(EmbeddedStore::open(EmbeddedOptions::new(dir.path())).unwrap());
        TestServer::start_on_store_in(store, dir, change).await
    }

    async fn start_on_store_in(
        store: Arc<dyn Store>,
        dir: tempfile::TempDir,
        change: impl FnOnce(&mut ServerOptions),
    ) -> TestServer {
        let (down, shutdown) = watch::channel(false);
        let tokens = TokenFile::parse(include_str!("tokens.csv")).unwrap();
        let key = windlass_pki::PrivateKey::generate().unwrap();
        let keys = [key.public_key().clone()];
        let verifier = TokenVerifier::new(vec![ISSUER.into()], Vec::new(), &keys).unwrap();
        let mut setup = ServerOptions {
            authenticator: Authenticator {
                tokens: ArcSwap::from_pointee(tokens),
                service_accounts: Some(Arc::new(verifier)),
                ..Authenticator::default()
            },
            tokens: Some(TokenSigner::new(key, ISSUER).unwrap()),
            plugins: AdmissionPlugins { service_account: false, ..AdmissionPlugins::default() },
            ..ServerOptions::new(store.clone(), shutdown)
        };
        change(&mut setup);
        let server = start(setup).await.unwrap();
        TestServer { server, store, down, dir }
    }

    /// A request as the admin.
    pub fn request(&self, method: Method, path: &str) -> TestRequest<'_> {
        let asked = TestRequest {
            server: self,
            method,
            path: path.to_owned(),
            headers: HeaderMap::new(),
            chain: Vec::new(),
            body: Bytes::new(),
        };
        asked.header("authorization", "Bearer admin-token")
    }

    pub async fn get(&self, path: &str) -> TestResponse {
        self.request(Method::GET, path).send().await
    }

    pub async fn post(&self, path: &str, body: &Value) -> TestResponse {
        self.request(Method::POST, path).json(body).send().await
    }

    pub async fn put(&self, path: &str, body: &Value) -> TestResponse {
        self.request(Method::PUT, path).json(body).send().await
    }

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
            other => panic!("no patch is called {other}"),
        };
        self.request(Method::PATCH, path).header("content-type", media).json(body).send().await
    }

    /// A GET whose answer is a stream of events.
    pub async fn watch(&self, path: &str) -> TestWatch {
        self.request(Method::GET, path).watch().await
    }

    pub fn revision(&self) -> u64 {
        self.store.revision()
    }

    /// Ends the watches, as a shutdown does.
    pub fn shut_down(&self) {
        self.down.send_replace(true);
    }
}

impl TestRequest<'_> {
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, value.parse().unwrap());
        self
    }

    /// Sets a header to any bytes.
    pub fn header_value(mut self, name: &'static str, value: http::HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Over a connection with a client certificate.
    pub fn presenting(mut self, chain: &[CertificateDer<'static>]) -> Self {
        self.chain = chain.to_vec();
        self
    }

    pub fn anonymous(mut self) -> Self {
        self.headers.remove("authorization");
        self
    }

    pub fn json(self, body: &Value) -> Self {
        let typed = self.headers.contains_key("content-type");
        let asked = if typed { self } else { self.header("content-type", "application/json") };
        asked.raw_body(body.to_string())
    }

    /// With a body of any sort.
    pub fn raw_body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Sends it and hands over the answer as a stream, for watches.
    pub async fn open(self) -> (StatusCode, HeaderMap, ResponseBody) {
        let body = Full::from(self.body.clone()).map_err(Into::into).boxed_unsync();
        self.open_with(body).await
    }

    /// As [`TestRequest::open`], with a body that comes as it likes.
    pub async fn open_with(self, body: Incoming) -> (StatusCode, HeaderMap, ResponseBody) {
        let mut request = Request::new(body);
        *request.method_mut() = self.method;
        *request.uri_mut() = self.path.parse().unwrap();
        *request.headers_mut() = self.headers;
        let peer = Arc::new(Peer::from_tls("127.0.0.1:1".parse().unwrap(), self.chain));
        let response = handle_request(&self.server.server, &peer, request).await;
        let (parts, body) = response.into_parts();
        (parts.status, parts.headers, body)
    }

    /// Sends it and reads the answer as a stream of events.
    pub async fn watch(self) -> TestWatch {
        let path = self.path.clone();
        let (status, _, body) = self.open().await;
        if status != StatusCode::OK {
            let body = body.collect().await.unwrap().to_bytes();
            panic!("{path}: {status}: {}", String::from_utf8_lossy(&body));
        }
        TestWatch { body, pending: Vec::new() }
    }

    /// Sends it and reads the whole answer.
    pub async fn send(self) -> TestResponse {
        let (status, headers, body) = self.open().await;
        let body = body.collect().await.unwrap().to_bytes();
        TestResponse { status, headers, body }
    }
}

impl TestResponse {
    /// The body as JSON, after checking the code.
    #[track_caller]
    pub fn expect(&self, code: u16) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        assert_eq!(self.status.as_u16(), code, "{text}");
        self.json()
    }

    /// The message of a failure, after checking code and reason.
    #[track_caller]
    pub fn fails(&self, code: u16, reason: &str) -> String {
        let status = self.expect(code);
        assert_eq!(status["kind"], "Status", "{status}");
        assert_eq!(status["status"], "Failure", "{status}");
        assert_eq!(status["code"], code, "{status}");
        assert_eq!(status["reason"].as_str().unwrap_or_default(), reason, "{status}");
        status["message"].as_str().unwrap_or_default().to_owned()
    }

    /// The texts of the `Warning` headers.
    pub fn warnings(&self) -> Vec<String> {
        let all = self.headers.get_all("warning").iter();
        all.map(|v| v.to_str().unwrap().to_owned()).collect()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&self.body).into_owned()))
    }
}

pub struct TestWatch {
    body: ResponseBody,
    pending: Vec<u8>,
}

impl TestWatch {
    /// The next event; `None` at the end of the watch.
    pub async fn try_next(&mut self) -> Option<Value> {
        self.next_within(PATIENCE).await
    }

    /// As [`TestWatch::try_next`], for events that may take longer.
    pub async fn next_within(&mut self, patience: std::time::Duration) -> Option<Value> {
        loop {
            if let Some(end) = self.pending.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = tokio::time::timeout(patience, self.body.frame()).await;
            let frame = frame.expect("no event came")?;
            self.pending.extend_from_slice(&frame.unwrap().into_data().unwrap());
        }
    }

    /// The next event, which there must be.
    pub async fn next(&mut self) -> Value {
        self.try_next().await.expect("the watch ended")
    }

    /// The next event as `TYPE name`.
    pub async fn brief(&mut self) -> String {
        brief(&self.next().await)
    }

    /// Whether nothing is there to read: events of finished writes come without a wait.
    pub fn has_no_event(&mut self) -> bool {
        self.pending.is_empty() && self.body.frame().now_or_never().is_none()
    }

    pub async fn rest(&mut self) -> Vec<Value> {
        let mut all = Vec::new();
        while let Some(event) = self.try_next().await {
            all.push(event);
        }
        all
    }
}

/// An event as `TYPE name`.
pub fn brief(event: &Value) -> String {
    let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
    format!("{} {name}", event["type"].as_str().unwrap_or_default()).trim_end().to_owned()
}

/// How long a test waits for something that must come.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);

/// The resourceVersion of an object or list.
#[track_caller]
pub fn version(value: &Value) -> u64 {
    value["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// The names of a list's items.
pub fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|i| i["metadata"]["name"].as_str().unwrap()).collect()
}

/// Where configmaps of the namespace `default` are.
pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A configmap with one entry.
pub fn config_map(name: &str) -> Value {
    serde_json::json!({"metadata": {"name": name}, "data": {"k": "v"}})
}

/// Where pods of the namespace `default` are.
pub const PODS: &str = "/api/v1/namespaces/default/pods";

/// The least pod there can be.
pub fn pod(name: &str) -> Value {
    serde_json::json!({
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    })
}
