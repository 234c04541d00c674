//! Names of objects that a pod or a volume references.

use std::collections::HashMap;

use serde_json::Value;

use crate::registry::object_fields::{list, non_null, text};

/// Annotation of mirror pods, which represent static pods of a node.
pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";

/// Returns true if the pod is a mirror pod.
pub(crate) fn is_mirror(pod: &Value) -> bool {
    pod["metadata"]["annotations"].get(MIRROR).is_some()
}

/// Returns the secrets that a pod references directly, not through a volume claim.
pub(crate) fn secrets(pod: &Value) -> Vec<&str> {
    let mut names: Vec<&str> = list(pod, "/spec/imagePullSecrets").iter().map(|s| text(s, "/name")).collect();
    for container in containers(pod) {
        names.extend(list(container, "/envFrom").iter().map(|e| text(e, "/secretRef/name")));
        let variables = list(container, "/env").iter();
        names.extend(variables.map(|e| text(e, "/valueFrom/secretKeyRef/name")));
    }
    for volume in list(pod, "/spec/volumes") {
        names.extend(VOLUME_SECRETS.iter().map(|pointer| text(volume, pointer)));
        names.extend(sources(volume).iter().map(|s| text(s, "/secret/name")));
    }
    names.retain(|name| !name.is_empty());
    names
}

const VOLUME_SECRETS: &[&str] = &[
    "/azureFile/secretName",
    "/cephfs/secretRef/name",
    "/cinder/secretRef/name",
    "/csi/nodePublishSecretRef/name",
    "/flexVolume/secretRef/name",
    "/iscsi/secretRef/name",
    "/rbd/secretRef/name",
    "/scaleIO/secretRef/name",
    "/secret/secretName",
    "/storageos/secretRef/name",
];

pub(crate) fn config_maps(pod: &Value) -> Vec<&str> {
    let mut names = Vec::new();
    for container in containers(pod) {
        names.extend(list(container, "/envFrom").iter().map(|e| text(e, "/configMapRef/name")));
        let variables = list(container, "/env").iter();
        names.extend(variables.map(|e| text(e, "/valueFrom/configMapKeyRef/name")));
    }
    for volume in list(pod, "/spec/volumes") {
        names.push(text(volume, "/configMap/name"));
        names.extend(sources(volume).iter().map(|s| text(s, "/configMap/name")));
    }
    names.retain(|name| !name.is_empty());
    names
}

/// Returns the claim of a pod's volume, in the pod's namespace.
pub(crate) fn claim(pod: &Value, volume: &Value) -> Option<String> {
    if non_null(volume, "/persistentVolumeClaim").is_some() {
        let name = text(volume, "/persistentVolumeClaim/claimName");
        return (!name.is_empty()).then(|| name.to_owned());
    }
    non_null(volume, "/ephemeral")?;
    Some(format!("{}-{}", text(pod, "/metadata/name"), text(volume, "/name")))
}

/// Returns the ResourceClaims that a pod names or that were created for it.
pub(crate) fn device_claims(pod: &Value) -> Vec<&str> {
    let statuses = list(pod, "/status/resourceClaimStatuses");
    let mut made: HashMap<&str, &str> = HashMap::new();
    for status in statuses {
        made.entry(text(status, "/name")).or_insert(text(status, "/resourceClaimName"));
    }
    let mut names: Vec<&str> = list(pod, "/spec/resourceClaims")
        .iter()
        .map(|claim| match text(claim, "/resourceClaimName") {
            "" => made.get(text(claim, "/name")).copied().unwrap_or_default(),
            name => name,
        })
        .collect();
    names.push(text(pod, "/status/extendedResourceClaimStatus/resourceClaimName"));
    names.retain(|name| !name.is_empty());
    names
}

/// Returns namespace and name of the secrets that nodes need to mount a volume.
pub(crate) fn volume_secrets(volume: &Value) -> Vec<(&str, &str)> {
    let claimed_in = text(volume, "/spec/claimRef/namespace");
    let mut found = Vec::new();
    if non_null(volume, "/spec/azureFile").is_some() {
        let own = text(volume, "/spec/azureFile/secretNamespace");
        let namespace = if own.is_empty() { claimed_in } else { own };
        found.push((namespace, text(volume, "/spec/azureFile/secretName")));
    }
    for (pointer, falls_back) in REFERENCES {
        let Some(reference) = non_null(volume, pointer) else { continue };
        let own = text(reference, "/namespace");
        let namespace = if own.is_empty() && *falls_back { claimed_in } else { own };
        found.push((namespace, text(reference, "/name")));
    }
    found.retain(|(namespace, name)| !namespace.is_empty() && !name.is_empty());
    found
}

/// JSON pointers to secret references in volumes, and whether their namespace defaults to the
/// claim's.
const REFERENCES: &[(&str, bool)] = &[
    ("/spec/cephfs/secretRef", true),
    ("/spec/cinder/secretRef", false),
    ("/spec/csi/nodeExpandSecretRef", false),
    ("/spec/csi/nodePublishSecretRef", false),
    ("/spec/csi/nodeStageSecretRef", false),
    ("/spec/flexVolume/secretRef", true),
    ("/spec/iscsi/secretRef", true),
    ("/spec/rbd/secretRef", true),
    ("/spec/scaleIO/secretRef", true),
    ("/spec/storageos/secretRef", false),
];

pub(crate) fn sources(volume: &Value) -> &[Value] {
    list(volume, "/projected/sources")
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    ["/spec/initContainers", "/spec/containers", "/spec/ephemeralContainers"]
        .into_iter()
        .flat_map(|pointer| list(pod, pointer))
}
