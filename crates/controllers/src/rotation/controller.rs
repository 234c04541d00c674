//! Runs rotations: watches CARotations, bundles, CAs, reports of nodes and the ledger, and reconciles the signers that
//! they concern.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Node;
use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::Instant;
use windlass_api::ca_rotation::{CaRotationSpec, CaRotationStatus};
use windlass_runtime::backoff::Backoff;
use windlass_runtime::discovery::{CLUSTER_TRUST_BUNDLES, TRUST_MANAGER_BUNDLES};
use windlass_runtime::events::{CONTROLLER_EVENT_LIMIT, EventRecorder, EventReporter};
use windlass_runtime::watch::{WatchError, WatchErrorKind, watch_metadata, watch_objects};
use windlass_runtime::work_queue::WorkQueue;
use windlass_runtime::workers::run_workers;

use super::agent_nodes::AgentNodes;
use super::bundle_targets::BundleTargets;
use super::delivery_history::DeliveryHistory;
use super::observation::{BundleObservation, BundleRole};
use super::trust_bundle::SignerBundle;
use crate::ca::CaContext;
use crate::ledger::Ledger;
use crate::metrics::{MetricFamilies, ROTATIONS};
use crate::options::Clock;
use crate::publisher::anchors::{NodeReports, node_trusts};
use crate::signers::{CustomSigner, SignerList, SignerSet, restart_on_change};

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(30));
/// Number of signers that are reconciled concurrently.
const WORKERS: usize = 4;
/// Interval between two looks at the clock and the ledger, which notify nobody.
const TICK: Duration = Duration::from_millis(500);
/// Number of ticks after which a rotation is reconciled although nothing is known to have changed.
const RESYNC_TICKS: u32 = 60;

/// What the controller runs with.
pub(crate) struct RotationSettings {
    pub(crate) client: Client,
    /// Version of CARotations that the server has.
    pub(crate) resource: ApiResource,
    pub(crate) set: Arc<SignerSet>,
    pub(crate) ledger: Ledger,
    pub(crate) clock: Clock,
    pub(crate) metrics: Arc<MetricFamilies>,
}

/// Runs rotations of the signers in the set, while the server has CARotations.
pub(crate) async fn run(settings: RotationSettings) -> Infallible {
    let _reset = MetricsReset(settings.metrics.clone());
    settings.set.set_governed(true);
    let settings = Arc::new(settings);
    let signers = settings.set.subscribe();
    restart_on_change(signers, move |list| run_signers(settings.clone(), list)).await
}

/// Removes the values of a process that does not lead any more from the metrics.
struct MetricsReset(Arc<MetricFamilies>);

impl Drop for MetricsReset {
    fn drop(&mut self) {
        self.0.rotations.reset();
    }
}

async fn run_signers(settings: Arc<RotationSettings>, list: SignerList) -> Infallible {
    let queue = Arc::new(WorkQueue::new(settings.metrics.queue(ROTATIONS), BACKOFF));
    let controller = Arc::new(RotationController::new(&settings, &list));
    let rotations = controller.watch_rotations(&settings, &queue);
    let bundles = controller.watch_bundles(&queue);
    let cas = controller.watch_cas(&queue);
    let reports = controller.watch_reports(&queue);
    let targets = controller.watch_targets(&queue);
    let nodes = controller.watch_nodes(&queue);
    let ticks = controller.run_ticks(&queue);
    let reconcile = |signer: String| controller.clone().reconcile(signer);
    let workers = run_workers(queue.clone(), WORKERS, reconcile);
    tokio::join!(rotations, bundles, cas, reports, targets, nodes, ticks, workers).0
}

/// Reconciles the rotations of all signers.
pub(super) struct RotationController {
    pub(super) client: Client,
    pub(super) api: Api<DynamicObject>,
    pub(super) resource: ApiResource,
    pub(super) events: EventRecorder,
    pub(super) signers: BTreeMap<String, CustomSigner>,
    pub(super) context: CaContext,
    pub(super) ledger: Ledger,
    pub(super) clock: Clock,
    pub(super) metrics: Arc<MetricFamilies>,
    state: Mutex<ControllerState>,
    reports: Mutex<NodeReports>,
    targets: Mutex<BundleTargets>,
    nodes: Mutex<AgentNodes>,
    /// Who has had the present content of the bundles, by their names.
    histories: Mutex<BTreeMap<String, DeliveryHistory>>,
    /// Signers with a rotation that has not ended. NodeTrusts and Bundles are watched while there are any.
    running: watch::Sender<BTreeSet<String>>,
    bundle_resource: tokio::sync::Mutex<Option<ApiResource>>,
    /// Names of CertificateRevocations that are known to exist.
    pub(super) revoked: tokio::sync::Mutex<HashSet<String>>,
}

