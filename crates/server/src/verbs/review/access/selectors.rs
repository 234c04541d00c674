//! Selectors in an access review.

use serde_json::{Value, json};
use windlass_api::selector::fields::{FieldRequirement, FieldSelector};
use windlass_api::selector::labels;

use super::{text, texts};

/// The valid selectors. Requirements are ANDed, so omitting an invalid one requests more access,
/// which is safe.
#[derive(Default)]
pub(super) struct ReviewSelectors {
    /// Field selector of the request; `None` if absent or invalid.
    pub fields: Option<FieldSelector>,
    /// Errors of the requirements that were left out, for `status.evaluationError`.
    pub errors: Vec<String>,
}

impl ReviewSelectors {
    /// Parses the selectors of `resourceAttributes`.
    pub(super) fn parse(attributes: &Value) -> ReviewSelectors {
        let mut found = ReviewSelectors::default();
        let (fields, labels) = (&attributes["fieldSelector"], &attributes["labelSelector"]);
        let (requirements, failed) = field_requirements(fields);
        found.note("fieldSelector", requirements.len(), failed);
        if !requirements.is_empty() {
            found.fields = Some(FieldSelector::from_requirements(requirements));
        }
        let (read, failed) = label_requirements(labels);
        found.note("labelSelector", read, failed);
        found
    }

    fn note(&mut self, field: &str, read: usize, failed: bool) {
        if failed {
            let partially = if read > 0 { "partially " } else { "" };
            self.errors
                .push(format!("spec.resourceAttributes.{field} {partially}ignored due to parse error"));
        }
    }
}

/// Returns the valid requirements, and whether others were omitted.
fn field_requirements(selector: &Value) -> (Vec<FieldRequirement>, bool) {
    let list = selector["requirements"].as_array().map_or(&[][..], Vec::as_slice);
    if list.is_empty() {
        return match FieldSelector::parse(text(&selector["rawSelector"])) {
            Ok(selector) => (selector.requirements().to_vec(), false),
            Err(_) => (Vec::new(), true),
        };
    }
    let read: Vec<FieldRequirement> = list.iter().filter_map(field_requirement).collect();
    let failed = read.len() < list.len();
    (read, failed)
}

/// Supports a single value, with equality or inequality only.
fn field_requirement(requirement: &Value) -> Option<FieldRequirement> {
    let mut values = texts(&requirement["values"]);
    let equal = match text(&requirement["operator"]) {
        "In" => true,
        "NotIn" => false,
        _ => return None,
    };
    let value = values.pop().filter(|_| values.is_empty())?;
    Some(FieldRequirement { field: text(&requirement["key"]).to_owned(), equal, value })
}

/// Returns the number of valid label requirements, and whether others were omitted.
fn label_requirements(selector: &Value) -> (usize, bool) {
    let list = selector["requirements"].as_array().map_or(&[][..], Vec::as_slice);
    if list.is_empty() {
        return (0, labels::LabelSelector::parse(text(&selector["rawSelector"])).is_err());
    }
    let reads = |requirement: &&Value| {
        labels::LabelSelector::from_object(&json!({"matchExpressions": [requirement]})).is_ok()
    };
    let read = list.iter().filter(reads).count();
    (read, read < list.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_read_as_far_as_possible() {
        let requirement = |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
        let ignored = |field: &str| format!("spec.resourceAttributes.{field} ignored due to parse error");
        for (attributes, fields, errors) in [
            (json!({}), "", vec![]),
            (json!({"fieldSelector": {"rawSelector": "spec.nodeName=n"}}), "spec.nodeName=n", vec![]),
            (json!({"fieldSelector": {"rawSelector": "a"}}), "", vec![ignored("fieldSelector")]),
            (
                json!({"fieldSelector": {"requirements": [
                    requirement("spec.nodeName", "In", &["n"]),
                    requirement("a", "NotIn", &["b"]),
                ]}}),
                "spec.nodeName=n,a!=b",
                vec![],
            ),
            (
                json!({"fieldSelector": {"requirements": [
                    requirement("a", "In", &["b"]),
                    requirement("a", "Exists", &[]),
                ]}}),
                "a=b",
                vec!["spec.resourceAttributes.fieldSelector partially ignored due to parse error".to_owned()],
            ),
            (
                json!({"fieldSelector": {"requirements": [requirement("a", "In", &["b", "c"])]}}),
                "",
                vec![ignored("fieldSelector")],
            ),
            (json!({"labelSelector": {"rawSelector": "a in (b)"}}), "", vec![]),
            (json!({"labelSelector": {"rawSelector": "a in"}}), "", vec![ignored("labelSelector")]),
            (
                json!({"labelSelector": {"requirements": [requirement("a", "Near", &["b"])]}}),
                "",
                vec![ignored("labelSelector")],
            ),
        ] {
            let found = ReviewSelectors::parse(&attributes);
            assert_eq!(found.fields.unwrap_or_default().to_string(), fields, "{attributes}");
            assert_eq!(found.errors, errors, "{attributes}");
        }
    }
}
