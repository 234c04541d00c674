//! Leases: leader election and node heartbeats.

use serde_json::Value;
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::names::qualified_name;

use super::kind::{Kind, ServedVersion};
use super::object_fields::{integer, non_null, text};
use super::table_cells;

/// Descriptor of Lease in `coordination.k8s.io`.
pub(crate) const KIND: Kind = Kind {
    name: "Lease",
    plural: "leases",
    served: &[ServedVersion::new("coordination.k8s.io", "v1", "io.k8s.api.coordination.v1.Lease")],
    columns: &[table_cells::NAME, table_cells::column("Holder"), table_cells::AGE],
    row: |object, now| {
        let holder = text(object, "/spec/holderIdentity");
        vec![table_cells::name(object), holder.into(), table_cells::age(object, now)]
    },
    unconditional_update: false,
    create_on_update: true,
    validate_create: validate,
    validate_update: |new, _, errors| validate(new, errors),
    ..Kind::DEFAULT
};

fn validate(object: &Value, errors: &mut FieldErrors) {
    let spec = FieldPath::new("spec");
    if let Some(seconds) = integer(object, "/spec/leaseDurationSeconds").filter(|s| *s <= 0) {
        let path = spec.child("leaseDurationSeconds");
        errors.invalid(&path, &seconds.into(), "must be greater than 0");
    }
    if let Some(count) = integer(object, "/spec/leaseTransitions").filter(|n| *n < 0) {
        let path = spec.child("leaseTransitions");
        errors.invalid(&path, &count.into(), "must be greater than or equal to 0");
    }
    let strategy = text(object, "/spec/strategy");
    if non_null(object, "/spec/strategy").is_some() {
        // Kubernetes repeats the field in the path.
        let path = spec.child("strategy").child("strategy");
        if !strategy.contains('/') && strategy != "OldestEmulationVersion" {
            errors.not_supported(&path, strategy, &["OldestEmulationVersion"]);
        } else if strategy.contains('/') {
            errors.invalid_each(&path, strategy, qualified_name(strategy));
        }
    }
    if !text(object, "/spec/preferredHolder").is_empty() && strategy.is_empty() {
        let path = spec.child("preferredHolder");
        errors.forbidden(&path, "may only be specified if `strategy` is defined");
    }
}

#[cfg(test)]
mod tests {
    use super::super::object_fields::tests::cells;
    use super::*;
    use serde_json::json;

    #[test]
    fn rows() {
        let object = json!({
            "metadata": {"name": "l", "creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {"holderIdentity": "me"}
        });
        assert_eq!(cells(&KIND, &object), json!(["l", "me", "120m"]));
    }
}
