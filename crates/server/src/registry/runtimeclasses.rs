//! RuntimeClasses: container runtime configurations. Stored and served only; nothing here acts on
//! them.

use serde_json::Value;
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::meta::validate_labels;
use windlass_api::names::dns1123_label;

use super::kind::{Kind, Scope, ServedVersion};
use super::object_fields::{non_null, text};
use super::table_cells;

/// Descriptor of RuntimeClass in `node.k8s.io`.
pub(crate) const KIND: Kind = Kind {
    name: "RuntimeClass",
    plural: "runtimeclasses",
    scope: Scope::Cluster,
    served: &[ServedVersion::new("node.k8s.io", "v1", "io.k8s.api.node.v1.RuntimeClass")],
    columns: &[table_cells::NAME, table_cells::column("Handler"), table_cells::AGE],
    row: |object, now| {
        vec![table_cells::name(object), text(object, "/handler").into(), table_cells::age(object, now)]
    },
    unconditional_update: false,
    validate_create: validate,
    validate_update: |new, old, errors| {
        if text(new, "/handler") != text(old, "/handler") {
            // A declarative rule in Kubernetes' schema, which does not show the rejected value.
            errors.invalid(&FieldPath::new("handler"), &Value::Null, "field is immutable");
        }
    },
    ..Kind::DEFAULT
};

fn validate(object: &Value, errors: &mut FieldErrors) {
    if let Some(selector) = non_null(object, "/scheduling/nodeSelector") {
        let path = FieldPath::new("scheduling").child("nodeSelector");
        validate_labels(&path, selector, errors);
    }
    // Declared in Kubernetes' schema, hence reported after the rules that are code there.
    let (path, handler) = (FieldPath::new("handler"), text(object, "/handler"));
    if handler.is_empty() {
        errors.required(&path, "");
        return;
    }
    errors.invalid_each(&path, handler, dns1123_label(handler));
}

#[cfg(test)]
mod tests {
    use super::super::object_fields::tests::{cells, change_refusals, refusals};
    use super::*;
    use serde_json::json;

    #[test]
    fn the_handler_is_a_label_and_stays() {
        let class = |handler: &str| {
            json!({"metadata": {"name": "c", "creationTimestamp": "1970-01-01T00:00:00Z"},
                   "handler": handler})
        };
        assert_eq!(refusals(&KIND, &class("runc")), Vec::<String>::new());
        assert_eq!(
            refusals(&KIND, &class("a.b")),
            ["handler: Invalid value: \"a.b\": must not contain dots"]
        );
        assert_eq!(refusals(&KIND, &class("")), ["handler: Required value"]);
        assert_eq!(
            change_refusals(&KIND, &class("kata"), &class("runc")),
            ["handler: Invalid value: null: field is immutable"]
        );
        assert_eq!(cells(&KIND, &class("runc")), json!(["c", "runc", "120m"]));
    }
}
