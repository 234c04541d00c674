//! Public key of a request, and the proof of possession.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_pki::{CertificateRequest, PodKeyError, SubjectKey};

use crate::registry::object_fields::bytes;

const MAX_BYTES: usize = 10 * 1024;

const STUB: &str = "stubPKCS10Request";
const KEY: &str = "pkixPublicKey";
const PROOF: &str = "proofOfPossession";

/// A key with its proof of possession, in one of two forms.
pub(super) enum KeyMaterial {
    /// PKCS#10 request whose signature is the proof.
    Stub(Vec<u8>),
    /// A key and a signature over the pod's UID.
    Pair {
        /// Public key as DER-encoded SubjectPublicKeyInfo.
        key: Vec<u8>,
        /// Signature over the pod's UID, made with the private key.
        proof: Vec<u8>,
    },
}

impl KeyMaterial {
    /// Parses the key material; exactly one of the two forms is required.
    pub(super) fn from_request(request: &Value, errors: &mut FieldErrors) -> Option<KeyMaterial> {
        let [stub, key, proof] = [STUB, KEY, PROOF].map(|f| bytes(request, &format!("/spec/{f}")));
        match (stub.is_empty(), key.is_empty(), proof.is_empty()) {
            (false, true, true) => Some(KeyMaterial::Stub(stub)),
            (true, false, false) => Some(KeyMaterial::Pair { key, proof }),
            _ => {
                let words = "exactly one of (stubPKCS10Request) or (pkixPublicKey, \
                             proofOfPossession) must be set";
                refuse(&FieldPath::new("spec"), words, errors);
                None
            }
        }
    }

    /// Verifies the key and the proof; reports only the first violation.
    pub(super) fn check(&self, pod_uid: &str, errors: &mut FieldErrors) {
        match self {
            KeyMaterial::Stub(stub) => {
                if !validate_length(STUB, stub, errors) {
                    return;
                }
                let Some(request) = parse_stub(stub, errors) else { return };
                if is_allowed(STUB, request.public_key(), errors) && request.verify_signature().is_err() {
                    refuse(&spec_path(STUB), "could not verify PKCS#10 CSR signature", errors);
                }
            }
            KeyMaterial::Pair { key, proof } => {
                if !validate_length(KEY, key, errors) || !validate_length(PROOF, proof, errors) {
                    return;
                }
                let Some(key) = parse_key(key, errors) else { return };
                if is_allowed(KEY, &key, errors) && key.verify_possession(pod_uid.as_bytes(), proof).is_err()
                {
                    let words = "could not verify proof-of-possession signature";
                    refuse(&spec_path(PROOF), words, errors);
                }
            }
        }
    }

    /// Returns the public key; adds an error and returns `None` if it cannot be parsed.
    pub(super) fn key(&self, errors: &mut FieldErrors) -> Option<SubjectKey> {
        match self {
            KeyMaterial::Stub(stub) => parse_stub(stub, errors).map(|request| request.public_key().clone()),
            KeyMaterial::Pair { key, .. } => parse_key(key, errors),
        }
    }
}

/// Reports an error without showing the value.
pub(super) fn refuse(path: &FieldPath, words: &str, errors: &mut FieldErrors) {
    errors.invalid_shown(path, words, "");
}

fn spec_path(field: &str) -> FieldPath {
    FieldPath::new("spec").child(field)
}

fn validate_length(field: &str, bytes: &[u8], errors: &mut FieldErrors) -> bool {
    let is_short = bytes.len() <= MAX_BYTES;
    if !is_short {
        errors.too_long(&spec_path(field), MAX_BYTES);
    }
    is_short
}

fn parse_stub(stub: &[u8], errors: &mut FieldErrors) -> Option<CertificateRequest> {
    let request = CertificateRequest::from_der(stub).ok();
    if request.is_none() {
        refuse(&spec_path(STUB), "must be a valid PKCS#10 CSR", errors);
    }
    request
}

fn parse_key(der: &[u8], errors: &mut FieldErrors) -> Option<SubjectKey> {
    let key = SubjectKey::from_der(der).ok();
    if key.is_none() {
        let words = "must be a valid PKIX-serialized public key";
        errors.invalid_str(&spec_path(KEY), &STANDARD.encode(der), words);
    }
    key
}

/// Returns true if pods may have such a key.
fn is_allowed(field: &str, key: &SubjectKey, errors: &mut FieldErrors) -> bool {
    let (shown, words) = match key.pod_key_type() {
        Ok(_) => return true,
        Err(PodKeyError::Modulus { bits }) => {
            (format!("{bits}-bit modulus"), "RSA keys must have modulus size 3072 or 4096")
        }
        // The third curve is allowed too; the wording is Kubernetes'.
        Err(PodKeyError::Curve(curve)) => {
            (format!("curve {}", curve.name()), "elliptic public keys must use curve P256 or P384")
        }
        Err(PodKeyError::Algorithm) => (
            STANDARD.encode(key.as_der()),
            "unknown public key type; supported types are Ed25519, ECDSA, and RSA",
        ),
    };
    errors.invalid_str(&spec_path(field), &shown, words);
    false
}
