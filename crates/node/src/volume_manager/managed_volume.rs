//! A volume that the loop manages: its definition, its state, and when it is due.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use time::OffsetDateTime;

use super::dependencies;
use super::report::{AnchorsReport, DeliveredAnchors, VolumeReport};
use super::selections::SelectionState;
use super::volume_job::CompletedWrite;
use super::volume_state::{VolumeEvent, VolumeFiles, VolumeState};
use crate::clock::ClockReading;
use crate::projections::HostProjection;
use crate::sources::bundles::BundleView;
use crate::sources::objects::ObjectId;
use crate::volume::definition::VolumeDefinition;
use crate::volume::id::VolumeId;
use crate::volume::plan::{BlockedReason, VolumeReaders};
use crate::volume::writer::{VolumeWriter, WriteOutcome};

/// The object that defines the volume: a pod or a host projection.
#[derive(Clone)]
pub enum OwnerObject {
    Pod(Arc<Pod>),
    Host(Arc<HostProjection>),
}

/// Desired state of a volume, as its owner defines it.
pub struct VolumeSpec {
    pub owner: OwnerObject,
    /// The validated definition, or what is wrong with it.
    pub definition: Result<Arc<VolumeDefinition>, BlockedReason>,
    pub readers: VolumeReaders,
    /// `None` if a name in its path is invalid; the definition is an error then.
    pub writer: Option<VolumeWriter>,
}

pub struct ManagedVolume {
    /// Distinguishes it from an earlier volume with the same ID, so that late results are ignored.
    pub serial: u64,
    pub spec: VolumeSpec,
    /// Monotonic time at which it was added.
    added: Duration,
    /// Monotonic time at which the files are compared with the disk, in case they were damaged.
    pub check_at: Duration,
    /// Resolved bundle selections of the last plan.
    pub selections: Vec<Arc<SelectionState>>,
    state: VolumeState,
}

/// How long the delivery of one changed bundle took: since the agent received it, and since it was written.
pub type DeliveryTime = (Duration, Option<Duration>);

impl ManagedVolume {
    pub fn new(serial: u64, spec: VolumeSpec, added: Duration, check_at: Duration) -> Self {
        let state = match (&spec.definition, &spec.writer) {
            (Err(reason), None) => VolumeState::Invalid { reason: reason.clone(), files: None },
            _ => VolumeState::Uninspected(None),
        };
        Self { serial, spec, added, check_at, selections: Vec::new(), state }
    }

    pub fn state(&self) -> &VolumeState {
        &self.state
    }

    /// Returns the definition, unless it is invalid or the volume is abandoned.
    pub fn definition(&self) -> Option<&Arc<VolumeDefinition>> {
        self.spec.definition.as_ref().ok().filter(|_| self.state != VolumeState::Abandoned)
    }

    /// Returns the namespace of its ConfigMaps and Secrets.
    pub fn namespace(&self) -> &str {
        match &self.spec.owner {
            OwnerObject::Pod(pod) => pod.metadata.namespace.as_deref().unwrap_or_default(),
            OwnerObject::Host(projection) => &projection.namespace,
        }
    }

    /// Returns whether its pod is being deleted.
    pub fn is_pod_deleted(&self) -> bool {
        match &self.spec.owner {
            OwnerObject::Pod(pod) => pod.metadata.deletion_timestamp.is_some(),
            OwnerObject::Host(_) => false,
        }
    }

    /// Returns the monotonic time of its next job, if nothing changes before.
    pub fn due_at(&self) -> Option<Duration> {
        let check = Some(self.check_at).filter(|_| self.state.is_maintained());
        let retry = self.state.failure().map(|failure| failure.retry_at);
        check.into_iter().chain(retry).min()
    }

