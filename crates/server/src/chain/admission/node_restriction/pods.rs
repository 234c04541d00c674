//! Pods: a node may create mirror pods, and update the status of and delete the pods bound to it.

use serde_json::Value;
use windlass_api::field::quote;
use windlass_api::meta::ObjectMetaView;

use super::{AdmissionOperation, AdmissionResult, NodeRefusal, NodeWrite, forbidden};
use crate::chain::authz::node::references::{self, MIRROR};
use crate::registry::object_fields::{count, list, non_null, text};

/// Checks a write to a pod or to one of its subresources.
pub(super) fn check(written: &NodeWrite<'_>) -> AdmissionResult {
    match written.subresource {
        "" => check_pod(written),
        "status" => status(written),
        "eviction" => eviction(written),
        other => forbidden(format!(
            "unexpected pod subresource {}, only 'status' and 'eviction' are allowed",
            quote(other)
        )),
    }
}

fn check_pod(written: &NodeWrite<'_>) -> AdmissionResult {
    let node = written.quoted();
    match written.operation {
        AdmissionOperation::Create => create(written, &node),
        AdmissionOperation::Delete if is_bound_to_node(written, written.object) => Ok(()),
        AdmissionOperation::Delete => {
            forbidden(format!("node {node} can only delete pods with spec.nodeName set to itself"))
        }
        AdmissionOperation::Update(_) => forbidden(format!(
            "unexpected operation {}, node {node} can only create and delete mirror pods",
            quote(written.operation_name())
        )),
    }
}

fn is_bound_to_node(written: &NodeWrite<'_>, pod: &Value) -> bool {
    text(pod, "/spec/nodeName") == written.node
}

fn create(written: &NodeWrite<'_>, node: &str) -> AdmissionResult {
    let pod = written.object;
    if !references::is_mirror(pod) {
        return forbidden(format!(
            "pod does not have {} annotation, node {node} can only create mirror pods",
            quote(MIRROR)
        ));
    }
    if !is_bound_to_node(written, pod) {
        return forbidden(format!("node {node} can only create pods with spec.nodeName set to itself"));
    }
    owner(written, node)?;
    // A mirror pod is written by the node itself, so it must not give the node access to anything.
    match referenced(pod) {
        Ok(None) => Ok(()),
        Ok(Some(what)) => forbidden(format!("node {node} can not create pods that reference {what}")),
        Err(why) => forbidden(why),
    }
}

/// Checks that a mirror pod is owned by its node, so that both are deleted together.
fn owner(written: &NodeWrite<'_>, node: &str) -> AdmissionResult {
    let mut owners = ObjectMetaView::from_object(written.object).owner_references();
    let Some(owner) = owners.next() else {
        return forbidden(format!("node {node} can only create pods with an owner reference set to itself"));
    };
    if owners.next().is_some() {
        return forbidden(format!(
            "node {node} can only create pods with a single owner reference set to itself"
        ));
    }
    if (owner.api_version, owner.kind, owner.name) != ("v1", "Node", written.node) {
        return forbidden(format!("node {node} can only create pods with an owner reference set to itself"));
    }
    if owner.controller != Some(true) {
        return forbidden(format!(
            "node {node} can only create pods with a controller owner reference set to itself"
        ));
    }
    if owner.block_owner_deletion == Some(true) {
        return forbidden(format!("node {node} must not set blockOwnerDeletion on an owner reference"));
    }
    let Some(found) = (written.find)("", "nodes", "", written.node) else {
        return Err(NodeRefusal::NotFound("node", written.node.to_owned()));
    };
    let (asked, there) = (owner.uid, ObjectMetaView::from_object(&found).uid());
    if asked != there {
        let name = written.node;
        return forbidden(format!("node {name} UID mismatch: expected {asked} got {there}"));
    }
    Ok(())
}

/// Returns the first kind of object that a pod references, in Kubernetes' order; an unknown volume
/// type is an error.
fn referenced(pod: &Value) -> Result<Option<&'static str>, String> {
    if !text(pod, "/spec/serviceAccountName").is_empty() {
        return Ok(Some("serviceaccounts"));
    }
    if !references::secrets(pod).is_empty() {
        return Ok(Some("secrets"));
    }
    if !references::config_maps(pod).is_empty() {
        return Ok(Some("configmaps"));
    }
    if count(pod, "/spec/resourceClaims") > 0 {
        return Ok(Some("resourceclaims"));
    }
    for volume in list(pod, "/spec/volumes") {
        if let Some(what) = referenced_by_volume(volume)? {
            return Ok(Some(what));
        }
    }
    Ok(None)
}

