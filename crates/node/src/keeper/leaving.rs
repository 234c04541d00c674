//! Pods that have no volumes any more: what is left of them is removed, and then the server is told
//! that they are gone, which nobody else does on a node without a kubelet.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Client};
use tokio::time::timeout;

use super::place::is_element;
use super::pods::{deletion, is_over};
use super::work::{Finished, TROUBLE, Task, Work};
use crate::clock::Moment;
use crate::request::{PATIENCE, explain};
use crate::volume::id::Owner;

/// How many of them are seen to at the same time.
const AT_ONCE: usize = 4;

/// One of them.
#[derive(Debug, Default)]
pub struct Leaving {
    /// Whether everything is removed.
    removed: bool,
    /// Whether the server knows that it is gone.
    confirmed: bool,
    busy: bool,
    failures: u32,
    retry_at: Option<Duration>,
}

/// What to do about one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    Remove,
    Confirm,
}

impl Leaving {
    /// Whether nothing is left of it here.
    pub fn is_over(&self) -> bool {
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
    ) -> Step {
        let waits = self.busy || self.retry_at.is_some_and(|at| at > now);
        match (self.removed, self.confirmed) {
            _ if waits => Step::Nothing,
            (false, _) if written() => Step::Nothing,
            (false, _) => Step::Remove,
            (true, false) if ended() => Step::Confirm,
            (true, _) => Step::Nothing,
        }
    }
}

impl Work {
    /// Goes on with those that are leaving.
    pub fn advance(&mut self, now: Moment) {
        if self.leaving.is_empty() {
            return;
        }
        let pods = self.keeper.pods.borrow().clone().unwrap_or_default();
        let kubelet = self.keeper.registration.borrow().kubelet;
        let ended = |uid: &str| pods.get(uid).filter(|pod| !kubelet && is_ended(pod, now));
        let busy = self.leaving.values().filter(|leaving| leaving.busy).count();
        let steps = self.leaving.iter().map(|(uid, leaving)| {
            let written = || self.busy.iter().any(|id| is_of(&id.owner, uid));
            (uid, leaving.step(now.since, written, || ended(uid).is_some()))
        });
        let steps = steps.filter(|(_, step)| *step != Step::Nothing);
        let steps = steps.take(AT_ONCE.saturating_sub(busy));
        for (uid, step) in steps.map(|(uid, step)| (uid.clone(), step)).collect::<Vec<_>>() {
            let Some(leaving) = self.leaving.get_mut(&uid) else { continue };
            (leaving.busy, leaving.retry_at) = (true, None);
            let task = Task::Leave(uid.clone());
            if let (Step::Confirm, Some(pod)) = (step, ended(&uid)) {
                let (client, pod) = (self.keeper.client.clone(), pod.clone());
                self.spawn_request(task, async move {
                    Finished::Confirmed(confirm(client, &pod).await)
                });
            } else {
                let place = self.place.clone();
                self.spawn(task, move || {
                    Finished::Removed(place.remove(&uid).map_err(|error| error.to_string()))
                });
            }
        }
    }

    /// A step was made, or not.
    pub fn left(&mut self, uid: &str, finished: Result<Finished, String>) {
        let (now, random) = (self.now().since, (self.keeper.random)());
        let Some(leaving) = self.leaving.get_mut(uid) else { return };
        leaving.busy = false;
        let why = match finished {
            Ok(Finished::Removed(Ok(()))) => {
                (leaving.removed, leaving.failures) = (true, 0);
                tracing::debug!(pod = uid, "removed everything of a pod");
                // It may be that it is to have volumes again, or that it need not be remembered.
                return self.sync_pods();
            }
            Ok(Finished::Confirmed(Ok(()))) => {
                (leaving.confirmed, leaving.failures) = (true, 0);
                return;
            }
            Ok(Finished::Removed(Err(why)) | Finished::Confirmed(Err(why))) | Err(why) => why,
            Ok(_) => return,
        };
        if leaving.failures == 0 {
            tracing::warn!(pod = uid, "cannot remove what is left of a pod: {why}");
        }
        leaving.retry_at = Some(now + TROUBLE.after(leaving.failures, random));
        leaving.failures = leaving.failures.saturating_add(1);
    }

    /// Of these pods there is something.
    pub fn swept(&mut self, finished: Result<Finished, String>) {
        let uids = match finished {
            Ok(Finished::Swept(Ok(uids))) => uids,
            Ok(Finished::Swept(Err(why))) | Err(why) => {
                return tracing::warn!("cannot look for what belongs to no pod: {why}");
            }
            Ok(_) => return,
        };
        for uid in uids {
            if self.pods.contains_key(&uid) {
                continue;
            }
            let leaving = self.leaving.entry(uid.clone()).or_default();
            if !leaving.busy {
                tracing::info!(pod = uid, "removing what is left of a pod");
                // Also when something was written after it had been removed.
                leaving.removed = false;
            }
        }
    }
}

fn is_of(owner: &Owner, of: &str) -> bool {
    match owner {
        Owner::Pod { uid, .. } => uid == of,
        Owner::Host => false,
    }
}

/// Whether the server waits to hear that a pod is gone.
fn is_ended(pod: &Pod, now: Moment) -> bool {
    deletion(pod).is_some_and(|at| at <= now.wall || is_over(pod))
}

/// Deletes a pod of which nothing is left. With its UID, it is this pod or none.
async fn confirm(client: Client, pod: &Pod) -> Result<(), String> {
    let meta = &pod.metadata;
    let (Some(namespace), Some(name)) = (meta.namespace.as_deref(), meta.name.as_deref()) else {
        return Ok(());
    };
    // They become parts of an address.
    if !is_element(namespace) || !is_element(name) {
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
        let leaving = |removed, confirmed, busy, retry: Option<u64>| Leaving {
            removed,
            confirmed,
            busy,
            failures: 0,
            retry_at: retry.map(Duration::from_secs),
        };
        let table = [
            // What it is, whether it is written, whether it has ended; what is done.
            (leaving(false, false, false, None), false, true, Step::Remove),
            (leaving(false, false, false, None), true, true, Step::Nothing),
            (leaving(false, false, true, None), false, true, Step::Nothing),
            (leaving(false, false, false, Some(10)), false, true, Step::Remove),
            (leaving(false, false, false, Some(11)), false, true, Step::Nothing),
            (leaving(true, false, false, None), false, true, Step::Confirm),
            (leaving(true, false, false, None), true, true, Step::Confirm),
            (leaving(true, false, false, None), false, false, Step::Nothing),
            (leaving(true, false, false, Some(11)), false, true, Step::Nothing),
            (leaving(true, true, false, None), false, true, Step::Nothing),
        ];
        for (leaving, written, ended, step) in table {
            let found = leaving.step(Duration::from_secs(10), || written, || ended);
            assert_eq!(found, step, "{leaving:?} {written} {ended}");
        }
    }
}
