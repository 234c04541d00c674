//! Validation of pods, in Kubernetes' order and wording.

mod affinity;
mod containers;
mod env;
pub(crate) mod go_json;
mod handlers;
mod mounts;
mod paths;
mod projected;
mod resources;
mod scheduling;
mod security;
mod status;
mod update;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::meta::validate_labels;
use windlass_api::names;

use super::fields::{
    annotation, entries, flag, int, list, metadata, optional_flag, optional_text, part, spec, text,
};
pub(crate) use resources::quantity;
pub(crate) use scheduling::taint_effect;
pub(super) use status::{ephemeral_containers, resize, status};
pub(super) use update::update;

pub(super) fn create(pod: &Value, errors: &mut FieldErrors) {
    metadata_and_spec(pod, errors);
    let path = FieldPath::new("spec");
    let spec = spec(pod);
    if !list(spec, "ephemeralContainers").is_empty() {
        errors.forbidden(&path.child("ephemeralContainers"), "cannot be set on create");
    }
    if !text(spec, "nodeName").is_empty() && !list(spec, "schedulingGates").is_empty() {
        errors
            .forbidden(&path.child("nodeName"), "cannot be set until all schedulingGates have been cleared");
    }
}

/// Rules for every pod, new or changed.
fn metadata_and_spec(pod: &Value, errors: &mut FieldErrors) {
    annotations(pod, errors);
    pod_spec(pod, errors);
    let path = FieldPath::new("spec");
    let spec = spec(pod);
    if text(spec, "serviceAccountName").is_empty() {
        projected::no_tokens(spec, &path, errors);
    }
    for field in ["containers", "initContainers"] {
        for (index, container) in list(spec, field).iter().enumerate() {
            containers::image_is_trimmed(container, &path.child(field).index(index), errors);
        }
    }
}

fn annotations(pod: &Value, errors: &mut FieldErrors) {
    let path = FieldPath::new("metadata").child("annotations");
    if let Some(value) = annotation(pod, MIRROR)
        && text(spec(pod), "nodeName").is_empty()
    {
        let detail = "must set spec.nodeName if mirror pod annotation is set";
        errors.invalid_str(&path.key(MIRROR), value, detail);
    }
    if let Some(cost) = annotation(pod, DELETION_COST)
        && !is_deletion_cost(cost)
    {
        errors.invalid_str(&path.key(DELETION_COST), cost, "must be a 32bit integer");
    }
    let containers: BTreeSet<&str> = all_containers(spec(pod)).map(|c| text(c, "name")).collect();
    for (key, profile) in entries(metadata(pod), "annotations") {
        let Some(container) = key.strip_prefix(APPARMOR_PREFIX) else { continue };
        let profile = profile.as_str().unwrap_or_default();
        if !containers.contains(container) {
            errors.invalid_str(&path.key(key), container, "container not found");
        }
        let known = matches!(profile, "" | "runtime/default" | "unconfined");
        if !known && !profile.starts_with("localhost/") {
            let detail = format!("invalid AppArmor profile name: {}", windlass_api::field::quote(profile));
            errors.invalid_str(&path.key(key), profile, &detail);
        }
    }
}

/// Annotation of a mirror pod: the API copy of a static pod.
const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const APPARMOR_PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Returns true for a 32-bit number without a plus sign or leading zeros.
fn is_deletion_cost(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = digits == "0" || !digits.starts_with(['0', '+']);
    plain && text.parse::<i32>().is_ok()
}

fn all_containers(spec: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(|field| list(spec, field))
}

/// Pod-wide information that the rules of its parts need.
struct PodContext<'a> {
    /// Valid volumes by name: an invalid one counts as missing.
    volumes: BTreeMap<&'a str, &'a Value>,
    /// Names of the pod's resource claims.
    claims: BTreeSet<&'a str>,
    grace: Option<i64>,
    restart_policy: &'a str,
    /// Whether containers use the host's user namespace.
    host_users: bool,
}

fn pod_spec(pod: &Value, errors: &mut FieldErrors) {
    let spec = spec(pod);
    let path = FieldPath::new("spec");
    let grace = int(spec, "terminationGracePeriodSeconds");
    if grace.is_none() {
        errors.required(&path.child("terminationGracePeriodSeconds"), "");
    }
    let pod_name = text(metadata(pod), "name");
    let context = PodContext {
        volumes: volumes::check(list(spec, "volumes"), pod_name, &path.child("volumes"), errors),
        claims: list(spec, "resourceClaims")
            .iter()
            .map(|claim| text(claim, "name"))
            .filter(|name| !name.is_empty())
            .collect(),
        grace,
        restart_policy: text(spec, "restartPolicy"),
        host_users: optional_flag(spec, "hostUsers") != Some(false),
    };
    resources::pod_claims(list(spec, "resourceClaims"), &path.child("resourceClaims"), errors);
    containers::regular(spec, &context, &path.child("containers"), errors);
    containers::init(spec, &context, &path.child("initContainers"), errors);
    containers::ephemeral(spec, &context, &path.child("ephemeralContainers"), errors);
    if let Some(resources) = part(spec, "resources") {
        resources::pod_resources(spec, resources, &path.child("resources"), errors);
    }
    containers::host_network_ports(spec, &path.child("containers"), errors);
    one_of(
        &path.child("restartPolicy"),
        text(spec, "restartPolicy"),
        &["Always", "OnFailure", "Never"],
        errors,
    );
    one_of(
        &path.child("dnsPolicy"),
        text(spec, "dnsPolicy"),
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
        errors,
    );
    labels(&path.child("nodeSelector"), spec, "nodeSelector", errors);
    security::pod_security_context(spec, &path.child("securityContext"), errors);
    affinity::check(spec, &path.child("affinity"), errors);
    scheduling::dns_config(spec, &path.child("dnsConfig"), errors);
    scheduling::gates(spec, &path, errors);
    scheduling::spread(spec, &path.child("topologySpreadConstraints"), errors);
    security::host_users(spec, &path, errors);
    identity(spec, &path, errors);
    env::files_are_in_empty_dirs(spec, &path, errors);
}

