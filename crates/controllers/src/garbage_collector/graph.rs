//! Owner graph: a compact index of all objects, maintained by watches.
//!
//! It may lag behind the server, so it only selects candidates for deletion. Most objects have neither owners nor
//! dependents: of those it keeps the UID, the kind and a hash of the name.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use kube::api::ObjectMeta;

use super::decision::{DependentState, ObjectState};
use super::executor;
use crate::api_catalog::ServedResource;
use crate::uid::ObjectUid;

/// Index of a watched kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KindId(u16);

/// Objects with their owners and dependents.
#[derive(Debug)]
pub struct OwnerGraph {
    kinds: Vec<KindSlot>,
    nodes: HashMap<ObjectUid, GraphNode>,
    /// Objects that reference a UID as their owner, whether or not that owner exists.
    dependents: HashMap<ObjectUid, HashSet<ObjectUid>>,
    hasher: RandomState,
}

/// A kind that is watched or was watched.
#[derive(Debug)]
struct KindSlot {
    resource: Arc<ServedResource>,
    live: bool,
    listed: bool,
    round: u8,
}

#[derive(Debug)]
struct GraphNode {
    kind: KindId,
    /// Number of the last list that contained the object.
    round: u8,
    /// Hash of group, kind, namespace and name.
    identity: u64,
    /// Present for objects with owners or with a finalizer of the garbage collector.
    tie: Option<Box<NodeDetails>>,
}

#[derive(Debug)]
struct NodeDetails {
    namespace: Box<str>,
    name: Box<str>,
    owners: Box<[OwnerLink]>,
    /// The object waits for its dependents to be orphaned or deleted.
    duty: Option<PendingFinalizer>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PendingFinalizer {
    Orphan,
    Foreground,
}

#[derive(Debug, PartialEq, Eq)]
struct OwnerLink {
    uid: ObjectUid,
    blocks: bool,
    /// Expected identity of the owner: in the object's namespace, or cluster-scoped.
    identities: [u64; 2],
}

/// Resource, namespace and name of an object.
#[derive(Clone, Debug)]
pub struct ObjectLocation {
    /// Resource of the object, for API requests.
    pub resource: Arc<ServedResource>,
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// Name of the object, unique within its namespace.
    pub name: String,
}

impl OwnerGraph {
    /// Creates a graph without kinds or objects.
    pub fn new() -> OwnerGraph {
        OwnerGraph {
            kinds: Vec::new(),
            nodes: HashMap::new(),
            dependents: HashMap::new(),
            hasher: RandomState::new(),
        }
    }

    /// Sets the served kinds. Returns those to start and those to stop watching. A kind of a group version whose
    /// discovery failed is kept.
    pub fn set_kinds(
        &mut self,
        wanted: &[Arc<ServedResource>],
        failures: &BTreeMap<String, String>,
    ) -> (Vec<(KindId, Arc<ServedResource>)>, Vec<KindId>) {
        let mut gone = Vec::new();
        for (slot, number) in self.kinds.iter_mut().zip(0..) {
            let kept =
                wanted.contains(&slot.resource) || failures.contains_key(&slot.resource.api.api_version);
            if slot.live && !kept {
                slot.live = false;
                gone.push(KindId(number));
            }
        }
        let mut new = Vec::new();
        for resource in wanted {
            if self.kinds.iter().any(|slot| slot.live && slot.resource == *resource) {
                continue;
            }
            let slot = KindSlot { resource: resource.clone(), live: true, listed: false, round: 0 };
            // Indexes are not reused: a watch that is ending may still use an old one.
            let Ok(number) = u16::try_from(self.kinds.len()) else { break };
            self.kinds.push(slot);
            new.push((KindId(number), resource.clone()));
        }
        (new, gone)
    }

    /// Removes all objects of a kind that is not watched any more. Returns the affected objects.
    pub fn remove_kind(&mut self, kind: KindId) -> Vec<ObjectUid> {
        self.remove_where(|node| node.kind == kind)
    }

