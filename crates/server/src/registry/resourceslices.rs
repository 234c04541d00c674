//! ResourceSlices: devices that drivers provide. Stored and served only; nothing here acts on them.

use std::collections::HashSet;

use serde_json::Value;
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::names::{c_identifier, dns1123_label, dns1123_subdomain};

use super::csinodes::validate_driver_name;
use super::kind::{Kind, Scope, SelectableField, ServedVersion};
use super::object_fields::{bool_at, count, entries, immutable, integer, list, non_null, text};
use super::table_cells;

const POOL_NAME_MAX: usize = 253;
const DEVICES_MAX: usize = 128;
const DEVICES_WITH_TAINTS_OR_COUNTERS_MAX: usize = 64;
const ATTRIBUTES_AND_CAPACITIES_MAX: usize = 32;
const IDENTIFIER_MAX: usize = 32;

/// Descriptor of ResourceSlice in `resource.k8s.io`.
pub(crate) const KIND: Kind = Kind {
    name: "ResourceSlice",
    plural: "resourceslices",
    scope: Scope::Cluster,
    served: &[ServedVersion::new("resource.k8s.io", "v1", "io.k8s.api.resource.v1.ResourceSlice")],
    selectable: &[
        SelectableField::new("spec.nodeName", &["/spec/nodeName"]),
        SelectableField::new("spec.driver", &["/spec/driver"]),
    ],
    columns: &[
        table_cells::NAME,
        table_cells::column("Node"),
        table_cells::column("Driver"),
        table_cells::column("Pool"),
        table_cells::AGE,
    ],
    row: |object, now| {
        vec![
            table_cells::name(object),
            non_null(object, "/spec/nodeName").cloned().unwrap_or_default(),
            text(object, "/spec/driver").into(),
            text(object, "/spec/pool/name").into(),
            table_cells::age(object, now),
        ]
    },
    generation: true,
    validate_create: |object, errors| validate(object, None, errors),
    validate_update: |new, old, errors| validate(new, Some(old), errors),
    returns_deleted: true,
    ..Kind::DEFAULT
};

fn validate(object: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    let spec = FieldPath::new("spec");
    validate_driver_name(text(object, "/spec/driver"), &spec.child("driver"), errors);
    validate_pool(object, errors);
    if let Some(old) = old {
        let name = spec.child("pool").child("name");
        immutable(object, old, "/spec/pool/name", &name, errors);
        immutable(object, old, "/spec/driver", &spec.child("driver"), errors);
        immutable(object, old, "/spec/nodeName", &spec.child("nodeName"), errors);
    }
    validate_nodes(object, errors);
    if count(object, "/spec/sharedCounters") > 0 && count(object, "/spec/devices") > 0 {
        errors.invalid_str(&spec, "", "only one of `sharedCounters` or `devices` is allowed");
    }
    validate_devices(object, errors);
}

fn validate_pool(object: &Value, errors: &mut FieldErrors) {
    let pool = FieldPath::new("spec").child("pool");
    let path = pool.child("name");
    let name = text(object, "/spec/pool/name");
    if name.is_empty() {
        errors.required(&path, "");
    } else {
        if name.len() > POOL_NAME_MAX {
            errors.too_long(&path, POOL_NAME_MAX);
        }
        for part in name.split('/') {
            errors.invalid_each(&path, part, dns1123_subdomain(part));
        }
    }
    let slices = integer(object, "/spec/pool/resourceSliceCount").unwrap_or_default();
    if slices <= 0 {
        let path = pool.child("resourceSliceCount");
        errors.invalid(&path, &slices.into(), "must be greater than zero");
    }
    let generation = integer(object, "/spec/pool/generation").unwrap_or_default();
    if generation < 0 {
        let path = pool.child("generation");
        errors.invalid(&path, &generation.into(), "must be greater than or equal to zero");
    }
}

