//! Kinds that are custom resources on servers other than Windlass, and their
//! CustomResourceDefinitions.
//!
//! The fields, limits, rules and columns come from the type in the [`Schema`], so that both sorts
//! of servers accept the same objects.

use serde_json::{Map, Value, json};

use crate::schema::{
    FieldPresence, MergeStrategy, ObjectType, Schema, SchemaField, TypeId, ValueLimits, ValueShape,
};

/// The names of a cluster-scoped kind, and the type that defines its objects.
#[derive(Clone, Copy, Debug)]
pub struct CustomResource {
    /// API group, for example `windlass.dev`.
    pub group: &'static str,
    /// The only version that is served and stored.
    pub version: &'static str,
    /// Group and version, as in `apiVersion`.
    pub api_version: &'static str,
    /// Kind, as in `kind`.
    pub kind: &'static str,
    /// Resource name in paths and RBAC rules.
    pub plural: &'static str,
    /// Lower-case singular for discovery.
    pub singular: &'static str,
    /// Abbreviations that kubectl accepts.
    pub short_names: &'static [&'static str],
    /// Kind of lists if it is not the kind followed by `List`; empty otherwise.
    pub list_kind_override: &'static str,
    /// Full name of the type in the schema.
    pub type_name: &'static str,
    /// Whether the status is written through a subresource.
    pub has_status_subresource: bool,
}

impl CustomResource {
    /// The type in the built-in schema. A test looks every custom resource up.
    pub(crate) fn type_id(&self) -> TypeId {
        match Schema::get().lookup(self.type_name) {
            Some(id) => id,
            None => unreachable!("the schema has no type {}", self.type_name),
        }
    }

    /// Kind of lists of the objects.
    pub fn list_kind(&self) -> String {
        match self.list_kind_override {
            "" => format!("{}List", self.kind),
            other => other.to_owned(),
        }
    }

    /// The CustomResourceDefinition, for API servers that do not have the kind built in.
    pub fn definition(&self) -> Value {
        let ty = Schema::get().get_type(self.type_id());
        let mut names = json!({
            "kind": self.kind,
            "listKind": self.list_kind(),
            "plural": self.plural,
            "singular": self.singular,
        });
        if !self.short_names.is_empty() {
            names["shortNames"] = self.short_names.into();
        }
        let mut version = json!({
            "name": self.version,
            "served": true,
            "storage": true,
            "additionalPrinterColumns": columns(ty),
            "schema": {"openAPIV3Schema": root_schema(ty)},
        });
        if self.has_status_subresource {
            version["subresources"] = json!({"status": {}});
        }
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{}.{}", self.plural, self.group)},
            "spec": {
                "group": self.group,
                "names": names,
                "scope": "Cluster",
                "versions": [version],
            },
        })
    }
}

fn columns(ty: &ObjectType) -> Vec<Value> {
    let columns = ty.columns.iter().map(|column| {
        let mut shown = json!({"name": column.name, "type": column.kind, "jsonPath": column.json_path});
        set_description(&mut shown, column.description);
        shown
    });
    columns.collect()
}

fn root_schema(ty: &ObjectType) -> Value {
    let mut schema = object_schema(ty);
    // API servers have the schema of metadata built in and accept nothing about it here.
    schema["properties"]["metadata"] = json!({"type": "object"});
    set_description(&mut schema, ty.description);
    schema
}

fn object_schema(ty: &ObjectType) -> Value {
    let mut schema = json!({"type": "object"});
    let properties = ty.fields.iter().map(|field| (field.name.to_owned(), field_schema(field)));
    schema["properties"] = Value::Object(properties.collect::<Map<_, _>>());
    let required = ty.fields.iter().filter(|field| field.required).map(|field| field.name);
    let required = required.collect::<Vec<_>>();
    if !required.is_empty() {
        schema["required"] = required.into();
    }
    if ty.min_properties > 0 {
        schema["minProperties"] = ty.min_properties.into();
    }
    if ty.atomic {
        schema["x-kubernetes-map-type"] = "atomic".into();
    }
    if !ty.rules.is_empty() {
        let rules = ty.rules.iter();
        let rules = rules.map(|rule| json!({"rule": rule.expression, "message": rule.message}));
        schema["x-kubernetes-validations"] = rules.collect();
    }
    schema
}

fn field_schema(field: &SchemaField) -> Value {
    let mut schema = value_schema(&field.shape, &field.limits, &field.item_limits);
    set_description(&mut schema, field.description);
    if !field.one_of.is_empty() {
        let of_elements = matches!(field.shape, ValueShape::List(_));
        let owner = if of_elements { &mut schema["items"] } else { &mut schema };
        owner["enum"] = field.one_of.as_slice().into();
    }
    // The default of a field that is always written is its zero value, which the normal form sets.
    if let Some(default) = &field.default
        && field.presence != FieldPresence::Always
    {
        schema["default"] = default.clone();
    }
    let kind = if matches!(field.shape, ValueShape::List(_)) { "list" } else { "map" };
    let merge = match &field.merge {
        MergeStrategy::Default => return schema,
        MergeStrategy::Atomic => "atomic",
        MergeStrategy::Set => "set",
        MergeStrategy::ByKey(keys) => {
            schema["x-kubernetes-list-map-keys"] = keys.as_slice().into();
            "map"
        }
    };
    schema[format!("x-kubernetes-{kind}-type")] = merge.into();
    schema
}

fn value_schema(shape: &ValueShape, limits: &ValueLimits, items: &ValueLimits) -> Value {
    let unlimited = ValueLimits::default();
    let mut schema = match shape {
        ValueShape::Object(id) => object_schema(Schema::get().get_type(*id)),
        other => json!({"type": other.json_type()}),
    };
    let (min, max) = match shape {
        ValueShape::List(of) => {
            let mut items = value_schema(of, items, &unlimited);
            if let ValueShape::Object(id) = **of {
                set_description(&mut items, Schema::get().get_type(id).description);
            }
            schema["items"] = items;
            ("minItems", "maxItems")
        }
        ValueShape::Map(of) => {
            schema["additionalProperties"] = value_schema(of, items, &unlimited);
            ("minProperties", "maxProperties")
        }
        ValueShape::Int32 | ValueShape::Int64 => ("minimum", "maximum"),
        _ => ("minLength", "maxLength"),
    };
    let format = match shape {
        ValueShape::Time | ValueShape::MicroTime => Some("date-time"),
        ValueShape::Int32 => Some("int32"),
        ValueShape::Int64 => Some("int64"),
        ValueShape::Float => Some("double"),
        ValueShape::Bytes => Some("byte"),
        _ => None,
    };
    let pattern = limits.format.map(|format| format.pattern());
    for (key, value) in [
        ("format", format.map(Value::from)),
        ("pattern", pattern.map(Value::from)),
        (min, limits.min.map(Value::from)),
        (max, limits.max.map(Value::from)),
    ] {
        if let Some(value) = value {
            schema[key] = value;
        }
    }
    schema
}

fn set_description(schema: &mut Value, description: &str) {
    if !description.is_empty() {
        schema["description"] = description.into();
    }
}

#[cfg(test)]
mod tests;
