//! SelfSubjectRulesReview: permissions of the caller in a namespace.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::chain::authz::rbac::{PolicyRule, aggregated};
use crate::error::Error;
use crate::limits;
use crate::user::User;
use crate::verbs::RequestContext;

/// Replaces the review with its status: as in Kubernetes, the spec is not repeated.
pub(super) fn answer(call: &RequestContext<'_>, question: &mut Value) -> Result<(), Error> {
    let namespace = question["spec"]["namespace"].as_str().unwrap_or_default();
    if namespace.is_empty() {
        return Err(Error::BadRequest("no namespace on request".into()));
    }
    let found = call.server.authorizer.rbac().resolve(call.user, namespace);
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    let listed = as_many_as_fit(&found.rules);
    for rule in listed {
        if !rule.resources.is_empty() {
            let mut shown = shown(&rule.verbs);
            list(&mut shown, "apiGroups", &rule.api_groups);
            list(&mut shown, "resources", &rule.resources);
            list(&mut shown, "resourceNames", &rule.resource_names);
            resources.push(Value::Object(shown));
        }
        if !rule.non_resource_urls.is_empty() {
            let mut shown = shown(&rule.verbs);
            list(&mut shown, "nonResourceURLs", &rule.non_resource_urls);
            paths.push(Value::Object(shown));
        }
    }
    let (mut errors, node) = (Vec::new(), is_node(call.user));
    let incomplete = node || listed.len() < found.rules.len();
    if node {
        errors.push("node authorizer does not support user rule resolution".to_owned());
    }
    if listed.len() < found.rules.len() {
        errors.push("there are more rules than can be listed".to_owned());
    }
    if !found.errors.is_empty() {
        errors.push(aggregated(found.errors));
    }
    let mut status = json!({
        "resourceRules": resources, "nonResourceRules": paths, "incomplete": incomplete,
    });
    if !errors.is_empty() {
        status["evaluationError"] = json!(aggregated(errors));
    }
    question["metadata"] = json!({});
    question["spec"] = json!({});
    question["status"] = status;
    Ok(())
}

/// Returns as many rules as the limit allows. Thousands of roles can be bound, and a response takes
/// many times the memory of its rules.
fn as_many_as_fit(rules: &[Arc<PolicyRule>]) -> &[Arc<PolicyRule>] {
    let mut words = 0;
    let fits = rules.iter().take_while(|rule| {
        words += rule.words();
        words <= limits::LISTED_RULES
    });
    rules.get(..fits.count()).unwrap_or_default()
}

/// Permissions of nodes are not expressed as rules.
fn is_node(user: &User) -> bool {
    user.name.starts_with("system:node:") && user.has_group("system:nodes")
}

fn shown(verbs: &[String]) -> Map<String, Value> {
    Map::from_iter([("verbs".to_owned(), json!(verbs))])
}

fn list(rule: &mut Map<String, Value>, field: &str, list: &[String]) {
    if !list.is_empty() {
        rule.insert(field.into(), json!(list));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_lists_are_bounded() {
        let rule = Arc::new(PolicyRule { verbs: vec!["get".into(); 1000], ..PolicyRule::default() });
        let fits = limits::LISTED_RULES / 1001;
        assert_eq!(as_many_as_fit(&vec![rule.clone(); fits]).len(), fits);
        assert_eq!(as_many_as_fit(&vec![rule; fits + 10]).len(), fits);
    }
}
