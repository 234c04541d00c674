//! Checks whether rules cover another rule.

use std::sync::Arc;

use serde_json::Value;

use crate::chain::authz::rbac::{PolicyRule, rule_coverage};

/// Returns true if each permission of `rule` is allowed by one of `rules`. An invalid rule covers
/// nothing and is not covered.
pub(crate) fn covers(rules: &[Value], rule: &Value) -> bool {
    let held: Vec<Arc<PolicyRule>> = rules.iter().filter_map(PolicyRule::parse).map(Arc::new).collect();
    let Some(wanted) = PolicyRule::parse(rule) else { return false };
    rule_coverage::missing(&held, &[wanted]).is_ok_and(|missing| missing.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn resource_rule(verbs: &[&str], groups: &[&str], resources: &[&str], names: &[&str]) -> Value {
        json!({"verbs": verbs, "apiGroups": groups, "resources": resources, "resourceNames": names})
    }

    fn path_rule(verbs: &[&str], paths: &[&str]) -> Value {
        json!({"verbs": verbs, "nonResourceURLs": paths})
    }

    #[test]
    fn rules_cover_narrower_rules() {
        let read = resource_rule(&["get", "list"], &[""], &["pods"], &[]);
        let table = [
            (vec![], read.clone(), false),
            (vec![read.clone()], read.clone(), true),
            (vec![resource_rule(&["*"], &["*"], &["*"], &[])], read.clone(), true),
            (vec![resource_rule(&["get"], &[""], &["pods"], &[])], read.clone(), false),
            // Several rules combined.
            (
                vec![
                    resource_rule(&["get"], &[""], &["pods"], &[]),
                    resource_rule(&["list"], &[""], &["pods"], &[]),
                ],
                read.clone(),
                true,
            ),
            (vec![resource_rule(&["get", "list"], &["apps"], &["pods"], &[])], read.clone(), false),
            (vec![resource_rule(&["get", "list"], &[""], &["pods"], &["a"])], read.clone(), false),
            (vec![read.clone()], resource_rule(&["get"], &[""], &["pods"], &["a"]), true),
            (
                vec![resource_rule(&["get"], &[""], &["pods"], &["a"])],
                resource_rule(&["get"], &[""], &["pods"], &["a", "b"]),
                false,
            ),
            (
                vec![resource_rule(&["get"], &[""], &["*/log"], &[])],
                resource_rule(&["get"], &[""], &["pods/log"], &[]),
                true,
            ),
            (
                vec![resource_rule(&["get"], &[""], &["*/log"], &[])],
                resource_rule(&["get"], &[""], &["pods"], &[]),
                false,
            ),
            (
                vec![resource_rule(&["get"], &[""], &["pods"], &[])],
                resource_rule(&["get"], &[""], &["pods/log"], &[]),
                false,
            ),
            (vec![path_rule(&["get"], &["/api*"])], path_rule(&["get"], &["/api", "/apis/x"]), true),
            (vec![path_rule(&["get"], &["/api/*"])], path_rule(&["get"], &["/api"]), false),
            (vec![path_rule(&["*"], &["*"])], path_rule(&["get"], &["/metrics"]), true),
            (vec![path_rule(&["*"], &["*"])], read.clone(), false),
            (vec![resource_rule(&["*"], &["*"], &["*"], &[])], path_rule(&["get"], &["/metrics"]), false),
        ];
        for (rules, rule, expected) in table {
            assert_eq!(covers(&rules, &rule), expected, "{rules:?} on {rule}");
        }
    }
}
