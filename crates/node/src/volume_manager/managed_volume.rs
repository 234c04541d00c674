//! One volume: what it is to hold, what is known of it, and the two things that are done to it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use time::OffsetDateTime;
use zeroize::Zeroizing;

use super::dependencies::{self, SelectionState};
use super::pod_status::MountState;
use super::pod_volumes_root::PodVolumesRoot;
use super::report::{AnchorsReport, CertificateReport, DeliveredAnchors, VolumeReport};
use super::snapshot::VolumeSnapshot;
use crate::clock::Clock;
use crate::metrics::volumes::SourceType;
use crate::projections::HostProjection;
use crate::volume::definition::VolumeDefinition;
use crate::volume::plan::{BlockedReason, VolumeAction, VolumeReaders, decide};
use crate::volume::trust_anchors::Digest;
use crate::volume::writer::{VolumeWriter, WriteOutcome};

/// The object that defines the volume: a pod or a host projection.
#[derive(Clone)]
pub enum OwnerObject {
    Pod(Arc<Pod>),
    Host(Arc<HostProjection>),
}

/// The lifecycle stage of a managed volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeStage {
    /// It is not known what is on the disk.
    New,
    /// The disk was inspected and the volume is kept up to date.
    Kept,
    /// Its pod is going away, and it was never made: it is not begun any more.
    Dropped,
}

/// A volume that the loop manages, with everything known about it.
pub struct ManagedVolume {
    /// Tells it from one with the same name before it.
    pub serial: u64,
    pub owned: OwnerObject,
    /// What it is to hold, or what is wrong with it.
    pub definition: Result<Arc<VolumeDefinition>, BlockedReason>,
    pub readers: VolumeReaders,
    /// None if it cannot be anywhere.
    pub writer: Option<VolumeWriter>,
    pub stage: VolumeStage,
    /// When it was first heard of.
    pub since: Duration,
    /// Whether the volume was written at least once, also by an earlier process.
    pub ready: bool,
    /// Whether it was ever decided what is to be in it.
    pub decided: bool,
    /// Why its files are not what they should be.
    pub blocked: Option<BlockedReason>,
    /// What was written last, by this process.
    pub last: Option<LastWrite>,
    /// What its selections came to when it was last decided.
    pub seen: Vec<Arc<SelectionState>>,
    /// What the disk has of them.
    pub carried: Vec<Option<DeliveredAnchors>>,
    /// The certificates that the disk has.
    pub certificates: Vec<CertificateReport>,
    /// When its files last changed.
    pub changed: Option<OffsetDateTime>,
    /// How often the disk did not do it, one time after the other.
    pub failures: u32,
    /// Monotonic time of the next attempt after a disk error; `None` if none failed.
    pub retry_at: Option<Duration>,
    /// When to look whether somebody has damaged it.
    pub check_at: Duration,
    /// Whether it is time for that.
    pub check: bool,
    /// Whether it is to be worked on.
    pub queued: bool,
}

/// What was written last: what was decided, and the same with what was made from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastWrite {
    pub plain: Digest,
    pub whole: Digest,
}

/// What is found on the disk.
pub struct ExistingVolume {
    pub ready: bool,
    /// Tokens, by the place of their source.
    pub tokens: BTreeMap<usize, Zeroizing<String>>,
    pub certificates: Vec<CertificateReport>,
}

/// What is to be made.
pub struct VolumeWriteOrder {
    pub definition: Arc<VolumeDefinition>,
    pub readers: VolumeReaders,
    pub gathered: VolumeSnapshot,
    pub writer: VolumeWriter,
    pub projection: Option<Arc<HostProjection>>,
    pub ready: bool,
    /// What need not be written again.
    pub last: Option<LastWrite>,
    pub clock: Clock,
}

/// Result and duration of one attempt to write a volume.
pub struct VolumeWriteResult {
    pub outcome: Result<CompletedWrite, VolumeError>,
    pub took: Duration,
}

/// It is on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletedWrite {
    pub last: LastWrite,
    /// None if it was known without looking.
    pub written: Option<WriteOutcome>,
    /// The certificates in the files, for the volume report.
    pub certificates: Vec<CertificateReport>,
}

/// Why a volume could not be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeError {
    /// A source is missing or invalid; retried when it changes, not by time.
    Blocked(BlockedReason),
    /// The disk did not do it.
    Disk(String),
}

impl ManagedVolume {
    /// The definition, if it is one.
    pub fn valid_definition(&self) -> Option<&Arc<VolumeDefinition>> {
        self.definition.as_ref().ok().filter(|_| self.stage != VolumeStage::Dropped)
    }

