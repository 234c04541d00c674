//! Tells pods how their volumes are: a `FailedMount` event, and a condition.
//!
//! The condition `windlass.dev/VolumesReady` is `True` when all volumes have the files that they
//! should have. It is `False` with the reason `FailedMount` when one has none, and with
//! `KeepingOldContent` when all have files, but one has older ones than it should: the application
//! goes on, and somebody should know. It is written when it changes, and only then.
//!
//! This is a courtesy to people: what cannot be written holds up nothing.

mod report_state;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

use super::pod_volumes_root::is_path_element;
use crate::clock::{Clock, text};
use crate::csr::{PATIENCE, explain};
use crate::node_certificates::backoff::RateLimiter;
use crate::node_certificates::{Backoff, RandomSource, RetryPolicy};
use crate::node_status::object::timestamp;

pub use report_state::MountState;
use report_state::{
    CONDITION, NextUpdate, PodReportState, StatusUpdate, VolumesCondition, truncate_message,
};

const REPORTER: &str = "windlass.dev/node";
/// How long nothing is sent to a server that does not answer.
const REST: Backoff = Backoff { initial: Duration::from_secs(1), max: Duration::from_secs(60) };
/// So many events at once, and then one a second; those beyond are not written.
const EVENTS: (f64, Duration) = (50.0, Duration::from_secs(1));
/// So many conditions at once, and then twenty a second; those beyond wait.
const CONDITIONS: (f64, Duration) = (50.0, Duration::from_millis(50));

/// What the one who tells is told.
pub enum PodReport {
    /// The volumes of a pod are like this.
    Pod(Arc<Pod>, BTreeMap<String, MountState>),
    /// The pod with this UID is gone.
    Removed(String),
}

/// Writes `FailedMount` events and the `VolumesReady` condition of pods.
pub struct PodStatusReporter {
    client: Client,
    node: String,
    clock: Clock,
    random: RandomSource,
    pods: BTreeMap<String, PodReportState>,
    /// The names of events, by pod and volume.
    events: BTreeMap<(String, String), String>,
    event_budget: RateLimiter,
    condition_budget: RateLimiter,
    failures: u32,
    rest: Duration,
}

/// Why the server did not do it.
enum StatusWriteError {
    /// The server rejected the request with this HTTP status.
    Refused(u16),
    /// The server did not answer, or could not be reached.
    Unreachable,
}

impl PodStatusReporter {
    pub fn new(client: Client, node: String, clock: Clock, random: RandomSource) -> Self {
        Self {
            client,
            node,
            clock,
            random,
            pods: BTreeMap::new(),
            events: BTreeMap::new(),
            event_budget: RateLimiter::new(&pace(EVENTS)),
            condition_budget: RateLimiter::new(&pace(CONDITIONS)),
            failures: 0,
            rest: Duration::ZERO,
        }
    }

