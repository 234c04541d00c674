//! Teardown of pods without volumes: their directories are removed, and then their deletion is confirmed to
//! the server, which on a node without a kubelet nobody else does.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Client};
use tokio::time::timeout;

use super::pod_volumes_root::is_path_element;
use super::volume_state::DISK_RETRY;
use crate::csr::PATIENCE;
use windlass_runtime::client_error::describe;

/// Teardown steps that run at the same time.
const MAX_STEPS: usize = 4;

/// Pods that are being torn down, by UID.
#[derive(Default)]
pub struct PodTeardowns {
    pods: BTreeMap<String, PodTeardown>,
}

/// Teardown of one pod: remove its directories, then confirm its deletion.
#[derive(Debug, Default)]
struct PodTeardown {
    is_removed: bool,
    is_confirmed: bool,
    is_running: bool,
    failures: u32,
    retry_at: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TeardownStep {
    Remove,
    /// Confirm to the server that the pod is gone.
    Confirm,
}

impl PodTeardown {
    fn is_complete(&self) -> bool {
        self.is_removed && !self.is_running
    }

    /// Returns the next step. `is_written`: whether one of its volumes is being written. `is_due`:
    /// whether the server waits for the confirmation.
    fn next_step(
        &self,
        now: Duration,
        is_written: impl FnOnce() -> bool,
        is_due: impl FnOnce() -> bool,
    ) -> Option<TeardownStep> {
        if self.is_running || self.retry_at.is_some_and(|at| at > now) {
            return None;
        }
        match (self.is_removed, self.is_confirmed) {
            (false, _) if is_written() => None,
            (false, _) => Some(TeardownStep::Remove),
            (true, false) if is_due() => Some(TeardownStep::Confirm),
            (true, _) => None,
        }
    }
}

impl PodTeardowns {
    /// Starts the teardown of a pod, discarding an earlier one.
    pub fn start(&mut self, uid: &str) {
        self.pods.insert(uid.to_owned(), PodTeardown::default());
    }

    /// Starts the teardown of a pod, unless it has started before.
    pub fn ensure(&mut self, uid: &str) {
        self.pods.entry(uid.to_owned()).or_default();
    }

    /// Starts the teardown of a pod whose directory was found, even if it was removed before.
    pub fn restart(&mut self, uid: &str) {
        let teardown = self.pods.entry(uid.to_owned()).or_default();
        if !teardown.is_running {
            tracing::info!(pod = uid, "removing directories of a pod that does not exist");
            teardown.is_removed = false;
        }
    }

    /// Cancels the teardown of a pod that needs volumes again. Returns false if it must complete
    /// first.
    pub fn try_cancel(&mut self, uid: &str) -> bool {
        if self.pods.get(uid).is_some_and(|teardown| !teardown.is_complete()) {
            return false;
        }
        self.pods.remove(uid);
        true
    }

    /// Forgets completed teardowns of pods that no longer exist on the server.
    pub fn forget_complete(&mut self, exists: impl Fn(&str) -> bool) {
        self.pods.retain(|uid, teardown| exists(uid) || !teardown.is_complete());
    }

    /// Returns the monotonic time of the next retry.
    pub fn next_retry(&self) -> Option<Duration> {
        let waiting = self.pods.values().filter(|teardown| !teardown.is_running);
        waiting.filter_map(|teardown| teardown.retry_at).min()
    }

    /// Returns the steps to start now; each must be ended with [`PodTeardowns::finish`].
    pub fn start_steps(
        &mut self,
        now: Duration,
        is_written: impl Fn(&str) -> bool,
        is_due: impl Fn(&str) -> bool,
    ) -> Vec<(String, TeardownStep)> {
        let running = self.pods.values().filter(|teardown| teardown.is_running).count();
        let steps = self.pods.iter_mut().filter_map(|(uid, teardown)| {
            let step = teardown.next_step(now, || is_written(uid), || is_due(uid))?;
            Some((uid, teardown, step))
        });
        let steps = steps.take(MAX_STEPS.saturating_sub(running));
        let steps = steps.map(|(uid, teardown, step)| {
            (teardown.is_running, teardown.retry_at) = (true, None);
            (uid.clone(), step)
        });
        steps.collect()
    }

