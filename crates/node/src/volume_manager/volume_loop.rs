//! The loop that owns all volumes: it observes changes, determines which volumes they concern, and runs jobs on these.
//!
//! It composes the volume table, the pod and host trackers, the selection resolver, the credentials and the job runner,
//! which do not know each other.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::{mpsc, watch};

use super::VolumeManager;
use super::credentials::VolumeCredentials;
use super::dependencies;
use super::host_volumes::{self, HostTracker, host_volume};
use super::job_runner::{JobKind, JobRunner};
use super::managed_volume::{OwnerObject, VolumeSpec, source_labels};
use super::pod_status::PodReport;
use super::pod_teardown::{TeardownStep, confirm_deletion};
use super::pod_tracker::{AppliedPod, PodOwnership, PodTracker};
use super::pod_volumes::{has_same_volumes, pod_owner, pod_volumes};
use super::pod_volumes_root::{PodVolumesRoot, is_path_element};
use super::selections::SelectionResolver;
use super::snapshot::{SnapshotSources, VolumeSnapshot};
use super::volume_job::{ExistingFiles, VolumeError, VolumeInspection, VolumeWriteOrder, VolumeWriteResult};
use super::volume_state::{VolumeEvent, VolumeFiles, VolumeState};
use super::volume_table::VolumeTable;
use crate::clock::{Clock, ClockReading};
use crate::metrics::volumes::VolumeMetrics;
use crate::node_certificates::RandomSource;
use crate::node_status::NodeRegistration;
use crate::projections::{HostProjection, HostProjections, Notifier};
use crate::read_observer::ReadObserver;
use crate::sources::SourceChange;
use crate::sources::objects::ObjectCache;
use crate::sources::pods::NodePods;
use crate::sources::revocation_lists::RevocationListView;
use crate::volume::id::{VolumeId, VolumeOwner};
use windlass_runtime::durable::FileSystem;

/// Interval of checks of a volume without a change, in case its files were damaged.
const CHECK_INTERVAL: Duration = Duration::from_secs(5 * 60);
/// Longest sleep while a time of the wall clock is waited for, because that clock may be set.
const MAX_WALL_SLEEP: Duration = Duration::from_secs(60);

/// The loop: its inputs, its components, and the services that it calls.
pub struct VolumeLoop {
    inputs: LoopInputs,
    volumes: VolumeTable,
    pods: PodTracker,
    hosts: HostTracker,
    selections: SelectionResolver,
    credentials: VolumeCredentials,
    jobs: JobRunner<JobResult>,
    services: LoopServices,
}

/// Channels whose changes the loop waits for.
struct LoopInputs {
    pods: watch::Receiver<NodePods>,
    projections: watch::Receiver<Arc<HostProjections>>,
    revocation_lists: watch::Receiver<RevocationListView>,
    registration: watch::Receiver<NodeRegistration>,
    changes: mpsc::UnboundedReceiver<SourceChange>,
}

/// What the loop reads from and reports to.
struct LoopServices {
    client: Client,
    clock: Clock,
    random: RandomSource,
    files: FileSystem,
    root_dir: PathBuf,
    pod_root: Arc<PodVolumesRoot>,
    objects: ObjectCache,
    notifier: Arc<Notifier>,
    reads: Arc<ReadObserver>,
    metrics: VolumeMetrics,
    pod_reports: mpsc::UnboundedSender<PodReport>,
}

impl LoopServices {
    fn now(&self) -> ClockReading {
        (self.clock)()
    }

    /// Returns the monotonic time of the next check, with jitter.
    fn next_check(&self) -> Duration {
        self.now().since + CHECK_INTERVAL.mul_f64(0.8 + 0.4 * (self.random)())
    }

    fn disk_failed(&self, reason: String) -> VolumeEvent {
        VolumeEvent::DiskFailed { reason, now: self.now().since, random: (self.random)() }
    }
}

/// Result of a job, by what it did.
enum JobResult {
    Inspected(Result<Option<ExistingFiles>, String>),
    Written(VolumeWriteResult),
    TornDown(Result<TeardownStep, String>),
    /// UIDs of pods of which a directory was found.
    Swept(Result<Vec<String>, String>),
    CleanedUp,
}

