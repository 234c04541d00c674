//! Services: names for sets of pods. Stored and served only: no address or port is allocated.

mod validation;

use serde_json::{Value, json};
use time::OffsetDateTime;
use windlass_api::names::dns1035_label_rule;

use super::kind::{Kind, SelectableField, ServedVersion, Subresource};
use super::object_fields::{
    count, default, entries, integer, list, map, non_null, part, restore_field, text, texts,
};
use super::table_cells;

/// Descriptor of Service in the core group.
pub(crate) const KIND: Kind = Kind {
    name: "Service",
    plural: "services",
    short_names: &["svc"],
    categories: &["all"],
    served: &[ServedVersion::new("", "v1", "io.k8s.api.core.v1.Service")],
    subresources: &[Subresource::STATUS],
    name_rule: dns1035_label_rule,
    selectable: &[
        SelectableField::new("spec.clusterIP", &["/spec/clusterIP"]),
        SelectableField::new("spec.type", &["/spec/type"]),
    ],
    columns: &[
        table_cells::NAME,
        table_cells::column("Type"),
        table_cells::column("Cluster-IP"),
        table_cells::column("External-IP"),
        table_cells::column("Port(s)"),
        table_cells::AGE,
        table_cells::wide(table_cells::column("Selector")),
    ],
    row,
    defaults,
    prepare_create: |object| {
        map(object).insert("status".into(), json!({"loadBalancer": {}}));
        repeat_cluster_ip(object);
    },
    prepare_update: |new, old| {
        restore_field(new, old, "status");
        drop_what_the_type_lost(new, old);
        restore_cluster_ip(new, old);
        repeat_cluster_ip(new);
    },
    validate_create: validation::create,
    validate_update: validation::update,
    returns_deleted: true,
    ..Kind::DEFAULT
};

fn defaults(object: &mut Value) {
    let spec = part(object, "spec");
    default(spec, "type", "ClusterIP");
    default(spec, "sessionAffinity", "None");
    match spec.get("sessionAffinity").and_then(Value::as_str) {
        Some("None") => {
            spec.remove("sessionAffinityConfig");
        }
        Some("ClientIP") => {
            let config = spec.entry("sessionAffinityConfig").or_insert(Value::Null);
            if non_null(config, "/clientIP/timeoutSeconds").is_none() {
                *config = json!({"clientIP": {"timeoutSeconds": 10800}});
            }
        }
        _ => {}
    }
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let number = port.get("port").cloned().unwrap_or(json!(0));
        let port = map(port);
        default(port, "protocol", "TCP");
        if matches!(port.get("targetPort"), None | Some(Value::Null))
            || port["targetPort"] == 0
            || port["targetPort"] == ""
        {
            port.insert("targetPort".into(), number);
        }
    }
    let kind = spec.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let external_ips = spec.get("externalIPs").and_then(Value::as_array).is_some_and(|l| !l.is_empty());
    let exposed = ["NodePort", "LoadBalancer"].contains(&kind.as_str());
    if exposed || (kind == "ClusterIP" && external_ips) {
        default(spec, "externalTrafficPolicy", "Cluster");
    }
    if ["ClusterIP", "NodePort", "LoadBalancer"].contains(&kind.as_str()) {
        default(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        default(spec, "allocateLoadBalancerNodePorts", true);
    }
    let status = part(object, "status");
    status.entry("loadBalancer").or_insert_with(|| json!({}));
}

/// `clusterIPs` repeats the single address that older clients set.
fn repeat_cluster_ip(object: &mut Value) {
    let ip = text(object, "/spec/clusterIP").to_owned();
    if !ip.is_empty() && count(object, "/spec/clusterIPs") == 0 {
        part(object, "spec").insert("clusterIPs".into(), json!([ip]));
    }
}

/// A client that omits the address of a service does not intend to remove it.
fn restore_cluster_ip(new: &mut Value, old: &Value) {
    let external = |object: &Value| text(object, "/spec/type") == "ExternalName";
    let given = count(new, "/spec/clusterIPs") > 0 || !text(new, "/spec/clusterIP").is_empty();
    if given || external(new) || external(old) {
        return;
    }
    for field in ["clusterIP", "clusterIPs"] {
        if let Some(value) = old.get("spec").and_then(|spec| spec.get(field)) {
            part(new, "spec").insert(field.into(), value.clone());
        }
    }
}