    /// Finds a kind that was not listed yet. Without kinds nothing is known at all.
    pub fn first_unlisted_kind(&self) -> Option<String> {
        let mut live = self.kinds.iter().filter(|slot| slot.live).peekable();
        if live.peek().is_none() {
            return Some("anything".to_owned());
        }
        live.find(|slot| !slot.listed).map(|slot| slot.resource.api.plural.clone())
    }

    pub fn begin_listing(&mut self, kind: KindId) {
        if let Some(slot) = self.kinds.get_mut(usize::from(kind.0)) {
            slot.round = slot.round.wrapping_add(1);
        }
    }

    /// Completes a list of a kind and removes the objects that it did not contain. Returns the affected objects.
    pub fn finish_listing(&mut self, kind: KindId) -> Vec<ObjectUid> {
        let Some(slot) = self.kinds.get_mut(usize::from(kind.0)) else { return Vec::new() };
        slot.listed = true;
        let round = slot.round;
        self.remove_where(|node| node.kind == kind && node.round != round)
    }

    fn remove_where(&mut self, which: impl Fn(&GraphNode) -> bool) -> Vec<ObjectUid> {
        let gone = self.nodes.iter().filter(|(_, node)| which(node));
        let gone: Vec<ObjectUid> = gone.map(|(uid, _)| uid.clone()).collect();
        gone.iter().flat_map(|uid| self.remove(uid)).collect()
    }

    /// Adds or updates an object. Returns the objects to reconcile.
    pub fn observe(&mut self, kind: KindId, meta: &ObjectMeta) -> Vec<ObjectUid> {
        let Some(slot) = self.kinds.get(usize::from(kind.0)).filter(|slot| slot.live) else {
            return Vec::new();
        };
        let uid = ObjectUid::from(meta.uid.as_deref().unwrap_or_default());
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let name = meta.name.as_deref().unwrap_or_default();
        let api = &slot.resource.api;
        let identity = self.hasher.hash_one((&*api.group, &*api.kind, namespace, name));
        let node = GraphNode { kind, round: slot.round, identity, tie: self.build_details(meta) };
        let old = self.nodes.insert(uid.clone(), node);
        let mut affected = self.relink(&uid, old.as_ref());
        let Some(tie) = self.nodes.get(&uid).and_then(|node| node.tie.as_deref()) else {
            return affected;
        };
        if tie.duty == Some(PendingFinalizer::Foreground)
            && old.as_ref().and_then(pending_finalizer) != tie.duty
        {
            affected.extend(self.dependents.get(&uid).into_iter().flatten().cloned());
        }
        if tie.duty.is_some() || self.has_suspect_owner(tie) {
            affected.push(uid);
        }
        affected
    }

    fn build_details(&self, meta: &ObjectMeta) -> Option<Box<NodeDetails>> {
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let references = meta.owner_references.iter().flatten();
        let owners: Box<[OwnerLink]> = references
            .map(|owner| {
                let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
                let identity =
                    |namespace: &str| self.hasher.hash_one((group, &*owner.kind, namespace, &*owner.name));
                OwnerLink {
                    uid: ObjectUid::from(&*owner.uid),
                    blocks: owner.block_owner_deletion == Some(true),
                    identities: [identity(namespace), identity("")],
                }
            })
            .collect();
        let duty = match executor::object_state(meta) {
            ObjectState { deleting: true, orphan: true, .. } => Some(PendingFinalizer::Orphan),
            ObjectState { deleting: true, foreground: true, .. } => Some(PendingFinalizer::Foreground),
            _ => None,
        };
        if owners.is_empty() && duty.is_none() {
            return None;
        }
        let name = meta.name.as_deref().unwrap_or_default();
        Some(Box::new(NodeDetails { namespace: namespace.into(), name: name.into(), owners, duty }))
    }

