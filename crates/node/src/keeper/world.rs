//! What is known of the world as far as it concerns one volume, held while its files are made.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use zeroize::Zeroizing;

use super::machine::RESOURCES;
use super::needs;
use super::report::CertificateReport;
use crate::certificates::Certificates;
use crate::sources::bundles::View;
use crate::sources::objects::{Known, ObjectKind, Objects};
use crate::sources::tokens::Tokens;
use crate::volume::definition::Definition;
use crate::volume::id::{SourceId, VolumeId};
use crate::volume::plan::{Credential, Obtained, World};

/// Where things are known.
pub struct Sources<'a> {
    pub view: &'a Arc<View>,
    pub objects: &'a Objects,
    pub tokens: &'a Tokens,
    pub certificates: &'a Certificates,
}

/// What is known.
pub struct Gathered {
    pod: Option<Arc<Pod>>,
    view: Arc<View>,
    config_maps: BTreeMap<String, Option<Arc<ConfigMap>>>,
    secrets: BTreeMap<String, Option<Arc<Secret>>>,
    tokens: BTreeMap<usize, Obtained<Zeroizing<String>>>,
    certificates: BTreeMap<usize, Obtained<Credential>>,
    /// Why something is not known.
    pub reasons: Vec<String>,
}

impl Gathered {
    /// Gathers what a volume needs. Its ConfigMaps and Secrets are in this namespace.
    pub fn new(
        id: &VolumeId,
        definition: &Definition,
        pod: Option<Arc<Pod>>,
        namespace: &str,
        sources: &Sources<'_>,
    ) -> Self {
        let mut gathered = Self {
            view: sources.view.clone(),
            config_maps: BTreeMap::new(),
            secrets: BTreeMap::new(),
            tokens: BTreeMap::new(),
            certificates: BTreeMap::new(),
            reasons: Vec::new(),
            pod,
        };
        for object in needs::objects(definition, namespace) {
            let (name, objects) = (object.name, sources.objects);
            let why = match object.kind {
                ObjectKind::ConfigMap => {
                    let known = objects.config_map(namespace, &name);
                    note(&mut gathered.config_maps, name, known)
                }
                ObjectKind::Secret => {
                    let known = objects.secret(namespace, &name);
                    note(&mut gathered.secrets, name, known)
                }
            };
            gathered.reasons.extend(why);
        }
        let source = |index| SourceId { volume: id.clone(), index };
        // A machine has no service account.
        if gathered.pod.is_some() {
            let tokens = needs::tokens(definition);
            let tokens = tokens.map(|(index, _)| (index, sources.tokens.get(&source(index))));
            gathered.tokens = tokens.collect();
        }
        let pairs = needs::certificates(definition);
        let pairs = pairs.map(|(index, _)| (index, sources.certificates.get(&source(index))));
        gathered.certificates = pairs.collect();
        gathered
    }

    /// The certificates of a definition's sources that are at hand.
    pub fn certificates(&self, definition: &Definition) -> Vec<CertificateReport> {
        let sources = needs::certificates(definition);
        let reports = sources.filter_map(|(index, source)| match self.certificates.get(&index) {
            Some(Obtained::Is(credential)) => {
                CertificateReport::of_chain(&source.signer, credential.chain.as_bytes())
            }
            Some(Obtained::Not(_)) | None => None,
        });
        reports.collect()
    }

    /// It, for deciding.
    pub fn world(&self) -> World<'_> {
        World {
            pod: self.pod.as_deref(),
            allocatable: &RESOURCES,
            bundles: &self.view.bundles,
            config_maps: &self.config_maps,
            secrets: &self.secrets,
            tokens: &self.tokens,
            certificates: &self.certificates,
        }
    }
}

/// Remembers what is known, or says why nothing is.
fn note<T>(
    all: &mut BTreeMap<String, Option<Arc<T>>>,
    name: String,
    known: Known<T>,
) -> Option<String> {
    match known {
        Known::Unknown(why) => return why,
        Known::Absent => all.insert(name, None),
        Known::Is(object) => all.insert(name, Some(object)),
    };
    None
}
