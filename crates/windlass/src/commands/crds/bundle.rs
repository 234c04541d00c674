//! The custom resource of Bundles is what the server serves.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use windlass_api::schema::{MergeStrategy, ObjectType, Schema, ValueShape};
use windlass_api::trust_bundle::custom_resource_definition;
use windlass_server::BUNDLES_KIND;

use super::*;

const HEAD: &str = "# Bundle of trust-manager on a server that is not Windlass; it takes the place of trust-manager's own.\n";

#[test]
fn the_file_is_what_the_table_says() {
    let text = format!("{HEAD}{}", print::yaml(&custom_resource_definition()).unwrap());
    assert_eq!(BUNDLE, text, "deploy/bundle-crd.yaml should be:\n{text}");
}

#[test]
fn the_file_is_yaml_and_follows_the_other() {
    let crd: Value = serde_saphyr::from_str(BUNDLE).unwrap();
    assert_eq!(crd, custom_resource_definition());
    assert_eq!(text(&[]), format!("{NODE_TRUST}---\n{BUNDLE}"));
    assert_eq!(text(&[CustomResource::Bundles]), BUNDLE);
    assert_eq!(text(&[CustomResource::Bundles, CustomResource::NodeTrusts]), text(&[]));
    assert!(NODE_TRUST.ends_with('\n'));
}

#[test]
fn the_custom_resource_is_what_the_server_serves() {
    let crd = custom_resource_definition();
    let (spec, served) = (&crd["spec"], &BUNDLES_KIND.served[0]);
    assert_eq!(crd["metadata"]["name"], format!("{}.{}", BUNDLES_KIND.plural, served.group));
    let names = json!({"kind": BUNDLES_KIND.name, "listKind": format!("{}List", BUNDLES_KIND.name),
        "plural": BUNDLES_KIND.plural, "singular": BUNDLES_KIND.singular});
    assert_eq!(spec["names"], names);
    let version = &spec["versions"][0];
    assert_eq!(version["name"], served.version);
    let doors: Vec<&str> = BUNDLES_KIND.subresources.iter().map(|door| door.name).collect();
    let said = version["subresources"].as_object().unwrap().keys().collect::<Vec<_>>();
    assert_eq!(doors, said);
    let columns = version["additionalPrinterColumns"].as_array().unwrap();
    let column =
        |c: &Value| ["name", "type", "description"].map(|f| c[f].as_str().unwrap().to_owned());
    let ours = BUNDLES_KIND.columns.iter().skip(1);
    let ours = ours.map(|c| [c.name, c.kind, c.description].map(str::to_owned));
    assert_eq!(columns.iter().map(column).collect::<Vec<_>>(), ours.collect::<Vec<_>>());
    let schema = Schema::get();
    let ty = schema.get_type(schema.lookup(served.type_name).unwrap());
    compare(schema, ty, &version["schema"]["openAPIV3Schema"], "");
}

/// Compares a type of the server with the schema of the custom resource, and those under it.
fn compare(schema: &Schema, ty: &ObjectType, custom: &Value, at: &str) {
    let fields = ty.fields.iter().map(|field| field.name).collect::<BTreeSet<_>>();
    let properties = custom["properties"].as_object().unwrap();
    assert_eq!(properties.keys().map(String::as_str).collect::<BTreeSet<_>>(), fields, "{at}");
    let required = ty.fields.iter().filter(|field| field.required).map(|field| field.name);
    let said = custom["required"].as_array().into_iter().flatten();
    let said = said.map(|name| name.as_str().unwrap()).collect::<BTreeSet<_>>();
    assert_eq!(said, required.collect(), "{at}");
    assert_eq!(custom["x-kubernetes-map-type"] == "atomic", ty.atomic, "{at}");
    for field in &ty.fields {
        let (at, property) = (format!("{at}.{}", field.name), &properties[field.name]);
        if at == ".metadata" {
            continue;
        }
        assert_eq!(property["description"], field.description, "{at}");
        assert_eq!(property.get("default"), field.default.as_ref(), "{at}");
        let values = property["enum"].as_array().into_iter().flatten();
        let values = values.map(|value| value.as_str().unwrap()).collect::<Vec<_>>();
        assert_eq!(values, field.one_of, "{at}");
        if matches!(field.shape, ValueShape::List(_)) {
            let keys = property["x-kubernetes-list-map-keys"].as_array();
            match &field.merge {
                MergeStrategy::ByKey(by) => assert_eq!(json!(by), json!(keys.unwrap()), "{at}"),
                MergeStrategy::Atomic => {
                    assert_eq!(property["x-kubernetes-list-type"], "atomic", "{at}")
                }
                MergeStrategy::Default | MergeStrategy::Set => panic!("{at}"),
            }
        }
        value(schema, &field.shape, property, &at);
    }
}

fn value(schema: &Schema, shape: &ValueShape, custom: &Value, at: &str) {
    let (name, format) = match shape {
        ValueShape::String => ("string", None),
        ValueShape::Time => ("string", Some("date-time")),
        ValueShape::Bool => ("boolean", None),
        ValueShape::Int64 => ("integer", Some("int64")),
        ValueShape::List(of) => {
            value(schema, of, &custom["items"], &format!("{at}[]"));
            ("array", None)
        }
        ValueShape::Map(of) => {
            value(schema, of, &custom["additionalProperties"], &format!("{at}{{}}"));
            ("object", None)
        }
        ValueShape::Object(id) => {
            compare(schema, schema.get_type(*id), custom, at);
            ("object", None)
        }
        other => panic!("{at}: {other:?}"),
    };
    assert_eq!((&custom["type"], custom["format"].as_str()), (&json!(name), format), "{at}");
}
