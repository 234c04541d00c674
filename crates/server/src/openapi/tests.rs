use std::collections::BTreeSet;

use serde_json::{Value, json};
use windlass_api::schema::Schema;

use super::samples::registry;
use super::*;

fn v3_json(path: &str) -> Value {
    match OpenApiDocuments::new(&registry()).v3_document(path, None) {
        DocumentResponse::Found { document, .. } => serde_json::from_slice(&document.body).unwrap(),
        other => panic!("{path}: {other:?}"),
    }
}

fn v2_json() -> Value {
    serde_json::from_slice(&OpenApiDocuments::new(&registry()).v2_document().body).unwrap()
}

/// Returns all documents, with the path of their definitions.
fn all_documents() -> Vec<(String, Value, &'static str)> {
    let documents = OpenApiDocuments::new(&registry());
    let paths = documents.paths().into_iter();
    let mut all: Vec<_> = paths.map(|path| (path.clone(), v3_json(&path), "#/components/schemas/")).collect();
    all.push(("v2".into(), v2_json(), "#/definitions/"));
    all
}

fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get("$ref") {
                found.insert(reference.clone());
            }
            members.values().for_each(|v| references(v, found));
        }
        Value::Array(items) => items.iter().for_each(|v| references(v, found)),
        _ => {}
    }
}

#[test]
fn every_reference_resolves_and_every_definition_is_used() {
    for (name, document, place) in all_documents() {
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        let definitions = document.pointer(place[1..].trim_end_matches('/')).unwrap();
        let defined: BTreeSet<String> =
            definitions.as_object().unwrap().keys().map(|k| format!("{place}{k}")).collect();
        let unused: Vec<_> = defined.difference(&found).filter(|d| !d.ends_with(".WatchEvent")).collect();
        assert!(unused.is_empty(), "{name}: {unused:?}");
        let dangling: Vec<_> = found.difference(&defined).collect();
        assert!(dangling.is_empty(), "{name}: {dangling:?}");
    }
}

#[test]
fn every_kind_has_a_patch_that_validates_fields() {
    for (group, versions) in registry().groups() {
        for version in versions {
            let path = match group {
                "" => format!("api/{version}"),
                _ => format!("apis/{group}/{version}"),
            };
            let document = v3_json(&path);
            for (kind, _) in registry().in_version(group, version) {
                let gvk = json!({ "group": group, "version": version, "kind": kind.name });
                let mut patches =
                    document["paths"].as_object().unwrap().values().filter_map(|p| p.get("patch"));
                let found = patches.any(|patch| {
                    patch["x-kubernetes-group-version-kind"] == gvk
                        && patch["parameters"]
                            .as_array()
                            .unwrap()
                            .iter()
                            .any(|p| p["name"] == "fieldValidation" && p["in"] == "query")
                });
                assert!(found, "{gvk}");
            }
        }
    }
}

#[test]
fn every_field_of_the_tables_is_a_property() {
    let document = v3_json("api/v1");
    let definitions = document["components"]["schemas"].as_object().unwrap();
    let mut seen = 0;
    for (_, ty) in Schema::get().types() {
        let Some(definition) = definitions.get(ty.name) else { continue };
        for field in &ty.fields {
            assert!(!definition["properties"][field.name].is_null(), "{}.{}", ty.name, field.name);
            seen += 1;
        }
    }
    assert!(seen > 500, "{seen}");
}

#[test]
fn operation_ids_are_unique() {
    for (name, document, _) in all_documents() {
        let mut ids = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                if method != "parameters" {
                    let id = operation["operationId"].as_str().unwrap();
                    assert!(ids.insert(id.to_owned()), "{name} {path} {method}: {id}");
                }
            }
        }
    }
}

