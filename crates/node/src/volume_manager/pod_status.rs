//! Reports the state of volumes to their pods: a `FailedMount` event and a condition.
//!
//! The condition `windlass.dev/VolumesReady` is `True` when all volumes are up to date. It is
//! `False` with the reason `FailedMount` when a volume has no files, and with `KeepingOldContent`
//! when all have files but one is stale: the application continues, and an operator should know. It
//! is written only when it changes.
//!
//! Reports are best effort: a failed write blocks nothing.

mod report_state;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;
use windlass_runtime::backoff::Backoff;
use windlass_runtime::client_error::describe;
use windlass_runtime::events::{EventRecorder, EventReporter, NewEvent, RecordError, pod_reference};
use windlass_runtime::rate_limit::{RateLimit, TokenBucket};

use super::pod_volumes_root::is_path_element;
use crate::clock::{Clock, text};
use crate::csr::PATIENCE;
use crate::node_certificates::RandomSource;

pub use report_state::MountState;
use report_state::{CONDITION, NextUpdate, PodReportState, StatusUpdate, VolumesCondition};

/// Pause of all writes while the server does not respond.
const REST: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
/// Limit of events; those beyond it are not written.
const EVENT_LIMIT: RateLimit = RateLimit { burst: 50, refill: Duration::from_secs(1) };
/// Limit of conditions; those beyond it wait.
const CONDITION_LIMIT: RateLimit = RateLimit { burst: 50, refill: Duration::from_millis(50) };

pub enum PodReport {
    Pod(Arc<Pod>, BTreeMap<String, MountState>),
    /// The pod with this UID has no volumes any more.
    Removed(String),
}

/// Writes `FailedMount` events and the `VolumesReady` condition of pods.
pub struct PodStatusReporter {
    client: Client,
    clock: Clock,
    random: RandomSource,
    pods: BTreeMap<String, PodReportState>,
    events: EventRecorder,
    condition_limit: TokenBucket,
    failures: u32,
    rest: Duration,
}

/// Why a write to the server failed.
enum StatusWriteError {
    /// The server rejected the request with this HTTP status.
    Refused(u16),
    /// The server did not respond, or could not be reached.
    Unreachable,
}

impl PodStatusReporter {
    pub fn new(client: Client, node: &str, clock: Clock, random: RandomSource) -> Self {
        let reporter = EventReporter::node(node);
        Self {
            events: EventRecorder::new(client.clone(), reporter, EVENT_LIMIT),
            client,
            clock,
            random,
            pods: BTreeMap::new(),
            condition_limit: TokenBucket::new(CONDITION_LIMIT),
            failures: 0,
            rest: Duration::ZERO,
        }
    }

