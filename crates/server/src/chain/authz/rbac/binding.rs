//! Role bindings, indexed by the names of users and groups.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use windlass_api::field::quote;

use crate::user::User;

/// A RoleBinding or ClusterRoleBinding in the index.
#[derive(Debug)]
pub(super) struct RoleBinding {
    name: Box<str>,
    /// Namespace; empty for a cluster role binding.
    namespace: Box<str>,
    subjects: Vec<RbacSubject>,
    /// Role that the binding grants; the role may not exist.
    pub role: RoleRef,
}

/// Reference to the role that a binding grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleRef {
    /// Name of a Role in the binding's namespace.
    Role(Box<str>),
    /// Name of a ClusterRole, which grants only within the binding's scope.
    ClusterRole(Box<str>),
    /// A reference to another kind, which grants nothing.
    Unsupported(Box<str>),
}

#[derive(Debug)]
enum RbacSubject {
    User(Box<str>),
    Group(Box<str>),
    ServiceAccount { name: Box<str>, namespace: Box<str>, user: Box<str> },
}

impl RoleRef {
    /// Parses the `roleRef` of a binding.
    pub fn parse(role: &Value) -> RoleRef {
        let name = role["name"].as_str().unwrap_or_default().into();
        match role["kind"].as_str().unwrap_or_default() {
            "Role" => RoleRef::Role(name),
            "ClusterRole" => RoleRef::ClusterRole(name),
            other => RoleRef::Unsupported(other.into()),
        }
    }

    /// Describes why the role cannot be resolved, in Kubernetes' words.
    pub fn missing(&self) -> String {
        match self {
            RoleRef::Role(name) => {
                format!("role.rbac.authorization.k8s.io {} not found", quote(name))
            }
            RoleRef::ClusterRole(name) => {
                format!("clusterrole.rbac.authorization.k8s.io {} not found", quote(name))
            }
            RoleRef::Unsupported(kind) => {
                format!("unsupported role reference kind: {}", quote(kind))
            }
        }
    }
}

impl RoleBinding {
    /// Parses a binding; `namespace` is empty for a cluster role binding. Invalid subjects are
    /// ignored.
    pub(super) fn parse(namespace: &str, name: &str, binding: &Value) -> RoleBinding {
        let subjects = binding["subjects"].as_array().into_iter().flatten();
        RoleBinding {
            name: name.into(),
            namespace: namespace.into(),
            subjects: subjects.filter_map(|s| RbacSubject::parse(s, namespace)).collect(),
            role: RoleRef::parse(&binding["roleRef"]),
        }
    }

    /// Describes how `user` gets the role: `ClusterRoleBinding "b" of ClusterRole "r" to User
    /// "alice"`.
    pub(super) fn describe(&self, user: &User) -> String {
        let (kind, role) = match &self.role {
            RoleRef::Role(name) => ("Role", name),
            RoleRef::ClusterRole(name) => ("ClusterRole", name),
            RoleRef::Unsupported(kind) => (&**kind, kind),
        };
        let binding = if self.namespace.is_empty() {
            format!("ClusterRoleBinding {}", quote(&self.name))
        } else {
            let name = format!("{}/{}", self.name, self.namespace);
            format!("RoleBinding {}", quote(&name))
        };
        let subject = self.subjects.iter().find(|s| s.matches(user)).map(RbacSubject::describe);
        format!("{binding} of {kind} {} to {}", quote(role), subject.unwrap_or_default())
    }
}

impl RbacSubject {
    /// Parses a subject. A service account without a namespace is in the binding's namespace.
    fn parse(subject: &Value, namespace: &str) -> Option<RbacSubject> {
        let name = subject["name"].as_str()?;
        match subject["kind"].as_str()? {
            "User" => Some(RbacSubject::User(name.into())),
            "Group" => Some(RbacSubject::Group(name.into())),
            "ServiceAccount" => {
                let given = &subject["namespace"];
                let given = if given.is_null() { "" } else { given.as_str()? };
                let namespace = if given.is_empty() { namespace } else { given };
                let user = format!("system:serviceaccount:{namespace}:{name}").into();
                let account =
                    RbacSubject::ServiceAccount { name: name.into(), namespace: namespace.into(), user };
                (!namespace.is_empty()).then_some(account)
            }
            _ => None,
        }
    }

    fn matches(&self, user: &User) -> bool {
        match self {
            RbacSubject::User(name) => *user.name == **name,
            RbacSubject::Group(name) => user.has_group(name),
            RbacSubject::ServiceAccount { user: name, .. } => *user.name == **name,
        }
    }

    fn describe(&self) -> String {
        match self {
            RbacSubject::User(name) => format!("User {}", quote(name)),
            RbacSubject::Group(name) => format!("Group {}", quote(name)),
            RbacSubject::ServiceAccount { name, namespace, .. } => {
                format!("ServiceAccount {}", quote(&format!("{name}/{namespace}")))
            }
        }
    }
}

/// The bindings of one namespace, or the cluster role bindings.
#[derive(Debug, Default)]
pub(super) struct BindingIndex {
    by_name: HashMap<Box<str>, Arc<RoleBinding>>,
    by_user: HashMap<Box<str>, BindingList>,
    by_group: HashMap<Box<str>, BindingList>,
}

type BindingList = Vec<Arc<RoleBinding>>;

impl BindingIndex {
    /// Adds a binding or replaces the one of the same name.
    pub(super) fn put(&mut self, binding: RoleBinding) {
        self.remove(&binding.name);
        let binding = Arc::new(binding);
        for subject in &binding.subjects {
            let (map, key) = match subject {
                RbacSubject::User(name) => (&mut self.by_user, name),
                RbacSubject::Group(name) => (&mut self.by_group, name),
                RbacSubject::ServiceAccount { user, .. } => (&mut self.by_user, user),
            };
            let list = map.entry(key.clone()).or_default();
            // A subject may be listed twice.
            if let Err(at) = list.binary_search_by(|b| b.name.cmp(&binding.name)) {
                list.insert(at, binding.clone());
            }
        }
        self.by_name.insert(binding.name.clone(), binding);
    }

    pub(super) fn remove(&mut self, name: &str) {
        let Some(binding) = self.by_name.remove(name) else { return };
        for subject in &binding.subjects {
            let (map, key) = match subject {
                RbacSubject::User(name) => (&mut self.by_user, name),
                RbacSubject::Group(name) => (&mut self.by_group, name),
                RbacSubject::ServiceAccount { user, .. } => (&mut self.by_user, user),
            };
            let Some(list) = map.get_mut(key) else { continue };
            list.retain(|b| !Arc::ptr_eq(b, &binding));
            if list.is_empty() {
                map.remove(key);
            }
        }
    }

    /// Returns whether no binding is indexed, so the namespace can be dropped.
    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Returns the bindings that apply to `user`; one with several matching subjects is repeated.
    pub(super) fn for_user<'a>(&'a self, user: &'a User) -> impl Iterator<Item = &'a Arc<RoleBinding>> {
        let groups = user.groups.iter().filter_map(|g| self.by_group.get(g.as_str()));
        self.by_user.get(user.name.as_str()).into_iter().chain(groups).flatten()
    }
}
