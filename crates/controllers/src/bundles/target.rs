//! Desired targets, comparison with existing ones, and the resulting action.
//!
//! Only the metadata of targets is read, and little of it is kept, because a Bundle may have many targets. The hash
//! identifies the input of the content; managed fields show that it has not been changed since, because a change takes
//! the field from its manager. Managed labels and annotations are compared with the desired ones, which trust-manager
//! does not do.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use aws_lc_rs::digest::{Context, SHA256};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::Value;
use windlass_api::trust_bundle::{
    BUNDLE_LABEL, Bundle, BundleMeta, FIELD_MANAGER, HASH_ANNOTATION, TargetMetadata,
};

use super::certificate_set::CertificateSet;
use super::hash::{encode_hex, target_hash};

/// Kind of a target object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TargetKind {
    /// One ConfigMap in each selected namespace.
    ConfigMap,
    /// One Secret in each selected namespace.
    Secret,
    /// One cluster-scoped ClusterTrustBundle for each Bundle.
    ClusterTrustBundle,
}

/// Desired targets of one kind, the same in every namespace.
#[derive(Clone, Debug)]
pub struct DesiredTarget {
    /// Kind of the target objects.
    pub kind: TargetKind,
    /// Name of the objects, the same in every namespace.
    pub name: String,
    /// Key of the PEM text in a ConfigMap or Secret.
    pub key: String,
    /// Signer name of a ClusterTrustBundle; `None` if it is not linked to a signer.
    pub signer: Option<String>,
    /// Labels to apply, including the Bundle label.
    pub labels: BTreeMap<String, String>,
    /// Annotations to apply, including the content hash.
    pub annotations: BTreeMap<String, String>,
    hash: [u8; 32],
    marks: ManagedDigests,
    problem: Option<&'static str>,
}

/// Cached metadata of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedTarget {
    /// Bundle name in the label.
    pub bundle: Option<Box<str>>,
    controller: Option<ControllerRef>,
    deleting: bool,
    hash: Option<[u8; 32]>,
    marks: ManagedDigests,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ControllerRef {
    uid: Box<str>,
    shown: Box<str>,
}

/// Digests of managed labels, annotations and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ManagedDigests {
    metadata: [u8; 16],
    keys: [u8; 16],
}

/// Desired state of a target.
#[derive(Clone, Copy, Debug)]
pub enum TargetIntent<'a> {
    /// The target should exist with this content.
    Wanted(&'a DesiredTarget),
    /// The target should no longer exist.
    Unwanted,
    /// The namespace is being deleted, so nothing is written or deleted.
    Ending,
}

/// Action on a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetAction {
    /// The target is up to date; do nothing.
    Leave,
    /// Apply the desired content, because of this drift.
    Write(DriftReason),
    /// Remove what was written; delete the object if nothing else is in it.
    Release,
    /// Delete the object, all of which belongs to the Bundle.
    Delete,
    /// The target cannot be written, for this reason.
    Blocked(String),
}

/// Reason for which a target is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriftReason {
    /// The target does not exist, or lacks the label.
    Missing,
    /// The owner reference was removed.
    Owner,
    /// The label names another Bundle.
    Label,
    /// The hash differs.
    Content,
    /// Labels or annotations differ.
    Metadata,
    /// Keys differ, or another manager changed one.
    Keys,
}

/// Computes the desired targets of a Bundle: one for each kind.
pub fn desired_targets(bundle: &Bundle, pool: &CertificateSet) -> Vec<DesiredTarget> {
    let Some(target) = &bundle.spec.target else { return Vec::new() };
    let name = &bundle.metadata.name;
    let formats = target.additional_formats.as_ref();
    let pem = pool.pem();
    let mut all = Vec::new();
    for (kind, template) in
        [(TargetKind::ConfigMap, &target.config_map), (TargetKind::Secret, &target.secret)]
    {
        let Some(template) = template else { continue };
        let metadata = template.metadata.as_ref();
        let hash = target_hash(&pem, formats, metadata);
        let keys = target.keys(&template.key).collect();
        all.push(DesiredTarget {
            key: template.key.clone(),
            ..DesiredTarget::new(kind, name, name.clone(), metadata, hash, keys)
        });
    }
    if let Some(template) = &target.cluster_trust_bundle {
        let (kind, metadata) = (TargetKind::ClusterTrustBundle, template.metadata.as_ref());
        let text = pool.authorities_pem();
        let hash = target_hash(&text, None, metadata);
        let signer = template.signer_name.clone().filter(|signer| !signer.is_empty());
        let keys = [Some("trustBundle"), signer.as_ref().map(|_| "signerName")];
        let keys = keys.into_iter().flatten().collect();
        all.push(DesiredTarget {
            signer,
            problem: text.is_empty().then_some("no CA certificate in bundle"),
            ..DesiredTarget::new(kind, name, template.object_name(name), metadata, hash, keys)
        });
    }
    all
}

