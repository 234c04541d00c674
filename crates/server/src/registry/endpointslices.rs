//! EndpointSlices: addresses of a service, in slices. Stored and served only, except those of the
//! API server itself ([`crate::endpoint_advertiser`]).

use std::collections::HashSet;
use std::net::IpAddr;

use serde_json::Value;
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::meta::validate_labels;
use windlass_api::names::{dns1123_label, dns1123_subdomain, ip_address, label_value};

use super::endpoints::{SHOWN, validate_endpoint_ip, validate_protocols};
use super::kind::{Kind, ServedVersion};
use super::object_fields::{count, entries, integer, list, map, non_null, text, texts};
use super::table_cells;

const ADDRESS_TYPES: [&str; 3] = ["FQDN", "IPv4", "IPv6"];

// Kubernetes' limits.
const MAX_ENDPOINTS: usize = 1000;
const MAX_ADDRESSES: usize = 100;
const MAX_PORTS: usize = 20_000;
const MAX_TOPOLOGY_LABELS: usize = 16;
const MAX_HINTS: usize = 8;

/// Descriptor of EndpointSlice in `discovery.k8s.io`.
pub(crate) const KIND: Kind = Kind {
    name: "EndpointSlice",
    plural: "endpointslices",
    served: &[ServedVersion::new("discovery.k8s.io", "v1", "io.k8s.api.discovery.v1.EndpointSlice")],
    generation: true,
    columns: &[
        table_cells::NAME,
        table_cells::column("AddressType"),
        table_cells::column("Ports"),
        table_cells::column("Endpoints"),
        table_cells::AGE,
    ],
    row: |object, now| {
        vec![
            table_cells::name(object),
            text(object, "/addressType").into(),
            shown_ports(object).into(),
            shown_addresses(object).into(),
            table_cells::age(object, now),
        ]
    },
    defaults,
    prepare_create: drop_topology,
    prepare_update: |new, old| {
        if non_null(new, "/endpoints") != non_null(old, "/endpoints") {
            drop_topology(new);
        }
    },
    validate_create: |object, errors| {
        validate(object, None, errors);
        validate_declared(object, errors);
    },
    validate_update: |new, old, errors| {
        validate(new, Some(old), errors);
        if text(new, "/addressType") != text(old, "/addressType") {
            // A declarative rule in Kubernetes' schema, which does not show the rejected value.
            errors.invalid(&FieldPath::new("addressType"), &Value::Null, "field is immutable");
            return;
        }
        validate_declared(new, errors);
    },
    ..Kind::DEFAULT
};

fn defaults(object: &mut Value) {
    let ports = object.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten() {
        let port = map(port);
        for (field, value) in [("name", ""), ("protocol", "TCP")] {
            if port.get(field).is_none_or(Value::is_null) {
                port.insert(field.to_owned(), value.into());
            }
        }
    }
}

/// Kubernetes accepts v1beta1 topology labels only from v1beta1 clients.
fn drop_topology(object: &mut Value) {
    let endpoints = object.get_mut("endpoints").and_then(Value::as_array_mut);
    for endpoint in endpoints.into_iter().flatten() {
        map(endpoint).remove("deprecatedTopology");
    }
}

/// Rules that Kubernetes implements in code.
fn validate(object: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    validate_ports(object, errors);
    // Values that an older server accepted may stay.
    if old.is_none_or(|old| non_null(old, "/endpoints") != non_null(object, "/endpoints")) {
        validate_endpoints(object, errors);
    }
}

/// Rules that Kubernetes declares in its schema; their errors come last.
fn validate_declared(object: &Value, errors: &mut FieldErrors) {
    let (path, kind) = (FieldPath::new("addressType"), text(object, "/addressType"));
    if kind.is_empty() {
        errors.required(&path, "");
    } else if !ADDRESS_TYPES.contains(&kind) {
        errors.not_supported(&path, kind, &ADDRESS_TYPES);
    }
    let endpoints = list(object, "/endpoints");
    if endpoints.len() > MAX_ENDPOINTS {
        return;
    }
    for (i, endpoint) in endpoints.iter().enumerate() {
        let path = FieldPath::new("endpoints").index(i).child("addresses");
        match count(endpoint, "/addresses") {
            0 => errors.required(&path, ""),
            many if many > MAX_ADDRESSES => errors.too_many(&path, many, MAX_ADDRESSES),
            _ => {}
        }
    }
}

fn validate_ports(object: &Value, errors: &mut FieldErrors) {
    let (path, ports) = (FieldPath::new("ports"), list(object, "/ports"));
    if ports.len() > MAX_PORTS {
        return errors.too_many(&path, ports.len(), MAX_PORTS);
    }
    let mut names = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        let (path, name) = (path.index(i), text(port, "/name"));
        if !name.is_empty() {
            errors.invalid_each(&path.child("name"), name, dns1123_label(name));
        }
        if !names.insert(name) {
            errors.duplicate(&path.child("name"), &name.into());
        }
        validate_protocols(port, &path, errors);
    }
}

