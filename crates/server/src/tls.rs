//! TLS: the serving certificate, and client certificates that are requested but verified later.
//!
//! A client certificate is not verified in the handshake: like kube-apiserver, the server responds
//! 401 to an unknown certificate instead of closing the connection, and the CAs can change while
//! connections are open. The handshake still proves possession of the key.
//!
//! rustls parses certificates of version 3 only; kube-apiserver accepts versions 1 and 2 as well.
//! For these, the key is parsed here, and the handshake signature is verified with the same
//! algorithms.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    AlertDescription, CertificateError, DigitallySignedStruct, DistinguishedName, PeerMisbehaved,
    ServerConfig, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, SubjectPublicKeyInfoDer, UnixTime};
use webpki::{EndEntityCert, RawPublicKeyEntity};
use windlass_pki::Certificate;

use crate::limits;
use crate::rate_limit::RateLimit;

/// An unusable serving certificate chain or key.
#[derive(Debug, thiserror::Error)]
#[error("serving certificate rejected: {0}")]
pub struct ServingCertificateError(String);

/// Configures TLS 1.2 and 1.3 with the given chain and key, and ALPN for HTTP/2 and HTTP/1.1.
pub fn tls_config(chain: &[u8], key: &[u8]) -> Result<ServerConfig, ServingCertificateError> {
    let fail = |e: &dyn std::fmt::Display| ServingCertificateError(e.to_string());
    let chain = windlass_pki::pem::certificates(chain).map_err(|e| fail(&e))?;
    let block = windlass_pki::pem::private_key(key).map_err(|e| fail(&e))?;
    let key = PrivateKeyDer::try_from(block.contents.to_vec()).map_err(|e| fail(&e))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = Arc::new(AnyClientCertVerifier { provider: provider.clone() });
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| fail(&e))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(|e| fail(&e))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // One ticket suffices for a client to resume; each costs a write and memory.
    config.send_tls13_tickets = 1;
    Ok(config)
}

/// Logs failed handshakes. Those caused by a certificate deserve an operator's attention, but
/// anybody can cause them: only some are logged above the debug level.
pub(crate) struct HandshakeLog(RateLimit);

impl Default for HandshakeLog {
    fn default() -> HandshakeLog {
        HandshakeLog(RateLimit::new(limits::HANDSHAKE_LOG_BURST, limits::HANDSHAKE_LOG_RATE))
    }
}

impl HandshakeLog {
    /// Logs a failed TLS handshake, rate-limited above the debug level.
    pub(crate) fn report(&self, address: SocketAddr, error: &io::Error) {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
        match cause.and_then(certificate_failure) {
            None => tracing::debug!(%address, %error, "TLS handshake failed"),
            Some(what) => match self.0.admit(1, Instant::now()) {
                Some(suppressed) => {
                    tracing::info!(%address, %error, suppressed, "TLS handshake failed: {what}");
                }
                None => tracing::debug!(%address, %error, "TLS handshake failed: {what}"),
            },
        }
    }
}

/// Describes the certificate error that caused a handshake to fail, if any.
fn certificate_failure(error: &rustls::Error) -> Option<&'static str> {
    use AlertDescription::{
        BadCertificate, CertificateExpired, CertificateRevoked, CertificateUnknown, UnknownCA,
        UnsupportedCertificate,
    };
    match error {
        rustls::Error::InvalidCertificate(_)
        | rustls::Error::PeerMisbehaved(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme) => {
            Some("client certificate rejected")
        }
        rustls::Error::AlertReceived(
            BadCertificate
            | CertificateExpired
            | CertificateRevoked
            | CertificateUnknown
            | UnknownCA
            | UnsupportedCertificate,
        ) => Some("client rejected the serving certificate"),
        _ => None,
    }
}

/// Returns the key of a version 1 or 2 certificate; `None` for version 3.
fn old_key(
    certificate: &CertificateDer<'_>,
) -> Result<Option<SubjectPublicKeyInfoDer<'static>>, rustls::Error> {
    match EndEntityCert::try_from(certificate) {
        Err(webpki::Error::UnsupportedCertVersion) => {}
        Ok(_) | Err(_) => return Ok(None),
    }
    let certificate = Certificate::from_der(certificate)
        .map_err(|_| rustls::Error::InvalidCertificate(CertificateError::BadEncoding))?;
    Ok(Some(certificate.public_key().as_der().to_vec().into()))
}

/// Like [`rustls::crypto::verify_tls12_signature`], which supports certificates only.
fn verify_tls12_with_key(
    message: &[u8],
    key: &SubjectPublicKeyInfoDer<'_>,
    signed: &DigitallySignedStruct,
    supported: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, rustls::Error> {
    let bad = |error| rustls::Error::InvalidCertificate(error);
    let key = RawPublicKeyEntity::try_from(key).map_err(|_| bad(CertificateError::BadEncoding))?;
    let mut mapped = supported.mapping.iter().filter(|(scheme, _)| *scheme == signed.scheme);
    let (_, algorithms) = mapped.next().ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
    // In TLS 1.2 a signature scheme does not determine the curve.
    let verified = algorithms
        .iter()
        .any(|algorithm| key.verify_signature(*algorithm, message, signed.signature()).is_ok());
    if verified { Ok(HandshakeSignatureValid::assertion()) } else { Err(bad(CertificateError::BadSignature)) }
}

/// Requests a client certificate, accepts any, and verifies only possession of its key.
#[derive(Debug)]
struct AnyClientCertVerifier {
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for AnyClientCertVerifier {
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
        // Verified per request, by the authentication stage.
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        match old_key(certificate)? {
            Some(key) => verify_tls12_with_key(message, &key, signed, algorithms),
            None => rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        match old_key(certificate)? {
            Some(key) => verify_tls13_signature_with_raw_key(message, &key, signed, algorithms),
            None => rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
