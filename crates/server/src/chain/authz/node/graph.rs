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
use crate::registry::parts::{list, text};

/// What a pod can lead its node to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum What {
    /// Secrets, also of volumes.
    Secret,
    /// Config maps.
    ConfigMap,
    /// Service accounts.
    Account,
    /// Claims on volumes.
    Claim,
    /// Volumes, through the claims they are bound to.
    Volume,
    /// Claims on devices.
    DeviceClaim,
    /// Attachments of volumes; there are none.
    Attachment,
}

/// A namespace and a name. Never one text: `foo/bar` and `bar/foo` must not meet.
type Place = (Box<str>, Box<str>);

/// What pods refer to, kept once for all of them.
type Need = (What, Place);

/// The index.
#[derive(Debug, Default)]
pub struct Graph {
    pods: HashMap<Place, Bound>,
    /// How many pods on which node refer to an object.
    needed: HashMap<Arc<Need>, HashMap<Arc<str>, usize>>,
    volumes: HashMap<Box<str>, Volume>,
    /// The volumes that need a secret.
    locked: HashMap<Place, HashSet<Box<str>>>,
}

/// A pod that has a node.
#[derive(Debug, PartialEq, Eq)]
struct Bound {
    node: Arc<str>,
    needs: Box<[Arc<Need>]>,
}

/// A volume that has a claim.
#[derive(Debug, PartialEq, Eq)]
struct Volume {
    claim: Place,
    secrets: HashSet<Place>,
}

impl Graph {
    /// Whether a pod on `node` leads to the object.
    pub fn reaches(&self, what: What, namespace: &str, name: &str, node: &str) -> bool {
        match what {
            What::Volume => namespace.is_empty() && self.volume_reaches(name, node),
            What::Secret => {
                let secret = place(namespace, name);
                let volumes = self.locked.get(&secret).into_iter().flatten();
                let mut volumes = volumes.map(|volume| self.volume_reaches(volume, node));
                volumes.any(|reached| reached) || self.needs(What::Secret, secret, node)
            }
            What::ConfigMap | What::Account | What::Claim | What::DeviceClaim => {
                self.needs(what, place(namespace, name), node)
            }
            What::Attachment => false,
        }
    }

    fn volume_reaches(&self, volume: &str, node: &str) -> bool {
        let volume = self.volumes.get(volume);
        volume.is_some_and(|volume| self.needs(What::Claim, volume.claim.clone(), node))
    }

    fn needs(&self, what: What, at: Place, node: &str) -> bool {
        self.needed.get(&(what, at)).is_some_and(|nodes| nodes.contains_key(node))
    }

    /// Takes in a pod as it is now.
    pub fn put_pod(&mut self, namespace: &str, name: &str, node: &str, pod: &Value) {
        let needs = needs(namespace, pod).into_iter().map(|need| self.shared(need)).collect();
        let bound = Bound { node: node.into(), needs };
        let at = place(namespace, name);
        if self.pods.get(&at) == Some(&bound) {
            return;
        }
        self.remove_pod(namespace, name);
        for need in &*bound.needs {
            let nodes = self.needed.entry(need.clone()).or_default();
            *nodes.entry(bound.node.clone()).or_default() += 1;
        }
        self.pods.insert(at, bound);
    }

    fn shared(&self, need: Need) -> Arc<Need> {
        match self.needed.get_key_value(&need) {
            Some((known, _)) => known.clone(),
            None => Arc::new(need),
        }
    }

    /// Forgets a pod.
    pub fn remove_pod(&mut self, namespace: &str, name: &str) {
        let Some(bound) = self.pods.remove(&place(namespace, name)) else { return };
        for need in bound.needs {
            let Some(nodes) = self.needed.get_mut(&need) else { continue };
            if let Some(count) = nodes.get_mut(&bound.node) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    nodes.remove(&bound.node);
                }
            }
            if nodes.is_empty() {
                self.needed.remove(&need);
            }
        }
    }

    /// Takes in a volume as it is now.
    pub fn put_volume(&mut self, name: &str, object: &Value) {
        self.remove_volume(name);
        if object["spec"]["claimRef"].is_null() {
            return;
        }
        let claim = |pointer| text(object, pointer);
        let claim = place(claim("/spec/claimRef/namespace"), claim("/spec/claimRef/name"));
        let secrets = references::volume_secrets(object).into_iter();
        let secrets: HashSet<Place> = secrets.map(|(n, s)| place(n, s)).collect();
        for secret in &secrets {
            self.locked.entry(secret.clone()).or_default().insert(name.into());
        }
        self.volumes.insert(name.into(), Volume { claim, secrets });
    }

    /// Forgets a volume.
    pub fn remove_volume(&mut self, name: &str) {
        let Some(volume) = self.volumes.remove(name) else { return };
        for secret in volume.secrets {
            let Some(volumes) = self.locked.get_mut(&secret) else { continue };
            volumes.remove(name);
            if volumes.is_empty() {
                self.locked.remove(&secret);
            }
        }
    }

    /// Forgets all pods.
    pub fn clear_pods(&mut self) {
        self.pods.clear();
        self.needed.clear();
    }

    /// Forgets all volumes.
    pub fn clear_volumes(&mut self) {
        self.volumes.clear();
        self.locked.clear();
    }

    /// Whether nothing is left in any part of it.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
            && self.needed.is_empty()
            && self.volumes.is_empty()
            && self.locked.is_empty()
    }
}

fn place(namespace: &str, name: &str) -> Place {
    (namespace.into(), name.into())
}

fn needs(namespace: &str, pod: &Value) -> BTreeSet<Need> {
    // A node makes mirror pods itself: they must not lead it anywhere.
    if references::is_mirror(pod) {
        return BTreeSet::new();
    }
    let mut needs = BTreeSet::new();
    let mut add = |what, name: &str| {
        if !name.is_empty() {
            needs.insert((what, place(namespace, name)));
        }
    };
    add(What::Account, text(pod, "/spec/serviceAccountName"));
    for name in references::secrets(pod) {
        add(What::Secret, name);
    }
    for name in references::config_maps(pod) {
        add(What::ConfigMap, name);
    }
    for volume in list(pod, "/spec/volumes") {
        add(What::Claim, references::claim(pod, volume).as_deref().unwrap_or_default());
    }
    for name in references::device_claims(pod) {
        add(What::DeviceClaim, name);
    }
    needs
}
