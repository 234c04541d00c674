//! Notifies applications of changed files, in the background, with retries.
//!
//! Sent notifications are recorded on the disk, so that none is repeated, and so that a process that ends before all
//! are sent continues when it is restarted. Each projection has at most one task, which sends one notification after
//! the other; a failed one is retried after the others.

mod command;
mod http_request;
mod notification_log;
mod signal;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::HostProjection;
use super::notification::{Notification, NotificationMethod};
use crate::clock::Clock;
use crate::metrics::NotificationCounts;
use crate::volume::trust_anchors::Digest;
use windlass_runtime::durable::FileSystem;

use notification_log::NotificationLog;

/// Notifies applications of changed files of host projections.
pub struct Notifier {
    directory: PathBuf,
    files: FileSystem,
    clock: Clock,
    counts: NotificationCounts,
    /// First and longest pause after a failure.
    pauses: (Duration, Duration),
    state: Mutex<NotifierState>,
    /// Signalled when a task ends.
    ended: Notify,
}

/// A failed notification, not retried before the next change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedNotification {
    /// Name of the projection whose files changed.
    pub projection: String,
    /// The notification method, without arguments and queries.
    pub how: String,
    /// The error of the last attempt, on one line and without secrets.
    pub reason: String,
}

#[derive(Default)]
struct NotifierState {
    /// Running notification tasks by projection name.
    tasks: BTreeMap<String, NotificationTask>,
    /// Notification logs by projection, once loaded from disk.
    logs: BTreeMap<String, NotificationLog>,
    /// Failed notifications that are no longer retried, by projection and notification ID.
    given_up: BTreeMap<(String, String), (Digest, FailedNotification)>,
}

#[derive(Clone)]
struct NotificationJob {
    projection: Arc<HostProjection>,
    digest: Digest,
}

struct NotificationTask {
    current: NotificationJob,
    next: Option<NotificationJob>,
    wake: Arc<Notify>,
}

impl Notifier {
    /// Records notifications in this directory, so that a restarted process completes outstanding
    /// ones.
    pub fn new(directory: PathBuf, files: FileSystem, clock: Clock, counts: NotificationCounts) -> Arc<Self> {
        let pauses = (Duration::from_secs(1), Duration::from_secs(60));
        Self::with_pauses(directory, files, clock, counts, pauses)
    }

    fn with_pauses(
        directory: PathBuf,
        files: FileSystem,
        clock: Clock,
        counts: NotificationCounts,
        pauses: (Duration, Duration),
    ) -> Arc<Self> {
        let (state, ended) = (Mutex::default(), Notify::new());
        Arc::new(Self { directory, files, clock, counts, pauses, state, ended })
    }

    /// Notifies, in the background, all targets of a projection that have not been notified of this
    /// digest. The files must be on disk.
    pub fn written(self: &Arc<Self>, projection: &Arc<HostProjection>, digest: Digest) {
        let work = NotificationJob { projection: projection.clone(), digest };
        let mut state = self.state();
        if let Some(teller) = state.tasks.get_mut(&projection.name) {
            if teller.next.as_ref().unwrap_or(&teller.current).differs(&work) {
                teller.next = Some(work);
                teller.wake.notify_one();
            }
            return;
        }
        // Notifications of an earlier process are unknown until the log has been read.
        let is_read = state.logs.contains_key(&projection.name);
        if projection.notify.is_empty() || (is_read && state.pending_notifications(&work).is_empty()) {
            return;
        }
        let wake = Arc::new(Notify::new());
        let teller = NotificationTask { current: work.clone(), next: None, wake: wake.clone() };
        state.tasks.insert(projection.name.clone(), teller);
        tokio::spawn(self.clone().run(work, wake));
    }

    /// Removes the notification log of a deleted projection.
    pub fn forget(&self, projection: &str) {
        let mut state = self.state();
        state.logs.remove(projection);
        state.given_up.retain(|(name, _), _| name != projection);
        if let Err(error) = notification_log::remove(&self.files, &self.directory, projection) {
            tracing::warn!(projection, "{error}");
        }
    }

    /// Returns the failed notifications, which are not retried before the next change.
    pub fn failed_notifications(&self) -> Vec<FailedNotification> {
        self.state().given_up.values().map(|(_, failed)| failed.clone()).collect()
    }

    async fn run(self: Arc<Self>, mut work: NotificationJob, wake: Arc<Notify>) {
        self.load_log(&work.projection.name).await;
        loop {
            self.notify_all(&work, &wake).await;
            let mut state = self.state();
            let name = &work.projection.name;
            let Some(teller) = state.tasks.get_mut(name) else { break };
            let Some(next) = teller.next.take() else {
                state.tasks.remove(name);
                break;
            };
            teller.current = next.clone();
            drop(state);
            work = next;
        }
        self.ended.notify_waiters();
    }

    /// Notifies all targets until all succeeded, the rest is given up, or a newer version arrives.
    async fn notify_all(self: &Arc<Self>, work: &NotificationJob, wake: &Notify) {
        let mut pending =
            self.state().pending_notifications(work).into_iter().map(|due| (due, 0)).collect::<Vec<_>>();
        let (mut pause, max_pause) = self.pauses;
        loop {
            let mut failed = Vec::new();
            for (notification, failures) in pending {
                if self.is_outdated(work) {
                    return;
                }
                if !self.notify_once(work, &notification, failures).await {
                    failed.push((notification, failures + 1));
                }
            }
            if failed.is_empty() {
                return;
            }
            pending = failed;
            let until = tokio::time::Instant::now() + pause;
            while tokio::time::timeout_at(until, wake.notified()).await.is_ok() {
                if self.is_outdated(work) {
                    return;
                }
            }
            pause = pause.saturating_mul(2).min(max_pause);
        }
    }

