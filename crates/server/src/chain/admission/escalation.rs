//! Prevents privilege escalation: the author of a role must hold all its permissions, and so must
//! whoever binds it, unless granted the verbs `escalate` or `bind`.

use serde_json::Value;
use windlass_api::field::quote;
use windlass_api::meta::ObjectMetaView;

use super::AdmissionOperation;
use crate::chain::authz::attributes::{AuthorizationAttributes, AuthorizationTarget, ResourceAttributes};
use crate::chain::authz::rbac::rule_coverage::{self, TooManyComparisons};
use crate::chain::authz::rbac::{PolicyRule, RoleRef, aggregated};
use crate::error::{Error, ErrorSubject};
use crate::registry::rbac::{CLUSTER_ROLE, CLUSTER_ROLE_BINDING, GROUP, ROLE, ROLE_BINDING};
use crate::user::MASTERS;
use crate::verbs::RequestContext;

/// Rejects requests that would escalate privileges.
pub(super) fn admit(
    call: &RequestContext<'_>,
    operation: AdmissionOperation<'_>,
    object: &Value,
) -> Result<(), Error> {
    if call.served.group != GROUP || call.user.has_group(MASTERS) {
        return Ok(());
    }
    let old = match operation {
        AdmissionOperation::Create => None,
        AdmissionOperation::Update(old) => Some(old),
        AdmissionOperation::Delete => return Ok(()),
    };
    if old.is_some_and(|old| changes_owners_only(old, object)) {
        return Ok(());
    }
    let plural = call.kind.plural;
    if plural == ROLE.plural || plural == CLUSTER_ROLE.plural {
        check_role(call, old, object)
    } else if plural == ROLE_BINDING.plural || plural == CLUSTER_ROLE_BINDING.plural {
        check_binding(call, object)
    } else {
        Ok(())
    }
}

fn check_role(call: &RequestContext<'_>, old: Option<&Value>, role: &Value) -> Result<(), Error> {
    if has_permission(call, "escalate", GROUP, call.kind.plural, &call.path.name) {
        return Ok(());
    }
    let rules = PolicyRule::parse_all(&role["rules"]);
    if rules.len() != role["rules"].as_array().map_or(0, Vec::len) {
        return Err(forbidden(call, role, "the rules cannot be read".into()));
    }
    confirm_grants(call, role, &rules)?;
    // An aggregated role can collect any rule, and keeps its rules when aggregation is removed.
    if aggregates(role) || old.is_some_and(aggregates) {
        let why = "must have cluster-admin privileges to use the aggregationRule";
        confirm_grants(call, role, &everything()).map_err(|_| forbidden(call, role, why.into()))?;
    }
    Ok(())
}

fn check_binding(call: &RequestContext<'_>, binding: &Value) -> Result<(), Error> {
    let role = RoleRef::parse(&binding["roleRef"]);
    let (plural, name) = match &role {
        RoleRef::Role(name) => (ROLE.plural, name),
        RoleRef::ClusterRole(name) => (CLUSTER_ROLE.plural, name),
        RoleRef::Unsupported(_) => return Err(Error::Unclassified(role.missing())),
    };
    let group = binding["roleRef"]["apiGroup"].as_str().unwrap_or_default();
    if has_permission(call, "bind", group, plural, name) {
        return Ok(());
    }
    let rules = call.server.authorizer.rbac().role_rules(&role, &call.path.namespace);
    let rules = rules.ok_or_else(|| Error::NotFound(ErrorSubject::new(GROUP, plural, name)))?;
    let rules: Vec<PolicyRule> = rules.iter().map(|rule| (**rule).clone()).collect();
    confirm_grants(call, binding, &rules)
}

/// Returns true if the caller has a verb that stands for all permissions of a role. A new role has
/// no name yet.
fn has_permission(call: &RequestContext<'_>, verb: &str, group: &str, resource: &str, name: &str) -> bool {
    let namespace = &call.path.namespace;
    let resource = ResourceAttributes {
        group,
        version: "*",
        resource,
        namespace,
        name,
        ..ResourceAttributes::default()
    };
    let asked =
        AuthorizationAttributes { user: call.user, verb, target: AuthorizationTarget::Resource(resource) };
    call.server.authorizer.decide(&asked).is_allowed()
}

/// Rejects `object` unless the caller holds all of `rules` in its namespace.
fn confirm_grants(call: &RequestContext<'_>, object: &Value, rules: &[PolicyRule]) -> Result<(), Error> {
    let held = call.server.authorizer.rbac().resolve(call.user, &call.path.namespace);
    let missing = match rule_coverage::missing(&held.rules, rules) {
        Ok(missing) => missing,
        Err(TooManyComparisons) => {
            let why = "the rules come to more permissions than can be compared with those held";
            return Err(forbidden(call, object, why.into()));
        }
    };
    if missing.is_empty() {
        return Ok(());
    }
    let mut why = format!(
        "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        quote(&call.user.name),
        rule_coverage::quoted(&call.user.groups),
        rule_coverage::describe(&missing)
    );
    if !held.errors.is_empty() {
        why = format!("{why}; resolution errors: [{}]", aggregated(held.errors));
    }
    Err(forbidden(call, object, why))
}

fn forbidden(call: &RequestContext<'_>, object: &Value, why: String) -> Error {
    Error::Forbidden(call.subject(ObjectMetaView::from_object(object).name()), why)
}

fn aggregates(role: &Value) -> bool {
    let selectors = &role["aggregationRule"]["clusterRoleSelectors"];
    selectors.as_array().is_some_and(|list| !list.is_empty())
}

fn everything() -> [PolicyRule; 2] {
    let all = || vec!["*".to_owned()];
    let on_resources =
        PolicyRule { verbs: all(), api_groups: all(), resources: all(), ..PolicyRule::default() };
    [on_resources, PolicyRule { verbs: all(), non_resource_urls: all(), ..PolicyRule::default() }]
}

/// Returns true if only owner references and finalizers change, as written by the garbage
/// collector, which holds none of the permissions. Managed fields are ignored.
fn changes_owners_only(old: &Value, new: &Value) -> bool {
    let rest = |object: &Value| {
        let mut object = object.clone();
        if let Some(map) = object.as_object_mut() {
            map.remove("kind");
            map.remove("apiVersion");
        }
        if let Some(metadata) = object["metadata"].as_object_mut() {
            let others = ["ownerReferences", "finalizers", "managedFields", "resourceVersion"];
            metadata.retain(|field, _| !others.contains(&field.as_str()) && field != "selfLink");
        }
        object
    };
    rest(old) == rest(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn owners_may_change_and_nothing_else() {
        let old = json!({"kind": "Role", "metadata": {"name": "r", "resourceVersion": "1", "labels": {"a": "b"}},
            "rules": [{"verbs": ["get"]}]});
        for (pointer, value, only) in [
            ("/metadata/finalizers", json!(["x/y"]), true),
            ("/metadata/ownerReferences", json!([{"uid": "u"}]), true),
            ("/metadata/managedFields", json!([]), true),
            ("/metadata/labels", json!({"a": "c"}), false),
            ("/metadata/annotations", json!({"a": "c"}), false),
            ("/rules", json!([]), false),
            ("/aggregationRule", json!({}), false),
            ("/roleRef", json!({}), false),
        ] {
            let mut new = old.clone();
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            new.pointer_mut(parent).unwrap()[field] = value;
            assert_eq!(changes_owners_only(&old, &new), only, "{pointer}");
        }
    }
}
