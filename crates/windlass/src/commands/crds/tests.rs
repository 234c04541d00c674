use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use serde_json::{Value, json};
use windlass_api::schema::{MergeStrategy, ObjectType, Schema, ValueShape};
use windlass_server::{
    BUNDLES_KIND, CA_ROTATIONS_KIND, Kind, LEDGER_SEGMENTS_KIND, NODETRUSTS_KIND, REVOCATION_LISTS_KIND,
    REVOCATIONS_KIND, SIGNERS_KIND,
};

use super::*;

const RBAC: &str = include_str!("../../../../../deploy/nodetrust-rbac.yaml");

const ALL: [(CustomResource, windlass_api::custom_resource::CustomResource, &Kind); 7] = [
    (CustomResource::NodeTrusts, node_trust::RESOURCE, &NODETRUSTS_KIND),
    (CustomResource::Bundles, trust_bundle::RESOURCE, &BUNDLES_KIND),
    (CustomResource::Signers, signer::RESOURCE, &SIGNERS_KIND),
    (CustomResource::CaRotations, ca_rotation::RESOURCE, &CA_ROTATIONS_KIND),
    (CustomResource::LedgerSegments, ledger_segment::RESOURCE, &LEDGER_SEGMENTS_KIND),
    (CustomResource::CertificateRevocations, revocation::RESOURCE, &REVOCATIONS_KIND),
    (CustomResource::CertificateRevocationLists, revocation::LIST_RESOURCE, &REVOCATION_LISTS_KIND),
];

/// Parses the first document, which is the definition.
fn parse(crd: CustomResource) -> Value {
    let text = text(&[crd]).unwrap();
    serde_saphyr::from_str(text.split("---\n").next().unwrap()).unwrap()
}

#[test]
fn without_names_all_are_printed_and_the_order_is_stable() {
    let all = ALL.map(|(crd, _, _)| text(&[crd]).unwrap());
    assert_eq!(text(&[]).unwrap(), all.join("---\n"));
    let both = format!("{}---\n{}", all[0], all[1]);
    assert_eq!(text(&[CustomResource::Bundles, CustomResource::NodeTrusts]).unwrap(), both);
}

#[test]
fn the_text_is_yaml_with_the_content_of_the_definition() {
    for (crd, resource, _) in ALL {
        assert_eq!(parse(crd), resource.definition());
    }
}

/// Without the policies, whoever may write Signers, rotations or revocations could act for every signer.
#[test]
fn kinds_that_act_for_signers_come_with_their_policies() {
    for (crd, plural, verbs) in [
        (CustomResource::Signers, "signers", &["sign", "attest"][..]),
        (CustomResource::CaRotations, "carotations", &["sign", "attest"]),
        (CustomResource::CertificateRevocations, "certificaterevocations", &["sign"]),
    ] {
        let manifest = text(&[crd]).unwrap();
        let documents: Vec<Value> =
            manifest.split("---\n").map(|text| serde_saphyr::from_str(text).unwrap()).collect();
        let [_, policy, binding] = &documents[..] else { panic!("{plural}") };
        assert_eq!(policy["kind"], "ValidatingAdmissionPolicy");
        assert_eq!(binding["kind"], "ValidatingAdmissionPolicyBinding");
        assert_eq!(binding["spec"]["policyName"], policy["metadata"]["name"]);
        assert_eq!(binding["spec"]["validationActions"], json!(["Deny"]));
        assert_eq!(policy["spec"]["failurePolicy"], "Fail");
        let rule = &policy["spec"]["matchConstraints"]["resourceRules"][0];
        let operations = json!(["CREATE", "UPDATE", "DELETE"]);
        assert_eq!((&rule["operations"], &rule["resources"]), (&operations, &json!([plural])));
        assert_eq!((&rule["apiGroups"], &rule["apiVersions"]), (&json!(["windlass.dev"]), &json!(["*"])));
        let validations = policy["spec"]["validations"].as_array().unwrap();
        assert_eq!(validations.len(), verbs.len());
        for (validation, verb) in validations.iter().zip(verbs) {
            let check = format!("check('{verb}').allowed()");
            assert_eq!(validation["expression"].as_str().unwrap().matches(&check).count(), 2);
        }
    }
}

#[test]
fn the_custom_resources_are_what_the_server_serves() {
    for (crd, _, kind) in ALL {
        check_kind(crd, kind);
    }
}

fn check_kind(crd: CustomResource, kind: &Kind) {
    let crd = parse(crd);
    let (spec, served) = (&crd["spec"], &kind.served[0]);
    assert_eq!(crd["metadata"]["name"], format!("{}.{}", kind.plural, served.group));
    assert_eq!((&spec["group"], &spec["scope"]), (&json!(served.group), &json!("Cluster")));
    let mut names = json!({"kind": kind.name, "listKind": kind.list_kind(),
        "plural": kind.plural, "singular": kind.singular()});
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
            assert_eq!(
                (&defined["type"], description),
                (&json!(ours.kind), &json!(ours.description.unwrap()))
            );
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
        let owner = if matches!(field.shape, ValueShape::List(_)) { &property["items"] } else { property };
        let values = owner["enum"].as_array().into_iter().flatten();
        let values = values.map(|value| value.as_str().unwrap()).collect::<Vec<_>>();
        assert_eq!(values, field.one_of, "{at}");
        if matches!(field.shape, ValueShape::List(_)) {
            let keys = property["x-kubernetes-list-map-keys"].as_array();
            match &field.merge {
                MergeStrategy::ByKey(by) => assert_eq!(json!(by), json!(keys.unwrap()), "{at}"),
                MergeStrategy::Atomic => {
                    assert_eq!(property["x-kubernetes-list-type"], "atomic", "{at}")
                }
                MergeStrategy::Set => assert_eq!(property["x-kubernetes-list-type"], "set", "{at}"),
                MergeStrategy::Default => panic!("{at}"),
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
        ValueShape::Float => ("number", Some("double")),
        ValueShape::Bytes => ("string", Some("byte")),
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
    let crd = parse(CustomResource::NodeTrusts);
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
    assert_eq!(parts.len(), 4);
    let role: ClusterRole = serde_saphyr::from_str(parts[0]).unwrap();
    let binding: ClusterRoleBinding = serde_saphyr::from_str(parts[1]).unwrap();
    let reader: ClusterRole = serde_saphyr::from_str(parts[2]).unwrap();
    assert_eq!(Some(binding.role_ref.name), role.metadata.name);
    assert_eq!(binding.subjects.unwrap()[0].name, "system:nodes");
    let rules = role.rules.unwrap();
    assert_eq!(rules[0].verbs, ["create", "get", "patch", "update"]);
    assert_eq!(rules[0].api_groups.as_deref(), Some(&["windlass.dev".to_owned()][..]));
    assert_eq!(reader.rules.unwrap().len(), 3);
    let crl_reader: ClusterRole = serde_saphyr::from_str(parts[3]).unwrap();
    let rules = crl_reader.rules.unwrap();
    assert_eq!(rules[0].resources.as_deref(), Some(&["certificaterevocationlists".to_owned()][..]));
    assert_eq!(rules[0].verbs, ["get", "list", "watch"]);
}