    /// Writes reports until all senders are gone.
    pub async fn run(mut self, mut news: UnboundedReceiver<PodReport>) {
        loop {
            while let Ok(report) = news.try_recv() {
                self.receive(report);
            }
            let now = (self.clock)().since;
            let wait = match self.next(now) {
                Ok((uid, update)) => {
                    self.perform(&uid, update).await;
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
                report = news.recv() => match report {
                    Some(report) => self.receive(report),
                    None => return,
                },
                () = sleep => {}
            }
        }
    }

    fn receive(&mut self, report: PodReport) {
        let now = (self.clock)().since;
        match report {
            PodReport::Pod(pod, mounts) => {
                let Some(uid) = pod.metadata.uid.clone() else { return };
                // They become parts of a URL.
                let names = [&pod.metadata.name, &pod.metadata.namespace];
                if !names.iter().all(|name| name.as_deref().is_some_and(is_path_element)) {
                    return;
                }
                let state = self.pods.entry(uid).or_insert_with(|| PodReportState::new(pod.clone()));
                state.update(pod, mounts, now);
            }
            PodReport::Removed(uid) => {
                self.pods.remove(&uid);
                self.events.forget(&uid);
            }
        }
    }

    /// Returns the next update, or the time at which one is due.
    fn next(&mut self, now: Duration) -> Result<(String, StatusUpdate), Option<Duration>> {
        let mut wait = None::<Duration>;
        for (uid, state) in &self.pods {
            match state.next(now) {
                NextUpdate::Wait(at) => wait = wait.into_iter().chain(at).min(),
                NextUpdate::Do(_) if now < self.rest => return Err(Some(self.rest)),
                NextUpdate::Do(update @ StatusUpdate::Event { .. }) => {
                    return Ok((uid.clone(), update));
                }
                NextUpdate::Do(update @ StatusUpdate::Condition(_)) => match self.condition_limit.take(now) {
                    Ok(()) => return Ok((uid.clone(), update)),
                    Err(pause) => return Err(Some(now + pause)),
                },
            }
        }
        Err(wait)
    }

    async fn perform(&mut self, uid: &str, update: StatusUpdate) {
        let Some(pod) = self.pods.get(uid).map(|state| state.pod.clone()) else { return };
        match update {
            StatusUpdate::Event { volume, note, count } => {
                let outcome = self.record_event(&pod, &note).await;
                self.note_answer(outcome.as_ref().err());
                let now = (self.clock)().since;
                if let Some(state) = self.pods.get_mut(uid) {
                    state.event_written(&volume, &note, count, now);
                }
            }
            StatusUpdate::Condition(condition) => {
                let outcome = self.condition(&pod, uid, &condition).await;
                self.note_answer(outcome.as_ref().err());
                let (now, random) = ((self.clock)().since, (self.random)());
                let Some(state) = self.pods.get_mut(uid) else { return };
                match outcome {
                    // A pod that is gone or has another UID needs no condition.
                    Ok(()) | Err(StatusWriteError::Refused(404 | 409)) => {
                        state.condition_written(condition, now)
                    }
                    Err(_) => state.condition_failed(now, random),
                }
            }
        }
    }

    /// Backs off from a server that does not respond.
    fn note_answer(&mut self, failure: Option<&StatusWriteError>) {
        match failure {
            None | Some(StatusWriteError::Refused(_)) => self.failures = 0,
            Some(StatusWriteError::Unreachable) => {
                let pause = REST.delay(self.failures, (self.random)());
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
        let same = self.pods.get(uid).is_some_and(|state| state.has_status(wanted.status));
        if let (false, Some(condition)) = (same, condition.as_object_mut()) {
            condition.insert("lastTransitionTime".into(), text(now).into());
        }
        // The UID makes sure that it is this pod and no namesake.
        let patch = json!({"metadata": {"uid": uid}, "status": {"conditions": [condition]}});
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace_of(pod));
        let params = PatchParams::default();
        call_api(pods.patch_status(name_of(pod), &params, &Patch::Strategic(patch))).await.map(drop)
    }

    /// Writes an event, or increases the count of the same one.
    async fn record_event(&self, pod: &Pod, note: &str) -> Result<(), StatusWriteError> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let regarding = pod_reference(namespace_of(pod), name_of(pod), uid);
        let event = NewEvent::warning("MountVolume", "FailedMount", note);
        let recorded = self.events.try_record(regarding, event, (self.clock)().wall).await;
        recorded.map(drop).map_err(|error| {
            tracing::debug!(%error, "cannot record the event of a pod");
            match error {
                RecordError::Api(kube::Error::Api(status)) => StatusWriteError::Refused(status.code),
                RecordError::Api(_) | RecordError::TimedOut => StatusWriteError::Unreachable,
            }
        })
    }
}

fn name_of(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

fn namespace_of(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or_default()
}

async fn call_api<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, StatusWriteError> {
    match timeout(PATIENCE, call).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(error)) => {
            tracing::debug!(error = describe(&error), "cannot write the condition of a pod");
            Err(match error {
                kube::Error::Api(status) => StatusWriteError::Refused(status.code),
                _ => StatusWriteError::Unreachable,
            })
        }
        Err(_) => {
            tracing::debug!("cannot write the condition of a pod: request timed out");
            Err(StatusWriteError::Unreachable)
        }
    }
}
