//! Which nodes have to do with an object: an index from what pods refer to, to where the pods are.
//!
//! ```text
//! secret, configmap, service account, claim → pod → node
//! secret → volume → claim → pod → node
//! ```

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use super::references;
use crate::registry::object_fields::{list, text};

/// Kinds of objects that pods depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum DependencyKind {
    /// Secrets that pods refer to, also through persistent volumes.
    Secret,
    /// ConfigMaps that pods mount or read variables from.
    ConfigMap,
    /// Service accounts that pods run as; nodes request their tokens.
    ServiceAccount,
    /// PersistentVolumeClaims that pods mount, including those of ephemeral volumes.
    Claim,
    /// Persistent volumes, through the claims they are bound to.
    Volume,
    /// ResourceClaims of dynamic resource allocation that pods use.
    DeviceClaim,
    /// VolumeAttachments; never stored by this server.
    Attachment,
}

/// Namespace and name. Never one string: `foo/bar` and `bar/foo` must not collide.
type NamespacedName = (Box<str>, Box<str>);

/// A dependency, shared by all pods that reference it.
type PodDependency = (DependencyKind, NamespacedName);

/// Index from nodes, through their pods, to the objects those pods depend on.
#[derive(Debug, Default)]
pub(super) struct NodeGraph {
    pods: HashMap<NamespacedName, BoundPod>,
    /// Number of pods that reference an object, by node.
    nodes_by_dependency: HashMap<Arc<PodDependency>, HashMap<Arc<str>, usize>>,
    volumes: HashMap<Box<str>, BoundVolume>,
    /// Volumes that require a secret, by secret.
    volumes_by_secret: HashMap<NamespacedName, HashSet<Box<str>>>,
}

#[derive(Debug, PartialEq, Eq)]
struct BoundPod {
    node: Arc<str>,
    dependencies: Box<[Arc<PodDependency>]>,
}

#[derive(Debug, PartialEq, Eq)]
struct BoundVolume {
    claim: NamespacedName,
    secrets: HashSet<NamespacedName>,
}

impl NodeGraph {
    /// Returns true if a pod on `node` depends on the object.
    pub(super) fn reaches(&self, what: DependencyKind, namespace: &str, name: &str, node: &str) -> bool {
        match what {
            DependencyKind::Volume => namespace.is_empty() && self.volume_reaches(name, node),
            DependencyKind::Secret => {
                let secret = namespaced_name(namespace, name);
                let volumes = self.volumes_by_secret.get(&secret).into_iter().flatten();
                let mut volumes = volumes.map(|volume| self.volume_reaches(volume, node));
                volumes.any(|reached| reached) || self.needs(DependencyKind::Secret, secret, node)
            }
            DependencyKind::ConfigMap
            | DependencyKind::ServiceAccount
            | DependencyKind::Claim
            | DependencyKind::DeviceClaim => self.needs(what, namespaced_name(namespace, name), node),
            DependencyKind::Attachment => false,
        }
    }

    fn volume_reaches(&self, volume: &str, node: &str) -> bool {
        let volume = self.volumes.get(volume);
        volume.is_some_and(|volume| self.needs(DependencyKind::Claim, volume.claim.clone(), node))
    }

    fn needs(&self, what: DependencyKind, at: NamespacedName, node: &str) -> bool {
        self.nodes_by_dependency.get(&(what, at)).is_some_and(|nodes| nodes.contains_key(node))
    }

    /// Adds a pod or replaces its dependencies.
    pub(super) fn upsert_pod(&mut self, namespace: &str, name: &str, node: &str, pod: &Value) {
        let needs = dependencies(namespace, pod).into_iter().map(|need| self.intern(need)).collect();
        let bound = BoundPod { node: node.into(), dependencies: needs };
        let at = namespaced_name(namespace, name);
        if self.pods.get(&at) == Some(&bound) {
            return;
        }
        self.remove_pod(namespace, name);
        for need in &*bound.dependencies {
            let nodes = self.nodes_by_dependency.entry(need.clone()).or_default();
            *nodes.entry(bound.node.clone()).or_default() += 1;
        }
        self.pods.insert(at, bound);
    }

