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

/// All types, looked up by full name.
#[derive(Debug)]
pub struct Schema {
    types: Vec<ObjectType>,
    by_name: HashMap<&'static str, TypeId>,
}

/// A type's place in the [`Schema`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TypeId(u32);

/// One object type of the Kubernetes API, with all of its fields.
#[derive(Debug)]
pub struct ObjectType {
    /// Full name as in OpenAPI, for example `io.k8s.api.core.v1.Pod`.
    pub name: &'static str,
    /// One sentence for `kubectl explain`; may be empty.
    pub description: &'static str,
    /// The fields as JSON has them, sorted by name; those of [`ObjectType::inlined`] are among them, with
    /// tag 0, since in protobuf they stand in a message of their own.
    pub fields: Vec<SchemaField>,
    /// The types whose fields JSON puts next to this type's own.
    pub inlined: Vec<InlinedType>,
    /// Server-side apply treats the whole object as one value.
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
    /// The protobuf field number of the nested message.
    pub tag: u32,
    /// The embedded type; it may itself have inlined types.
    pub of: TypeId,
}

/// One field of a [`ObjectType`].
#[derive(Clone, Debug)]
pub struct SchemaField {
    /// Name of the field in JSON, unique within its type.
    pub name: &'static str,
    /// The protobuf field number; 0 for none, or for a field that came with an [`InlinedType`].
    pub tag: u32,
    /// Type of the value that the field holds.
    pub shape: ValueShape,
    /// For a map of lists: in protobuf every value is a message whose field 1 repeats the elements
    /// (`ExtraValue`), because protobuf has no map of lists.
    pub wrapped: bool,
    /// When the canonical form includes the field.
    pub presence: FieldPresence,
    /// A field that is always written is `null` when absent, whatever its shape (a pointer without
    /// `omitempty`).
    pub nullable: bool,
    /// OpenAPI says it is required (the server enforces that by validation, not by schema).
    pub required: bool,
    /// The default that OpenAPI and server-side apply's list keys know (`protocol: TCP`).
    pub default: Option<Value>,
    /// How server-side apply sees a list or map.
    pub merge: MergeStrategy,
    /// How a strategic merge patch treats the field.
    pub patch: PatchStrategy,
    /// The values it may have, for OpenAPI.
    pub one_of: Vec<&'static str>,
    /// Limits of the value; the OpenAPI documents of built-in kinds do not show them.
    pub limits: ValueLimits,
    /// Limits of each element of a list or value of a map.
    pub item_limits: ValueLimits,
    /// One sentence for `kubectl explain`; may be empty.
    pub description: &'static str,
}

/// What a field or list element holds.
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
    /// A floating-point number of 64 bits.
    Float,
    /// Base64 in JSON, raw in protobuf.
    Bytes,
    /// An RFC 3339 timestamp with whole seconds (`metav1.Time`).
    Time,
    /// An RFC 3339 timestamp with microseconds (`metav1.MicroTime`).
    MicroTime,
    /// A number with a suffix (`500m`, `1Gi`).
    Quantity,
    /// A number or a string.
    IntOrString,
    /// Any JSON, kept as it is (`runtime.RawExtension`).
    Raw,
    /// The field set of a managedFields entry: any JSON, kept as it is.
    FieldsV1,
    /// An object of another type.
    Object(TypeId),
    /// A list whose elements all have this shape.
    List(Box<ValueShape>),
    /// A map with string keys.
    Map(Box<ValueShape>),
}

/// When a field stands in the canonical form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldPresence {
    /// Only when it is not empty (`omitempty` on a plain value): `""`, `0`, `false`, `[]`, `{}`
    /// and `null` are dropped.
    NonEmpty,
    /// When it was given (`omitempty` on a pointer): a zero value is kept, `null` is dropped.
    Given,
    /// Always: an absent one is written as `""`, `0`, `false`, the empty object with what is always
    /// written in it, or `null` (lists, maps, bytes, times, and every [`SchemaField::nullable`]).
    Always,
}

/// How server-side apply sees a list, map or object field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeStrategy {
    /// Fields of an object, keys of a map: each owned alone. For a list: the same as `Atomic`.
    Default,
    /// One manager owns the value as a whole.
    Atomic,
    /// A list in which every value stands once.
    Set,
    /// A list of objects told apart by these fields.
    ByKey(Vec<&'static str>),
}

/// How a strategic merge patch treats a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchStrategy {
    /// Objects are merged, everything else is replaced.
    Default,
    /// A list whose elements are merged: by this key, or as a set of scalars when there is none.
    Merge(Option<&'static str>),
    /// An object of which the patch says which keys remain.
    RetainKeys,
    /// `retainKeys` and `merge` by this key, together (`spec.volumes`).
    MergeRetainKeys(&'static str),
}

impl Schema {
    /// The schema of everything Windlass serves.
    pub fn get() -> &'static Schema {
        static SCHEMA: OnceLock<Schema> = OnceLock::new();
        SCHEMA.get_or_init(parse::builtin)
    }

    /// The type of that full name.
    pub fn lookup(&self, name: &str) -> Option<TypeId> {
        self.by_name.get(name).copied()
    }

    /// The type behind an id.
    pub fn get_type(&self, id: TypeId) -> &ObjectType {
        &self.types[id.0 as usize]
    }

    /// All types, in the order of the tables.
    pub fn types(&self) -> impl Iterator<Item = (TypeId, &ObjectType)> {
        self.types.iter().enumerate().map(|(i, t)| (TypeId(i as u32), t))
    }
}

impl ObjectType {
    /// The field of that JSON name.
    pub fn field(&self, name: &str) -> Option<&SchemaField> {
        self.fields.binary_search_by(|f| f.name.cmp(name)).ok().map(|i| &self.fields[i])
    }

    /// The fields in the order of the table, which is that of the protobuf tags.
    pub fn fields_by_tag(&self) -> impl Iterator<Item = &SchemaField> {
        self.by_tag.iter().map(|index| &self.fields[*index])
    }

    /// The field of that protobuf number.
    pub fn field_by_tag(&self, tag: u32) -> Option<&SchemaField> {
        self.fields.iter().find(|f| f.tag == tag && tag != 0)
    }

    /// The type that is nested in protobuf under that number and flattened in JSON.
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
            ValueShape::Raw | ValueShape::FieldsV1 | ValueShape::Object(_) | ValueShape::Map(_) => {
                "object"
            }
        }
    }
}
