//! The pods of this node.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::Event;
use kube::{Api, Client};
use tokio::sync::watch;

use super::watch::{ResilientWatch, WatchFailure, WatchItem};

/// Pods by UID. None until it is known which there are: nothing may be removed before.
pub type NodePods = Option<Arc<BTreeMap<String, Arc<Pod>>>>;

/// Says which pods are bound to this node, whenever that changes. Does not end.
pub async fn watch_pods(client: Client, node: String, out: watch::Sender<NodePods>) {
    let mut feed =
        ResilientWatch::new(Api::<Pod>::all(client), Some(&format!("spec.nodeName={node}")));
    let mut known = PodCache::default();
    loop {
        let mut changed = false;
        feed.next_batch(|fed| match fed {
            WatchItem::Event(event) => changed |= known.apply(event),
            WatchItem::Trouble(WatchFailure::Broken(why)) => {
                tracing::debug!(why, "the watch of the node's pods broke off");
            }
            WatchItem::Trouble(WatchFailure::Refused(why) | WatchFailure::Unserved(why)) => {
                tracing::warn!(why, "cannot watch the node's pods; trying again");
            }
        })
        .await;
        if changed {
            out.send_replace(known.pods.clone());
        }
    }
}

/// What the events so far come to.
#[derive(Default)]
struct PodCache {
    pods: NodePods,
    /// Those of a list that has not ended.
    listed: BTreeMap<String, Arc<Pod>>,
}

impl PodCache {
    /// Takes an event; whether something is different now.
    fn apply(&mut self, event: Event<Pod>) -> bool {
        match event {
            Event::Init => {
                self.listed.clear();
                false
            }
            Event::InitApply(pod) => {
                let (uid, pod) = self.cached_pod(pod);
                self.listed.insert(uid, pod);
                false
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                let same = |known: &Arc<BTreeMap<String, Arc<Pod>>>| {
                    known.len() == listed.len()
                        && listed.iter().all(|(uid, pod)| {
                            known.get(uid).is_some_and(|known| Arc::ptr_eq(known, pod))
                        })
                };
                if self.pods.as_ref().is_some_and(same) {
                    return false;
                }
                self.pods = Some(Arc::new(listed));
                true
            }
            Event::Apply(pod) => {
                let (uid, pod) = self.cached_pod(pod);
                let pods = Arc::make_mut(self.pods.get_or_insert_default());
                let before = pods.insert(uid, pod.clone());
                !before.is_some_and(|before| Arc::ptr_eq(&before, &pod))
            }
            Event::Delete(pod) => {
                let uid = pod.metadata.uid.unwrap_or_default();
                let Some(pods) = &mut self.pods else { return false };
                pods.contains_key(&uid) && Arc::make_mut(pods).remove(&uid).is_some()
            }
        }
    }

    /// A pod as it is kept: the one that is there already, if it is the same.
    fn cached_pod(&self, mut pod: Pod) -> (String, Arc<Pod>) {
        // Nobody asks who wrote which field, and it is half of a pod.
        pod.metadata.managed_fields = None;
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let known = self.pods.as_ref().and_then(|pods| pods.get(&uid));
        let version = &pod.metadata.resource_version;
        let same = known
            .filter(|known| version.is_some() && known.metadata.resource_version == *version)
            .cloned();
        (uid, same.unwrap_or_else(|| Arc::new(pod)))
    }
}
