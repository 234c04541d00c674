//! What may the caller do in a namespace?

use serde_json::{Map, Value, json};

use crate::chain::authz::rbac::aggregated;
use crate::error::Error;
use crate::user::User;
use crate::verbs::Call;

/// Puts the answer in place of the question: as in Kubernetes, what was asked is not repeated.
pub fn answer(call: &Call<'_>, question: &mut Value) -> Result<(), Error> {
    let namespace = question["spec"]["namespace"].as_str().unwrap_or_default();
    if namespace.is_empty() {
        return Err(Error::BadRequest("no namespace on request".into()));
    }
    let found = call.server.authorizer.rbac().resolve(call.user, namespace);
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    for rule in &found.rules {
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
    let (mut errors, incomplete) = (Vec::new(), is_node(call.user));
    if incomplete {
        errors.push("node authorizer does not support user rule resolution".to_owned());
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

/// What nodes may do is not written down in rules.
fn is_node(user: &User) -> bool {
    user.name.starts_with("system:node:") && user.is_in("system:nodes")
}

fn shown(verbs: &[String]) -> Map<String, Value> {
    Map::from_iter([("verbs".to_owned(), json!(verbs))])
}

fn list(rule: &mut Map<String, Value>, field: &str, list: &[String]) {
    if !list.is_empty() {
        rule.insert(field.into(), json!(list));
    }
}
