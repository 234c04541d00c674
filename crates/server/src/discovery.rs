//! Discovery of groups, versions and resources.
//!
//! The same data has two forms: one document per group-version, and the aggregated form with one
//! document each for `/api` and `/apis`. Both are built from the registry on request, because they
//! are small and clients cache them.

#[cfg(test)]
mod tests;

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::registry::KindRegistry;
use crate::registry::kind::{Kind, Scope, ServedVersion, Subresource, SubresourceAction};

/// Content type of the aggregated form; clients distinguish the forms by these parameters.
pub(crate) const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Returns the response to `GET /api`; `address` is the server's `host:port`.
pub(crate) fn api_versions(registry: &KindRegistry, address: &str) -> Value {
    let groups = registry.groups();
    let core = groups.iter().find(|(group, _)| group.is_empty());
    let versions = core.map(|(_, versions)| versions.as_slice()).unwrap_or_default();
    json!({
        "kind": "APIVersions",
        "versions": versions,
        "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": address }],
    })
}

/// Returns the response to `GET /apis`.
pub(crate) fn api_group_list(registry: &KindRegistry) -> Value {
    let groups: Vec<Value> =
        named_groups(registry).into_iter().map(|(name, versions)| group(name, &versions)).collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

/// Returns the response to `GET /apis/{group}`; `None` if the group does not exist.
pub(crate) fn api_group(registry: &KindRegistry, name: &str) -> Option<Value> {
    let groups = named_groups(registry);
    let (name, versions) = groups.into_iter().find(|(group, _)| *group == name)?;
    let mut body = group(name, &versions);
    body["kind"] = "APIGroup".into();
    body["apiVersion"] = "v1".into();
    Some(body)
}

/// Returns the response to `GET /api/v1` (with an empty group) and `GET /apis/{group}/{version}`;
/// `None` if the group-version does not exist.
pub(crate) fn api_resource_list(registry: &KindRegistry, group: &str, version: &str) -> Option<Value> {
    let kinds = registry.in_version(group, version);
    let (_, first) = kinds.first()?;
    let mut resources: Vec<(String, Value)> = Vec::new();
    for (kind, served) in &kinds {
        resources.push((kind.plural.to_owned(), resource(kind)));
        for sub in kind.subresources {
            resources.push((format!("{}/{}", kind.plural, sub.name), subresource(kind, served, sub)));
        }
    }
    resources.sort_by(|a, b| a.0.cmp(&b.0));
    let resources: Vec<Value> = resources.into_iter().map(|(_, resource)| resource).collect();
    let mut body = json!({
        "kind": "APIResourceList",
        "groupVersion": first.api_version(),
        "resources": resources,
    });
    // The core group omits apiVersion, as clients older than API groups expect.
    if !group.is_empty() {
        body["apiVersion"] = "v1".into();
    }
    Some(body)
}

/// Returns the aggregated form of `GET /api`.
pub(crate) fn aggregated_core(registry: &KindRegistry) -> Value {
    let groups = registry.groups();
    aggregated(registry, groups.into_iter().filter(|(group, _)| group.is_empty()))
}

/// Returns the aggregated form of `GET /apis`.
pub(crate) fn aggregated_groups(registry: &KindRegistry) -> Value {
    aggregated(registry, named_groups(registry).into_iter())
}

/// Returns the supported verbs of a kind, sorted.
pub(crate) fn verbs(kind: &Kind) -> &'static [&'static str] {
    if kind.review.is_some() {
        &["create"]
    } else if kind.delete_collection {
        &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    } else {
        &["create", "delete", "get", "list", "patch", "update", "watch"]
    }
}

/// Returns the entity tag of a document with quotes; it changes with the document.
pub(crate) fn etag(document: &[u8]) -> String {
    format!("\"{}\"", content_hash(document))
}

/// Returns the SHA-512 in upper-case hexadecimal digits.
pub(crate) fn content_hash(document: &[u8]) -> String {
    hex(digest::digest(&digest::SHA512, document).as_ref())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

/// Kubernetes' order of groups, which decides how clients resolve an ambiguous name. Other groups
/// come last.
const ORDER: &[&str] = &[
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "resource.k8s.io",
];

/// Kinds that recently became stable. Kubernetes keeps storing them in the version that its
/// previous release can read, and the hash reflects that.
const NEWLY_STABLE: &[(&str, &str, &str)] = &[
    ("certificates.k8s.io", "ClusterTrustBundle", "v1beta1"),
    ("certificates.k8s.io", "PodCertificateRequest", "v1beta1"),
];

fn named_groups(registry: &KindRegistry) -> Vec<(&'static str, Vec<&'static str>)> {
    let mut groups = registry.groups();
    groups.retain(|(group, _)| !group.is_empty());
    groups.sort_by_key(|(group, _)| ORDER.iter().position(|g| g == group).unwrap_or(ORDER.len()));
    groups
}

fn group(name: &str, versions: &[&str]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|version| json!({ "groupVersion": format!("{name}/{version}"), "version": version }))
        .collect();
    json!({ "name": name, "preferredVersion": versions.first(), "versions": versions })
}