    fn intern(&self, need: PodDependency) -> Arc<PodDependency> {
        match self.nodes_by_dependency.get_key_value(&need) {
            Some((known, _)) => known.clone(),
            None => Arc::new(need),
        }
    }

    /// Removes a pod and its dependencies; unknown pods are ignored.
    pub(super) fn remove_pod(&mut self, namespace: &str, name: &str) {
        let Some(bound) = self.pods.remove(&namespaced_name(namespace, name)) else { return };
        for need in bound.dependencies {
            let Some(nodes) = self.nodes_by_dependency.get_mut(&need) else { continue };
            if let Some(count) = nodes.get_mut(&bound.node) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    nodes.remove(&bound.node);
                }
            }
            if nodes.is_empty() {
                self.nodes_by_dependency.remove(&need);
            }
        }
    }

    /// Adds a volume or replaces its dependencies.
    pub(super) fn upsert_volume(&mut self, name: &str, object: &Value) {
        self.remove_volume(name);
        if object["spec"]["claimRef"].is_null() {
            return;
        }
        let claim = |pointer| text(object, pointer);
        let claim = namespaced_name(claim("/spec/claimRef/namespace"), claim("/spec/claimRef/name"));
        let secrets = references::volume_secrets(object).into_iter();
        let secrets: HashSet<NamespacedName> = secrets.map(|(n, s)| namespaced_name(n, s)).collect();
        for secret in &secrets {
            self.volumes_by_secret.entry(secret.clone()).or_default().insert(name.into());
        }
        self.volumes.insert(name.into(), BoundVolume { claim, secrets });
    }

    /// Removes a persistent volume and its secrets; unknown volumes are ignored.
    pub(super) fn remove_volume(&mut self, name: &str) {
        let Some(volume) = self.volumes.remove(name) else { return };
        for secret in volume.secrets {
            let Some(volumes) = self.volumes_by_secret.get_mut(&secret) else { continue };
            volumes.remove(name);
            if volumes.is_empty() {
                self.volumes_by_secret.remove(&secret);
            }
        }
    }

    /// Removes all pods before a relist; volumes stay indexed.
    pub(super) fn clear_pods(&mut self) {
        self.pods.clear();
        self.nodes_by_dependency.clear();
    }

    /// Removes all persistent volumes before a relist; pods stay indexed.
    pub(super) fn clear_volumes(&mut self) {
        self.volumes.clear();
        self.volumes_by_secret.clear();
    }

    /// Returns true if no index holds any entry.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
            && self.nodes_by_dependency.is_empty()
            && self.volumes.is_empty()
            && self.volumes_by_secret.is_empty()
    }
}

fn namespaced_name(namespace: &str, name: &str) -> NamespacedName {
    (namespace.into(), name.into())
}

fn dependencies(namespace: &str, pod: &Value) -> BTreeSet<PodDependency> {
    // Nodes create mirror pods themselves, so these must not give them access to anything.
    if references::is_mirror(pod) {
        return BTreeSet::new();
    }
    let mut needs = BTreeSet::new();
    let mut add = |what, name: &str| {
        if !name.is_empty() {
            needs.insert((what, namespaced_name(namespace, name)));
        }
    };
    add(DependencyKind::ServiceAccount, text(pod, "/spec/serviceAccountName"));
    for name in references::secrets(pod) {
        add(DependencyKind::Secret, name);
    }
    for name in references::config_maps(pod) {
        add(DependencyKind::ConfigMap, name);
    }
    for volume in list(pod, "/spec/volumes") {
        add(DependencyKind::Claim, references::claim(pod, volume).as_deref().unwrap_or_default());
    }
    for name in references::device_claims(pod) {
        add(DependencyKind::DeviceClaim, name);
    }
    needs
}