#[derive(Default)]
struct ControllerState {
    /// Whether all rotations are known.
    is_listed: bool,
    rotations: BTreeMap<String, RotationObject>,
    /// When signers are reconciled although nothing has changed.
    rechecks: BTreeMap<String, OffsetDateTime>,
    /// Rotations whose hold was reported as a warning.
    warned: HashSet<String>,
    /// When the status of a rotation was last written, by its UID.
    written: HashMap<String, Instant>,
    /// Signers whose status is to be written with the next tick.
    delayed: BTreeSet<String>,
}

/// A CARotation as it was read.
#[derive(Clone, Debug)]
pub(super) struct RotationObject {
    pub(super) object: DynamicObject,
    pub(super) spec: CaRotationSpec,
    pub(super) status: CaRotationStatus,
}

impl RotationObject {
    /// Parses an object. A status that cannot be parsed counts as absent: all but history is derived again.
    pub(super) fn parse(object: DynamicObject) -> Option<RotationObject> {
        let spec = object.data.get("spec").cloned().unwrap_or(Value::Null);
        let status = object.data.get("status").cloned().unwrap_or(Value::Null);
        let spec = serde_json::from_value(spec).ok()?;
        let status = serde_json::from_value(status).unwrap_or_default();
        Some(RotationObject { object, spec, status })
    }

    pub(super) fn uid(&self) -> String {
        self.object.uid().unwrap_or_default()
    }
}

