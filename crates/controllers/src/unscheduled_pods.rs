//! Explains on pods that nobody schedules why they stay Pending: by an event, once an hour for each.
//!
//! Windlass has no scheduler. A pod without `spec.nodeName` waits for somebody to bind it, which is easily
//! overlooked. Where a scheduler runs, or a pod names another one, nothing is said.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::api::PostParams;
use kube::runtime::watcher;
use kube::{Api, Client, Resource as _, ResourceExt as _};
use tokio::time::Instant;

use crate::csr::is_not_found;
use crate::event_recorder::{self, WarningEvent};
use crate::metrics::UNSCHEDULED;
use crate::namespaced_name::NamespacedName;
use crate::options::Clock;
use crate::resource_watch;
use crate::work_queue::{RetryBackoff, WorkQueue};
use crate::workers::{self, ReconcileOutcome};

const CONTROLLER: &str = "unscheduled-pod";
/// The scheduler of pods that name none.
const SCHEDULER: &str = "default-scheduler";
/// The lease that a kube-scheduler holds, in `kube-system`.
const SCHEDULER_LEASE: &str = "kube-scheduler";
const REASON: &str = "NotScheduled";
const NOTE: &str = "no scheduler is running, so nothing assigns this pod to a node: set spec.nodeName \
                    when it is created, or bind it to a node";
/// Pause after each event: however many pods wait, at most five events a second are written.
const PAUSE: Duration = Duration::from_millis(200);
/// Interval between checks for pods that have waited long enough.
const CHECK: Duration = Duration::from_millis(500);
/// Events expire after an hour; a pod that still waits gets another one.
const REPEAT: Duration = Duration::from_secs(61 * 60);
const BACKOFF: RetryBackoff = RetryBackoff::new(Duration::from_secs(1), Duration::from_secs(60));

/// Runs the loop; does not end. `patience` is how long a pod may wait before it is explained.
pub async fn run(client: Client, patience: Duration, clock: Clock) {
    let queue = Arc::new(WorkQueue::new(&UNSCHEDULED, BACKOFF));
    let waiting = Mutex::new(UnscheduledPods::default());
    let mut listed = HashSet::new();
    let pods: Api<Pod> = Api::all(client.clone());
    let fields = Some("spec.nodeName=");
    let watch = resource_watch::watch_objects(pods, "pods", fields, &UNSCHEDULED, |event| {
        let mut waiting = lock(&waiting);
        match event {
            watcher::Event::Init => listed.clear(),
            watcher::Event::InitApply(pod) => {
                listed.insert(NamespacedName::from_object(&pod));
                waiting.observe(&pod, Instant::now() + patience);
            }
            watcher::Event::InitDone => waiting.retain(&std::mem::take(&mut listed)),
            watcher::Event::Apply(pod) => waiting.observe(&pod, Instant::now() + patience),
            watcher::Event::Delete(pod) => waiting.remove(&NamespacedName::from_object(&pod)),
        }
    });
    let check = async {
        loop {
            tokio::time::sleep(CHECK).await;
            lock(&waiting).take_due(Instant::now()).into_iter().for_each(|key| queue.add(key));
        }
    };
    let reconcile = |key| reconcile(client.clone(), key, clock.clone());
    // One worker, so that PAUSE limits the rate.
    tokio::join!(watch, check, workers::run(queue.clone(), 1, reconcile));
}

/// Pods without a node, and when each is due to be explained.
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
    /// A pod as it is now; if it is new, it is due then.
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

    /// Those that are due now; each is due again later.
    fn take_due(&mut self, now: Instant) -> Vec<NamespacedName> {
        let mut due = Vec::new();
        for (key, pod) in self.pods.iter_mut().filter(|(_, pod)| pod.due <= now) {
            pod.due = now + REPEAT;
            due.push(key.clone());
        }
        due
    }
}

/// Whether a pod waits for the default scheduler, and that has not said anything about it.
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
    clock: Clock,
) -> anyhow::Result<ReconcileOutcome> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &key.namespace);
    let Some(pod) = pods.get_opt(&key.name).await?.filter(needs_scheduler) else {
        return Ok(ReconcileOutcome::Done);
    };
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    if leases.get_metadata_opt(SCHEDULER_LEASE).await?.is_some() {
        return Ok(ReconcileOutcome::Done);
    }
    let notice = WarningEvent { action: "Scheduling", reason: REASON, note: NOTE };
    let mut event = event_recorder::build_event(CONTROLLER, pod.object_ref(&()), &notice, clock());
    // One for each pod, whichever process writes it.
    event.metadata.generate_name = None;
    event.metadata.name = Some(format!("{CONTROLLER}-{}", pod.uid().unwrap_or_default()));
    let events: Api<Event> = Api::namespaced(client, &key.namespace);
    let written = events.create(&PostParams::default(), &event).await;
    tokio::time::sleep(PAUSE).await;
    match written {
        Ok(_) => tracing::info!(pod = %key, reason = REASON, "{NOTE}"),
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        // Its namespace is gone or going, and the pod with it.
        Err(error) if is_not_found(&error) => {}
        Err(kube::Error::Api(status)) if status.is_forbidden() => {}
        Err(error) => return Err(error.into()),
    }
    Ok(ReconcileOutcome::Done)
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
    fn only_pods_that_nobody_looks_after_need_a_scheduler() {
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
        // What is seen again is not put off.
        waiting.observe(&pending("u"), at(20));
        assert!(waiting.take_due(at(9)).is_empty());
        assert_eq!(waiting.take_due(at(10)).len(), 1);
        assert!(waiting.take_due(at(11)).is_empty());
        assert_eq!(waiting.take_due(at(4000)).len(), 1);
        // Another one of the same name waits anew.
        waiting.observe(&pending("v"), at(4020));
        assert!(waiting.take_due(at(4019)).is_empty());
        waiting.observe(
            &build_pod("v", json!({"containers": [], "nodeName": "n1"}), json!({})),
            at(4020),
        );
        assert!(waiting.take_due(at(9000)).is_empty());
    }
}
