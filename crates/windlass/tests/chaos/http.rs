//! A plain HTTPS client that knows whether a request can have reached anybody.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// A token of the group that may do everything.
pub const TOKEN: &str = "chaos-token";

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(2);
/// How long a client waits for an answer; more than the longest that a server lets one wait.
const ANSWER: Duration = Duration::from_secs(20);

/// Why there is no answer.
pub enum RequestFailure {
    /// The request was not sent.
    Unsent,
    /// The request may have arrived.
    Open(String),
}

/// An answer to be read as JSON.
pub struct JsonResponse {
    pub status: u16,
    pub retry_after: bool,
    pub body: Value,
}

/// TLS configuration that trusts the CA of the test servers.
#[derive(Clone)]
pub struct ChaosHttp {
    connector: TlsConnector,
}

impl ChaosHttp {
    pub fn new(ca: &Path) -> Self {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(ca).unwrap() {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self { connector: TlsConnector::from(Arc::new(config)) }
    }

    pub async fn connect(&self, address: SocketAddr) -> Option<ChaosConnection> {
        let connecting = async {
            let stream = TcpStream::connect(address).await.ok()?;
            stream.set_nodelay(true).ok()?;
            let name = ServerName::try_from("localhost").ok()?;
            let stream = self.connector.connect(name, stream).await.ok()?;
            let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
            tokio::spawn(connection);
            Some(ChaosConnection { sender })
        };
        timeout(CONNECT, connecting).await.ok().flatten()
    }

    /// One request on a connection of its own.
    pub async fn request(
        &self,
        address: SocketAddr,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<JsonResponse, RequestFailure> {
        let mut connection = self.connect(address).await.ok_or(RequestFailure::Unsent)?;
        connection.request(method, path, "application/json", body).await
    }
}

pub struct ChaosConnection {
    sender: http1::SendRequest<Full<Bytes>>,
}

impl ChaosConnection {
    /// Whether it can be used again.
    pub fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    /// A request with a JSON body, none when it is null.
    pub async fn request(
        &mut self,
        method: Method,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> Result<JsonResponse, RequestFailure> {
        let asking = async {
            let response = self.send(method, path, content_type, body).await?;
            let status = response.status().as_u16();
            let retry_after = response.headers().contains_key("retry-after");
            let body = response.into_body().collect().await.map_err(open)?.to_bytes();
            let body = serde_json::from_slice(&body)
                .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&body).into_owned()));
            Ok(JsonResponse { status, retry_after, body })
        };
        timeout(ANSWER, asking)
            .await
            .unwrap_or_else(|_| Err(RequestFailure::Open("no answer".to_owned())))
    }

    /// A watch; `Err` holds the status of a refusal, 0 if there is no answer.
    pub async fn watch(mut self, path: &str) -> Result<ChaosWatchStream, u16> {
        let asking = self.send(Method::GET, path, "", &Value::Null);
        let response = timeout(ANSWER, asking).await;
        let response = response.map_err(|_| 0_u16)?.map_err(|_| 0_u16)?;
        match response.status().as_u16() {
            200 => Ok(ChaosWatchStream {
                body: response.into_body(),
                read: BytesMut::new(),
                _connection: self,
            }),
            status => Err(status),
        }
    }

    async fn send(
        &mut self,
        method: Method,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> Result<Response<Incoming>, RequestFailure> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("authorization", format!("Bearer {TOKEN}"));
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        if !body.is_empty() {
            request = request.header("content-type", content_type);
        }
        self.sender.ready().await.map_err(|_| RequestFailure::Unsent)?;
        self.sender.send_request(request.body(Full::new(body)).unwrap()).await.map_err(open)
    }
}

fn open(error: hyper::Error) -> RequestFailure {
    RequestFailure::Open(error.to_string())
}

/// The events of a watch, one per line.
pub struct ChaosWatchStream {
    body: Incoming,
    read: BytesMut,
    _connection: ChaosConnection,
}

impl ChaosWatchStream {
    /// The next event; `None` when there will be none.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line = self.read.split_to(end + 1);
                return serde_json::from_slice(&line).ok();
            }
            if let Ok(data) = self.body.frame().await?.ok()?.into_data() {
                self.read.extend_from_slice(&data);
            }
        }
    }
}
