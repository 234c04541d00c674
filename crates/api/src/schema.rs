//! The types of the API, as data.
//!
//! One table defines the fields of every type, what each holds, when it is written, how lists
//! merge and which protobuf tag it has. Decoding, normal form, patches, server-side apply and the
//! OpenAPI documents are all driven by it, so they cannot disagree. The tables are the files under
//! `schema/`; `schema/parse.rs` describes their form and reads them once, on first use.
//!
//! For kinds that are custom resources elsewhere a table also has limits, rules and columns:
//! [`Schema::validate`] and [`Schema::set_defaults`] apply them here, and
//! [`CustomResource`](crate::custom_resource::CustomResource) writes them into a
//! CustomResourceDefinition.

mod defaults;
mod limits;
mod parse;
mod rule;
mod validate;

pub use limits::{TextFormat, ValueLimits};
pub use parse::SchemaParseError;
pub use rule::ValidationRule;
pub use validate::ValidationStyle;

use std::collections::HashMap;
use std::sync::OnceLock;

use serde_json::Value;

/// All types, indexed by full name.
#[derive(Debug)]
pub struct Schema {
    types: Vec<ObjectType>,
    by_name: HashMap<&'static str, TypeId>,
}

/// Index of a type in the [`Schema`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TypeId(u32);

/// One object type of the Kubernetes API, with all of its fields.
#[derive(Debug)]
pub struct ObjectType {
    /// Full name as in OpenAPI, for example `io.k8s.api.core.v1.Pod`.
    pub name: &'static str,
    /// One sentence for `kubectl explain`; may be empty.
    pub description: &'static str,
    /// Fields in JSON, sorted by name, including those of [`ObjectType::inlined`]. The latter have
    /// tag 0, because protobuf nests them in a separate message.
    pub fields: Vec<SchemaField>,
    /// Types whose fields JSON flattens into this type.
    pub inlined: Vec<InlinedType>,
    /// Whether server-side apply treats the object as one value.
    pub atomic: bool,
    /// The smallest number of fields that an object has.
    pub min_properties: usize,
    /// Rules that relate the fields to each other, in the order in which they are checked.
    pub rules: Vec<ValidationRule>,
    /// The columns of `kubectl get` after the name; only root types have any.
    pub columns: Vec<PrinterColumn>,
    /// Positions in `fields` by protobuf tag, the order of the table.
    by_tag: Vec<usize>,
}

/// The fields that every object has, with rules of their own.
const HEADER_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// A column of the table that `kubectl get` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrinterColumn {
    /// The heading, unique within the table.
    pub name: &'static str,
    /// Type of the cells: `string`, `integer` or `date`.
    pub kind: &'static str,
    /// Where the value stands, as a JSONPath expression.
    pub json_path: &'static str,
    /// One sentence; may be empty.
    pub description: &'static str,
}

/// An embedded type: flattened in JSON, a nested message in protobuf.
///
/// `{"name": "n", "key": "k"}` of a `ConfigMapKeySelector` is, in protobuf, field 1 (a
/// `LocalObjectReference` with the name) and field 2 (the key).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlinedType {
    /// Protobuf field number of the nested message.
    pub tag: u32,
    /// Embedded type; it may itself have inlined types.
    pub of: TypeId,
}

/// One field of an object type ([`ObjectType`]).
#[derive(Clone, Debug)]
pub struct SchemaField {
    /// Name of the field in JSON, unique within its type.
    pub name: &'static str,
    /// Protobuf field number; 0 for none, or for a field of an [`InlinedType`].
    pub tag: u32,
    /// Type of the value that the field holds.
    pub shape: ValueShape,
    /// For a map of lists: every value is a protobuf message whose field 1 repeats the elements
    /// (`ExtraValue`), because protobuf has no map of lists.
    pub wrapped: bool,
    /// When the canonical form includes the field.
    pub presence: FieldPresence,
    /// If true, an always-written field is `null` when absent, regardless of shape (a pointer
    /// without `omitempty`).
    pub nullable: bool,
    /// Required in OpenAPI (the server enforces it by validation, not by schema).
    pub required: bool,
    /// Default used by OpenAPI and by list keys of server-side apply (`protocol: TCP`).
    pub default: Option<Value>,
    /// How server-side apply merges the list or map.
    pub merge: MergeStrategy,
    /// How a strategic merge patch treats the field.
    pub patch: PatchStrategy,
    /// Allowed values, for OpenAPI; empty means any.
    pub one_of: Vec<&'static str>,
    /// Limits of the value; the OpenAPI documents of built-in kinds do not show them.
    pub limits: ValueLimits,
    /// Limits of each element of a list or value of a map.
    pub item_limits: ValueLimits,
    /// One sentence for `kubectl explain`; may be empty.
    pub description: &'static str,
}

