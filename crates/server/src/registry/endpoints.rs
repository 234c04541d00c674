//! Endpoints: addresses of a service. Stored and served only, except those of the API server itself
//! ([`crate::endpoint_advertiser`]).

use std::net::IpAddr;

use serde_json::Value;
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::names::{dns1123_label, dns1123_subdomain, in_range, ip_address, qualified_name};

use super::kind::{Kind, ServedVersion};
use super::object_fields::{count, default, integer, list, map, non_null, text};
use super::table_cells;

/// Port protocols, in the order in which Kubernetes lists them.
pub(crate) const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

/// Maximum number of addresses or ports in a cell.
pub(crate) const SHOWN: usize = 3;

/// Descriptor of Endpoints in the core group.
pub(crate) const KIND: Kind = Kind {
    name: "Endpoints",
    plural: "endpoints",
    short_names: &["ep"],
    served: &[ServedVersion::new("", "v1", "io.k8s.api.core.v1.Endpoints")],
    columns: &[table_cells::NAME, table_cells::column("Endpoints"), table_cells::AGE],
    row: |object, now| vec![table_cells::name(object), shown(object).into(), table_cells::age(object, now)],
    create_on_update: true,
    defaults,
    validate_create: validate,
    validate_update: |new, old, errors| {
        // Values that an older server accepted may stay.
        if non_null(new, "/subsets") != non_null(old, "/subsets") {
            validate(new, errors);
        }
    },
    ..Kind::DEFAULT
};

fn defaults(object: &mut Value) {
    let subsets = object.get_mut("subsets").and_then(Value::as_array_mut);
    for subset in subsets.into_iter().flatten() {
        let ports = subset.get_mut("ports").and_then(Value::as_array_mut);
        for port in ports.into_iter().flatten() {
            default(map(port), "protocol", "TCP");
        }
    }
}

fn validate(object: &Value, errors: &mut FieldErrors) {
    for (i, subset) in list(object, "/subsets").iter().enumerate() {
        let path = FieldPath::new("subsets").index(i);
        if count(subset, "/addresses") + count(subset, "/notReadyAddresses") == 0 {
            errors.required(&path, "must specify `addresses` or `notReadyAddresses`");
        }
        for field in ["addresses", "notReadyAddresses"] {
            let path = path.child(field);
            for (i, address) in list(subset, &format!("/{field}")).iter().enumerate() {
                validate_address(address, &path.index(i), errors);
            }
        }
        let ports = list(subset, "/ports");
        for (i, port) in ports.iter().enumerate() {
            validate_port(port, ports.len() > 1, &path.child("ports").index(i), errors);
        }
    }
}

fn validate_address(address: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (at_ip, ip) = (path.child("ip"), text(address, "/ip"));
    errors.invalid_each(&at_ip, ip, ip_address(ip));
    let hostname = text(address, "/hostname");
    if !hostname.is_empty() {
        errors.invalid_each(&path.child("hostname"), hostname, dns1123_label(hostname));
    }
    if non_null(address, "/nodeName").is_some() {
        let node = text(address, "/nodeName");
        errors.invalid_each(&path.child("nodeName"), node, dns1123_subdomain(node));
    }
    validate_endpoint_ip(ip, &at_ip, errors);
}

/// Validates an endpoint address: it must be reachable from other machines.
pub(crate) fn validate_endpoint_ip(text: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let Ok(ip) = text.parse::<IpAddr>().map(|ip| ip.to_canonical()) else {
        return errors.invalid_str(path, text, "must be a valid IP address");
    };
    let (local, local_multicast) = match ip {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(ip) => (ip.is_unicast_link_local(), ip.segments()[0] & 0xff0f == 0xff02),
    };
    if ip.is_unspecified() {
        errors.invalid_str(path, text, &format!("may not be unspecified ({text})"));
    }
    if ip.is_loopback() {
        let detail = "may not be in the loopback range (127.0.0.0/8, ::1/128)";
        errors.invalid_str(path, text, detail);
    }
    if local {
        let detail = "may not be in the link-local range (169.254.0.0/16, fe80::/10)";
        errors.invalid_str(path, text, detail);
    }
    if local_multicast {
        let detail = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)";
        errors.invalid_str(path, text, detail);
    }
}

fn validate_port(port: &Value, named: bool, path: &FieldPath, errors: &mut FieldErrors) {
    let name = text(port, "/name");
    if named && name.is_empty() {
        errors.required(&path.child("name"), "");
    } else if !name.is_empty() {
        errors.invalid_each(&path.child("name"), name, dns1123_label(name));
    }
    let number = integer(port, "/port").unwrap_or_default();
    for message in in_range(number, 1, 65535) {
        errors.invalid(&path.child("port"), &number.into(), &message);
    }
    validate_protocols(port, path, errors);
}

/// Validates `protocol` and `appProtocol` of a port.
pub(crate) fn validate_protocols(port: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let protocol = text(port, "/protocol");
    if protocol.is_empty() {
        errors.required(&path.child("protocol"), "");
    } else if !PROTOCOLS.contains(&protocol) {
        errors.not_supported(&path.child("protocol"), protocol, &PROTOCOLS);
    }
    if non_null(port, "/appProtocol").is_some() {
        let name = text(port, "/appProtocol");
        errors.invalid_each(&path.child("appProtocol"), name, qualified_name(name));
    }
}

/// Formats the first addresses with their ports, as in `kubectl get endpoints`.
fn shown(object: &Value) -> String {
    let subsets = list(object, "/subsets");
    if subsets.is_empty() {
        return "<none>".to_owned();
    }
    let (mut first, mut total) = (Vec::new(), 0);
    for subset in subsets {
        let addresses = list(subset, "/addresses");
        let ports = list(subset, "/ports");
        total += addresses.len() * ports.len().max(1);
        if ports.is_empty() {
            first.extend(addresses.iter().map(|a| text(a, "/ip").to_owned()).take(SHOWN));
        }
        for port in ports.iter().take(SHOWN) {
            let number = integer(port, "/port").unwrap_or_default();
            let joined = addresses.iter().map(|a| join_host_port(text(a, "/ip"), number));
            first.extend(joined.take(SHOWN));
        }
    }
    first.truncate(SHOWN);
    let text = first.join(",");
    if total > SHOWN { format!("{text} + {} more...", total - SHOWN) } else { text }
}

fn join_host_port(ip: &str, port: i64) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::super::object_fields::tests::cells;
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_show_three_addresses() {
        let object = |subsets: Value| {
            json!({"metadata": {"name": "e", "creationTimestamp": "1970-01-01T00:00:00Z"},
                   "subsets": subsets})
        };
        let ips: Vec<Value> = (1..6).map(|i| json!({"ip": format!("10.0.0.{i}")})).collect();
        for (subsets, expected) in [
            (json!([]), "<none>"),
            (json!([{"addresses": [{"ip": "::1"}], "ports": [{"port": 443}]}]), "[::1]:443"),
            (
                json!([{"addresses": ips, "ports": [{"port": 80}]}]),
                "10.0.0.1:80,10.0.0.2:80,10.0.0.3:80 + 2 more...",
            ),
        ] {
            assert_eq!(cells(&KIND, &object(subsets)), json!(["e", expected, "120m"]));
        }
    }
}
