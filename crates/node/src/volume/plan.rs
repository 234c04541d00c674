//! Computes the files of a volume from its definition and the known state of its sources.
//!
//! It is pure: the same arguments give the same bytes. The caller runs it again whenever an
//! argument changes, and passes the files to the [`VolumeWriter`](super::writer::VolumeWriter),
//! which detects that nothing changed.

mod downward;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use windlass_pki::pem;
use zeroize::Zeroizing;

use super::definition::{
    BundleSource, CertificateSource, ObjectItem, ObjectSource, ProjectedSource, RevocationListFormat,
    RevocationListSource, TokenSource, VolumeDefinition,
};
use super::path::VolumePath;
use super::payload::{PayloadFile, VolumePayload};
use super::revocation_lists::RevocationListIndex;
use super::trust_anchors::TrustBundleIndex;

/// Mode of credentials with a dedicated reader.
const PRIVATE: u32 = 0o600;

/// Known state of everything that one volume depends on.
pub struct PlanInputs<'a> {
    /// The pod that owns the volume; `None` for host projections.
    pub pod: Option<&'a Pod>,
    /// Allocatable resources of the node, the default limits of containers without limits.
    pub allocatable: &'a BTreeMap<String, String>,
    /// The ClusterTrustBundles, or why they are not available.
    pub bundles: &'a OptionalApi<TrustBundleIndex>,
    /// The CertificateRevocationLists, or why they are not available.
    pub revocation_lists: &'a OptionalApi<RevocationListIndex>,
    /// ConfigMaps of the pod's namespace by name; missing entries are not known yet.
    pub config_maps: &'a BTreeMap<String, Option<Arc<ConfigMap>>>,
    /// Secrets of the pod's namespace by name; missing entries are not known yet.
    pub secrets: &'a BTreeMap<String, Option<Arc<Secret>>>,
    /// Tokens by the index of their source.
    pub tokens: &'a BTreeMap<usize, CredentialState<Zeroizing<String>>>,
    /// Certificates and their keys by the index of their source.
    pub certificates: &'a BTreeMap<usize, CredentialState<CredentialBundle>>,
}

/// State of an API that not every server serves.
#[derive(Clone, Debug)]
pub enum OptionalApi<T> {
    /// The feature gate of this agent is off.
    Off,
    /// The server does not serve this API.
    Missing,
    /// The first list is not complete yet.
    Unsynced,
    /// The API is served, and this is its complete content.
    Synced(T),
}

/// State of a requested credential.
#[derive(Clone)]
pub enum CredentialState<T> {
    /// Not available, for this reason.
    Unavailable(String),
    /// Available. The old credential stays while a newer one is requested or refused.
    Available(T),
}

/// A private key and its certificate chain.
#[derive(Clone)]
pub struct CredentialBundle {
    /// The private key as PKCS#8 PEM; wiped when dropped.
    pub key: Zeroizing<String>,
    /// The certificate and its intermediates as PEM, leaf first.
    pub chain: String,
}

/// User and group that read the files of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeReaders {
    /// The user that all containers of the pod run as, if they share one.
    pub user: Option<u32>,
    /// Group of the pod's volumes (`fsGroup`).
    pub group: Option<u32>,
}

/// Why a volume has no files. Displayed, it is kubelet's message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", aggregate(.0.iter().cloned()))]
pub struct BlockedReason(pub Vec<String>);

/// Action to take for a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeAction {
    /// Write these files; they replace all files of the volume.
    Write(VolumePayload),
    /// Keep the last good files, and report why.
    Keep(BlockedReason),
    /// There are no files yet; the pod waits and its condition states the reason.
    Wait(BlockedReason),
}

impl VolumeReaders {
    /// Returns the `runAsUser` that all containers share, and the pod's `fsGroup`.
    pub fn from_pod(pod: &Pod) -> Self {
        let Some(spec) = &pod.spec else { return Self::default() };
        let whole = spec.security_context.as_ref();
        let group = whole.and_then(|context| context.fs_group);
        let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
        let users = containers.map(|container| {
            let own = container.security_context.as_ref().and_then(|context| context.run_as_user);
            own.or(whole.and_then(|context| context.run_as_user))
        });
        // All containers must set it, to the same value.
        let users = users.collect::<Option<Vec<_>>>().unwrap_or_default();
        let same = users.first().filter(|first| users.iter().all(|user| user == *first));
        let id = |id: i64| u32::try_from(id).ok();
        Self { user: same.copied().and_then(id), group: group.and_then(id) }
    }
}

impl BlockedReason {
    /// Returns the message of the `FailedMount` event.
    pub fn failed_mount(&self, volume: &str) -> String {
        format!("MountVolume.SetUp failed for volume {volume:?} : {self}")
    }
}

