//! Bundles of trust-manager: which certificates are gathered, and where they go.
//!
//! On other servers the kind is a custom resource, so it behaves like one here: the status is a
//! subresource, and `windlass_api::trust_bundle` has the schema and its rules.

use serde_json::Value;
use windlass_api::trust_bundle::{RESOURCE, SYNCED, set_defaults, validate, validate_new, validate_schema};

use super::kind::{Kind, ServedVersion, Subresource};
use super::object_fields::{list, map, non_null, restore_field, text};
use super::table_cells;

/// Descriptor of Bundle, the cluster-wide kind of trust-manager.
pub const BUNDLES_KIND: Kind = Kind {
    served: &[ServedVersion::new(RESOURCE.group, RESOURCE.version, RESOURCE.type_name)],
    subresources: &[Subresource::status(
        |new, old, _| restore_field(new, old, "spec"),
        |new, _, _, errors| validate_schema(new, errors),
    )],
    columns: &[
        table_cells::NAME,
        table_cells::described("ConfigMap Target", "Bundle ConfigMap Target Key"),
        table_cells::described("Secret Target", "Bundle Secret Target Key"),
        table_cells::described("Synced", "Bundle has been synced"),
        table_cells::described("Reason", "Reason Bundle has Synced status"),
        table_cells::with_type("date", table_cells::described("Age", "Timestamp Bundle was created")),
    ],
    row: |object, now| {
        let cell = |found: Option<&Value>| found.cloned().unwrap_or_default();
        let synced = list(object, "/status/conditions").iter().find(|c| text(c, "/type") == SYNCED);
        vec![
            table_cells::name(object),
            cell(non_null(object, "/spec/target/configMap/key")),
            cell(non_null(object, "/spec/target/secret/key")),
            cell(synced.and_then(|synced| non_null(synced, "/status"))),
            cell(synced.and_then(|synced| non_null(synced, "/reason"))),
            table_cells::age(object, now),
        ]
    },
    generation: true,
    defaults: set_defaults,
    prepare_create: |object| drop(map(object).remove("status")),
    prepare_update: |new, old| restore_field(new, old, "status"),
    validate_create: |object, errors| errors.extend(validate_new(object)),
    validate_update: |new, _, errors| errors.extend(validate(new)),
    ..Kind::custom(&RESOURCE)
};

#[cfg(test)]
mod tests {
    use super::super::kind::SubresourceAction;
    use super::super::object_fields::tests::{cells, change_refusals, created, refusals};
    use super::*;
    use serde_json::json;
    use windlass_api::field::FieldErrors;

    fn bundle(name: &str, target: Value) -> Value {
        json!({
            "metadata": {"name": name, "creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {"sources": [{"useDefaultCAs": true}], "target": target},
        })
    }

    #[test]
    fn valid_ones_are_accepted_and_shown() {
        let formats = json!({"jks": {"key": "j"}, "pkcs12": {"key": "p"}});
        let target = json!({"configMap": {"key": "ca.crt"}, "additionalFormats": formats});
        let mut object = bundle("b", target);
        object["status"] = json!({"certificates": 1});
        let object = created(&BUNDLES_KIND, object);
        assert_eq!(refusals(&BUNDLES_KIND, &object), Vec::<String>::new());
        assert_eq!(object.get("status"), None, "only the controller says what has become of it");
        let formats = &object["spec"]["target"]["additionalFormats"];
        assert_eq!(formats["jks"]["password"], "changeit");
        assert_eq!(formats["pkcs12"]["password"], "");
        assert_eq!(cells(&BUNDLES_KIND, &object), json!(["b", "ca.crt", null, null, null, "120m"]));
        let mut synced = bundle("b", json!({"secret": {"key": "s"}}));
        let other = json!({"type": "Other", "status": "True", "reason": "Other"});
        synced["status"]["conditions"] =
            json!([other, {"type": "Synced", "status": "False", "reason": "SourceNotFound"}]);
        let row = json!(["b", null, "s", "False", "SourceNotFound", "120m"]);
        assert_eq!(cells(&BUNDLES_KIND, &synced), row);
    }

    #[test]
    fn invalid_ones_are_refused() {
        let good = bundle("b", json!({"configMap": {"key": "k"}}));
        let long = bundle(&"b".repeat(64), json!({"configMap": {"key": "k"}}));
        let words = format!(
            "metadata.name: Invalid value: \"{}\": must be no more than 63 characters",
            "b".repeat(64)
        );
        let empty = bundle("b", json!({}));
        let none = "spec.target: Invalid value: at least one of the fields in [configMap secret] must be set";
        for (object, want) in [(long, words.as_str()), (empty, none)] {
            assert_eq!(refusals(&BUNDLES_KIND, &object), [want]);
            assert_eq!(change_refusals(&BUNDLES_KIND, &object, &good), [want]);
        }
    }

    #[test]
    fn the_status_is_held_to_the_schema() {
        let Some(Subresource { action: SubresourceAction::View { validate_update, .. }, .. }) =
            BUNDLES_KIND.subresource("status")
        else {
            panic!("there is a status");
        };
        let mut object = bundle("b", json!({"configMap": {"key": "k"}}));
        object["status"] = json!({"conditions": [{"type": "Synced", "status": "Maybe"}]});
        let mut errors = FieldErrors::new();
        validate_update(&object, &object, time::OffsetDateTime::UNIX_EPOCH, &mut errors);
        let said: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let unsupported = "status.conditions[0].status: Unsupported value: \"Maybe\": supported \
                           values: \"True\", \"False\", \"Unknown\"";
        assert!(said.iter().any(|each| each == unsupported), "{said:?}");
        let missing = "status.conditions[0].reason: Required value";
        assert!(said.iter().any(|each| each == missing), "{said:?}");
    }
}