fn referenced_by_volume(volume: &Value) -> Result<Option<&'static str>, String> {
    let sort = |sort: &str| non_null(volume, &format!("/{sort}")).is_some();
    if let Some((_, what)) = REFERRING.iter().find(|(s, _)| sort(s)) {
        return Ok(Some(what));
    }
    if sort("projected") {
        for source in references::sources(volume) {
            let part = |part: &str| non_null(source, &format!("/{part}")).is_some();
            if let Some((_, what)) = REFERRING_SOURCES.iter().find(|(s, _)| part(s)) {
                return Ok(Some(what));
            }
            if !part("downwardAPI") {
                let name = quote(text(volume, "/name"));
                return Err(format!("unknown source for projected volume {name}"));
            }
        }
        return Ok(None);
    }
    if INNOCENT.iter().any(|s| sort(s)) {
        return Ok(None);
    }
    Err(format!("unknown volume type for volume  {}", quote(text(volume, "/name"))))
}

/// Volume types that reference an API object.
const REFERRING: &[(&str, &str)] = &[
    ("configMap", "configmaps (via configmap volumes)"),
    ("secret", "secrets (via secret volumes)"),
    ("csi", "csidrivers (via CSI volumes)"),
    ("glusterfs", "endpoints (via glusterFS volumes)"),
    ("persistentVolumeClaim", "persistentvolumeclaims"),
    ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
    ("azureFile", "secrets (via azureFile volumes)"),
];

/// Projected volume sources that reference an API object.
const REFERRING_SOURCES: &[(&str, &str)] = &[
    ("configMap", "configmaps (via projected volumes)"),
    ("secret", "secrets (via projected volumes)"),
    ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
    ("clusterTrustBundle", "clustertrustbundles"),
    ("podCertificate", "podcertificates"),
];

/// Volume types that reference no API object.
const INNOCENT: &[&str] = &[
    "awsElasticBlockStore",
    "azureDisk",
    "cephfs",
    "cinder",
    "downwardAPI",
    "emptyDir",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];

fn status(written: &NodeWrite<'_>) -> AdmissionResult {
    let node = written.quoted();
    let old = match written.operation {
        AdmissionOperation::Update(old) => old,
        AdmissionOperation::Create | AdmissionOperation::Delete => return unexpected(written),
    };
    let new = written.object;
    if !is_bound_to_node(written, old) {
        return forbidden(format!(
            "node {node} can only update pod status for pods with spec.nodeName set to itself"
        ));
    }
    if !ObjectMetaView::from_object(new).labels().eq(ObjectMetaView::from_object(old).labels()) {
        return forbidden(format!("node {node} cannot update labels through pod status"));
    }
    // Claims in the status give the node access to devices.
    if device_claims(new) != device_claims(old) {
        return forbidden(format!("node {node} cannot update resource claim statues"));
    }
    if non_null(new, EXTENDED) != non_null(old, EXTENDED) {
        return forbidden(format!("node {node} cannot update extended resource claim status"));
    }
    Ok(())
}

const EXTENDED: &str = "/status/extendedResourceClaimStatus";

fn device_claims(pod: &Value) -> Vec<(&str, Option<&str>)> {
    let statuses = list(pod, "/status/resourceClaimStatuses").iter();
    statuses.map(|s| (text(s, "/name"), non_null(s, "/resourceClaimName").and_then(Value::as_str))).collect()
}

fn eviction(written: &NodeWrite<'_>) -> AdmissionResult {
    match written.operation {
        AdmissionOperation::Create => {}
        AdmissionOperation::Update(_) | AdmissionOperation::Delete => {
            return forbidden(format!("unexpected operation {}", written.operation_name()));
        }
    }
    let pod = written.get_pod(written.name)?;
    if !is_bound_to_node(written, &pod) {
        let node = written.node;
        return forbidden(format!("node {node} can only evict pods with spec.nodeName set to itself"));
    }
    Ok(())
}

fn unexpected(written: &NodeWrite<'_>) -> AdmissionResult {
    forbidden(format!("unexpected operation {}", quote(written.operation_name())))
}