#[test]
fn operation_names_are_those_of_kubernetes() {
    let table = [
        ("api/v1", "/api/v1/", "get", "getCoreV1APIResources"),
        ("api/v1", "/api/v1/pods", "get", "listCoreV1PodForAllNamespaces"),
        ("api/v1", "/api/v1/namespaces/{namespace}/pods", "get", "listCoreV1NamespacedPod"),
        ("api/v1", "/api/v1/namespaces/{namespace}/pods", "delete", "deleteCoreV1CollectionNamespacedPod"),
        (
            "api/v1",
            "/api/v1/namespaces/{namespace}/pods/{name}/eviction",
            "post",
            "createCoreV1NamespacedPodEviction",
        ),
        ("api/v1", "/api/v1/namespaces/{name}/finalize", "put", "replaceCoreV1NamespaceFinalize"),
        ("api/v1", "/api/v1/nodes/{name}/status", "patch", "patchCoreV1NodeStatus"),
        (
            "apis/certificates.k8s.io/v1beta1",
            "/apis/certificates.k8s.io/v1beta1/clustertrustbundles/{name}",
            "get",
            "readCertificatesV1beta1ClusterTrustBundle",
        ),
        (
            "apis/rbac.authorization.k8s.io",
            "/apis/rbac.authorization.k8s.io/",
            "get",
            "getRbacAuthorizationAPIGroup",
        ),
    ];
    for (document, path, method, id) in table {
        assert_eq!(v3_json(document)["paths"][path][method]["operationId"], id, "{path}");
    }
}

#[test]
fn types_are_written_as_kubernetes_writes_them() {
    let document = v3_json("api/v1");
    let table = [
        (
            "io.k8s.api.core.v1.Pod",
            "metadata",
            json!({
                "allOf": [{ "$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta" }],
                "default": {},
            }),
        ),
        (
            "io.k8s.api.core.v1.PodSpec",
            "containers",
            json!({
                "type": "array",
                "items": { "$ref": "#/components/schemas/io.k8s.api.core.v1.Container" },
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "x-kubernetes-patch-strategy": "merge",
                "x-kubernetes-patch-merge-key": "name",
            }),
        ),
        (
            "io.k8s.api.core.v1.PodSpec",
            "volumes",
            json!({
                "type": "array",
                "items": { "$ref": "#/components/schemas/io.k8s.api.core.v1.Volume" },
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "x-kubernetes-patch-strategy": "merge,retainKeys",
                "x-kubernetes-patch-merge-key": "name",
            }),
        ),
        (
            "io.k8s.api.core.v1.PodSpec",
            "nodeSelector",
            json!({
                "type": "object",
                "additionalProperties": { "type": "string" },
                "x-kubernetes-map-type": "atomic",
            }),
        ),
        (
            "io.k8s.api.core.v1.ContainerPort",
            "protocol",
            json!({
                "type": "string",
                "default": "TCP",
            }),
        ),
        (
            "io.k8s.api.core.v1.Secret",
            "data",
            json!({
                "type": "object",
                "additionalProperties": { "type": "string", "format": "byte" },
            }),
        ),
        (
            "io.k8s.api.core.v1.Event",
            "eventTime",
            json!({
                "allOf": [{ "$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime" }],
            }),
        ),
        (
            "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
            "finalizers",
            json!({
                "type": "array",
                "items": { "type": "string" },
                "x-kubernetes-list-type": "set",
                "x-kubernetes-patch-strategy": "merge",
            }),
        ),
    ];
    for (ty, field, expected) in table {
        let mut found = document["components"]["schemas"][ty]["properties"][field].clone();
        found.as_object_mut().unwrap().remove("description");
        assert_eq!(found, expected, "{ty}.{field}");
    }
}

