//! Parsing of requests and certificates, as far as the rules need it.

use time::Duration;
use windlass_pki::{
    CertificateRequest, KeyAlgorithm, RequestError, SignatureError, SubjectKey, parse_certificate_blocks,
};

/// Checks that a PKCS#10 request was parsed and is signed by its own key.
pub(super) fn verify_request(parsed: &Result<CertificateRequest, RequestError>) -> Result<(), String> {
    let request = parsed.as_ref().map_err(ToString::to_string)?;
    request.verify_signature().map_err(|error| words(error, request.public_key()))
}

/// Checks that a text contains certificates, or is empty.
pub(super) fn check_certificates(pem: &[u8]) -> Result<(), String> {
    if pem.is_empty() {
        return Ok(());
    }
    parse_certificate_blocks(pem).map(|_| ()).map_err(|error| error.to_string())
}

/// Returns the validity period of the first certificate.
pub(super) fn first_lifetime(pem: &[u8]) -> Option<Duration> {
    let certificates = parse_certificate_blocks(pem).ok()?;
    certificates.first().map(|first| first.not_after() - first.not_before())
}

/// Returns Kubernetes' error text for a signature that does not match the key; other errors have
/// separate texts.
fn words(error: SignatureError, key: &SubjectKey) -> String {
    match (error, key.algorithm()) {
        (SignatureError::Invalid, KeyAlgorithm::Ecdsa(_)) => "x509: ECDSA verification failure",
        (SignatureError::Invalid, KeyAlgorithm::Ed25519) => "x509: Ed25519 verification failure",
        (SignatureError::Invalid, KeyAlgorithm::Rsa { .. }) => "crypto/rsa: verification error",
        (error, _) => return error.to_string(),
    }
    .to_owned()
}
