//! Events on pods that no scheduler binds, which explain why they stay Pending: once an hour for each pod.
//!
//! Windlass has no scheduler. A pod without `spec.nodeName` waits until it is bound, which is easily overlooked. If a
//! scheduler runs, or the pod names another one, no event is recorded.

use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::Config;
use kube::{Api, Client, Resource as _, ResourceExt as _};
use tokio::time::Instant;
use windlass_runtime::backoff::Backoff;
use windlass_runtime::events::{
    CONTROLLER_EVENT_LIMIT, EventRecorder, EventReporter, NewEvent, RecordError, RecordOutcome,
};
use windlass_runtime::metrics::ControllerMetrics;
use windlass_runtime::watch::{ListTracker, TrackedEvent, watch_objects};
use windlass_runtime::work_queue::WorkQueue;
use windlass_runtime::workers::{Requeue, run_workers};

use crate::namespaced_name::NamespacedName;
use crate::options::Clock;

const CONTROLLER: &str = "unscheduled-pod";
/// Scheduler name of pods that name none.
const SCHEDULER: &str = "default-scheduler";
/// Lease of kube-scheduler, in `kube-system`.
const SCHEDULER_LEASE: &str = "kube-scheduler";
const REASON: &str = "NotScheduled";
const NOTE: &str = "no scheduler is running, so nothing assigns this pod to a node: set spec.nodeName \
                    when it is created, or bind it to a node";
/// Pause after each event, which limits the rate to five events per second.
const PAUSE: Duration = Duration::from_millis(200);
/// Interval between checks for pods that have waited long enough.
const CHECK: Duration = Duration::from_millis(500);
/// Events expire after an hour; a pod that is still pending gets another one.
const REPEAT: Duration = Duration::from_secs(61 * 60);
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));

/// Runs the controller. `patience` is the time without a node after which a pod gets an event.
pub async fn run(
    client: Client,
    patience: Duration,
    clock: Clock,
    metrics: Arc<ControllerMetrics>,
) -> Infallible {
    let queue = Arc::new(WorkQueue::new(metrics.clone(), BACKOFF));
    let waiting = Mutex::new(UnscheduledPods::default());
    let mut tracker = ListTracker::default();
    let pods: Api<Pod> = Api::all(client.clone());
    let config = Config::default().fields("spec.nodeName=");
    let watch = watch_objects(pods, "pods", config, &metrics, |event| {
        let Some(event) = event.ok().and_then(|event| tracker.track(event, NamespacedName::from_object))
        else {
            return;
        };
        let mut waiting = lock(&waiting);
        match event {
            TrackedEvent::Applied(_, pod) => waiting.observe(&pod, Instant::now() + patience),
            TrackedEvent::Deleted(key, _) => waiting.remove(&key),
            TrackedEvent::Listed(keys) => waiting.retain(&keys),
        }
    });
    let reporter = EventReporter::controller(CONTROLLER);
    let events = Arc::new(EventRecorder::new(client.clone(), reporter, CONTROLLER_EVENT_LIMIT));
    let check = async {
        loop {
            tokio::time::sleep(CHECK).await;
            lock(&waiting).take_due(Instant::now()).into_iter().for_each(|key| queue.add(key));
        }
    };
    let reconcile = |key| reconcile(client.clone(), key, events.clone(), clock.clone());
    // One worker, so that PAUSE limits the rate.
    tokio::join!(watch, check, run_workers(queue.clone(), 1, reconcile)).0
}

/// Pods without a node, and the time of the next event of each.
#[derive(Debug, Default)]
struct UnscheduledPods {
    pods: BTreeMap<NamespacedName, UnscheduledPod>,
}

#[derive(Debug)]
struct UnscheduledPod {
    uid: Option<String>,
    due: Instant,
}

impl UnscheduledPods {
    /// Adds or updates a pod; a new one is due at `due`.
    fn observe(&mut self, pod: &Pod, due: Instant) {
        let (key, uid) = (NamespacedName::from_object(pod), pod.uid());
        if !needs_scheduler(pod) {
            self.pods.remove(&key);
        } else if self.pods.get(&key).is_none_or(|known| known.uid != uid) {
            self.pods.insert(key, UnscheduledPod { uid, due });
        }
    }

    fn remove(&mut self, key: &NamespacedName) {
        self.pods.remove(key);
    }

    fn retain(&mut self, keys: &HashSet<NamespacedName>) {
        self.pods.retain(|key, _| keys.contains(key));
    }

