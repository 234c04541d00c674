//! A small HTTPS client: one connection is one value, and nothing is pooled or retried.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::client::Resumption;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The protocol of a connection.
#[derive(Clone, Copy)]
pub enum Protocol {
    /// HTTP/1.1 with keep-alive.
    Http1,
    /// HTTP/2.
    Http2,
}

/// How to reach the server and as whom. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    address: SocketAddr,
    http1: TlsConnector,
    http2: TlsConnector,
    authorization: Arc<str>,
}

impl Client {
    /// Trust the CA file and present the bearer token.
    pub fn new(address: SocketAddr, ca: &Path, token: &str) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(ca)
            .with_context(|| format!("cannot read {}", ca.display()))?
        {
            roots.add(certificate?)?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let connector = |protocol: &[u8]| -> Result<TlsConnector> {
            let mut config = ClientConfig::builder_with_provider(provider.clone())
                .with_protocol_versions(&[&rustls::version::TLS13])?
                .with_root_certificates(roots.clone())
                .with_no_client_auth();
            config.alpn_protocols = vec![protocol.to_vec()];
            // Every handshake is a full one, as of clients that never met the server.
            config.resumption = Resumption::disabled();
            Ok(TlsConnector::from(Arc::new(config)))
        };
        Ok(Self {
            address,
            http1: connector(b"http/1.1")?,
            http2: connector(b"h2")?,
            authorization: format!("Bearer {token}").into(),
        })
    }

    /// TCP and TLS only.
    pub async fn handshake(&self, protocol: Protocol) -> Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let connector = match protocol {
            Protocol::Http1 => &self.http1,
            Protocol::Http2 => &self.http2,
        };
        let name = ServerName::from(self.address.ip());
        Ok(connector.connect(name, stream).await?)
    }

    /// A new connection.
    pub async fn connect(&self, protocol: Protocol) -> Result<Connection> {
        let stream = TokioIo::new(self.handshake(protocol).await?);
        let sender = match protocol {
            Protocol::Http1 => {
                let (sender, connection) = http1::handshake(stream).await?;
                tokio::spawn(connection);
                Sender::Http1(sender)
            }
            Protocol::Http2 => {
                let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
                tokio::spawn(connection);
                Sender::Http2(sender)
            }
        };
        Ok(Connection {
            sender,
            host: self.address.to_string(),
            authorization: self.authorization.clone(),
        })
    }
}

/// One connection; requests on it follow each other.
pub struct Connection {
    sender: Sender,
    host: String,
    authorization: Arc<str>,
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    /// Send a request and return the answer's head with its body still to be read.
    pub async fn start(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>> {
        let mut request =
            Request::builder().method(method).header("authorization", &*self.authorization);
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        match &mut self.sender {
            Sender::Http1(sender) => {
                let request = request.uri(path).header("host", &self.host).body(Full::new(body))?;
                sender.ready().await?;
                Ok(sender.send_request(request).await?)
            }
            Sender::Http2(sender) => {
                let request =
                    request.uri(format!("https://{}{path}", self.host)).body(Full::new(body))?;
                sender.ready().await?;
                Ok(sender.send_request(request).await?)
            }
        }
    }

    /// Send a request and read the whole answer.
    pub async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes)> {
        let response = self.start(method, path, body).await?;
        let status = response.status();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }

    /// Send a request that must succeed.
    pub async fn expect(&mut self, method: Method, path: &str, body: Bytes) -> Result<Bytes> {
        let (status, answer) = self.send(method.clone(), path, body).await?;
        ensure!(
            status.is_success(),
            "{method} {path}: {status}: {}",
            String::from_utf8_lossy(&answer[..answer.len().min(500)])
        );
        Ok(answer)
    }
}
