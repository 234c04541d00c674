//! Validation of certificate signing requests.
//!
//! Objects that an older server accepted may stay: an update is only rejected for what was valid
//! before.

use std::collections::HashSet;

use serde_json::{Value, json};
use windlass_api::field::{FieldErrors, FieldPath, quote};
use windlass_api::signer_name::SignerName;

use super::{APPROVED, CsrParser, DENIED, FAILED, REQUEST, x509};
use crate::registry::object_fields::{bytes, count, integer, list, non_null, text, texts};

const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
const SHORTEST_SECONDS: i64 = 600;

/// Key usages, in the order in which an error lists them.
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// Endpoint through which a change is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CsrEndpoint {
    Main,
    Approval,
    Status,
}

/// Checks the PKCS#10 request in a new object and its signature.
pub(super) fn csr(request: &Value, parser: &CsrParser, errors: &mut FieldErrors) {
    if let Err(why) = x509::verify_request(&parser.parse(request)) {
        let shown = request.pointer(REQUEST).unwrap_or(&Value::Null);
        errors.invalid(&FieldPath::new("spec").child("request"), shown, &why);
    }
}

/// The rules of a new request, apart from the PKCS#10 request in it.
pub(super) fn create(request: &Value, errors: &mut FieldErrors) {
    validate(request, None, errors);
    validate_decision(request, None, errors);
}

/// Validates a plain update of a request.
pub(super) fn update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    change(new, old, CsrEndpoint::Main, errors);
}

/// Validates an approval or a denial.
pub(super) fn approval(new: &Value, old: &Value, errors: &mut FieldErrors) {
    change(new, old, CsrEndpoint::Approval, errors);
}

/// Validates a status update by a signer.
pub(super) fn status(new: &Value, old: &Value, errors: &mut FieldErrors) {
    change(new, old, CsrEndpoint::Status, errors);
}

fn change(new: &Value, old: &Value, door: CsrEndpoint, errors: &mut FieldErrors) {
    validate(new, Some(old), errors);
    validate_conditions_change(new, old, door, errors);
    if non_null(new, "/status/certificate") != non_null(old, "/status/certificate") {
        let path = FieldPath::new("status").child("certificate");
        if door != CsrEndpoint::Status {
            errors.forbidden(&path, "updates may not set certificate content");
        } else if !text(old, "/status/certificate").is_empty() {
            errors.forbidden(&path, "updates may not modify existing certificate content");
        }
    }
    // Kubernetes checks this separately, after the other rules.
    validate_decision(new, Some(old), errors);
}

fn validate(new: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    let spec = FieldPath::new("spec");
    // Verifying a signature costs more than all other rules: an unchanged request is not verified again.
    if old.is_some_and(|old| old.pointer(REQUEST) != new.pointer(REQUEST)) {
        csr(new, &CsrParser::default(), errors);
    }
    validate_usages(new, old, &spec.child("usages"), errors);
    let (path, signer) = (spec.child("signerName"), text(new, "/spec/signerName"));
    let was_legacy = old.is_some_and(|old| text(old, "/spec/signerName") == LEGACY_SIGNER);
    if signer == LEGACY_SIGNER && !was_legacy {
        let words = "the legacy signerName is not allowed via this API version";
        errors.invalid_str(&path, signer, words);
    } else {
        SignerName::parse(&path, signer, errors);
    }
    if let Some(seconds) = integer(new, "/spec/expirationSeconds")
        && seconds < SHORTEST_SECONDS
    {
        let words = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.invalid(&spec.child("expirationSeconds"), &json!(seconds), words);
    }
    validate_conditions(new, old, errors);
    validate_certificate(new, old, errors);
}

