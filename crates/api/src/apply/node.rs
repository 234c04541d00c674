//! What the schema says of a value: one leaf that is owned whole, or something with parts.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::element;
use crate::schema::{Field, Merge, Schema, Shape, Type, TypeId};

/// How a value is taken apart.
#[derive(Clone, Copy)]
pub(super) enum Node<'s> {
    /// Not at all: a scalar, or an atomic list, map or object.
    Leaf,
    /// An object with the fields of a type.
    Struct(&'s Type),
    /// A map: every key is owned alone.
    Map(&'s Shape),
    /// A list in which every scalar stands once.
    Set,
    /// A list of objects told apart by these fields.
    Keyed(&'s [&'static str], &'s Type),
}

impl<'s> Node<'s> {
    pub(super) fn of_type(schema: &'s Schema, id: TypeId) -> Self {
        let of = schema.type_of(id);
        if of.atomic { Node::Leaf } else { Node::Struct(of) }
    }

    fn new(schema: &'s Schema, shape: &'s Shape, merge: &'s Merge) -> Self {
        match (shape, merge) {
            (_, Merge::Atomic) => Node::Leaf,
            (Shape::Object(id), _) => Node::of_type(schema, *id),
            (Shape::Map(element), _) => Node::Map(element),
            (Shape::List(_), Merge::Set) => Node::Set,
            (Shape::List(element), Merge::ByKey(keys)) => match **element {
                Shape::Object(id) => Node::Keyed(keys, schema.type_of(id)),
                _ => Node::Leaf,
            },
            _ => Node::Leaf,
        }
    }

    pub(super) fn of_field(schema: &'s Schema, field: &'s Field) -> Self {
        Node::new(schema, &field.shape, &field.merge)
    }

    pub(super) fn of_shape(schema: &'s Schema, shape: &'s Shape) -> Self {
        Node::new(schema, shape, &Merge::Default)
    }

    /// The field of that name, if this is an object with declared fields and has it.
    pub(super) fn declared(self, name: &str) -> Option<&'s Field> {
        match self {
            Node::Struct(of) => of.field(name),
            _ => None,
        }
    }

    /// What is under a key of an object or map. A field nobody declared is one leaf.
    pub(super) fn under(self, schema: &'s Schema, name: &str) -> Node<'s> {
        match self {
            Node::Struct(of) => of.field(name).map_or(Node::Leaf, |f| Node::of_field(schema, f)),
            Node::Map(element) => Node::of_shape(schema, element),
            Node::Leaf | Node::Set | Node::Keyed(..) => Node::Leaf,
        }
    }

    /// What an element of a list is.
    pub(super) fn element(self) -> Node<'s> {
        match self {
            Node::Keyed(_, of) if !of.atomic => Node::Struct(of),
            _ => Node::Leaf,
        }
    }

    /// The path part of a list element, or why it has none.
    pub(super) fn part_of(self, element: &Value) -> Result<String, String> {
        match self {
            Node::Keyed(keys, of) => Ok(element::keys(&key_values(keys, of, element)?)),
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
                scalar => Ok(element::value(scalar)),
            },
        }
    }

    /// Whether two list elements have the same keys, told without building the part.
    pub(super) fn same_part(self, a: &Value, b: &Value) -> bool {
        match self {
            Node::Keyed(keys, of) => keys.iter().all(|key| {
                let (a, b) = (key_value(of, a, key), key_value(of, b, key));
                a.is_some() && a == b
            }),
            _ => a == b,
        }
    }
}

fn key_values<'v>(
    keys: &'v [&'static str],
    of: &'v Type,
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

fn key_value<'v>(of: &'v Type, element: &'v Value, key: &str) -> Option<&'v Value> {
    element.get(key).or_else(|| of.field(key)?.default.as_ref())
}

/// Where in an object a walk is. Some fields at the top are never owned by anyone.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Place {
    Top,
    Metadata,
    Inside,
}

impl Place {
    pub(super) fn under(self, name: &str) -> Place {
        if self == Place::Top && name == "metadata" { Place::Metadata } else { Place::Inside }
    }

    /// Whether nobody owns the field: identity and what only the server sets.
    pub(super) fn is_unowned(self, name: &str) -> bool {
        match self {
            Place::Top => matches!(name, "apiVersion" | "kind"),
            Place::Metadata => matches!(
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
            Place::Inside => false,
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
