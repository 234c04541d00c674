//! A plain HTTPS client: one connection is one value, and nothing is pooled or retried.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpProtocol {
    /// HTTP/1.1, one request at a time.
    Http1,
    /// HTTP/2, as most Kubernetes clients speak it.
    Http2,
}

/// How to reach a server, and as whom. Cheap to clone.
#[derive(Clone)]
pub struct HttpClient {
    address: SocketAddr,
    name: ServerName<'static>,
    /// Without ALPN, with HTTP/1.1, with HTTP/2.
    connectors: Arc<[TlsConnector; 3]>,
    /// Absent for clients with a certificate and for anonymous ones.
    authorization: Option<Arc<str>>,
}

impl HttpClient {
    /// Trusts the CAs of a PEM file and presents a bearer token. The certificate must contain the address.
    pub fn new(address: SocketAddr, ca: &Path, token: &str) -> Self {
        let ca = std::fs::read(ca).unwrap_or_else(|error| panic!("{}: {error}", ca.display()));
        Self::from_config(address, tls_config(&ca, None)).with_token(token)
    }

    /// Trusts any certificate and presents no token: only for servers on a loopback address.
    pub fn unverified(address: SocketAddr) -> Self {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            .with_no_client_auth();
        Self::from_config(address, config)
    }

    fn from_config(address: SocketAddr, mut config: ClientConfig) -> Self {
        // Every handshake is a full one, as of a client that connects for the first time.
        config.resumption = Resumption::disabled();
        let connectors = [None, Some(b"http/1.1".to_vec()), Some(b"h2".to_vec())].map(|protocol| {
            let mut config = config.clone();
            config.alpn_protocols = protocol.into_iter().collect();
            TlsConnector::from(Arc::new(config))
        });
        let (name, connectors) = (ServerName::from(address.ip()), Arc::new(connectors));
        Self { address, name, connectors, authorization: None }
    }

    /// The same server with another token.
    pub fn with_token(&self, token: &str) -> Self {
        Self { authorization: Some(format!("Bearer {token}").into()), ..self.clone() }
    }

    /// The same server with a client certificate instead of a token, all in PEM.
    pub fn with_certificate(&self, ca: &[u8], chain: &[u8], key: &[u8]) -> Self {
        Self::from_config(self.address, tls_config(ca, Some((chain, key))))
    }

    /// Requires the server's certificate to contain this IP address instead of the one connected to.
    pub fn with_server_name(self, name: IpAddr) -> Self {
        Self { name: name.into(), ..self }
    }

    /// The same credentials for another server, whose certificate must contain `localhost`.
    pub fn at(&self, address: SocketAddr) -> Self {
        Self { address, name: ServerName::try_from("localhost").unwrap(), ..self.clone() }
    }

    /// The value of the `authorization` header, if a token is presented.
    pub fn authorization(&self) -> Option<&str> {
        self.authorization.as_deref()
    }

    /// The server's URL, without a path.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Performs the TCP and TLS handshakes without ALPN, and sends nothing above them.
    pub async fn connect_tls(&self) -> Result<TlsStream<TcpStream>> {
        self.handshake(&self.connectors[0]).await
    }

    /// Performs the TCP and TLS handshakes and negotiates a protocol, without sending a request.
    pub async fn negotiate(&self, protocol: HttpProtocol) -> Result<TlsStream<TcpStream>> {
        let number = if protocol == HttpProtocol::Http1 { 1 } else { 2 };
        self.handshake(&self.connectors[number]).await
    }

    async fn handshake(&self, connector: &TlsConnector) -> Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        Ok(connector.connect(self.name.clone(), stream).await?)
    }

    /// Opens a connection with HTTP/1.1.
    pub async fn connect(&self) -> Result<HttpConnection> {
        self.connect_with(HttpProtocol::Http1).await
    }

    /// Opens a connection with the given protocol.
    pub async fn connect_with(&self, protocol: HttpProtocol) -> Result<HttpConnection> {
        let sender = match protocol {
            HttpProtocol::Http1 => {
                let stream = TokioIo::new(self.negotiate(protocol).await?);
                let (sender, connection) = http1::handshake(stream).await?;
                tokio::spawn(connection);
                RequestSender::Http1(sender)
            }
            HttpProtocol::Http2 => RequestSender::Http2(self.connect_http2().await?),
        };
        let (host, authorization) = (self.address.to_string(), self.authorization.clone());
        Ok(HttpConnection { sender, host, authorization })
    }

    /// Opens an HTTP/2 connection for requests that a test builds itself.
    pub async fn connect_http2(&self) -> Result<http2::SendRequest<Full<Bytes>>> {
        let stream = TokioIo::new(self.negotiate(HttpProtocol::Http2).await?);
        let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
        tokio::spawn(connection);
        Ok(sender)
    }

    /// Sends one request on a new connection; panics without a response.
    pub async fn request(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        let mut connection = self.connect().await.unwrap();
        connection.request(method, path, &body).await.unwrap()
    }

    /// Starts a watch on a new connection; the inner `Err` holds the status of a refusal.
    pub async fn watch(&self, path: &str) -> Result<Result<WatchStream, u16>> {
        let mut connection = self.connect().await?;
        let response = connection.start(Method::GET, path, Bytes::new()).await?;
        Ok(WatchStream::new(response))
    }
}

