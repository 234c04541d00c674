//! The pods of this node whose volumes are managed, and those that are being torn down.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use time::OffsetDateTime;

use super::pod_teardown::{PodTeardowns, TeardownStep};
use super::pod_volumes::{deletion_time, is_terminated};
use crate::clock::ClockReading;
use crate::node_status::NodeRegistration;

/// Who manages the volumes of pods on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodOwnership {
    /// Not known before the first heartbeat.
    Unknown,
    /// This agent manages the volumes of the pods.
    Agent,
    /// A kubelet runs on the node and manages them.
    Kubelet,
}

impl From<&NodeRegistration> for PodOwnership {
    fn from(registration: &NodeRegistration) -> Self {
        match registration.heartbeat {
            _ if registration.kubelet => Self::Kubelet,
            Some(_) => Self::Agent,
            None => Self::Unknown,
        }
    }
}

/// Pods by UID, with what remains to be done about those that have ended.
pub struct PodTracker {
    pods: BTreeMap<String, Arc<Pod>>,
    /// Ownership at the last sync.
    ownership: PodOwnership,
    teardowns: PodTeardowns,
    /// When the grace period of the next pod ends.
    next_deletion: Option<OffsetDateTime>,
    /// Monotonic time of the next search for directories without a pod. `None` until the pods are
    /// known.
    sweep_at: Option<Duration>,
}

/// Difference between two lists of pods.
#[derive(Debug, Default, PartialEq)]
pub struct PodChanges {
    /// Pods that no longer have volumes. Their teardown has started.
    pub removed: Vec<Arc<Pod>>,
    pub applied: Vec<AppliedPod>,
}

/// A new or changed pod.
#[derive(Debug, PartialEq)]
pub struct AppliedPod {
    pub pod: Arc<Pod>,
    /// The pod before the change; `None` if it is new.
    pub before: Option<Arc<Pod>>,
}

impl PodTracker {
    pub fn new() -> Self {
        Self {
            pods: BTreeMap::new(),
            ownership: PodOwnership::Unknown,
            teardowns: PodTeardowns::default(),
            next_deletion: None,
            sweep_at: None,
        }
    }

    pub fn get(&self, uid: &str) -> Option<&Arc<Pod>> {
        self.pods.get(uid)
    }

    /// Returns who managed the volumes at the last sync.
    pub fn ownership(&self) -> PodOwnership {
        self.ownership
    }

    /// Replaces the set of pods, and returns what changed. Nothing changes while the ownership is
    /// unknown.
    pub fn sync(
        &mut self,
        all: &BTreeMap<String, Arc<Pod>>,
        ownership: PodOwnership,
        now: ClockReading,
    ) -> PodChanges {
        let mut changes = PodChanges::default();
        if ownership == PodOwnership::Unknown {
            return changes;
        }
        self.ownership = ownership;
        self.sweep_at.get_or_insert(now.since);
        let is_agent = ownership == PodOwnership::Agent;
        let is_kept = |pod: &Pod| is_agent && needs_volumes(pod, now.wall);
        let is_gone = |uid: &String| !all.get(uid).is_some_and(|pod| is_kept(pod));
        let gone = self.pods.keys().filter(|uid| is_gone(uid)).cloned().collect::<Vec<_>>();
        for uid in gone {
            changes.removed.extend(self.pods.remove(&uid));
            self.teardowns.start(&uid);
        }
        for (uid, pod) in all {
            if is_kept(pod) {
                changes.applied.extend(self.apply(uid, pod));
            } else if is_agent {
                self.teardowns.ensure(uid);
            }
        }
        let ends = all.values().filter_map(|pod| deletion_time(pod)).filter(|at| *at > now.wall);
        self.next_deletion = ends.min().filter(|_| is_agent);
        self.teardowns.forget_complete(|uid| all.contains_key(uid));
        changes
    }

    fn apply(&mut self, uid: &str, pod: &Arc<Pod>) -> Option<AppliedPod> {
        // A new volume in a directory that is being removed would be removed as well.
        if !self.teardowns.try_cancel(uid) {
            return None;
        }
        if self.pods.get(uid).is_some_and(|before| Arc::ptr_eq(before, pod)) {
            return None;
        }
        let before = self.pods.insert(uid.to_owned(), pod.clone());
        Some(AppliedPod { pod: pod.clone(), before })
    }

    /// Returns whether the grace period of a pod has ended since the last sync.
    pub fn is_sync_due(&self, now: OffsetDateTime) -> bool {
        self.next_deletion.is_some_and(|at| at <= now)
    }

    /// Returns the time until the grace period of the next pod ends.
    pub fn time_until_sync(&self, now: OffsetDateTime) -> Option<Duration> {
        self.next_deletion.map(|at| Duration::try_from(at - now).unwrap_or_default())
    }

    /// Returns the monotonic time of the next sweep or retry.
    pub fn next_due(&self) -> Option<Duration> {
        self.sweep_at.into_iter().chain(self.teardowns.next_retry()).min()
    }

    /// Returns whether to search for directories without a pod now. If so, the next search is at
    /// `next`.
    pub fn start_sweep(&mut self, now: Duration, next: Duration) -> bool {
        let is_due = self.sweep_at.is_some_and(|at| at <= now);
        if is_due {
            self.sweep_at = Some(next);
        }
        is_due
    }

    /// Starts the teardown of pods without volumes whose directories were found.
    pub fn finish_sweep(&mut self, uids: Vec<String>) {
        for uid in uids.iter().filter(|uid| !self.pods.contains_key(*uid)) {
            self.teardowns.restart(uid);
        }
    }