fn validate_endpoints(object: &Value, errors: &mut FieldErrors) {
    let (path, endpoints) = (FieldPath::new("endpoints"), list(object, "/endpoints"));
    if endpoints.len() > MAX_ENDPOINTS {
        return errors.too_many(&path, endpoints.len(), MAX_ENDPOINTS);
    }
    let kind = text(object, "/addressType");
    for (i, endpoint) in endpoints.iter().enumerate() {
        let path = path.index(i);
        // Longer lists are rejected below.
        for (i, address) in texts(endpoint, "/addresses").enumerate().take(MAX_ADDRESSES) {
            validate_address(kind, address, &path.child("addresses"), i, errors);
        }
        if non_null(endpoint, "/nodeName").is_some() {
            let node = text(endpoint, "/nodeName");
            errors.invalid_each(&path.child("nodeName"), node, dns1123_subdomain(node));
        }
        validate_topology(endpoint, &path.child("deprecatedTopology"), errors);
        if non_null(endpoint, "/hostname").is_some() {
            let hostname = text(endpoint, "/hostname");
            errors.invalid_each(&path.child("hostname"), hostname, dns1123_label(hostname));
        }
        validate_hints(endpoint, &path.child("hints"), errors);
    }
}

fn validate_address(kind: &str, address: &str, path: &FieldPath, index: usize, errors: &mut FieldErrors) {
    let at = path.index(index);
    match (kind, address.parse::<IpAddr>()) {
        ("IPv4" | "IPv6", Err(_)) => {
            errors.invalid_each(&at, address, ip_address(address));
        }
        ("IPv4" | "IPv6", Ok(ip)) => {
            if ip.is_ipv4() != (kind == "IPv4") {
                errors.invalid_str(path, address, &format!("must be an {kind} address"));
            }
            validate_endpoint_ip(address, &at, errors);
        }
        ("FQDN", _) => validate_domain(address, &at, errors),
        _ => {}
    }
}

fn validate_domain(name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let wrong = dns1123_subdomain(name);
    if !wrong.is_empty() {
        errors.invalid_str(path, name, &wrong.join(","));
    } else if !name.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        errors.invalid_str(path, name, detail);
    }
}

fn validate_topology(endpoint: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let many = entries(endpoint, "/deprecatedTopology").count();
    if many > MAX_TOPOLOGY_LABELS {
        errors.too_many(path, many, MAX_TOPOLOGY_LABELS);
    }
    if let Some(labels) = non_null(endpoint, "/deprecatedTopology") {
        validate_labels(path, labels, errors);
    }
}

fn validate_hints(endpoint: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for (field, rule) in
        [("forZones", label_value as fn(&str) -> Vec<String>), ("forNodes", dns1123_subdomain)]
    {
        let (path, hints) = (path.child(field), list(endpoint, &format!("/hints/{field}")));
        if hints.len() > MAX_HINTS {
            return errors.too_many(&path, hints.len(), MAX_HINTS);
        }
        let mut names = HashSet::new();
        for (i, hint) in hints.iter().enumerate() {
            let (path, name) = (path.index(i).child("name"), text(hint, "/name"));
            if !names.insert(name) {
                errors.duplicate(&path, &name.into());
            }
            errors.invalid_each(&path, name, rule(name));
        }
    }
}

fn shown_ports(object: &Value) -> String {
    let ports = list(object, "/ports");
    let shown = ports.iter().take(SHOWN).map(|port| match integer(port, "/port") {
        Some(number) => number.to_string(),
        None if non_null(port, "/name").is_some() => text(port, "/name").to_owned(),
        None => "*".to_owned(),
    });
    with_more(shown.collect(), ports.len())
}

fn shown_addresses(object: &Value) -> String {
    let addresses = || list(object, "/endpoints").iter().flat_map(|e| texts(e, "/addresses"));
    with_more(addresses().take(SHOWN).map(str::to_owned).collect(), addresses().count())
}

fn with_more(shown: Vec<String>, total: usize) -> String {
    let text = shown.join(",");
    match total {
        _ if total > SHOWN => format!("{text} + {} more...", total - SHOWN),
        _ if text.is_empty() => "<unset>".to_owned(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::super::object_fields::tests::{cells, refusals};
    use super::*;
    use serde_json::json;

    fn slice(addresses: &[&str]) -> Value {
        json!({
            "metadata": {"name": "s", "creationTimestamp": "1970-01-01T00:00:00Z"},
            "addressType": "IPv4",
            "endpoints": [{"addresses": addresses}],
            "ports": [{"name": "https", "port": 443, "protocol": "TCP"}],
        })
    }

    #[test]
    fn lists_have_limits() {
        let mut object = slice(&["10.0.0.1"]);
        object["endpoints"] = vec![json!({"addresses": ["10.0.0.1"]}); MAX_ENDPOINTS + 1].into();
        assert_eq!(refusals(&KIND, &object), ["endpoints: Too many: 1001: must have at most 1000 items"]);
        let many: Vec<&str> = vec!["10.0.0.1"; MAX_ADDRESSES + 1];
        assert_eq!(
            refusals(&KIND, &slice(&many)),
            ["endpoints[0].addresses: Too many: 101: must have at most 100 items"]
        );
    }

    #[test]
    fn rows() {
        let expected = json!(["s", "IPv4", "443", "10.0.0.1", "120m"]);
        assert_eq!(cells(&KIND, &slice(&["10.0.0.1"])), expected);
        let object = slice(&["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"]);
        assert_eq!(cells(&KIND, &object)[3], "10.0.0.1,10.0.0.2,10.0.0.3 + 1 more...");
    }
}
