//! Validation of updates through a pod's subresources.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::names;

use super::super::fields::{
    annotation, below, entries, first_by, int, list, list_mut, part, restore, set, spec, status as status_of,
    text,
};
use super::super::qos;
use super::update::annotation_changes;
use super::{MIRROR, metadata_and_spec, report_all};
use crate::registry::pods::nano_quantity::NanoQuantity;

/// Validates a status update (new, old).
pub(crate) fn status(new: &Value, old: &Value, errors: &mut FieldErrors) {
    annotation_changes(new, old, errors);
    let path = FieldPath::new("status");
    let (new_status, old_status) = (status_of(new), status_of(old));
    conditions(new_status, &path.child("conditions"), errors);
    let (nominated, before) = (text(new_status, "nominatedNodeName"), text(old_status, "nominatedNodeName"));
    if nominated != before && !nominated.is_empty() {
        let at = path.child("nominatedNodeName");
        report_all(&at, nominated, names::dns1123_subdomain(nominated), errors);
        if !text(spec(old), "nodeName").is_empty() {
            errors.forbidden(&at, "may not be set on pods that are already bound to a node");
        }
    }
    generation(new_status, &path, errors);
    if text(new_status, "qosClass") != text(old_status, "qosClass") {
        let class = text(new_status, "qosClass");
        errors.invalid_str(&path.child("qosClass"), class, "field is immutable");
    }
    for (field, containers) in [
        ("containerStatuses", Some("containers")),
        ("initContainerStatuses", Some("initContainers")),
        ("ephemeralContainerStatuses", None),
    ] {
        transitions(new_status, old, field, containers, &path.child(field), errors);
    }
    addresses(new_status, &path.child("podIPs"), "podIPs", errors);
    let hosts = list(new_status, "hostIPs");
    if let Some(first) = hosts.first()
        && text(first, "ip") != text(new_status, "hostIP")
    {
        let at = path.child("hostIPs").index(0).child("ip");
        errors.invalid_str(&at, text(first, "ip"), "must be equal to `hostIP`");
    }
    addresses(new_status, &path.child("hostIPs"), "hostIPs", errors);
}

fn conditions(status: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for (index, condition) in list(status, "conditions").iter().enumerate() {
        let at = path.index(index);
        generation(condition, &at, errors);
        let kind = text(condition, "type");
        if !matches!(kind, "PodScheduled" | "Ready" | "Initialized") {
            report_all(&at.child("Type"), kind, names::qualified_name(kind), errors);
        }
    }
}

fn generation(object: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(generation) = int(object, "observedGeneration").filter(|number| *number < 0) {
        let at = path.child("observedGeneration");
        errors.invalid(&at, &generation.into(), "must be a non-negative integer");
    }
}

/// A terminated container that is not restarted must stay terminated.
fn transitions(
    new_status: &Value,
    old: &Value,
    field: &str,
    containers: Option<&str>,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let now = first_by(list(new_status, field), "name");
    let declared = first_by(containers.map_or(&[][..], |field| list(spec(old), field)), "name");
    for (index, before) in list(status_of(old), field).iter().enumerate() {
        let Some(ended) = below(part(before, "state"), "terminated") else { continue };
        let name = text(before, "name");
        let revived = now.get(name).is_some_and(|after| below(part(after, "state"), "terminated").is_none());
        let exit_code = int(ended, "exitCode").unwrap_or_default();
        let container = declared.get(name).copied();
        if revived && !may_restart(spec(old), container, exit_code) {
            let detail = "may not be transitioned to non-terminated state";
            errors.forbidden(&path.index(index).child("state"), detail);
        }
    }
}

fn may_restart(spec: &Value, container: Option<&Value>, exit_code: i64) -> bool {
    let Some(container) = container else { return false };
    // Rules on exit codes may restart containers that the policy alone would not.
    if !list(container, "restartPolicyRules").is_empty() {
        return true;
    }
    let policy = match text(container, "restartPolicy") {
        "" => text(spec, "restartPolicy"),
        own => own,
    };
    match policy {
        "Always" => true,
        "OnFailure" => exit_code != 0,
        _ => false,
    }
}

