//! What `kubectl explain` says of Bundles elsewhere: the sentences of the server's own schema.

use serde_json::Value;

use crate::schema::{ObjectType, Schema, ValueShape};

/// The type of Bundles in the server's schema.
const TYPE: &str = "io.cert-manager.trust.v1alpha1.Bundle";

/// Puts descriptions into the schema of a CustomResourceDefinition.
pub(super) fn add_descriptions(custom: &mut Value) {
    let schema = Schema::get();
    if let Some(id) = schema.lookup(TYPE) {
        let ty = schema.get_type(id);
        set_description(custom, ty.description);
        describe_fields(schema, ty, custom);
    }
}

fn describe_fields(schema: &Schema, ty: &ObjectType, custom: &mut Value) {
    for field in &ty.fields {
        let Some(property) = custom["properties"].get_mut(field.name) else { continue };
        // Every server has its own words for these.
        if field.name != "metadata" || ty.name != TYPE {
            set_description(property, field.description);
            describe_nested(schema, &field.shape, property);
        }
    }
}

fn describe_nested(schema: &Schema, shape: &ValueShape, custom: &mut Value) {
    match shape {
        ValueShape::Object(id) => describe_fields(schema, schema.get_type(*id), custom),
        ValueShape::List(of) => {
            if let Some(items) = custom.get_mut("items") {
                if let ValueShape::Object(id) = **of {
                    set_description(items, schema.get_type(id).description);
                }
                describe_nested(schema, of, items);
            }
        }
        _ => {}
    }
}

fn set_description(custom: &mut Value, words: &str) {
    if let Some(custom) = custom.as_object_mut().filter(|_| !words.is_empty()) {
        custom.insert("description".to_owned(), words.into());
    }
}