    /// Tells until nobody has anything to say any more.
    pub async fn run(mut self, mut news: UnboundedReceiver<PodReport>) {
        loop {
            while let Ok(tell) = news.try_recv() {
                self.receive(tell);
            }
            let now = (self.clock)().since;
            let wait = match self.next(now) {
                Ok((uid, deed)) => {
                    self.perform(&uid, deed).await;
                    continue;
                }
                Err(at) => at.map(|at| at.saturating_sub(now)),
            };
            let sleep = async {
                match wait {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                tell = news.recv() => match tell {
                    Some(tell) => self.receive(tell),
                    None => return,
                },
                () = sleep => {}
            }
        }
    }

    fn receive(&mut self, tell: PodReport) {
        let now = (self.clock)().since;
        match tell {
            PodReport::Pod(pod, mounts) => {
                let Some(uid) = pod.metadata.uid.clone() else { return };
                // They become parts of an address.
                let names = [&pod.metadata.name, &pod.metadata.namespace];
                if !names.iter().all(|name| name.as_deref().is_some_and(is_path_element)) {
                    return;
                }
                let told = self.pods.entry(uid).or_insert_with(|| PodReportState::new(pod.clone()));
                told.update(pod, mounts, now);
            }
            PodReport::Removed(uid) => {
                self.pods.remove(&uid);
                self.events.retain(|(pod, _), _| *pod != uid);
            }
        }
    }

    /// What is to be done now, or when there is something.
    fn next(&mut self, now: Duration) -> Result<(String, StatusUpdate), Option<Duration>> {
        let mut wait = None::<Duration>;
        for (uid, told) in &self.pods {
            match told.next(now) {
                NextUpdate::Wait(at) => wait = wait.into_iter().chain(at).min(),
                NextUpdate::Do(_) if now < self.rest => return Err(Some(self.rest)),
                NextUpdate::Do(deed @ StatusUpdate::Event { .. }) => {
                    return Ok((uid.clone(), deed));
                }
                NextUpdate::Do(deed @ StatusUpdate::Condition(_)) => {
                    match self.condition_budget.try_acquire(&pace(CONDITIONS), now) {
                        Ok(()) => return Ok((uid.clone(), deed)),
                        Err(pause) => return Err(Some(now + pause)),
                    }
                }
            }
        }
        Err(wait)
    }

    async fn perform(&mut self, uid: &str, deed: StatusUpdate) {
        let Some(pod) = self.pods.get(uid).map(|told| told.pod.clone()) else { return };
        match deed {
            StatusUpdate::Event { volume, note, count } => {
                let now = (self.clock)().since;
                let outcome = match self.event_budget.try_acquire(&pace(EVENTS), now) {
                    Ok(()) => self.event(&pod, &volume, &note, count).await,
                    Err(_) => Ok(()),
                };
                self.note_answer(outcome.as_ref().err());
                let now = (self.clock)().since;
                if let Some(told) = self.pods.get_mut(uid) {
                    told.event_written(&volume, &note, count, now);
                }
            }
            StatusUpdate::Condition(condition) => {
                let outcome = self.condition(&pod, uid, &condition).await;
                self.note_answer(outcome.as_ref().err());
                let (now, random) = ((self.clock)().since, (self.random)());
                let Some(told) = self.pods.get_mut(uid) else { return };
                match outcome {
                    // One that is gone, or has another UID, needs none.
                    Ok(()) | Err(StatusWriteError::Refused(404 | 409)) => {
                        told.condition_written(condition, now)
                    }
                    Err(_) => told.condition_failed(now, random),
                }
            }
        }
    }

    /// Leaves a server alone that does not answer.
    fn note_answer(&mut self, failure: Option<&StatusWriteError>) {
        match failure {
            None | Some(StatusWriteError::Refused(_)) => self.failures = 0,
            Some(StatusWriteError::Unreachable) => {
                let pause = REST.after(self.failures, (self.random)());
                self.failures = self.failures.saturating_add(1);
                self.rest = (self.clock)().since + pause;
            }
        }
    }

    async fn condition(
        &self,
        pod: &Pod,
        uid: &str,
        wanted: &VolumesCondition,
    ) -> Result<(), StatusWriteError> {
        let now = (self.clock)().wall;
        let mut condition = json!({
            "type": CONDITION,
            "status": if wanted.status { "True" } else { "False" },
            "reason": wanted.reason,
            "message": wanted.message,
        });
        let same = self.pods.get(uid).is_some_and(|told| told.has_status(wanted.status));
        if let (false, Some(condition)) = (same, condition.as_object_mut()) {
            condition.insert("lastTransitionTime".into(), text(now).into());
        }
        // With its UID, it is this pod or none.
        let patch = json!({"metadata": {"uid": uid}, "status": {"conditions": [condition]}});
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace_of(pod));
        let params = PatchParams::default();
        call_api(pods.patch_status(name_of(pod), &params, &Patch::Strategic(patch))).await.map(drop)
    }

    /// Writes an event, or counts one more of the one that is there.
    async fn event(
        &mut self,
        pod: &Pod,
        volume: &str,
        note: &str,
        count: u32,
    ) -> Result<(), StatusWriteError> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace_of(pod));
        let now = (self.clock)().wall;
        let key = (pod.metadata.uid.clone().unwrap_or_default(), volume.to_owned());
        if let Some(name) = self.events.get(&key).filter(|_| count > 1) {
            let patch = json!({"count": count, "lastTimestamp": text(now)});
            let params = PatchParams::default();
            match call_api(events.patch(name, &params, &Patch::Strategic(patch))).await {
                Ok(_) => return Ok(()),
                // Events do not last.
                Err(StatusWriteError::Refused(404)) => {}
                Err(failure) => return Err(failure),
            }
        }
        let event = event(&self.node, pod, note, timestamp(now).map(Time));
        let made = call_api(events.create(&PostParams::default(), &event)).await?;
        if let Some(name) = made.metadata.name {
            self.events.insert(key, name);
        }
        Ok(())
    }
}

fn event(node: &str, pod: &Pod, note: &str, now: Option<Time>) -> Event {
    Event {
        metadata: ObjectMeta {
            generate_name: Some("windlass-node-".into()),
            namespace: pod.metadata.namespace.clone(),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            name: pod.metadata.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            uid: pod.metadata.uid.clone(),
            resource_version: pod.metadata.resource_version.clone(),
            ..ObjectReference::default()
        },
        type_: Some("Warning".into()),
        reason: Some("FailedMount".into()),
        message: Some(truncate_message(note.to_owned())),
        source: Some(EventSource { component: Some(REPORTER.into()), host: Some(node.to_owned()) }),
        reporting_component: Some(REPORTER.into()),
        reporting_instance: Some(node.to_owned()),
        first_timestamp: now.clone(),
        last_timestamp: now,
        count: Some(1),
        ..Event::default()
    }
}

fn name_of(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

fn namespace_of(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or_default()
}

fn pace((burst, refill): (f64, Duration)) -> RetryPolicy {
    RetryPolicy { burst, refill, ..RetryPolicy::default() }
}

async fn call_api<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, StatusWriteError> {
    match timeout(PATIENCE, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => {
            tracing::debug!("cannot tell a pod: {}", explain(&error));
            Err(match error {
                kube::Error::Api(status) => StatusWriteError::Refused(status.code),
                _ => StatusWriteError::Unreachable,
            })
        }
        Err(_) => {
            tracing::debug!("cannot tell a pod: no answer");
            Err(StatusWriteError::Unreachable)
        }
    }
}
