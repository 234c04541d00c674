use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use serde_json::{Value, json};
use windlass_api::schema::{MergeStrategy, ObjectType, Schema, ValueShape};
use windlass_server::{BUNDLES_KIND, Kind, NODETRUSTS_KIND};

use super::*;

const NODE_TRUST: &str = include_str!("../../../../../deploy/nodetrust-crd.yaml");
const BUNDLE: &str = include_str!("../../../../../deploy/bundle-crd.yaml");
const RBAC: &str = include_str!("../../../../../deploy/nodetrust-rbac.yaml");

#[test]
fn the_files_are_what_the_schema_defines() {
    for (crd, file) in [(CustomResource::NodeTrusts, NODE_TRUST), (CustomResource::Bundles, BUNDLE)] {
        let text = text(&[crd]).unwrap();
        assert_eq!(file, text, "the file in deploy/ should be:\n{text}");
    }
    let both = format!("{NODE_TRUST}---\n{BUNDLE}");
    assert_eq!(text(&[]).unwrap(), both);
    assert_eq!(text(&[CustomResource::Bundles, CustomResource::NodeTrusts]).unwrap(), both);
}

#[test]
fn the_files_are_yaml_with_the_same_content() {
    for (file, resource) in [(NODE_TRUST, node_trust::RESOURCE), (BUNDLE, trust_bundle::RESOURCE)] {
        let read: Value = serde_saphyr::from_str(file).unwrap();
        assert_eq!(read, resource.definition());
    }
}

#[test]
fn the_custom_resources_are_what_the_server_serves() {
    check_kind(NODE_TRUST, &NODETRUSTS_KIND);
    check_kind(BUNDLE, &BUNDLES_KIND);
}

fn check_kind(file: &str, kind: &Kind) {
    let crd: Value = serde_saphyr::from_str(file).unwrap();
    let (spec, served) = (&crd["spec"], &kind.served[0]);
    assert_eq!(crd["metadata"]["name"], format!("{}.{}", kind.plural, served.group));
    assert_eq!((&spec["group"], &spec["scope"]), (&json!(served.group), &json!("Cluster")));
    let mut names = json!({"kind": kind.name, "listKind": format!("{}List", kind.name),
        "plural": kind.plural, "singular": kind.singular});
    if !kind.short_names.is_empty() {
        names["shortNames"] = json!(kind.short_names);
    }
    assert_eq!(spec["names"], names);
    assert_eq!(spec["versions"].as_array().unwrap().len(), 1);
    let version = &spec["versions"][0];
    assert_eq!(version["name"], served.version);
    let subresources: Vec<&str> = kind.subresources.iter().map(|sub| sub.name).collect();
    let defined = version["subresources"].as_object().into_iter().flat_map(|subs| subs.keys());
    assert_eq!(defined.collect::<Vec<_>>(), subresources);
    let columns = version["additionalPrinterColumns"].as_array().unwrap();
    let ours = kind.columns.iter().filter(|column| column.name != "Name");
    for (defined, ours) in columns.iter().zip(ours.clone()) {
        assert_eq!(defined["name"], ours.name);
        // A column without a description is one that the server describes as for its own kinds.
        if let Some(description) = defined.get("description") {
            assert_eq!((&defined["type"], description), (&json!(ours.kind), &json!(ours.description)));
        }
    }
    assert_eq!(columns.len(), ours.count());
    let schema = Schema::get();
    let ty = schema.get_type(schema.lookup(served.type_name).unwrap());
    let custom = &version["schema"]["openAPIV3Schema"];
    assert_eq!(custom["description"], ty.description);
    compare(schema, ty, custom, "");
}

/// Compares a type of the server with the schema of the custom resource, recursively.
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
            assert_eq!(*property, json!({"type": "object"}));
            continue;
        }
        assert_eq!(property["description"], field.description, "{at}");
        if let Some(default) = property.get("default") {
            assert_eq!(Some(default), field.default.as_ref(), "{at}");
        }
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
        ValueShape::Int32 => ("integer", Some("int32")),
        ValueShape::Int64 => ("integer", Some("int64")),
        ValueShape::List(of) => {
            let items = &custom["items"];
            if let ValueShape::Object(id) = **of {
                assert_eq!(items["description"], schema.get_type(id).description, "{at}");
            }
            value(schema, of, items, &format!("{at}[]"));
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

/// The numbers are literal because they are an interface: nodes of other versions report within
/// these limits.
#[test]
fn the_limits_are_the_same() {
    let crd: Value = serde_saphyr::from_str(NODE_TRUST).unwrap();
    let status = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"];
    let sources = &status["properties"]["sources"];
    let source = &sources["items"]["properties"];
    let limits = node_trust::limits();
    for (found, ours, limit) in [
        (&sources["maxItems"], limits.sources, 1024),
        (&source["bundles"]["maxItems"], limits.bundles, 1024),
        (&source["volumes"]["maxItems"], limits.volumes, 256),
        (&source["volumes"]["items"]["maxLength"], 1024, 1024),
        (&source["name"]["maxLength"], 1024, 1024),
        (&source["message"]["maxLength"], limits.message_bytes, 1024),
    ] {
        assert_eq!((found, ours), (&json!(limit), limit));
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