    /// Returns its ConfigMaps and Secrets.
    pub fn objects(&self) -> impl Iterator<Item = ObjectId> + '_ {
        let definition = self.definition().into_iter();
        definition.flat_map(|definition| dependencies::objects(definition, self.namespace()))
    }

    /// Applies an event, and logs its effect on the files.
    pub fn apply(&mut self, id: &VolumeId, event: VolumeEvent) {
        let before = self.state.clone();
        self.state = std::mem::replace(&mut self.state, VolumeState::Abandoned).step(event);
        let (was, is) = (before.blocked_reason(), self.state.blocked_reason());
        match (&self.state, is) {
            (VolumeState::Blocked { .. }, Some(reason)) if was != is => {
                let has_files = self.state.files().is_some();
                tracing::info!(volume = %id, has_files, %reason, "volume is blocked");
            }
            (state, Some(reason)) if state.failure().is_some_and(|failure| failure.attempts == 1) => {
                tracing::warn!(volume = %id, error = %reason, "volume failed; retrying with backoff");
            }
            (VolumeState::Ready(_), None) if was.is_some() => {
                tracing::info!(volume = %id, "volume is ready");
            }
            _ => {}
        }
    }

    /// Records a completed write. Returns the delivery time of each bundle that arrived while the
    /// volume existed and was not in its files yet.
    pub fn apply_write(
        &mut self,
        id: &VolumeId,
        done: CompletedWrite,
        selections: &[Arc<SelectionState>],
        view: &BundleView,
        now: ClockReading,
    ) -> Vec<DeliveryTime> {
        let anchors = selections.iter().map(|state| state.delivered().cloned()).collect::<Vec<_>>();
        let is_changed = done.outcome == Some(WriteOutcome::Changed);
        let times = if is_changed { self.delivery_times(&anchors, view, now) } else { Vec::new() };
        let changed = match is_changed {
            true => Some(now.wall),
            false => self.changed(),
        };
        let files = VolumeFiles {
            last_write: Some(done.last_write),
            anchors,
            certificates: done.certificates,
            changed,
        };
        self.apply(id, VolumeEvent::Written(files));
        times
    }

    fn changed(&self) -> Option<OffsetDateTime> {
        self.state.files().and_then(|files| files.changed)
    }

    fn delivery_times(
        &self,
        anchors: &[Option<DeliveredAnchors>],
        view: &BundleView,
        now: ClockReading,
    ) -> Vec<DeliveryTime> {
        let mut times = Vec::new();
        for (index, delivered) in anchors.iter().enumerate() {
            let before = self.state.files().and_then(|files| files.anchors.get(index));
            let before = before.and_then(Option::as_ref);
            for bundle in delivered.iter().flat_map(|delivered| &delivered.bundles) {
                let has = |before: &DeliveredAnchors| {
                    let mut bundles = before.bundles.iter();
                    bundles.any(|old| old.name == bundle.name && old.digest == bundle.digest)
                };
                let Some(arrival) = view.arrivals.get(&bundle.name) else { continue };
                if arrival.received.since < self.added || before.is_some_and(has) {
                    continue;
                }
                let written = arrival.written.map(|written| Duration::try_from(now.wall - written));
                let since_written = written.map(Result::unwrap_or_default);
                times.push((now.since.saturating_sub(arrival.received.since), since_written));
            }
        }
        times
    }

    /// Returns the report for metrics, the status file and NodeTrust; `None` if it is abandoned.
    pub fn report(&self) -> Option<VolumeReport> {
        if self.state == VolumeState::Abandoned {
            return None;
        }
        let definition = self.spec.definition.as_deref().ok();
        let files = self.state.files();
        let delivered = files.into_iter().flat_map(|files| files.anchors.iter().cloned());
        let delivered = delivered.chain(std::iter::repeat(None));
        let anchors = definition.into_iter().flat_map(dependencies::bundle_sources).zip(delivered);
        let anchors = anchors.map(|(source, carried)| AnchorsReport {
            select: source.select.clone(),
            optional: source.optional,
            path: source.path.as_str().to_owned(),
            carried,
        });
        let writer = self.spec.writer.as_ref();
        Some(VolumeReport {
            directory: writer.map_or_else(PathBuf::new, |writer| writer.directory().to_owned()),
            sources: definition.map(source_labels).unwrap_or_default(),
            ready: files.is_some(),
            blocked: self.state.blocked_reason().map(ToString::to_string),
            changed: self.changed(),
            anchors: anchors.collect(),
            certificates: files.map(|files| files.certificates.clone()).unwrap_or_default(),
        })
    }
}

/// Returns the metric labels of the sources of a definition, in order.
pub fn source_labels(definition: &VolumeDefinition) -> Vec<&'static str> {
    definition.sources.iter().map(|(_, source)| source.metric_label()).collect()
}
