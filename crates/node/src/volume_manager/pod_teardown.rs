//! Pods that have no volumes any more: what is left of them is removed, and then the server is told
//! that they are gone, which nobody else does on a node without a kubelet.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Client};
use tokio::time::timeout;

use super::pod_volumes::{deletion, is_terminated};
use super::pod_volumes_root::is_path_element;
use super::volume_loop::{LoopTask, LoopTaskResult, TROUBLE, VolumeLoop};
use crate::clock::ClockReading;
use crate::csr::{PATIENCE, explain};
use crate::volume::id::VolumeOwner;

/// How many of them are seen to at the same time.
const AT_ONCE: usize = 4;

/// Teardown of one pod: remove its directories, then confirm its deletion.
#[derive(Debug, Default)]
pub struct PodTeardown {
    removed: bool,
    /// Whether the server knows that it is gone.
    confirmed: bool,
    busy: bool,
    failures: u32,
    retry_at: Option<Duration>,
}

/// What to do about one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TeardownStep {
    Nothing,
    Remove,
    Confirm,
}

impl PodTeardown {
    /// Whether nothing is left of it here.
    pub fn is_complete(&self) -> bool {
        self.removed && !self.busy
    }

    pub fn retry_at(&self) -> Option<Duration> {
        self.retry_at.filter(|_| !self.busy)
    }

    /// `written`: whether one of its volumes is being worked on. `ended`: whether the server waits to
    /// hear that it is gone.
    fn step(
        &self,
        now: Duration,
        written: impl FnOnce() -> bool,
        ended: impl FnOnce() -> bool,
    ) -> TeardownStep {
        let waits = self.busy || self.retry_at.is_some_and(|at| at > now);
        match (self.removed, self.confirmed) {
            _ if waits => TeardownStep::Nothing,
            (false, _) if written() => TeardownStep::Nothing,
            (false, _) => TeardownStep::Remove,
            (true, false) if ended() => TeardownStep::Confirm,
            (true, _) => TeardownStep::Nothing,
        }
    }
}

impl VolumeLoop {
    /// Goes on with those that are leaving.
    pub fn advance(&mut self, now: ClockReading) {
        if self.teardowns.is_empty() {
            return;
        }
        let pods = self.manager.pods.borrow().clone().unwrap_or_default();
        let kubelet = self.manager.registration.borrow().kubelet;
        let ended = |uid: &str| pods.get(uid).filter(|pod| !kubelet && is_deletion_due(pod, now));
        let busy = self.teardowns.values().filter(|leaving| leaving.busy).count();
        let steps = self.teardowns.iter().map(|(uid, leaving)| {
            let written = || self.busy.iter().any(|id| is_owned_by_pod(&id.owner, uid));
            (uid, leaving.step(now.since, written, || ended(uid).is_some()))
        });
        let steps = steps.filter(|(_, step)| *step != TeardownStep::Nothing);
        let steps = steps.take(AT_ONCE.saturating_sub(busy));
        for (uid, step) in steps.map(|(uid, step)| (uid.clone(), step)).collect::<Vec<_>>() {
            let Some(leaving) = self.teardowns.get_mut(&uid) else { continue };
            (leaving.busy, leaving.retry_at) = (true, None);
            let task = LoopTask::Teardown(uid.clone());
            if let (TeardownStep::Confirm, Some(pod)) = (step, ended(&uid)) {
                let (client, pod) = (self.manager.client.clone(), pod.clone());
                self.spawn_request(task, async move {
                    LoopTaskResult::Confirmed(confirm(client, &pod).await)
                });
            } else {
                let place = self.root.clone();
                self.spawn(task, move || {
                    LoopTaskResult::Removed(place.remove(&uid).map_err(|error| error.to_string()))
                });
            }
        }
    }

