//! Validation of services.

use std::collections::HashSet;

use serde_json::Value;
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::meta::validate_labels;
use windlass_api::names::{
    dns1123_label, dns1123_subdomain, in_range, ip_address, port_name, qualified_name,
};

use super::super::object_fields::{count, integer, list, non_null, text, texts};

/// Port on which kubelets listen by default.
const KUBELET_PORT: i64 = 10250;
/// Maximum session affinity timeout, in seconds.
const MAX_AFFINITY_SECONDS: i64 = 86400;

pub(super) fn create(service: &Value, errors: &mut FieldErrors) {
    let spec = FieldPath::new("spec");
    let kind = text(service, "/spec/type");
    if count(service, "/spec/ports") == 0 && !is_headless(service) && kind != "ExternalName" {
        errors.required(&spec.child("ports"), "");
    }
    validate_type(service, errors);
    let mut names = HashSet::new();
    let ports = list(service, "/spec/ports");
    for (i, port) in ports.iter().enumerate() {
        let path = spec.child("ports").index(i);
        validate_port(port, ports.len() > 1, &mut names, &path, errors);
    }
    if let Some(selector) = non_null(service, "/spec/selector") {
        validate_labels(&spec.child("selector"), selector, errors);
    }
    validate_affinity(service, errors);
    validate_addresses(service, errors);
    const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    if kind.is_empty() {
        errors.required(&spec.child("type"), "");
    } else if !TYPES.contains(&kind) {
        errors.not_supported(&spec.child("type"), kind, &TYPES);
    }
    validate_port_numbers(service, errors);
    validate_policies(service, errors);
}

pub(super) fn update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let external = |object: &Value| text(object, "/spec/type") == "ExternalName";
    if !external(new) && !external(old) {
        let path = FieldPath::new("spec").child("clusterIPs");
        let shown = non_null(new, "/spec/clusterIPs").unwrap_or(&Value::Null);
        let pairs = texts(old, "/spec/clusterIPs").zip(texts(new, "/spec/clusterIPs"));
        for (i, _) in pairs.enumerate().filter(|(_, (old, new))| old != new) {
            errors.invalid(&path.index(i), shown, "may not change once set");
        }
    }
    create(new, errors);
}

fn is_headless(service: &Value) -> bool {
    let mut ips = texts(service, "/spec/clusterIPs");
    ips.next() == Some("None") && ips.next().is_none()
}

fn validate_type(service: &Value, errors: &mut FieldErrors) {
    let spec = FieldPath::new("spec");
    let kind = text(service, "/spec/type");
    if kind == "LoadBalancer" {
        for (i, port) in list(service, "/spec/ports").iter().enumerate() {
            if integer(port, "/port") == Some(KUBELET_PORT) {
                let detail =
                    format!("may not expose port {KUBELET_PORT} externally since it is used by kubelet");
                errors.invalid(&spec.child("ports").index(i), &KUBELET_PORT.into(), &detail);
            }
        }
    }
    if ["LoadBalancer", "NodePort"].contains(&kind) && is_headless(service) {
        let detail = format!("may not be set to 'None' for {kind} services");
        errors.invalid_str(&spec.child("clusterIPs").index(0), "None", &detail);
    }
    if kind == "ExternalName" {
        for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if non_null(service, &format!("/spec/{field}")).is_some() {
                let detail = "may not be set for ExternalName services";
                errors.forbidden(&spec.child(field), detail);
            }
        }
        let name = text(service, "/spec/externalName");
        // A trailing dot marks a fully qualified name.
        let name = name.strip_suffix('.').unwrap_or(name);
        let path = spec.child("externalName");
        if name.is_empty() {
            errors.required(&path, "");
        } else {
            invalid_each(&path, name, dns1123_subdomain(name), errors);
        }
    }
}

fn validate_port<'a>(
    port: &'a Value,
    named: bool,
    names: &mut HashSet<&'a str>,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
    let name = text(port, "/name");
    if named && name.is_empty() {
        errors.required(&path.child("name"), "");
    } else if !name.is_empty() {
        invalid_each(&path.child("name"), name, dns1123_label(name), errors);
        if !names.insert(name) {
            errors.duplicate(&path.child("name"), &name.into());
        }
    }
    let number = integer(port, "/port").unwrap_or_default();
    for message in in_range(number, 1, 65535) {
        errors.invalid(&path.child("port"), &number.into(), &message);
    }
    let protocol = text(port, "/protocol");
    if protocol.is_empty() {
        errors.required(&path.child("protocol"), "");
    } else if !PROTOCOLS.contains(&protocol) {
        errors.not_supported(&path.child("protocol"), protocol, &PROTOCOLS);
    }
    let target = path.child("targetPort");
    match port.get("targetPort") {
        Some(Value::String(name)) => invalid_each(&target, name, port_name(name), errors),
        other => {
            let number = other.and_then(Value::as_i64).unwrap_or_default();
            for message in in_range(number, 1, 65535) {
                errors.invalid(&target, &number.into(), &message);
            }
        }
    }
    if non_null(port, "/appProtocol").is_some() {
        let name = text(port, "/appProtocol");
        invalid_each(&path.child("appProtocol"), name, qualified_name(name), errors);
    }
}

