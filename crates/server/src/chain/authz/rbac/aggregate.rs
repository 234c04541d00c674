//! Aggregated cluster roles, composed of other roles by label selectors.
//!
//! In Kubernetes a controller writes the rules into the role. Here they are resolved whenever a
//! cluster role changes, so that grants and revocations take effect immediately.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde_json::Value;
use windlass_api::selector::labels::LabelSelector;

use super::index::{ClusterRole, RuleList};

/// Gives every aggregated role the rules of the roles it selects, transitively.
pub(super) fn resolve(roles: &mut BTreeMap<Box<str>, ClusterRole>) {
    let aggregated = roles.iter().filter(|(_, role)| role.selectors.is_some());
    let gathered: Vec<(Box<str>, RuleList)> =
        aggregated.map(|(name, _)| (name.clone(), gather(roles, name))).collect();
    for (name, rules) in gathered {
        if let Some(role) = roles.get_mut(&name) {
            role.rules = rules;
        }
    }
}

/// Returns the rules of all plain roles reachable from the role `start`. Each role is visited once,
/// so cycles terminate.
fn gather(roles: &BTreeMap<Box<str>, ClusterRole>, start: &str) -> RuleList {
    let mut met = HashSet::from([start]);
    let mut known = HashSet::new();
    let mut rules = Vec::new();
    let mut ahead = vec![start];
    while let Some(name) = ahead.pop() {
        let Some(role) = roles.get(name) else { continue };
        let Some(selectors) = &role.selectors else {
            let new = role.rules.iter().filter(|rule| known.insert(Arc::clone(rule)));
            rules.extend(new.cloned());
            continue;
        };
        let mut selected = Vec::new();
        for selector in selectors {
            let those = roles.iter().filter(|(_, role)| role.is_selected(selector));
            selected.extend(those.map(|(name, _)| &**name).filter(|name| met.insert(name)));
        }
        // Reversed, because the last one is popped first.
        ahead.extend(selected.into_iter().rev());
    }
    rules.into()
}

/// Parses the selectors of an `aggregationRule`; `None` without one. An invalid selector matches
/// nothing: an empty one would match every role.
pub(super) fn selectors(rule: &Value) -> Option<Vec<LabelSelector>> {
    if rule.is_null() {
        return None;
    }
    let all = rule["clusterRoleSelectors"].as_array().into_iter().flatten();
    Some(all.filter_map(selector).collect())
}

fn selector(value: &Value) -> Option<LabelSelector> {
    let object = value.as_object()?;
    let labels = match object.get("matchLabels") {
        None | Some(Value::Null) => true,
        Some(labels) => labels.as_object()?.values().all(Value::is_string),
    };
    let expressions = match object.get("matchExpressions") {
        None | Some(Value::Null) => true,
        Some(list) => list.as_array()?.iter().all(is_expression),
    };
    if labels && expressions { LabelSelector::from_object(value).ok() } else { None }
}

fn is_expression(value: &Value) -> bool {
    let values = match &value["values"] {
        Value::Null => true,
        Value::Array(values) => values.iter().all(Value::is_string),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => false,
    };
    value["key"].is_string() && value["operator"].is_string() && values
}
