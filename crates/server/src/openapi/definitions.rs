//! Definitions of an OpenAPI document, generated from the schema tables.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::{Map, Value, json};
use windlass_api::schema::{
    FieldPresence, MergeStrategy, ObjectType, PatchStrategy, Schema, SchemaField, ValueShape,
};

use super::GroupVersionKind;

/// OpenAPI version of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenApiVersion {
    /// Swagger 2.0, served under `/openapi/v2`.
    V2,
    /// OpenAPI 3.0, served under `/openapi/v3`.
    V3,
}

impl OpenApiVersion {
    pub(super) fn reference(self, name: &str) -> Value {
        let place = match self {
            OpenApiVersion::V2 => "definitions",
            OpenApiVersion::V3 => "components/schemas",
        };
        json!({ "$ref": format!("#/{place}/{name}") })
    }
}

/// Body type of every patch format.
pub(super) const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";

#[derive(Clone, Copy, Debug)]
pub(super) enum SchemaDefinition {
    Type(&'static Schema, &'static ObjectType),
    /// Type with a special JSON form.
    Leaf(OpaqueType),
}

/// Types that are not objects with fields.
#[derive(Clone, Copy, Debug)]
pub(super) enum OpaqueType {
    /// RFC 3339 time with a precision of seconds.
    Time,
    /// RFC 3339 time with a precision of microseconds.
    MicroTime,
    /// Number with a suffix, for example `1Gi`.
    Quantity,
    /// Either a number or a string.
    IntOrString,
    /// Object of any type, passed through unchanged.
    RawExtension,
    /// Set of field paths in managedFields, as a nested object.
    FieldsV1,
    /// Body of a PATCH request in any patch format.
    Patch,
}

/// Returns all types reachable from the given ones, by name.
pub(super) fn reachable<'a>(
    roots: impl Iterator<Item = &'a str>,
) -> BTreeMap<&'static str, SchemaDefinition> {
    let mut found = BTreeMap::new();
    for root in roots {
        if root == PATCH {
            found.insert(PATCH, SchemaDefinition::Leaf(OpaqueType::Patch));
        } else if let Some((schema, ty)) = lookup(root) {
            collect(schema, ty, &mut found);
        }
    }
    found
}

/// Returns the static name of a type; `None` if it does not exist.
pub(super) fn full_name(name: &str) -> Option<&'static str> {
    lookup(name).map(|(_, ty)| ty.name)
}

/// Renders the definition's schema. `kinds` are the group, version and kind under which it is
/// served.
pub(super) fn render(
    definition: &SchemaDefinition,
    dialect: OpenApiVersion,
    kinds: &[GroupVersionKind],
) -> Value {
    let (schema, ty) = match definition {
        SchemaDefinition::Type(schema, ty) => (*schema, *ty),
        SchemaDefinition::Leaf(leaf) => return leaf.render(dialect),
    };
    let mut out = Map::new();
    out.insert("type".into(), "object".into());
    describe(&mut out, ty.description);
    let properties: Map<String, Value> =
        ty.fields.iter().map(|f| (f.name.to_owned(), property(schema, f, ty, dialect))).collect();
    out.insert("properties".into(), properties.into());
    let required: Vec<&str> = ty.fields.iter().filter(|f| f.required).map(|f| f.name).collect();
    if !required.is_empty() {
        out.insert("required".into(), json!(required));
    }
    if ty.atomic {
        out.insert("x-kubernetes-map-type".into(), "atomic".into());
    }
    if let Some(union) = union(ty.name) {
        out.insert("x-kubernetes-unions".into(), json!([union]));
    }
    if !kinds.is_empty() {
        let kinds: Vec<Value> = kinds.iter().map(GroupVersionKind::as_json).collect();
        out.insert("x-kubernetes-group-version-kind".into(), kinds.into());
    }
    out.into()
}

/// Response types of discovery and `/version`. No client sends them, so only the documents need
/// them.
const ANSWERS: &str = "package io.k8s.apimachinery.pkg.apis.meta.v1
type APIGroup
  0 apiVersion string nonempty
  0 kind string nonempty
  1 name string always required default=\"\"
  2 versions []GroupVersionForDiscovery always required list=atomic
  3 preferredVersion GroupVersionForDiscovery nonempty
  4 serverAddressByClientCIDRs []ServerAddressByClientCIDR nonempty list=atomic
type APIGroupList
  0 apiVersion string nonempty
  0 kind string nonempty
  1 groups []APIGroup always required list=atomic
type APIVersions
  0 apiVersion string nonempty
  0 kind string nonempty
  1 versions []string always required list=atomic
  2 serverAddressByClientCIDRs []ServerAddressByClientCIDR always required list=atomic
type GroupVersionForDiscovery
  1 groupVersion string always required default=\"\"
  2 version string always required default=\"\"
