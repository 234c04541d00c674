//! Classifies a value by its schema: an atomic leaf or a container with parts.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::path_element;
use crate::schema::{MergeStrategy, ObjectType, Schema, SchemaField, TypeId, ValueShape};

/// How a value is merged and owned.
#[derive(Clone, Copy)]
pub(super) enum MergeNode<'s> {
    /// Owned as a whole: a scalar, or an atomic list, map or object.
    Leaf,
    /// Object with the declared fields of a type.
    Struct(&'s ObjectType),
    /// Map in which every key is owned separately.
    Map(&'s ValueShape),
    /// List of unique scalars (`listType=set`).
    Set,
    /// List of objects identified by these key fields (`listType=map`).
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

    /// Returns the declared field `name`, if this is an object type that has it.
    pub(super) fn declared(self, name: &str) -> Option<&'s SchemaField> {
        match self {
            MergeNode::Struct(of) => of.field(name),
            _ => None,
        }
    }

    /// Returns the node under a key of an object or map. An undeclared field is a leaf.
    pub(super) fn child(self, schema: &'s Schema, name: &str) -> MergeNode<'s> {
        match self {
            MergeNode::Struct(of) => {
                of.field(name).map_or(MergeNode::Leaf, |f| MergeNode::from_field(schema, f))
            }
            MergeNode::Map(element) => MergeNode::from_shape(schema, element),
            MergeNode::Leaf | MergeNode::Set | MergeNode::Keyed(..) => MergeNode::Leaf,
        }
    }

    pub(super) fn element(self) -> MergeNode<'s> {
        match self {
            MergeNode::Keyed(_, of) if !of.atomic => MergeNode::Struct(of),
            _ => MergeNode::Leaf,
        }
    }

    /// Returns the path element of a list element, or the reason why it has none.
    pub(super) fn element_path(self, element: &Value) -> Result<String, String> {
        match self {
            MergeNode::Keyed(keys, of) => Ok(path_element::keys(&key_values(keys, of, element)?)),
            _ => match element {
                Value::Object(_) => {
                    Err("associative list without keys has an element that's a map type".into())
                }
                Value::Array(_) => Err("not supported: associative list with lists as elements".into()),
                Value::Null => {
                    Err("associative list without keys has an element that's an explicit null".into())
                }
                scalar => Ok(path_element::value(scalar)),
            },
        }
    }

    /// Compares the keys of two list elements without building path elements.
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

/// Depth of a walk within an object. Some top-level fields are never owned.
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

    /// Returns true for fields without owner: identity and fields that only the server sets.
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

/// Returns the value as an object; `null` and absence count as empty. `None` for other types.
pub(super) fn as_map(value: Option<&Value>) -> Option<Option<&Map<String, Value>>> {
    match value {
        None | Some(Value::Null) => Some(None),
        Some(Value::Object(map)) => Some(Some(map)),
        Some(_) => None,
    }
}

/// Returns the value as a list; `null` and absence count as empty. `None` for other types.
pub(super) fn as_list(value: Option<&Value>) -> Option<&[Value]> {
    match value {
        None | Some(Value::Null) => Some(&[]),
        Some(Value::Array(list)) => Some(list),
        Some(_) => None,
    }
}
