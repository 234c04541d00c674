//! Decides what to write so that an object grants its defaults.

use serde_json::Value;

use super::coverage::covers;
use crate::registry::object_fields::{entries, list, map, part, text};

/// Annotation that excludes an object from reconciliation if `false`.
pub(crate) const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// What to do with an object.
#[derive(Debug, PartialEq)]
pub(crate) enum MergeAction {
    /// Leave the existing object unchanged: it grants everything, or opted out.
    Keep,
    /// Create the default object, because none exists.
    Create,
    /// Replace the object with this one.
    Update(Value),
    /// Delete and recreate it: the role of a binding is immutable.
    Replace {
        /// UID of the binding to delete, as a precondition.
        uid: String,
    },
}

/// Compares an object with its default.
pub(crate) fn plan_merge(default: &Value, existing: Option<&Value>) -> MergeAction {
    let Some(existing) = existing else { return MergeAction::Create };
    let annotations = entries(existing, "/metadata/annotations");
    if annotations.into_iter().any(|(key, value)| key == AUTOUPDATE && value == "false") {
        return MergeAction::Keep;
    }
    if default.get("roleRef") != existing.get("roleRef") {
        return MergeAction::Replace { uid: text(existing, "/metadata/uid").to_owned() };
    }
    let mut object = existing.clone();
    add_metadata(&mut object, default);
    if default.get("aggregationRule").is_some() {
        // The aggregation controller owns the rules.
        let there = list(existing, SELECTORS);
        let missing = list(default, SELECTORS).iter().filter(|s| !there.contains(s));
        let missing: Vec<Value> = missing.cloned().collect();
        if !missing.is_empty() {
            extend(part(&mut object, "aggregationRule"), "clusterRoleSelectors", missing);
        }
    } else {
        let there = list(existing, "/rules");
        let missing = list(default, "/rules").iter().filter(|rule| !covers(there, rule));
        extend(map(&mut object), "rules", missing.cloned().collect());
    }
    let there = list(existing, "/subjects");
    let missing = list(default, "/subjects")
        .iter()
        .filter(|subject| !there.iter().any(|other| is_same(subject, other)));
    extend(map(&mut object), "subjects", missing.cloned().collect());
    if object == *existing { MergeAction::Keep } else { MergeAction::Update(object) }
}

const SELECTORS: &str = "/aggregationRule/clusterRoleSelectors";

/// Adds missing labels and annotations; existing values are kept.
fn add_metadata(object: &mut Value, default: &Value) {
    for field in ["labels", "annotations"] {
        for (key, value) in entries(default, &format!("/metadata/{field}")) {
            let metadata = map(object).entry("metadata").or_insert(Value::Null);
            part(metadata, field).entry(key).or_insert_with(|| value.clone());
        }
    }
}

fn extend(object: &mut serde_json::Map<String, Value>, field: &str, more: Vec<Value>) {
    if more.is_empty() {
        return;
    }
    let slot = object.entry(field).or_insert(Value::Null);
    match slot {
        Value::Array(list) => list.extend(more),
        other => *other = more.into(),
    }
}