type ServerAddressByClientCIDR
  1 clientCIDR string always required default=\"\"
  2 serverAddress string always required default=\"\"
package io.k8s.apimachinery.pkg.version
type Info
  0 major string always required default=\"\"
  0 minor string always required default=\"\"
  0 emulationMajor string nonempty
  0 emulationMinor string nonempty
  0 minCompatibilityMajor string nonempty
  0 minCompatibilityMinor string nonempty
  0 gitVersion string always required default=\"\"
  0 gitCommit string always required default=\"\"
  0 gitTreeState string always required default=\"\"
  0 buildDate string always required default=\"\"
  0 goVersion string always required default=\"\"
  0 compiler string always required default=\"\"
  0 platform string always required default=\"\"
";

fn lookup(name: &str) -> Option<(&'static Schema, &'static ObjectType)> {
    [Schema::get(), answers()]
        .into_iter()
        .find_map(|schema| Some((schema, schema.get_type(schema.lookup(name)?))))
}

fn answers() -> &'static Schema {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    SCHEMA.get_or_init(|| match Schema::parse(&[("answers", ANSWERS)]) {
        Ok(schema) => schema,
        Err(error) => unreachable!("the table is a constant and a test reads it: {error}"),
    })
}

fn collect(
    schema: &'static Schema,
    ty: &'static ObjectType,
    found: &mut BTreeMap<&'static str, SchemaDefinition>,
) {
    if found.insert(ty.name, SchemaDefinition::Type(schema, ty)).is_some() {
        return;
    }
    for field in &ty.fields {
        let mut shape = &field.shape;
        while let ValueShape::List(inner) | ValueShape::Map(inner) = shape {
            shape = inner;
        }
        if let ValueShape::Object(id) = shape {
            collect(schema, schema.get_type(*id), found);
        } else if let Some(leaf) = OpaqueType::from_shape(shape) {
            found.insert(leaf.name(), SchemaDefinition::Leaf(leaf));
        }
    }
}

fn property(schema: &Schema, field: &SchemaField, owner: &ObjectType, dialect: OpenApiVersion) -> Value {
    let mut out = value(schema, &field.shape, dialect);
    let by_value = matches!(field.presence, FieldPresence::Always | FieldPresence::NonEmpty);
    // Version 3 parsers ignore a description next to a bare reference, so it is wrapped.
    if dialect == OpenApiVersion::V3
        && let Some(reference) = out.remove("$ref")
    {
        out.insert("allOf".into(), json!([{ "$ref": reference }]));
        // An object that is always present defaults to empty.
        if matches!(field.shape, ValueShape::Object(_)) && by_value && !field.nullable {
            out.insert("default".into(), json!({}));
        }
    }
    describe(&mut out, field.description);
    if dialect == OpenApiVersion::V3
        && let Some(default) = &field.default
    {
        out.insert("default".into(), default.clone());
    }
    if !field.one_of.is_empty() {
        match out.get_mut("items").and_then(Value::as_object_mut) {
            Some(items) => items.insert("enum".into(), json!(field.one_of)),
            None => out.insert("enum".into(), json!(field.one_of)),
        };
    }
    merging(&mut out, field);
    if GRANULAR.contains(&(owner.name, field.name)) {
        out.insert("x-kubernetes-map-type".into(), "granular".into());
    }
    patching(&mut out, field);
    out.into()
}

/// Fields that server-side apply merges although their type is atomic, or that state it explicitly.
const GRANULAR: &[(&str, &str)] = &[
    ("io.k8s.api.core.v1.PersistentVolumeSpec", "claimRef"),
    ("io.k8s.api.core.v1.PersistentVolumeClaimStatus", "allocatedResourceStatuses"),
];

fn merging(out: &mut Map<String, Value>, field: &SchemaField) {
    let list = matches!(field.shape, ValueShape::List(_));
    match &field.merge {
        MergeStrategy::Default => {}
        MergeStrategy::Atomic if list => {
            out.insert("x-kubernetes-list-type".into(), "atomic".into());
        }
        MergeStrategy::Atomic => {
            out.insert("x-kubernetes-map-type".into(), "atomic".into());
        }
        MergeStrategy::Set => {
            out.insert("x-kubernetes-list-type".into(), "set".into());
        }
        MergeStrategy::ByKey(keys) => {
            out.insert("x-kubernetes-list-type".into(), "map".into());
            out.insert("x-kubernetes-list-map-keys".into(), json!(keys));
        }
    }
}

fn patching(out: &mut Map<String, Value>, field: &SchemaField) {
    let (strategy, key) = match field.patch {
        PatchStrategy::Default => return,
        PatchStrategy::Merge(key) => ("merge", key),
        PatchStrategy::RetainKeys => ("retainKeys", None),
        PatchStrategy::MergeRetainKeys(key) => ("merge,retainKeys", Some(key)),
    };
    out.insert("x-kubernetes-patch-strategy".into(), strategy.into());
    if let Some(key) = key {
        out.insert("x-kubernetes-patch-merge-key".into(), key.into());
    }
}

