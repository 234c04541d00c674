//! ServiceAccounts: identities of pods.

use serde_json::{Value, json};

use super::kind::{Kind, ServedVersion, Subresource, SubresourceAction};
use super::object_fields::{count, text};
use super::table_cells;

/// Descriptor of ServiceAccount, with the token subresource.
pub(crate) const KIND: Kind = Kind {
    name: "ServiceAccount",
    plural: "serviceaccounts",
    short_names: &["sa"],
    served: &[ServedVersion::new("", "v1", "io.k8s.api.core.v1.ServiceAccount")],
    subresources: &[Subresource {
        name: "token",
        action: SubresourceAction::Create {
            group: "authentication.k8s.io",
            version: "v1",
            kind: "TokenRequest",
            type_name: "io.k8s.api.authentication.v1.TokenRequest",
        },
    }],
    columns: &[table_cells::NAME, table_cells::column("Secrets"), table_cells::AGE],
    row: |object, now| {
        vec![table_cells::name(object), count(object, "/secrets").into(), table_cells::age(object, now)]
    },
    prepare_create: retain_names_only,
    prepare_update: |new, _| retain_names_only(new),
    returns_deleted: true,
    ..Kind::DEFAULT
};

/// A reference to a secret in the same namespace needs only its name.
fn retain_names_only(object: &mut Value) {
    let Some(Value::Array(secrets)) = object.get_mut("secrets") else { return };
    for secret in secrets {
        *secret = match text(secret, "/name") {
            "" => json!({}),
            name => json!({ "name": name }),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::object_fields::tests::{cells, created};
    use super::*;

    #[test]
    fn secrets_are_referred_to_by_name() {
        let object = json!({
            "metadata": {"name": "sa", "creationTimestamp": "1970-01-01T00:00:00Z"},
            "secrets": [{"name": "a", "namespace": "other", "kind": "Secret"}],
            "imagePullSecrets": [{"name": "b"}]
        });
        let object = created(&KIND, object);
        assert_eq!(object["secrets"], json!([{"name": "a"}]));
        assert_eq!(object["imagePullSecrets"], json!([{"name": "b"}]));
        assert_eq!(cells(&KIND, &object), json!(["sa", 1, "120m"]));
    }
}
