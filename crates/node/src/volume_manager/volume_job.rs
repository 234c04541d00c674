//! The two blocking jobs on a volume: inspect its directory, and plan and write its files.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use zeroize::Zeroizing;

use super::dependencies;
use super::pod_volumes_root::PodVolumesRoot;
use super::report::CertificateReport;
use super::selections::SelectionState;
use super::snapshot::VolumeSnapshot;
use super::volume_state::LastWrite;
use crate::clock::Clock;
use crate::projections::HostProjection;
use crate::read_observer::{AnchorFiles, ReadObserver};
use crate::sources::bundles::BundleView;
use crate::volume::definition::VolumeDefinition;
use crate::volume::id::VolumeId;
use crate::volume::payload::VolumePayload;
use crate::volume::plan::{BlockedReason, VolumeAction, VolumeReaders, decide};
use crate::volume::writer::{VolumeWriter, WriteOutcome};
use windlass_runtime::durable::DiskError;

/// An inspection of what an earlier process left.
pub struct VolumeInspection {
    pub id: VolumeId,
    pub reads: Arc<ReadObserver>,
    pub writer: VolumeWriter,
    /// The directory of all pods, which is prepared first; `None` for volumes of the host.
    pub root: Option<Arc<PodVolumesRoot>>,
    /// `None` if the definition is invalid: then only the presence of files matters.
    pub definition: Option<Arc<VolumeDefinition>>,
}

/// Files found by a [`VolumeInspection`].
pub struct ExistingFiles {
    /// Service account tokens, by the index of their source.
    pub tokens: BTreeMap<usize, Zeroizing<String>>,
    pub certificates: Vec<CertificateReport>,
}

/// A volume to be planned and written.
pub struct VolumeWriteOrder {
    pub id: VolumeId,
    pub reads: Arc<ReadObserver>,
    pub definition: Arc<VolumeDefinition>,
    pub readers: VolumeReaders,
    pub snapshot: VolumeSnapshot,
    pub writer: VolumeWriter,
    pub projection: Option<Arc<HostProjection>>,
    /// Whether the volume has files.
    pub ready: bool,
    /// The last write; if the same is planned again, the disk is not touched.
    pub last_write: Option<LastWrite>,
    pub selections: Vec<Arc<SelectionState>>,
    pub view: Arc<BundleView>,
    pub clock: Clock,
}

/// Result and duration of one attempt to write a volume, with the bundles it was planned from.
pub struct VolumeWriteResult {
    pub outcome: Result<CompletedWrite, VolumeError>,
    pub took: Duration,
    pub selections: Vec<Arc<SelectionState>>,
    pub view: Arc<BundleView>,
}

/// The planned files are on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletedWrite {
    pub last_write: LastWrite,
    /// `None` if the disk was not touched.
    pub outcome: Option<WriteOutcome>,
    pub certificates: Vec<CertificateReport>,
}

/// Why a volume could not be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeError {
    /// A source is missing or invalid; retried when it changes, not by time.
    Blocked(BlockedReason),
    /// A disk operation failed.
    Disk(String),
}

impl VolumeInspection {
    /// Reads the volume; `None` if it was never written.
    pub fn run(self) -> Result<Option<ExistingFiles>, String> {
        if let Some(root) = &self.root {
            root.prepare().map_err(|error| error.to_string())?;
        }
        let own_reads = self.reads.own_reads(&self.id);
        let payload = self.writer.read().map_err(|error| error.to_string())?;
        drop(own_reads);
        let Some(payload) = payload else { return Ok(None) };
        let definition = self.definition.as_deref();
        let mut tokens = BTreeMap::new();
        for (index, source) in definition.into_iter().flat_map(dependencies::tokens) {
            let file = payload.get(&source.path);
            if let Some(text) = file.and_then(|file| std::str::from_utf8(&file.bytes).ok()) {
                tokens.insert(index, Zeroizing::new(text.to_owned()));
            }
        }
        let certificates = definition.into_iter().flat_map(dependencies::certificates);
        let certificates = certificates.filter_map(|(_, source)| {
            let path = source.chain.as_ref().or(source.bundle.as_ref())?;
            CertificateReport::from_chain(&source.signer, &payload.get(path)?.bytes)
        });
        Ok(Some(ExistingFiles { tokens, certificates: certificates.collect() }))
    }
}

impl VolumeWriteOrder {
    /// Plans the files and writes them.
    pub fn run(self) -> VolumeWriteResult {
        let started = (self.clock)().since;
        let outcome = self.write();
        let took = (self.clock)().since.saturating_sub(started);
        VolumeWriteResult { outcome, took, selections: self.selections, view: self.view }
    }

    fn write(&self) -> Result<CompletedWrite, VolumeError> {
        let inputs = self.snapshot.plan_inputs();
        let payload = match decide(&self.definition, self.readers, &inputs, self.ready) {
            VolumeAction::Write(payload) => payload,
            VolumeAction::Keep(mut blocked) | VolumeAction::Wait(mut blocked) => {
                blocked.0.extend(self.snapshot.reasons.iter().cloned());
                return Err(VolumeError::Blocked(blocked));
            }
        };
        let planned = payload.digest();
        let certificates = self.snapshot.certificates(&self.definition);
        if let Some(last_write) = self.last_write.filter(|last| last.planned == planned) {
            return Ok(CompletedWrite { last_write, outcome: None, certificates });
        }
        let (payload, written) = match &self.projection {
            None => (payload, planned),
            Some(projection) => {
                let payload = projection.finish(payload).map_err(VolumeError::Blocked)?;
                let written = payload.digest();
                (payload, written)
            }
        };
        let outcome = self.write_observed(&payload).map_err(|error| VolumeError::Disk(error.to_string()))?;
        let last_write = LastWrite { planned, written };
        Ok(CompletedWrite { last_write, outcome: Some(outcome), certificates })
    }

    /// Writes the files so that their observer sees every open by an application, and none by this process.
    fn write_observed(&self, payload: &VolumePayload) -> Result<WriteOutcome, DiskError> {
        let (id, anchors, now) = (&self.id, self.anchor_files(), (self.clock)().wall);
        let _own_reads = self.reads.own_reads(id);
        let prepare = |directory: &Path| self.reads.prepare(id, directory, &anchors);
        match self.writer.write_observed(payload, now, &prepare) {
            Ok(WriteOutcome::Changed) => {
                self.reads.switch(id);
                Ok(WriteOutcome::Changed)
            }
            Ok(WriteOutcome::Unchanged) => {
                if let Some((directory, written)) = self.writer.visible()? {
                    self.reads.confirm(id, &directory, &anchors, written);
                }
                Ok(WriteOutcome::Unchanged)
            }
            Err(error) => {
                self.reads.discard(id);
                Err(error)
            }
        }
    }

    /// Returns the files with trust anchors, with the trust stores that are built from them.
    fn anchor_files(&self) -> Vec<AnchorFiles> {
        let stores = self.projection.iter().flat_map(|projection| &projection.stores);
        let sources = dependencies::bundle_sources(&self.definition).zip(&self.selections);
        let files = sources.filter_map(|(source, selection)| {
            let stores = stores.clone().filter(|store| store.kind.trust_anchors() == Some(&source.path));
            Some(AnchorFiles {
                path: source.path.as_str().to_owned(),
                stores: stores.map(|store| store.path.as_str().to_owned()).collect(),
                digest: selection.delivered()?.digest,
            })
        });
        files.collect()
    }
}
