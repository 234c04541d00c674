//! A plain HTTPS client: one connection is one value, nothing is retried.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Any failure of a connection; a killed server makes all kinds of them.
pub type BoxedError = Box<dyn std::error::Error + Send + Sync>;

/// How to reach a server, and as whom.
#[derive(Clone)]
pub struct HttpClient {
    address: SocketAddr,
    /// IP address that the server's certificate must contain.
    name: IpAddr,
    connector: TlsConnector,
    authorization: Arc<str>,
}

impl HttpClient {
    pub fn new(address: SocketAddr, ca: &Path, token: &str) -> Self {
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
        Self {
            address,
            name: address.ip(),
            connector: TlsConnector::from(Arc::new(config)),
            authorization: format!("Bearer {token}").into(),
        }
    }

    /// As if the address were this one.
    pub fn with_server_name(self, name: IpAddr) -> Self {
        Self { name, ..self }
    }

    /// TLS and nothing above it.
    pub async fn connect_tls(&self) -> Result<TlsStream<TcpStream>, BoxedError> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::from(self.name);
        Ok(self.connector.connect(name, stream).await?)
    }

    pub async fn connect(&self) -> Result<HttpConnection, BoxedError> {
        let (sender, connection) =
            http1::handshake(TokioIo::new(self.connect_tls().await?)).await?;
        tokio::spawn(connection);
        Ok(HttpConnection {
            sender,
            host: self.address.to_string(),
            authorization: self.authorization.clone(),
        })
    }

    /// A connection of HTTP/2, as most clients of Kubernetes make.
    pub async fn connect_http2(&self) -> Result<http2::SendRequest<Full<Bytes>>, BoxedError> {
        let io = TokioIo::new(self.connect_tls().await?);
        let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
        tokio::spawn(connection);
        Ok(sender)
    }

    /// One request on a connection of its own, that must be answered.
    pub async fn request(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        let mut connection = self.connect().await.unwrap();
        connection.request(method, path, &body).await.unwrap()
    }

    /// A watch on a connection of its own; `Err` holds the status of a refusal.
    pub async fn watch(&self, path: &str) -> Result<Result<WatchStream, u16>, BoxedError> {
        let mut connection = self.connect().await?;
        let response = connection.start(Method::GET, path, "", Bytes::new()).await?;
        if response.status() != 200 {
            return Ok(Err(response.status().as_u16()));
        }
        Ok(Ok(WatchStream { body: response.into_body(), read: BytesMut::new() }))
    }
}

pub struct HttpConnection {
    sender: http1::SendRequest<Full<Bytes>>,
    host: String,
    authorization: Arc<str>,
}

impl HttpConnection {
    /// Any request at all; it must name its host itself.
    pub async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, BoxedError> {
        self.sender.ready().await?;
        Ok(self.sender.send_request(request).await?)
    }

    async fn start(
        &mut self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>, BoxedError> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.host)
            .header("authorization", &*self.authorization);
        if !content_type.is_empty() {
            request = request.header("content-type", content_type);
        }
        self.exchange(request.body(Full::new(body))?).await
    }

    /// A request with a JSON body (none when it is null) and a JSON answer.
    pub async fn request(
        &mut self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<(u16, Value), BoxedError> {
        let (content_type, body) = if body.is_null() {
            ("", Bytes::new())
        } else {
            ("application/json", body.to_string().into())
        };
        self.send(method, path, content_type, body).await
    }

    /// A request with any body and a JSON answer; other text is a string.
    pub async fn send(
        &mut self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Bytes,
    ) -> Result<(u16, Value), BoxedError> {
        let response = self.start(method, path, content_type, body).await?;
        let status = response.status().as_u16();
        let answer = response.into_body().collect().await?.to_bytes();
        let answer = serde_json::from_slice(&answer)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&answer).into_owned()));
        Ok((status, answer))
    }
}

/// The events of a watch, one per line.
pub struct WatchStream {
    body: Incoming,
    read: BytesMut,
}

impl WatchStream {
    /// The next event; `None` when the server ended the watch in good order.
    pub async fn next(&mut self) -> Result<Option<Value>, BoxedError> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line = self.read.split_to(end + 1);
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            let Some(frame) = self.body.frame().await else {
                return Ok(None);
            };
            if let Ok(data) = frame?.into_data() {
                self.read.extend_from_slice(&data);
            }
        }
    }
}
