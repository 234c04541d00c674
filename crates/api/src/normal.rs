//! The canonical form: an object as the server stores and answers it.
//!
//! Two objects that mean the same have the same canonical form, so what is compared, hashed and
//! written is always that. [`normalise`] brings any JSON value into the form of a type: fields the
//! type does not have go (and are told), absent ones that are always written come, empty ones that
//! are never written go, and times, amounts and base64 get their one spelling.

mod scalar;

use serde_json::{Map, Value};

use crate::decode::sort_of;
use crate::field::cut;
use crate::limits::MAX_KEY_BYTES;
use crate::schema::{Field, Presence, Schema, Shape, Type, TypeId};

/// A value in canonical form, and what did not fit into it.
#[derive(Clone, Debug, PartialEq)]
pub struct Normal {
    /// The object.
    pub value: Value,
    /// The fields that the type does not have, as Kubernetes prints them (`spec.containers[0].x`); the
    /// first hundred.
    pub unknown: Vec<String>,
}

/// A value that cannot be one of its type, in the words of Go's decoder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TypeError(String);

/// Brings a value into the canonical form of a type.
pub fn normalise(schema: &Schema, id: TypeId, value: Value) -> Result<Normal, TypeError> {
    let mut walk = Walk { schema, unknown: Vec::new() };
    let root = Place { up: None, step: Step::Root };
    let value = walk.object(id, value, &root)?;
    Ok(Normal { value, unknown: walk.unknown })
}

/// The canonical form of an object of which nothing is given.
pub fn zero(schema: &Schema, id: TypeId) -> Value {
    let always = schema.type_of(id).fields.iter().filter(|f| f.presence == Presence::Always);
    Value::Object(always.map(|f| (f.name.to_owned(), absent(schema, f))).collect())
}

/// What is written for a field that is always written and was not given.
fn absent(schema: &Schema, field: &Field) -> Value {
    if field.nullable {
        Value::Null
    } else if is_items(field) {
        Value::Array(Vec::new())
    } else {
        zero_of(schema, &field.shape)
    }
}

fn zero_of(schema: &Schema, shape: &Shape) -> Value {
    match shape {
        Shape::String => Value::String(String::new()),
        Shape::Bool => Value::Bool(false),
        Shape::Int32 | Shape::Int64 | Shape::Float | Shape::IntOrString => 0.into(),
        Shape::Quantity => "0".into(),
        Shape::Object(id) => zero(schema, *id),
        Shape::Bytes
        | Shape::Time
        | Shape::MicroTime
        | Shape::Raw
        | Shape::FieldsV1
        | Shape::List(_)
        | Shape::Map(_) => Value::Null,
    }
}

/// The items of a list kind: the one list that is written as `[]` and not as `null` when it is empty.
fn is_items(field: &Field) -> bool {
    field.name == "items" && field.presence == Presence::Always
}

/// Kubernetes stops counting there.
const MAX_UNKNOWN: usize = 100;

/// Where the walk is, as a chain of steps on the stack: a path is only spelled out when it is told.
struct Place<'a> {
    up: Option<&'a Place<'a>>,
    step: Step<'a>,
}

enum Step<'a> {
    Root,
    Field { owner: &'a Type, name: &'a str },
    Index(usize),
    Key(&'a str),
}

struct Walk<'s> {
    schema: &'s Schema,
    unknown: Vec<String>,
}

