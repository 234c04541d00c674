//! Keeps the graph of pods and volumes as current as the caches at every request.
//!
//! Every query first applies the changes that the caches have and the graph lacks. A task does the
//! same on every change, so that queries have little left to apply.

use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use tokio::runtime::Handle;
use tokio::sync::watch;

use super::NodeBoundKind;
use super::graph::{DependencyKind, NodeGraph};
use crate::cache::{KindCache, WalkAction};
use crate::object::Object;

/// Number of changes applied at a time.
const BATCH: usize = 1000;

/// The graph and the caches it is built from.
pub(super) struct GraphSync {
    pods: Option<NodeBoundKind>,
    volumes: Option<Arc<KindCache>>,
    state: RwLock<GraphState>,
}

#[derive(Default)]
struct GraphState {
    graph: NodeGraph,
    /// Revisions up to which pods and volumes are applied; `None` before the first sync.
    pods: Option<u64>,
    volumes: Option<u64>,
}

impl GraphSync {
    /// Creates a graph that is empty until the first query.
    pub(super) fn new(pods: Option<NodeBoundKind>, volumes: Option<Arc<KindCache>>) -> GraphSync {
        GraphSync { pods, volumes, state: RwLock::default() }
    }

    /// Returns true if a pod on `node` depends on the object, by the current state of the caches.
    pub(super) fn reaches(&self, what: DependencyKind, namespace: &str, name: &str, node: &str) -> bool {
        let (pods, volumes) = self.newest();
        let state = self.read();
        if state.is_synced_to(pods, volumes) {
            return state.graph.reaches(what, namespace, name, node);
        }
        drop(state);
        let mut state = self.write();
        self.catch_up(&mut state, pods, volumes);
        state.graph.reaches(what, namespace, name, node)
    }

    /// Spawns the task that applies changes, if there is a runtime. It ends when the graph is
    /// dropped.
    pub(super) fn spawn_refresh(this: &Arc<GraphSync>) {
        let Ok(runtime) = Handle::try_current() else { return };
        let pods = this.pods.as_ref().map(|pods| pods.cache.subscribe());
        let volumes = this.volumes.as_ref().map(|volumes| volumes.subscribe());
        let (Some(pods), Some(volumes)) = (pods, volumes) else { return };
        runtime.spawn(refresh_on_change(Arc::downgrade(this), pods, volumes));
    }

    /// Applies pending changes from the caches.
    fn refresh(&self) {
        let (pods, volumes) = self.newest();
        if !self.read().is_synced_to(pods, volumes) {
            self.catch_up(&mut self.write(), pods, volumes);
        }
    }

    /// Returns the newest revisions of pods and volumes.
    pub(super) fn newest(&self) -> (u64, u64) {
        let pods = self.pods.as_ref().map_or(0, |pods| pods.cache.last());
        (pods, self.volumes.as_ref().map_or(0, |volumes| volumes.last()))
    }

    fn catch_up(&self, state: &mut GraphState, pods: u64, volumes: u64) {
        while let Some(source) = &self.pods
            && state.pods.is_none_or(|seen| seen < pods)
        {
            state.pods = Some(apply_pod_changes(&mut state.graph, source, state.pods));
        }
        while let Some(cache) = &self.volumes
            && state.volumes.is_none_or(|seen| seen < volumes)
        {
            state.volumes = Some(apply_volume_changes(&mut state.graph, cache, state.volumes));
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, GraphState> {
        // A panic during a change could leave a pod partially indexed; see `write`.
        match self.state.read() {
            Ok(state) => state,
            Err(_) => {
                drop(self.write());
                self.state.read().unwrap_or_else(|poisoned| poisoned.into_inner())
            }
        }
    }

    fn write(&self) -> RwLockWriteGuard<'_, GraphState> {
        self.state.write().unwrap_or_else(|poisoned| {
            let mut state = poisoned.into_inner();
            // The state is unknown after a panic, so it is rebuilt.
            *state = GraphState::default();
            self.state.clear_poison();
            state
        })
    }
}

impl GraphState {
    fn is_synced_to(&self, pods: u64, volumes: u64) -> bool {
        let reached = |seen: Option<u64>, newest| seen.is_some_and(|seen| seen >= newest);
        reached(self.pods, pods) && reached(self.volumes, volumes)
    }
}

/// Applies changes after `seen`, or a full relist; returns the revision reached.
fn apply_pod_changes(graph: &mut NodeGraph, source: &NodeBoundKind, seen: Option<u64>) -> u64 {
    let changes = seen.and_then(|seen| source.cache.changes(seen, BATCH).ok());
    let Some((changes, upto)) = changes else {
        let all = source.cache.snapshot("", None, |_| WalkAction::Include);
        graph.clear_pods();
        for pod in &all.objects {
            upsert_pod(graph, source, pod);
        }
        return all.revision;
    };
    for change in changes {
        if change.is_delete() {
            graph.remove_pod(change.object.namespace(), change.object.name());
        } else {
            upsert_pod(graph, source, &change.object);
        }
    }
    upto
}

fn upsert_pod(graph: &mut NodeGraph, source: &NodeBoundKind, pod: &Object) {
    match source.node(pod) {
        "" => graph.remove_pod(pod.namespace(), pod.name()),
        node => graph.upsert_pod(pod.namespace(), pod.name(), node, &pod.stored_value()),
    }
}

fn apply_volume_changes(graph: &mut NodeGraph, cache: &KindCache, seen: Option<u64>) -> u64 {
    let changes = seen.and_then(|seen| cache.changes(seen, BATCH).ok());
    let Some((changes, upto)) = changes else {
        let all = cache.snapshot("", None, |_| WalkAction::Include);
        graph.clear_volumes();
        for volume in &all.objects {
            graph.upsert_volume(volume.name(), &volume.stored_value());
        }
        return all.revision;
    };
    for change in changes {
        if change.is_delete() {
            graph.remove_volume(change.object.name());
        } else {
            graph.upsert_volume(change.object.name(), &change.object.stored_value());
        }
    }
    upto
}

async fn refresh_on_change(
    graph: Weak<GraphSync>,
    mut pods: watch::Receiver<u64>,
    mut volumes: watch::Receiver<u64>,
) {
    loop {
        let Some(current) = graph.upgrade() else { return };
        // The first refresh reads every pod.
        if tokio::task::spawn_blocking(move || current.refresh()).await.is_err() {
            tracing::error!("node authorizer: updating the graph panicked; retrying on the next change");
        }
        let changed = tokio::select! {
            changed = pods.changed() => changed,
            changed = volumes.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
    }
}
