//! The certificate that an argument names: by serial number, in a file, or presented by a server.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use windlass_ledger::{AuthorityId, SerialNumber};
use windlass_pki::{ForeignCertificate, parse_certificate_blocks};

/// Time for connecting to a server and for its handshake, each.
const SERVER_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest file that is read as a chain of certificates.
const MAX_FILE_BYTES: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateTarget {
    /// A certificate of the ledger; the authority is known if the argument is one that `-o name` printed.
    Serial(SerialNumber, Option<AuthorityId>),
    /// A file with a certificate, followed by its intermediates.
    File(PathBuf),
    /// A TLS server: host name or address, and port.
    Server(String, u16),
}

impl CertificateTarget {
    /// Parses an argument. A file that exists has precedence, and a name with a slash is one.
    pub fn parse(text: &str, is_file: impl Fn(&Path) -> bool) -> Result<Self> {
        if let Some(name) = text.strip_prefix("certificate/") {
            let (authority, serial) = name.split_once('-').context("must be certificate/AUTHORITY-SERIAL")?;
            return Ok(Self::Serial(serial.parse()?, Some(authority.parse()?)));
        }
        if is_file(Path::new(text)) {
            return Ok(Self::File(text.into()));
        }
        if text.contains('/') {
            bail!("{text}: no such file");
        }
        if let Some((host, port)) = server(text) {
            return Ok(Self::Server(host, port));
        }
        // `openssl x509 -serial` prints this prefix.
        let digits = text.strip_prefix("serial=").unwrap_or(text);
        match digits.parse() {
            Ok(serial) => Ok(Self::Serial(serial, None)),
            Err(_) => {
                bail!("{text:?} is no serial number in hexadecimal, no file that exists and no HOST:PORT")
            }
        }
    }

    /// Reads the chain, leaf first; `None` for a serial number.
    pub async fn load_chain(&self) -> Result<Option<Vec<ForeignCertificate>>> {
        match self {
            Self::Serial(..) => Ok(None),
            Self::File(path) => read_file(path).map(Some),
            Self::Server(host, port) => {
                let chain = request_chain(host, *port).await;
                chain.map(Some).with_context(|| format!("cannot get the certificate of {host}:{port}"))
            }
        }
    }
}

/// Parses `HOST:PORT`. Pairs of hexadecimal digits with several colons are a serial number.
fn server(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port > 0)?;
    let host = match host.strip_prefix('[') {
        Some(address) => address.strip_suffix(']')?,
        None if host.contains(':') || host.is_empty() => return None,
        None => host,
    };
    Some((host.to_owned(), port))
}

fn read_file(path: &Path) -> Result<Vec<ForeignCertificate>> {
    let shown = path.display();
    let size = std::fs::metadata(path).with_context(|| format!("cannot read {shown}"))?.len();
    if size > MAX_FILE_BYTES {
        bail!("{shown} is larger than 1 MiB");
    }
    let data = std::fs::read(path).with_context(|| format!("cannot read {shown}"))?;
    if let Ok(certificate) = ForeignCertificate::from_der(&data) {
        return Ok(vec![certificate]);
    }
    match parse_certificate_blocks(&data) {
        Ok(chain) if chain.is_empty() => bail!("{shown} has no certificate"),
        Ok(chain) => Ok(chain),
        Err(error) => bail!("{shown} has no usable certificate: {error}"),
    }
}

/// Performs a TLS handshake and returns what the server presents. Nothing is sent above it, and nothing is trusted: the
/// certificate is only looked at.
async fn request_chain(host: &str, port: u16) -> Result<Vec<ForeignCertificate>> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(UntrustedVerifier(provider)))
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).map_err(|_| anyhow!("{host:?} is no host name"))?;
    let late = || anyhow!("no response within {SERVER_TIMEOUT:?}");
    let stream = timeout(SERVER_TIMEOUT, TcpStream::connect((host, port))).await.map_err(|_| late())??;
    let handshake = TlsConnector::from(Arc::new(config)).connect(name, stream);
    let stream = timeout(SERVER_TIMEOUT, handshake).await.map_err(|_| late())??;
    let presented = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let chain = presented.iter().map(|der| ForeignCertificate::from_der(der));
    chain.collect::<Result<Vec<_>, _>>().map_err(|error| anyhow!("unusable certificate: {error}"))
}

/// Accepts every certificate whose key the server has.
#[derive(Debug)]
struct UntrustedVerifier(Arc<CryptoProvider>);

impl ServerCertVerifier for UntrustedVerifier {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_has_one_meaning() {
        let serial = |text: &str| CertificateTarget::Serial(text.parse().unwrap(), None);
        let server = |host: &str, port| CertificateTarget::Server(host.to_owned(), port);
        let named = CertificateTarget::Serial("01".parse().unwrap(), Some("0a".parse().unwrap()));
        for (text, wanted) in [
            ("4f0c9a", Some(serial("4f0c9a"))),
            ("4F:0C:9A", Some(serial("4f0c9a"))),
            ("serial=4F0C9A", Some(serial("4f0c9a"))),
            ("certificate/0a-01", Some(named)),
            ("tls.crt", Some(CertificateTarget::File("tls.crt".into()))),
            ("web.example.com:443", Some(server("web.example.com", 443))),
            ("127.0.0.1:6443", Some(server("127.0.0.1", 6443))),
            ("[::1]:6443", Some(server("::1", 6443))),
            ("localhost:0", None),
            ("localhost", None),
            ("missing/tls.crt", None),
            ("certificate/01", None),
            ("", None),
        ] {
            let found = CertificateTarget::parse(text, |path| path == Path::new("tls.crt"));
            assert_eq!(found.ok(), wanted, "{text}");
        }
    }
}