fn validate_usages(new: &Value, old: Option<&Value>, path: &FieldPath, errors: &mut FieldErrors) {
    const AT: &str = "/spec/usages";
    if count(new, AT) == 0 {
        errors.required(path, "");
    }
    let unknown = |usage: &str| !USAGES.contains(&usage);
    if !old.is_some_and(|old| texts(old, AT).any(unknown)) {
        for (i, usage) in texts(new, AT).enumerate().filter(|(_, usage)| unknown(usage)) {
            errors.not_supported(&path.index(i), usage, &USAGES);
        }
    }
    if !old.is_some_and(|old| repeats(texts(old, AT))) {
        let mut seen = HashSet::new();
        for (i, usage) in texts(new, AT).enumerate().filter(|(_, usage)| !seen.insert(*usage)) {
            errors.duplicate(&path.index(i), &json!(usage));
        }
    }
}

fn validate_conditions(new: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    let path = FieldPath::new("status").child("conditions");
    let nameless_before = old.is_some_and(|old| types(old).any(str::is_empty));
    let repeated_before = old.is_some_and(|old| repeats(types(old)));
    let mut seen = HashSet::new();
    for (i, condition) in list(new, "/status/conditions").iter().enumerate() {
        let path = path.index(i);
        let (kind, status) = (text(condition, "/type"), text(condition, "/status"));
        if kind.is_empty() && !nameless_before {
            errors.required(&path.child("type"), "");
        }
        let allowed: &[&str] = match kind {
            APPROVED | DENIED | FAILED => &["True"],
            _ => &["False", "True", "Unknown"],
        };
        if status.is_empty() {
            errors.required(&path.child("status"), "");
        } else if !allowed.contains(&status) {
            errors.not_supported(&path.child("status"), status, allowed);
        }
        if !seen.insert(kind) && !repeated_before {
            errors.duplicate(&path.child("type"), &json!(kind));
        }
    }
}

fn validate_certificate(new: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    const AT: &str = "/status/certificate";
    let tolerated = old.is_some_and(|old| {
        non_null(new, AT) == non_null(old, AT) || x509::check_certificates(&bytes(old, AT)).is_err()
    });
    if !tolerated && let Err(why) = x509::check_certificates(&bytes(new, AT)) {
        let path = FieldPath::new("status").child("certificate");
        errors.invalid_str(&path, "<certificate data>", &why);
    }
}

/// Decisions are permanent; only `/approval` makes them.
fn validate_conditions_change(new: &Value, old: &Value, door: CsrEndpoint, errors: &mut FieldErrors) {
    let path = FieldPath::new("status").child("conditions");
    let of = |object, kind| -> Vec<&Value> {
        list(object, "/status/conditions").iter().filter(|c| c["type"] == kind).collect()
    };
    for kind in [APPROVED, DENIED, FAILED] {
        if of(new, kind).len() < of(old, kind).len() {
            let words = format!("updates may not remove a condition of type {}", quote(kind));
            errors.forbidden(&path, &words);
        }
    }
    if door == CsrEndpoint::Approval {
        return;
    }
    for kind in [APPROVED, DENIED] {
        let (new, old) = (of(new, kind), of(old, kind));
        let verb = if new.len() > old.len() {
            "add"
        } else if new.len() == old.len() && new != old {
            "modify"
        } else {
            continue;
        };
        let words = format!("updates may not {verb} a condition of type {}", quote(kind));
        errors.forbidden(&path, &words);
    }
}

/// Rejects a request that is both approved and denied.
fn validate_decision(new: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    let both = |object| [APPROVED, DENIED].iter().all(|kind| types(object).any(|t| t == *kind));
    if !both(new) || old.is_some_and(both) {
        return;
    }
    let shown = r#"{conditions[{"type": "Approved"}], conditions[{"type": "Denied"}]}"#;
    let words = "must specify at most one of: `conditions[{\"type\": \"Approved\"}]`, \
                 `conditions[{\"type\": \"Denied\"}]`";
    errors.invalid_str(&FieldPath::new("status").child("conditions"), shown, words);
}

fn types(object: &Value) -> impl Iterator<Item = &str> {
    list(object, "/status/conditions").iter().map(|condition| text(condition, "/type"))
}

fn repeats<'a>(mut values: impl Iterator<Item = &'a str>) -> bool {
    let mut seen = HashSet::new();
    values.any(|value| !seen.insert(value))
}
