//! Rules for Signers that the schema cannot express.

use std::time::Duration;

use serde_json::Value;

use super::{AUTHORITY_PLACEHOLDER, MANAGED_BY_LABEL, RESOURCE};
use crate::conditions::validate_conditions;
use crate::duration;
use crate::field::{FieldErrors, FieldPath};
use crate::meta::validate_labels;
use crate::schema::{Schema, ValidationStyle};
use crate::selector::labels::validate_label_selector;
use crate::signer_name::is_kubernetes;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// Validity of a generated CA without a `duration`.
const DEFAULT_CA_DURATION: Duration = Duration::from_secs(3650 * DAY);

/// Attributes of PKCS#11 URIs that would let an object load a library or read a file of the controllers.
const RESERVED_ATTRIBUTES: [&str; 4] = ["module-path", "module-name", "pin-source", "pin-value"];

/// Validates a Signer before it is stored: against the schema and, if that passes, the rules.
pub fn validate(object: &Value, errors: &mut FieldErrors) {
    Schema::get().validate(RESOURCE.type_id(), ValidationStyle::BuiltIn, object, errors);
    if errors.is_empty() {
        validate_spec(&FieldPath::new("spec"), &object["spec"], errors);
    }
}

/// Validates an update: the rules of a new object, and the name of the signer is immutable.
pub fn validate_update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    validate(new, errors);
    let name = |object: &Value| object["spec"]["signerName"].clone();
    if name(new) != name(old) {
        let path = FieldPath::new("spec").child("signerName");
        errors.invalid(&path, &name(new), "field is immutable");
    }
}

/// Validates the status that a controller writes.
pub fn validate_status(object: &Value, errors: &mut FieldErrors) {
    Schema::get().validate(RESOURCE.type_id(), ValidationStyle::BuiltIn, object, errors);
    if errors.is_empty() {
        let path = FieldPath::new("status").child("conditions");
        validate_conditions(&path, &object["status"]["conditions"], errors);
    }
}

fn validate_spec(path: &FieldPath, spec: &Value, errors: &mut FieldErrors) {
    let name = text(spec, "signerName");
    if is_kubernetes(name) {
        let detail = "is reserved for Kubernetes; use a domain other than kubernetes.io";
        errors.invalid_str(&path.child("signerName"), name, detail);
    }
    validate_ca(&path.child("ca"), &spec["ca"], name, errors);
    validate_requests(&path.child("requests"), &spec["requests"], errors);
    validate_pods(&path.child("pods"), &spec["pods"], errors);
    validate_publication(&path.child("publish"), &spec["publish"], errors);
    let at = path.child("intermediates");
    check_minimum(&at, &spec["intermediates"], "maxDuration", DAY, errors);
    validate_crl(&path.child("crl"), &spec["crl"], errors);
}

fn validate_publication(path: &FieldPath, publication: &Value, errors: &mut FieldErrors) {
    let canary = &publication["canary"];
    for (at, labels) in [(path.clone(), &publication["labels"]), (path.child("canary"), &canary["labels"])] {
        let at = at.child("labels");
        if labels.get(MANAGED_BY_LABEL).is_some() {
            errors.forbidden(&at.key(MANAGED_BY_LABEL), "is set by the controllers");
        }
        validate_labels(&at, labels, errors);
    }
    let name = |section: &Value, default: &str| section["name"].as_str().unwrap_or(default).to_owned();
    let canary_name = name(canary, "canary");
    if canary.is_object() && canary_name == name(publication, "anchors") {
        let detail = "is the name of the signer's other bundle";
        errors.invalid_str(&path.child("canary").child("name"), &canary_name, detail);
    }
}