/// Validates names, numbers and short strings at the end of the rules.
fn identity(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    hostname_override(spec, &path.child("hostnameOverride"), errors);
    for field in ["serviceAccountName", "nodeName"] {
        name(&path.child(field), text(spec, field), names::dns1123_subdomain, errors);
    }
    if let Some(seconds) = int(spec, "activeDeadlineSeconds") {
        in_range(&path.child("activeDeadlineSeconds"), seconds, 1, i64::from(i32::MAX), errors);
    }
    for field in ["hostname", "subdomain"] {
        name(&path.child(field), text(spec, field), names::dns1123_label, errors);
    }
    scheduling::tolerations(list(spec, "tolerations"), &path.child("tolerations"), errors);
    scheduling::host_aliases(spec, &path.child("hostAliases"), errors);
    name(&path.child("priorityClassName"), text(spec, "priorityClassName"), names::dns1123_subdomain, errors);
    if let Some(class) = optional_text(spec, "runtimeClassName") {
        report_all(&path.child("runtimeClassName"), class, names::dns1123_subdomain(class), errors);
    }
    if let Some(policy) = optional_text(spec, "preemptionPolicy") {
        let known = ["PreemptLowerPriority", "Never"];
        one_of(&path.child("preemptionPolicy"), policy, &known, errors);
    }
    resources::overhead(spec, &path.child("overhead"), errors);
    operating_system(spec, path, errors);
}

fn hostname_override(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(hostname) = optional_text(spec, "hostnameOverride") else { return };
    if flag(spec, "setHostnameAsFQDN") {
        errors.forbidden(path, "may not be specified when setHostnameAsFQDN is true");
    }
    if flag(spec, "hostNetwork") {
        errors.forbidden(path, "may not be specified when hostNetwork is true");
    }
    if hostname.len() > 64 {
        errors.too_long(path, 64);
    }
    report_all(path, hostname, names::dns1123_subdomain(hostname), errors);
}

fn operating_system(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(os) = part(spec, "os") else { return };
    match text(os, "name") {
        "" => errors.required(&path.child("os").child("name"), "cannot be empty"),
        "linux" => security::no_windows_options(spec, path, errors),
        "windows" => {}
        other => errors.not_supported(&path.child("os"), other, &["linux", "windows"]),
    }
}

fn one_of(path: &FieldPath, value: &str, known: &[&str], errors: &mut FieldErrors) {
    if value.is_empty() {
        errors.required(path, "");
    } else if !known.contains(&value) {
        errors.not_supported(path, value, known);
    }
}

fn name(path: &FieldPath, value: &str, rule: fn(&str) -> Vec<String>, errors: &mut FieldErrors) {
    if !value.is_empty() {
        report_all(path, value, rule(value), errors);
    }
}

fn required_name(path: &FieldPath, value: &str, rule: fn(&str) -> Vec<String>, errors: &mut FieldErrors) {
    if value.is_empty() {
        errors.required(path, "");
    } else {
        report_all(path, value, rule(value), errors);
    }
}

fn required(path: &FieldPath, object: &Value, field: &str, errors: &mut FieldErrors) {
    if text(object, field).is_empty() {
        errors.required(&path.child(field), "");
    }
}

/// Validates that a number is within bounds.
fn in_range(path: &FieldPath, value: i64, low: i64, high: i64, errors: &mut FieldErrors) {
    for words in names::in_range(value, low, high) {
        errors.invalid(path, &value.into(), &words);
    }
}

/// Reports all violations of a grammar.
fn report_all(path: &FieldPath, value: &str, words: Vec<String>, errors: &mut FieldErrors) {
    for words in words {
        errors.invalid_str(path, value, &words);
    }
}

fn label_name(path: &FieldPath, key: &str, errors: &mut FieldErrors) {
    report_all(path, key, names::qualified_name(key), errors);
}

/// Validates a map of labels in `field` of `object`.
fn labels(path: &FieldPath, object: &Value, field: &str, errors: &mut FieldErrors) {
    if let Some(labels) = part(object, field) {
        validate_labels(path, labels, errors);
    }
}

#[cfg(test)]
mod tests;
