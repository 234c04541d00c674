//! Watch of the pods that are bound to this node.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::Event;
use kube::{Api, Client};
use tokio::sync::watch;

use windlass_runtime::watch::{ObjectWatch, RelistBuffer, SnapshotEvent, WatchErrorKind};

/// Pods by UID. `None` until the first list is complete: nothing may be removed before.
pub type NodePods = Option<Arc<BTreeMap<String, Arc<Pod>>>>;

/// Publishes the pods bound to this node whenever they change. Never returns.
pub async fn watch_pods(client: Client, node: String, out: watch::Sender<NodePods>) {
    let selector = format!("spec.nodeName={node}");
    let mut events = ObjectWatch::with_fields(Api::<Pod>::all(client), Some(&selector));
    let mut cache = PodCache::default();
    loop {
        let mut changed = false;
        events
            .next_batch(|event| match event {
                Ok(event) => changed |= cache.apply(event),
                Err(error) if error.kind == WatchErrorKind::Broken => {
                    tracing::debug!(%error, "watch of the node's pods ended; resuming");
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot watch the node's pods; retrying with backoff");
                }
            })
            .await;
        if changed {
            out.send_replace(cache.pods.clone());
        }
    }
}

/// Pods as of the last event.
#[derive(Default)]
struct PodCache {
    pods: NodePods,
    buffer: RelistBuffer<(String, Arc<Pod>)>,
}

impl PodCache {
    /// Applies an event. Returns whether pods changed.
    fn apply(&mut self, event: Event<Pod>) -> bool {
        let pods = self.pods.clone();
        let event = self.buffer.push(event, |pod| cached_pod(pods.as_deref(), pod));
        // `make_mut` below copies the map if this reference is left.
        drop(pods);
        match event {
            None => false,
            Some(SnapshotEvent::Replaced(listed)) => {
                let listed = listed.into_iter().collect::<BTreeMap<_, _>>();
                let is_same = |known: &Arc<BTreeMap<String, Arc<Pod>>>| {
                    known.len() == listed.len()
                        && listed
                            .iter()
                            .all(|(uid, pod)| known.get(uid).is_some_and(|known| Arc::ptr_eq(known, pod)))
                };
                if self.pods.as_ref().is_some_and(is_same) {
                    return false;
                }
                self.pods = Some(Arc::new(listed));
                true
            }
            Some(SnapshotEvent::Applied((uid, pod))) => {
                let pods = Arc::make_mut(self.pods.get_or_insert_default());
                let before = pods.insert(uid, pod.clone());
                !before.is_some_and(|before| Arc::ptr_eq(&before, &pod))
            }
            Some(SnapshotEvent::Deleted(pod)) => {
                let uid = pod.metadata.uid.unwrap_or_default();
                let Some(pods) = &mut self.pods else { return false };
                pods.contains_key(&uid) && Arc::make_mut(pods).remove(&uid).is_some()
            }
        }
    }
}

/// A pod as it is cached: the known one, if that has the same version.
fn cached_pod(known: Option<&BTreeMap<String, Arc<Pod>>>, mut pod: Pod) -> (String, Arc<Pod>) {
    // Nothing reads managed fields, and they are half of a pod.
    pod.metadata.managed_fields = None;
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let version = &pod.metadata.resource_version;
    let same = known
        .and_then(|pods| pods.get(&uid))
        .filter(|known| version.is_some() && known.metadata.resource_version == *version)
        .cloned();
    (uid, same.unwrap_or_else(|| Arc::new(pod)))
}
