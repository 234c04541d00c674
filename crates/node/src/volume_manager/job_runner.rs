//! Jobs beside the loop: several volumes at once, but never two jobs on the same volume.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tokio::task::{Id, JoinSet};

use crate::volume::id::{VolumeId, VolumeOwner};

/// Volume jobs that run at the same time.
const MAX_VOLUME_JOBS: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobKind {
    /// A job on this volume, with its serial number.
    Volume(VolumeId, u64),
    /// A teardown step of the pod with this UID.
    Teardown(String),
    /// The search for directories that belong to no pod.
    Sweep,
    /// A cleanup whose result does not matter.
    Cleanup,
}

/// Runs jobs with results of type `R`, and holds volumes that wait for one.
pub struct JobRunner<R> {
    jobs: JoinSet<R>,
    running: BTreeMap<Id, JobKind>,
    busy: BTreeSet<VolumeId>,
    /// Volumes that need a job; a busy one gets it after the running one.
    wanted: BTreeSet<VolumeId>,
    /// Wanted volumes that are not busy, first come, first served.
    queue: VecDeque<VolumeId>,
}

impl<R: Send + 'static> JobRunner<R> {
    pub fn new() -> Self {
        Self {
            jobs: JoinSet::new(),
            running: BTreeMap::new(),
            busy: BTreeSet::new(),
            wanted: BTreeSet::new(),
            queue: VecDeque::new(),
        }
    }

    /// Requests a job on a volume, now or after the one that is running.
    pub fn enqueue(&mut self, id: &VolumeId) {
        if self.wanted.insert(id.clone()) && !self.busy.contains(id) {
            self.queue.push_back(id.clone());
        }
    }

    /// Returns the next volume whose job may start; `None` if none waits or enough jobs run.
    pub fn next_volume(&mut self) -> Option<VolumeId> {
        if self.busy.len() >= MAX_VOLUME_JOBS {
            return None;
        }
        let id = self.queue.pop_front()?;
        self.wanted.remove(&id);
        Some(id)
    }

    /// Returns whether the volume has no job and waits for none.
    pub fn is_idle(&self, id: &VolumeId) -> bool {
        !self.is_busy(id) && !self.wanted.contains(id)
    }

    pub fn is_busy(&self, id: &VolumeId) -> bool {
        self.busy.contains(id)
    }

    /// Returns whether a job on a volume of this pod is running.
    pub fn is_pod_busy(&self, pod_uid: &str) -> bool {
        self.busy.iter().any(|id| matches!(&id.owner, VolumeOwner::Pod { uid, .. } if uid == pod_uid))
    }

    /// Starts a job on a blocking thread.
    pub fn spawn_blocking(&mut self, kind: JobKind, job: impl FnOnce() -> R + Send + 'static) {
        let id = self.jobs.spawn_blocking(job).id();
        self.start(id, kind);
    }

    /// Starts an asynchronous job that calls the API server.
    pub fn spawn(&mut self, kind: JobKind, job: impl Future<Output = R> + Send + 'static) {
        let id = self.jobs.spawn(job).id();
        self.start(id, kind);
    }

    fn start(&mut self, id: Id, kind: JobKind) {
        if let JobKind::Volume(volume, _) = &kind {
            self.busy.insert(volume.clone());
        }
        self.running.insert(id, kind);
    }

    /// Waits for the next job to end; `None` if none is running. A panic is returned as an error.
    pub async fn join_next(&mut self) -> Option<(JobKind, Result<R, String>)> {
        let (id, result) = match self.jobs.join_next_with_id().await? {
            Ok((id, result)) => (id, Ok(result)),
            Err(error) => (error.id(), Err(format!("job panicked: {error}"))),
        };
        let kind = self.running.remove(&id)?;
        if let JobKind::Volume(volume, _) = &kind {
            self.busy.remove(volume);
            if self.wanted.contains(volume) {
                self.queue.push_back(volume.clone());
            }
        }
        Some((kind, result))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(name: &str) -> VolumeId {
        let owner = VolumeOwner::Pod { namespace: "n".into(), name: "p".into(), uid: "u1".into() };
        VolumeId { owner, name: name.into() }
    }

    #[tokio::test]
    async fn a_volume_has_one_job_at_a_time() {
        let mut jobs = JobRunner::new();
        let (a, b) = (volume("a"), volume("b"));
        for id in [&a, &a, &b] {
            jobs.enqueue(id);
        }
        assert!(!jobs.is_idle(&a) && !jobs.is_busy(&a));
        assert_eq!(jobs.next_volume(), Some(a.clone()));
        jobs.spawn_blocking(JobKind::Volume(a.clone(), 1), || 1);
        assert!(jobs.is_busy(&a) && jobs.is_pod_busy("u1") && !jobs.is_pod_busy("u2"));
        // The second job of `a` waits for the first.
        jobs.enqueue(&a);
        assert_eq!(jobs.next_volume(), Some(b));
        assert_eq!(jobs.next_volume(), None);
        let finished = jobs.join_next().await.unwrap();
        assert_eq!(finished, (JobKind::Volume(a.clone(), 1), Ok(1)));
        assert_eq!(jobs.next_volume(), Some(a.clone()));
        assert!(jobs.is_idle(&a));
        assert!(jobs.join_next().await.is_none());
    }

    #[tokio::test]
    async fn volume_jobs_are_limited_and_others_are_not() {
        let mut jobs = JobRunner::new();
        let names = (0..=MAX_VOLUME_JOBS).map(|number| volume(&number.to_string()));
        names.for_each(|id| jobs.enqueue(&id));
        while let Some(id) = jobs.next_volume() {
            jobs.spawn(JobKind::Volume(id, 1), std::future::ready(()));
        }
        assert_eq!(jobs.busy.len(), MAX_VOLUME_JOBS);
        jobs.spawn(JobKind::Sweep, std::future::ready(()));
        while jobs.join_next().await.is_some() {}
        assert!(jobs.next_volume().is_some());
    }

    #[tokio::test]
    async fn a_panic_is_the_error_of_its_job() {
        let mut jobs = JobRunner::<()>::new();
        jobs.spawn(JobKind::Sweep, async { panic!("test") });
        let (kind, result) = jobs.join_next().await.unwrap();
        assert_eq!(kind, JobKind::Sweep);
        assert!(result.unwrap_err().starts_with("job panicked"));
    }
}