fn validate_nodes(object: &Value, errors: &mut FieldErrors) {
    const ONE_OF: &str = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, \
                          `perDeviceNodeSelection` is required";
    let spec = FieldPath::new("spec");
    let mut set = Vec::new();
    if non_null(object, "/spec/nodeName").is_some() {
        let path = spec.child("nodeName");
        match text(object, "/spec/nodeName") {
            "" => {
                let detail = "must be either unset or set to a non-empty string";
                errors.invalid_str(&path, "", detail);
            }
            name => {
                set.push("`nodeName`");
                errors.invalid_each(&path, name, dns1123_subdomain(name));
            }
        }
    }
    if non_null(object, "/spec/nodeSelector").is_some() {
        set.push("`nodeSelector`");
        if count(object, "/spec/nodeSelector/nodeSelectorTerms") != 1 {
            let path = spec.child("nodeSelector").child("nodeSelectorTerms");
            let terms = non_null(object, "/spec/nodeSelector/nodeSelectorTerms");
            let detail = "must have exactly one node selector term";
            errors.invalid(&path, terms.unwrap_or(&Value::Null), detail);
        }
    }
    for (field, quoted) in
        [("allNodes", "`allNodes`"), ("perDeviceNodeSelection", "`perDeviceNodeSelection`")]
    {
        match bool_at(object, &format!("/spec/{field}")) {
            None => {}
            Some(true) => set.push(quoted),
            Some(false) => {
                let path = spec.child(field);
                errors.invalid(&path, &false.into(), "must be either unset or set to true");
            }
        }
    }
    match set.len() {
        0 => errors.required(&spec, ONE_OF),
        1 => {}
        _ => {
            let detail = format!("{ONE_OF}, but multiple fields are set");
            errors.invalid_str(&spec, &format!("{{{}}}", set.join(", ")), &detail);
        }
    }
}

fn validate_devices(object: &Value, errors: &mut FieldErrors) {
    let path = FieldPath::new("spec").child("devices");
    let devices = list(object, "/spec/devices");
    for (i, device) in devices.iter().enumerate() {
        validate_device(device, &path.index(i), errors);
    }
    let costly = |d: &Value| count(d, "/taints") > 0 || count(d, "/consumesCounters") > 0;
    let max = if devices.iter().any(costly) { DEVICES_WITH_TAINTS_OR_COUNTERS_MAX } else { DEVICES_MAX };
    if devices.len() > max {
        errors.too_many(&path, devices.len(), max);
    }
    let mut names = HashSet::new();
    for (i, device) in devices.iter().enumerate() {
        let name = text(device, "/name");
        if !names.insert(name) {
            errors.duplicate(&path.index(i), &name.into());
        }
    }
}

fn validate_device(device: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let name = text(device, "/name");
    errors.invalid_each(&path.child("name"), name, dns1123_label(name));
    let named = count(device, "/attributes") + count(device, "/capacity");
    if named > ATTRIBUTES_AND_CAPACITIES_MAX {
        let detail = format!(
            "the total number of attributes and capacities must not exceed {ATTRIBUTES_AND_CAPACITIES_MAX}"
        );
        errors.invalid(path, &named.into(), &detail);
    }
    for field in ["attributes", "capacity"] {
        for (key, _) in entries(device, &format!("/{field}")) {
            validate_qualified(key, &path.child(field).key(key), errors);
        }
    }
}

/// Validates the name of an attribute or capacity: an identifier with an optional domain.
fn validate_qualified(name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let (domain, identifier) = match name.split_once('/') {
        None => (None, name),
        Some((domain, identifier)) => (Some(domain), identifier),
    };
    if name.is_empty() {
        return errors.required(path, "name required");
    }
    match domain {
        None => {}
        Some("") => errors.required(path, "the domain must not be empty"),
        Some(domain) => validate_driver_name(domain, path, errors),
    }
    if identifier.is_empty() {
        return errors.required(path, "the name must not be empty");
    }
    if identifier.len() > IDENTIFIER_MAX {
        errors.too_long(path, IDENTIFIER_MAX);
    }
    errors.invalid_each(path, identifier, c_identifier(identifier));
}

#[cfg(test)]
mod tests {
    use super::super::object_fields::tests::cells;
    use super::*;
    use serde_json::json;

    fn slice() -> Value {
        json!({
            "metadata": {"name": "s", "creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {
                "driver": "d.example.com", "nodeName": "n",
                "pool": {"name": "p", "generation": 0, "resourceSliceCount": 1},
                "devices": [{"name": "gpu-0", "attributes": {"d.io/model": {"string": "x"}}}]
            }
        })
    }

    #[test]
    fn rows() {
        assert_eq!(cells(&KIND, &slice()), json!(["s", "n", "d.example.com", "p", "120m"]));
    }
}
