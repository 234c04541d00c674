use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use serde_json::{Value, json};
use windlass_api::schema::{MergeStrategy, ObjectType, Schema, ValueShape};
use windlass_server::{NODETRUSTS_KIND, nodetrust_limits};

use super::*;

const RBAC: &str = include_str!("../../../../../deploy/nodetrust-rbac.yaml");

fn node_trust_crd() -> Value {
    serde_saphyr::from_str(NODE_TRUST).unwrap()
}

/// Compares a type of the server with the schema of the custom resource, and those under it.
fn compare(schema: &Schema, ty: &ObjectType, custom: &Value, at: &str) {
    assert_eq!(custom["type"], "object", "{at}");
    assert_eq!(custom["description"], ty.description, "{at}");
    let fields = ty.fields.iter().map(|field| field.name).collect::<BTreeSet<_>>();
    let properties = custom["properties"].as_object().unwrap();
    assert_eq!(properties.keys().map(String::as_str).collect::<BTreeSet<_>>(), fields, "{at}");
    let required = ty.fields.iter().filter(|field| field.required).map(|field| field.name);
    let required = required.collect::<Vec<_>>();
    let said = custom.get("required").cloned().unwrap_or_else(|| json!([]));
    assert_eq!(said, json!(required), "{at}");
    for field in &ty.fields {
        let (at, property) = (format!("{at}.{}", field.name), &properties[field.name]);
        let standard = ["apiVersion", "kind", "metadata"].contains(&field.name);
        if standard && ty.name.ends_with(".NodeTrust") {
            continue;
        }
        assert_eq!(property["description"], field.description, "{at}");
        let atomic =
            matches!(field.shape, ValueShape::List(_)) && field.merge == MergeStrategy::Atomic;
        assert_eq!(property["x-kubernetes-list-type"] == "atomic", atomic, "{at}");
        value(schema, &field.shape, property, &at, true);
    }
}

fn value(schema: &Schema, shape: &ValueShape, custom: &Value, at: &str, described: bool) {
    let (name, format) = match shape {
        ValueShape::String => ("string", None),
        ValueShape::Bool => ("boolean", None),
        ValueShape::Int32 => ("integer", Some("int32")),
        ValueShape::Int64 => ("integer", Some("int64")),
        ValueShape::List(of) => {
            value(schema, of, &custom["items"], &format!("{at}[]"), false);
            ("array", None)
        }
        ValueShape::Map(of) => {
            value(schema, of, &custom["additionalProperties"], &format!("{at}{{}}"), false);
            ("object", None)
        }
        ValueShape::Object(id) => {
            let ty = schema.get_type(*id);
            let mut custom = custom.clone();
            // A field's description is of the field.
            if described {
                custom["description"] = json!(ty.description);
            }
            compare(schema, ty, &custom, at);
            ("object", None)
        }
        other => panic!("{at}: {other:?}"),
    };
    assert_eq!((&custom["type"], custom["format"].as_str()), (&json!(name), format), "{at}");
}

#[test]
fn the_custom_resource_is_what_the_server_serves() {
    let crd = node_trust_crd();
    let spec = &crd["spec"];
    let served = &NODETRUSTS_KIND.served[0];
    assert_eq!(crd["metadata"]["name"], format!("{}.{}", NODETRUSTS_KIND.plural, served.group));
    assert_eq!((&spec["group"], &spec["scope"]), (&json!(served.group), &json!("Cluster")));
    let names = json!({"kind": NODETRUSTS_KIND.name, "listKind": format!("{}List", NODETRUSTS_KIND.name),
        "plural": NODETRUSTS_KIND.plural, "singular": NODETRUSTS_KIND.singular, "shortNames": NODETRUSTS_KIND.short_names});
    assert_eq!(spec["names"], names);
    assert_eq!(spec["versions"].as_array().unwrap().len(), 1);
    let version = &spec["versions"][0];
    assert_eq!(version["name"], served.version);
    assert!(version.get("subresources").is_none());
    let columns = version["additionalPrinterColumns"].as_array().unwrap();
    let columns = columns.iter().map(|c| c["name"].as_str().unwrap()).collect::<Vec<_>>();
    let ours = NODETRUSTS_KIND.columns.iter().map(|c| c.name).filter(|name| *name != "Name");
    assert_eq!(columns, ours.collect::<Vec<_>>());
    let schema = Schema::get();
    let ty = schema.get_type(schema.lookup(served.type_name).unwrap());
    compare(schema, ty, &version["schema"]["openAPIV3Schema"], "");
}

#[test]
fn the_limits_are_the_same() {
    let crd = node_trust_crd();
    let status = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"];
    let sources = &status["properties"]["sources"];
    let source = &sources["items"]["properties"];
    for (found, limit) in [
        (&sources["maxItems"], nodetrust_limits::SOURCES),
        (&source["bundles"]["maxItems"], nodetrust_limits::BUNDLES),
        (&source["volumes"]["maxItems"], nodetrust_limits::VOLUMES),
        (&source["volumes"]["items"]["maxLength"], nodetrust_limits::NAME),
        (&source["name"]["maxLength"], nodetrust_limits::NAME),
        (&source["message"]["maxLength"], nodetrust_limits::MESSAGE),
    ] {
        assert_eq!(*found, json!(limit));
    }
}

#[test]
fn the_roles_can_be_read() {
    let parts = RBAC.split("\n---\n").collect::<Vec<_>>();
    assert_eq!(parts.len(), 3);
    let role: ClusterRole = serde_saphyr::from_str(parts[0]).unwrap();
    let binding: ClusterRoleBinding = serde_saphyr::from_str(parts[1]).unwrap();
    let reader: ClusterRole = serde_saphyr::from_str(parts[2]).unwrap();
    assert_eq!(Some(binding.role_ref.name), role.metadata.name);
    assert_eq!(binding.subjects.unwrap()[0].name, "system:nodes");
    let rules = role.rules.unwrap();
    assert_eq!(rules[0].verbs, ["create", "get", "patch", "update"]);
    assert_eq!(rules[0].api_groups.as_deref(), Some(&["windlass.dev".to_owned()][..]));
    assert_eq!(reader.rules.unwrap().len(), 3);
}
