//! NodeTrusts: which trust anchors are in the volumes of a node, as the node itself reports it.
//!
//! There is no status subresource: the report is all there is, and elsewhere the kind is a custom
//! resource that is written in the same way.

use serde_json::Value;
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::selector::labels::validate_label_selector;

use super::kind::{Kind, Scope, ServedVersion, TableColumn};
use super::object_fields::{count, integer, list, non_null, text, texts};
use super::table_cells;

/// Sources in a report. A node has some hundred pods, and most of them ask for the same.
pub const SOURCES: usize = 1024;
/// Most bundles that one source of a NodeTrust may list.
pub const BUNDLES: usize = 1024;
/// Volumes of a source that are named.
pub const VOLUMES: usize = 256;
/// The bytes of a name: a volume's is made of three, a bundle's of a signer's and its own.
pub const NAME: usize = 1024;
/// The bytes of a message.
pub const MESSAGE: usize = 1024;

/// Descriptor of NodeTrust, in which nodes report the trust anchors of their volumes.
pub const NODETRUSTS_KIND: Kind = Kind {
    name: "NodeTrust",
    plural: "nodetrusts",
    singular: "nodetrust",
    short_names: &["ntr"],
    scope: Scope::Cluster,
    served: &[ServedVersion {
        group: "windlass.dev",
        version: "v1alpha1",
        type_name: "dev.windlass.v1alpha1.NodeTrust",
        convert: None,
    }],
    columns: &[
        table_cells::NAME,
        integer_column("Volumes", "How many volumes ask for trust anchors."),
        integer_column("Blocked", "How many of them do not have what they should have."),
        integer_column("Bundles", "How many bundles are in volumes."),
        table_cells::AGE,
    ],
    row: |object, now| {
        let number = |pointer| integer(object, pointer).unwrap_or_default().into();
        vec![
            table_cells::name(object),
            number("/status/volumes"),
            number("/status/blocked"),
            number("/status/bundles"),
            table_cells::age(object, now),
        ]
    },
    unconditional_update: false,
    validate_create: validate,
    validate_update: |new, _, errors| validate(new, errors),
    ..Kind::DEFAULT
};

const fn integer_column(name: &'static str, description: &'static str) -> TableColumn {
    table_cells::with_type("integer", table_cells::column(name, description))
}

fn validate(object: &Value, errors: &mut FieldErrors) {
    let path = FieldPath::new("status");
    for field in ["volumes", "blocked", "bundles", "moreSources"] {
        validate_non_negative(object, &format!("/status/{field}"), &path.child(field), errors);
    }
    let path = path.child("sources");
    if within(count(object, "/status/sources"), SOURCES, &path, errors) {
        for (i, source) in list(object, "/status/sources").iter().enumerate() {
            validate_source(source, &path.index(i), errors);
        }
    }
}

fn validate_source(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (name, signer) = (text(source, "/name"), text(source, "/signerName"));
    match (name, signer) {
        ("", "") => errors.required(path, "one of name and signerName must be specified"),
        ("", signer) => validate_length(signer, NAME, &path.child("signerName"), errors),
        (name, "") => validate_length(name, NAME, &path.child("name"), errors),
        _ => errors.forbidden(&path.child("signerName"), "may not be specified with name"),
    }
    if let Some(selector) = non_null(source, "/labelSelector") {
        let path = path.child("labelSelector");
        if signer.is_empty() {
            errors.forbidden(&path, "may only be specified with signerName");
        }
        validate_label_selector(&path, selector, errors);
    }
    if let Some(digest) = non_null(source, "/digest") {
        validate_digest(digest, &path.child("digest"), errors);
    }
    let bundles = path.child("bundles");
    if within(count(source, "/bundles"), BUNDLES, &bundles, errors) {
        for (i, bundle) in list(source, "/bundles").iter().enumerate() {
            validate_bundle(bundle, &bundles.index(i), errors);
        }
    }
    let volumes = path.child("volumes");
    if within(count(source, "/volumes"), VOLUMES, &volumes, errors) {
        for (i, volume) in texts(source, "/volumes").enumerate() {
            validate_length(volume, NAME, &volumes.index(i), errors);
        }
    }
    validate_non_negative(source, "/moreVolumes", &path.child("moreVolumes"), errors);
    validate_length(text(source, "/message"), MESSAGE, &path.child("message"), errors);
}

fn validate_bundle(bundle: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let name = text(bundle, "/name");
    if name.is_empty() {
        errors.required(&path.child("name"), "");
    }
    validate_length(name, NAME, &path.child("name"), errors);
    validate_non_negative(bundle, "/generation", &path.child("generation"), errors);
    validate_digest(bundle.get("digest").unwrap_or(&Value::Null), &path.child("digest"), errors);
}

fn validate_digest(digest: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let digits = digest.as_str().and_then(|text| text.strip_prefix("sha256:"));
    let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    if !digits.is_some_and(|digits| digits.len() == 64 && digits.bytes().all(is_digit)) {
        errors.invalid(path, digest, "must be sha256: and 64 lower-case hexadecimal digits");
    }
}

