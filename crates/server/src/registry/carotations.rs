//! CARotations: the replacement of a signer's CA, and its progress.
//!
//! On other servers the kind is a custom resource; `windlass_api::ca_rotation` has its schema and its
//! rules. Who may write one is decided in `chain/admission/signer_objects.rs`.

use serde_json::Value;
use windlass_api::ca_rotation::{HELD, RESOURCE, validate, validate_status, validate_update};

use super::kind::{Kind, ServedVersion, Subresource};
use super::object_fields::{integer, list, map, restore_field, text};
use super::table_cells::{self, described, with_type};

/// Descriptor of CARotation, the replacement of the CA of one signer.
pub const CA_ROTATIONS_KIND: Kind = Kind {
    served: &[ServedVersion::new(RESOURCE.group, RESOURCE.version, RESOURCE.type_name)],
    subresources: &[Subresource::status(
        |new, old, _| restore_field(new, old, "spec"),
        |new, _, _, errors| validate_status(new, errors),
    )],
    columns: &[
        table_cells::NAME,
        described("Signer Name", "Signer whose CA is replaced"),
        described("Phase", "Current phase"),
        described("Held", "Whether the rotation waits for something"),
        described("Reason", "What it waits for"),
        with_type(
            "integer",
            described("Written", "Consumers whose files contain the expected trust anchors"),
        ),
        with_type("integer", described("Total", "Consumers of the signer's trust anchors")),
        with_type(
            "integer",
            described("Leaves", "Unexpired, not superseded certificates of the old authority"),
        ),
        table_cells::AGE,
    ],
    row: |object, now| {
        let conditions = list(object, "/status/conditions");
        let held = conditions.iter().find(|condition| text(condition, "/type") == HELD);
        let held = |pointer| held.map_or("", |condition| text(condition, pointer));
        let number = |pointer| integer(object, pointer).map_or(Value::Null, Value::from);
        vec![
            table_cells::name(object),
            text(object, "/spec/signerName").into(),
            text(object, "/status/phase").into(),
            held("/status").into(),
            held("/reason").into(),
            number("/status/consumers/written"),
            number("/status/consumers/total"),
            number("/status/leaves/outstanding"),
            table_cells::age(object, now),
        ]
    },
    generation: true,
    prepare_create: |object| drop(map(object).remove("status")),
    prepare_update: |new, old| restore_field(new, old, "status"),
    validate_create: validate,
    validate_update,
    ..Kind::custom(&RESOURCE)
};

#[cfg(test)]
mod tests {
    use super::super::object_fields::tests::{cells, created, refusals};
    use super::*;
    use serde_json::json;

    fn rotation(status: Value) -> Value {
        json!({
            "metadata": {"name": "web", "creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {"signerName": "example.com/web"},
            "status": status,
        })
    }

    #[test]
    fn the_status_belongs_to_the_controllers() {
        let object = created(&CA_ROTATIONS_KIND, rotation(json!({"phase": "Completed"})));
        assert_eq!(object.get("status"), None);
        assert_eq!(refusals(&CA_ROTATIONS_KIND, &object), Vec::<String>::new());
        let row = json!(["web", "example.com/web", "", "", "", null, null, null, "120m"]);
        assert_eq!(cells(&CA_ROTATIONS_KIND, &object), row);
    }

    #[test]
    fn progress_is_shown() {
        let status = json!({
            "phase": "WaitingForTrust",
            "conditions": [{"type": "Complete", "status": "False", "reason": "Running"},
                           {"type": "Held", "status": "True", "reason": "ConsumersNotRead"}],
            "consumers": {"total": 4, "written": 3},
            "leaves": {"outstanding": 12},
        });
        let row = json!([
            "web",
            "example.com/web",
            "WaitingForTrust",
            "True",
            "ConsumersNotRead",
            3,
            4,
            12,
            "120m"
        ]);
        assert_eq!(cells(&CA_ROTATIONS_KIND, &rotation(status)), row);
    }
}