impl<T> fmt::Debug for CredentialState<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(why) => f.debug_tuple("Not").field(why).finish(),
            Self::Available(_) => f.write_str("Is(…)"),
        }
    }
}

/// Decides the action for a volume. `was_ready` is whether it ever had files, written by this or an
/// earlier process.
pub fn decide(
    definition: &VolumeDefinition,
    readers: VolumeReaders,
    world: &PlanInputs<'_>,
    was_ready: bool,
) -> VolumeAction {
    match plan(definition, readers, world) {
        Ok(payload) => VolumeAction::Write(payload),
        Err(blocked) if was_ready => VolumeAction::Keep(blocked),
        Err(blocked) => VolumeAction::Wait(blocked),
    }
}

/// Computes the files of a volume, or returns everything that blocks them.
pub fn plan(
    definition: &VolumeDefinition,
    readers: VolumeReaders,
    world: &PlanInputs<'_>,
) -> Result<VolumePayload, BlockedReason> {
    let mut planner = PayloadPlanner {
        default_mode: definition.default_mode,
        readers,
        world,
        payload: VolumePayload::new(readers.group),
    };
    let mut reasons = Vec::new();
    for (index, source) in &definition.sources {
        let planned = match source {
            ProjectedSource::Bundle(bundle) => planner.bundle(bundle),
            ProjectedSource::Certificate(certificate) => planner.certificate(certificate, *index),
            ProjectedSource::ConfigMap(map) => planner.config_map(map),
            ProjectedSource::Secret(secret) => planner.secret(secret),
            ProjectedSource::Token(token) => planner.token(token, *index),
            ProjectedSource::Downward(files) => planner.downward(files),
            ProjectedSource::RevocationLists(lists) => planner.revocation_lists(lists),
        };
        reasons.extend(planned.err().into_iter().flat_map(|blocked| blocked.0));
    }
    if reasons.is_empty() { Ok(planner.payload) } else { Err(BlockedReason(reasons)) }
}

/// Formats several errors like Go: without duplicates, in brackets if there is more than one.
pub(super) fn aggregate(errors: impl Iterator<Item = String>) -> String {
    let mut all = Vec::new();
    for error in errors {
        if !all.contains(&error) {
            all.push(error);
        }
    }
    match all.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

struct PayloadPlanner<'a> {
    default_mode: u32,
    readers: VolumeReaders,
    world: &'a PlanInputs<'a>,
    payload: VolumePayload,
}