impl RotationController {
    fn new(settings: &RotationSettings, list: &SignerList) -> RotationController {
        let RotationSettings { client, resource, set, ledger, clock, metrics } = settings;
        let signers = list.iter().map(|signer| (signer.custom.name.to_string(), signer.clone()));
        RotationController {
            client: client.clone(),
            api: Api::all_with(client.clone(), resource),
            resource: resource.clone(),
            events: EventRecorder::new(
                client.clone(),
                EventReporter::controller("ca-rotation"),
                CONTROLLER_EVENT_LIMIT,
            ),
            signers: signers.collect(),
            context: CaContext { client: client.clone(), signers: set.subscribe() },
            ledger: ledger.clone(),
            clock: clock.clone(),
            metrics: metrics.clone(),
            state: Mutex::default(),
            reports: Mutex::default(),
            targets: Mutex::default(),
            nodes: Mutex::default(),
            histories: Mutex::default(),
            running: watch::Sender::default(),
            bundle_resource: tokio::sync::Mutex::default(),
            revoked: tokio::sync::Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, ControllerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn reports(&self) -> MutexGuard<'_, NodeReports> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn nodes(&self) -> MutexGuard<'_, AgentNodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Observes a bundle, and remembers who has had its content.
    pub(super) fn observe_bundle(&self, bundle: &SignerBundle) -> BundleObservation {
        let mut histories = self.histories.lock().unwrap_or_else(PoisonError::into_inner);
        let history = histories.entry(bundle.name.clone()).or_default();
        let reports = self.reports();
        let mut observed = bundle.observe(&reports, &self.targets(), history);
        // They may have consumers of either bundle; once is enough.
        if bundle.role == BundleRole::Main {
            let silent = self.nodes().list_silent(&reports);
            observed.consumers = observed.consumers.zip(silent).map(|(some, others)| [some, others].concat());
        }
        observed
    }

    fn targets(&self) -> MutexGuard<'_, BundleTargets> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the rotations of a signer, the oldest first; `None` until all are known.
    pub(super) fn rotations_of(&self, signer: &str) -> Option<Vec<RotationObject>> {
        let state = self.state();
        if !state.is_listed {
            return None;
        }
        let own = state.rotations.values().filter(|rotation| rotation.spec.signer_name == signer);
        let mut rotations: Vec<RotationObject> = own.cloned().collect();
        rotations
            .sort_by_key(|each| (each.object.metadata.creation_timestamp.clone(), each.object.name_any()));
        Some(rotations)
    }

    /// Replaces what is known of a rotation by what a write returned.
    pub(super) fn remember(&self, rotation: &RotationObject) {
        let mut state = self.state();
        state.written.insert(rotation.uid(), Instant::now());
        state.rotations.insert(rotation.object.name_any(), rotation.clone());
    }

    pub(super) fn set_running(&self, signer: &str, is_running: bool) {
        self.running.send_if_modified(|running| match is_running {
            true => running.insert(signer.to_owned()),
            false => running.remove(signer),
        });
    }

    pub(super) fn schedule(&self, signer: &str, time: Option<OffsetDateTime>) {
        let mut state = self.state();
        match time {
            Some(time) => drop(state.rechecks.insert(signer.to_owned(), time)),
            None => drop(state.rechecks.remove(signer)),
        }
    }

    /// Whether a warning about the hold of a rotation is due, which it is once.
    pub(super) fn take_warning(&self, uid: &str) -> bool {
        self.state().warned.insert(uid.to_owned())
    }

    /// Whether a status in which only numbers or laggards have changed is written now. While a thousand nodes report, it
    /// is written twice per second.
    pub(super) fn may_write(&self, uid: &str, signer: &str) -> bool {
        let mut state = self.state();
        let is_due = state.written.get(uid).is_none_or(|last| last.elapsed() >= TICK);
        if !is_due {
            state.delayed.insert(signer.to_owned());
        }
        is_due
    }

    pub(super) fn clear_warning(&self, uid: &str) {
        self.state().warned.remove(uid);
    }

    /// Returns the version of ClusterTrustBundles that the server has; `None` if it has none.
    pub(super) async fn find_bundle_resource(&self) -> anyhow::Result<Option<ApiResource>> {
        let mut known = self.bundle_resource.lock().await;
        if known.is_none() {
            *known = CLUSTER_TRUST_BUNDLES.find(&self.client).await?;
        }
        Ok(known.clone())
    }

    async fn watch_rotations(&self, settings: &RotationSettings, queue: &WorkQueue<String>) -> Infallible {
        let mut listing: BTreeMap<String, RotationObject> = BTreeMap::new();
        let (api, plural) = (self.api.clone(), self.resource.plural.clone());
        watch_objects(api, &plural, Config::default(), queue.metrics(), |event| match event {
            Ok(Event::Init) => listing.clear(),
            Ok(Event::InitApply(object)) => {
                let name = object.name_any();
                listing.extend(RotationObject::parse(object).map(|rotation| (name, rotation)));
            }
            Ok(Event::InitDone) => {
                let mut state = self.state();
                state.rotations = std::mem::take(&mut listing);
                state.is_listed = true;
                drop(state);
                self.signers.keys().for_each(|signer| queue.add(signer.clone()));
                self.enqueue_unknown(queue);
            }
            Ok(Event::Apply(object)) => self.observe(object, queue),
            Ok(Event::Delete(object)) => {
                let mut state = self.state();
                state.written.remove(&object.uid().unwrap_or_default());
                let removed = state.rotations.remove(&object.name_any());
                drop(state);
                removed.into_iter().for_each(|removed| queue.add(removed.spec.signer_name));
            }
            // Without permission to read rotations, times decide as where there are none.
            Err(error) if error.kind == WatchErrorKind::Refused && !self.state().is_listed => {
                settings.set.set_governed(false);
            }
            Err(_) => {}
        })
        .await
    }

    fn observe(&self, object: DynamicObject, queue: &WorkQueue<String>) {
        let name = object.name_any();
        if let Some(rotation) = RotationObject::parse(object) {
            let signer = rotation.spec.signer_name.clone();
            self.state().rotations.insert(name, rotation);
            queue.add(signer);
        }
    }

    /// Rotations of signers that do not exist say so.
    fn enqueue_unknown(&self, queue: &WorkQueue<String>) {
        let state = self.state();
        state.rotations.values().for_each(|rotation| queue.add(rotation.spec.signer_name.clone()));
    }

    async fn watch_bundles(&self, queue: &WorkQueue<String>) -> Infallible {
        let by_bundle: BTreeMap<String, String> = self
            .signers
            .iter()
            .flat_map(|(name, signer)| bundle_names(signer).into_iter().map(|bundle| (bundle, name.clone())))
            .collect();
        if by_bundle.is_empty() {
            return std::future::pending().await;
        }
        for failures in 0.. {
            if let Ok(Some(resource)) = self.find_bundle_resource().await {
                return watch_metadata(self.client.clone(), &resource, None, queue.metrics(), |event| {
                    if let Event::InitApply(bundle) | Event::Apply(bundle) | Event::Delete(bundle) = event {
                        by_bundle
                            .get(&bundle.name_any())
                            .into_iter()
                            .for_each(|name| queue.add(name.clone()));
                    }
                })
                .await;
            }
            tokio::time::sleep(BACKOFF.delay(failures, rand::random())).await;
        }
        std::future::pending().await
    }

    async fn watch_cas(&self, queue: &WorkQueue<String>) -> Infallible {
        join_all(self.signers.iter().map(|(name, signer)| async move {
            let (mut of_source, mut of_rollout) = (signer.ca.changes(), signer.rollout.changes());
            loop {
                let changed = tokio::select! {
                    changed = of_source.changed() => changed,
                    changed = of_rollout.changed() => changed,
                };
                if changed.is_err() {
                    return;
                }
                queue.add(name.clone());
            }
        }))
        .await;
        std::future::pending().await
    }

    /// Watches the reports of nodes while a rotation runs.
    async fn watch_reports(&self, queue: &WorkQueue<String>) -> Infallible {
        let mut running = self.running.subscribe();
        loop {
            // It cannot fail: `self` holds the sender.
            let _ = running.wait_for(|running| !running.is_empty()).await;
            let take = |event: Result<Event<DynamicObject>, &WatchError>| {
                self.reports().observe(event, |bundle, signer| self.is_relevant(bundle, signer));
                self.running.borrow().iter().for_each(|signer| queue.add(signer.clone()));
            };
            let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &node_trusts());
            tokio::select! {
                never = watch_objects(api, "nodetrusts", Config::default(), queue.metrics(), take) => match never {},
                _ = running.wait_for(BTreeSet::is_empty) => {}
            }
            *self.reports() = NodeReports::default();
        }
    }

    /// Watches Bundles while a rotation runs, if the server has them.
    async fn watch_targets(&self, queue: &WorkQueue<String>) -> Infallible {
        let Some(resource) = TRUST_MANAGER_BUNDLES.resources().next() else {
            return std::future::pending().await;
        };
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let mut running = self.running.subscribe();
        loop {
            // It cannot fail: `self` holds the sender.
            let _ = running.wait_for(|running| !running.is_empty()).await;
            let take = |event: Result<Event<DynamicObject>, &WatchError>| {
                self.targets().observe(event, |bundle, signer| self.is_relevant(bundle, signer));
                self.running.borrow().iter().for_each(|signer| queue.add(signer.clone()));
            };
            let plural = &resource.plural;
            tokio::select! {
                never = watch_objects(api.clone(), plural, Config::default(), queue.metrics(), take) => match never {},
                _ = running.wait_for(BTreeSet::is_empty) => {}
            }
            *self.targets() = BundleTargets::default();
        }
    }

    /// Watches the nodes of agents while a rotation runs.
    async fn watch_nodes(&self, queue: &WorkQueue<String>) -> Infallible {
        let api: Api<Node> = Api::all(self.client.clone());
        let mut running = self.running.subscribe();
        loop {
            // It cannot fail: `self` holds the sender.
            let _ = running.wait_for(|running| !running.is_empty()).await;
            let take = |event: Result<Event<Node>, &WatchError>| {
                if self.nodes().observe(event) {
                    self.running.borrow().iter().for_each(|signer| queue.add(signer.clone()));
                }
            };
            tokio::select! {
                never = watch_objects(api.clone(), "nodes", Config::default(), queue.metrics(), take) => match never {},
                _ = running.wait_for(BTreeSet::is_empty) => {}
            }
            *self.nodes() = AgentNodes::default();
        }
    }

    /// Whether a source that selects a bundle by name, or by signer, may select one of ours.
    fn is_relevant(&self, bundle: &str, signer: &str) -> bool {
        match bundle {
            "" => self.signers.contains_key(signer),
            bundle => self.signers.values().any(|each| bundle_names(each).iter().any(|name| name == bundle)),
        }
    }

    /// Looks at the clock and at the ledger.
    async fn run_ticks(&self, queue: &WorkQueue<String>) -> Infallible {
        let mut totals = None;
        for tick in 1_u32.. {
            tokio::time::sleep(TICK).await;
            let now = (self.clock)();
            let due: Vec<String> = {
                let mut state = self.state();
                let due = state.rechecks.iter().filter(|(_, time)| **time <= now);
                let due: Vec<String> = due.map(|(signer, _)| signer.clone()).collect();
                state.rechecks.retain(|_, time| *time > now);
                due.into_iter().chain(std::mem::take(&mut state.delayed)).collect()
            };
            due.into_iter().for_each(|signer| queue.add(signer));
            let running = self.running.borrow().clone();
            if running.is_empty() {
                continue;
            }
            let known = self.ledger.known_totals();
            if known != totals || tick % RESYNC_TICKS == 0 {
                totals = known;
                running.into_iter().for_each(|signer| queue.add(signer));
            }
        }
        std::future::pending().await
    }
}

/// Lists the names of a signer's bundles.
fn bundle_names(signer: &CustomSigner) -> Vec<String> {
    let publication = signer.custom.publish.iter();
    publication
        .flat_map(|each| {
            [Some(each.bundle.clone()), each.canary.as_ref().map(|canary| canary.bundle.clone())]
        })
        .flatten()
        .collect()
}
