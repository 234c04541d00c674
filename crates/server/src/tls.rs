//! TLS: the serving certificate, and client certificates that are asked for but judged later.
//!
//! A client certificate is not verified in the handshake: like kube-apiserver, a caller with an
//! unknown certificate is told 401 instead of being cut off, and the CAs can change under open
//! connections. The handshake still proves that the client holds the key.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};

/// A certificate chain and its key that TLS cannot be served with.
#[derive(Debug, thiserror::Error)]
#[error("the serving certificate cannot be used: {0}")]
pub struct Unusable(String);

/// TLS 1.2 and 1.3 with the given chain and key, HTTP/2 and HTTP/1.1.
pub fn config(chain: &[u8], key: &[u8]) -> Result<ServerConfig, Unusable> {
    let fail = |e: &dyn std::fmt::Display| Unusable(e.to_string());
    let chain = windlass_pki::pem::certificates(chain).map_err(|e| fail(&e))?;
    let block = windlass_pki::pem::private_key(key).map_err(|e| fail(&e))?;
    let key = PrivateKeyDer::try_from(block.contents.to_vec()).map_err(|e| fail(&e))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = Arc::new(AskOnly { provider: provider.clone() });
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| fail(&e))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(|e| fail(&e))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // One ticket is enough for a client to come back with; each costs a write and memory.
    config.send_tls13_tickets = 1;
    Ok(config)
}

/// Asks for a client certificate, takes any, and checks only that the client has its key.
#[derive(Debug)]
struct AskOnly {
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for AskOnly {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        // Judged per request, by the authentication stage.
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