    /// Updates the dependents of the owners. Returns the owners that need not wait for the object any more.
    fn relink(&mut self, uid: &ObjectUid, old: Option<&GraphNode>) -> Vec<ObjectUid> {
        let before = old.and_then(|node| node.tie.as_deref()).map_or(&[][..], |tie| &tie.owners);
        let now = self.nodes.get(uid).and_then(|node| node.tie.as_deref());
        let now = now.map_or(&[][..], |tie| &tie.owners);
        if before == now {
            return Vec::new();
        }
        let uids: HashSet<ObjectUid> = now.iter().map(|owner| owner.uid.clone()).collect();
        let mut freed = Vec::new();
        for owner in before {
            if self.nodes.get(&owner.uid).and_then(pending_finalizer) == Some(PendingFinalizer::Foreground) {
                freed.push(owner.uid.clone());
            }
            if !uids.contains(&owner.uid) {
                self.unlink(&owner.uid, uid);
            }
        }
        for owner in uids {
            self.dependents.entry(owner).or_default().insert(uid.clone());
        }
        freed
    }

    fn unlink(&mut self, owner: &ObjectUid, dependent: &ObjectUid) {
        if let Some(list) = self.dependents.get_mut(owner) {
            list.remove(dependent);
            if list.is_empty() {
                self.dependents.remove(owner);
            }
        }
    }

    /// Whether an owner of the object is missing, has another identity, or waits for its dependents.
    fn has_suspect_owner(&self, tie: &NodeDetails) -> bool {
        tie.owners.iter().any(|owner| match self.nodes.get(&owner.uid) {
            None => true,
            Some(node) => {
                !owner.identities.contains(&node.identity)
                    || pending_finalizer(node) == Some(PendingFinalizer::Foreground)
            }
        })
    }

    pub fn remove(&mut self, uid: &ObjectUid) -> Vec<ObjectUid> {
        let mut affected: Vec<ObjectUid> = self.dependents.get(uid).into_iter().flatten().cloned().collect();
        let old = self.nodes.remove(uid);
        affected.extend(self.relink(uid, old.as_ref()));
        affected
    }

    /// Lists all candidates for deletion.
    pub fn suspects(&self) -> Vec<ObjectUid> {
        let ties = self.nodes.iter().filter_map(|(uid, node)| Some((uid, node.tie.as_deref()?)));
        let suspects = ties.filter(|(_, tie)| tie.duty.is_some() || self.has_suspect_owner(tie));
        suspects.map(|(uid, _)| uid.clone()).collect()
    }

    /// Returns the location of an object; `None` if it is gone, or has neither owners nor dependents.
    pub fn location(&self, uid: &ObjectUid) -> Option<ObjectLocation> {
        let node = self.nodes.get(uid)?;
        let tie = node.tie.as_deref()?;
        let slot = self.kinds.get(usize::from(node.kind.0))?;
        Some(ObjectLocation {
            resource: slot.resource.clone(),
            namespace: tie.namespace.to_string(),
            name: tie.name.to_string(),
        })
    }

    /// Lists the objects that reference this one as their owner.
    pub fn dependents(&self, uid: &ObjectUid) -> Vec<(ObjectUid, DependentState)> {
        // An object that references itself does not wait for itself.
        let uids = self.dependents.get(uid).into_iter().flatten().filter(|other| *other != uid);
        let found = uids.filter_map(|dependent| {
            let tie = self.nodes.get(dependent)?.tie.as_deref()?;
            let mut links = tie.owners.iter().filter(|owner| owner.uid == *uid);
            let blocks = links.any(|owner| owner.blocks);
            let waiting = tie.duty == Some(PendingFinalizer::Foreground);
            Some((dependent.clone(), DependentState { blocks, waiting }))
        });
        found.collect()
    }

    /// Lists the resources that are watched.
    pub fn resources(&self) -> Vec<Arc<ServedResource>> {
        let live = self.kinds.iter().filter(|slot| slot.live);
        live.map(|slot| slot.resource.clone()).collect()
    }
}

fn pending_finalizer(node: &GraphNode) -> Option<PendingFinalizer> {
    node.tie.as_deref().and_then(|tie| tie.duty)
}
