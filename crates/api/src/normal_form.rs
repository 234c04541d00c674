//! Canonical form: an object as the server stores and returns it.
//!
//! Equivalent objects have the same canonical form, so that form is what is compared, hashed and
//! written. [`normalise`] converts any JSON value to the canonical form of a type: it removes and
//! reports unknown fields, adds absent fields that are always written, removes empty fields that
//! are never written, and gives times, quantities and base64 their one spelling.

mod scalar;

use serde_json::{Map, Value};

use crate::decode::json_type_name;
use crate::field::truncate_with_length;
use crate::limits::MAX_KEY_BYTES;
use crate::schema::{FieldPresence, ObjectType, Schema, SchemaField, TypeId, ValueShape};

/// A value in canonical form, and its unknown fields.
#[derive(Clone, Debug, PartialEq)]
pub struct NormalizedObject {
    /// The object in canonical form, without unknown fields.
    pub value: Value,
    /// Fields that the type does not have, in Kubernetes' notation (`spec.containers[0].x`); the
    /// first hundred.
    pub unknown: Vec<String>,
}

/// A value that does not match its type, in the wording of Go's decoder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TypeError(String);

/// Converts a value to the canonical form of a type.
pub fn normalise(schema: &Schema, id: TypeId, value: Value) -> Result<NormalizedObject, TypeError> {
    let mut walk = ObjectNormalizer { schema, unknown: Vec::new() };
    let root = PathNode { up: None, step: PathStep::Root };
    let value = walk.object(id, value, &root)?;
    Ok(NormalizedObject { value, unknown: walk.unknown })
}

/// Returns the canonical form of an empty object.
pub fn zero(schema: &Schema, id: TypeId) -> Value {
    let always = schema.get_type(id).fields.iter().filter(|f| f.presence == FieldPresence::Always);
    Value::Object(always.map(|f| (f.name.to_owned(), absent(schema, f))).collect())
}

/// Returns the value of an absent field that is always written.
fn absent(schema: &Schema, field: &SchemaField) -> Value {
    if field.nullable {
        Value::Null
    } else if is_list_items(field) {
        Value::Array(Vec::new())
    } else {
        zero_value(schema, &field.shape)
    }
}

fn zero_value(schema: &Schema, shape: &ValueShape) -> Value {
    match shape {
        ValueShape::String => Value::String(String::new()),
        ValueShape::Bool => Value::Bool(false),
        ValueShape::Int32 | ValueShape::Int64 | ValueShape::Float | ValueShape::IntOrString => 0.into(),
        ValueShape::Quantity => "0".into(),
        ValueShape::Object(id) => zero(schema, *id),
        ValueShape::Bytes
        | ValueShape::Time
        | ValueShape::MicroTime
        | ValueShape::Raw
        | ValueShape::FieldsV1
        | ValueShape::List(_)
        | ValueShape::Map(_) => Value::Null,
    }
}

/// Returns true for the items of a list kind: the only list written as `[]` rather than `null` when
/// empty.
fn is_list_items(field: &SchemaField) -> bool {
    field.name == "items" && field.presence == FieldPresence::Always
}

/// Maximum number of unknown fields reported, as in Kubernetes.
const MAX_UNKNOWN: usize = 100;

/// Position of the walk, as a chain of steps on the stack: a path is formatted only when it is
/// reported.
struct PathNode<'a> {
    up: Option<&'a PathNode<'a>>,
    step: PathStep<'a>,
}

enum PathStep<'a> {
    Root,
    Field { owner: &'a ObjectType, name: &'a str },
    Index(usize),
    Key(&'a str),
}

struct ObjectNormalizer<'s> {
    schema: &'s Schema,
    unknown: Vec<String>,
}

