//! Validation of roles and bindings.

use serde_json::{Value, json};
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::names::{dns1123_subdomain, path_segment_rule};
use windlass_api::selector::labels::{LabelSelector, validate_label_selector};

use super::super::object_fields::{count, list, non_null, text};
use super::GROUP;
use super::Scope;

pub(super) fn role(object: &Value, errors: &mut FieldErrors) {
    policy_rules(object, Scope::Namespaced, errors);
    required_verbs(object, errors);
}

pub(super) fn cluster_role(object: &Value, errors: &mut FieldErrors) {
    policy_rules(object, Scope::Cluster, errors);
    if non_null(object, "/aggregationRule").is_some() {
        aggregation_rule(object, errors);
    }
    required_verbs(object, errors);
}

fn aggregation_rule(object: &Value, errors: &mut FieldErrors) {
    let path = FieldPath::new("aggregationRule").child("clusterRoleSelectors");
    let selectors = list(object, "/aggregationRule/clusterRoleSelectors");
    if selectors.is_empty() {
        errors.required(&path, "at least one clusterRoleSelector required if aggregationRule is non-nil");
    }
    for (i, selector) in selectors.iter().enumerate() {
        let path = path.index(i);
        validate_label_selector(&path, selector, errors);
        if LabelSelector::from_object(selector).is_err() {
            // Kubernetes shows the selector that it could not create.
            errors.invalid_str(&path, "null", "invalid label selector.");
        }
    }
}

pub(super) fn role_binding(object: &Value, errors: &mut FieldErrors) {
    binding(object, Scope::Namespaced, &["Role", "ClusterRole"], errors);
}

pub(super) fn cluster_role_binding(object: &Value, errors: &mut FieldErrors) {
    binding(object, Scope::Cluster, &["ClusterRole"], errors);
}

/// Checks that a binding keeps its role: permission to grant one role is not permission to grant
/// any.
pub(super) fn same_role(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let of = |object, field: &str| text(object, &format!("/roleRef/{field}")).to_owned();
    let fields = ["apiGroup", "kind", "name"];
    if fields.iter().any(|field| of(new, field) != of(old, field)) {
        let shown = json!({
            "APIGroup": of(new, "apiGroup"),
            "Kind": of(new, "kind"),
            "Name": of(new, "name"),
        });
        errors.invalid(&FieldPath::new("roleRef"), &shown, "field is immutable");
    }
}

fn policy_rules(object: &Value, scope: Scope, errors: &mut FieldErrors) {
    for (i, rule) in list(object, "/rules").iter().enumerate() {
        policy_rule(rule, scope, &FieldPath::new("rules").index(i), errors);
    }
}

/// Kubernetes declares required fields in the schema since 1.37, so these errors come last and
/// without a detail.
fn required_verbs(object: &Value, errors: &mut FieldErrors) {
    for (i, rule) in list(object, "/rules").iter().enumerate() {
        if count(rule, "/verbs") == 0 {
            errors.required(&FieldPath::new("rules").index(i).child("verbs"), "");
        }
    }
}

fn policy_rule(rule: &Value, scope: Scope, path: &FieldPath, errors: &mut FieldErrors) {
    let has = |field: &str| count(rule, &format!("/{field}")) > 0;
    if has("nonResourceURLs") {
        let (path, urls) = (path.child("nonResourceURLs"), &rule["nonResourceURLs"]);
        if scope == Scope::Namespaced {
            errors.invalid(&path, urls, "namespaced rules cannot apply to non-resource URLs");
        }
        if has("apiGroups") || has("resources") || has("resourceNames") {
            errors.invalid(&path, urls, "rules cannot apply to both regular resources and non-resource URLs");
        }
        return;
    }
    if !has("apiGroups") {
        let detail = "resource rules must supply at least one api group";
        errors.required(&path.child("apiGroups"), detail);
    }
    if !has("resources") {
        let detail = "resource rules must supply at least one resource";
        errors.required(&path.child("resources"), detail);
    }
}

fn binding(object: &Value, scope: Scope, kinds: &[&str], errors: &mut FieldErrors) {
    let path = FieldPath::new("roleRef");
    let group = text(object, "/roleRef/apiGroup");
    if group != GROUP {
        errors.not_supported(&path.child("apiGroup"), group, &[GROUP]);
    }
    let kind = text(object, "/roleRef/kind");
    if !kinds.contains(&kind) {
        errors.not_supported(&path.child("kind"), kind, kinds);
    }
    let name = text(object, "/roleRef/name");
    errors.invalid_each(&path.child("name"), name, path_segment_rule(name, false));
    for (i, each) in list(object, "/subjects").iter().enumerate() {
        subject(each, scope, &FieldPath::new("subjects").index(i), errors);
    }
    // Like `required_verbs`: after all other errors.
    for (i, each) in list(object, "/subjects").iter().enumerate() {
        if text(each, "/name").is_empty() {
            errors.required(&FieldPath::new("subjects").index(i).child("name"), "");
        }
    }
    if name.is_empty() {
        errors.required(&path.child("name"), "");
    }
}

fn subject(subject: &Value, scope: Scope, path: &FieldPath, errors: &mut FieldErrors) {
    let (at_name, name) = (path.child("name"), text(subject, "/name"));
    let (at_group, group) = (path.child("apiGroup"), text(subject, "/apiGroup"));
    match text(subject, "/kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                errors.invalid_each(&at_name, name, dns1123_subdomain(name));
            }
            if !group.is_empty() {
                errors.not_supported(&at_group, group, &[""]);
            }
            // In a namespace, an account without namespace belongs to the binding's namespace.
            if scope == Scope::Cluster && text(subject, "/namespace").is_empty() {
                errors.required(&path.child("namespace"), "");
            }
        }
        "User" | "Group" => {
            if group != GROUP {
                errors.not_supported(&at_group, group, &[GROUP]);
            }
        }
        other => {
            let kinds = &["ServiceAccount", "User", "Group"];
            errors.not_supported(&path.child("kind"), other, kinds);
        }
    }
}
