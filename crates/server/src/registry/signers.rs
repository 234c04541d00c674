//! Signers: the CA of a custom signer, which requests it signs, and what the controllers report about it.
//!
//! On other servers the kind is a custom resource; `windlass_api::signer` has its schema and its rules.
//! Who may write one is decided in `chain/admission/signer_objects.rs`.

use serde_json::Value;
use windlass_api::signer::{READY, RESOURCE, validate, validate_status, validate_update};

use super::kind::{Kind, ServedVersion, Subresource};
use super::object_fields::{integer, list, map, restore_field, text};
use super::table_cells::{self, described, with_type};

/// Descriptor of Signer, the cluster-wide configuration of a custom signer.
pub const SIGNERS_KIND: Kind = Kind {
    served: &[ServedVersion::new(RESOURCE.group, RESOURCE.version, RESOURCE.type_name)],
    subresources: &[Subresource::status(
        |new, old, _| restore_field(new, old, "spec"),
        |new, _, _, errors| validate_status(new, errors),
    )],
    columns: &[
        table_cells::NAME,
        described("Signer Name", "signerName of the requests that it signs"),
        described("Ready", "Whether the signer can issue certificates"),
        described("Reason", "Reason of the condition Ready"),
        described("CA Expires", "Expiry of the active CA certificate"),
        with_type("integer", described("Pending", "Number of requests without a certificate")),
        with_type("integer", described("Unexpired", "Number of unexpired certificates of the active CA")),
        table_cells::AGE,
    ],
    row: |object, now| {
        let conditions = list(object, "/status/conditions");
        let ready = conditions.iter().find(|condition| text(condition, "/type") == READY);
        let ready = |pointer| ready.map_or("", |condition| text(condition, pointer));
        let reason = if ready("/status") == "True" { "" } else { ready("/reason") };
        let authorities = list(object, "/status/authorities");
        let active = authorities.iter().find(|authority| text(authority, "/state") == "Active");
        let unexpired = active.and_then(|authority| integer(authority, "/unexpiredCertificates"));
        vec![
            table_cells::name(object),
            text(object, "/spec/signerName").into(),
            ready("/status").into(),
            reason.into(),
            active.map_or("", |authority| text(authority, "/notAfter")).into(),
            integer(object, "/status/pendingRequests").map_or(Value::Null, Value::from),
            unexpired.map_or(Value::Null, Value::from),
            table_cells::age(object, now),
        ]
    },
    generation: true,
    exclusive_creates: true,
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

    fn signer(status: Value) -> Value {
        json!({
            "metadata": {"name": "web", "creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {"signerName": "example.com/web", "ca": {"selfSigned": {}}, "pods": {"serviceNames": true}},
            "status": status,
        })
    }

    #[test]
    fn the_status_belongs_to_the_controllers() {
        let object = created(&SIGNERS_KIND, signer(json!({"pendingRequests": 7})));
        assert_eq!(object.get("status"), None);
        assert_eq!(refusals(&SIGNERS_KIND, &object), Vec::<String>::new());
        let row = json!(["web", "example.com/web", "", "", "", null, null, "120m"]);
        assert_eq!(cells(&SIGNERS_KIND, &object), row);
    }

    #[test]
    fn problems_are_shown() {
        let authority = |state: &str, unexpired: i64| json!({"id": "0a", "state": state, "notAfter": "2027-01-01T00:00:00Z", "unexpiredCertificates": unexpired});
        let mut status = json!({
            "conditions": [{"type": "Published", "status": "False", "reason": "Conflict"},
                           {"type": "Ready", "status": "False", "reason": "SecretNotFound"}],
            "authorities": [authority("Prepared", 1), authority("Active", 2)],
            "pendingRequests": 3,
        });
        let row = json!([
            "web",
            "example.com/web",
            "False",
            "SecretNotFound",
            "2027-01-01T00:00:00Z",
            3,
            2,
            "120m"
        ]);
        assert_eq!(cells(&SIGNERS_KIND, &signer(status.clone())), row);
        status["conditions"][1]["status"] = json!("True");
        assert_eq!(cells(&SIGNERS_KIND, &signer(status))[3], "");
    }
}