    /// Returns the teardown steps to start now. `all` are the pods on the server.
    pub fn start_teardown_steps(
        &mut self,
        all: &BTreeMap<String, Arc<Pod>>,
        is_kubelet: bool,
        now: ClockReading,
        is_written: impl Fn(&str) -> bool,
    ) -> Vec<(String, TeardownStep)> {
        let is_due = |uid: &str| !is_kubelet && all.get(uid).is_some_and(|pod| is_deletion_due(pod, now));
        self.teardowns.start_steps(now.since, is_written, is_due)
    }

    pub fn finish_teardown_step(
        &mut self,
        uid: &str,
        result: Result<TeardownStep, String>,
        now: Duration,
        random: f64,
    ) {
        self.teardowns.finish(uid, result, now, random);
    }
}

fn needs_volumes(pod: &Pod, now: OffsetDateTime) -> bool {
    !is_terminated(pod) && deletion_time(pod).is_none_or(|at| at > now)
}

/// Returns whether the server waits for the confirmation that a pod is gone.
fn is_deletion_due(pod: &Pod, now: ClockReading) -> bool {
    deletion_time(pod).is_some_and(|at| at <= now.wall || is_terminated(pod))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::clock::text;
    use crate::testing::START;

    fn now(seconds: u64) -> ClockReading {
        let since = Duration::from_secs(seconds);
        ClockReading { wall: START + since, since }
    }

    fn pod(uid: &str, deletion: Option<u64>, phase: &str) -> (String, Arc<Pod>) {
        let mut pod = json!({"metadata": {"uid": uid}, "status": {"phase": phase}});
        if let Some(at) = deletion {
            pod["metadata"]["deletionTimestamp"] = json!(text(now(at).wall));
        }
        (uid.to_owned(), Arc::new(serde_json::from_value(pod).unwrap()))
    }

    fn uid(pod: &Arc<Pod>) -> &str {
        pod.metadata.uid.as_deref().unwrap()
    }

    /// The UIDs of removed and applied pods.
    fn uids(changes: &PodChanges) -> (Vec<&str>, Vec<&str>) {
        let applied = changes.applied.iter().map(|applied| uid(&applied.pod));
        (changes.removed.iter().map(uid).collect(), applied.collect())
    }

    #[test]
    fn ownership_decides_which_pods_are_kept() {
        let all = BTreeMap::from([pod("a", None, "Running"), pod("b", None, "Succeeded")]);
        let mut tracker = PodTracker::new();
        assert_eq!(tracker.sync(&all, PodOwnership::Unknown, now(0)), PodChanges::default());
        assert_eq!(tracker.next_due(), None);
        let changes = tracker.sync(&all, PodOwnership::Agent, now(0));
        assert_eq!(uids(&changes), (vec![], vec!["a"]));
        assert_eq!(tracker.sync(&all, PodOwnership::Agent, now(0)), PodChanges::default());
        let steps = tracker.start_teardown_steps(&all, false, now(0), |_| false);
        assert_eq!(steps, [("b".to_owned(), TeardownStep::Remove)]);
        let changes = tracker.sync(&all, PodOwnership::Kubelet, now(0));
        assert_eq!(uids(&changes), (vec!["a"], vec![]));
        // The agent owns them again, and the teardown of `a` has to be completed first.
        assert_eq!(tracker.sync(&all, PodOwnership::Agent, now(0)), PodChanges::default());
        tracker.start_teardown_steps(&all, false, now(0), |_| false);
        tracker.finish_teardown_step("a", Ok(TeardownStep::Remove), now(0).since, 0.5);
        let changes = tracker.sync(&all, PodOwnership::Agent, now(0));
        assert_eq!(uids(&changes), (vec![], vec!["a"]));
    }

    #[test]
    fn a_deleted_pod_is_kept_for_its_grace_period() {
        let all = BTreeMap::from([pod("a", Some(30), "Running")]);
        let mut tracker = PodTracker::new();
        let changes = tracker.sync(&all, PodOwnership::Agent, now(0));
        assert_eq!(uids(&changes), (vec![], vec!["a"]));
        assert_eq!(tracker.time_until_sync(now(10).wall), Some(Duration::from_secs(20)));
        assert!(!tracker.is_sync_due(now(29).wall) && tracker.is_sync_due(now(30).wall));
        let changes = tracker.sync(&all, PodOwnership::Agent, now(30));
        assert_eq!(uids(&changes), (vec!["a"], vec![]));
        let steps = |tracker: &mut PodTracker, is_kubelet| {
            let steps = tracker.start_teardown_steps(&all, is_kubelet, now(30), |_| false);
            steps.into_iter().map(|(_, step)| step).collect::<Vec<_>>()
        };
        assert_eq!(steps(&mut tracker, false), [TeardownStep::Remove]);
        tracker.finish_teardown_step("a", Ok(TeardownStep::Remove), now(30).since, 0.5);
        assert_eq!(steps(&mut tracker, true), []);
        assert_eq!(steps(&mut tracker, false), [TeardownStep::Confirm]);
    }

    #[test]
    fn a_sweep_finds_directories_without_a_pod() {
        let all = BTreeMap::from([pod("a", None, "Running")]);
        let mut tracker = PodTracker::new();
        assert!(!tracker.start_sweep(now(0).since, now(9).since));
        tracker.sync(&all, PodOwnership::Agent, now(0));
        assert!(tracker.start_sweep(now(0).since, now(9).since));
        assert!(!tracker.start_sweep(now(0).since, now(9).since));
        assert_eq!(tracker.next_due(), Some(now(9).since));
        tracker.finish_sweep(vec!["a".into(), "orphan".into()]);
        let steps = tracker.start_teardown_steps(&all, false, now(0), |_| false);
        assert_eq!(steps, [("orphan".to_owned(), TeardownStep::Remove)]);
    }
}
