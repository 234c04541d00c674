//! NodeTrusts: which trust anchors are in the volumes of a node, as the node itself reports it.
//!
//! There is no status subresource, because the report is the whole object. On other servers the kind
//! is a custom resource; `windlass_api::node_trust` has its schema and its rules.

use windlass_api::node_trust::{RESOURCE, validate};

use super::kind::{Kind, ServedVersion, TableColumn};
use super::object_fields::integer;
use super::table_cells;

/// Descriptor of NodeTrust, in which nodes report the trust anchors of their volumes.
pub const NODETRUSTS_KIND: Kind = Kind {
    served: &[ServedVersion::new(RESOURCE.group, RESOURCE.version, RESOURCE.type_name)],
    columns: &[
        table_cells::NAME,
        integer_column("Volumes", "Number of volumes that select trust anchors."),
        integer_column("Blocked", "Number of volumes that do not have their current trust anchors."),
        integer_column("Bundles", "Number of distinct ClusterTrustBundles in volumes."),
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
    validate_create: validate,
    validate_update: |new, _, errors| validate(new, errors),
    ..Kind::custom(&RESOURCE)
};

const fn integer_column(name: &'static str, description: &'static str) -> TableColumn {
    table_cells::with_type("integer", table_cells::described(name, description))
}

#[cfg(test)]
mod tests {
    use super::super::object_fields::tests::{cells, change_refusals, refusals};
    use super::*;
    use serde_json::{Value, json};

    fn with(source: &Value) -> Value {
        json!({"metadata": {"name": "n1", "creationTimestamp": "1970-01-01T00:00:00Z"},
               "status": {"volumes": 2, "blocked": 1, "bundles": 3, "sources": [source]}})
    }

    fn digest() -> String {
        format!("sha256:{}", "0f".repeat(32))
    }

    #[test]
    fn valid_ones_are_accepted() {
        let bundle = json!({"name": "a:b:c", "generation": 3, "digest": digest()});
        for source in [
            json!({"name": "x"}),
            json!({"signerName": "a/b", "labelSelector": {}, "optional": true}),
            json!({"signerName": "a/b", "labelSelector": {"matchLabels": {"a": "b"}}}),
            json!({"name": "x", "digest": digest(), "bundles": [bundle], "volumes": ["host/a"],
                   "moreVolumes": 1, "message": "m".repeat(1024)}),
        ] {
            assert_eq!(refusals(&NODETRUSTS_KIND, &with(&source)), Vec::<String>::new(), "{source}");
        }
        assert_eq!(refusals(&NODETRUSTS_KIND, &json!({"metadata": {"name": "n1"}})), Vec::<String>::new());
        assert_eq!(cells(&NODETRUSTS_KIND, &with(&json!({}))), json!(["n1", 2, 1, 3, "120m"]));
        assert_eq!(cells(&NODETRUSTS_KIND, &json!({})), json!(["", 0, 0, 0, "<unknown>"]));
    }

    #[test]
    fn invalid_ones_are_refused() {
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
                ".bundles[0].generation: Invalid value: -1: must be greater than or equal to 0".into(),
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
            assert_eq!(change_refusals(&NODETRUSTS_KIND, &object, &with(&json!({"name": "x"}))).len(), 1);
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
