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
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The protocol of a connection.
#[derive(Clone, Copy)]
pub enum HttpProtocol {
    Http1,
    Http2,
}

/// How to reach the server and as whom. Cheap to clone.
#[derive(Clone)]
pub struct BenchClient {
    address: SocketAddr,
    http1: TlsConnector,
    http2: TlsConnector,
    /// None for who shows a certificate.
    authorization: Option<Arc<str>>,
}

impl BenchClient {
    /// Trust the CA file and present the bearer token.
    pub fn new(address: SocketAddr, ca: &Path, token: &str) -> Result<Self> {
        let ca = std::fs::read(ca).with_context(|| format!("cannot read {}", ca.display()))?;
        let client = |protocol: &[u8]| connector(&ca, None, protocol);
        Ok(Self {
            address,
            http1: client(b"http/1.1")?,
            http2: client(b"h2")?,
            authorization: Some(format!("Bearer {token}").into()),
        })
    }

    /// Trusts any certificate and presents no token: for servers on a loopback address.
    pub fn unverified(address: SocketAddr) -> Result<Self> {
        let client = |protocol: &[u8]| {
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let config = ClientConfig::builder_with_provider(provider.clone())
                .with_protocol_versions(&[&rustls::version::TLS13])?
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
                .with_no_client_auth();
            anyhow::Ok(finished(config, protocol))
        };
        let (http1, http2) = (client(b"http/1.1")?, client(b"h2")?);
        Ok(Self { address, http1, http2, authorization: None })
    }

    /// The value of the `authorization` header, if a token is presented.
    pub fn authorization(&self) -> Option<&str> {
        self.authorization.as_deref()
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The same server with another token.
    pub fn with_token(&self, token: &str) -> Self {
        Self { authorization: Some(format!("Bearer {token}").into()), ..self.clone() }
    }

    /// The same server with a certificate instead of a token, all in PEM.
    pub fn with_certificate(&self, ca: &[u8], chain: &[u8], key: &[u8]) -> Result<Self> {
        let client = |protocol: &[u8]| connector(ca, Some((chain, key)), protocol);
        let (http1, http2) = (client(b"http/1.1")?, client(b"h2")?);
        Ok(Self { address: self.address, http1, http2, authorization: None })
    }

    /// Performs the TCP and TLS handshakes without sending a request.
    pub async fn handshake(&self, protocol: HttpProtocol) -> Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let connector = match protocol {
            HttpProtocol::Http1 => &self.http1,
            HttpProtocol::Http2 => &self.http2,
        };
        let name = ServerName::from(self.address.ip());
        Ok(connector.connect(name, stream).await?)
    }

    /// Opens a new TLS connection with the given HTTP version.
    pub async fn connect(&self, protocol: HttpProtocol) -> Result<BenchConnection> {
        let stream = TokioIo::new(self.handshake(protocol).await?);
        let sender = match protocol {
            HttpProtocol::Http1 => {
                let (sender, connection) = http1::handshake(stream).await?;
                tokio::spawn(connection);
                RequestSender::Http1(sender)
            }
            HttpProtocol::Http2 => {
                let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
                tokio::spawn(connection);
                RequestSender::Http2(sender)
            }
        };
        Ok(BenchConnection {
            sender,
            host: self.address.to_string(),
            authorization: self.authorization.clone(),
        })
    }
}

/// TLS towards a server of the CA, perhaps with a certificate and its key.
fn connector(ca: &[u8], shown: Option<(&[u8], &[u8])>, protocol: &[u8]) -> Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca) {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots);
    let config = match shown {
        None => config.with_no_client_auth(),
        Some((chain, key)) => {
            let chain = CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>()?;
            config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key)?)?
        }
    };
    Ok(finished(config, protocol))
}

fn finished(mut config: ClientConfig, protocol: &[u8]) -> TlsConnector {
    config.alpn_protocols = vec![protocol.to_vec()];
    // Every handshake is a full one, as of clients that never met the server.
    config.resumption = Resumption::disabled();
    TlsConnector::from(Arc::new(config))
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
pub struct BenchConnection {
    sender: RequestSender,
    host: String,
    authorization: Option<Arc<str>>,
}

enum RequestSender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl BenchConnection {
    /// Send a request and return the answer's head with its body still to be read.
    pub async fn start(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>> {
        let media = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let mut request = Request::builder().method(method);
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", &**authorization);
        }
        if !body.is_empty() {
            request = request.header("content-type", media);
        }
        match &mut self.sender {
            RequestSender::Http1(sender) => {
                let request = request.uri(path).header("host", &self.host).body(Full::new(body))?;
                sender.ready().await?;
                Ok(sender.send_request(request).await?)
            }
            RequestSender::Http2(sender) => {
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