    /// Takes the pods that are due; each becomes due again later.
    fn take_due(&mut self, now: Instant) -> Vec<NamespacedName> {
        let mut due = Vec::new();
        for (key, pod) in self.pods.iter_mut().filter(|(_, pod)| pod.due <= now) {
            pod.due = now + REPEAT;
            due.push(key.clone());
        }
        due
    }
}

/// Whether a pod waits for the default scheduler, which has not reported on it.
fn needs_scheduler(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let mut judged = conditions.into_iter().flatten().filter(|one| one.type_ == "PodScheduled");
    spec.node_name.as_deref().unwrap_or_default().is_empty()
        && spec.scheduler_name.as_deref().is_none_or(|name| name == SCHEDULER)
        && spec.scheduling_gates.as_ref().is_none_or(Vec::is_empty)
        && pod.metadata.deletion_timestamp.is_none()
        && phase == "Pending"
        && judged.next().is_none()
}

async fn reconcile(
    client: Client,
    key: NamespacedName,
    events: Arc<EventRecorder>,
    clock: Clock,
) -> anyhow::Result<Requeue> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &key.namespace);
    let Some(pod) = pods.get_opt(&key.name).await?.filter(needs_scheduler) else {
        return Ok(Requeue::Done);
    };
    let leases: Api<Lease> = Api::namespaced(client, "kube-system");
    if leases.get_metadata_opt(SCHEDULER_LEASE).await?.is_some() {
        return Ok(Requeue::Done);
    }
    // The name makes it one event per pod, whichever process writes it.
    let event = NewEvent::warning("Scheduling", REASON, NOTE)
        .named(format!("{CONTROLLER}-{}", pod.uid().unwrap_or_default()));
    let recorded = events.try_record(pod.object_ref(&()), event, clock()).await;
    tokio::time::sleep(PAUSE).await;
    match recorded {
        Ok(RecordOutcome::Created) => tracing::info!(pod = %key, reason = REASON, "{NOTE}"),
        Ok(RecordOutcome::Exists | RecordOutcome::Repeated) => {}
        Ok(RecordOutcome::RateLimited) => {
            return Ok(Requeue::WithBackoff("rate limit of events exhausted".into()));
        }
        // The namespace is gone or being deleted, and the pod with it.
        Err(RecordError::Api(kube::Error::Api(status))) if matches!(status.code, 403 | 404) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(Requeue::Done)
}

fn lock(waiting: &Mutex<UnscheduledPods>) -> MutexGuard<'_, UnscheduledPods> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn build_pod(uid: &str, spec: Value, status: Value) -> Pod {
        let metadata = json!({"name": "p", "namespace": "ns", "uid": uid});
        let pod = json!({"metadata": metadata, "spec": spec, "status": status});
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn only_pods_without_another_scheduler_need_one() {
        let spec = |more: Value| {
            let mut spec = json!({"containers": [], "schedulerName": "default-scheduler"});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            spec
        };
        let scheduled = json!({"conditions": [{"type": "PodScheduled", "status": "False"}]});
        for (pod, expected) in [
            (build_pod("u", spec(json!({})), json!({})), true),
            (build_pod("u", spec(json!({"nodeName": ""})), json!({"phase": "Pending"})), true),
            (build_pod("u", spec(json!({"nodeName": "n1"})), json!({"phase": "Pending"})), false),
            (build_pod("u", spec(json!({"schedulerName": "mine"})), json!({})), false),
            (build_pod("u", spec(json!({"schedulingGates": [{"name": "g"}]})), json!({})), false),
            (build_pod("u", spec(json!({})), json!({"phase": "Failed"})), false),
            (build_pod("u", spec(json!({})), scheduled), false),
        ] {
            assert_eq!(needs_scheduler(&pod), expected, "{pod:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_is_due_once_an_hour_until_it_has_a_node() {
        let (mut waiting, start) = (UnscheduledPods::default(), Instant::now());
        let at = |second| start + Duration::from_secs(second);
        let pending = |uid| build_pod(uid, json!({"containers": []}), json!({}));
        waiting.observe(&pending("u"), at(10));
        // Observing the same pod again does not extend its wait.
        waiting.observe(&pending("u"), at(20));
        assert!(waiting.take_due(at(9)).is_empty());
        assert_eq!(waiting.take_due(at(10)).len(), 1);
        assert!(waiting.take_due(at(11)).is_empty());
        assert_eq!(waiting.take_due(at(4000)).len(), 1);
        // A new pod of the same name waits from the start.
        waiting.observe(&pending("v"), at(4020));
        assert!(waiting.take_due(at(4019)).is_empty());
        waiting.observe(&build_pod("v", json!({"containers": [], "nodeName": "n1"}), json!({})), at(4020));
        assert!(waiting.take_due(at(9000)).is_empty());
    }
}