/// A client that changes the type of a service and repeats the other fields does not intend to keep
/// those that only the old type has.
fn drop_what_the_type_lost(new: &mut Value, old: &Value) {
    type Has = fn(&Value) -> bool;
    let named: Has = |object| text(object, "/spec/type") != "ExternalName";
    let rules: [(&[&str], Has); 4] = [
        (&["clusterIP", "clusterIPs"], named),
        (&["ipFamilies", "ipFamilyPolicy"], named),
        (&["externalTrafficPolicy"], is_exposed),
        (&["allocateLoadBalancerNodePorts", "loadBalancerClass"], |object| {
            text(object, "/spec/type") == "LoadBalancer"
        }),
    ];
    for (fields, has) in rules {
        let same = |field: &&str| {
            let pointer = format!("/spec/{field}");
            non_null(new, &pointer) == non_null(old, &pointer)
        };
        if has(old) && !has(new) && fields.iter().all(same) {
            for field in fields {
                part(new, "spec").remove(*field);
            }
        }
    }
    let has_node_ports = |object: &Value| ["NodePort", "LoadBalancer"].contains(&text(object, "/spec/type"));
    let node_ports = |object: &Value| -> Vec<Option<i64>> {
        list(object, "/spec/ports").iter().map(|port| integer(port, "/nodePort")).collect()
    };
    if has_node_ports(old) && !has_node_ports(new) && node_ports(old) == node_ports(new) {
        let ports = part(new, "spec").get_mut("ports").and_then(Value::as_array_mut);
        for port in ports.into_iter().flatten() {
            map(port).remove("nodePort");
        }
    }
}

/// Returns true if the service is reachable from outside the cluster.
fn is_exposed(object: &Value) -> bool {
    match text(object, "/spec/type") {
        "NodePort" | "LoadBalancer" => true,
        "ClusterIP" => count(object, "/spec/externalIPs") > 0,
        _ => false,
    }
}

fn row(object: &Value, now: OffsetDateTime) -> Vec<Value> {
    let cluster_ip = texts(object, "/spec/clusterIPs").next().unwrap_or("<none>");
    let ports: Vec<String> = list(object, "/spec/ports").iter().map(port).collect();
    let selector: Vec<String> = entries(object, "/spec/selector")
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    vec![
        table_cells::name(object),
        text(object, "/spec/type").into(),
        cluster_ip.into(),
        external_ip(object).into(),
        or_none(ports).into(),
        table_cells::age(object, now),
        or_none(selector).into(),
    ]
}

fn or_none(parts: Vec<String>) -> String {
    if parts.is_empty() { "<none>".to_owned() } else { parts.join(",") }
}

fn port(port: &Value) -> String {
    let number = integer(port, "/port").unwrap_or_default();
    let protocol = text(port, "/protocol");
    match integer(port, "/nodePort").unwrap_or_default() {
        node if node > 0 => format!("{number}:{node}/{protocol}"),
        _ => format!("{number}/{protocol}"),
    }
}

fn external_ip(object: &Value) -> String {
    let external: Vec<String> = texts(object, "/spec/externalIPs").map(str::to_owned).collect();
    match text(object, "/spec/type") {
        "ClusterIP" | "NodePort" => or_none(external),
        "LoadBalancer" => {
            let mut all: Vec<String> = list(object, "/status/loadBalancer/ingress")
                .iter()
                .map(|ingress| match text(ingress, "/ip") {
                    "" => text(ingress, "/hostname").to_owned(),
                    ip => ip.to_owned(),
                })
                .filter(|address| !address.is_empty())
                .collect();
            all.sort();
            all.dedup();
            all.extend(external);
            if all.is_empty() { "<pending>".to_owned() } else { all.join(",") }
        }
        "ExternalName" => text(object, "/spec/externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

#[cfg(test)]
mod tests;
