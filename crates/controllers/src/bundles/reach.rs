//! Which namespaces a Bundle goes to.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use windlass_api::selector::labels::{ParseError, Selector};
use windlass_api::trust_bundle::Target;

/// Which namespaces.
#[derive(Clone, Debug)]
pub struct Reach {
    selector: Selector,
    /// None allowed is all allowed.
    allowed: BTreeSet<String>,
}

/// Whether a Bundle goes to a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It does.
    Inside,
    /// It does not, and what is there is cleaned up.
    Outside,
    /// The namespace empties itself.
    Ending,
}

impl Reach {
    /// What the target says, within what the controllers may write to.
    pub fn new(
        target: Option<&Target>,
        allowed: impl IntoIterator<Item = String>,
    ) -> Result<Self, ParseError> {
        let selector = match target.and_then(|target| target.namespace_selector.as_ref()) {
            None | Some(Value::Null) => Selector::everything(),
            Some(selector) => Selector::from_object(selector)?,
        };
        Ok(Self { selector, allowed: allowed.into_iter().collect() })
    }

    /// Whether it goes to this namespace.
    pub fn place(&self, name: &str, labels: &BTreeMap<String, String>, ending: bool) -> Place {
        let allowed = self.allowed.is_empty() || self.allowed.contains(name);
        if ending {
            Place::Ending
        } else if allowed && self.selector.matches(|key| labels.get(key).map(String::as_str)) {
            Place::Inside
        } else {
            Place::Outside
        }
    }

    /// What is said when all is done.
    pub fn success(&self) -> String {
        let allowed = if self.allowed.is_empty() { "" } else { "allowed " };
        if self.selector.is_everything() {
            format!("Successfully synced Bundle to all {allowed}namespaces")
        } else {
            let selector = &self.selector;
            format!(
                "Successfully synced Bundle to {allowed}namespaces that match this label \
                 selector: {selector}"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::bundles::samples;

    fn reach(selector: Value, allowed: &[&str]) -> Reach {
        let target = json!({"configMap": {"key": "k"}, "namespaceSelector": selector});
        let bundle = samples::bundle(json!([{"inLine": "x"}]), target);
        let allowed = allowed.iter().map(|name| (*name).to_owned());
        Reach::new(bundle.spec.target.as_ref(), allowed).unwrap()
    }

    #[test]
    fn success_is_told_in_four_ways() {
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
            assert_eq!(reach(selector, allowed).success(), want);
        }
    }

    #[test]
    fn namespaces_are_chosen() {
        let labels = BTreeMap::from([("foo".to_owned(), "bar".to_owned())]);
        let none = BTreeMap::new();
        let all = reach(Value::Null, &[]);
        assert_eq!(all.place("a", &none, false), Place::Inside);
        assert_eq!(all.place("a", &none, true), Place::Ending);
        let some = reach(json!({"matchLabels": {"foo": "bar"}}), &["a"]);
        assert_eq!(some.place("a", &labels, false), Place::Inside);
        assert_eq!(some.place("a", &none, false), Place::Outside);
        assert_eq!(some.place("b", &labels, false), Place::Outside);
        assert!(
            Reach::new(None, []).is_ok_and(|reach| reach.place("a", &none, false) == Place::Inside)
        );
    }

    #[test]
    fn a_selector_that_is_none_is_told() {
        let bad = json!({"matchExpressions": [{"key": "a", "operator": "Near", "values": []}]});
        let target = json!({"configMap": {"key": "k"}, "namespaceSelector": bad});
        let bundle = samples::bundle(json!([{"inLine": "x"}]), target);
        let error = Reach::new(bundle.spec.target.as_ref(), []).unwrap_err().to_string();
        assert_eq!(error, "\"Near\" is not a valid label selector operator");
    }
}