    /// A step was made, or not.
    pub fn finish_teardown_step(&mut self, uid: &str, finished: Result<LoopTaskResult, String>) {
        let (now, random) = (self.now().since, (self.manager.random)());
        let Some(leaving) = self.teardowns.get_mut(uid) else { return };
        leaving.busy = false;
        let why = match finished {
            Ok(LoopTaskResult::Removed(Ok(()))) => {
                (leaving.removed, leaving.failures) = (true, 0);
                tracing::debug!(pod = uid, "removed everything of a pod");
                // It may be that it is to have volumes again, or that it need not be remembered.
                return self.sync_pods();
            }
            Ok(LoopTaskResult::Confirmed(Ok(()))) => {
                (leaving.confirmed, leaving.failures) = (true, 0);
                return;
            }
            Ok(LoopTaskResult::Removed(Err(why)) | LoopTaskResult::Confirmed(Err(why)))
            | Err(why) => why,
            Ok(_) => return,
        };
        if leaving.failures == 0 {
            tracing::warn!(pod = uid, "cannot remove what is left of a pod: {why}");
        }
        leaving.retry_at = Some(now + TROUBLE.after(leaving.failures, random));
        leaving.failures = leaving.failures.saturating_add(1);
    }

    /// Of these pods there is something.
    pub fn finish_sweep(&mut self, finished: Result<LoopTaskResult, String>) {
        let uids = match finished {
            Ok(LoopTaskResult::Swept(Ok(uids))) => uids,
            Ok(LoopTaskResult::Swept(Err(why))) | Err(why) => {
                return tracing::warn!("cannot look for what belongs to no pod: {why}");
            }
            Ok(_) => return,
        };
        for uid in uids {
            if self.pods.contains_key(&uid) {
                continue;
            }
            let leaving = self.teardowns.entry(uid.clone()).or_default();
            if !leaving.busy {
                tracing::info!(pod = uid, "removing what is left of a pod");
                // Also when something was written after it had been removed.
                leaving.removed = false;
            }
        }
    }
}

fn is_owned_by_pod(owner: &VolumeOwner, of: &str) -> bool {
    match owner {
        VolumeOwner::Pod { uid, .. } => uid == of,
        VolumeOwner::Host => false,
    }
}

/// Whether the server waits to hear that a pod is gone.
fn is_deletion_due(pod: &Pod, now: ClockReading) -> bool {
    deletion(pod).is_some_and(|at| at <= now.wall || is_terminated(pod))
}

/// Deletes a pod of which nothing is left. With its UID, it is this pod or none.
async fn confirm(client: Client, pod: &Pod) -> Result<(), String> {
    let meta = &pod.metadata;
    let (Some(namespace), Some(name)) = (meta.namespace.as_deref(), meta.name.as_deref()) else {
        return Ok(());
    };
    // They become parts of an address.
    if !is_path_element(namespace) || !is_path_element(name) {
        return Ok(());
    }
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions { uid: meta.uid.clone(), resource_version: None }),
        ..DeleteParams::default()
    };
    let pods: Api<Pod> = Api::namespaced(client, namespace);
    match timeout(PATIENCE, pods.delete(name, &params)).await {
        Ok(Ok(_)) => Ok(()),
        // It is gone, or another has its name.
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => Ok(()),
        Ok(Err(error)) => Err(explain(&error)),
        Err(_) => Err("the server did not answer".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_removed_then_confirmed() {
        let leaving = |removed, confirmed, busy, retry: Option<u64>| PodTeardown {
            removed,
            confirmed,
            busy,
            failures: 0,
            retry_at: retry.map(Duration::from_secs),
        };
        let table = [
            // What it is, whether it is written, whether it has ended; what is done.
            (leaving(false, false, false, None), false, true, TeardownStep::Remove),
            (leaving(false, false, false, None), true, true, TeardownStep::Nothing),
            (leaving(false, false, true, None), false, true, TeardownStep::Nothing),
            (leaving(false, false, false, Some(10)), false, true, TeardownStep::Remove),
            (leaving(false, false, false, Some(11)), false, true, TeardownStep::Nothing),
            (leaving(true, false, false, None), false, true, TeardownStep::Confirm),
            (leaving(true, false, false, None), true, true, TeardownStep::Confirm),
            (leaving(true, false, false, None), false, false, TeardownStep::Nothing),
            (leaving(true, false, false, Some(11)), false, true, TeardownStep::Nothing),
            (leaving(true, true, false, None), false, true, TeardownStep::Nothing),
        ];
        for (leaving, written, ended, step) in table {
            let found = leaving.step(Duration::from_secs(10), || written, || ended);
            assert_eq!(found, step, "{leaving:?} {written} {ended}");
        }
    }
}