impl PayloadPlanner<'_> {
    fn bundle(&mut self, source: &BundleSource) -> Result<(), BlockedReason> {
        let bundles = match self.world.bundles {
            OptionalApi::Off => {
                let gate = "the feature gate ClusterTrustBundleProjection is off";
                return Err(blocked(format!("ClusterTrustBundle projection: {gate}")));
            }
            OptionalApi::Missing => {
                let missing = "the server does not serve clustertrustbundles.certificates.k8s.io";
                return Err(blocked(format!("ClusterTrustBundle projection: {missing}")));
            }
            OptionalApi::Unsynced => {
                return Err(blocked("ClusterTrustBundle informer has not yet synced"));
            }
            OptionalApi::Synced(bundles) => bundles,
        };
        let anchors = bundles.anchors(&source.select, source.optional);
        let anchors = anchors.map_err(|error| blocked(error.to_string()))?;
        self.credential(&source.path, anchors.to_pem().into_bytes(), source.owner)
    }

    fn revocation_lists(&mut self, source: &RevocationListSource) -> Result<(), BlockedReason> {
        let lists = match self.world.revocation_lists {
            OptionalApi::Off | OptionalApi::Unsynced => {
                return Err(blocked("CertificateRevocationLists are not yet synced"));
            }
            OptionalApi::Missing => {
                return Err(blocked("the server does not serve certificaterevocationlists.windlass.dev"));
            }
            OptionalApi::Synced(lists) => lists.lists_of(&source.signer).collect::<Vec<_>>(),
        };
        if lists.is_empty() && !source.optional {
            return Err(blocked(format!("signer {} has no CertificateRevocationList", source.signer)));
        }
        match source.format {
            RevocationListFormat::Pem => {
                let blocks = lists.iter().map(|(_, list)| pem::encode(pem::X509_CRL, &list.der));
                let text = blocks.map(|block| block.as_str().to_owned()).collect::<String>();
                self.credential(&source.path, text.into_bytes(), None)
            }
            RevocationListFormat::Der => lists.iter().try_for_each(|(authority, list)| {
                let path = VolumePath::parse(&format!("{}/{authority}.crl", source.path.as_str()));
                let path = path.map_err(|error| blocked(error.to_string()))?;
                self.credential(&path, list.der.clone(), None)
            }),
        }
    }

    fn certificate(&mut self, source: &CertificateSource, index: usize) -> Result<(), BlockedReason> {
        let pair = match self.world.certificates.get(&index) {
            Some(CredentialState::Available(pair)) => pair,
            Some(CredentialState::Unavailable(why)) => return Err(blocked(why.clone())),
            None => return Err(blocked("no credentials yet")),
        };
        let (key, chain) = (pair.key.as_bytes(), pair.chain.as_bytes());
        let files =
            [(&source.bundle, [key, chain]), (&source.key, [key, b""]), (&source.chain, [b"", chain])];
        for (path, contents) in files {
            if let Some(path) = path {
                self.credential(path, contents.concat(), source.owner)?;
            }
        }
        Ok(())
    }

    fn token(&mut self, source: &TokenSource, index: usize) -> Result<(), BlockedReason> {
        match self.world.tokens.get(&index) {
            Some(CredentialState::Available(token)) => {
                self.credential(&source.path, token.as_bytes().to_vec(), source.owner)
            }
            Some(CredentialState::Unavailable(why)) => Err(blocked(why.clone())),
            None => Err(blocked("failed to fetch token: not yet requested")),
        }
    }

    fn config_map(&mut self, source: &ObjectSource) -> Result<(), BlockedReason> {
        let map = lookup("configmap", &source.name, self.world.config_maps)?;
        if map.is_none() && !source.optional {
            return Err(blocked(format!("configmap {:?} not found", source.name)));
        }
        let mut contents = BTreeMap::new();
        if let Some(map) = map {
            let binary = map.binary_data.iter().flatten();
            contents.extend(binary.map(|(key, ByteString(value))| (key, value.as_slice())));
            let text = map.data.iter().flatten();
            contents.extend(text.map(|(key, value)| (key, value.as_bytes())));
        }
        self.object(source, &contents, "configmap references non-existent config key")
    }

    fn secret(&mut self, source: &ObjectSource) -> Result<(), BlockedReason> {
        let secret = lookup("secret", &source.name, self.world.secrets)?;
        if secret.is_none() && !source.optional {
            return Err(blocked(format!("secret {:?} not found", source.name)));
        }
        let data = secret.and_then(|secret| secret.data.as_ref()).into_iter().flatten();
        let contents = data.map(|(key, ByteString(value))| (key, value.as_slice())).collect();
        self.object(source, &contents, "references non-existent secret key")
    }

    fn object(
        &mut self,
        source: &ObjectSource,
        contents: &BTreeMap<&String, &[u8]>,
        missing: &str,
    ) -> Result<(), BlockedReason> {
        if source.items.is_empty() {
            for (key, value) in contents {
                let path = VolumePath::parse(key).map_err(|error| blocked(error.to_string()))?;
                self.plain(&path, value.to_vec(), None, source.owner)?;
            }
        }
        for ObjectItem { key, path, mode, owner } in &source.items {
            match contents.get(key) {
                Some(value) => self.plain(path, value.to_vec(), *mode, *owner)?,
                None if source.optional => {}
                None => return Err(blocked(format!("{missing}: {key}"))),
            }
        }
        Ok(())
    }

    /// Adds a credential file, readable only by the pod's single user, if there is one, and its
    /// group.
    fn credential(
        &mut self,
        path: &VolumePath,
        bytes: Vec<u8>,
        owner: Option<u32>,
    ) -> Result<(), BlockedReason> {
        let narrow = self.readers.user.is_some() || self.readers.group.is_some();
        let mode = if narrow { PRIVATE } else { self.default_mode };
        self.add(path, bytes, mode, owner.or(self.readers.user))
    }

    /// Adds a file with the mode that the volume defines.
    fn plain(
        &mut self,
        path: &VolumePath,
        bytes: Vec<u8>,
        mode: Option<u32>,
        owner: Option<u32>,
    ) -> Result<(), BlockedReason> {
        self.add(path, bytes, mode.unwrap_or(self.default_mode), owner)
    }

    fn add(
        &mut self,
        path: &VolumePath,
        bytes: Vec<u8>,
        mode: u32,
        owner: Option<u32>,
    ) -> Result<(), BlockedReason> {
        let file = PayloadFile { bytes: Zeroizing::new(bytes), mode, owner };
        let added = self.payload.add(path.clone(), file);
        added.map_err(|error| blocked(error.to_string()))
    }
}

/// Looks up an object; fails if it is not known whether it exists.
fn lookup<'a, T>(
    kind: &str,
    name: &str,
    known: &'a BTreeMap<String, Option<Arc<T>>>,
) -> Result<Option<&'a T>, BlockedReason> {
    let unknown = || blocked(format!("failed to sync {kind} cache: timed out waiting for the condition"));
    known.get(name).map(|object| object.as_deref()).ok_or_else(unknown)
}

fn blocked(why: impl Into<String>) -> BlockedReason {
    BlockedReason(vec![why.into()])
}
