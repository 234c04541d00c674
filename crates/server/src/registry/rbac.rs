//! Descriptors of roles and role bindings.

mod validate;

use serde_json::Value;
use time::OffsetDateTime;

use super::kind::{Kind, Scope, ServedVersion};
use super::object_fields::{default, list, map, part, text};
use super::table_cells;

/// API group of all four kinds.
pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

/// Descriptor of Role: permissions in a namespace.
pub(crate) const ROLE: Kind = Kind {
    name: "Role",
    plural: "roles",
    served: &[served("io.k8s.api.rbac.v1.Role")],
    validate_create: validate::role,
    validate_update: |new, _, errors| validate::role(new, errors),
    ..SHARED
};

/// Descriptor of ClusterRole: cluster-wide permissions.
pub(crate) const CLUSTER_ROLE: Kind = Kind {
    name: "ClusterRole",
    plural: "clusterroles",
    scope: Scope::Cluster,
    served: &[served("io.k8s.api.rbac.v1.ClusterRole")],
    validate_create: validate::cluster_role,
    validate_update: |new, _, errors| validate::cluster_role(new, errors),
    ..SHARED
};

/// Descriptor of RoleBinding: grants a role in a namespace.
pub(crate) const ROLE_BINDING: Kind = Kind {
    name: "RoleBinding",
    plural: "rolebindings",
    served: &[served("io.k8s.api.rbac.v1.RoleBinding")],
    columns: &[
        table_cells::NAME,
        table_cells::column("Role"),
        table_cells::AGE,
        table_cells::wide(table_cells::column("Users")),
        table_cells::wide(table_cells::column("Groups")),
        table_cells::wide(table_cells::column("ServiceAccounts")),
    ],
    row: binding_row,
    defaults: default_binding,
    validate_create: validate::role_binding,
    validate_update: |new, old, errors| {
        validate::role_binding(new, errors);
        validate::same_role(new, old, errors);
    },
    ..SHARED
};

/// Descriptor of ClusterRoleBinding: grants a role cluster-wide.
pub(crate) const CLUSTER_ROLE_BINDING: Kind = Kind {
    name: "ClusterRoleBinding",
    plural: "clusterrolebindings",
    scope: Scope::Cluster,
    served: &[served("io.k8s.api.rbac.v1.ClusterRoleBinding")],
    columns: &[
        table_cells::NAME,
        table_cells::column("Role"),
        table_cells::AGE,
        table_cells::wide(table_cells::column("Users")),
        table_cells::wide(table_cells::column("Groups")),
        table_cells::wide(table_cells::column("ServiceAccounts")),
    ],
    row: binding_row,
    defaults: default_binding,
    validate_create: validate::cluster_role_binding,
    validate_update: |new, old, errors| {
        validate::cluster_role_binding(new, errors);
        validate::same_role(new, old, errors);
    },
    ..SHARED
};

const SHARED: Kind =
    Kind { name_rule: windlass_api::names::path_segment_rule, create_on_update: true, ..Kind::DEFAULT };

const fn served(type_name: &'static str) -> ServedVersion {
    ServedVersion::new(GROUP, "v1", type_name)
}

/// Sets the API groups of the role and of users and groups; service accounts are in the core group,
/// whose name is empty.
fn default_binding(object: &mut Value) {
    default(part(object, "roleRef"), "apiGroup", GROUP);
    let Some(Value::Array(subjects)) = object.get_mut("subjects") else { return };
    for subject in subjects {
        if matches!(text(subject, "/kind"), "User" | "Group") {
            default(map(subject), "apiGroup", GROUP);
        }
    }
}

fn binding_row(object: &Value, now: OffsetDateTime) -> Vec<Value> {
    let role = format!("{}/{}", text(object, "/roleRef/kind"), text(object, "/roleRef/name"));
    let of = |kind: &str| -> Value {
        let subjects = list(object, "/subjects").iter().filter(|s| text(s, "/kind") == kind);
        let names: Vec<String> = subjects
            .map(|subject| match kind {
                "ServiceAccount" => {
                    format!("{}/{}", text(subject, "/namespace"), text(subject, "/name"))
                }
                _ => text(subject, "/name").to_owned(),
            })
            .collect();
        names.join(", ").into()
    };
    vec![
        table_cells::name(object),
        role.into(),
        table_cells::age(object, now),
        of("User"),
        of("Group"),
        of("ServiceAccount"),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::object_fields::tests::{cells, created};
    use super::*;
    use serde_json::json;

    #[test]
    fn groups_are_filled_in() {
        let binding = json!({
            "roleRef": {"kind": "ClusterRole", "name": "view"},
            "subjects": [
                {"kind": "User", "name": "u"},
                {"kind": "Group", "name": "g", "apiGroup": ""},
                {"kind": "ServiceAccount", "name": "s", "namespace": "n"},
                {"kind": "User", "name": "other", "apiGroup": "example.com"},
                {"kind": "Robot", "name": "r"},
            ],
        });
        for kind in [&ROLE_BINDING, &CLUSTER_ROLE_BINDING] {
            let binding = created(kind, binding.clone());
            assert_eq!(binding["roleRef"]["apiGroup"], GROUP);
            let groups: Vec<&str> =
                list(&binding, "/subjects").iter().map(|s| text(s, "/apiGroup")).collect();
            assert_eq!(groups, [GROUP, GROUP, "", "example.com", ""]);
        }
    }

    #[test]
    fn rows() {
        let object = json!({
            "metadata": {"name": "b", "creationTimestamp": "1970-01-01T00:00:00Z"},
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "view"},
            "subjects": [
                {"kind": "User", "name": "u", "apiGroup": GROUP},
                {"kind": "User", "name": "v", "apiGroup": GROUP},
                {"kind": "ServiceAccount", "name": "s", "namespace": "n"},
            ],
        });
        for kind in [&ROLE_BINDING, &CLUSTER_ROLE_BINDING] {
            let row = json!(["b", "ClusterRole/view", "120m", "u, v", "", "n/s"]);
            assert_eq!(cells(kind, &object), row);
        }
        assert!(ROLE.columns.is_empty() && CLUSTER_ROLE.columns.is_empty(), "Name and Created At");
    }
}
