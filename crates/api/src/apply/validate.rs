//! Validates an applied object before merging: types match the schema, all fields are declared, and
//! list elements have distinct keys.

use std::collections::HashSet;

use serde_json::Value;

use super::merge_node::{MergeNode, ObjectLevel};
use super::path_element;
use crate::field::{shown, truncate, truncate_with_length};
use crate::limits::{MAX_ERRORS, MAX_KEY_BYTES, MAX_SHOWN_BYTES};
use crate::schema::{ObjectType, Schema, SchemaField, TypeId, ValueShape};

/// Validates an applied object. The error lists every violation with its path.
pub(super) fn validate(schema: &Schema, of: TypeId, object: &Value) -> Result<(), String> {
    let mut check = SchemaValidator { schema, path: Vec::new(), errors: Vec::new(), total: 0 };
    check.object(schema.get_type(of), ObjectLevel::Top, object);
    if check.total > check.errors.len() {
        check.errors.push(format!("… and {} more", check.total - check.errors.len()));
    }
    match check.errors.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        many => Err(format!("errors:\n  {}", many.join("\n  "))),
    }
}

struct SchemaValidator<'s> {
    schema: &'s Schema,
    path: Vec<String>,
    /// First [`MAX_ERRORS`] errors, each with its path.
    errors: Vec<String>,
    total: usize,
}

impl<'s> SchemaValidator<'s> {
    fn report_error(&mut self, what: &str) {
        self.total += 1;
        if self.errors.len() == MAX_ERRORS {
            return;
        }
        let path = self.path.concat();
        self.errors.push(if path.is_empty() { what.into() } else { format!("{path}: {what}") });
    }

    fn with_path_element(&mut self, part: String, check: impl FnOnce(&mut Self)) {
        self.path.push(truncate_with_length(&part, MAX_KEY_BYTES).into_owned());
        check(self);
        self.path.pop();
    }

    fn object(&mut self, of: &'s ObjectType, place: ObjectLevel, value: &Value) {
        let Value::Object(map) = value else {
            return self.report_error(&format!("expected map, got {}", json(value)));
        };
        for (name, value) in map {
            if place == ObjectLevel::Top && place.is_unowned(name) {
                continue;
            }
            let field = of.field(name);
            self.with_path_element(format!(".{name}"), |check| match field {
                Some(field) => check.field(field, value),
                None => check.report_error("field not declared in schema"),
            });
        }
    }

    fn field(&mut self, field: &'s SchemaField, value: &Value) {
        match (&field.shape, value) {
            (ValueShape::List(shape), Value::Array(list)) => {
                self.list(MergeNode::from_field(self.schema, field), shape, list);
            }
            (shape, value) => self.value(shape, value),
        }
    }

    fn list(&mut self, node: MergeNode<'s>, shape: &'s ValueShape, list: &[Value]) {
        let mut seen = HashSet::new();
        for (i, value) in list.iter().enumerate() {
            let part = match node {
                MergeNode::Set | MergeNode::Keyed(..) => match node.element_path(value) {
                    Ok(part) => {
                        let shown = path_element::display(&part);
                        if !seen.insert(part) {
                            let shown = truncate_with_length(&shown, MAX_KEY_BYTES);
                            self.report_error(&format!("duplicate entries for key {shown}"));
                        }
                        shown
                    }
                    Err(what) => return self.report_error(&format!("element {i}: {what}")),
                },
                _ => format!("[{i}]"),
            };
            self.with_path_element(part, |check| check.value(shape, value));
        }
    }

    fn value(&mut self, shape: &'s ValueShape, value: &Value) {
        if value.is_null() {
            return;
        }
        let expected = match (shape, value) {
            (ValueShape::Raw | ValueShape::FieldsV1, _) => return,
            (ValueShape::Object(id), _) => {
                let of = self.schema.get_type(*id);
                return self.object(of, ObjectLevel::Inside, value);
            }
            (ValueShape::Map(element), Value::Object(map)) => {
                for (name, value) in map {
                    self.with_path_element(format!(".{name}"), |check| check.value(element, value));
                }
                return;
            }
            (ValueShape::List(element), Value::Array(list)) => {
                return self.list(MergeNode::Leaf, element, list);
            }
            (ValueShape::Map(_), _) => "map",
            (ValueShape::List(_), _) => "list",
            (ValueShape::Int32 | ValueShape::Int64 | ValueShape::Float, Value::Number(_)) => return,
            (ValueShape::Int32 | ValueShape::Int64 | ValueShape::Float, _) => "numeric (int or float)",
            (ValueShape::Bool, Value::Bool(_)) => return,
            (ValueShape::Bool, _) => "boolean",
            (ValueShape::Quantity | ValueShape::IntOrString, Value::Object(_) | Value::Array(_)) => {
                "any scalar"
            }
            (ValueShape::Quantity | ValueShape::IntOrString, _) => return,
            (_, Value::String(_)) => return,
            _ => "string",
        };
        self.report_error(&format!("expected {expected}, got {}", json(value)));
    }
}

/// Formats a value for an error; strings are JSON-quoted.
fn json(value: &Value) -> String {
    match value {
        Value::String(text) => Value::from(truncate(text, MAX_SHOWN_BYTES)).to_string(),
        other => shown(other),
    }
}