fn validate_non_negative(
    object: &Value,
    pointer: &str,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    if let Some(number) = integer(object, pointer).filter(|n| *n < 0) {
        errors.invalid(path, &number.into(), "must be greater than or equal to 0");
    }
}

fn validate_length(text: &str, max: usize, path: &FieldPath, errors: &mut FieldErrors) {
    if text.len() > max {
        errors.too_long(path, max);
    }
}

fn within(count: usize, max: usize, path: &FieldPath, errors: &mut FieldErrors) -> bool {
    if count > max {
        errors.too_many(path, count, max);
    }
    count <= max
}

#[cfg(test)]
mod tests {
    use super::super::object_fields::tests::{cells, change_refusals, refusals};
    use super::*;
    use serde_json::json;

    fn with(source: &Value) -> Value {
        json!({"metadata": {"name": "n1", "creationTimestamp": "1970-01-01T00:00:00Z"},
               "status": {"volumes": 2, "blocked": 1, "bundles": 3, "sources": [source]}})
    }

    fn digest() -> String {
        format!("sha256:{}", "0f".repeat(32))
    }

    #[test]
    fn good_ones_are_taken() {
        let bundle = json!({"name": "a:b:c", "generation": 3, "digest": digest()});
        for source in [
            json!({"name": "x"}),
            json!({"signerName": "a/b", "labelSelector": {}, "optional": true}),
            json!({"signerName": "a/b", "labelSelector": {"matchLabels": {"a": "b"}}}),
            json!({"name": "x", "digest": digest(), "bundles": [bundle], "volumes": ["host/a"],
                   "moreVolumes": 1, "message": "m".repeat(MESSAGE)}),
        ] {
            assert_eq!(
                refusals(&NODETRUSTS_KIND, &with(&source)),
                Vec::<String>::new(),
                "{source}"
            );
        }
        assert_eq!(
            refusals(&NODETRUSTS_KIND, &json!({"metadata": {"name": "n1"}})),
            Vec::<String>::new()
        );
        assert_eq!(cells(&NODETRUSTS_KIND, &with(&json!({}))), json!(["n1", 2, 1, 3, "120m"]));
        assert_eq!(cells(&NODETRUSTS_KIND, &json!({})), json!(["", 0, 0, 0, "<unknown>"]));
    }

    #[test]
    fn bad_ones_are_refused() {
        let at = "status.sources[0]";
        let hex = "must be sha256: and 64 lower-case hexadecimal digits";
        let upper = digest().to_uppercase();
        let long = "x".repeat(1025);
        for (source, why) in [
            (json!({}), ": Required value: one of name and signerName must be specified".into()),
            (
                json!({"name": "x", "signerName": "a/b"}),
                ".signerName: Forbidden: may not be specified with name".to_owned(),
            ),
            (
                json!({"name": "x", "labelSelector": {}}),
                ".labelSelector: Forbidden: may only be specified with signerName".into(),
            ),
            (
                json!({"signerName": "a/b", "labelSelector":
                    {"matchExpressions": [{"key": "k", "operator": "Is"}]}}),
                ".labelSelector.matchExpressions[0].operator: Invalid value: \"Is\": not a valid \
                 selector operator"
                    .into(),
            ),
            (
                json!({"name": "x", "digest": "sha256:00"}),
                format!(".digest: Invalid value: \"sha256:00\": {hex}"),
            ),
            (
                json!({"name": "x", "bundles": [{"name": "b", "digest": upper}]}),
                format!(".bundles[0].digest: Invalid value: \"{upper}\": {hex}"),
            ),
            (
                json!({"name": "x", "bundles": [{"digest": digest()}]}),
                ".bundles[0].name: Required value".into(),
            ),
            (
                json!({"name": "x", "bundles":
                    [{"name": "b", "generation": -1, "digest": digest()}]}),
                ".bundles[0].generation: Invalid value: -1: must be greater than or equal to 0"
                    .into(),
            ),
            (
                json!({"name": "x", "bundles": vec![json!({}); 1025]}),
                ".bundles: Too many: 1025: must have at most 1024 items".into(),
            ),
            (
                json!({"name": "x", "volumes": vec!["v"; 257]}),
                ".volumes: Too many: 257: must have at most 256 items".into(),
            ),
            (json!({"name": long}), ".name: Too long: may not be more than 1024 bytes".into()),
            (
                json!({"name": "x", "volumes": [long]}),
                ".volumes[0]: Too long: may not be more than 1024 bytes".into(),
            ),
            (
                json!({"name": "x", "message": long}),
                ".message: Too long: may not be more than 1024 bytes".into(),
            ),
        ] {
            let object = with(&source);
            assert_eq!(refusals(&NODETRUSTS_KIND, &object), [format!("{at}{why}")], "{source}");
            assert_eq!(
                change_refusals(&NODETRUSTS_KIND, &object, &with(&json!({"name": "x"}))).len(),
                1
            );
        }
        let many = json!({"status": {"blocked": -1, "sources": vec![json!({}); 1025]}});
        assert_eq!(
            refusals(&NODETRUSTS_KIND, &many),
            [
                "status.blocked: Invalid value: -1: must be greater than or equal to 0",
                "status.sources: Too many: 1025: must have at most 1024 items"
            ]
        );
    }
}
