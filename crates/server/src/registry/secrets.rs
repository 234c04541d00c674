//! Secrets: confidential configuration.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::names::config_map_key;

use super::configmaps::{MAX_DATA, validate_frozen};
use super::kind::{Kind, SelectableField, ServedVersion};
use super::object_fields::{count, decoded_len, default, entries, immutable, map, part, text};
use super::table_cells;

/// Descriptor of Secret in the core group.
pub(crate) const KIND: Kind = Kind {
    name: "Secret",
    plural: "secrets",
    served: &[ServedVersion::new("", "v1", "io.k8s.api.core.v1.Secret")],
    selectable: &[SelectableField::new("type", &["/type"])],
    columns: &[table_cells::NAME, table_cells::column("Type"), table_cells::column("Data"), table_cells::AGE],
    row: |object, now| {
        vec![
            table_cells::name(object),
            text(object, "/type").into(),
            count(object, "/data").into(),
            table_cells::age(object, now),
        ]
    },
    defaults: |object| {
        default(map(object), "type", "Opaque");
        merge_string_data(object);
    },
    validate_create: validate,
    validate_update: |new, old, errors| {
        immutable(new, old, "/type", &FieldPath::new("type"), errors);
        validate_frozen(new, old, &["data"], errors);
        validate(new, errors);
    },
    ..Kind::DEFAULT
};

/// `stringData` is write-only: its values are merged into `data` and take precedence.
fn merge_string_data(object: &mut Value) {
    let Some(Value::Object(texts)) = map(object).remove("stringData") else { return };
    if texts.is_empty() {
        return;
    }
    let data = part(object, "data");
    for (key, value) in texts {
        let encoded = STANDARD.encode(value.as_str().unwrap_or_default());
        data.insert(key, encoded.into());
    }
}

fn validate(object: &Value, errors: &mut FieldErrors) {
    let data = FieldPath::new("data");
    let mut size = 0;
    for (key, value) in entries(object, "/data") {
        errors.invalid_each(&data.key(key), key, config_map_key(key));
        size += decoded_len(value.as_str().unwrap_or_default());
    }
    if size > MAX_DATA {
        errors.too_long(&data, MAX_DATA);
    }
    validate_type(object, errors);
}

/// Validates the required data of well-known types.
fn validate_type(object: &Value, errors: &mut FieldErrors) {
    let path = FieldPath::new("data");
    let data = |key: &str| object.get("data").and_then(|data| data.get(key));
    let mut require = |keys: &[&str]| {
        for key in keys {
            errors.required(&path.key(key), "");
        }
    };
    match text(object, "/type") {
        "kubernetes.io/service-account-token" => {
            const ANNOTATION: &str = "kubernetes.io/service-account.name";
            let annotations = object.pointer("/metadata/annotations");
            let name = annotations.and_then(|map| map.get(ANNOTATION)).and_then(Value::as_str);
            if name.unwrap_or_default().is_empty() {
                errors.required(&FieldPath::new("metadata").child("annotations").key(ANNOTATION), "");
            }
        }
        "kubernetes.io/dockercfg" => validate_docker(object, ".dockercfg", errors),
        "kubernetes.io/dockerconfigjson" => validate_docker(object, ".dockerconfigjson", errors),
        "kubernetes.io/basic-auth" if data("username").or(data("password")).is_none() => {
            require(&["username", "password"]);
        }
        "kubernetes.io/ssh-auth" if data("ssh-privatekey").is_none_or(|key| key == "") => {
            require(&["ssh-privatekey"]);
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"].into_iter().filter(|key| data(key).is_none()) {
                require(&[key]);
            }
        }
        _ => {}
    }
}

fn validate_docker(object: &Value, key: &str, errors: &mut FieldErrors) {
    let path = FieldPath::new("data").key(key);
    let Some(value) = object.get("data").and_then(|data| data.get(key)) else {
        errors.required(&path, "");
        return;
    };
    let bytes = STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default();
    if let Err(detail) = json_object(&bytes) {
        errors.invalid_str(&path, "<secret contents redacted>", &detail);
    }
}

/// Checks that the bytes are a JSON object (or `null`); errors use the wording of Go's decoder
/// where known.
fn json_object(bytes: &[u8]) -> Result<(), String> {
    let kind = match serde_json::from_slice::<Value>(bytes) {
        Ok(Value::Object(_) | Value::Null) => return Ok(()),
        Ok(Value::Array(_)) => "array",
        Ok(Value::String(_)) => "string",
        Ok(Value::Number(_)) => "number",
        Ok(Value::Bool(_)) => "bool",
        Err(error) if error.is_eof() => return Err("unexpected end of JSON input".into()),
        Err(error) => {
            let first = bytes.iter().find(|b| !b" \t\r\n".contains(b));
            return Err(match first {
                Some(b) if b.is_ascii_graphic() && !b"{[\"-0123456789tfn".contains(b) => {
                    format!("invalid character '{}' looking for beginning of value", *b as char)
                }
                _ => format!("invalid JSON: {error}"),
            });
        }
    };
    Err(format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"))
}

#[cfg(test)]
mod tests {
    use super::super::object_fields::tests::{cells, created, refusals};
    use super::*;
    use serde_json::json;

    #[test]
    fn string_data_is_written_over_data() {
        let object = json!({"data": {"a": "eA==", "b": "eQ=="}, "stringData": {"a": "hello"}});
        assert_eq!(created(&KIND, object), json!({"data": {"a": "aGVsbG8=", "b": "eQ=="}, "type": "Opaque"}));
        assert_eq!(created(&KIND, json!({"type": ""})), json!({"type": "Opaque"}));
    }

    #[test]
    fn sizes_are_of_the_decoded_data() {
        let fits = json!({"data": {"a": STANDARD.encode("x".repeat(MAX_DATA))}});
        assert_eq!(refusals(&KIND, &fits), Vec::<String>::new());
        let over = json!({"data": {"a": STANDARD.encode("x".repeat(MAX_DATA + 1))}});
        assert_eq!(refusals(&KIND, &over), ["data: Too long: may not be more than 1048576 bytes"]);
    }

    #[test]
    fn rows() {
        let object = json!({
            "metadata": {"name": "s", "creationTimestamp": "1970-01-01T00:00:00Z"},
            "type": "Opaque", "data": {"a": "MQ=="}
        });
        assert_eq!(cells(&KIND, &object), json!(["s", "Opaque", 1, "120m"]));
    }
}
