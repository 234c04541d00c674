//! Validation of regular, init and ephemeral containers.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::names;

use super::super::fields::{flag, int, list, optional_text, part, text};
use super::{
    PodContext, env, handlers, in_range, mounts, one_of, report_all, required_name, resources, security,
};

/// Validates regular containers; at least one is required.
pub(super) fn regular(spec: &Value, context: &PodContext, path: &FieldPath, errors: &mut FieldErrors) {
    let containers = list(spec, "containers");
    if containers.is_empty() {
        return errors.required(path, "");
    }
    let mut seen = BTreeSet::new();
    for (index, container) in containers.iter().enumerate() {
        let at = path.index(index);
        validate_common(container, context, &at, errors);
        if !seen.insert(text(container, "name")) {
            errors.duplicate(&at.child("name"), &text(container, "name").into());
        }
        handlers::validate_handlers(container, context.grace, &at, errors);
        restart_policy(container, &at, errors);
    }
    host_port_conflicts(containers, path, errors);
}

/// Validates init containers, including sidecars.
pub(super) fn init(spec: &Value, context: &PodContext, path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen: BTreeSet<&str> =
        list(spec, "containers").iter().map(|container| text(container, "name")).collect();
    for (index, container) in list(spec, "initContainers").iter().enumerate() {
        let at = path.index(index);
        validate_common(container, context, &at, errors);
        restart_policy(container, &at, errors);
        let name = text(container, "name");
        if seen.contains(name) {
            errors.duplicate(&at.child("name"), &name.into());
        } else if !name.is_empty() {
            seen.insert(name);
        }
        // They run sequentially, so only ports within one container can conflict.
        host_port_conflicts(std::slice::from_ref(container), path, errors);
        if text(container, "restartPolicy") == "Always" {
            handlers::validate_handlers(container, context.grace, &at, errors);
            continue;
        }
        for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if part(container, field).is_some() {
                let detail = "may not be set for init containers without restartPolicy=Always";
                errors.forbidden(&at.child(field), detail);
            }
        }
        for (index, policy) in list(container, "resizePolicy").iter().enumerate() {
            if text(policy, "restartPolicy") == "RestartContainer" {
                errors.invalid_str(
                    &at.child("resizePolicy").index(index).child("restartPolicy"),
                    "RestartContainer",
                    "must not be set to 'RestartContainer' for non-sidecar initContainers",
                );
            }
        }
    }
}

/// Validates ephemeral containers, which are added to a running pod for debugging.
pub(super) fn ephemeral(spec: &Value, context: &PodContext, path: &FieldPath, errors: &mut FieldErrors) {
    const DETAIL: &str = "cannot be set for an Ephemeral Container";
    let others: BTreeSet<&str> = list(spec, "containers")
        .iter()
        .chain(list(spec, "initContainers"))
        .map(|container| text(container, "name"))
        .collect();
    let mut seen = others.clone();
    for (index, container) in list(spec, "ephemeralContainers").iter().enumerate() {
        let at = path.index(index);
        validate_common(container, context, &at, errors);
        image_is_trimmed(container, &at, errors);
        if !seen.insert(text(container, "name")) {
            errors.duplicate(&at.child("name"), &text(container, "name").into());
        }
        let target = text(container, "targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            errors.not_found(&at.child("targetContainerName"), target);
        }
        for field in [
            "ports",
            "resources",
            "resizePolicy",
            "restartPolicy",
            "restartPolicyRules",
            "livenessProbe",
            "readinessProbe",
            "startupProbe",
            "lifecycle",
        ] {
            let empty = [json!({}), json!([]), json!("")];
            if part(container, field).is_some_and(|value| !empty.contains(value)) {
                errors.forbidden(&at.child(field), DETAIL);
            }
        }
        for (index, mount) in list(container, "volumeMounts").iter().enumerate() {
            for field in ["subPath", "subPathExpr"] {
                if !text(mount, field).is_empty() {
                    let at = at.child("volumeMounts").index(index).child(field);
                    errors.forbidden(&at, DETAIL);
                }
            }
        }
    }
}

/// Rejects spaces around the image reference.
pub(super) fn image_is_trimmed(container: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let image = text(container, "image");
    if image != image.trim() {
        let detail = "must not have leading or trailing whitespace";
        errors.invalid_str(&path.child("image"), image, detail);
    }
}