/// Decides on one target of a Bundle. `found` is `None` if there is no object with the label of Bundles.
pub fn decide(
    owner: &BundleMeta,
    wish: TargetIntent<'_>,
    kind: TargetKind,
    found: Option<&ObservedTarget>,
) -> TargetAction {
    // The targets are deleted with their Bundle; a new one would block its deletion.
    if owner.deletion_timestamp.is_some() {
        return TargetAction::Leave;
    }
    match (wish, found) {
        (TargetIntent::Wanted(DesiredTarget { problem: Some(problem), .. }), _) => {
            TargetAction::Blocked((*problem).to_owned())
        }
        (TargetIntent::Wanted(_), None) => TargetAction::Write(DriftReason::Missing),
        // The object is being deleted and will be missing soon.
        (TargetIntent::Wanted(_), Some(found)) if found.deleting => TargetAction::Leave,
        (TargetIntent::Wanted(desired), Some(found)) => compare(owner, desired, found),
        (TargetIntent::Unwanted, Some(found)) if !found.deleting && found.belongs_to(owner) => {
            match kind {
                TargetKind::ConfigMap | TargetKind::Secret => TargetAction::Release,
                // The whole object belongs to the Bundle.
                TargetKind::ClusterTrustBundle => TargetAction::Delete,
            }
        }
        (TargetIntent::Unwanted | TargetIntent::Ending, _) => TargetAction::Leave,
    }
}

fn compare(owner: &BundleMeta, desired: &DesiredTarget, found: &ObservedTarget) -> TargetAction {
    let labelled = found.bundle.as_deref() == Some(owner.name.as_str());
    if let Some(why) = found.ownership_conflict(owner) {
        return TargetAction::Blocked(why);
    }
    if found.controller.is_none() {
        return TargetAction::Write(DriftReason::Owner);
    }
    if !labelled {
        TargetAction::Write(DriftReason::Label)
    } else if found.hash != Some(desired.hash) {
        TargetAction::Write(DriftReason::Content)
    } else if found.marks.keys != desired.marks.keys {
        TargetAction::Write(DriftReason::Keys)
    } else if found.marks.metadata != desired.marks.metadata {
        TargetAction::Write(DriftReason::Metadata)
    } else {
        TargetAction::Leave
    }
}

/// Message for an existing object that was not handed over to the Bundle.
fn conflict_message(bundle: &str) -> String {
    format!(
        "it exists and is not of this Bundle; delete it, or hand it over with the label \
         {BUNDLE_LABEL}={bundle}"
    )
}

impl DesiredTarget {
    fn new(
        kind: TargetKind,
        bundle: &str,
        name: String,
        metadata: Option<&TargetMetadata>,
        hash: [u8; 32],
        keys: BTreeSet<&str>,
    ) -> Self {
        let TargetMetadata { mut labels, mut annotations } = metadata.cloned().unwrap_or_default();
        labels.insert(BUNDLE_LABEL.to_owned(), bundle.to_owned());
        annotations.insert(HASH_ANNOTATION.to_owned(), encode_hex(&hash));
        let marks = ManagedDigests {
            metadata: short_digest(
                [&labels, &annotations]
                    .into_iter()
                    .map(|map| map.iter().flat_map(|(key, value)| [key.as_str(), value.as_str()])),
            ),
            keys: short_digest([keys.into_iter()].into_iter()),
        };
        let (key, signer, problem) = (String::new(), None, None);
        Self { kind, name, key, signer, labels, annotations, hash, marks, problem }
    }
}