fn addresses(status: &Value, path: &FieldPath, field: &str, errors: &mut FieldErrors) {
    let ips: Vec<&str> = list(status, field).iter().map(|ip| text(ip, "ip")).collect();
    for (index, ip) in ips.iter().enumerate() {
        report_all(&path.index(index), ip, names::ip_address(ip), errors);
    }
    if ips.len() < 2 {
        return;
    }
    let parsed: Vec<IpAddr> = ips.iter().filter_map(|ip| ip.parse().ok()).collect();
    let both = parsed.iter().any(IpAddr::is_ipv4) && parsed.iter().any(IpAddr::is_ipv6);
    if !both || ips.len() > 2 {
        let shown: Vec<String> = ips.iter().map(|ip| shown_address(ip)).collect();
        let detail = "may specify no more than one IP for each IP family";
        errors.invalid_shown(path, &format!("[{}]", shown.join(",")), detail);
    }
    let mut seen = BTreeSet::new();
    for (index, ip) in ips.iter().enumerate() {
        if !seen.insert(ip) {
            errors.duplicate_shown(&path.index(index), &shown_address(ip), "");
        }
    }
}

fn shown_address(ip: &str) -> String {
    super::go_json::object(&[("IP", super::go_json::string(ip))])
}

/// Validates added ephemeral containers (new, old).
pub(crate) fn ephemeral_containers(new: &Value, old: &Value, errors: &mut FieldErrors) {
    if annotation(old, MIRROR).is_some() {
        let detail = "static pods do not support ephemeral containers";
        return errors.forbidden(&FieldPath::default(), detail);
    }
    metadata_and_spec(new, errors);
    let path = FieldPath::new("spec").child("ephemeralContainers");
    let now = first_by(list(spec(new), "ephemeralContainers"), "name");
    for before in list(spec(old), "ephemeralContainers") {
        let name = windlass_api::field::quote(text(before, "name"));
        let what = match now.get(text(before, "name")) {
            None => "removed",
            Some(after) if *after != before => "changed",
            Some(_) => continue,
        };
        errors.forbidden(&path, &format!("existing ephemeral containers {name} may not be {what}\n"));
    }
}

/// Validates a resize of a pod (new, old).
pub(crate) fn resize(new: &Value, old: &Value, errors: &mut FieldErrors) {
    if annotation(old, MIRROR).is_some() {
        return errors.forbidden(&FieldPath::default(), "static pods cannot be resized");
    }
    if spec(old).pointer("/os/name").is_some_and(|os| os == "windows") {
        return errors.forbidden(&FieldPath::default(), "windows pods cannot be resized");
    }
    metadata_and_spec(new, errors);
    let path = FieldPath::new("spec");
    let class = text(status_of(old), "qosClass");
    if class != qos::class(new) {
        let detail = "Pod QOS Class may not change as a result of resizing";
        errors.invalid_str(&path, class, detail);
    }
    for field in ["initContainers", "containers"] {
        let pairs = list(spec(new), field).iter().zip(list(spec(old), field));
        for (index, (new, old)) in pairs.enumerate() {
            let at = path.child(field).index(index).child("resources");
            resized_container(new, old, &at, errors);
        }
    }
    if errors.is_empty() && sizeless(spec(new)) != sizeless(spec(old)) {
        errors.forbidden(&path, "only cpu and memory resources are mutable");
    }
}

fn resized_container(new: &Value, old: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for (field, what) in [("requests", "requests"), ("limits", "limits")] {
        let now = new.pointer(&format!("/resources/{field}")).unwrap_or(&Value::Null);
        let resources = part(old, "resources").unwrap_or(&Value::Null);
        if entries(resources, field).iter().any(|(name, _)| now.get(name).is_none()) {
            let detail = format!("resource {what} cannot be removed");
            errors.forbidden(&path.child(field), &detail);
        }
    }
    let restarts = list(new, "resizePolicy").iter().any(|policy| {
        text(policy, "resourceName") == "memory" && text(policy, "restartPolicy") == "RestartContainer"
    });
    let memory =
        |container: &Value| container.pointer("/resources/limits/memory").map(NanoQuantity::from_value);
    if let (Some(now), Some(before)) = (memory(new), memory(old))
        && now < before
        && !restarts
    {
        let detail = "memory limits cannot be decreased unless resizePolicy is RestartContainer";
        errors.forbidden(&path.child("limits").key("memory"), detail);
    }
}

/// Returns the spec without the amounts that a resize may change.
fn sizeless(spec: &Value) -> Value {
    let mut rest = spec.clone();
    for field in ["initContainers", "containers"] {
        for container in list_mut(&mut rest, field) {
            let sidecar = text(container, "restartPolicy") == "Always";
            if field == "initContainers" && !sidecar {
                continue;
            }
            restore(container, &Value::Null, "resizePolicy");
            let Some(resources) = container.get_mut("resources") else { continue };
            for kind in ["limits", "requests"] {
                let Some(amounts) = resources.get_mut(kind) else { continue };
                set(amounts, "cpu", None);
                set(amounts, "memory", None);
                if amounts == &serde_json::json!({}) {
                    set(resources, kind, None);
                }
            }
        }
    }
    rest
}
