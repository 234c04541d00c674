//! The definitions of an OpenAPI document, made from the schema tables.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::{Map, Value, json};
use windlass_api::schema::{Field, Merge, Patch, Presence, Schema, Shape, Type};

use super::Gvk;

/// Which of the two languages a document is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Swagger 2.0.
    V2,
    /// OpenAPI 3.0.
    V3,
}

impl Dialect {
    /// A reference to a definition.
    pub fn reference(self, name: &str) -> Value {
        let place = match self {
            Dialect::V2 => "definitions",
            Dialect::V3 => "components/schemas",
        };
        json!({ "$ref": format!("#/{place}/{name}") })
    }
}

/// The body of every kind of patch.
pub const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";

/// One definition of a document.
#[derive(Clone, Copy, Debug)]
pub enum Definition {
    /// A type of the tables.
    Type(&'static Schema, &'static Type),
    /// A type with a JSON form of its own.
    Leaf(Leaf),
}

/// The types that are no objects with fields.
#[derive(Clone, Copy, Debug)]
pub enum Leaf {
    /// Seconds.
    Time,
    /// Microseconds.
    MicroTime,
    /// A number with a suffix.
    Quantity,
    /// A number or a string.
    IntOrString,
    /// Any object.
    RawExtension,
    /// A set of fields.
    FieldsV1,
    /// A patch.
    Patch,
}

/// Everything that the given types are made of, by name.
pub fn reachable<'a>(roots: impl Iterator<Item = &'a str>) -> BTreeMap<&'static str, Definition> {
    let mut found = BTreeMap::new();
    for root in roots {
        if root == PATCH {
            found.insert(PATCH, Definition::Leaf(Leaf::Patch));
        } else if let Some((schema, ty)) = lookup(root) {
            collect(schema, ty, &mut found);
        }
    }
    found
}

/// The name of a type for as long as the program runs; `None` if there is no such type.
pub fn full_name(name: &str) -> Option<&'static str> {
    lookup(name).map(|(_, ty)| ty.name)
}

/// The definition's schema. `kinds` are the group, version and kind under which it is served.
pub fn render(definition: &Definition, dialect: Dialect, kinds: &[Gvk]) -> Value {
    let (schema, ty) = match definition {
        Definition::Type(schema, ty) => (*schema, *ty),
        Definition::Leaf(leaf) => return leaf.render(dialect),
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
        let kinds: Vec<Value> = kinds.iter().map(Gvk::as_json).collect();
        out.insert("x-kubernetes-group-version-kind".into(), kinds.into());
    }
    out.into()
}

/// What discovery and `/version` answer with: types that no client sends, so that only the
/// documents need to know them.
const ANSWERS: &str = "\
package io.k8s.apimachinery.pkg.apis.meta.v1
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

fn lookup(name: &str) -> Option<(&'static Schema, &'static Type)> {
    [Schema::get(), answers()]
        .into_iter()
        .find_map(|schema| Some((schema, schema.type_of(schema.lookup(name)?))))
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
    ty: &'static Type,
    found: &mut BTreeMap<&'static str, Definition>,
) {
    if found.insert(ty.name, Definition::Type(schema, ty)).is_some() {
        return;
    }
    for field in &ty.fields {
        let mut shape = &field.shape;
        while let Shape::List(inner) | Shape::Map(inner) = shape {
            shape = inner;
        }
        if let Shape::Object(id) = shape {
            collect(schema, schema.type_of(*id), found);
        } else if let Some(leaf) = Leaf::of(shape) {
            found.insert(leaf.name(), Definition::Leaf(leaf));
        }
    }
}

fn property(schema: &Schema, field: &Field, owner: &Type, dialect: Dialect) -> Value {
    let mut out = value(schema, &field.shape, dialect);
    let by_value = matches!(field.presence, Presence::Always | Presence::NonEmpty);
    // A description beside a bare reference is ignored by version 3 readers, so it is wrapped.
    if dialect == Dialect::V3
        && let Some(reference) = out.remove("$ref")
    {
        out.insert("allOf".into(), json!([{ "$ref": reference }]));
        // An object that is always there starts out empty.
        if matches!(field.shape, Shape::Object(_)) && by_value && !field.nullable {
            out.insert("default".into(), json!({}));
        }
    }
    describe(&mut out, field.description);
    if dialect == Dialect::V3
        && let Some(default) = &field.default
    {
        out.insert("default".into(), default.clone());
    }
    if !field.one_of.is_empty() {
        out.insert("enum".into(), json!(field.one_of));
    }
    merging(&mut out, field);
    if GRANULAR.contains(&(owner.name, field.name)) {
        out.insert("x-kubernetes-map-type".into(), "granular".into());
    }
    patching(&mut out, field);
    out.into()
}

/// Fields that server-side apply takes apart although their type is atomic, or that say so for
/// emphasis.
const GRANULAR: &[(&str, &str)] = &[
    ("io.k8s.api.core.v1.PersistentVolumeSpec", "claimRef"),
    ("io.k8s.api.core.v1.PersistentVolumeClaimStatus", "allocatedResourceStatuses"),
];