/// With host networking, a container port must equal its host port.
pub(super) fn host_network_ports(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if !flag(spec, "hostNetwork") {
        return;
    }
    for (index, container) in list(spec, "containers").iter().enumerate() {
        let path = path.index(index).child("ports");
        for (index, port) in list(container, "ports").iter().enumerate() {
            let host = int(port, "hostPort").unwrap_or_default();
            if host != int(port, "containerPort").unwrap_or_default() {
                let detail = "must match `containerPort` when `hostNetwork` is true";
                errors.invalid(&path.index(index).child("hostPort"), &host.into(), detail);
            }
        }
    }
}

/// Rules for containers of every kind.
fn validate_common(container: &Value, context: &PodContext, path: &FieldPath, errors: &mut FieldErrors) {
    required_name(&path.child("name"), text(container, "name"), names::dns1123_label, errors);
    super::required(path, container, "image", errors);
    one_of(
        &path.child("terminationMessagePolicy"),
        text(container, "terminationMessagePolicy"),
        &["File", "FallbackToLogsOnError"],
        errors,
    );
    ports(container, &path.child("ports"), errors);
    env::variables(container, &path.child("env"), errors);
    env::sources(container, &path.child("envFrom"), errors);
    mounts::check(container, context, path, errors);
    one_of(
        &path.child("imagePullPolicy"),
        text(container, "imagePullPolicy"),
        &["Always", "IfNotPresent", "Never"],
        errors,
    );
    let wanted = part(container, "resources").unwrap_or(&Value::Null);
    resources::container_resources(wanted, &context.claims, &path.child("resources"), errors);
    resize_policy(container, context, &path.child("resizePolicy"), errors);
    if let Some(rules) = part(container, "securityContext") {
        security::container_security_context(rules, context, &path.child("securityContext"), errors);
    }
}

fn ports(container: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for (index, port) in list(container, "ports").iter().enumerate() {
        let at = path.index(index);
        let name = text(port, "name");
        if !name.is_empty() {
            let broken = names::port_name(name);
            if broken.is_empty() && !seen.insert(name) {
                errors.duplicate(&at.child("name"), &name.into());
            }
            report_all(&at.child("name"), name, broken, errors);
        }
        match int(port, "containerPort").unwrap_or_default() {
            0 => errors.required(&at.child("containerPort"), ""),
            number => in_range(&at.child("containerPort"), number, 1, 65535, errors),
        }
        let host = int(port, "hostPort").unwrap_or_default();
        if host != 0 {
            in_range(&at.child("hostPort"), host, 1, 65535, errors);
        }
        let protocol = text(port, "protocol");
        one_of(&at.child("protocol"), protocol, &["SCTP", "TCP", "UDP"], errors);
    }
}

fn host_port_conflicts(containers: &[Value], path: &FieldPath, errors: &mut FieldErrors) {
    let mut taken = BTreeSet::new();
    for (index, container) in containers.iter().enumerate() {
        let path = path.index(index).child("ports");
        for (index, port) in list(container, "ports").iter().enumerate() {
            let number = int(port, "hostPort").unwrap_or_default();
            let shown = format!("{}/{}/{number}", text(port, "protocol"), text(port, "hostIP"));
            if number != 0 && !taken.insert(shown.clone()) {
                errors.duplicate(&path.index(index).child("hostPort"), &shown.into());
            }
        }
    }
}

fn resize_policy(container: &Value, context: &PodContext, path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for (index, policy) in list(container, "resizePolicy").iter().enumerate() {
        let resource = text(policy, "resourceName");
        if !seen.insert(resource) {
            errors.duplicate(&path.index(index), &resource.into());
        }
        one_of(path, resource, &["cpu", "memory"], errors);
        let restart = text(policy, "restartPolicy");
        one_of(path, restart, &["NotRequired", "RestartContainer"], errors);
        if context.restart_policy == "Never" && restart != "NotRequired" {
            let detail = "must be 'NotRequired' when `restartPolicy` is 'Never'";
            errors.invalid_str(path, restart, detail);
        }
    }
}

fn restart_policy(container: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(policy) = optional_text(container, "restartPolicy") else {
        if !list(container, "restartPolicyRules").is_empty() {
            let detail = "must specify restartPolicy when restart rules are used";
            errors.required(&path.child("restartPolicy"), detail);
        }
        return;
    };
    let known = ["Always", "Never", "OnFailure"];
    if !known.contains(&policy) {
        errors.not_supported(&path.child("restartPolicy"), policy, &known);
    }
}