    /// Where its ConfigMaps and Secrets are.
    pub fn namespace(&self) -> &str {
        match &self.owned {
            OwnerObject::Pod(pod) => pod.metadata.namespace.as_deref().unwrap_or_default(),
            OwnerObject::Host(projection) => &projection.namespace,
        }
    }

    /// What is known of it.
    pub fn report(&self) -> VolumeReport {
        let definition = self.definition.as_deref().ok();
        let carried = self.carried.iter().cloned().chain(std::iter::repeat(None));
        let anchors = definition.into_iter().flat_map(dependencies::bundle_sources).zip(carried);
        let anchors = anchors.map(|(source, carried)| AnchorsReport {
            select: source.select.clone(),
            optional: source.optional,
            path: source.path.as_str().to_owned(),
            carried,
        });
        VolumeReport {
            directory: self.writer.as_ref().map_or_else(PathBuf::new, |w| w.directory().to_owned()),
            sources: definition.map(sources).unwrap_or_default(),
            ready: self.ready,
            blocked: self.blocked.as_ref().map(ToString::to_string),
            changed: self.changed,
            anchors: anchors.collect(),
            certificates: self.certificates.clone(),
        }
    }

    /// What its pod is told. None if that is nothing.
    pub fn mount_state(&self, name: &str) -> Option<MountState> {
        let why = self.blocked.as_ref().map(|blocked| blocked.failed_mount(name));
        match why {
            _ if self.stage == VolumeStage::Dropped => None,
            Some(why) if self.ready => Some(MountState::Stale(why)),
            Some(why) => Some(MountState::Failed(why)),
            None if self.decided => Some(MountState::Ready),
            None => Some(MountState::Unknown),
        }
    }
}

/// What it is made of.
fn sources(definition: &VolumeDefinition) -> Vec<SourceType> {
    definition.sources.iter().map(|(_, source)| SourceType::from_source(source)).collect()
}

/// Looks what is on the disk since an earlier life of the process.
pub fn inspect(
    place: Option<&PodVolumesRoot>,
    writer: &VolumeWriter,
    definition: Option<&VolumeDefinition>,
) -> Result<ExistingVolume, String> {
    if let Some(place) = place {
        place.prepare().map_err(|error| error.to_string())?;
    }
    let found = writer.read().map_err(|error| error.to_string())?;
    let mut tokens = BTreeMap::new();
    for (index, source) in definition.into_iter().flat_map(dependencies::tokens) {
        let file = found.as_ref().and_then(|found| found.get(&source.path));
        if let Some(text) = file.and_then(|file| std::str::from_utf8(&file.bytes).ok()) {
            tokens.insert(index, Zeroizing::new(text.to_owned()));
        }
    }
    let certificates = definition.into_iter().flat_map(dependencies::certificates);
    let certificates = certificates.filter_map(|(_, source)| {
        let path = source.chain.as_ref().or(source.bundle.as_ref())?;
        let file = found.as_ref().and_then(|found| found.get(path))?;
        CertificateReport::from_chain(&source.signer, &file.bytes)
    });
    let certificates = certificates.collect();
    Ok(ExistingVolume { ready: found.is_some(), tokens, certificates })
}

/// Decides what is to be in it, and writes that.
pub fn write(order: &VolumeWriteOrder) -> VolumeWriteResult {
    let began = (order.clock)().since;
    let outcome = try_write(order);
    let took = (order.clock)().since.saturating_sub(began);
    VolumeWriteResult { outcome, took }
}

fn try_write(order: &VolumeWriteOrder) -> Result<CompletedWrite, VolumeError> {
    let world = order.gathered.plan_inputs();
    let payload = match decide(&order.definition, order.readers, &world, order.ready) {
        VolumeAction::Write(payload) => payload,
        VolumeAction::Keep(mut blocked) | VolumeAction::Wait(mut blocked) => {
            blocked.0.extend(order.gathered.reasons.iter().cloned());
            return Err(VolumeError::Blocked(blocked));
        }
    };
    let plain = payload.digest();
    let certificates = order.gathered.certificates(&order.definition);
    if let Some(last) = order.last.filter(|last| last.plain == plain) {
        return Ok(CompletedWrite { last, written: None, certificates });
    }
    let (payload, whole) = match &order.projection {
        None => (payload, plain),
        Some(projection) => {
            let payload = projection.finish(payload).map_err(VolumeError::Blocked)?;
            let whole = payload.digest();
            (payload, whole)
        }
    };
    let written = order.writer.write(&payload, (order.clock)().wall);
    let written = written.map_err(|error| VolumeError::Disk(error.to_string()))?;
    Ok(CompletedWrite { last: LastWrite { plain, whole }, written: Some(written), certificates })
}
