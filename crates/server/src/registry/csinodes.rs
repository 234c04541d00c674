//! CSINodes: storage drivers of a node. Stored and served only; nothing here acts on them.

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::names::{dns1123_subdomain, qualified_name};

use super::kind::{Kind, Scope, ServedVersion};
use super::object_fields::{count, integer, list, map, text, texts};
use super::table_cells;

/// Maximum bytes of a driver's name.
const DRIVER_MAX: usize = 63;
/// Maximum bytes of a driver's node ID.
const NODE_ID_MAX: usize = 192;

/// Descriptor of CSINode in `storage.k8s.io`, written by kubelets.
pub(crate) const KIND: Kind = Kind {
    name: "CSINode",
    plural: "csinodes",
    scope: Scope::Cluster,
    served: &[ServedVersion::new("storage.k8s.io", "v1", "io.k8s.api.storage.v1.CSINode")],
    columns: &[
        table_cells::NAME,
        table_cells::with_type("integer", table_cells::column("Drivers")),
        table_cells::AGE,
    ],
    row: |object, now| {
        vec![table_cells::name(object), count(object, "/spec/drivers").into(), table_cells::age(object, now)]
    },
    unconditional_update: false,
    validate_create: validate,
    validate_update,
    returns_deleted: true,
    ..Kind::DEFAULT
};

fn validate(object: &Value, errors: &mut FieldErrors) {
    let mut names = HashSet::new();
    for (i, driver) in list(object, "/spec/drivers").iter().enumerate() {
        let path = FieldPath::new("spec").child("drivers").index(i);
        let name = text(driver, "/name");
        validate_driver_name(name, &path.child("name"), errors);
        let id = text(driver, "/nodeID");
        if id.is_empty() {
            errors.required(&path.child("nodeID"), "");
        } else if id.len() > NODE_ID_MAX {
            let detail = format!("must be {NODE_ID_MAX} characters or less");
            errors.invalid_str(&path.child("nodeID"), id, &detail);
        }
        if let Some(count) = integer(driver, "/allocatable/count").filter(|n| *n < 0) {
            let path = path.child("allocatable").child("count");
            errors.invalid(&path, &count.into(), "must be greater than or equal to 0");
        }
        if !names.insert(name) {
            errors.duplicate(&path.child("name"), &name.into());
        }
        validate_topology(driver, &path, errors);
    }
}

fn validate_topology(driver: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let mut keys = HashSet::new();
    for key in texts(driver, "/topologyKeys") {
        if key.is_empty() {
            errors.required(path, "");
        }
        if !keys.insert(key) {
            errors.duplicate(path, &key.into());
        }
        errors.invalid_each(path, key, qualified_name(key));
    }
}

/// Validates the name of a storage driver: a DNS subdomain, ignoring case.
pub(super) fn validate_driver_name(name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if name.is_empty() {
        errors.required(path, "");
    }
    if name.len() > DRIVER_MAX {
        errors.too_long(path, DRIVER_MAX);
    }
    errors.invalid_each(path, name, dns1123_subdomain(&name.to_lowercase()));
}

fn validate_update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    validate(new, errors);
    // An existing driver is immutable, except for its allocatable count.
    let fixed = |driver: &Value| {
        let mut driver = driver.clone();
        map(&mut driver).remove("allocatable");
        driver
    };
    // Names are unique: duplicates were rejected above.
    let drivers = list(new, "/spec/drivers").iter();
    let now: HashMap<&str, &Value> = drivers.map(|driver| (text(driver, "/name"), driver)).collect();
    for old in list(old, "/spec/drivers") {
        if let Some(new) = now.get(text(old, "/name"))
            && fixed(new) != fixed(old)
        {
            let path = FieldPath::new("spec").child("drivers");
            errors.invalid(&path, &fixed(new), "field is immutable");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::object_fields::tests::{cells, refusals};
    use super::*;
    use serde_json::json;

    #[test]
    fn rules() {
        let good = json!({"metadata": {"name": "n", "creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {"drivers": [{"name": "d.io", "nodeID": "x", "topologyKeys": ["a/b"]}]}});
        assert_eq!(refusals(&KIND, &good), Vec::<String>::new());
        assert_eq!(cells(&KIND, &good), json!(["n", 1, "120m"]));
        let bad = json!({"spec": {"drivers": [
            {"name": "a", "nodeID": "", "allocatable": {"count": -1}},
            {"name": "a", "nodeID": "x".repeat(193), "topologyKeys": ["k", "k"]}
        ]}});
        let long = "x".repeat(193);
        assert_eq!(
            refusals(&KIND, &bad),
            [
                "spec.drivers[0].nodeID: Required value".to_owned(),
                "spec.drivers[0].allocatable.count: Invalid value: -1: must be greater than or equal to 0"
                    .to_owned(),
                format!("spec.drivers[1].nodeID: Invalid value: \"{long}\": must be 192 characters or less"),
                "spec.drivers[1].name: Duplicate value: \"a\"".to_owned(),
                "spec.drivers[1]: Duplicate value: \"k\"".to_owned(),
            ]
        );
    }
}
