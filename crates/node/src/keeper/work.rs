//! The loop: hears what has changed, and has made again what may be concerned.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use time::OffsetDateTime;
use tokio::sync::{mpsc, watch};
use tokio::task::{Id, JoinError, JoinSet};

use super::Keeper;
use super::leaving::Leaving;
use super::needs::{self, Looker, Seen};
use super::place::Place;
use super::pods::Whose;
use super::report::Carried;
use super::tell::Tell;
use super::volume::{Done, Found, Made, Order, Owned, Stage, Trouble, Volume, look, make};
use super::world::{Gathered, Sources};
use crate::clock::Moment;
use crate::manager::Backoff;
use crate::metrics::volumes::SourceType;
use crate::projections::Projection;
use crate::sources::Wake;
use crate::sources::bundles::View;
use crate::sources::objects::ObjectId;
use crate::volume::definition::Definition;
use crate::volume::id::{Owner, VolumeId};
use crate::volume::plan::Blocked;
use crate::volume::writer::Written;

/// How many volumes are made at the same time.
const AT_ONCE: usize = 8;
/// How soon the disk is tried again, as kubelet does it.
pub const TROUBLE: Backoff =
    Backoff { first: Duration::from_millis(500), most: Duration::from_secs(122) };
/// How often a volume is looked at although nothing has changed: somebody may have damaged it.
const CHECK: Duration = Duration::from_secs(5 * 60);
/// How long to sleep at most when a time of the calendar is waited for: it may jump.
const CALENDAR: Duration = Duration::from_secs(60);

/// The loop and all that it knows.
pub struct Work {
    pub keeper: Keeper,
    pub place: Arc<Place>,
    pub tell: mpsc::UnboundedSender<Tell>,
    pub volumes: BTreeMap<VolumeId, Volume>,
    /// The pods whose volumes are kept, by UID.
    pub pods: BTreeMap<String, Arc<Pod>>,
    /// Whose they were when that was last looked at.
    pub synced: Whose,
    /// Those of which something may be left, by UID.
    pub leaving: BTreeMap<String, Leaving>,
    /// When the next pod is to be gone that is being deleted.
    pub deletion_at: Option<OffsetDateTime>,
    /// When to look for directories that belong to no pod.
    pub sweep_at: Option<Duration>,
    /// The machine's own.
    pub hosts: BTreeMap<VolumeId, Arc<Projection>>,
    pub jobs: JoinSet<Finished>,
    /// What each of them is for.
    running: BTreeMap<Id, Task>,
    /// Volumes that are being worked on.
    pub busy: BTreeSet<VolumeId>,
    queue: VecDeque<VolumeId>,
    wanted: BTreeSet<ObjectId>,
    /// What selections come to, of these bundles.
    looker: (Arc<View>, Looker),
    serial: u64,
}

/// Something that goes on beside the loop.
#[derive(Clone, Debug)]
pub enum Task {
    /// Work on a volume.
    Volume(VolumeId, u64),
    /// The end of a pod.
    Leave(String),
    /// Looking for what belongs to no pod.
    Sweep,
    /// Something that nobody waits for.
    Tidy,
}

/// How it ended.
pub enum Finished {
    Looked(Result<Found, String>),
    Made(Made, Vec<Arc<Seen>>, Arc<View>),
    /// Everything of a pod is removed, or not.
    Removed(Result<(), String>),
    /// The server knows that a pod is gone, or not.
    Confirmed(Result<(), String>),
    /// There is something of these pods.
    Swept(Result<Vec<String>, String>),
    Tidied,
}

impl Work {
    pub fn new(keeper: Keeper, tell: mpsc::UnboundedSender<Tell>) -> Self {
        let place = Place::new(&keeper.root_dir, keeper.files.clone(), keeper.tmpfs);
        let view = keeper.bundles.borrow().clone();
        Self {
            place: Arc::new(place),
            tell,
            volumes: BTreeMap::new(),
            pods: BTreeMap::new(),
            synced: Whose::Unknown,
            leaving: BTreeMap::new(),
            deletion_at: None,
            sweep_at: None,
            hosts: BTreeMap::new(),
            jobs: JoinSet::new(),
            running: BTreeMap::new(),
            busy: BTreeSet::new(),
            queue: VecDeque::new(),
            wanted: BTreeSet::new(),
            looker: (view, Looker::default()),
            serial: 0,
            keeper,
        }
    }

