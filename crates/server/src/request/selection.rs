//! Scope and selectors of list, watch and deletecollection.

use windlass_api::selector::{fields, labels};

use super::options::ListOptions;
use crate::error::Error;
use crate::object::Object;
use crate::registry::kind::{Kind, Scope};

/// Scope and selectors of a collection request.
#[derive(Clone, Debug)]
pub struct ObjectSelection {
    /// Key prefix `namespace/`; empty for all namespaces.
    pub scope: String,
    labels: labels::LabelSelector,
    fields: Vec<FieldMatch>,
}

#[derive(Clone, Debug)]
struct FieldMatch {
    source: FieldSource,
    value: String,
    equal: bool,
}

#[derive(Clone, Debug)]
enum FieldSource {
    Name,
    Namespace,
    /// Index of the field in `Kind::selectable`.
    Indexed(usize),
}

impl ObjectSelection {
    /// Parses the selectors; unknown fields and invalid syntax are a 400.
    pub fn parse(kind: &Kind, namespace: &str, options: &ListOptions) -> Result<Self, Error> {
        let bad = |e: String| Error::BadRequest(e);
        let labels = labels::LabelSelector::parse(&options.label_selector).map_err(|e| bad(e.to_string()))?;
        let parsed = fields::FieldSelector::parse(&options.field_selector).map_err(|e| bad(e.to_string()))?;
        let mut fields = Vec::new();
        for term in parsed.requirements() {
            let of = field_of(kind, &term.field)
                .ok_or_else(|| Error::BadRequest(format!("field label not supported: {}", term.field)))?;
            fields.push(FieldMatch { source: of, value: term.value.clone(), equal: term.equal });
        }
        let scope = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
        Ok(ObjectSelection { scope, labels, fields })
    }

    /// Restricts the selection to one name, unless it is empty.
    pub fn restrict_to_name(&mut self, name: &str) {
        if !name.is_empty() {
            self.fields.push(FieldMatch { source: FieldSource::Name, value: name.into(), equal: true });
        }
    }

    /// Returns true if the object is in scope and matches the selectors.
    pub fn matches(&self, object: &Object) -> bool {
        (self.scope.is_empty() || object.key.starts_with(&self.scope))
            && self.labels.matches(|key| object.label(key))
            && self.fields.iter().all(|test| test.is_met(object))
    }

    /// Returns true if every object in scope matches.
    pub fn is_everything(&self) -> bool {
        self.fields.is_empty() && self.labels.is_everything()
    }

    /// Returns the only name that can match, if a selector requires one.
    pub fn pinned_name(&self) -> Option<&str> {
        let pinned = self.fields.iter().find(|t| t.equal && matches!(t.source, FieldSource::Name));
        pinned.map(|t| t.value.as_str())
    }

    /// Returns the key of the only object that can match, if there is one.
    pub fn single_key(&self, kind: &Kind) -> Option<String> {
        let name = self.pinned_name()?;
        let is_whole = !self.scope.is_empty() || kind.scope != Scope::Namespaced;
        is_whole.then(|| format!("{}{name}", self.scope))
    }
}

impl FieldMatch {
    fn is_met(&self, object: &Object) -> bool {
        let actual = match self.source {
            FieldSource::Name => object.name(),
            FieldSource::Namespace => object.namespace(),
            FieldSource::Indexed(i) => object.fields.get(i).map_or("", |v| v),
        };
        (actual == self.value) == self.equal
    }
}

fn field_of(kind: &Kind, label: &str) -> Option<FieldSource> {
    match label {
        "metadata.name" => Some(FieldSource::Name),
        "metadata.namespace" if kind.scope == Scope::Namespaced && kind.selects_namespace => {
            Some(FieldSource::Namespace)
        }
        _ => kind.selectable.iter().position(|s| s.label == label).map(FieldSource::Indexed),
    }
}
