//! The projected volume with the pod's service account token.

use serde_json::{Value, json};

use crate::verbs::write_path::generate_name;

/// Mount path, where clients look for the token.
const PLACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Prefix of the volume's name; an existing volume with this prefix is reused.
const PREFIX: &str = "kube-api-access-";

/// Lifetime that distinguishes these tokens from those requested for one hour.
const LIFETIME: i64 = 3607;

/// Mounts the volume in all containers that mount nothing at its path, and adds it if needed.
pub(super) fn mount(spec: &mut Value) {
    let names = spec["volumes"].as_array().into_iter().flatten();
    let mut names = names.filter_map(|volume| volume["name"].as_str());
    let existing = names.find(|name| name.starts_with(PREFIX)).map(str::to_owned);
    let name = existing.clone().unwrap_or_else(|| generate_name(PREFIX));
    let mut needed = false;
    for list in ["initContainers", "containers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let mut mounts = container["volumeMounts"].as_array().into_iter().flatten();
            if mounts.any(|mount| mount["mountPath"] == PLACE) {
                continue;
            }
            push(container, "volumeMounts", json!({"mountPath": PLACE, "name": name, "readOnly": true}));
            needed = true;
        }
    }
    if needed && existing.is_none() {
        push(spec, "volumes", volume(&name));
    }
}

/// Includes all default values, because defaulting has already run.
fn volume(name: &str) -> Value {
    json!({
        "name": name,
        "projected": {
            "defaultMode": 0o644,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": LIFETIME, "path": "token"}},
                {"configMap": {
                    "items": [{"key": "ca.crt", "path": "ca.crt"}],
                    "name": "kube-root-ca.crt",
                }},
                {"downwardAPI": {"items": [{
                    "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                    "path": "namespace",
                }]}},
            ],
        },
    })
}

fn push(object: &mut Value, field: &str, item: Value) {
    match object.get_mut(field).and_then(Value::as_array_mut) {
        Some(list) => list.push(item),
        None => object[field] = json!([item]),
    }
}
