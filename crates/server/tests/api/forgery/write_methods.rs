//! Methods to send a change to an object.

use http::Method;
use serde_json::{Map, Value, json};

use super::field_locations::{FieldChange, pointer};
use windlass_testkit::{TestResponse, TestServer};

pub const MANAGER: &str = "forger";

/// How a change is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMethod {
    Put,
    Json,
    Merge,
    Strategic,
    /// Like [`WriteMethod::Strategic`], with `$patch: replace` on lists and maps.
    StrategicReplace,
    Apply,
    /// Applies only the changed fields, which removes all others of the manager.
    ApplyAlone,
}

impl WriteMethod {
    pub const ALL: [WriteMethod; 7] = [
        WriteMethod::Put,
        WriteMethod::Json,
        WriteMethod::Merge,
        WriteMethod::Strategic,
        WriteMethod::StrategicReplace,
        WriteMethod::Apply,
        WriteMethod::ApplyAlone,
    ];

    fn media(self) -> &'static str {
        match self {
            WriteMethod::Put => "application/json",
            WriteMethod::Json => "application/json-patch+json",
            WriteMethod::Merge => "application/merge-patch+json",
            WriteMethod::Strategic | WriteMethod::StrategicReplace => {
                "application/strategic-merge-patch+json"
            }
            WriteMethod::Apply | WriteMethod::ApplyAlone => "application/apply-patch+yaml",
        }
    }

    /// Returns the body that turns `current` into `target`, which differs by `changes`.
    pub fn body(self, current: &Value, target: &Value, changes: &[FieldChange]) -> Value {
        match self {
            WriteMethod::Put => target.clone(),
            WriteMethod::Json => operations(current, target, changes),
            WriteMethod::Merge | WriteMethod::Strategic => merged(target, changes),
            WriteMethod::StrategicReplace => {
                let mut patch = merged(target, changes);
                replace_all(&mut patch, true);
                patch
            }
            WriteMethod::Apply => applied(target, changes),
            WriteMethod::ApplyAlone => {
                let mut patch = merged(target, changes);
                identify(&mut patch, target);
                patch
            }
        }
    }
}

/// Sends a body to an object's endpoint as the bearer of `token`.
pub async fn send(
    server: &TestServer,
    token: &str,
    path: &str,
    how: WriteMethod,
    body: &Value,
) -> TestResponse {
    let (method, query) = match how {
        WriteMethod::Put => (Method::PUT, ""),
        WriteMethod::Apply | WriteMethod::ApplyAlone => (Method::PATCH, "&force=true"),
        WriteMethod::Json | WriteMethod::Merge | WriteMethod::Strategic | WriteMethod::StrategicReplace => {
            (Method::PATCH, "")
        }
    };
    let path = format!("{path}?fieldManager={MANAGER}{query}");
    let asked = server.request(method, &path).header("authorization", &format!("Bearer {token}"));
    asked.header("content-type", how.media()).json(body).send().await
}

/// Returns a JSON patch that makes each change, at the first missing parent if there is one.
fn operations(current: &Value, target: &Value, changes: &[FieldChange]) -> Value {
    let mut done = current.clone();
    let mut all = Vec::new();
    for change in changes {
        let there = |depth: usize| done.pointer(&pointer(&change.at[..depth])).is_some();
        let depth = (1..change.at.len()).find(|depth| !there(*depth)).unwrap_or(change.at.len());
        let place = pointer(&change.at[..depth]);
        let next = change.apply_to(&done);
        match next.pointer(&place) {
            Some(value) if change.value.is_some() => {
                let op = if there(depth) { "replace" } else { "add" };
                all.push(json!({"op": op, "path": place, "value": value}));
            }
            _ => all.push(json!({"op": "remove", "path": place})),
        }
        done = next;
    }
    debug_assert_eq!(&done, target);
    Value::Array(all)
}

/// Returns only the parents of the changes; lists are complete.
fn merged(target: &Value, changes: &[FieldChange]) -> Value {
    let mut patch = Value::Object(Map::new());
    for change in changes {
        let in_list = change.at.iter().position(|key| key == "0").unwrap_or(change.at.len());
        let at = &change.at[..in_list];
        let value = target.pointer(&pointer(at)).cloned().unwrap_or(Value::Null);
        patch = FieldChange { at: at.to_vec(), value: Some(value) }.apply_to(&patch);
    }
    patch
}

fn replace_all(patch: &mut Value, outermost: bool) {
    match patch {
        Value::Object(map) => {
            map.values_mut().for_each(|inner| replace_all(inner, false));
            // Excludes parents: the rest of the object must stay.
            if !outermost && map.values().all(|inner| !inner.is_object()) {
                map.insert("$patch".into(), json!("replace"));
            }
        }
        Value::Array(list) if list.iter().all(Value::is_object) => {
            list.push(json!({"$patch": "replace"}));
        }
        _ => {}
    }
}

/// Returns the object without server-owned fields, except changed ones.
fn applied(target: &Value, changes: &[FieldChange]) -> Value {
    const OWNED: [&str; 7] = [
        "managedFields",
        "resourceVersion",
        "uid",
        "creationTimestamp",
        "generation",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ];
    let mut body = target.clone();
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        let changed = |field: &str| changes.iter().any(|c| c.at.get(1).is_some_and(|f| f == field));
        metadata.retain(|field, _| !OWNED.contains(&field.as_str()) || changed(field));
    }
    body
}

fn identify(patch: &mut Value, target: &Value) {
    for field in ["apiVersion", "kind"] {
        if patch.get(field).is_none() {
            patch[field] = target.get(field).cloned().unwrap_or(Value::Null);
        }
    }
    if patch["metadata"].is_object() || patch.get("metadata").is_none() {
        for field in ["name", "namespace"] {
            if patch["metadata"].get(field).is_none()
                && let Some(value) = target.pointer(&format!("/metadata/{field}"))
            {
                patch["metadata"][field] = value.clone();
            }
        }
    }
}
