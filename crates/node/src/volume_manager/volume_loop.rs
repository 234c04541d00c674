//! The loop: hears what has changed, and has made again what may be concerned.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use time::OffsetDateTime;
use tokio::sync::{mpsc, watch};
use tokio::task::{Id, JoinError, JoinSet};

use super::VolumeManager;
use super::dependencies::{self, SelectionResolver, SelectionState};
use super::managed_volume::{
    CompletedWrite, ExistingVolume, ManagedVolume, OwnerObject, VolumeError, VolumeStage,
    VolumeWriteOrder, VolumeWriteResult, inspect, write,
};
use super::pod_status::PodReport;
use super::pod_teardown::PodTeardown;
use super::pod_volumes::PodOwnership;
use super::pod_volumes_root::PodVolumesRoot;
use super::report::DeliveredAnchors;
use super::snapshot::{SnapshotSources, VolumeSnapshot};
use crate::clock::ClockReading;
use crate::metrics::volumes::SourceType;
use crate::node_certificates::Backoff;
use crate::projections::HostProjection;
use crate::sources::SourceChange;
use crate::sources::bundles::BundleView;
use crate::sources::objects::ObjectId;
use crate::volume::definition::VolumeDefinition;
use crate::volume::id::{VolumeId, VolumeOwner};
use crate::volume::plan::BlockedReason;
use crate::volume::writer::WriteOutcome;

/// How many volumes are made at the same time.
const AT_ONCE: usize = 8;
/// How soon the disk is tried again, as kubelet does it.
pub const TROUBLE: Backoff =
    Backoff { initial: Duration::from_millis(500), max: Duration::from_secs(122) };
/// How often a volume is looked at although nothing has changed: somebody may have damaged it.
const CHECK: Duration = Duration::from_secs(5 * 60);
/// How long to sleep at most when a time of the calendar is waited for: it may jump.
const CALENDAR: Duration = Duration::from_secs(60);

/// The loop and all that it knows.
pub struct VolumeLoop {
    pub manager: VolumeManager,
    pub root: Arc<PodVolumesRoot>,
    pub reports: mpsc::UnboundedSender<PodReport>,
    pub volumes: BTreeMap<VolumeId, ManagedVolume>,
    /// The pods whose volumes are kept, by UID.
    pub pods: BTreeMap<String, Arc<Pod>>,
    /// Whose they were when that was last looked at.
    pub synced: PodOwnership,
    /// Those of which something may be left, by UID.
    pub teardowns: BTreeMap<String, PodTeardown>,
    /// When the next pod is to be gone that is being deleted.
    pub deletion_at: Option<OffsetDateTime>,
    /// When to look for directories that belong to no pod.
    pub sweep_at: Option<Duration>,
    /// Host projections that are managed, by volume.
    pub hosts: BTreeMap<VolumeId, Arc<HostProjection>>,
    pub jobs: JoinSet<LoopTaskResult>,
    /// What each of them is for.
    running: BTreeMap<Id, LoopTask>,
    /// Volumes that are being worked on.
    pub busy: BTreeSet<VolumeId>,
    queue: VecDeque<VolumeId>,
    wanted: BTreeSet<ObjectId>,
    /// What selections come to, of these bundles.
    resolver: (Arc<BundleView>, SelectionResolver),
    serial: u64,
}

/// Something that goes on beside the loop.
#[derive(Clone, Debug)]
pub enum LoopTask {
    /// A job on this volume, with the serial number of the volume.
    Volume(VolumeId, u64),
    /// The end of a pod.
    Teardown(String),
    /// Looking for what belongs to no pod.
    Sweep,
    /// Something that nobody waits for.
    Tidy,
}

/// The result of a `LoopTask`, returned to the loop.
pub enum LoopTaskResult {
    Inspected(Result<ExistingVolume, String>),
    Written(VolumeWriteResult, Vec<Arc<SelectionState>>, Arc<BundleView>),
    /// Everything of a pod is removed, or not.
    Removed(Result<(), String>),
    /// The server knows that a pod is gone, or not.
    Confirmed(Result<(), String>),
    /// There is something of these pods.
    Swept(Result<Vec<String>, String>),
    Tidied,
}