#[test]
fn version_2_has_neither_defaults_nor_alternatives() {
    let document = v2_json();
    let definitions = &document["definitions"];
    let metadata = &definitions["io.k8s.api.core.v1.Pod"]["properties"]["metadata"];
    assert_eq!(metadata["$ref"], "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
    let quantity = &definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"];
    assert_eq!(quantity["type"], "string");
    let text = definitions.to_string();
    assert!(!text.contains("\"default\":") && !text.contains("\"oneOf\""));
}

#[test]
fn kinds_carry_their_group_version_and_kind() {
    let gvk = |group: &str, kind: &str| json!({ "group": group, "version": "v1", "kind": kind });
    let document = v3_json("apis/certificates.k8s.io/v1");
    let schemas = &document["components"]["schemas"];
    let of = |name: &str| schemas[name]["x-kubernetes-group-version-kind"].clone();
    let group = "certificates.k8s.io";
    assert_eq!(
        of("io.k8s.api.certificates.v1.CertificateSigningRequestList"),
        json!([gvk(group, "CertificateSigningRequestList")])
    );
    for kind in ["DeleteOptions", "WatchEvent"] {
        let name = format!("{META}.{kind}");
        assert_eq!(of(&name), json!([gvk("", kind), gvk(group, kind)]));
    }
    let everything = v2_json();
    let options = &everything["definitions"][DELETE_OPTIONS]["x-kubernetes-group-version-kind"];
    assert_eq!(options.as_array().unwrap().len(), 7, "one per group and version");
}

#[test]
fn deletions_are_answered_as_kubernetes_answers_them() {
    let document = v3_json("api/v1");
    let table = [
        ("namespaces/{namespace}/pods/{name}", "io.k8s.api.core.v1.Pod"),
        ("namespaces/{namespace}/serviceaccounts/{name}", "io.k8s.api.core.v1.ServiceAccount"),
        ("namespaces/{namespace}/secrets/{name}", "io.k8s.apimachinery.pkg.apis.meta.v1.Status"),
    ];
    for (path, answer) in table {
        let answers = &document["paths"][format!("/api/v1/{path}")]["delete"]["responses"];
        let schema = &answers["200"]["content"]["application/json"]["schema"]["$ref"];
        assert_eq!(*schema, format!("#/components/schemas/{answer}"));
    }
    assert!(document["paths"]["/api/v1/namespaces"].get("delete").is_none());
}

#[test]
fn a_hash_leads_to_its_document() {
    let documents = OpenApiDocuments::new(&registry());
    let root: Value = serde_json::from_slice(&documents.v3_root().body).unwrap();
    let address = root["paths"]["api/v1"]["serverRelativeURL"].as_str().unwrap();
    let (path, hash) = address.split_once("?hash=").unwrap();
    assert_eq!(path, "/openapi/v3/api/v1");
    let DocumentResponse::Found { document, immutable: true } = documents.v3_document("api/v1", Some(hash))
    else {
        panic!("the current hash is not the document's");
    };
    assert_eq!(document.etag, etag(&document.body));
    assert_eq!(document.etag, format!("\"{hash}\""));
    assert_eq!(documents.v3_document("api/v1", Some("0")), DocumentResponse::Moved(address.to_owned()));
    assert!(matches!(
        documents.v3_document("api/v1", None),
        DocumentResponse::Found { immutable: false, .. }
    ));
    for path in ["", "api/v2", "apis/nope", "apis/certificates.k8s.io/v9", "api/", "apis//v1"] {
        let found = matches!(documents.v3_document(path, None), DocumentResponse::Found { .. });
        assert_eq!(found, path == "api/", "{path}");
    }
}

#[test]
fn protobuf_has_what_json_has() {
    let documents = OpenApiDocuments::new(&registry());
    let bytes = documents.v2_protobuf().body;
    let document = fields(&bytes);
    let names = |outer: u64, inner: u64| -> Vec<String> {
        let (_, part) = document.iter().find(|(tag, _)| *tag == outer).unwrap();
        let entries = fields(part).into_iter().filter(|(tag, _)| *tag == inner);
        let names = entries.map(|(_, entry)| String::from_utf8(fields(entry)[0].1.to_vec()));
        names.collect::<Result<_, _>>().unwrap()
    };
    let json = v2_json();
    let keys = |name: &str| json[name].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(document[0], (1, b"2.0".as_slice()));
    assert_eq!(names(8, 2), keys("paths"));
    assert_eq!(names(9, 1), keys("definitions"));
}

/// Returns the length-delimited fields of a message.
fn fields(mut bytes: &[u8]) -> Vec<(u64, &[u8])> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let value = varint(&mut bytes);
        if key & 7 == 2 {
            let (field, rest) = bytes.split_at(value as usize);
            found.push((key >> 3, field));
            bytes = rest;
        }
    }
    found
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let length = bytes.iter().position(|b| b & 0x80 == 0).unwrap() + 1;
    let (digits, rest) = bytes.split_at(length);
    *bytes = rest;
    digits.iter().rev().fold(0, |value, b| value << 7 | u64::from(b & 0x7f))
}
