//! Index of roles and bindings, parsed once per change.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use serde_json::Value;
use windlass_api::selector::labels::LabelSelector;

use super::aggregate;
use super::binding::{BindingIndex, RoleBinding, RoleRef};
use super::rule::PolicyRule;
use crate::object::Object;
use crate::user::User;

/// The parsed rules of a role.
pub(super) type RuleList = Arc<[Arc<PolicyRule>]>;

/// The four kinds of RBAC objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RbacKind {
    /// Roles: permissions within a namespace.
    Roles,
    /// ClusterRoles: permissions in all namespaces.
    ClusterRoles,
    /// RoleBindings: grants within a namespace.
    RoleBindings,
    /// ClusterRoleBindings: grants in all namespaces.
    ClusterRoleBindings,
}

/// All roles and bindings as of a revision.
#[derive(Default)]
pub(super) struct RbacIndex {
    /// Store revision up to which every change is applied.
    pub revision: u64,
    roles: HashMap<Box<str>, HashMap<Box<str>, RuleList>>,
    cluster_roles: BTreeMap<Box<str>, ClusterRole>,
    bindings: HashMap<Box<str>, BindingIndex>,
    cluster_bindings: BindingIndex,
    /// Whether a cluster role changed since aggregated roles were resolved.
    unsettled: bool,
}

/// ClusterRole as RBAC evaluates it, with aggregated rules resolved.
pub(super) struct ClusterRole {
    /// Permissions of the role; for an aggregated role set by [`aggregate::resolve`].
    pub rules: RuleList,
    /// Aggregation selectors; `None` for a plain role.
    pub selectors: Option<Vec<LabelSelector>>,
    labels: Box<[(Box<str>, Box<str>)]>,
}

impl ClusterRole {
    /// Returns whether `selector` matches the labels of this role.
    pub(super) fn is_selected(&self, selector: &LabelSelector) -> bool {
        selector.matches(|key| self.labels.iter().find(|(k, _)| **k == *key).map(|(_, v)| &**v))
    }
}

/// A binding that applies to a user, with its rules.
pub(super) struct RoleGrant<'a> {
    /// Binding that names the user or one of their groups.
    pub binding: &'a RoleBinding,
    /// Rules of the role; `None` if the role does not exist.
    pub rules: Option<&'a RuleList>,
}

impl RbacIndex {
    /// Adds an object or replaces the one of the same name.
    pub(super) fn upsert(&mut self, table: RbacKind, object: &Object) {
        let value = object.stored_value();
        let (namespace, name) = (object.namespace(), object.name());
        match table {
            RbacKind::Roles => {
                let of_namespace = self.roles.entry(namespace.into()).or_default();
                of_namespace.insert(name.into(), rules(&value));
            }
            RbacKind::ClusterRoles => {
                let selectors = aggregate::selectors(&value["aggregationRule"]);
                // Rules stored in an aggregated role are ignored.
                let own = if selectors.is_some() { RuleList::default() } else { rules(&value) };
                let role = ClusterRole { rules: own, selectors, labels: object.labels.clone() };
                self.cluster_roles.insert(name.into(), role);
                self.unsettled = true;
            }
            RbacKind::RoleBindings => {
                let binding = RoleBinding::parse(namespace, name, &value);
                self.bindings.entry(namespace.into()).or_default().put(binding);
            }
            RbacKind::ClusterRoleBindings => {
                self.cluster_bindings.put(RoleBinding::parse("", name, &value));
            }
        }
    }

    /// Removes an object of the given kind; unknown objects are ignored.
    pub(super) fn remove(&mut self, table: RbacKind, object: &Object) {
        let (namespace, name) = (object.namespace(), object.name());
        match table {
            RbacKind::Roles => {
                let Some(of_namespace) = self.roles.get_mut(namespace) else { return };
                of_namespace.remove(name);
                if of_namespace.is_empty() {
                    self.roles.remove(namespace);
                }
            }
            RbacKind::ClusterRoles => {
                self.cluster_roles.remove(name);
                self.unsettled = true;
            }
            RbacKind::RoleBindings => {
                let Some(of_namespace) = self.bindings.get_mut(namespace) else { return };
                of_namespace.remove(name);
                if of_namespace.is_empty() {
                    self.bindings.remove(namespace);
                }
            }
            RbacKind::ClusterRoleBindings => self.cluster_bindings.remove(name),
        }
    }

    /// Completes a batch of changes: the index is at `revision`.
    pub(super) fn settle(&mut self, revision: u64) {
        if self.unsettled {
            aggregate::resolve(&mut self.cluster_roles);
            self.unsettled = false;
        }
        self.revision = revision;
    }

    /// Calls `see` for every grant of `user` in `namespace` (empty: cluster-wide only), cluster
    /// role bindings first, until it breaks.
    pub(super) fn visit<'a, B>(
        &'a self,
        user: &'a User,
        namespace: &str,
        mut see: impl FnMut(RoleGrant<'a>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        for binding in self.cluster_bindings.for_user(user) {
            see(RoleGrant { binding, rules: self.role(&binding.role, "") })?;
        }
        let local = if namespace.is_empty() { None } else { self.bindings.get(namespace) };
        for binding in local.into_iter().flat_map(|b| b.for_user(user)) {
            see(RoleGrant { binding, rules: self.role(&binding.role, namespace) })?;
        }
        ControlFlow::Continue(())
    }

    /// Returns the rules of the role that a binding in `namespace` references.
    pub(super) fn role(&self, role: &RoleRef, namespace: &str) -> Option<&RuleList> {
        match role {
            RoleRef::Role(name) => self.roles.get(namespace)?.get(name),
            RoleRef::ClusterRole(name) => Some(&self.cluster_roles.get(name)?.rules),
            RoleRef::Unsupported(_) => None,
        }
    }
}

fn rules(role: &Value) -> RuleList {
    PolicyRule::parse_all(&role["rules"]).into_iter().map(Arc::new).collect()
}