fn validate_ca(path: &FieldPath, ca: &Value, signer_name: &str, errors: &mut FieldErrors) {
    check_minimum(path, ca, "duration", DAY, errors);
    if ca["issuerSignerName"] == signer_name {
        let detail = "may not be the signer itself";
        errors.invalid_str(&path.child("issuerSignerName"), signer_name, detail);
    }
    let (at, self_signed) = (path.child("selfSigned"), &ca["selfSigned"]);
    check_minimum(&at, self_signed, "duration", DAY, errors);
    let validity = read_duration(self_signed, "duration").unwrap_or(DEFAULT_CA_DURATION);
    if read_duration(self_signed, "renewBefore").is_some_and(|before| before >= validity) {
        let shown = text(self_signed, "renewBefore");
        errors.invalid_str(&at.child("renewBefore"), shown, "must be shorter than duration");
    }
    let (at, uri) = (path.child("pkcs11").child("uri"), text(&ca["pkcs11"], "uri"));
    let attributes = uri.strip_prefix("pkcs11:").unwrap_or_default().split([';', '?', '&']);
    let names = attributes.filter_map(|attribute| attribute.split_once('=')).map(|(name, _)| name);
    for name in names.filter(|name| RESERVED_ATTRIBUTES.contains(name)) {
        // The value is not shown, because it may be the PIN.
        errors.forbidden(&at, &format!("{name} is set by flags of the controllers"));
    }
}

fn validate_requests(path: &FieldPath, requests: &Value, errors: &mut FieldErrors) {
    check_minimum(path, requests, "maxDuration", 10 * MINUTE, errors);
    check_minimum(path, requests, "duration", 10 * MINUTE, errors);
    let (duration, maximum) = (read_duration(requests, "duration"), read_duration(requests, "maxDuration"));
    if duration > maximum {
        let shown = text(requests, "duration");
        errors.invalid_str(&path.child("duration"), shown, "may not be longer than maxDuration");
    }
    let automatic = &requests["approval"]["automatic"];
    let lists_nobody = |field: &str| automatic.get(field).and_then(Value::as_array).is_none_or(Vec::is_empty);
    if automatic.is_object() && lists_nobody("users") && lists_nobody("groups") {
        errors.required(&path.child("approval").child("automatic"), "users or groups must be set");
    }
}

fn validate_pods(path: &FieldPath, pods: &Value, errors: &mut FieldErrors) {
    if !pods.is_object() {
        return;
    }
    check_minimum(path, pods, "maxDuration", HOUR, errors);
    let has_service_names = pods["serviceNames"] == true;
    if pods.get("trustDomain").is_none() && !has_service_names {
        errors.required(path, "trustDomain or serviceNames must be set, or certificates have no names");
    }
    if pods.get("clusterDomain").is_some() && !has_service_names {
        errors.forbidden(&path.child("clusterDomain"), "may only be set with serviceNames");
    }
    let fraction = pods["refreshAfter"].as_f64();
    if fraction.is_some_and(|fraction| fraction <= 0.0 || fraction >= 1.0) {
        let detail = "must be greater than 0 and less than 1";
        errors.invalid(&path.child("refreshAfter"), &pods["refreshAfter"], detail);
    }
}

fn validate_crl(path: &FieldPath, crl: &Value, errors: &mut FieldErrors) {
    check_minimum(path, crl, "duration", MINUTE, errors);
    let urls = crl.get("distributionPoints").and_then(Value::as_array).into_iter().flatten();
    for (index, url) in urls.filter_map(Value::as_str).enumerate() {
        if url.replace(AUTHORITY_PLACEHOLDER, "").contains(['{', '}']) {
            let detail = format!("the only placeholder is {AUTHORITY_PLACEHOLDER}");
            errors.invalid_str(&path.child("distributionPoints").index(index), url, &detail);
        }
    }
    let selector = &crl["configMap"]["namespaceSelector"];
    let at = path.child("configMap").child("namespaceSelector");
    validate_label_selector(&at, selector, errors);
}

fn check_minimum(path: &FieldPath, section: &Value, field: &str, seconds: u64, errors: &mut FieldErrors) {
    let minimum = Duration::from_secs(seconds);
    if read_duration(section, field).is_some_and(|duration| duration < minimum) {
        let shown = match seconds {
            seconds if seconds >= HOUR => format!("{}h", seconds / HOUR),
            seconds => format!("{}m", seconds / MINUTE),
        };
        let detail = format!("must be at least {shown}");
        errors.invalid_str(&path.child(field), text(section, field), &detail);
    }
}

/// The schema has checked the syntax.
fn read_duration(section: &Value, field: &str) -> Option<Duration> {
    let text = section.get(field)?.as_str()?;
    duration::parse(text).ok()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}