/// Type of a field or list element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueShape {
    /// UTF-8 text, in JSON and in protobuf.
    String,
    /// A JSON boolean; a varint in protobuf.
    Bool,
    /// A signed integer of 32 bits; larger numbers are rejected.
    Int32,
    /// A signed integer of 64 bits; larger numbers are rejected.
    Int64,
    /// Floating-point number of 64 bits.
    Float,
    /// Bytes: base64 in JSON, raw in protobuf.
    Bytes,
    /// An RFC 3339 timestamp with whole seconds (`metav1.Time`).
    Time,
    /// An RFC 3339 timestamp with microseconds (`metav1.MicroTime`).
    MicroTime,
    /// Number with a suffix (`500m`, `1Gi`).
    Quantity,
    /// Either a number or a string.
    IntOrString,
    /// Any JSON, kept unchanged (`runtime.RawExtension`).
    Raw,
    /// Field set of a managedFields entry: any JSON, kept unchanged.
    FieldsV1,
    /// Object of another type in the schema.
    Object(TypeId),
    /// A list whose elements all have this shape.
    List(Box<ValueShape>),
    /// Map from string keys to values of this shape.
    Map(Box<ValueShape>),
}

/// When the canonical form includes a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldPresence {
    /// Only if not empty (`omitempty` on a plain value): drops `""`, `0`, `false`, `[]`, `{}` and
    /// `null`.
    NonEmpty,
    /// Only if given (`omitempty` on a pointer): keeps a zero value, drops `null`.
    Given,
    /// Always: an absent one is written as `""`, `0`, `false`, the empty object with what is always
    /// written in it, or `null` (lists, maps, bytes, times, and every [`SchemaField::nullable`]).
    Always,
}

/// How server-side apply merges a list, map or object field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeStrategy {
    /// Each field of an object or key of a map is owned separately. For a list: same as `Atomic`.
    Default,
    /// One manager owns the value as a whole.
    Atomic,
    /// List of unique values (`listType=set`).
    Set,
    /// List of objects identified by these fields (`listType=map`).
    ByKey(Vec<&'static str>),
}

/// How a strategic merge patch treats a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchStrategy {
    /// Objects are merged, everything else is replaced.
    Default,
    /// Merges list elements by this key, or as a set of scalars if there is none.
    Merge(Option<&'static str>),
    /// Object for which the patch lists the keys to retain.
    RetainKeys,
    /// Combines `retainKeys` and `merge` by this key (`spec.volumes`).
    MergeRetainKeys(&'static str),
}

impl Schema {
    /// Returns the schema of all types that Windlass serves.
    pub fn get() -> &'static Schema {
        static SCHEMA: OnceLock<Schema> = OnceLock::new();
        SCHEMA.get_or_init(parse::builtin)
    }

    /// Returns the type with this full name.
    pub fn lookup(&self, name: &str) -> Option<TypeId> {
        self.by_name.get(name).copied()
    }

    /// Returns the type of an ID.
    pub fn get_type(&self, id: TypeId) -> &ObjectType {
        &self.types[id.0 as usize]
    }

    /// Iterates over all types in table order.
    pub fn types(&self) -> impl Iterator<Item = (TypeId, &ObjectType)> {
        self.types.iter().enumerate().map(|(i, t)| (TypeId(i as u32), t))
    }
}

impl ObjectType {
    /// Returns the field with this JSON name.
    pub fn field(&self, name: &str) -> Option<&SchemaField> {
        self.fields.binary_search_by(|f| f.name.cmp(name)).ok().map(|i| &self.fields[i])
    }

    /// The fields in the order of the table, which is that of the protobuf tags.
    pub fn fields_by_tag(&self) -> impl Iterator<Item = &SchemaField> {
        self.by_tag.iter().map(|index| &self.fields[*index])
    }

    /// Returns the field with this protobuf number.
    pub fn field_by_tag(&self, tag: u32) -> Option<&SchemaField> {
        self.fields.iter().find(|f| f.tag == tag && tag != 0)
    }

    /// Returns the inlined type with this protobuf number, which JSON flattens.
    pub fn inlined_by_tag(&self, tag: u32) -> Option<TypeId> {
        self.inlined.iter().find(|i| i.tag == tag).map(|i| i.of)
    }
}

impl ValueShape {
    /// The type of the value in JSON, as OpenAPI names it.
    pub fn json_type(&self) -> &'static str {
        match self {
            ValueShape::String
            | ValueShape::Bytes
            | ValueShape::Time
            | ValueShape::MicroTime
            | ValueShape::Quantity
            | ValueShape::IntOrString => "string",
            ValueShape::Bool => "boolean",
            ValueShape::Int32 | ValueShape::Int64 => "integer",
            ValueShape::Float => "number",
            ValueShape::List(_) => "array",
            ValueShape::Raw | ValueShape::FieldsV1 | ValueShape::Object(_) | ValueShape::Map(_) => "object",
        }
    }
}
