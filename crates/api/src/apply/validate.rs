//! What an applied object must be before it can be merged: of the schema's types, with declared
//! fields only, and with lists whose elements can be told apart.

use std::collections::HashSet;

use serde_json::Value;

use super::element;
use super::node::{Node, Place};
use crate::field::{cut, cut_plain, shown};
use crate::limits::{MAX_ERRORS, MAX_KEY_BYTES, MAX_SHOWN_BYTES};
use crate::schema::{Field, Schema, Shape, Type, TypeId};

/// Checks an applied object. The error lists everything that is wrong, each with its path.
pub(super) fn validate(schema: &Schema, of: TypeId, object: &Value) -> Result<(), String> {
    let mut check = Check { schema, path: Vec::new(), errors: Vec::new(), total: 0 };
    check.object(schema.type_of(of), Place::Top, object);
    if check.total > check.errors.len() {
        check.errors.push(format!("… and {} more", check.total - check.errors.len()));
    }
    match check.errors.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        many => Err(format!("errors:\n  {}", many.join("\n  "))),
    }
}

struct Check<'s> {
    schema: &'s Schema,
    path: Vec<String>,
    /// The first of them ([`MAX_ERRORS`]).
    errors: Vec<String>,
    total: usize,
}

impl<'s> Check<'s> {
    fn fail(&mut self, what: &str) {
        self.total += 1;
        if self.errors.len() == MAX_ERRORS {
            return;
        }
        let path = self.path.concat();
        self.errors.push(if path.is_empty() { what.into() } else { format!("{path}: {what}") });
    }

    fn at(&mut self, part: String, check: impl FnOnce(&mut Self)) {
        self.path.push(cut(&part, MAX_KEY_BYTES).into_owned());
        check(self);
        self.path.pop();
    }

    fn object(&mut self, of: &'s Type, place: Place, value: &Value) {
        let Value::Object(map) = value else {
            return self.fail(&format!("expected map, got {}", json(value)));
        };
        for (name, value) in map {
            if place == Place::Top && place.is_unowned(name) {
                continue;
            }
            let field = of.field(name);
            self.at(format!(".{name}"), |check| match field {
                Some(field) => check.field(field, value),
                None => check.fail("field not declared in schema"),
            });
        }
    }

    fn field(&mut self, field: &'s Field, value: &Value) {
        match (&field.shape, value) {
            (Shape::List(shape), Value::Array(list)) => {
                self.list(Node::of_field(self.schema, field), shape, list);
            }
            (shape, value) => self.value(shape, value),
        }
    }

    fn list(&mut self, node: Node<'s>, shape: &'s Shape, list: &[Value]) {
        let mut seen = HashSet::new();
        for (i, value) in list.iter().enumerate() {
            let part = match node {
                Node::Set | Node::Keyed(..) => match node.part_of(value) {
                    Ok(part) => {
                        let shown = element::display(&part);
                        if !seen.insert(part) {
                            let shown = cut(&shown, MAX_KEY_BYTES);
                            self.fail(&format!("duplicate entries for key {shown}"));
                        }
                        shown
                    }
                    Err(what) => return self.fail(&format!("element {i}: {what}")),
                },
                _ => format!("[{i}]"),
            };
            self.at(part, |check| check.value(shape, value));
        }
    }

    fn value(&mut self, shape: &'s Shape, value: &Value) {
        if value.is_null() {
            return;
        }
        let expected = match (shape, value) {
            (Shape::Raw | Shape::FieldsV1, _) => return,
            (Shape::Object(id), _) => {
                let of = self.schema.type_of(*id);
                return self.object(of, Place::Inside, value);
            }
            (Shape::Map(element), Value::Object(map)) => {
                for (name, value) in map {
                    self.at(format!(".{name}"), |check| check.value(element, value));
                }
                return;
            }
            (Shape::List(element), Value::Array(list)) => {
                return self.list(Node::Leaf, element, list);
            }
            (Shape::Map(_), _) => "map",
            (Shape::List(_), _) => "list",
            (Shape::Int32 | Shape::Int64 | Shape::Float, Value::Number(_)) => return,
            (Shape::Int32 | Shape::Int64 | Shape::Float, _) => "numeric (int or float)",
            (Shape::Bool, Value::Bool(_)) => return,
            (Shape::Bool, _) => "boolean",
            (Shape::Quantity | Shape::IntOrString, Value::Object(_) | Value::Array(_)) => {
                "any scalar"
            }
            (Shape::Quantity | Shape::IntOrString, _) => return,
            (_, Value::String(_)) => return,
            _ => "string",
        };
        self.fail(&format!("expected {expected}, got {}", json(value)));
    }
}

/// A value in an error. Strings stand there as in JSON.
fn json(value: &Value) -> String {
    match value {
        Value::String(text) => Value::from(cut_plain(text, MAX_SHOWN_BYTES)).to_string(),
        other => shown(other),
    }
}