fn validate_affinity(service: &Value, errors: &mut FieldErrors) {
    let spec = FieldPath::new("spec");
    let config = spec.child("sessionAffinityConfig");
    match text(service, "/spec/sessionAffinity") {
        "" => errors.required(&spec.child("sessionAffinity"), ""),
        "None" => {
            if non_null(service, "/spec/sessionAffinityConfig").is_some() {
                errors.forbidden(&config, "must not be set when session affinity is None");
            }
        }
        "ClientIP" => {
            let path = config.child("clientIP").child("timeoutSeconds");
            match integer(service, "/spec/sessionAffinityConfig/clientIP/timeoutSeconds") {
                None => errors.required(&path, "when session affinity type is ClientIP"),
                Some(n) if (1..=MAX_AFFINITY_SECONDS).contains(&n) => {}
                Some(n) => {
                    let detail = format!("must be greater than 0 and less than {MAX_AFFINITY_SECONDS}");
                    errors.invalid(&path, &n.into(), &detail);
                }
            }
        }
        other => {
            errors.not_supported(&spec.child("sessionAffinity"), other, &["ClientIP", "None"]);
        }
    }
}

fn validate_addresses(service: &Value, errors: &mut FieldErrors) {
    let spec = FieldPath::new("spec");
    let ips: Vec<&str> = texts(service, "/spec/clusterIPs").collect();
    let path = spec.child("clusterIPs");
    match text(service, "/spec/clusterIP") {
        "" if !ips.is_empty() => {
            errors.forbidden(&path, "must be empty when `clusterIP` is not specified");
        }
        ip if !ips.is_empty() && ips[0] != ip => {
            let shown = non_null(service, "/spec/clusterIPs").unwrap_or(&Value::Null);
            errors.invalid(&path, shown, "first value must match `clusterIP`");
        }
        _ => {}
    }
    for (i, ip) in ips.iter().enumerate().filter(|(_, ip)| **ip != "None") {
        invalid_each(&path.index(i), ip, ip_address(ip), errors);
    }
    for (i, ip) in texts(service, "/spec/externalIPs").enumerate() {
        invalid_each(&spec.child("externalIPs").index(i), ip, ip_address(ip), errors);
    }
}

fn validate_port_numbers(service: &Value, errors: &mut FieldErrors) {
    let path = FieldPath::new("spec").child("ports");
    let is_cluster_ip = text(service, "/spec/type") == "ClusterIP";
    let (mut node_ports, mut numbers) = (HashSet::new(), HashSet::new());
    for (i, port) in list(service, "/spec/ports").iter().enumerate() {
        let protocol = text(port, "/protocol");
        let node = integer(port, "/nodePort").unwrap_or_default();
        let at = path.index(i).child("nodePort");
        if node != 0 && is_cluster_ip {
            errors.forbidden(&at, "may not be used when `type` is 'ClusterIP'");
        }
        if node != 0 && !node_ports.insert((protocol, node)) {
            errors.duplicate(&at, &node.into());
        }
        let number = integer(port, "/port").unwrap_or_default();
        if !numbers.insert((protocol, number)) {
            let key = serde_json::json!({"port": number, "protocol": protocol});
            errors.duplicate(&path.index(i), &key);
        }
    }
}

fn validate_policies(service: &Value, errors: &mut FieldErrors) {
    const POLICIES: [&str; 2] = ["Cluster", "Local"];
    let spec = FieldPath::new("spec");
    const BALANCED: &str = "may only be used when `type` is 'LoadBalancer'";
    let balanced = text(service, "/spec/type") == "LoadBalancer";
    // Upstream misspells the first one.
    for (field, shown) in [
        ("loadBalancerSourceRanges", "LoadBalancerSourceRanges"),
        ("allocateLoadBalancerNodePorts", "allocateLoadBalancerNodePorts"),
        ("loadBalancerClass", "loadBalancerClass"),
    ] {
        if non_null(service, &format!("/spec/{field}")).is_some() && !balanced {
            errors.forbidden(&spec.child(shown), BALANCED);
        }
    }
    let external = text(service, "/spec/externalTrafficPolicy");
    let path = spec.child("externalTrafficPolicy");
    if !super::is_exposed(service) {
        if !external.is_empty() {
            let detail = "may only be set for externally-accessible services";
            errors.invalid_str(&path, external, detail);
        }
    } else if external.is_empty() {
        errors.required(&path, "");
    } else if !POLICIES.contains(&external) {
        errors.not_supported(&path, external, &POLICIES);
    }
    let internal = text(service, "/spec/internalTrafficPolicy");
    if non_null(service, "/spec/internalTrafficPolicy").is_some() && !POLICIES.contains(&internal) {
        errors.not_supported(&spec.child("internalTrafficPolicy"), internal, &POLICIES);
    }
}

fn invalid_each(path: &FieldPath, value: &str, messages: Vec<String>, errors: &mut FieldErrors) {
    errors.invalid_each(path, value, messages);
}
