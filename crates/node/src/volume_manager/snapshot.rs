//! Snapshot of everything that one volume depends on, held while its files are planned.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use zeroize::Zeroizing;

use super::dependencies;
use super::host_resources::RESOURCES;
use super::report::CertificateReport;
use crate::sources::bundles::BundleView;
use crate::sources::objects::{ObjectCache, ObjectKind, ObjectState};
use crate::sources::revocation_lists::RevocationListView;
use crate::sources::tokens::TokenManager;
use crate::volume::definition::VolumeDefinition;
use crate::volume::id::{SourceId, VolumeId};
use crate::volume::plan::{CredentialBundle, CredentialState, PlanInputs};
use crate::volume_certificates::VolumeCertificateManager;

/// The caches that a `VolumeSnapshot` is taken from.
pub struct SnapshotSources<'a> {
    pub view: &'a Arc<BundleView>,
    pub revocation_lists: &'a RevocationListView,
    pub objects: &'a ObjectCache,
    pub tokens: &'a TokenManager,
    pub certificates: &'a VolumeCertificateManager,
}

/// Everything that one volume depends on, fixed while it is planned and written.
pub struct VolumeSnapshot {
    pod: Option<Arc<Pod>>,
    view: Arc<BundleView>,
    revocation_lists: RevocationListView,
    config_maps: BTreeMap<String, Option<Arc<ConfigMap>>>,
    secrets: BTreeMap<String, Option<Arc<Secret>>>,
    tokens: BTreeMap<usize, CredentialState<Zeroizing<String>>>,
    certificates: BTreeMap<usize, CredentialState<CredentialBundle>>,
    /// Reasons why objects are not known.
    pub reasons: Vec<String>,
}

impl VolumeSnapshot {
    /// Takes a snapshot for a volume. Its ConfigMaps and Secrets are in this namespace.
    pub fn new(
        id: &VolumeId,
        definition: &VolumeDefinition,
        pod: Option<Arc<Pod>>,
        namespace: &str,
        sources: &SnapshotSources<'_>,
    ) -> Self {
        let mut snapshot = Self {
            view: sources.view.clone(),
            revocation_lists: sources.revocation_lists.clone(),
            config_maps: BTreeMap::new(),
            secrets: BTreeMap::new(),
            tokens: BTreeMap::new(),
            certificates: BTreeMap::new(),
            reasons: Vec::new(),
            pod,
        };
        for object in dependencies::objects(definition, namespace) {
            let (name, objects) = (object.name, sources.objects);
            let why = match object.kind {
                ObjectKind::ConfigMap => {
                    let known = objects.config_map(namespace, &name);
                    note(&mut snapshot.config_maps, name, known)
                }
                ObjectKind::Secret => {
                    let known = objects.secret(namespace, &name);
                    note(&mut snapshot.secrets, name, known)
                }
            };
            snapshot.reasons.extend(why);
        }
        let source = |index| SourceId { volume: id.clone(), index };
        // The host has no service account.
        if snapshot.pod.is_some() {
            let tokens = dependencies::tokens(definition);
            let tokens = tokens.map(|(index, _)| (index, sources.tokens.get(&source(index))));
            snapshot.tokens = tokens.collect();
        }
        let pairs = dependencies::certificates(definition);
        let pairs = pairs.map(|(index, _)| (index, sources.certificates.get(&source(index))));
        snapshot.certificates = pairs.collect();
        snapshot
    }

    /// Returns the available certificates of a definition's sources.
    pub fn certificates(&self, definition: &VolumeDefinition) -> Vec<CertificateReport> {
        let sources = dependencies::certificates(definition);
        let reports = sources.filter_map(|(index, source)| match self.certificates.get(&index) {
            Some(CredentialState::Available(credential)) => {
                CertificateReport::from_chain(&source.signer, credential.chain.as_bytes())
            }
            Some(CredentialState::Unavailable(_)) | None => None,
        });
        reports.collect()
    }

    /// Returns a borrowed view of the snapshot for `plan::decide`.
    pub fn plan_inputs(&self) -> PlanInputs<'_> {
        PlanInputs {
            pod: self.pod.as_deref(),
            allocatable: &RESOURCES,
            bundles: &self.view.bundles,
            revocation_lists: &self.revocation_lists,
            config_maps: &self.config_maps,
            secrets: &self.secrets,
            tokens: &self.tokens,
            certificates: &self.certificates,
        }
    }
}

/// Stores the state of an object, or the reason why it is unknown.
fn note<T>(
    all: &mut BTreeMap<String, Option<Arc<T>>>,
    name: String,
    known: ObjectState<T>,
) -> Option<String> {
    match known {
        ObjectState::Unknown(why) => return why,
        ObjectState::Absent => all.insert(name, None),
        ObjectState::Present(object) => all.insert(name, Some(object)),
    };
    None
}
