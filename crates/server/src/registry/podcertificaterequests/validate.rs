//! Validation of pod certificate requests.

use serde_json::{Value, json};
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::names::{dns1123_subdomain, domain_prefixed_key};
use windlass_api::signer_name::{self, SignerName};

use super::key_material::KeyMaterial;
use crate::registry::object_fields::{entries, integer, non_null, text};

const UID_MAX: usize = 128;
const ANNOTATIONS_MAX: usize = 256 * 1024;
const SHORTEST_SECONDS: i64 = 60 * 60;
const LONGEST_SECONDS: i64 = 91 * 24 * 60 * 60;
const LONGEST_SECONDS_OF_KUBERNETES: i64 = 24 * 60 * 60;

pub(super) fn create(request: &Value, errors: &mut FieldErrors) {
    let spec = FieldPath::new("spec");
    let signer = text(request, "/spec/signerName");
    SignerName::parse(&spec.child("signerName"), signer, errors);
    validate_annotations(request, &spec.child("unverifiedUserAnnotations"), errors);
    for (name, uid) in
        [("podName", "podUID"), ("serviceAccountName", "serviceAccountUID"), ("nodeName", "nodeUID")]
    {
        let field = |field: &str| text(request, &format!("/spec/{field}"));
        for words in dns1123_subdomain(field(name)) {
            errors.invalid_str(&spec.child(name), field(name), &words);
        }
        if field(uid).is_empty() {
            errors.invalid_str(&spec.child(uid), "", "must not be empty");
        }
        if field(uid).len() > UID_MAX {
            errors.too_long(&spec.child(uid), UID_MAX);
        }
    }
    let path = spec.child("maxExpirationSeconds");
    let Some(seconds) = integer(request, "/spec/maxExpirationSeconds") else {
        return errors.required(&path, "must be set");
    };
    let max_seconds =
        if signer_name::is_kubernetes(signer) { LONGEST_SECONDS_OF_KUBERNETES } else { LONGEST_SECONDS };
    if !(SHORTEST_SECONDS..=max_seconds).contains(&seconds) {
        let words = format!("must be in the range [{SHORTEST_SECONDS}, {max_seconds}]");
        errors.invalid(&path, &json!(seconds), &words);
    }
    if let Some(material) = KeyMaterial::from_request(request, errors) {
        material.check(text(request, "/spec/podUID"), errors);
    }
}

/// Validates a plain update: the spec is immutable.
pub(super) fn update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    if new.get("spec") != old.get("spec") {
        errors.invalid_shown(&FieldPath::new("spec"), &shown(new), "field is immutable");
    }
}

fn validate_annotations(request: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let mut size = 0;
    for (key, value) in entries(request, "/spec/unverifiedUserAnnotations") {
        size += key.len() + value.as_str().map_or(0, str::len);
        domain_prefixed_key(path, &key.to_lowercase(), errors);
    }
    if size > ANNOTATIONS_MAX {
        errors.too_long(path, ANNOTATIONS_MAX);
    }
}

/// Formats a spec as in Kubernetes' errors: with the field names of its Go code.
fn shown(request: &Value) -> String {
    const FIELDS: [(&str, &str); 12] = [
        ("SignerName", "signerName"),
        ("PodName", "podName"),
        ("PodUID", "podUID"),
        ("ServiceAccountName", "serviceAccountName"),
        ("ServiceAccountUID", "serviceAccountUID"),
        ("NodeName", "nodeName"),
        ("NodeUID", "nodeUID"),
        ("MaxExpirationSeconds", "maxExpirationSeconds"),
        ("PKIXPublicKey", "pkixPublicKey"),
        ("ProofOfPossession", "proofOfPossession"),
        ("StubPKCS10Request", "stubPKCS10Request"),
        ("UnverifiedUserAnnotations", "unverifiedUserAnnotations"),
    ];
    let fields = FIELDS.map(|(inner, field)| {
        let value = non_null(request, &format!("/spec/{field}")).unwrap_or(&Value::Null);
        format!("\"{inner}\":{value}")
    });
    format!("{{{}}}", fields.join(","))
}