    /// Ends a step. A failed one is retried with backoff.
    pub fn finish(&mut self, uid: &str, result: Result<TeardownStep, String>, now: Duration, random: f64) {
        let Some(teardown) = self.pods.get_mut(uid) else { return };
        teardown.is_running = false;
        match result {
            Ok(step) => {
                teardown.failures = 0;
                match step {
                    TeardownStep::Remove => teardown.is_removed = true,
                    TeardownStep::Confirm => teardown.is_confirmed = true,
                }
            }
            Err(error) => {
                if teardown.failures == 0 {
                    tracing::warn!(pod = uid, error, "cannot tear down a pod; retrying with backoff");
                }
                teardown.retry_at = Some(now + DISK_RETRY.delay(teardown.failures, random));
                teardown.failures = teardown.failures.saturating_add(1);
            }
        }
    }
}

/// Deletes a pod whose directories are removed. The UID precondition protects a successor.
pub async fn confirm_deletion(client: Client, pod: &Pod) -> Result<(), String> {
    let meta = &pod.metadata;
    let (Some(namespace), Some(name)) = (meta.namespace.as_deref(), meta.name.as_deref()) else {
        return Ok(());
    };
    // They become parts of a URL.
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
        // The pod is gone, or a namesake replaced it.
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => Ok(()),
        Ok(Err(error)) => Err(describe(&error)),
        Err(_) => Err("request timed out".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(10);

    #[test]
    fn directories_are_removed_before_the_deletion_is_confirmed() {
        let teardown = |is_removed, is_confirmed, is_running, retry: Option<u64>| PodTeardown {
            is_removed,
            is_confirmed,
            is_running,
            failures: 0,
            retry_at: retry.map(Duration::from_secs),
        };
        let (remove, confirm) = (Some(TeardownStep::Remove), Some(TeardownStep::Confirm));
        let table = [
            // Teardown, whether a volume is written, whether a confirmation is due; the next step.
            (teardown(false, false, false, None), false, true, remove),
            (teardown(false, false, false, None), true, true, None),
            (teardown(false, false, true, None), false, true, None),
            (teardown(false, false, false, Some(10)), false, true, remove),
            (teardown(false, false, false, Some(11)), false, true, None),
            (teardown(true, false, false, None), false, true, confirm),
            (teardown(true, false, false, None), true, true, confirm),
            (teardown(true, false, false, None), false, false, None),
            (teardown(true, false, false, Some(11)), false, true, None),
            (teardown(true, true, false, None), false, true, None),
        ];
        for (teardown, written, due, step) in table {
            let found = teardown.next_step(NOW, || written, || due);
            assert_eq!(found, step, "{teardown:?} {written} {due}");
        }
    }

    #[test]
    fn steps_are_limited_and_failures_back_off() {
        let mut teardowns = PodTeardowns::default();
        for number in 0..6 {
            teardowns.start(&format!("u{number}"));
        }
        let start = |teardowns: &mut PodTeardowns, now| teardowns.start_steps(now, |_| false, |_| false);
        assert_eq!(start(&mut teardowns, NOW).len(), MAX_STEPS);
        assert_eq!(start(&mut teardowns, NOW), []);
        teardowns.finish("u0", Ok(TeardownStep::Remove), NOW, 0.5);
        teardowns.finish("u1", Err("full".into()), NOW, 0.5);
        assert!(teardowns.try_cancel("u0") && !teardowns.try_cancel("u1"));
        let names = start(&mut teardowns, NOW).into_iter().map(|(uid, _)| uid);
        assert_eq!(names.collect::<Vec<_>>(), ["u4", "u5"]);
        let retry = teardowns.next_retry().unwrap();
        assert_eq!(retry, NOW + DISK_RETRY.delay(0, 0.5));
        teardowns.finish("u2", Ok(TeardownStep::Remove), NOW, 0.5);
        teardowns.forget_complete(|_| false);
        assert_eq!(start(&mut teardowns, retry), [("u1".to_owned(), TeardownStep::Remove)]);
    }
}