fn is_same(a: &Value, b: &Value) -> bool {
    ["/kind", "/apiGroup", "/name", "/namespace"].iter().all(|part| text(a, part) == text(b, part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(metadata: Value, parts: Value) -> Value {
        let mut object = parts;
        object["metadata"] = metadata;
        object
    }

    fn known_metadata() -> Value {
        json!({"labels": {"l": "1"}, "annotations": {AUTOUPDATE: "true"}, "uid": "u"})
    }

    fn rule(verb: &str) -> Value {
        json!({"verbs": [verb], "apiGroups": [""], "resources": ["pods"]})
    }

    #[test]
    fn only_missing_parts_are_added() {
        let default = object(
            json!({"labels": {"l": "1"}, "annotations": {AUTOUPDATE: "true"}}),
            json!({"rules": [rule("get"), rule("list")]}),
        );
        let with = |rules: Value| object(known_metadata(), json!({ "rules": rules }));
        let table = [
            (with(json!([rule("get"), rule("list")])), MergeAction::Keep),
            (with(json!([rule("*")])), MergeAction::Keep),
            (with(json!([rule("list"), rule("delete"), rule("get")])), MergeAction::Keep),
            (
                with(json!([rule("delete"), rule("list")])),
                MergeAction::Update(with(json!([rule("delete"), rule("list"), rule("get")]))),
            ),
            (with(Value::Null), MergeAction::Update(with(json!([rule("get"), rule("list")])))),
        ];
        for (existing, expected) in table {
            assert_eq!(plan_merge(&default, Some(&existing)), expected, "{existing}");
        }
        assert_eq!(plan_merge(&default, None), MergeAction::Create);
    }

    #[test]
    fn metadata_is_completed() {
        let default = object(known_metadata(), json!({ "rules": [] }));
        let mut existing = object(json!({"labels": {"l": "2", "m": "3"}}), json!({ "rules": [] }));
        let MergeAction::Update(object) = plan_merge(&default, Some(&existing)) else { panic!("no update") };
        assert_eq!(object["metadata"]["labels"], json!({"l": "2", "m": "3"}), "values stay");
        assert_eq!(object["metadata"]["annotations"], json!({AUTOUPDATE: "true"}));
        existing["metadata"]["annotations"] = json!({AUTOUPDATE: "false"});
        assert_eq!(plan_merge(&default, Some(&existing)), MergeAction::Keep, "it was to be left alone");
    }

    #[test]
    fn bindings() {
        let user = |name: &str| json!({"kind": "User", "apiGroup": "g", "name": name});
        let binding = |role: &str, subjects: Value| {
            object(known_metadata(), json!({"roleRef": {"name": role}, "subjects": subjects}))
        };
        let default = binding("r", json!([user("a")]));
        let table = [
            (binding("r", json!([user("b"), user("a")])), MergeAction::Keep),
            (
                binding("r", json!([user("b")])),
                MergeAction::Update(binding("r", json!([user("b"), user("a")]))),
            ),
            (binding("r", Value::Null), MergeAction::Update(binding("r", json!([user("a")])))),
            (binding("other", json!([user("a")])), MergeAction::Replace { uid: "u".into() }),
        ];
        for (existing, expected) in table {
            assert_eq!(plan_merge(&default, Some(&existing)), expected, "{existing}");
        }
        let mut left_alone = binding("other", json!([]));
        left_alone["metadata"]["annotations"] = json!({AUTOUPDATE: "false"});
        assert_eq!(plan_merge(&default, Some(&left_alone)), MergeAction::Keep);
        // A stored binding without subjects has no list of subjects.
        let nobody = object(known_metadata(), json!({"roleRef": {"name": "r"}}));
        assert_eq!(plan_merge(&binding("r", json!([])), Some(&nobody)), MergeAction::Keep);
    }

    #[test]
    fn only_the_selectors_of_an_aggregated_role_matter() {
        let role = |selectors: Value, rules: Value| {
            let aggregation = json!({ "clusterRoleSelectors": selectors });
            object(known_metadata(), json!({"aggregationRule": aggregation, "rules": rules}))
        };
        let (ours, theirs) = (json!({"matchLabels": {"a": "1"}}), json!({"matchLabels": {"b": "1"}}));
        let default = role(json!([ours]), Value::Null);
        let rules = json!([rule("get")]);
        let table = [
            (role(json!([theirs, ours]), rules.clone()), MergeAction::Keep),
            (
                role(json!([theirs]), rules.clone()),
                MergeAction::Update(role(json!([theirs, ours]), rules.clone())),
            ),
            (
                object(known_metadata(), json!({ "rules": rules })),
                MergeAction::Update(role(json!([ours]), rules.clone())),
            ),
        ];
        for (existing, expected) in table {
            assert_eq!(plan_merge(&default, Some(&existing)), expected, "{existing}");
        }
    }
}