    /// Makes one attempt. Returns whether no further attempt is needed.
    async fn notify_once(
        self: &Arc<Self>,
        work: &NotificationJob,
        notification: &Notification,
        failures: u32,
    ) -> bool {
        let name = &work.projection.name;
        let attempt = perform(&notification.how, &work.projection);
        let result = match tokio::time::timeout(notification.timeout, attempt).await {
            Ok(result) => result,
            Err(_) => Err(format!("timed out after {:?}", notification.timeout)),
        };
        let how = &notification.how;
        let outcome = match &result {
            Ok(()) => {
                tracing::info!(projection = %name, notification = %how, "notified application");
                "success"
            }
            Err(why) if failures < notification.retries => {
                tracing::warn!(projection = %name, notification = %how, error = why, "notification failed; retrying");
                "retry"
            }
            Err(why) => {
                tracing::error!(
                    projection = %name,
                    notification = %how,
                    error = why,
                    "notification failed; not retried before the next change"
                );
                "failure"
            }
        };
        let labels =
            [("projection", name.clone()), ("kind", how.kind().to_owned()), ("result", outcome.to_owned())];
        self.counts.get_or_create(&labels).inc();
        self.state().record_result(work, notification, outcome, result);
        if outcome == "success" {
            self.save_log(name).await;
        }
        outcome != "retry"
    }

    fn is_outdated(&self, work: &NotificationJob) -> bool {
        let state = self.state();
        let teller = state.tasks.get(&work.projection.name);
        teller.is_some_and(|teller| teller.next.is_some())
    }

    /// Loads the notification log, unless it is loaded.
    async fn load_log(self: &Arc<Self>, name: &str) {
        if self.state().logs.contains_key(name) {
            return;
        }
        let (this, owned) = (self.clone(), name.to_owned());
        let read = move || NotificationLog::read(&this.files, &this.directory, &owned);
        let log = tokio::task::spawn_blocking(read).await.unwrap_or_default();
        self.state().logs.insert(name.to_owned(), log);
    }

    /// Saves the notification log to disk.
    async fn save_log(self: &Arc<Self>, name: &str) {
        let log = self.state().logs.get(name).cloned().unwrap_or_default();
        let (this, owned) = (self.clone(), name.to_owned());
        let now = (self.clock)().wall;
        let write = move || log.write(&this.files, &this.directory, &owned, now);
        // This process remembers it; without the file, the next process notifies again.
        if let Ok(Err(error)) = tokio::task::spawn_blocking(write).await {
            tracing::warn!(projection = %name, "{error}");
        }
    }

    fn state(&self) -> MutexGuard<'_, NotifierState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NotifierState {
    /// Returns the targets that were neither notified of this version nor given up.
    fn pending_notifications(&self, work: &NotificationJob) -> Vec<Notification> {
        let log = self.logs.get(&work.projection.name);
        let is_due = |notification: &&Notification| {
            let id = notification.how.id();
            let knows = log.is_some_and(|log| log.knows(&id, &work.digest));
            let given_up = self.given_up.get(&(work.projection.name.clone(), id));
            !knows && given_up.is_none_or(|(digest, _)| *digest != work.digest)
        };
        work.projection.notify.iter().filter(is_due).cloned().collect()
    }

    fn record_result(
        &mut self,
        work: &NotificationJob,
        notification: &Notification,
        outcome: &'static str,
        result: Result<(), String>,
    ) {
        let (name, how) = (&work.projection.name, &notification.how);
        let key = (name.clone(), how.id());
        match (outcome, result) {
            ("success", _) => {
                self.given_up.remove(&key);
                let ids = work.projection.notify.iter().map(|one| one.how.id()).collect::<Vec<_>>();
                let log = self.logs.entry(name.clone()).or_default();
                log.insert(key.1, work.digest);
                log.retain(&ids);
            }
            ("failure", Err(why)) => {
                let failed =
                    FailedNotification { projection: name.clone(), how: how.to_string(), reason: why };
                self.given_up.insert(key, (work.digest, failed));
            }
            _ => {}
        }
    }
}

impl NotificationJob {
    /// Returns whether the targets or the files differ.
    fn differs(&self, other: &Self) -> bool {
        self.digest != other.digest || self.projection.notify != other.projection.notify
    }
}

async fn perform(how: &NotificationMethod, projection: &HostProjection) -> Result<(), String> {
    match how {
        NotificationMethod::Signal { signal, pid_file } => {
            let (signal, pid_file) = (*signal, pid_file.clone());
            let send = move || signal::send(signal, &pid_file);
            tokio::task::spawn_blocking(send).await.unwrap_or_else(|error| Err(error.to_string()))
        }
        NotificationMethod::Command(arguments) => command::run(arguments, projection).await,
        NotificationMethod::Http { url, method, headers } => http_request::send(url, method, headers).await,
    }
}

#[cfg(test)]
mod tests;
