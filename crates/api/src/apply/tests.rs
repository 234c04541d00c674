//! Cases modelled on the behaviour of structured-merge-diff and kube-apiserver.

mod apply;
mod field_sets;
mod properties;
mod update;

use serde_json::{Value, json};

use super::*;
use crate::patch::sample_schema::{schema, type_id};

fn writer<'a>(manager: &'a str, time: &'a str) -> FieldManager<'a> {
    FieldManager { manager, api_version: "v1", subresource: "", time }
}

/// Object under test, written step by step.
struct LiveObject {
    kind: &'static str,
    object: Option<Value>,
    reset: FieldSet,
}

impl LiveObject {
    fn new(kind: &'static str) -> Self {
        LiveObject { kind, object: None, reset: FieldSet::default() }
    }

    /// Applies, and returns true if anything changed.
    fn apply(&mut self, who: &str, applied: Value, force: bool) -> Result<bool, ApplyError> {
        self.apply_as(&writer(who, "2026-01-01T00:00:00Z"), applied, force)
    }

    fn apply_as(&mut self, who: &FieldManager<'_>, applied: Value, force: bool) -> Result<bool, ApplyError> {
        let live = self.object.as_ref();
        let of = type_id(self.kind);
        let new = on_apply(schema(), of, live, &applied, who, force, &self.reset)?;
        let changed = new.is_some();
        self.object = new.or(self.object.take());
        Ok(changed)
    }

    fn update(&mut self, who: &str, new: Value) {
        self.update_as(&writer(who, "2026-01-01T00:00:00Z"), new);
    }

    fn update_as(&mut self, who: &FieldManager<'_>, mut new: Value) {
        let of = type_id(self.kind);
        on_update(schema(), of, self.object.as_ref(), &mut new, who, &self.reset);
        self.object = Some(new);
    }

    fn without_managed_fields(&self) -> Value {
        let mut object = self.object.clone().unwrap_or_default();
        object["metadata"].as_object_mut().unwrap().remove("managedFields");
        object
    }

    /// Returns field ownership as (manager, operation, fields).
    fn owners(&self) -> Value {
        let list = self.object.as_ref().and_then(|o| o["metadata"].get("managedFields").cloned());
        let list = list.unwrap_or(json!([]));
        let entries = list.as_array().unwrap().iter();
        entries.map(|e| json!([e["manager"], e["operation"], e["fieldsV1"]])).collect()
    }

    fn times(&self) -> Value {
        let list = self.object.as_ref().unwrap()["metadata"]["managedFields"].as_array().unwrap();
        list.iter().map(|e| json!([e["manager"], e["time"]])).collect()
    }
}

fn conflicts(result: Result<bool, ApplyError>) -> Vec<(String, String)> {
    match result {
        Err(ApplyError::Conflicts(found)) => found.listed.into_iter().map(|c| (c.manager, c.path)).collect(),
        other => panic!("expected conflicts, got {other:?}"),
    }
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect()
}
