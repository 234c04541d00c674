//! Namespaces that a Bundle selects.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use windlass_api::selector::labels::{LabelSelector, LabelSelectorError};
use windlass_api::trust_bundle::BundleTarget;

/// Selects the namespaces that get a Bundle's targets.
#[derive(Clone, Debug)]
pub struct NamespaceFilter {
    selector: LabelSelector,
    /// Allowed namespaces; empty means all.
    allowed: BTreeSet<String>,
}

/// Whether a Bundle selects a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceMatch {
    /// The namespace is selected and allowed, so it gets targets.
    Inside,
    /// The namespace is not selected, so targets in it are removed.
    Outside,
    /// The namespace is being deleted, so its targets are left to the namespace controller.
    Ending,
}

impl NamespaceFilter {
    /// Creates the filter from the selector of the target, restricted to the allowed namespaces.
    pub fn new(
        target: Option<&BundleTarget>,
        allowed: impl IntoIterator<Item = String>,
    ) -> Result<Self, LabelSelectorError> {
        let selector = match target.and_then(|target| target.namespace_selector.as_ref()) {
            None | Some(Value::Null) => LabelSelector::everything(),
            Some(selector) => LabelSelector::from_object(selector)?,
        };
        Ok(Self { selector, allowed: allowed.into_iter().collect() })
    }

    /// Matches a namespace.
    pub fn match_namespace(
        &self,
        name: &str,
        labels: &BTreeMap<String, String>,
        ending: bool,
    ) -> NamespaceMatch {
        let allowed = self.allowed.is_empty() || self.allowed.contains(name);
        if ending {
            NamespaceMatch::Ending
        } else if allowed && self.selector.matches(|key| labels.get(key).map(String::as_str)) {
            NamespaceMatch::Inside
        } else {
            NamespaceMatch::Outside
        }
    }

    /// Returns the message of the `Synced` condition.
    pub fn success_message(&self) -> String {
        let allowed = if self.allowed.is_empty() { "" } else { "allowed " };
        if self.selector.is_everything() {
            format!("Successfully synced Bundle to all {allowed}namespaces")
        } else {
            let selector = &self.selector;
            format!(
                "Successfully synced Bundle to {allowed}namespaces that match this label selector: {selector}"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::bundles::fixtures;

    fn namespace_filter(selector: Value, allowed: &[&str]) -> NamespaceFilter {
        let target = json!({"configMap": {"key": "k"}, "namespaceSelector": selector});
        let bundle = fixtures::bundle(json!([{"inLine": "x"}]), target);
        let allowed = allowed.iter().map(|name| (*name).to_owned());
        NamespaceFilter::new(bundle.spec.target.as_ref(), allowed).unwrap()
    }

    #[test]
    fn the_success_message_has_four_forms() {
        let selector = json!({"matchExpressions": [
            {"key": "trust-manager.io/namespace", "operator": "In", "values": ["ns-1", "ns-2"]},
        ]});
        let cases = [
            (Value::Null, &[][..], "Successfully synced Bundle to all namespaces"),
            (json!({}), &[], "Successfully synced Bundle to all namespaces"),
            (Value::Null, &["a"], "Successfully synced Bundle to all allowed namespaces"),
            (
                selector.clone(),
                &[],
                "Successfully synced Bundle to namespaces that match this label selector: \
                 trust-manager.io/namespace in (ns-1,ns-2)",
            ),
            (
                selector,
                &["a"],
                "Successfully synced Bundle to allowed namespaces that match this label selector: \
                 trust-manager.io/namespace in (ns-1,ns-2)",
            ),
            (
                json!({"matchLabels": {"foo": "bar"}}),
                &[],
                "Successfully synced Bundle to namespaces that match this label selector: foo=bar",
            ),
        ];
        for (selector, allowed, want) in cases {
            assert_eq!(namespace_filter(selector, allowed).success_message(), want);
        }
    }

    #[test]
    fn namespaces_are_chosen() {
        let labels = BTreeMap::from([("foo".to_owned(), "bar".to_owned())]);
        let none = BTreeMap::new();
        let all = namespace_filter(Value::Null, &[]);
        assert_eq!(all.match_namespace("a", &none, false), NamespaceMatch::Inside);
        assert_eq!(all.match_namespace("a", &none, true), NamespaceMatch::Ending);
        let some = namespace_filter(json!({"matchLabels": {"foo": "bar"}}), &["a"]);
        assert_eq!(some.match_namespace("a", &labels, false), NamespaceMatch::Inside);
        assert_eq!(some.match_namespace("a", &none, false), NamespaceMatch::Outside);
        assert_eq!(some.match_namespace("b", &labels, false), NamespaceMatch::Outside);
        assert!(
            NamespaceFilter::new(None, [])
                .is_ok_and(|namespace_filter| namespace_filter.match_namespace("a", &none, false)
                    == NamespaceMatch::Inside)
        );
    }

    #[test]
    fn an_invalid_selector_is_an_error() {
        let bad = json!({"matchExpressions": [{"key": "a", "operator": "Near", "values": []}]});
        let target = json!({"configMap": {"key": "k"}, "namespaceSelector": bad});
        let bundle = fixtures::bundle(json!([{"inLine": "x"}]), target);
        let error = NamespaceFilter::new(bundle.spec.target.as_ref(), []).unwrap_err().to_string();
        assert_eq!(error, "\"Near\" is not a valid label selector operator");
    }
}