fn resource(kind: &Kind) -> Value {
    let mut entry = json!({
        "name": kind.plural,
        "singularName": kind.singular(),
        "namespaced": kind.scope == Scope::Namespaced,
        "kind": kind.name,
        "verbs": verbs(kind),
    });
    if kind.review.is_none() {
        entry["storageVersionHash"] = storage_version_hash(kind).into();
    }
    name_lists(&mut entry, kind);
    entry
}

fn subresource(kind: &Kind, served: &ServedVersion, sub: &Subresource) -> Value {
    let answered = response_kind(kind, served, sub);
    let mut entry = json!({
        "name": format!("{}/{}", kind.plural, sub.name),
        "singularName": "",
        "namespaced": kind.scope == Scope::Namespaced,
        "kind": answered.kind,
        "verbs": subresource_verbs(sub),
    });
    if !answered.version.is_empty() {
        if !answered.group.is_empty() {
            entry["group"] = answered.group.into();
        }
        entry["version"] = answered.version.into();
    }
    entry
}

fn name_lists(entry: &mut Value, kind: &Kind) {
    if !kind.short_names.is_empty() {
        entry["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        entry["categories"] = json!(kind.categories);
    }
}

/// Kind of a subresource's request and response; group and version are empty if they equal the
/// resource's.
struct ResponseKind {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
}

fn response_kind(of: &Kind, served: &ServedVersion, sub: &Subresource) -> ResponseKind {
    match sub.action {
        SubresourceAction::View { .. } | SubresourceAction::Finalize => {
            ResponseKind { group: "", version: "", kind: of.name }
        }
        SubresourceAction::Create { group, version, kind, .. }
            if (group, version) == (served.group, served.version) =>
        {
            ResponseKind { group: "", version: "", kind }
        }
        SubresourceAction::Create { group, version, kind, .. } => ResponseKind { group, version, kind },
    }
}

fn subresource_verbs(sub: &Subresource) -> &'static [&'static str] {
    match sub.action {
        SubresourceAction::View { .. } => &["get", "patch", "update"],
        SubresourceAction::Create { .. } => &["create"],
        SubresourceAction::Finalize => &["update"],
    }
}

fn storage_version_hash(kind: &Kind) -> String {
    let stored = kind.stored();
    let newly = NEWLY_STABLE.iter().find(|(g, k, _)| *g == stored.group && *k == kind.name);
    let version = newly.map_or(stored.version, |(_, _, version)| version);
    let name = format!("{}/{version}/{}", stored.group, kind.name);
    STANDARD.encode(&digest::digest(&digest::SHA256, name.as_bytes()).as_ref()[..8])
}

fn aggregated(
    registry: &KindRegistry,
    groups: impl Iterator<Item = (&'static str, Vec<&'static str>)>,
) -> Value {
    let items: Vec<Value> = groups
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    let kinds = registry.in_version(group, version);
                    let resources: Vec<Value> =
                        kinds.iter().map(|(kind, served)| aggregated_resource(kind, served)).collect();
                    json!({ "version": version, "resources": resources, "freshness": "Current" })
                })
                .collect();
            let mut metadata = Map::new();
            if !group.is_empty() {
                metadata.insert("name".into(), group.into());
            }
            json!({ "metadata": metadata, "versions": versions })
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    })
}

fn aggregated_resource(kind: &Kind, served: &ServedVersion) -> Value {
    let mut entry = json!({
        "resource": kind.plural,
        "responseKind": { "group": "", "version": "", "kind": kind.name },
        "scope": match kind.scope {
            Scope::Cluster => "Cluster",
            Scope::Namespaced => "Namespaced",
        },
        "singularResource": kind.singular(),
        "verbs": verbs(kind),
    });
    name_lists(&mut entry, kind);
    let mut subresources: Vec<&Subresource> = kind.subresources.iter().collect();
    subresources.sort_by_key(|sub| sub.name);
    if !subresources.is_empty() {
        let subresources = subresources.into_iter().map(|sub| {
            let answered = response_kind(kind, served, sub);
            json!({
                "subresource": sub.name,
                "responseKind": {
                    "group": answered.group,
                    "version": answered.version,
                    "kind": answered.kind,
                },
                "verbs": subresource_verbs(sub),
            })
        });
        entry["subresources"] = subresources.collect();
    }
    entry
}