/// TLS towards a server of the CA, with a client certificate and its key if given.
fn tls_config(ca: &[u8], shown: Option<(&[u8], &[u8])>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    match shown {
        None => config.with_no_client_auth(),
        Some((chain, key)) => {
            let chain = CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>().unwrap();
            config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key).unwrap()).unwrap()
        }
    }
}

/// Accepts any certificate whose key the server has.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// One connection; requests on it follow each other.
pub struct HttpConnection {
    sender: RequestSender,
    host: String,
    authorization: Option<Arc<str>>,
}

enum RequestSender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl HttpConnection {
    /// Whether it can carry another request.
    pub fn is_open(&self) -> bool {
        match &self.sender {
            RequestSender::Http1(sender) => !sender.is_closed(),
            RequestSender::Http2(sender) => !sender.is_closed(),
        }
    }

    /// Waits until a request can be sent; an error says that none was.
    pub async fn ready(&mut self) -> Result<()> {
        match &mut self.sender {
            RequestSender::Http1(sender) => Ok(sender.ready().await?),
            RequestSender::Http2(sender) => Ok(sender.ready().await?),
        }
    }

    /// Sends any request; on HTTP/1.1 it must name its host itself.
    pub async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>> {
        self.ready().await?;
        match &mut self.sender {
            RequestSender::Http1(sender) => Ok(sender.send_request(request).await?),
            RequestSender::Http2(sender) => Ok(sender.send_request(request).await?),
        }
    }

    /// Sends a request and returns the response with its body unread. A body is JSON, for PATCH a merge patch.
    pub async fn start(&mut self, method: Method, path: &str, body: Bytes) -> Result<Response<Incoming>> {
        let media = match method {
            _ if body.is_empty() => "",
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        self.start_typed(method, path, media, body).await
    }

    /// As [`HttpConnection::start`], with a body of another type; an empty type is not sent.
    pub async fn start_typed(
        &mut self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>> {
        let mut request = Request::builder().method(method);
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", &**authorization);
        }
        if !content_type.is_empty() {
            request = request.header("content-type", content_type);
        }
        let request = match self.sender {
            RequestSender::Http1(_) => request.uri(path).header("host", &self.host),
            RequestSender::Http2(_) => request.uri(format!("https://{}{path}", self.host)),
        };
        self.exchange(request.body(Full::new(body))?).await
    }

    /// Sends a request with a JSON body (none when it is null) and reads a JSON response.
    pub async fn request(&mut self, method: Method, path: &str, body: &Value) -> Result<(u16, Value)> {
        let (content_type, body) = match body {
            Value::Null => ("", Bytes::new()),
            body => ("application/json", body.to_string().into()),
        };
        self.send(method, path, content_type, body).await
    }

    /// Sends a request with any body and reads a JSON response; other text becomes a string.
    pub async fn send(
        &mut self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Bytes,
    ) -> Result<(u16, Value)> {
        let response = self.start_typed(method, path, content_type, body).await?;
        let status = response.status().as_u16();
        let answer = response.into_body().collect().await?.to_bytes();
        let answer = serde_json::from_slice(&answer)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&answer).into_owned()));
        Ok((status, answer))
    }

    /// Sends a request and reads the whole response as bytes.
    pub async fn fetch(&mut self, method: Method, path: &str, body: Bytes) -> Result<(StatusCode, Bytes)> {
        let response = self.start(method, path, body).await?;
        let status = response.status();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }

    /// Sends a request that must succeed, and returns the body of the response.
    pub async fn expect(&mut self, method: Method, path: &str, body: Bytes) -> Result<Bytes> {
        let (status, answer) = self.fetch(method.clone(), path, body).await?;
        let start = String::from_utf8_lossy(&answer[..answer.len().min(500)]).into_owned();
        ensure!(status.is_success(), "{method} {path}: {status}: {start}");
        Ok(answer)
    }
}

/// The events of a watch, one per line.
pub struct WatchStream {
    body: Incoming,
    read: BytesMut,
}

impl WatchStream {
    /// Reads a response as events; `Err` holds the status if it is not 200.
    pub fn new(response: Response<Incoming>) -> Result<Self, u16> {
        match response.status().as_u16() {
            200 => Ok(Self { body: response.into_body(), read: BytesMut::new() }),
            refused => Err(refused),
        }
    }

    /// The next event; `None` when the server ended the watch in good order.
    pub async fn next(&mut self) -> Result<Option<Value>> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line = self.read.split_to(end + 1);
                return Ok(Some(serde_json::from_slice(&line).context("an event is not JSON")?));
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            if let Ok(data) = frame?.into_data() {
                self.read.extend_from_slice(&data);
            }
        }
    }
}
