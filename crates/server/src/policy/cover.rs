//! Whether rules allow all that another rule allows.

use std::sync::Arc;

use serde_json::Value;

use crate::chain::authz::rbac::{Rule, cover};

/// Whether everything that `rule` allows is allowed by one of `rules` or other, piece by piece. A rule that cannot
/// be read covers nothing and is not covered.
pub fn covers(rules: &[Value], rule: &Value) -> bool {
    let held: Vec<Arc<Rule>> = rules.iter().filter_map(Rule::parse).map(Arc::new).collect();
    let Some(wanted) = Rule::parse(rule) else { return false };
    cover::missing(&held, &[wanted]).is_ok_and(|missing| missing.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn on(verbs: &[&str], groups: &[&str], resources: &[&str], names: &[&str]) -> Value {
        json!({"verbs": verbs, "apiGroups": groups, "resources": resources, "resourceNames": names})
    }

    fn at(verbs: &[&str], paths: &[&str]) -> Value {
        json!({"verbs": verbs, "nonResourceURLs": paths})
    }

    #[test]
    fn what_covers_what() {
        let read = on(&["get", "list"], &[""], &["pods"], &[]);
        let table = [
            (vec![], read.clone(), false),
            (vec![read.clone()], read.clone(), true),
            (vec![on(&["*"], &["*"], &["*"], &[])], read.clone(), true),
            (vec![on(&["get"], &[""], &["pods"], &[])], read.clone(), false),
            // Several together.
            (
                vec![on(&["get"], &[""], &["pods"], &[]), on(&["list"], &[""], &["pods"], &[])],
                read.clone(),
                true,
            ),
            (vec![on(&["get", "list"], &["apps"], &["pods"], &[])], read.clone(), false),
            (vec![on(&["get", "list"], &[""], &["pods"], &["a"])], read.clone(), false),
            (vec![read.clone()], on(&["get"], &[""], &["pods"], &["a"]), true),
            (
                vec![on(&["get"], &[""], &["pods"], &["a"])],
                on(&["get"], &[""], &["pods"], &["a", "b"]),
                false,
            ),
            (
                vec![on(&["get"], &[""], &["*/log"], &[])],
                on(&["get"], &[""], &["pods/log"], &[]),
                true,
            ),
            (
                vec![on(&["get"], &[""], &["*/log"], &[])],
                on(&["get"], &[""], &["pods"], &[]),
                false,
            ),
            (
                vec![on(&["get"], &[""], &["pods"], &[])],
                on(&["get"], &[""], &["pods/log"], &[]),
                false,
            ),
            (vec![at(&["get"], &["/api*"])], at(&["get"], &["/api", "/apis/x"]), true),
            (vec![at(&["get"], &["/api/*"])], at(&["get"], &["/api"]), false),
            (vec![at(&["*"], &["*"])], at(&["get"], &["/metrics"]), true),
            (vec![at(&["*"], &["*"])], read.clone(), false),
            (vec![on(&["*"], &["*"], &["*"], &[])], at(&["get"], &["/metrics"]), false),
        ];
        for (rules, rule, expected) in table {
            assert_eq!(covers(&rules, &rule), expected, "{rules:?} on {rule}");
        }
    }
}