impl VolumeLoop {
    pub fn new(manager: VolumeManager, reports: mpsc::UnboundedSender<PodReport>) -> Self {
        let place = PodVolumesRoot::new(&manager.root_dir, manager.files.clone(), manager.tmpfs);
        let view = manager.bundles.borrow().clone();
        Self {
            root: Arc::new(place),
            reports,
            volumes: BTreeMap::new(),
            pods: BTreeMap::new(),
            synced: PodOwnership::Unknown,
            teardowns: BTreeMap::new(),
            deletion_at: None,
            sweep_at: None,
            hosts: BTreeMap::new(),
            jobs: JoinSet::new(),
            running: BTreeMap::new(),
            busy: BTreeSet::new(),
            queue: VecDeque::new(),
            wanted: BTreeSet::new(),
            resolver: (view, SelectionResolver::default()),
            serial: 0,
            manager,
        }
    }

    pub async fn run(mut self) {
        self.sync_hosts();
        self.sync_pods();
        loop {
            self.run_due_work();
            self.start_queued_jobs();
            let pause = self.time_until_due();
            tokio::select! {
                () = changed(&mut self.manager.pods) => self.sync_pods(),
                () = changed(&mut self.manager.bundles) => self.bundles_changed(),
                () = changed(&mut self.manager.projections) => self.sync_hosts(),
                () = changed(&mut self.manager.registration) => self.registration_changed(),
                wake = received(&mut self.manager.wakes) => self.handle_change(wake),
                Some(ended) = self.jobs.join_next_with_id() => self.finish_task(ended),
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    pub fn now(&self) -> ClockReading {
        (self.manager.clock)()
    }

    /// Another number each time, so that what comes late is not taken for something else.
    pub fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// When a volume is to be looked at again, though nothing changes.
    pub fn next_check(&self) -> Duration {
        self.now().since + CHECK.mul_f64(0.8 + 0.4 * (self.manager.random)())
    }

    /// A volume is to be worked on, now or as soon as what is being done to it is done.
    pub fn queue(&mut self, id: &VolumeId) {
        let Some(volume) = self.volumes.get_mut(id) else { return };
        if !std::mem::replace(&mut volume.queued, true) && !self.busy.contains(id) {
            self.queue.push_back(id.clone());
        }
    }

    /// Something is to be done beside the loop, which ends in [`VolumeLoop::finish_job`].
    pub fn spawn(&mut self, task: LoopTask, job: impl FnOnce() -> LoopTaskResult + Send + 'static) {
        let handle = self.jobs.spawn_blocking(job);
        self.running.insert(handle.id(), task);
    }

    /// Likewise, for what waits for the server.
    pub fn spawn_request(
        &mut self,
        task: LoopTask,
        job: impl Future<Output = LoopTaskResult> + Send + 'static,
    ) {
        let handle = self.jobs.spawn(job);
        self.running.insert(handle.id(), task);
    }

    /// Watches all objects that volumes name, and no others.
    pub fn watch_objects(&mut self) {
        let volumes = self.volumes.values();
        let named =
            volumes.filter_map(|volume| volume.valid_definition().map(|good| (volume, good)));
        let wanted =
            named.flat_map(|(volume, good)| dependencies::objects(good, volume.namespace()));
        let wanted = wanted.collect();
        if self.wanted != wanted {
            self.manager.objects.set_watched(&wanted);
            self.wanted = wanted;
        }
    }

    /// Publishes what is known of a volume, and tells its pod.
    pub fn publish(&mut self, id: &VolumeId) {
        let volume = self.volumes.get(id).filter(|volume| volume.stage != VolumeStage::Dropped);
        let report = volume.map(ManagedVolume::report);
        self.manager.reports.send_if_modified(|reports| {
            if reports.get(id).map(|known| &**known) == report.as_ref() {
                return false;
            }
            let reports = Arc::make_mut(reports);
            match report {
                Some(report) => reports.insert(id.clone(), Arc::new(report)),
                None => reports.remove(id),
            };
            true
        });
        if let VolumeOwner::Pod { uid, .. } = &id.owner {
            self.report_pod(uid);
        }
    }

    /// What was to be done at this time.
    fn run_due_work(&mut self) {
        let now = self.now();
        let mut due = Vec::new();
        for (id, volume) in &mut self.volumes {
            if volume.check_at <= now.since {
                volume.check = true;
            } else if volume.retry_at.is_none_or(|at| at > now.since) {
                continue;
            }
            volume.retry_at = None;
            due.push(id.clone());
        }
        for id in due {
            let next = self.next_check();
            if let Some(volume) = self.volumes.get_mut(&id).filter(|v| v.check_at <= now.since) {
                volume.check_at = next;
            }
            self.queue(&id);
        }
        if self.deletion_at.is_some_and(|at| at <= now.wall) {
            self.sync_pods();
        }
        self.sweep(now.since);
        self.advance(now);
    }

    /// How long there is nothing to do.
    fn time_until_due(&self) -> Duration {
        let now = self.now();
        let volumes = self.volumes.values();
        let volumes =
            volumes.flat_map(|volume| volume.retry_at.into_iter().chain([volume.check_at]));
        let leaving = self.teardowns.values().filter_map(PodTeardown::retry_at);
        let at = volumes.chain(leaving).chain(self.sweep_at).min();
        let pause = at.map_or(Duration::MAX, |at| at.saturating_sub(now.since));
        let calendar = self
            .deletion_at
            .map(|at| Duration::try_from(at - now.wall).unwrap_or_default().min(CALENDAR));
        // A little more, so that it is not a little too early. Not without end: timers do not like it.
        pause.min(calendar.unwrap_or(CHECK)) + Duration::from_millis(1)
    }

    /// Begins to work on what is waiting.
    fn start_queued_jobs(&mut self) {
        self.refresh_view();
        while self.busy.len() < AT_ONCE {
            let Some(id) = self.queue.pop_front() else { return };
            let waits = |volume: &mut ManagedVolume| std::mem::take(&mut volume.queued);
            if self.volumes.get_mut(&id).is_some_and(waits) {
                self.start_volume_job(&id);
            }
        }
    }

    /// From here on it is these bundles.
    fn refresh_view(&mut self) {
        let view = self.manager.bundles.borrow();
        if !Arc::ptr_eq(&view, &self.resolver.0) {
            self.resolver = (view.clone(), SelectionResolver::default());
        }
    }

    fn start_volume_job(&mut self, id: &VolumeId) {
        let going = self.is_pod_deleting(id);
        let (view, looker) = &mut self.resolver;
        let Some(volume) = self.volumes.get_mut(id) else { return };
        let job = match (&volume.definition, &volume.writer, volume.stage) {
            (_, _, VolumeStage::Dropped) => return,
            (Err(blocked), None, _) | (Err(blocked), _, VolumeStage::Kept) => {
                volume.blocked = Some(blocked.clone());
                volume.decided = true;
                return self.publish(id);
            }
            (Ok(_), None, _) => return,
            (definition, Some(writer), VolumeStage::New) => {
                let definition = definition.as_ref().ok().cloned();
                let of_pod = matches!(volume.owned, OwnerObject::Pod(_));
                let (place, writer) = (of_pod.then(|| self.root.clone()), writer.clone());
                VolumeJob::Inspect(place, writer, definition)
            }
            (Ok(_), Some(_), VolumeStage::Kept) if going && !volume.ready => {
                volume.stage = VolumeStage::Dropped;
                return self.publish(id);
            }
            (Ok(definition), Some(writer), VolumeStage::Kept) => {
                let sources = SnapshotSources {
                    view,
                    objects: &self.manager.objects,
                    tokens: &self.manager.tokens,
                    certificates: &self.manager.certificates,
                };
                let (pod, projection) = match &volume.owned {
                    OwnerObject::Pod(pod) => (Some(pod.clone()), None),
                    OwnerObject::Host(projection) => (None, Some(projection.clone())),
                };
                let order = VolumeWriteOrder {
                    definition: definition.clone(),
                    readers: volume.readers,
                    gathered: VolumeSnapshot::new(
                        id,
                        definition,
                        pod,
                        volume.namespace(),
                        &sources,
                    ),
                    writer: writer.clone(),
                    projection,
                    ready: volume.ready,
                    last: volume.last.filter(|_| !volume.check),
                    clock: self.manager.clock.clone(),
                };
                let seen = looker.resolve(definition, &view.bundles);
                volume.seen.clone_from(&seen);
                volume.check = false;
                VolumeJob::Write(Box::new(order), seen, view.clone())
            }
        };
        let task = LoopTask::Volume(id.clone(), volume.serial);
        self.busy.insert(id.clone());
        self.spawn(task, move || job.run());
    }

    fn finish_task(&mut self, ended: Result<(Id, LoopTaskResult), JoinError>) {
        let (id, finished) = match ended {
            Ok((id, finished)) => (id, Ok(finished)),
            Err(error) => (error.id(), Err(format!("broke down: {error}"))),
        };
        match self.running.remove(&id) {
            Some(LoopTask::Volume(volume, serial)) => {
                self.finish_volume_task(&volume, serial, finished)
            }
            Some(LoopTask::Teardown(uid)) => self.finish_teardown_step(&uid, finished),
            Some(LoopTask::Sweep) => self.finish_sweep(finished),
            Some(LoopTask::Tidy) | None => {}
        }
    }

    /// Something was done to a volume.
    fn finish_volume_task(
        &mut self,
        id: &VolumeId,
        serial: u64,
        finished: Result<LoopTaskResult, String>,
    ) {
        self.busy.remove(id);
        if self.volumes.get(id).is_some_and(|volume| volume.serial == serial) {
            match finished {
                Ok(LoopTaskResult::Inspected(Ok(found))) => self.finish_inspection(id, found),
                Ok(LoopTaskResult::Inspected(Err(why))) | Err(why) => self.disk_failed(id, why),
                Ok(LoopTaskResult::Written(made, seen, view)) => {
                    self.finish_write(id, made, &seen, &view)
                }
                Ok(_) => {}
            }
            self.publish(id);
        }
        // What has changed in the meantime.
        if self.volumes.get(id).is_some_and(|volume| volume.queued) {
            self.queue.push_back(id.clone());
        }
    }

    fn finish_inspection(&mut self, id: &VolumeId, found: ExistingVolume) {
        let Some(volume) = self.volumes.get_mut(id) else { return };
        (volume.stage, volume.ready) = (VolumeStage::Kept, found.ready);
        (volume.failures, volume.blocked, volume.retry_at) = (0, None, None);
        volume.certificates = found.certificates;
        if found.ready || !self.is_pod_deleting(id) {
            self.request_credentials(id, found.tokens);
        }
        self.queue(id);
    }

    fn finish_write(
        &mut self,
        id: &VolumeId,
        made: VolumeWriteResult,
        seen: &[Arc<SelectionState>],
        view: &BundleView,
    ) {
        let now = self.now();
        let Some(volume) = self.volumes.get_mut(id) else { return };
        if let Ok(definition) = &volume.definition {
            for source in source_types(definition) {
                self.manager.metrics.refreshed(source, made.outcome.is_ok(), made.took);
            }
        }
        (volume.decided, volume.retry_at) = (true, None);
        let CompletedWrite { last, written, certificates } = match made.outcome {
            Ok(done) => done,
            Err(VolumeError::Disk(why)) => return self.disk_failed(id, why),
            Err(VolumeError::Blocked(blocked)) => {
                if volume.blocked.as_ref() != Some(&blocked) {
                    tracing::info!(volume = %id, kept = volume.ready, "no new files: {blocked}");
                }
                volume.failures = 0;
                volume.blocked = Some(blocked);
                return;
            }
        };
        volume.failures = 0;
        volume.ready = true;
        volume.last = Some(last);
        if volume.blocked.take().is_some() {
            tracing::info!(volume = %id, "has its files");
        }
        let carried = seen.iter().map(|seen| delivered_anchors(seen)).collect::<Vec<_>>();
        if written == Some(WriteOutcome::Changed) {
            volume.changed = Some(now.wall);
            for (took, since_change) in deliveries(volume, &carried, view, now) {
                self.manager.metrics.delivered(took, since_change);
            }
        }
        (volume.carried, volume.certificates) = (carried, certificates);
        if let (Some(_), OwnerObject::Host(projection)) = (written, &volume.owned) {
            self.manager.notifier.written(projection, last.whole);
        }
    }

    fn disk_failed(&mut self, id: &VolumeId, why: String) {
        let (now, random) = (self.now().since, (self.manager.random)());
        let Some(volume) = self.volumes.get_mut(id) else { return };
        if volume.failures == 0 {
            tracing::warn!(volume = %id, "{why}");
        }
        volume.retry_at = Some(now + TROUBLE.after(volume.failures, random));
        volume.failures = volume.failures.saturating_add(1);
        volume.blocked = Some(BlockedReason(vec![why]));
        // It is not known what the disk has now.
        volume.last = None;
    }

    /// Has those made again for which the change makes a difference.
    fn bundles_changed(&mut self) {
        self.refresh_view();
        let (view, looker) = &mut self.resolver;
        let mut differs = |volume: &ManagedVolume| {
            let good = volume.valid_definition();
            good.is_some_and(|good| looker.resolve(good, &view.bundles) != volume.seen)
        };
        let kept = self.volumes.iter().filter(|(_, volume)| volume.stage == VolumeStage::Kept);
        let concerned = kept.filter(|(_, volume)| differs(volume)).map(|(id, _)| id.clone());
        for id in concerned.collect::<Vec<_>>() {
            self.queue(&id);
        }
    }

    fn handle_change(&mut self, wake: SourceChange) {
        let mut concerned = BTreeSet::new();
        let mut next = Some(wake);
        while let Some(wake) = next {
            match wake {
                SourceChange::Volume(id) => {
                    concerned.insert(id);
                }
                SourceChange::Object(object) => concerned.extend(self.volumes_referencing(&object)),
            }
            next = self.manager.wakes.try_recv().ok();
        }
        for id in concerned {
            self.queue(&id);
        }
    }

    /// The volumes that name an object.
    fn volumes_referencing<'a>(
        &'a self,
        object: &'a ObjectId,
    ) -> impl Iterator<Item = VolumeId> + 'a {
        let names = |volume: &ManagedVolume| {
            let good = volume.valid_definition();
            good.is_some_and(|good| {
                dependencies::objects(good, volume.namespace()).any(|named| named == *object)
            })
        };
        self.volumes.iter().filter(move |(_, volume)| names(volume)).map(|(id, _)| id.clone())
    }
}

/// Something to be done to a volume.
enum VolumeJob {
    Inspect(
        Option<Arc<PodVolumesRoot>>,
        crate::volume::writer::VolumeWriter,
        Option<Arc<VolumeDefinition>>,
    ),
    Write(Box<VolumeWriteOrder>, Vec<Arc<SelectionState>>, Arc<BundleView>),
}

impl VolumeJob {
    fn run(self) -> LoopTaskResult {
        match self {
            Self::Inspect(place, writer, definition) => {
                LoopTaskResult::Inspected(inspect(place.as_deref(), &writer, definition.as_deref()))
            }
            Self::Write(order, seen, view) => LoopTaskResult::Written(write(&order), seen, view),
        }
    }
}

/// What the files have, if they were made from this.
fn delivered_anchors(seen: &SelectionState) -> Option<DeliveredAnchors> {
    match seen {
        SelectionState::Resolved(carried) => Some(carried.clone()),
        SelectionState::Off | SelectionState::Missing | SelectionState::Unsynced => None,
    }
}

/// How long each change of a bundle took until now, since it came and since it was made, of those
/// that came while the volume was there and that it did not have yet.
fn deliveries(
    volume: &ManagedVolume,
    carried: &[Option<DeliveredAnchors>],
    view: &BundleView,
    now: ClockReading,
) -> Vec<(Duration, Option<Duration>)> {
    let mut all = Vec::new();
    for (index, carried) in carried.iter().enumerate() {
        let before = volume.carried.get(index).and_then(Option::as_ref);
        for bundle in carried.iter().flat_map(|carried| &carried.bundles) {
            let has = |before: &DeliveredAnchors| {
                let mut bundles = before.bundles.iter();
                bundles.any(|old| old.name == bundle.name && old.digest == bundle.digest)
            };
            let Some(arrival) = view.arrivals.get(&bundle.name) else { continue };
            if arrival.received.since < volume.since || before.is_some_and(has) {
                continue;
            }
            let made = arrival.written.map(|made| Duration::try_from(now.wall - made));
            let made = made.map(Result::unwrap_or_default);
            all.push((now.since.saturating_sub(arrival.received.since), made));
        }
    }
    all
}

/// Of what it is made, each once.
fn source_types(definition: &VolumeDefinition) -> BTreeSet<SourceType> {
    definition.sources.iter().map(|(_, source)| SourceType::from_source(source)).collect()
}

/// Waits until there is something new. One from whom nothing will come any more is not waited for.
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
