//! What `kubectl explain` says of Bundles elsewhere: the sentences of the server's own schema.

use serde_json::Value;

use crate::schema::{Schema, Shape, Type};

/// The type of Bundles in the server's schema.
const TYPE: &str = "io.cert-manager.trust.v1alpha1.Bundle";

/// Puts descriptions into the schema of a CustomResourceDefinition.
pub(super) fn describe(custom: &mut Value) {
    let schema = Schema::get();
    if let Some(id) = schema.lookup(TYPE) {
        let ty = schema.type_of(id);
        say(custom, ty.description);
        fields(schema, ty, custom);
    }
}

fn fields(schema: &Schema, ty: &Type, custom: &mut Value) {
    for field in &ty.fields {
        let Some(property) = custom["properties"].get_mut(field.name) else { continue };
        // Every server has its own words for these.
        if field.name != "metadata" || ty.name != TYPE {
            say(property, field.description);
            inside(schema, &field.shape, property);
        }
    }
}

fn inside(schema: &Schema, shape: &Shape, custom: &mut Value) {
    match shape {
        Shape::Object(id) => fields(schema, schema.type_of(*id), custom),
        Shape::List(of) => {
            if let Some(items) = custom.get_mut("items") {
                if let Shape::Object(id) = **of {
                    say(items, schema.type_of(id).description);
                }
                inside(schema, of, items);
            }
        }
        _ => {}
    }
}

fn say(custom: &mut Value, words: &str) {
    if let Some(custom) = custom.as_object_mut().filter(|_| !words.is_empty()) {
        custom.insert("description".to_owned(), words.into());
    }
}
