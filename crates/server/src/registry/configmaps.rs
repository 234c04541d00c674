//! ConfigMaps: plain configuration for pods.

use serde_json::Value;
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::names::config_map_key;

use super::kind::{Kind, ServedVersion};
use super::object_fields::{bool_at, count, decoded_len, entries, non_null};
use super::table_cells;

/// Maximum total size of all values of a ConfigMap or Secret, in bytes.
pub(crate) const MAX_DATA: usize = 1024 * 1024;

/// Descriptor of ConfigMap in the core group.
pub(crate) const KIND: Kind = Kind {
    name: "ConfigMap",
    plural: "configmaps",
    short_names: &["cm"],
    served: &[ServedVersion::new("", "v1", "io.k8s.api.core.v1.ConfigMap")],
    columns: &[table_cells::NAME, table_cells::column("Data"), table_cells::AGE],
    row: |object, now| {
        let data = count(object, "/data") + count(object, "/binaryData");
        vec![table_cells::name(object), data.into(), table_cells::age(object, now)]
    },
    validate_create: validate,
    validate_update: |new, old, errors| {
        validate_frozen(new, old, &["data", "binaryData"], errors);
        validate(new, errors);
    },
    ..Kind::DEFAULT
};

fn validate(object: &Value, errors: &mut FieldErrors) {
    let mut size = 0;
    for (bag, other) in [("data", "binaryData"), ("binaryData", "data")] {
        for (key, value) in entries(object, &format!("/{bag}")) {
            let path = FieldPath::new(bag).key(key);
            errors.invalid_each(&path, key, config_map_key(key));
            if object.get(other).and_then(|map| map.get(key)).is_some() {
                errors.invalid_str(&path, key, &format!("duplicate of key present in {other}"));
            }
            let value = value.as_str().unwrap_or_default();
            size += if bag == "data" { value.len() } else { decoded_len(value) };
        }
    }
    if size > MAX_DATA {
        // Path of the whole object, as Kubernetes spells it here.
        errors.too_long(&FieldPath::new("[]"), MAX_DATA);
    }
}

/// Checks that an object with `immutable: true` keeps that field and all `fields`.
pub(super) fn validate_frozen(new: &Value, old: &Value, fields: &[&str], errors: &mut FieldErrors) {
    const DETAIL: &str = "field is immutable when `immutable` is set";
    if bool_at(old, "/immutable") != Some(true) {
        return;
    }
    if bool_at(new, "/immutable") != Some(true) {
        errors.forbidden(&FieldPath::new("immutable"), DETAIL);
    }
    for field in fields {
        let pointer = format!("/{field}");
        if non_null(new, &pointer) != non_null(old, &pointer) {
            errors.forbidden(&FieldPath::new(field), DETAIL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::object_fields::tests::{cells, refusals};
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_and_sizes() {
        let big = "x".repeat(MAX_DATA);
        let key = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' \
                   (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is \
                   '[-._a-zA-Z0-9]+')";
        let table: Vec<(Value, Vec<String>)> = vec![
            (json!({"data": {"a": "1", "b.c-D_": ""}}), vec![]),
            (json!({"data": {"a b": "1"}}), vec![format!("data[a b]: Invalid value: \"a b\": {key}")]),
            (
                json!({"data": {"a": "1"}, "binaryData": {"a": "MQ=="}}),
                vec![
                    "data[a]: Invalid value: \"a\": duplicate of key present in binaryData".into(),
                    "binaryData[a]: Invalid value: \"a\": duplicate of key present in data".into(),
                ],
            ),
            (json!({"data": {"a": big}}), vec![]),
            (
                json!({"data": {"a": big, "b": "1"}}),
                vec!["[]: Too long: may not be more than 1048576 bytes".into()],
            ),
            (
                json!({"data": {"a": big}, "binaryData": {"b": "MQ=="}}),
                vec!["[]: Too long: may not be more than 1048576 bytes".into()],
            ),
        ];
        for (object, expected) in table {
            assert_eq!(refusals(&KIND, &object), expected);
        }
    }

    #[test]
    fn rows() {
        let object = json!({
            "metadata": {"name": "cm", "creationTimestamp": "1970-01-01T00:00:00Z"},
            "data": {"a": "1"}, "binaryData": {"b": "MQ=="}
        });
        assert_eq!(cells(&KIND, &object), json!(["cm", 2, "120m"]));
    }
}
