//! A server on a store of its own, and requests to it.

use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tokio::sync::watch;
use windlass_server::body::Body;
use windlass_server::chain::authn::{Authenticator, TokenFile};
use windlass_server::chain::client_cert::ClientCas;
use windlass_server::peer::Peer;
use windlass_server::server::{Server, Setup, start, system_clock};
use windlass_server::tokens::TokenSigner;
use windlass_server::{chain, registry};
use windlass_store::{Embedded, Options, Store};

/// A running server; its data goes with it.
pub struct TestServer {
    pub server: Arc<Server>,
    pub store: Arc<dyn Store>,
    down: watch::Sender<bool>,
    _dir: tempfile::TempDir,
}

/// What came back.
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A request in the making.
pub struct Asked<'a> {
    server: &'a TestServer,
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

impl TestServer {
    /// A fresh server whose users are those of `tokens.csv`.
    pub async fn start() -> TestServer {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(Embedded::open(Options::new(dir.path())).unwrap());
        let (down, shutdown) = watch::channel(false);
        let tokens = TokenFile::parse(include_str!("tokens.csv")).unwrap();
        let key = windlass_pki::PrivateKey::generate().unwrap();
        let setup = Setup {
            store: store.clone(),
            kinds: registry::KINDS,
            authenticator: Authenticator {
                client_cas: ArcSwap::from_pointee(ClientCas::default()),
                tokens: ArcSwap::from_pointee(tokens),
            },
            tokens: Some(TokenSigner::new(key, "https://kubernetes.default.svc").unwrap()),
            features: Default::default(),
            clock: system_clock(),
            shutdown,
            metrics: Vec::new(),
        };
        let server = start(setup).await.unwrap();
        TestServer { server, store, down, _dir: dir }
    }

    /// A request as the admin.
    pub fn ask(&self, method: Method, path: &str) -> Asked<'_> {
        let asked = Asked {
            server: self,
            method,
            path: path.to_owned(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
        };
        asked.header("authorization", "Bearer admin-token")
    }

    /// Ends the watches, as a shutdown does.
    #[allow(dead_code)] // not every test module shuts down
    pub fn shut_down(&self) {
        self.down.send_replace(true);
    }
}

impl Asked<'_> {
    /// Sets a header.
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, value.parse().unwrap());
        self
    }

    /// As nobody.
    pub fn anonymous(mut self) -> Self {
        self.headers.remove("authorization");
        self
    }

    /// With a JSON body.
    pub fn json(self, body: &Value) -> Self {
        let typed = self.headers.contains_key("content-type");
        let asked = if typed { self } else { self.header("content-type", "application/json") };
        asked.raw(body.to_string())
    }

    /// With a body of any sort.
    pub fn raw(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Sends it and hands over the answer as a stream, for watches.
    pub async fn open(self) -> (StatusCode, HeaderMap, Body) {
        let mut request = Request::new(Full::from(self.body));
        *request.method_mut() = self.method;
        *request.uri_mut() = self.path.parse().unwrap();
        *request.headers_mut() = self.headers;
        let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
        let peer = Peer::tls("127.0.0.1:1".parse().unwrap(), Vec::new());
        let response = chain::handle(&self.server.server, &peer, request).await;
        let (parts, body) = response.into_parts();
        (parts.status, parts.headers, body)
    }

    /// Sends it and reads the whole answer.
    pub async fn send(self) -> Answer {
        let (status, headers, body) = self.open().await;
        let body = body.collect().await.unwrap().to_bytes();
        Answer { status, headers, body }
    }
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&self.body).into_owned()))
    }
}