impl Walk<'_> {
    fn object(&mut self, id: TypeId, value: Value, at: &Place<'_>) -> Result<Value, TypeError> {
        let Value::Object(mut map) = value else {
            return Err(at.mismatch(self.schema, &value, &Shape::Object(id)));
        };
        let of = self.schema.type_of(id);
        let mut failed = None;
        map.retain(|name, value| {
            if failed.is_some() {
                return false;
            }
            let here = Place { up: Some(at), step: Step::Field { owner: of, name } };
            let Some(field) = of.field(name) else {
                if self.unknown.len() < MAX_UNKNOWN {
                    self.unknown.push(here.path());
                }
                return false;
            };
            match self.field(field, value.take(), &here) {
                Ok(Some(kept)) => {
                    *value = kept;
                    true
                }
                Ok(None) => false,
                Err(error) => {
                    failed = Some(error);
                    false
                }
            }
        });
        match failed {
            Some(error) => Err(error),
            None => Ok(Value::Object(self.completed(of, map))),
        }
    }

    fn completed(&self, of: &Type, mut map: Map<String, Value>) -> Map<String, Value> {
        for field in of.fields.iter().filter(|f| f.presence == Presence::Always) {
            if !map.contains_key(field.name) {
                map.insert(field.name.to_owned(), absent(self.schema, field));
            }
        }
        map
    }

    /// The field's value, or nothing when it counts as not given.
    fn field(
        &mut self,
        field: &Field,
        value: Value,
        at: &Place<'_>,
    ) -> Result<Option<Value>, TypeError> {
        if value.is_null() {
            return Ok(None);
        }
        let value = self.shaped(&field.shape, value, at)?;
        let kept = match field.presence {
            Presence::NonEmpty => !is_empty(&value),
            Presence::Given => !value.is_null(),
            // A list or map that was empty is stored as none.
            Presence::Always => match &value {
                Value::Array(list) => !list.is_empty() || is_items(field),
                Value::Object(map) => !map.is_empty() || matches!(field.shape, Shape::Object(_)),
                _ => true,
            },
        };
        Ok(kept.then_some(value))
    }

    fn shaped(&mut self, shape: &Shape, value: Value, at: &Place<'_>) -> Result<Value, TypeError> {
        match (shape, value) {
            // As an element of a list or map; a field that is null is absent.
            (_, Value::Null) => Ok(zero_of(self.schema, shape)),
            (Shape::Object(id), value) => self.object(*id, value, at),
            (Shape::List(of), Value::Array(mut list)) => {
                for (i, element) in list.iter_mut().enumerate() {
                    let here = Place { up: Some(at), step: Step::Index(i) };
                    *element = self.shaped(of, element.take(), &here)?;
                }
                Ok(Value::Array(list))
            }
            (Shape::Map(of), Value::Object(mut map)) => {
                for (key, element) in &mut map {
                    let here = Place { up: Some(at), step: Step::Key(key) };
                    *element = self.shaped(of, element.take(), &here)?;
                }
                Ok(Value::Object(map))
            }
            (Shape::String, Value::String(text)) => Ok(Value::String(text)),
            (Shape::Bool, Value::Bool(truth)) => Ok(Value::Bool(truth)),
            (Shape::Int32 | Shape::Int64, Value::Number(number)) => {
                let integer = scalar::integer(&number, shape);
                integer.map(Value::from).ok_or_else(|| at.overflow(self.schema, &number, shape))
            }
            (Shape::Float, Value::Number(number)) => Ok(Value::Number(number)),
            (Shape::IntOrString, Value::String(text)) => Ok(Value::String(text)),
            (Shape::IntOrString, value) => self.shaped(&Shape::Int32, value, at),
            (Shape::Bytes, Value::String(text)) => scalar::base64(text).map_err(TypeError),
            (Shape::Time, Value::String(text)) => scalar::time(&text).map_err(TypeError),
            (Shape::MicroTime, Value::String(text)) => scalar::micro_time(&text).map_err(TypeError),
            (Shape::Quantity, value) => scalar::quantity(&value).map_err(TypeError),
            (Shape::Raw | Shape::FieldsV1, value) => Ok(value),
            (shape, value) => Err(at.mismatch(self.schema, &value, shape)),
        }
    }
}

/// What `omitempty` leaves out.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(truth) => !truth,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

impl<'a> Place<'a> {
    /// As Kubernetes prints it: `spec.containers[0].image`.
    fn path(&self) -> String {
        let mut path = self.up.map(Place::path).unwrap_or_default();
        match self.step {
            Step::Root => {}
            Step::Index(i) => path.push_str(&format!("[{i}]")),
            Step::Field { name, .. } | Step::Key(name) => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(&cut(name, MAX_KEY_BYTES));
            }
        }
        path
    }

    fn mismatch(&self, schema: &Schema, value: &Value, shape: &Shape) -> TypeError {
        self.unlike(schema, sort_of(value), shape)
    }

    fn overflow(&self, schema: &Schema, number: &serde_json::Number, shape: &Shape) -> TypeError {
        self.unlike(schema, &format!("number {number}"), shape)
    }

    /// Go names the struct and then the path from the root, without indices.
    fn unlike(&self, schema: &Schema, what: &str, shape: &Shape) -> TypeError {
        let wanted = go_type(schema, shape);
        let text = match self.owner() {
            Some(owner) => {
                let owner = short(owner.name);
                let fields = self.fields();
                format!("Go struct field {owner}.{fields} of type {wanted}")
            }
            None => format!("Go value of type {wanted}"),
        };
        TypeError(format!("json: cannot unmarshal {what} into {text}"))
    }

    fn owner(&self) -> Option<&'a Type> {
        match self.step {
            Step::Field { owner, .. } => Some(owner),
            _ => self.up.and_then(Place::owner),
        }
    }

    fn fields(&self) -> String {
        let mut path = self.up.map(Place::fields).unwrap_or_default();
        if let Step::Field { name, .. } = self.step {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(name);
        }
        path
    }
}

fn go_type(schema: &Schema, shape: &Shape) -> String {
    match shape {
        Shape::String | Shape::Time | Shape::MicroTime | Shape::Quantity => "string".into(),
        Shape::Bool => "bool".into(),
        Shape::Int32 | Shape::IntOrString => "int32".into(),
        Shape::Int64 => "int64".into(),
        Shape::Float => "float64".into(),
        Shape::Bytes => "[]uint8".into(),
        Shape::Raw => "runtime.RawExtension".into(),
        Shape::FieldsV1 => "v1.FieldsV1".into(),
        Shape::List(of) => format!("[]{}", go_type(schema, of)),
        Shape::Map(of) => format!("map[string]{}", go_type(schema, of)),
        Shape::Object(id) => {
            let name = schema.type_of(*id).name;
            let mut parts = name.rsplitn(3, '.');
            let (short, version) = (parts.next().unwrap_or(name), parts.next().unwrap_or_default());
            format!("{version}.{short}")
        }
    }
}

fn short(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

#[cfg(test)]
mod tests;
