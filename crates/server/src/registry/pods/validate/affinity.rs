//! Validation of node and pod affinity.

use serde_json::Value;
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::names;
use windlass_api::selector::labels;

use super::super::fields::{int, list, part, text, texts};
use super::{label_name, report_all};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Validates `spec.affinity`: node, pod and anti-affinity terms.
pub(super) fn check(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(affinity) = part(spec, "affinity") else { return };
    if let Some(nodes) = part(affinity, "nodeAffinity") {
        node_affinity(nodes, &path.child("nodeAffinity"), errors);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(pods) = part(affinity, kind) else { continue };
        let path = path.child(kind);
        for (index, term) in list(pods, REQUIRED).iter().enumerate() {
            pod_term(term, &path.child(REQUIRED).index(index), errors);
        }
        for (index, weighted) in list(pods, PREFERRED).iter().enumerate() {
            let at = path.child(PREFERRED).index(index);
            weight(weighted, &at, errors);
            let term = part(weighted, "podAffinityTerm").unwrap_or(&Value::Null);
            pod_term(term, &at.child("podAffinityTerm"), errors);
        }
    }
}

fn node_affinity(nodes: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(required) = part(nodes, REQUIRED) {
        let at = path.child(REQUIRED).child("nodeSelectorTerms");
        let terms = list(required, "nodeSelectorTerms");
        if terms.is_empty() {
            errors.required(&at, "must have at least one node selector term");
        }
        for (index, term) in terms.iter().enumerate() {
            node_term(term, true, &at.index(index), errors);
        }
    }
    for (index, preferred) in list(nodes, PREFERRED).iter().enumerate() {
        let at = path.child(PREFERRED).index(index);
        weight(preferred, &at, errors);
        let term = part(preferred, "preference").unwrap_or(&Value::Null);
        node_term(term, false, &at.child("preference"), errors);
    }
}

fn weight(weighted: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let weight = int(weighted, "weight").unwrap_or_default();
    if !(1..=100).contains(&weight) {
        errors.invalid(&path.child("weight"), &weight.into(), "must be in the range 1-100");
    }
}

/// Validates a term; its values must be valid labels only if the term is required.
fn node_term(term: &Value, strict: bool, path: &FieldPath, errors: &mut FieldErrors) {
    for (index, rule) in list(term, "matchExpressions").iter().enumerate() {
        node_rule(rule, strict, &path.child("matchExpressions").index(index), errors);
    }
    for (index, rule) in list(term, "matchFields").iter().enumerate() {
        field_rule(rule, &path.child("matchFields").index(index), errors);
    }
}

fn node_rule(rule: &Value, strict: bool, path: &FieldPath, errors: &mut FieldErrors) {
    let values = texts(rule, "values");
    let at = path.child("values");
    match text(rule, "operator") {
        "In" | "NotIn" if values.is_empty() => {
            errors.required(&at, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.forbidden(&at, detail);
        }
        "Gt" | "Lt" if values.len() != 1 => {
            let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            errors.required(&at, detail);
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => {
            errors.invalid_str(&path.child("operator"), other, "not a valid selector operator");
        }
    }
    label_name(&path.child("key"), text(rule, "key"), errors);
    if strict {
        for (index, value) in values.into_iter().enumerate() {
            report_all(&at.index(index), value, names::label_value(value), errors);
        }
    }
}

fn field_rule(rule: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let values = texts(rule, "values");
    match text(rule, "operator") {
        "In" | "NotIn" => {
            if values.len() != 1 {
                let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node \
                              field selector";
                errors.required(&path.child("values"), detail);
            }
        }
        other => {
            errors.invalid_str(&path.child("operator"), other, "not a valid selector operator");
        }
    }
    if text(rule, "key") != "metadata.name" {
        let detail = "not a valid field selector key";
        return errors.invalid_str(&path.child("key"), text(rule, "key"), detail);
    }
    for (index, value) in values.into_iter().enumerate() {
        report_all(&path.child("values").index(index), value, names::dns1123_subdomain(value), errors);
    }
}

fn pod_term(term: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for field in ["labelSelector", "namespaceSelector"] {
        if let Some(labels) = part(term, field) {
            labels::validate_label_selector(&path.child(field), labels, errors);
        }
    }
    for namespace in texts(term, "namespaces") {
        report_all(&path.child("namespace"), namespace, names::dns1123_label(namespace), errors);
    }
    let key = text(term, "topologyKey");
    if key.is_empty() {
        errors.required(&path.child("topologyKey"), "can not be empty");
    }
    label_name(&path.child("topologyKey"), key, errors);
}