fn value(schema: &Schema, shape: &ValueShape, dialect: OpenApiVersion) -> Map<String, Value> {
    let rendered = match shape {
        ValueShape::String => json!({ "type": "string" }),
        ValueShape::Bool => json!({ "type": "boolean" }),
        ValueShape::Int32 => json!({ "type": "integer", "format": "int32" }),
        ValueShape::Int64 => json!({ "type": "integer", "format": "int64" }),
        ValueShape::Float => json!({ "type": "number", "format": "double" }),
        ValueShape::Bytes => json!({ "type": "string", "format": "byte" }),
        ValueShape::Object(id) => dialect.reference(schema.get_type(*id).name),
        ValueShape::List(of) => json!({ "type": "array", "items": value(schema, of, dialect) }),
        ValueShape::Map(of) => {
            json!({ "type": "object", "additionalProperties": value(schema, of, dialect) })
        }
        ValueShape::Time
        | ValueShape::MicroTime
        | ValueShape::Quantity
        | ValueShape::IntOrString
        | ValueShape::Raw
        | ValueShape::FieldsV1 => {
            OpaqueType::from_shape(shape).map_or(Value::Null, |leaf| dialect.reference(leaf.name()))
        }
    };
    match rendered {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn describe(out: &mut Map<String, Value>, description: &str) {
    if !description.is_empty() {
        out.insert("description".into(), description.into());
    }
}

/// Union types: one field selects which other field applies.
fn union(name: &str) -> Option<Value> {
    match name.strip_prefix("io.k8s.api.core.v1.")? {
        "AppArmorProfile" | "SeccompProfile" => Some(json!({
            "discriminator": "type",
            "fields-to-discriminateBy": { "localhostProfile": "LocalhostProfile" },
        })),
        "PodSchedulingGroup" => {
            Some(json!({ "fields-to-discriminateBy": { "podGroupName": "PodGroupName" } }))
        }
        _ => None,
    }
}

impl OpaqueType {
    fn from_shape(shape: &ValueShape) -> Option<OpaqueType> {
        match shape {
            ValueShape::Time => Some(OpaqueType::Time),
            ValueShape::MicroTime => Some(OpaqueType::MicroTime),
            ValueShape::Quantity => Some(OpaqueType::Quantity),
            ValueShape::IntOrString => Some(OpaqueType::IntOrString),
            ValueShape::Raw => Some(OpaqueType::RawExtension),
            ValueShape::FieldsV1 => Some(OpaqueType::FieldsV1),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            OpaqueType::Time => "io.k8s.apimachinery.pkg.apis.meta.v1.Time",
            OpaqueType::MicroTime => "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime",
            OpaqueType::Quantity => "io.k8s.apimachinery.pkg.api.resource.Quantity",
            OpaqueType::IntOrString => "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
            OpaqueType::RawExtension => "io.k8s.apimachinery.pkg.runtime.RawExtension",
            OpaqueType::FieldsV1 => "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
            OpaqueType::Patch => PATCH,
        }
    }

    fn render(self, dialect: OpenApiVersion) -> Value {
        let (description, mut out) = match (self, dialect) {
            (OpaqueType::Time, _) => (
                "A point in time, to the second, as RFC 3339 writes it.",
                json!({ "type": "string", "format": "date-time" }),
            ),
            (OpaqueType::MicroTime, _) => (
                "A point in time, to the microsecond, as RFC 3339 writes it.",
                json!({ "type": "string", "format": "date-time" }),
            ),
            (OpaqueType::Quantity, dialect) => (
                "An amount: a decimal number with an optional suffix, such as 500m or 1Gi.",
                match dialect {
                    OpenApiVersion::V2 => json!({ "type": "string" }),
                    OpenApiVersion::V3 => {
                        json!({ "oneOf": [{ "type": "string" }, { "type": "number" }] })
                    }
                },
            ),
            (OpaqueType::IntOrString, dialect) => (
                "An integer, or a string.",
                match dialect {
                    OpenApiVersion::V2 => json!({ "type": "string", "format": "int-or-string" }),
                    OpenApiVersion::V3 => json!({
                        "format": "int-or-string",
                        "oneOf": [{ "type": "integer" }, { "type": "string" }],
                    }),
                },
            ),
            (OpaqueType::RawExtension, _) => ("Any object.", json!({ "type": "object" })),
            (OpaqueType::FieldsV1, _) => (
                "A set of fields, as a tree whose keys name fields (f:), list elements by key (k:) \
                 and values (v:).",
                json!({ "type": "object" }),
            ),
            (OpaqueType::Patch, _) => {
                ("A change to an object, in the form the content type names.", json!({ "type": "object" }))
            }
        };
        out["description"] = description.into();
        out
    }
}