    pub async fn run(mut self) {
        self.sync_hosts();
        self.sync_pods();
        loop {
            self.due();
            self.begin();
            let pause = self.pause();
            tokio::select! {
                () = changed(&mut self.keeper.pods) => self.sync_pods(),
                () = changed(&mut self.keeper.bundles) => self.bundles_changed(),
                () = changed(&mut self.keeper.projections) => self.sync_hosts(),
                () = changed(&mut self.keeper.registration) => self.registration_changed(),
                wake = received(&mut self.keeper.wakes) => self.woken(wake),
                Some(ended) = self.jobs.join_next_with_id() => self.ended(ended),
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    pub fn now(&self) -> Moment {
        (self.keeper.clock)()
    }

    /// Another number each time, so that what comes late is not taken for something else.
    pub fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// When a volume is to be looked at again, though nothing changes.
    pub fn next_check(&self) -> Duration {
        self.now().since + CHECK.mul_f64(0.8 + 0.4 * (self.keeper.random)())
    }

    /// A volume is to be worked on, now or as soon as what is being done to it is done.
    pub fn queue(&mut self, id: &VolumeId) {
        let Some(volume) = self.volumes.get_mut(id) else { return };
        if !std::mem::replace(&mut volume.queued, true) && !self.busy.contains(id) {
            self.queue.push_back(id.clone());
        }
    }

    /// Something is to be done beside the loop, which ends in [`Work::ended`].
    pub fn spawn(&mut self, task: Task, job: impl FnOnce() -> Finished + Send + 'static) {
        let handle = self.jobs.spawn_blocking(job);
        self.running.insert(handle.id(), task);
    }

    /// Likewise, for what waits for the server.
    pub fn spawn_request(
        &mut self,
        task: Task,
        job: impl Future<Output = Finished> + Send + 'static,
    ) {
        let handle = self.jobs.spawn(job);
        self.running.insert(handle.id(), task);
    }

    /// Watches all objects that volumes name, and no others.
    pub fn want_objects(&mut self) {
        let volumes = self.volumes.values();
        let named = volumes.filter_map(|volume| volume.good().map(|good| (volume, good)));
        let wanted = named.flat_map(|(volume, good)| needs::objects(good, volume.namespace()));
        let wanted = wanted.collect();
        if self.wanted != wanted {
            self.keeper.objects.want(&wanted);
            self.wanted = wanted;
        }
    }

    /// Publishes what is known of a volume, and tells its pod.
    pub fn publish(&mut self, id: &VolumeId) {
        let volume = self.volumes.get(id).filter(|volume| volume.stage != Stage::Dropped);
        let report = volume.map(Volume::report);
        self.keeper.reports.send_if_modified(|reports| {
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
        if let Owner::Pod { uid, .. } = &id.owner {
            self.tell_pod(uid);
        }
    }

    /// What was to be done at this time.
    fn due(&mut self) {
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
    fn pause(&self) -> Duration {
        let now = self.now();
        let volumes = self.volumes.values();
        let volumes =
            volumes.flat_map(|volume| volume.retry_at.into_iter().chain([volume.check_at]));
        let leaving = self.leaving.values().filter_map(Leaving::retry_at);
        let at = volumes.chain(leaving).chain(self.sweep_at).min();
        let pause = at.map_or(Duration::MAX, |at| at.saturating_sub(now.since));
        let calendar = self
            .deletion_at
            .map(|at| Duration::try_from(at - now.wall).unwrap_or_default().min(CALENDAR));
        // A little more, so that it is not a little too early. Not without end: timers do not like it.
        pause.min(calendar.unwrap_or(CHECK)) + Duration::from_millis(1)
    }

    /// Begins to work on what is waiting.
    fn begin(&mut self) {
        self.refresh_view();
        while self.busy.len() < AT_ONCE {
            let Some(id) = self.queue.pop_front() else { return };
            let waits = |volume: &mut Volume| std::mem::take(&mut volume.queued);
            if self.volumes.get_mut(&id).is_some_and(waits) {
                self.work_on(&id);
            }
        }
    }

    /// From here on it is these bundles.
    fn refresh_view(&mut self) {
        let view = self.keeper.bundles.borrow();
        if !Arc::ptr_eq(&view, &self.looker.0) {
            self.looker = (view.clone(), Looker::default());
        }
    }

    fn work_on(&mut self, id: &VolumeId) {
        let going = self.is_going(id);
        let (view, looker) = &mut self.looker;
        let Some(volume) = self.volumes.get_mut(id) else { return };
        let job = match (&volume.definition, &volume.writer, volume.stage) {
            (_, _, Stage::Dropped) => return,
            (Err(blocked), None, _) | (Err(blocked), _, Stage::Kept) => {
                volume.blocked = Some(blocked.clone());
                volume.decided = true;
                return self.publish(id);
            }
            (Ok(_), None, _) => return,
            (definition, Some(writer), Stage::New) => {
                let definition = definition.as_ref().ok().cloned();
                let of_pod = matches!(volume.owned, Owned::Pod(_));
                let (place, writer) = (of_pod.then(|| self.place.clone()), writer.clone());
                Job::Look(place, writer, definition)
            }
            (Ok(_), Some(_), Stage::Kept) if going && !volume.ready => {
                volume.stage = Stage::Dropped;
                return self.publish(id);
            }
            (Ok(definition), Some(writer), Stage::Kept) => {
                let sources = Sources {
                    view,
                    objects: &self.keeper.objects,
                    tokens: &self.keeper.tokens,
                    certificates: &self.keeper.certificates,
                };
                let (pod, projection) = match &volume.owned {
                    Owned::Pod(pod) => (Some(pod.clone()), None),
                    Owned::Host(projection) => (None, Some(projection.clone())),
                };
                let order = Order {
                    definition: definition.clone(),
                    readers: volume.readers,
                    gathered: Gathered::new(id, definition, pod, volume.namespace(), &sources),
                    writer: writer.clone(),
                    projection,
                    ready: volume.ready,
                    last: volume.last.filter(|_| !volume.check),
                    clock: self.keeper.clock.clone(),
                };
                let seen = looker.look(definition, &view.bundles);
                volume.seen.clone_from(&seen);
                volume.check = false;
                Job::Make(Box::new(order), seen, view.clone())
            }
        };
        let task = Task::Volume(id.clone(), volume.serial);
        self.busy.insert(id.clone());
        self.spawn(task, move || job.run());
    }

    fn ended(&mut self, ended: Result<(Id, Finished), JoinError>) {
        let (id, finished) = match ended {
            Ok((id, finished)) => (id, Ok(finished)),
            Err(error) => (error.id(), Err(format!("broke down: {error}"))),
        };
        match self.running.remove(&id) {
            Some(Task::Volume(volume, serial)) => self.worked(&volume, serial, finished),
            Some(Task::Leave(uid)) => self.left(&uid, finished),
            Some(Task::Sweep) => self.swept(finished),
            Some(Task::Tidy) | None => {}
        }
    }

    /// Something was done to a volume.
    fn worked(&mut self, id: &VolumeId, serial: u64, finished: Result<Finished, String>) {
        self.busy.remove(id);
        if self.volumes.get(id).is_some_and(|volume| volume.serial == serial) {
            match finished {
                Ok(Finished::Looked(Ok(found))) => self.looked(id, found),
                Ok(Finished::Looked(Err(why))) | Err(why) => self.disk_failed(id, why),
                Ok(Finished::Made(made, seen, view)) => self.made(id, made, &seen, &view),
                Ok(_) => {}
            }
            self.publish(id);
        }
        // What has changed in the meantime.
        if self.volumes.get(id).is_some_and(|volume| volume.queued) {
            self.queue.push_back(id.clone());
        }
    }

    fn looked(&mut self, id: &VolumeId, found: Found) {
        let Some(volume) = self.volumes.get_mut(id) else { return };
        (volume.stage, volume.ready) = (Stage::Kept, found.ready);
        (volume.failures, volume.blocked, volume.retry_at) = (0, None, None);
        volume.certificates = found.certificates;
        if found.ready || !self.is_going(id) {
            self.want_credentials(id, found.tokens);
        }
        self.queue(id);
    }

    fn made(&mut self, id: &VolumeId, made: Made, seen: &[Arc<Seen>], view: &View) {
        let now = self.now();
        let Some(volume) = self.volumes.get_mut(id) else { return };
        if let Ok(definition) = &volume.definition {
            for source in types(definition) {
                self.keeper.metrics.refreshed(source, made.outcome.is_ok(), made.took);
            }
        }
        (volume.decided, volume.retry_at) = (true, None);
        let Done { last, written, certificates } = match made.outcome {
            Ok(done) => done,
            Err(Trouble::Disk(why)) => return self.disk_failed(id, why),
            Err(Trouble::Blocked(blocked)) => {
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
        let carried = seen.iter().map(|seen| carried(seen)).collect::<Vec<_>>();
        if written == Some(Written::Changed) {
            volume.changed = Some(now.wall);
            for (took, since_change) in deliveries(volume, &carried, view, now) {
                self.keeper.metrics.delivered(took, since_change);
            }
        }
        (volume.carried, volume.certificates) = (carried, certificates);
        if let (Some(_), Owned::Host(projection)) = (written, &volume.owned) {
            self.keeper.notifier.written(projection, last.whole);
        }
    }

    fn disk_failed(&mut self, id: &VolumeId, why: String) {
        let (now, random) = (self.now().since, (self.keeper.random)());
        let Some(volume) = self.volumes.get_mut(id) else { return };
        if volume.failures == 0 {
            tracing::warn!(volume = %id, "{why}");
        }
        volume.retry_at = Some(now + TROUBLE.after(volume.failures, random));
        volume.failures = volume.failures.saturating_add(1);
        volume.blocked = Some(Blocked(vec![why]));
        // It is not known what the disk has now.
        volume.last = None;
    }

    /// Has those made again for which the change makes a difference.
    fn bundles_changed(&mut self) {
        self.refresh_view();
        let (view, looker) = &mut self.looker;
        let mut differs = |volume: &Volume| {
            let good = volume.good();
            good.is_some_and(|good| looker.look(good, &view.bundles) != volume.seen)
        };
        let kept = self.volumes.iter().filter(|(_, volume)| volume.stage == Stage::Kept);
        let concerned = kept.filter(|(_, volume)| differs(volume)).map(|(id, _)| id.clone());
        for id in concerned.collect::<Vec<_>>() {
            self.queue(&id);
        }
    }

    fn woken(&mut self, wake: Wake) {
        let mut concerned = BTreeSet::new();
        let mut next = Some(wake);
        while let Some(wake) = next {
            match wake {
                Wake::Volume(id) => {
                    concerned.insert(id);
                }
                Wake::Object(object) => concerned.extend(self.naming(&object)),
            }
            next = self.keeper.wakes.try_recv().ok();
        }
        for id in concerned {
            self.queue(&id);
        }
    }

    /// The volumes that name an object.
    fn naming<'a>(&'a self, object: &'a ObjectId) -> impl Iterator<Item = VolumeId> + 'a {
        let names = |volume: &Volume| {
            let good = volume.good();
            good.is_some_and(|good| {
                needs::objects(good, volume.namespace()).any(|named| named == *object)
            })
        };
        self.volumes.iter().filter(move |(_, volume)| names(volume)).map(|(id, _)| id.clone())
    }
}

/// Something to be done to a volume.
enum Job {
    Look(Option<Arc<Place>>, crate::volume::writer::Writer, Option<Arc<Definition>>),
    Make(Box<Order>, Vec<Arc<Seen>>, Arc<View>),
}

impl Job {
    fn run(self) -> Finished {
        match self {
            Self::Look(place, writer, definition) => {
                Finished::Looked(look(place.as_deref(), &writer, definition.as_deref()))
            }
            Self::Make(order, seen, view) => Finished::Made(make(&order), seen, view),
        }
    }
}

/// What the files have, if they were made from this.
fn carried(seen: &Seen) -> Option<Carried> {
    match seen {
        Seen::Is(carried) => Some(carried.clone()),
        Seen::Off | Seen::Missing | Seen::Unsynced => None,
    }
}

/// How long each change of a bundle took until now, since it came and since it was made, of those
/// that came while the volume was there and that it did not have yet.
fn deliveries(
    volume: &Volume,
    carried: &[Option<Carried>],
    view: &View,
    now: Moment,
) -> Vec<(Duration, Option<Duration>)> {
    let mut all = Vec::new();
    for (index, carried) in carried.iter().enumerate() {
        let before = volume.carried.get(index).and_then(Option::as_ref);
        for bundle in carried.iter().flat_map(|carried| &carried.bundles) {
            let has = |before: &Carried| {
                let mut bundles = before.bundles.iter();
                bundles.any(|old| old.name == bundle.name && old.digest == bundle.digest)
            };
            let Some(arrival) = view.arrivals.get(&bundle.name) else { continue };
            if arrival.came.since < volume.since || before.is_some_and(has) {
                continue;
            }
            let made = arrival.made.map(|made| Duration::try_from(now.wall - made));
            let made = made.map(Result::unwrap_or_default);
            all.push((now.since.saturating_sub(arrival.came.since), made));
        }
    }
    all
}

/// Of what it is made, each once.
fn types(definition: &Definition) -> BTreeSet<SourceType> {
    definition.sources.iter().map(|(_, source)| SourceType::of(source)).collect()
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
