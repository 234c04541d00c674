//! What the schema says of a value: one leaf that is owned whole, or something with parts.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::path_element;
use crate::schema::{MergeStrategy, ObjectType, Schema, SchemaField, TypeId, ValueShape};

/// How a value is taken apart.
#[derive(Clone, Copy)]
pub(super) enum MergeNode<'s> {
    /// Not at all: a scalar, or an atomic list, map or object.
    Leaf,
    /// An object with the fields of a type.
    Struct(&'s ObjectType),
    /// A map: every key is owned alone.
    Map(&'s ValueShape),
    /// A list in which every scalar stands once.
    Set,
    /// A list of objects told apart by these fields.
    Keyed(&'s [&'static str], &'s ObjectType),
}

impl<'s> MergeNode<'s> {
    pub(super) fn from_type(schema: &'s Schema, id: TypeId) -> Self {
        let of = schema.get_type(id);
        if of.atomic { MergeNode::Leaf } else { MergeNode::Struct(of) }
    }

    fn new(schema: &'s Schema, shape: &'s ValueShape, merge: &'s MergeStrategy) -> Self {
        match (shape, merge) {
            (_, MergeStrategy::Atomic) => MergeNode::Leaf,
            (ValueShape::Object(id), _) => MergeNode::from_type(schema, *id),
            (ValueShape::Map(element), _) => MergeNode::Map(element),
            (ValueShape::List(_), MergeStrategy::Set) => MergeNode::Set,
            (ValueShape::List(element), MergeStrategy::ByKey(keys)) => match **element {
                ValueShape::Object(id) => MergeNode::Keyed(keys, schema.get_type(id)),
                _ => MergeNode::Leaf,
            },
            _ => MergeNode::Leaf,
        }
    }

    pub(super) fn from_field(schema: &'s Schema, field: &'s SchemaField) -> Self {
        MergeNode::new(schema, &field.shape, &field.merge)
    }

    pub(super) fn from_shape(schema: &'s Schema, shape: &'s ValueShape) -> Self {
        MergeNode::new(schema, shape, &MergeStrategy::Default)
    }

    /// The field of that name, if this is an object with declared fields and has it.
    pub(super) fn declared(self, name: &str) -> Option<&'s SchemaField> {
        match self {
            MergeNode::Struct(of) => of.field(name),
            _ => None,
        }
    }

    /// What is under a key of an object or map. A field nobody declared is one leaf.
    pub(super) fn child(self, schema: &'s Schema, name: &str) -> MergeNode<'s> {
        match self {
            MergeNode::Struct(of) => {
                of.field(name).map_or(MergeNode::Leaf, |f| MergeNode::from_field(schema, f))
            }
            MergeNode::Map(element) => MergeNode::from_shape(schema, element),
            MergeNode::Leaf | MergeNode::Set | MergeNode::Keyed(..) => MergeNode::Leaf,
        }
    }

    /// What an element of a list is.
    pub(super) fn element(self) -> MergeNode<'s> {
        match self {
            MergeNode::Keyed(_, of) if !of.atomic => MergeNode::Struct(of),
            _ => MergeNode::Leaf,
        }
    }

    /// The path part of a list element, or why it has none.
    pub(super) fn element_path(self, element: &Value) -> Result<String, String> {
        match self {
            MergeNode::Keyed(keys, of) => Ok(path_element::keys(&key_values(keys, of, element)?)),
            _ => match element {
                Value::Object(_) => {
                    Err("associative list without keys has an element that's a map type".into())
                }
                Value::Array(_) => {
                    Err("not supported: associative list with lists as elements".into())
                }
                Value::Null => {
                    Err("associative list without keys has an element that's an explicit null"
                        .into())
                }
                scalar => Ok(path_element::value(scalar)),
            },
        }
    }

    /// Whether two list elements have the same keys, told without building the part.
    pub(super) fn is_same_element(self, a: &Value, b: &Value) -> bool {
        match self {
            MergeNode::Keyed(keys, of) => keys.iter().all(|key| {
                let (a, b) = (key_value(of, a, key), key_value(of, b, key));
                a.is_some() && a == b
            }),
            _ => a == b,
        }
    }
}

fn key_values<'v>(
    keys: &'v [&'static str],
    of: &'v ObjectType,
    element: &'v Value,
) -> Result<BTreeMap<&'v str, &'v Value>, String> {
    match element {
        Value::Object(_) => {}
        Value::Null => return Err("associative list with keys may not have a null element".into()),
        _ => return Err("associative list with keys may not have non-map elements".into()),
    }
    let mut values = BTreeMap::new();
    for key in keys {
        let Some(value) = key_value(of, element, key) else {
            return Err(format!(
                "associative list with keys has an element that omits key field {key:?} (and \
                 doesn't have default value)"
            ));
        };
        values.insert(*key, value);
    }
    Ok(values)
}

fn key_value<'v>(of: &'v ObjectType, element: &'v Value, key: &str) -> Option<&'v Value> {
    element.get(key).or_else(|| of.field(key)?.default.as_ref())
}

/// Where in an object a walk is. Some fields at the top are never owned by anyone.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum ObjectLevel {
    Top,
    Metadata,
    Inside,
}

impl ObjectLevel {
    pub(super) fn child(self, name: &str) -> ObjectLevel {
        if self == ObjectLevel::Top && name == "metadata" {
            ObjectLevel::Metadata
        } else {
            ObjectLevel::Inside
        }
    }

    /// Whether nobody owns the field: identity and what only the server sets.
    pub(super) fn is_unowned(self, name: &str) -> bool {
        match self {
            ObjectLevel::Top => matches!(name, "apiVersion" | "kind"),
            ObjectLevel::Metadata => matches!(
                name,
                "name"
                    | "namespace"
                    | "creationTimestamp"
                    | "deletionTimestamp"
                    | "deletionGracePeriodSeconds"
                    | "selfLink"
                    | "uid"
                    | "clusterName"
                    | "generation"
                    | "managedFields"
                    | "resourceVersion"
            ),
            ObjectLevel::Inside => false,
        }
    }
}

/// A value as an object; `null` and absence are an empty one. `None`: it is something else.
pub(super) fn as_map(value: Option<&Value>) -> Option<Option<&Map<String, Value>>> {
    match value {
        None | Some(Value::Null) => Some(None),
        Some(Value::Object(map)) => Some(Some(map)),
        Some(_) => None,
    }
}

/// A value as a list; `null` and absence are an empty one. `None`: it is something else.
pub(super) fn as_list(value: Option<&Value>) -> Option<&[Value]> {
    match value {
        None | Some(Value::Null) => Some(&[]),
        Some(Value::Array(list)) => Some(list),
        Some(_) => None,
    }
}
