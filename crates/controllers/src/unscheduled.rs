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

use crate::feed;
use crate::metrics::UNSCHEDULED;
use crate::namespaced::Namespaced;
use crate::notices::{self, Notice};
use crate::options::Clock;
use crate::pool::{self, Next};
use crate::queue::{Backoff, Queue};
use crate::requests::is_gone;

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
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));

/// Runs the loop; does not end. `patience` is how long a pod may wait before it is explained.
pub async fn run(client: Client, patience: Duration, clock: Clock) {
    let queue = Arc::new(Queue::new(&UNSCHEDULED, BACKOFF));
    let waiting = Mutex::new(WaitingPods::default());
    let mut listed = HashSet::new();
    let pods: Api<Pod> = Api::all(client.clone());
    let fields = Some("spec.nodeName=");
    let watch = feed::follow_whole(pods, "pods", fields, &UNSCHEDULED, |event| {
        let mut waiting = lock(&waiting);
        match event {
            watcher::Event::Init => listed.clear(),
            watcher::Event::InitApply(pod) => {
                listed.insert(Namespaced::of(&pod));
                waiting.see(&pod, Instant::now() + patience);
            }
            watcher::Event::InitDone => waiting.retain(&std::mem::take(&mut listed)),
            watcher::Event::Apply(pod) => waiting.see(&pod, Instant::now() + patience),
            watcher::Event::Delete(pod) => waiting.forget(&Namespaced::of(&pod)),
        }
    });
    let check = async {
        loop {
            tokio::time::sleep(CHECK).await;
            lock(&waiting).due(Instant::now()).into_iter().for_each(|key| queue.add(key));
        }
    };
    let reconcile = |key| reconcile(client.clone(), key, clock.clone());
    // One worker, so that PAUSE limits the rate.
    tokio::join!(watch, check, pool::work(queue.clone(), 1, reconcile));
}

/// Pods without a node, and when each is due to be explained.
#[derive(Debug, Default)]
struct WaitingPods {
    pods: BTreeMap<Namespaced, WaitingPod>,
}

#[derive(Debug)]
struct WaitingPod {
    uid: Option<String>,
    due: Instant,
}

impl WaitingPods {
    /// A pod as it is now; if it is new, it is due then.
    fn see(&mut self, pod: &Pod, due: Instant) {
        let (key, uid) = (Namespaced::of(pod), pod.uid());
        if !needs_scheduler(pod) {
            self.pods.remove(&key);
        } else if self.pods.get(&key).is_none_or(|known| known.uid != uid) {
            self.pods.insert(key, WaitingPod { uid, due });
        }
    }

    fn forget(&mut self, key: &Namespaced) {
        self.pods.remove(key);
    }

    fn retain(&mut self, keys: &HashSet<Namespaced>) {
        self.pods.retain(|key, _| keys.contains(key));
    }

    /// Those that are due now; each is due again later.
    fn due(&mut self, now: Instant) -> Vec<Namespaced> {
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

async fn reconcile(client: Client, key: Namespaced, clock: Clock) -> anyhow::Result<Next> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &key.namespace);
    let Some(pod) = pods.get_opt(&key.name).await?.filter(needs_scheduler) else {
        return Ok(Next::Done);
    };
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    if leases.get_metadata_opt(SCHEDULER_LEASE).await?.is_some() {
        return Ok(Next::Done);
    }
    let notice = Notice { action: "Scheduling", reason: REASON, note: NOTE };
    let mut event = notices::event(CONTROLLER, pod.object_ref(&()), &notice, clock());
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
        Err(error) if is_gone(&error) => {}
        Err(kube::Error::Api(status)) if status.is_forbidden() => {}
        Err(error) => return Err(error.into()),
    }
    Ok(Next::Done)
}

fn lock(waiting: &Mutex<WaitingPods>) -> MutexGuard<'_, WaitingPods> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(uid: &str, spec: Value, status: Value) -> Pod {
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
            (pod("u", spec(json!({})), json!({})), true),
            (pod("u", spec(json!({"nodeName": ""})), json!({"phase": "Pending"})), true),
            (pod("u", spec(json!({"nodeName": "n1"})), json!({"phase": "Pending"})), false),
            (pod("u", spec(json!({"schedulerName": "mine"})), json!({})), false),
            (pod("u", spec(json!({"schedulingGates": [{"name": "g"}]})), json!({})), false),
            (pod("u", spec(json!({})), json!({"phase": "Failed"})), false),
            (pod("u", spec(json!({})), scheduled), false),
        ] {
            assert_eq!(needs_scheduler(&pod), expected, "{pod:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_is_due_once_an_hour_until_it_has_a_node() {
        let (mut waiting, start) = (WaitingPods::default(), Instant::now());
        let at = |second| start + Duration::from_secs(second);
        let pending = |uid| pod(uid, json!({"containers": []}), json!({}));
        waiting.see(&pending("u"), at(10));
        // What is seen again is not put off.
        waiting.see(&pending("u"), at(20));
        assert!(waiting.due(at(9)).is_empty());
        assert_eq!(waiting.due(at(10)).len(), 1);
        assert!(waiting.due(at(11)).is_empty());
        assert_eq!(waiting.due(at(4000)).len(), 1);
        // Another one of the same name waits anew.
        waiting.see(&pending("v"), at(4020));
        assert!(waiting.due(at(4019)).is_empty());
        waiting.see(&pod("v", json!({"containers": [], "nodeName": "n1"}), json!({})), at(4020));
        assert!(waiting.due(at(9000)).is_empty());
    }
}
