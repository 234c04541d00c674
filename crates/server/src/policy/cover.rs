//! Whether rules allow all that another rule allows.

use serde_json::Value;

use crate::registry::parts::{count, list, texts};

/// Whether everything that `rule` allows is allowed by one of `rules` or other, piece by piece.
pub fn covers(rules: &[Value], rule: &Value) -> bool {
    let all_verbs = |holds: &dyn Fn(&str) -> bool| texts(rule, "/verbs").all(holds);
    let paths = all_verbs(&|verb| {
        texts(rule, "/nonResourceURLs").all(|path| {
            rules.iter().any(|other| has(other, "/verbs", verb) && has_path(other, path))
        })
    });
    let names: Vec<Option<&str>> = match count(rule, "/resourceNames") {
        0 => vec![None],
        _ => texts(rule, "/resourceNames").map(Some).collect(),
    };
    paths
        && all_verbs(&|verb| {
            texts(rule, "/apiGroups").all(|group| {
                texts(rule, "/resources").all(|resource| {
                    names.iter().all(|name| {
                        rules.iter().any(|other| {
                            has(other, "/verbs", verb)
                                && has(other, "/apiGroups", group)
                                && has_resource(other, resource)
                                && has_name(other, *name)
                        })
                    })
                })
            })
        })
}

fn has(rule: &Value, pointer: &str, word: &str) -> bool {
    texts(rule, pointer).any(|each| each == "*" || each == word)
}

/// `*` is every resource with all that is under it; `*/scale` is the `scale` of every resource.
fn has_resource(rule: &Value, resource: &str) -> bool {
    let under = resource.split_once('/').map(|(_, under)| under);
    texts(rule, "/resources").any(|each| {
        each == "*"
            || each == resource
            || (each.strip_prefix("*/").is_some() && each.strip_prefix("*/") == under)
    })
}

/// `None` is any name at all, which a rule on certain names does not allow.
fn has_name(rule: &Value, name: Option<&str>) -> bool {
    list(rule, "/resourceNames").is_empty()
        || name.is_some_and(|name| texts(rule, "/resourceNames").any(|each| each == name))
}

/// `/a*` is every path that begins so.
fn has_path(rule: &Value, path: &str) -> bool {
    texts(rule, "/nonResourceURLs").any(|each| {
        each == path || each.strip_suffix('*').is_some_and(|start| path.starts_with(start))
    })
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
