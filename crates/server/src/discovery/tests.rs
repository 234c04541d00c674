use serde_json::json;

use super::*;
use crate::openapi::samples::registry;

const ALL_VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

fn resource_named(group: &str, version: &str, name: &str) -> Value {
    let list = api_resource_list(&registry(), group, version).unwrap();
    let resources = list["resources"].as_array().unwrap();
    resources.iter().find(|r| r["name"] == name).unwrap().clone()
}

#[test]
fn hashes_are_those_of_kubernetes() {
    let table = [
        ("", "v1", "pods", "xPOwRZ+Yhw8="),
        ("", "v1", "events", "r2yiGXH7wu8="),
        ("events.k8s.io", "v1", "events", "r2yiGXH7wu8="),
        ("certificates.k8s.io", "v1", "certificatesigningrequests", "95fRKMXA+00="),
        ("certificates.k8s.io", "v1", "clustertrustbundles", "v5yhuVertL4="),
        ("certificates.k8s.io", "v1beta1", "clustertrustbundles", "v5yhuVertL4="),
        ("certificates.k8s.io", "v1", "podcertificaterequests", "wYA9yXQH8fg="),
    ];
    for (group, version, name, hash) in table {
        assert_eq!(resource_named(group, version, name)["storageVersionHash"], hash, "{name}");
    }
}

#[test]
fn resources_are_listed_by_name_with_their_subresources() {
    let list = api_resource_list(&registry(), "certificates.k8s.io", "v1").unwrap();
    assert_eq!(list["kind"], "APIResourceList");
    assert_eq!(list["apiVersion"], "v1");
    assert_eq!(list["groupVersion"], "certificates.k8s.io/v1");
    let names: Vec<_> = list["resources"].as_array().unwrap().iter().map(|r| &r["name"]).collect();
    assert_eq!(
        names,
        [
            "certificatesigningrequests",
            "certificatesigningrequests/approval",
            "certificatesigningrequests/status",
            "clustertrustbundles",
            "podcertificaterequests",
            "podcertificaterequests/status",
        ]
    );
    let core = api_resource_list(&registry(), "", "v1").unwrap();
    assert!(core.get("apiVersion").is_none());
    assert!(api_resource_list(&registry(), "certificates.k8s.io", "v9").is_none());
}

#[test]
fn entries_have_the_fields_of_their_sort() {
    let table = [
        (
            "pods",
            json!({
                "name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod",
                "shortNames": ["po"], "categories": ["all"], "verbs": ALL_VERBS,
                "storageVersionHash": "xPOwRZ+Yhw8=",
            }),
        ),
        (
            "pods/binding",
            json!({
                "name": "pods/binding", "singularName": "", "namespaced": true, "kind": "Binding",
                "verbs": ["create"],
            }),
        ),
        (
            "pods/eviction",
            json!({
                "name": "pods/eviction", "singularName": "", "namespaced": true,
                "group": "policy", "version": "v1", "kind": "Eviction", "verbs": ["create"],
            }),
        ),
        (
            "namespaces/finalize",
            json!({
                "name": "namespaces/finalize", "singularName": "", "namespaced": false,
                "kind": "Namespace", "verbs": ["update"],
            }),
        ),
        (
            "nodes/status",
            json!({
                "name": "nodes/status", "singularName": "", "namespaced": false, "kind": "Node",
                "verbs": ["get", "patch", "update"],
            }),
        ),
    ];
    for (name, expected) in table {
        assert_eq!(resource_named("", "v1", name), expected);
    }
}

#[test]
fn namespaces_are_deleted_one_by_one() {
    let namespaces = resource_named("", "v1", "namespaces");
    assert_eq!(namespaces["verbs"], json!(["create", "delete", "get", "list", "patch", "update", "watch"]));
}

#[test]
fn groups_are_in_the_order_of_kubernetes() {
    let list = api_group_list(&registry());
    let names: Vec<_> = list["groups"].as_array().unwrap().iter().map(|g| &g["name"]).collect();
    assert_eq!(
        names,
        ["events.k8s.io", "certificates.k8s.io", "rbac.authorization.k8s.io", "coordination.k8s.io"]
    );
    let group = api_group(&registry(), "certificates.k8s.io").unwrap();
    assert_eq!(
        group,
        json!({
            "kind": "APIGroup", "apiVersion": "v1", "name": "certificates.k8s.io",
            "preferredVersion": { "groupVersion": "certificates.k8s.io/v1", "version": "v1" },
            "versions": [
                { "groupVersion": "certificates.k8s.io/v1", "version": "v1" },
                { "groupVersion": "certificates.k8s.io/v1beta1", "version": "v1beta1" },
                { "groupVersion": "certificates.k8s.io/v1alpha1", "version": "v1alpha1" },
            ],
        })
    );
    assert!(api_group(&registry(), "").is_none());
    assert!(api_group(&registry(), "nope.example.com").is_none());
}

#[test]
fn the_core_group_says_where_the_server_is() {
    assert_eq!(
        api_versions(&registry(), "10.0.0.1:6443"),
        json!({
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [
                { "clientCIDR": "0.0.0.0/0", "serverAddress": "10.0.0.1:6443" },
            ],
        })
    );
}

#[test]
fn the_aggregated_form_has_subresources_inside() {
    let core = aggregated_core(&registry());
    assert_eq!(core["items"][0]["metadata"], json!({}));
    let resources = core["items"][0]["versions"][0]["resources"].as_array().unwrap();
    let pods = resources.iter().find(|r| r["resource"] == "pods").unwrap();
    assert_eq!(
        *pods,
        json!({
            "resource": "pods",
            "responseKind": { "group": "", "version": "", "kind": "Pod" },
            "scope": "Namespaced",
            "singularResource": "pod",
            "verbs": ALL_VERBS,
            "shortNames": ["po"],
            "categories": ["all"],
            "subresources": [
                {
                    "subresource": "binding",
                    "responseKind": { "group": "", "version": "", "kind": "Binding" },
                    "verbs": ["create"],
                },
                {
                    "subresource": "ephemeralcontainers",
                    "responseKind": { "group": "", "version": "", "kind": "Pod" },
                    "verbs": ["get", "patch", "update"],
                },
                {
                    "subresource": "eviction",
                    "responseKind": { "group": "policy", "version": "v1", "kind": "Eviction" },
                    "verbs": ["create"],
                },
                {
                    "subresource": "resize",
                    "responseKind": { "group": "", "version": "", "kind": "Pod" },
                    "verbs": ["get", "patch", "update"],
                },
                {
                    "subresource": "status",
                    "responseKind": { "group": "", "version": "", "kind": "Pod" },
                    "verbs": ["get", "patch", "update"],
                },
            ],
        })
    );
    let groups = aggregated_groups(&registry());
    assert_eq!(groups["items"][1]["metadata"]["name"], "certificates.k8s.io");
    assert_eq!(groups["items"][1]["versions"][1]["version"], "v1beta1");
    assert_eq!(groups["items"][1]["versions"][1]["freshness"], "Current");
}