impl ObjectNormalizer<'_> {
    fn object(&mut self, id: TypeId, value: Value, at: &PathNode<'_>) -> Result<Value, TypeError> {
        let Value::Object(mut map) = value else {
            return Err(at.mismatch(self.schema, &value, &ValueShape::Object(id)));
        };
        let of = self.schema.get_type(id);
        let mut failed = None;
        map.retain(|name, value| {
            if failed.is_some() {
                return false;
            }
            let here = PathNode { up: Some(at), step: PathStep::Field { owner: of, name } };
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
            None => Ok(Value::Object(self.add_required_fields(of, map))),
        }
    }

    fn add_required_fields(&self, of: &ObjectType, mut map: Map<String, Value>) -> Map<String, Value> {
        for field in of.fields.iter().filter(|f| f.presence == FieldPresence::Always) {
            if !map.contains_key(field.name) {
                map.insert(field.name.to_owned(), absent(self.schema, field));
            }
        }
        map
    }

    /// Returns the field's value, or `None` if it counts as absent.
    fn field(
        &mut self,
        field: &SchemaField,
        value: Value,
        at: &PathNode<'_>,
    ) -> Result<Option<Value>, TypeError> {
        if value.is_null() {
            return Ok(None);
        }
        let value = self.normalize_value(&field.shape, value, at)?;
        let kept = match field.presence {
            FieldPresence::NonEmpty => !is_empty(&value),
            FieldPresence::Given => !value.is_null(),
            // An empty list or map is stored as null.
            FieldPresence::Always => match &value {
                Value::Array(list) => !list.is_empty() || is_list_items(field),
                Value::Object(map) => !map.is_empty() || matches!(field.shape, ValueShape::Object(_)),
                _ => true,
            },
        };
        Ok(kept.then_some(value))
    }

    fn normalize_value(
        &mut self,
        shape: &ValueShape,
        value: Value,
        at: &PathNode<'_>,
    ) -> Result<Value, TypeError> {
        match (shape, value) {
            // As an element of a list or map; a null field is absent.
            (_, Value::Null) => Ok(zero_value(self.schema, shape)),
            (ValueShape::Object(id), value) => self.object(*id, value, at),
            (ValueShape::List(of), Value::Array(mut list)) => {
                for (i, element) in list.iter_mut().enumerate() {
                    let here = PathNode { up: Some(at), step: PathStep::Index(i) };
                    *element = self.normalize_value(of, element.take(), &here)?;
                }
                Ok(Value::Array(list))
            }
            (ValueShape::Map(of), Value::Object(mut map)) => {
                for (key, element) in &mut map {
                    let here = PathNode { up: Some(at), step: PathStep::Key(key) };
                    *element = self.normalize_value(of, element.take(), &here)?;
                }
                Ok(Value::Object(map))
            }
            (ValueShape::String, Value::String(text)) => Ok(Value::String(text)),
            (ValueShape::Bool, Value::Bool(truth)) => Ok(Value::Bool(truth)),
            (ValueShape::Int32 | ValueShape::Int64, Value::Number(number)) => {
                let integer = scalar::integer(&number, shape);
                integer.map(Value::from).ok_or_else(|| at.overflow(self.schema, &number, shape))
            }
            (ValueShape::Float, Value::Number(number)) => Ok(Value::Number(number)),
            (ValueShape::IntOrString, Value::String(text)) => Ok(Value::String(text)),
            (ValueShape::IntOrString, value) => self.normalize_value(&ValueShape::Int32, value, at),
            (ValueShape::Bytes, Value::String(text)) => scalar::base64(text).map_err(TypeError),
            (ValueShape::Time, Value::String(text)) => scalar::time(&text).map_err(TypeError),
            (ValueShape::MicroTime, Value::String(text)) => scalar::micro_time(&text).map_err(TypeError),
            (ValueShape::Quantity, value) => scalar::quantity(&value).map_err(TypeError),
            (ValueShape::Raw | ValueShape::FieldsV1, value) => Ok(value),
            (shape, value) => Err(at.mismatch(self.schema, &value, shape)),
        }
    }
}

/// Returns true if `omitempty` would omit the value.
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

impl<'a> PathNode<'a> {
    /// Formats the path like Kubernetes: `spec.containers[0].image`.
    fn path(&self) -> String {
        let mut path = self.up.map(PathNode::path).unwrap_or_default();
        match self.step {
            PathStep::Root => {}
            PathStep::Index(i) => path.push_str(&format!("[{i}]")),
            PathStep::Field { name, .. } | PathStep::Key(name) => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(&truncate_with_length(name, MAX_KEY_BYTES));
            }
        }
        path
    }

    fn mismatch(&self, schema: &Schema, value: &Value, shape: &ValueShape) -> TypeError {
        self.type_error(schema, json_type_name(value), shape)
    }

    fn overflow(&self, schema: &Schema, number: &serde_json::Number, shape: &ValueShape) -> TypeError {
        self.type_error(schema, &format!("number {number}"), shape)
    }

    /// Go names the struct and the path from the root, without indices.
    fn type_error(&self, schema: &Schema, what: &str, shape: &ValueShape) -> TypeError {
        let wanted = go_type(schema, shape);
        let text = match self.owner() {
            Some(owner) => {
                let owner = short_type_name(owner.name);
                let fields = self.fields();
                format!("Go struct field {owner}.{fields} of type {wanted}")
            }
            None => format!("Go value of type {wanted}"),
        };
        TypeError(format!("json: cannot unmarshal {what} into {text}"))
    }

    fn owner(&self) -> Option<&'a ObjectType> {
        match self.step {
            PathStep::Field { owner, .. } => Some(owner),
            _ => self.up.and_then(PathNode::owner),
        }
    }

    fn fields(&self) -> String {
        let mut path = self.up.map(PathNode::fields).unwrap_or_default();
        if let PathStep::Field { name, .. } = self.step {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(name);
        }
        path
    }
}

fn go_type(schema: &Schema, shape: &ValueShape) -> String {
    match shape {
        ValueShape::String | ValueShape::Time | ValueShape::MicroTime | ValueShape::Quantity => {
            "string".into()
        }
        ValueShape::Bool => "bool".into(),
        ValueShape::Int32 | ValueShape::IntOrString => "int32".into(),
        ValueShape::Int64 => "int64".into(),
        ValueShape::Float => "float64".into(),
        ValueShape::Bytes => "[]uint8".into(),
        ValueShape::Raw => "runtime.RawExtension".into(),
        ValueShape::FieldsV1 => "v1.FieldsV1".into(),
        ValueShape::List(of) => format!("[]{}", go_type(schema, of)),
        ValueShape::Map(of) => format!("map[string]{}", go_type(schema, of)),
        ValueShape::Object(id) => {
            let name = schema.get_type(*id).name;
            let mut parts = name.rsplitn(3, '.');
            let (short, version) = (parts.next().unwrap_or(name), parts.next().unwrap_or_default());
            format!("{version}.{short}")
        }
    }
}

fn short_type_name(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

#[cfg(test)]
mod tests;