fn merging(out: &mut Map<String, Value>, field: &Field) {
    let list = matches!(field.shape, Shape::List(_));
    match &field.merge {
        Merge::Default => {}
        Merge::Atomic if list => {
            out.insert("x-kubernetes-list-type".into(), "atomic".into());
        }
        Merge::Atomic => {
            out.insert("x-kubernetes-map-type".into(), "atomic".into());
        }
        Merge::Set => {
            out.insert("x-kubernetes-list-type".into(), "set".into());
        }
        Merge::ByKey(keys) => {
            out.insert("x-kubernetes-list-type".into(), "map".into());
            out.insert("x-kubernetes-list-map-keys".into(), json!(keys));
        }
    }
}

fn patching(out: &mut Map<String, Value>, field: &Field) {
    let (strategy, key) = match field.patch {
        Patch::Default => return,
        Patch::Merge(key) => ("merge", key),
        Patch::RetainKeys => ("retainKeys", None),
        Patch::MergeRetainKeys(key) => ("merge,retainKeys", Some(key)),
    };
    out.insert("x-kubernetes-patch-strategy".into(), strategy.into());
    if let Some(key) = key {
        out.insert("x-kubernetes-patch-merge-key".into(), key.into());
    }
}

fn value(schema: &Schema, shape: &Shape, dialect: Dialect) -> Map<String, Value> {
    let rendered = match shape {
        Shape::String => json!({ "type": "string" }),
        Shape::Bool => json!({ "type": "boolean" }),
        Shape::Int32 => json!({ "type": "integer", "format": "int32" }),
        Shape::Int64 => json!({ "type": "integer", "format": "int64" }),
        Shape::Float => json!({ "type": "number", "format": "double" }),
        Shape::Bytes => json!({ "type": "string", "format": "byte" }),
        Shape::Object(id) => dialect.reference(schema.type_of(*id).name),
        Shape::List(of) => json!({ "type": "array", "items": value(schema, of, dialect) }),
        Shape::Map(of) => {
            json!({ "type": "object", "additionalProperties": value(schema, of, dialect) })
        }
        Shape::Time
        | Shape::MicroTime
        | Shape::Quantity
        | Shape::IntOrString
        | Shape::Raw
        | Shape::FieldsV1 => {
            Leaf::of(shape).map_or(Value::Null, |leaf| dialect.reference(leaf.name()))
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

/// Objects of which one field says which other one counts.
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

impl Leaf {
    fn of(shape: &Shape) -> Option<Leaf> {
        match shape {
            Shape::Time => Some(Leaf::Time),
            Shape::MicroTime => Some(Leaf::MicroTime),
            Shape::Quantity => Some(Leaf::Quantity),
            Shape::IntOrString => Some(Leaf::IntOrString),
            Shape::Raw => Some(Leaf::RawExtension),
            Shape::FieldsV1 => Some(Leaf::FieldsV1),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Leaf::Time => "io.k8s.apimachinery.pkg.apis.meta.v1.Time",
            Leaf::MicroTime => "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime",
            Leaf::Quantity => "io.k8s.apimachinery.pkg.api.resource.Quantity",
            Leaf::IntOrString => "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
            Leaf::RawExtension => "io.k8s.apimachinery.pkg.runtime.RawExtension",
            Leaf::FieldsV1 => "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
            Leaf::Patch => PATCH,
        }
    }

    fn render(self, dialect: Dialect) -> Value {
        let (description, mut out) = match (self, dialect) {
            (Leaf::Time, _) => (
                "A point in time, to the second, as RFC 3339 writes it.",
                json!({ "type": "string", "format": "date-time" }),
            ),
            (Leaf::MicroTime, _) => (
                "A point in time, to the microsecond, as RFC 3339 writes it.",
                json!({ "type": "string", "format": "date-time" }),
            ),
            (Leaf::Quantity, dialect) => (
                "An amount: a decimal number with an optional suffix, such as 500m or 1Gi.",
                match dialect {
                    Dialect::V2 => json!({ "type": "string" }),
                    Dialect::V3 => json!({ "oneOf": [{ "type": "string" }, { "type": "number" }] }),
                },
            ),
            (Leaf::IntOrString, dialect) => (
                "An integer, or a string.",
                match dialect {
                    Dialect::V2 => json!({ "type": "string", "format": "int-or-string" }),
                    Dialect::V3 => json!({
                        "format": "int-or-string",
                        "oneOf": [{ "type": "integer" }, { "type": "string" }],
                    }),
                },
            ),
            (Leaf::RawExtension, _) => ("Any object.", json!({ "type": "object" })),
            (Leaf::FieldsV1, _) => (
                "A set of fields, as a tree whose keys name fields (f:), list elements by key (k:) \
                 and values (v:).",
                json!({ "type": "object" }),
            ),
            (Leaf::Patch, _) => (
                "A change to an object, in the form the content type names.",
                json!({ "type": "object" }),
            ),
        };
        out["description"] = description.into();
        out
    }
}
