//! Roles and the bindings that give them to somebody.

use super::cells;
use super::kind::{Kind, Scope, Served};

/// The group of all four kinds.
pub const GROUP: &str = "rbac.authorization.k8s.io";

/// What may be done in a namespace.
pub const ROLE: Kind = Kind {
    name: "Role",
    plural: "roles",
    singular: "role",
    served: &[served("io.k8s.api.rbac.v1.Role")],
    ..SHARED
};

/// What may be done anywhere.
pub const CLUSTER_ROLE: Kind = Kind {
    name: "ClusterRole",
    plural: "clusterroles",
    singular: "clusterrole",
    scope: Scope::Cluster,
    served: &[served("io.k8s.api.rbac.v1.ClusterRole")],
    ..SHARED
};

/// Who may do it in a namespace.
pub const ROLE_BINDING: Kind = Kind {
    name: "RoleBinding",
    plural: "rolebindings",
    singular: "rolebinding",
    served: &[served("io.k8s.api.rbac.v1.RoleBinding")],
    ..SHARED
};

/// Who may do it anywhere.
pub const CLUSTER_ROLE_BINDING: Kind = Kind {
    name: "ClusterRoleBinding",
    plural: "clusterrolebindings",
    singular: "clusterrolebinding",
    scope: Scope::Cluster,
    served: &[served("io.k8s.api.rbac.v1.ClusterRoleBinding")],
    ..SHARED
};

const SHARED: Kind = Kind {
    name_rule: windlass_api::names::path_segment_rule,
    columns: &[cells::NAME, cells::AGE],
    row: |object, now| vec![cells::name(object), cells::age(object, now)],
    ..Kind::DEFAULT
};

const fn served(type_name: &'static str) -> Served {
    Served { group: GROUP, version: "v1", type_name, convert: None }
}
