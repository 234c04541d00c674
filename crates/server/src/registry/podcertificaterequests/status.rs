//! Validation of status updates.
//!
//! A request is decided once. Denied and failed requests contain only the condition; an issued one
//! contains a chain whose first certificate is the requested one.

use serde_json::Value;
use time::OffsetDateTime;
use windlass_api::conditions::validate_conditions;
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_pki::IssuedChain;
use windlass_pki::limits::MAX_CHAIN_BYTES;

use super::certificate_times::CertificateTimes;
use super::key_material::{KeyMaterial, refuse};
use super::{DENIED, FAILED, ISSUED, has_condition};
use crate::registry::object_fields::{list, non_null, text};

pub(super) fn update(new: &Value, old: &Value, now: OffsetDateTime, errors: &mut FieldErrors) {
    // Metadata errors are reported alone.
    if !errors.is_empty() {
        return;
    }
    validate_types(new, errors);
    let conditions = new.pointer("/status/conditions").unwrap_or(&Value::Null);
    validate_conditions(&FieldPath::new("status").child("conditions"), conditions, errors);
    // The conditions decide which rules apply to the rest.
    if !errors.is_empty() {
        return;
    }
    let is_settled = |object| [ISSUED, DENIED, FAILED].iter().any(|kind| has_condition(object, kind));
    let (status, unchanged) = (FieldPath::new("status"), new.get("status") == old.get("status"));
    if is_settled(old) {
        if !unchanged {
            let words = "immutable after PodCertificateRequest is issued, denied, or failed";
            refuse(&status, words, errors);
        }
    } else if has_condition(new, DENIED) || has_condition(new, FAILED) {
        const REST: [&str; 4] = ["certificateChain", "notBefore", "beginRefreshAt", "notAfter"];
        let is_given = |field| non_null(new, &format!("/status/{field}")).is_some_and(|v| v != "");
        if REST.iter().any(is_given) {
            let words = "non-condition status fields must be empty when denying or failing the \
                         PodCertificateRequest";
            refuse(&status, words, errors);
        }
    } else if has_condition(new, ISSUED) {
        validate_issued(new, now, errors);
    } else if !unchanged {
        let words = "status is immutable unless transitioning to \"Issued\", \"Denied\", or \"Failed\"";
        refuse(&status, words, errors);
    }
}

/// Allows one of three condition types, with status True.
fn validate_types(new: &Value, errors: &mut FieldErrors) {
    let mut known = 0;
    for (i, condition) in list(new, "/status/conditions").iter().enumerate() {
        // The dot before the bracket is Kubernetes' spelling.
        let path = FieldPath::new("status").child("conditions").child(&format!("[{i}]"));
        let (kind, status) = (text(condition, "/type"), text(condition, "/status"));
        if ![ISSUED, DENIED, FAILED].contains(&kind) {
            errors.not_supported(&path.child("type"), kind, &[ISSUED, DENIED, FAILED]);
            continue;
        }
        known += 1;
        if known > 1 {
            let words = "There may be at most one condition with type \"Issued\", \"Denied\", or \"Failed\"";
            errors.invalid_str(&path.child("type"), kind, words);
        }
        if status != "True" {
            errors.not_supported(&path.child("status"), status, &["True"]);
        }
    }
}

/// Validates the certificates of an issued request and the times in the status.
fn validate_issued(new: &Value, now: OffsetDateTime, errors: &mut FieldErrors) {
    let path = FieldPath::new("status").child("certificateChain");
    let text = text(new, "/status/certificateChain");
    if text.len() > MAX_CHAIN_BYTES {
        return errors.too_long(&path, MAX_CHAIN_BYTES);
    }
    let chain = match IssuedChain::parse(text) {
        Ok(chain) => chain,
        Err(error) => return errors.invalid_str(&path, text, &error.to_string()),
    };
    for (name, fault) in chain.leaf_faults() {
        errors.invalid_str(&path, name, &fault.to_string());
    }
    let Some(key) = KeyMaterial::from_request(new, errors).and_then(|m| m.key(errors)) else {
        return;
    };
    if !chain.is_for_key(&key) {
        let words = "leaf certificate was not issued to the requested public key";
        return errors.invalid_str(&path, text, words);
    }
    let times = CertificateTimes::from_request(new, errors);
    // Stops here if a name is wrong or a time is missing.
    let Some(times) = times.filter(|_| errors.is_empty()) else { return };
    times.check(chain.leaf(), now, errors);
    if errors.is_empty()
        && let Err(error) = chain.check_rest()
    {
        errors.invalid_str(&path, text, &error.to_string());
    }
}