impl VolumeLoop {
    pub fn new(manager: VolumeManager, pod_reports: mpsc::UnboundedSender<PodReport>) -> Self {
        let root = PodVolumesRoot::new(&manager.root_dir, manager.files.clone(), manager.tmpfs);
        let pod_root = Arc::new(root);
        Self {
            inputs: LoopInputs {
                pods: manager.pods,
                projections: manager.projections,
                revocation_lists: manager.revocation_lists,
                registration: manager.registration,
                changes: manager.wakes,
            },
            volumes: VolumeTable::new(manager.reports),
            pods: PodTracker::new(),
            hosts: HostTracker::default(),
            selections: SelectionResolver::new(manager.bundles),
            credentials: VolumeCredentials {
                tokens: manager.tokens,
                certificates: manager.certificates,
                pod_root: pod_root.clone(),
                root_dir: manager.root_dir.clone(),
            },
            jobs: JobRunner::new(),
            services: LoopServices {
                client: manager.client,
                clock: manager.clock,
                random: manager.random,
                files: manager.files,
                root_dir: manager.root_dir,
                pod_root,
                objects: manager.objects,
                notifier: manager.notifier,
                reads: manager.reads,
                metrics: manager.metrics,
                pod_reports,
            },
        }
    }

    pub async fn run(mut self) {
        self.sync_hosts();
        self.sync_pods();
        loop {
            self.run_due_work();
            while let Some(id) = self.jobs.next_volume() {
                self.start_volume_job(&id);
            }
            let pause = self.time_until_due();
            tokio::select! {
                () = changed(&mut self.inputs.pods) => self.sync_pods(),
                () = changed(&mut self.inputs.projections) => self.sync_hosts(),
                () = changed(&mut self.inputs.registration) => self.registration_changed(),
                () = self.selections.changed() => self.bundles_changed(),
                () = changed(&mut self.inputs.revocation_lists) => self.revocation_lists_changed(),
                change = received(&mut self.inputs.changes) => self.sources_changed(change),
                Some((kind, result)) = self.jobs.join_next() => self.finish_job(kind, result),
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    fn run_due_work(&mut self) {
        let now = self.services.now();
        for (id, volume) in self.volumes.iter() {
            if self.jobs.is_idle(id) && volume.due_at().is_some_and(|at| at <= now.since) {
                self.jobs.enqueue(id);
            }
        }
        if self.pods.is_sync_due(now.wall) {
            self.sync_pods();
        }
        if self.pods.start_sweep(now.since, self.services.next_check()) {
            let root = self.services.pod_root.clone();
            self.jobs.spawn_blocking(JobKind::Sweep, move || {
                JobResult::Swept(root.uids().map_err(|error| error.to_string()))
            });
        }
        self.start_teardown_steps(now);
    }

    /// Returns the time until the next work is due.
    fn time_until_due(&self) -> Duration {
        let now = self.services.now();
        let idle = self.volumes.iter().filter(|(id, _)| self.jobs.is_idle(id));
        let volumes = idle.filter_map(|(_, volume)| volume.due_at());
        let due = volumes.chain(self.pods.next_due()).min();
        let pause = due.map_or(Duration::MAX, |at| at.saturating_sub(now.since));
        let sync = self.pods.time_until_sync(now.wall).map(|time| time.min(MAX_WALL_SLEEP));
        // Timers have a resolution of a millisecond, and must not fire early.
        pause.min(sync.unwrap_or(CHECK_INTERVAL)) + Duration::from_millis(1)
    }

    /// Reconciles the volumes with the existing pods.
    fn sync_pods(&mut self) {
        let Some(pods) = self.inputs.pods.borrow_and_update().clone() else { return };
        let changes = self.pods.sync(&pods, self.pod_ownership(), self.services.now());
        for pod in changes.removed {
            let owner = pod_owner(&pod);
            for id in self.volumes.ids_of(&owner) {
                self.remove_volume(&id);
            }
            self.credentials.forget(&owner);
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            // The receiver ends with this loop.
            let _ = self.services.pod_reports.send(PodReport::Removed(uid));
        }
        for applied in changes.applied {
            self.apply_pod(applied);
        }
        self.watch_objects();
    }

    fn pod_ownership(&self) -> PodOwnership {
        PodOwnership::from(&*self.inputs.registration.borrow())
    }

    fn registration_changed(&mut self) {
        self.inputs.registration.mark_unchanged();
        // Heartbeats change the registration as well.
        if self.pod_ownership() != self.pods.ownership() {
            self.sync_pods();
        }
    }

    fn apply_pod(&mut self, AppliedPod { pod, before }: AppliedPod) {
        let owner = pod_owner(&pod);
        if before.is_some_and(|before| has_same_volumes(&before, &pod)) {
            for id in self.volumes.ids_of(&owner) {
                let Some(volume) = self.volumes.get_mut(&id) else { continue };
                volume.spec.owner = OwnerObject::Pod(pod.clone());
                if volume.is_pod_deleted() && !self.jobs.is_busy(&id) {
                    volume.apply(&id, VolumeEvent::PodDeleted);
                    self.volumes.publish(&id);
                }
                let definition = self.volumes.get(&id).and_then(|volume| volume.definition());
                if definition.is_some_and(|definition| dependencies::has_downward(definition)) {
                    self.jobs.enqueue(&id);
                }
            }
            self.credentials.retain_certificates(&owner, &self.volumes);
        } else {
            let volumes = pod_volumes(&pod, &self.services.pod_root);
            let is_gone = |id: &VolumeId| !volumes.iter().any(|(kept, _)| kept == id);
            for id in self.volumes.ids_of(&owner).into_iter().filter(is_gone) {
                self.remove_volume(&id);
            }
            self.insert_volumes(&owner, volumes);
        }
        self.report_pod(&owner);
    }

    /// Reconciles the volumes with the host projections.
    fn sync_hosts(&mut self) {
        let projections = self.inputs.projections.borrow_and_update().clone();
        let changes = self.hosts.sync(&projections);
        for (id, projection) in changes.removed {
            self.remove_host(&id, &projection);
        }
        let files = &self.services.files;
        let volumes = changes.applied.into_iter();
        let volumes = volumes.map(|(id, projection)| (id, host_volume(&projection, files)));
        let volumes = volumes.collect();
        self.insert_volumes(&VolumeOwner::Host, volumes);
        self.watch_objects();
    }

    /// Stops managing a projection. Its files stay, because an application may be using them.
    fn remove_host(&mut self, id: &VolumeId, projection: &HostProjection) {
        let directory = projection.directory.display();
        tracing::info!(volume = %id, %directory, "projection removed; leaving its files in place");
        self.remove_volume(id);
        self.services.notifier.forget(&id.name);
        if is_path_element(&id.name) {
            let root_dir = self.services.root_dir.clone();
            let (files, name) = (self.services.files.clone(), id.name.clone());
            self.jobs.spawn_blocking(JobKind::Cleanup, move || {
                if let Err(error) = host_volumes::remove_state(&root_dir, &files, &name) {
                    tracing::warn!(projection = name, %error, "cannot remove certificate state");
                }
                JobResult::CleanedUp
            });
        }
    }

    fn remove_volume(&mut self, id: &VolumeId) {
        self.volumes.remove(id);
        self.services.reads.forget(id);
    }

    /// Adds new or redefined volumes of an owner, and requests their jobs.
    fn insert_volumes(&mut self, owner: &VolumeOwner, volumes: Vec<(VolumeId, VolumeSpec)>) {
        let ids = volumes.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>();
        for (id, spec) in volumes {
            let (now, check_at) = (self.services.now().since, self.services.next_check());
            self.volumes.insert(id, spec, now, check_at);
        }
        self.credentials.retain_certificates(owner, &self.volumes);
        for id in ids {
            self.publish(&id);
            self.jobs.enqueue(&id);
        }
    }

    /// Watches exactly the ConfigMaps and Secrets that volumes use.
    fn watch_objects(&self) {
        let used = self.volumes.iter().flat_map(|(_, volume)| volume.objects());
        self.services.objects.set_watched(&used.collect());
    }

    /// Publishes the report on a volume, and reports to its pod.
    fn publish(&self, id: &VolumeId) {
        self.volumes.publish(id);
        self.report_pod(&id.owner);
    }

    fn report_pod(&self, owner: &VolumeOwner) {
        let VolumeOwner::Pod { uid, .. } = owner else { return };
        let Some(pod) = self.pods.get(uid) else { return };
        let report = PodReport::Pod(pod.clone(), self.volumes.mount_states(owner));
        // The receiver ends with this loop.
        let _ = self.services.pod_reports.send(report);
    }

    /// Requests jobs on volumes whose selections resolve to other anchors than before.
    fn bundles_changed(&mut self) {
        for (id, volume) in self.volumes.iter() {
            let Some(definition) = volume.definition() else { continue };
            if volume.state().is_maintained() && self.selections.resolve(definition) != volume.selections {
                self.jobs.enqueue(id);
            }
        }
    }

    /// Requests jobs on volumes with certificate revocation lists; unchanged files are not written.
    fn revocation_lists_changed(&mut self) {
        for (id, volume) in self.volumes.iter() {
            if volume.definition().is_some_and(|definition| dependencies::has_revocation_lists(definition)) {
                self.jobs.enqueue(id);
            }
        }
    }

    fn sources_changed(&mut self, first: SourceChange) {
        let mut concerned = BTreeSet::new();
        let mut next = Some(first);
        while let Some(change) = next {
            match change {
                SourceChange::Volume(id) => {
                    concerned.insert(id);
                }
                SourceChange::Object(object) => concerned.extend(self.volumes.ids_using(&object)),
            }
            next = self.inputs.changes.try_recv().ok();
        }
        concerned.iter().for_each(|id| self.jobs.enqueue(id));
    }

    fn start_volume_job(&mut self, id: &VolumeId) {
        let next_check = self.services.next_check();
        let Some(volume) = self.volumes.get_mut(id) else { return };
        if volume.is_pod_deleted() {
            volume.apply(id, VolumeEvent::PodDeleted);
        }
        let kind = JobKind::Volume(id.clone(), volume.serial);
        let (state, spec) = (volume.state(), &volume.spec);
        match (state, &spec.definition, &spec.writer) {
            (VolumeState::Uninspected(_), definition, Some(writer)) => {
                let is_pod = matches!(spec.owner, OwnerObject::Pod(_));
                let inspection = VolumeInspection {
                    id: id.clone(),
                    reads: self.services.reads.clone(),
                    writer: writer.clone(),
                    root: is_pod.then(|| self.services.pod_root.clone()),
                    definition: definition.as_ref().ok().cloned(),
                };
                self.jobs.spawn_blocking(kind, move || JobResult::Inspected(inspection.run()));
            }
            (state, Ok(definition), Some(writer)) if state.is_maintained() => {
                let (pod, projection) = match &spec.owner {
                    OwnerObject::Pod(pod) => (Some(pod.clone()), None),
                    OwnerObject::Host(projection) => (None, Some(projection.clone())),
                };
                let selections = self.selections.resolve(definition);
                let view = self.selections.view().clone();
                let sources = SnapshotSources {
                    view: &view,
                    revocation_lists: &self.inputs.revocation_lists.borrow().clone(),
                    objects: &self.services.objects,
                    tokens: &self.credentials.tokens,
                    certificates: &self.credentials.certificates,
                };
                let is_check = volume.check_at <= self.services.now().since;
                let last_write = state.files().and_then(|files| files.last_write);
                let order = VolumeWriteOrder {
                    id: id.clone(),
                    reads: self.services.reads.clone(),
                    definition: definition.clone(),
                    readers: spec.readers,
                    snapshot: VolumeSnapshot::new(id, definition, pod, volume.namespace(), &sources),
                    writer: writer.clone(),
                    projection,
                    ready: state.files().is_some(),
                    last_write: last_write.filter(|_| !is_check),
                    selections: selections.clone(),
                    view,
                    clock: self.services.clock.clone(),
                };
                volume.selections = selections;
                if is_check {
                    volume.check_at = next_check;
                }
                self.jobs.spawn_blocking(kind, move || JobResult::Written(order.run()));
            }
            _ => self.publish(id),
        }
    }

    fn finish_job(&mut self, kind: JobKind, result: Result<JobResult, String>) {
        match kind {
            JobKind::Volume(id, serial) => self.finish_volume_job(&id, serial, result),
            JobKind::Teardown(uid) => {
                let result = match result {
                    Ok(JobResult::TornDown(result)) => result,
                    Err(error) => Err(error),
                    Ok(_) => return,
                };
                // A removed pod may need volumes again, or be forgotten.
                let is_removed = result == Ok(TeardownStep::Remove);
                let (now, random) = (self.services.now().since, (self.services.random)());
                self.pods.finish_teardown_step(&uid, result, now, random);
                if is_removed {
                    self.sync_pods();
                }
            }
            JobKind::Sweep => match result {
                Ok(JobResult::Swept(Ok(uids))) => self.pods.finish_sweep(uids),
                Ok(JobResult::Swept(Err(error))) | Err(error) => {
                    tracing::warn!(error, "cannot search for directories without a pod");
                }
                Ok(_) => {}
            },
            JobKind::Cleanup => {}
        }
    }

    fn finish_volume_job(&mut self, id: &VolumeId, serial: u64, result: Result<JobResult, String>) {
        let Some(volume) = self.volumes.get_started(id, serial) else { return };
        match result {
            Ok(JobResult::Inspected(Ok(found))) => self.finish_inspection(id, found),
            Ok(JobResult::Inspected(Err(error))) | Err(error) => {
                volume.apply(id, self.services.disk_failed(error));
            }
            Ok(JobResult::Written(result)) => self.finish_write(id, result),
            Ok(_) => {}
        }
        self.publish(id);
    }

    fn finish_inspection(&mut self, id: &VolumeId, found: Option<ExistingFiles>) {
        let Some(volume) = self.volumes.get_mut(id) else { return };
        let (tokens, certificates) = found.map(|found| (found.tokens, found.certificates)).unzip();
        let files = certificates.map(|certificates| VolumeFiles { certificates, ..VolumeFiles::default() });
        let is_needed = files.is_some() || !volume.is_pod_deleted();
        let invalid = volume.spec.definition.as_ref().err().cloned();
        volume.apply(id, VolumeEvent::Inspected { files, invalid });
        if is_needed {
            self.credentials.request(id, volume, tokens.unwrap_or_default());
        }
        self.jobs.enqueue(id);
    }

    fn finish_write(&mut self, id: &VolumeId, result: VolumeWriteResult) {
        let now = self.services.now();
        let Some(volume) = self.volumes.get_mut(id) else { return };
        let labels = volume.spec.definition.iter().flat_map(|definition| source_labels(definition));
        for source in labels.collect::<BTreeSet<_>>() {
            self.services.metrics.refreshed(source, result.outcome.is_ok(), result.took);
        }
        match result.outcome {
            Ok(done) => {
                let (last_write, outcome) = (done.last_write, done.outcome);
                let times = volume.apply_write(id, done, &result.selections, &result.view, now);
                for (since_received, since_written) in times {
                    self.services.metrics.delivered(since_received, since_written);
                }
                if let (Some(_), OwnerObject::Host(projection)) = (outcome, &volume.spec.owner) {
                    self.services.notifier.written(projection, last_write.written);
                }
            }
            Err(VolumeError::Disk(error)) => volume.apply(id, self.services.disk_failed(error)),
            Err(VolumeError::Blocked(reason)) => volume.apply(id, VolumeEvent::Blocked(reason)),
        }
    }

    fn start_teardown_steps(&mut self, now: ClockReading) {
        let all = self.inputs.pods.borrow().clone().unwrap_or_default();
        let is_kubelet = self.inputs.registration.borrow().kubelet;
        let jobs = &self.jobs;
        let steps = self.pods.start_teardown_steps(&all, is_kubelet, now, |uid| jobs.is_pod_busy(uid));
        for (uid, step) in steps {
            let kind = JobKind::Teardown(uid.clone());
            match (step, all.get(&uid)) {
                (TeardownStep::Confirm, Some(pod)) => {
                    let (client, pod) = (self.services.client.clone(), pod.clone());
                    self.jobs.spawn(kind, async move {
                        JobResult::TornDown(confirm_deletion(client, &pod).await.map(|()| step))
                    });
                }
                _ => {
                    let root = self.services.pod_root.clone();
                    self.jobs.spawn_blocking(kind, move || {
                        let removed = root.remove(&uid).map_err(|error| error.to_string());
                        JobResult::TornDown(removed.map(|()| TeardownStep::Remove))
                    });
                }
            }
        }
    }
}

/// Waits for a change. Never returns after the sender is gone.
async fn changed<T>(receiver: &mut watch::Receiver<T>) {
    if receiver.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn received<T>(receiver: &mut mpsc::UnboundedReceiver<T>) -> T {
    match receiver.recv().await {
        Some(received) => received,
        None => std::future::pending().await,
    }
}