impl ObservedTarget {
    /// Reads the metadata of a target.
    pub fn from_metadata(kind: TargetKind, metadata: &ObjectMeta) -> Self {
        let label = metadata.labels.as_ref().and_then(|labels| labels.get(BUNDLE_LABEL));
        let annotations = metadata.annotations.as_ref();
        let hash = annotations.and_then(|annotations| annotations.get(HASH_ANNOTATION));
        let controller = controller_of(metadata).map(|owner| ControllerRef {
            uid: owner.uid.as_str().into(),
            shown: format!("{} {}", owner.kind, owner.name).into(),
        });
        let managed = ["labels", "annotations"].map(|field| managed_fields(metadata, &["metadata", field]));
        let [labels, annotations] = managed;
        let labels = names_and_values(&labels, metadata.labels.as_ref());
        let annotations = names_and_values(&annotations, metadata.annotations.as_ref());
        let keys = managed_keys(kind, metadata);
        Self {
            bundle: label.map(|name| name.as_str().into()),
            controller,
            deleting: metadata.deletion_timestamp.is_some(),
            hash: hash.and_then(|hash| parse_hex(hash)),
            marks: ManagedDigests {
                metadata: short_digest([labels, annotations].into_iter().map(Vec::into_iter)),
                keys: short_digest([keys.iter().map(String::as_str)].into_iter()),
            },
        }
    }

    /// Whether the target belongs to this Bundle.
    pub fn belongs_to(&self, owner: &BundleMeta) -> bool {
        self.controller.as_ref().is_some_and(|controller| *controller.uid == *owner.uid)
    }

    /// Returns why a Bundle must not write the target; `None` if it may.
    pub fn ownership_conflict(&self, owner: &BundleMeta) -> Option<String> {
        let labelled = self.bundle.as_deref() == Some(owner.name.as_str());
        match &self.controller {
            Some(other) if *other.uid != *owner.uid => Some(format!("it is controlled by {}", other.shown)),
            Some(_) => None,
            // Its present owner has not handed it over.
            None => (!labelled).then(|| conflict_message(&owner.name)),
        }
    }

    /// Whether the target matches the desired one.
    pub fn is_current(&self, owner: &BundleMeta, desired: &DesiredTarget) -> bool {
        compare(owner, desired, self) == TargetAction::Leave
    }
}

pub(super) fn controller_of(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|owner| owner.controller == Some(true))
}

/// Lists the keys that Bundles have written.
pub(super) fn managed_keys(kind: TargetKind, metadata: &ObjectMeta) -> BTreeSet<String> {
    let fields: &[&str] = match kind {
        TargetKind::ConfigMap => &["data", "binaryData"],
        TargetKind::Secret => &["data"],
        TargetKind::ClusterTrustBundle => &["spec"],
    };
    let keys = fields.iter().flat_map(|field| managed_fields(metadata, &[field]));
    keys.map(str::to_owned).collect()
}

/// Lists the fields below a path that our field manager owns.
fn managed_fields<'a>(metadata: &'a ObjectMeta, path: &[&str]) -> BTreeSet<&'a str> {
    let entries = metadata.managed_fields.as_deref().unwrap_or_default().iter();
    let ours = entries.filter(|entry| {
        entry.manager.as_deref() == Some(FIELD_MANAGER)
            && entry.subresource.as_deref().unwrap_or_default().is_empty()
    });
    let fields = ours.filter_map(|entry| {
        let root = &entry.fields_v1.as_ref()?.0;
        path.iter().try_fold(root, |fields, name| fields.get(format!("f:{name}")))
    });
    let names = fields.filter_map(Value::as_object).flat_map(|fields| fields.keys());
    names.filter_map(|name| name.strip_prefix("f:")).collect()
}

/// Iterates over alternating names and values.
fn names_and_values<'a>(
    names: &BTreeSet<&'a str>,
    map: Option<&'a BTreeMap<String, String>>,
) -> Vec<&'a str> {
    let value = |name: &'a str| map.and_then(|map| map.get(name)).map_or("", String::as_str);
    names.iter().flat_map(|name| [*name, value(name)]).collect()
}

/// Computes a digest of lists of texts.
fn short_digest<'a, L: Iterator<Item = &'a str>>(lists: impl Iterator<Item = L>) -> [u8; 16] {
    let mut digest = Context::new(&SHA256);
    for list in lists {
        for text in list {
            digest.update(&text.len().to_be_bytes());
            digest.update(text.as_bytes());
        }
        digest.update(&usize::MAX.to_be_bytes());
    }
    let mut mark = [0; 16];
    for (to, from) in mark.iter_mut().zip(digest.finish().as_ref()) {
        *to = *from;
    }
    mark
}

/// Parses a number in hexadecimal digits.
fn parse_hex(hex: &str) -> Option<[u8; 32]> {
    let digits: Vec<u8> =
        hex.chars().map(|digit| digit.to_digit(16)?.try_into().ok()).collect::<Option<_>>()?;
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    let bytes: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
    bytes.try_into().ok()
}

impl fmt::Display for TargetKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
            Self::ClusterTrustBundle => "ClusterTrustBundle",
        })
    }
}

#[cfg(test)]
mod tests;
