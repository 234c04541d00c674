//! Bundles, trust reports and nodes of a server: listed first, then watched.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::ApiResource;
use kube::runtime::watcher::{Config, Event};
use kube::{Client, Resource, ResourceExt as _};
use windlass_node::node_status::object::is_reported_by_windlass;
use windlass_node::trust::object;
use windlass_node::volume::trust_anchors::TrustBundle;
use windlass_runtime::discovery::CLUSTER_TRUST_BUNDLES;
use windlass_runtime::watch::{ObjectWatch, RelistBuffer, SnapshotEvent, WatchError, WatchErrorKind};

use super::delivery::{NodeReport, NodeState, TrustState};
use crate::commands::{api_client, print};

const PAGE: u32 = 500;
/// Time for which changes are gathered before they are evaluated: nodes report together.
const GATHER: Duration = Duration::from_millis(100);

/// Up-to-date copy of the objects of a server.
pub struct TrustWatcher {
    pub world: TrustState,
    updates: BoxStream<'static, WatchUpdate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchedKind {
    Bundles,
    Reports,
    Nodes,
}

/// Change of the server's objects, or a watch that does not work.
enum WatchUpdate {
    Bundle(SnapshotEvent<DynamicObject, TrustBundle>),
    Report(SnapshotEvent<DynamicObject, (String, NodeReport)>),
    Node(Box<SnapshotEvent<Node, (String, NodeState)>>),
    Failed(WatchedKind, WatchError),
}

impl TrustWatcher {
    /// Starts the watches and waits until every kind has been listed once.
    pub async fn start(client: Client) -> Result<Self> {
        let bundles = Api::all_with(client.clone(), &bundle_resource(&client).await?);
        let reports = Api::all_with(client.clone(), &object::resource());
        let updates = stream::select_all([
            watch(bundles, WatchedKind::Bundles, WatchUpdate::Bundle, trust_bundle),
            watch(reports, WatchedKind::Reports, WatchUpdate::Report, trust_report),
            watch(Api::all(client), WatchedKind::Nodes, node_update, node_state),
        ]);
        let mut server = Self { world: TrustState::default(), updates: updates.boxed() };
        let mut missing = vec![WatchedKind::Bundles, WatchedKind::Reports, WatchedKind::Nodes];
        while !missing.is_empty() {
            match api_client::with_timeout(server.next()).await?? {
                WatchUpdate::Failed(kind, error) if missing.contains(&kind) => {
                    return Err(explain_watch_error(kind, &error));
                }
                update => {
                    let listed = server.apply_update(update);
                    missing.retain(|each| Some(*each) != listed);
                }
            }
        }
        Ok(server)
    }

    /// Waits until something has changed.
    pub async fn change(&mut self) -> Result<()> {
        self.step().await?;
        let more = async {
            loop {
                if let Err(error) = self.step().await {
                    return error;
                }
            }
        };
        match tokio::time::timeout(GATHER, more).await {
            Ok(error) => Err(error),
            Err(_) => Ok(()),
        }
    }

    async fn step(&mut self) -> Result<()> {
        match self.next().await? {
            WatchUpdate::Failed(kind, error) if error.kind == WatchErrorKind::Refused => {
                Err(explain_watch_error(kind, &error))
            }
            update => {
                self.apply_update(update);
                Ok(())
            }
        }
    }

    async fn next(&mut self) -> Result<WatchUpdate> {
        match self.updates.next().await {
            Some(update) => Ok(update),
            None => bail!("the watch ended"),
        }
    }

    /// Applies an update. Returns the kind whose list is complete with it.
    fn apply_update(&mut self, update: WatchUpdate) -> Option<WatchedKind> {
        let world = &mut self.world;
        match update {
            WatchUpdate::Bundle(SnapshotEvent::Replaced(bundles)) => {
                (world.known, world.bundles) = Default::default();
                bundles.into_iter().for_each(|bundle| world.set_bundle(bundle));
                return Some(WatchedKind::Bundles);
            }
            WatchUpdate::Bundle(SnapshotEvent::Applied(bundle)) => world.set_bundle(bundle),
            WatchUpdate::Bundle(SnapshotEvent::Deleted(bundle)) => {
                world.remove_bundle(&bundle.name_any());
            }
            WatchUpdate::Report(event) => {
                return apply_event(event, &mut world.reports).then_some(WatchedKind::Reports);
            }
            WatchUpdate::Node(event) => {
                return apply_event(*event, &mut world.nodes).then_some(WatchedKind::Nodes);
            }
            WatchUpdate::Failed(_, error) => tracing::debug!(%error, "watch ended; resuming"),
        }
        None
    }
}

fn node_update(event: SnapshotEvent<Node, (String, NodeState)>) -> WatchUpdate {
    WatchUpdate::Node(Box::new(event))
}

/// Applies an event to objects by name. Returns whether a list is complete with it.
fn apply_event<K: Resource, T>(
    event: SnapshotEvent<K, (String, T)>,
    known: &mut BTreeMap<String, T>,
) -> bool {
    match event {
        SnapshotEvent::Replaced(objects) => {
            *known = objects.into_iter().collect();
            return true;
        }
        SnapshotEvent::Applied((name, object)) => drop(known.insert(name, object)),
        SnapshotEvent::Deleted(object) => drop(known.remove(&object.name_any())),
    }
    false
}

/// Watches a kind. Only the converted objects are kept: a Node may be large.
fn watch<K, T: Send + 'static>(
    api: Api<K>,
    kind: WatchedKind,
    update: fn(SnapshotEvent<K, T>) -> WatchUpdate,
    convert: fn(&K) -> T,
) -> BoxStream<'static, WatchUpdate>
where
    K: Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
{
    let watch = ObjectWatch::new(api, Config::default().page_size(PAGE));
    let state = (watch, RelistBuffer::default());
    let updates = stream::unfold(state, move |(mut watch, mut buffer)| async move {
        loop {
            let event: Event<K> = match watch.next().await {
                Ok(event) => event,
                Err(error) => return Some((WatchUpdate::Failed(kind, error), (watch, buffer))),
            };
            if let Some(event) = buffer.push(event, |object| convert(&object)) {
                return Some((update(event), (watch, buffer)));
            }
        }
    });
    updates.boxed()
}

fn explain_watch_error(kind: WatchedKind, error: &WatchError) -> anyhow::Error {
    match (kind, error.status) {
        (WatchedKind::Reports, Some(404)) => anyhow!(
            "the server does not serve NodeTrusts, so nodes cannot report; install them with windlass crds"
        ),
        (_, Some(401)) => api_client::unauthorized(),
        _ => anyhow!("{}", print::plain(&error.message)),
    }
}

/// Returns the best version of ClusterTrustBundles that the server serves.
async fn bundle_resource(client: &Client) -> Result<ApiResource> {
    for resource in CLUSTER_TRUST_BUNDLES.resources() {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        match api_client::with_timeout(api.list_metadata(&ListParams::default().limit(1))).await? {
            Ok(_) => return Ok(resource),
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(api_client::explain(error)),
        }
    }
    bail!("the server does not serve ClusterTrustBundles")
}

/// Reads a ClusterTrustBundle of any version.
pub fn trust_bundle(found: &DynamicObject) -> TrustBundle {
    let spec = |field: &str| found.data["spec"][field].as_str().unwrap_or_default();
    let generation = found.metadata.generation.unwrap_or_default();
    let (labels, name) = (found.labels().clone(), found.name_any());
    TrustBundle::new(&name, generation, spec("signerName"), labels, spec("trustBundle"))
}

/// Reads the NodeTrust of a node; a status that cannot be read is empty.
pub fn trust_report(found: &DynamicObject) -> (String, NodeReport) {
    let status = found.data.get("status").cloned().unwrap_or_default();
    let writes = found.managed_fields().iter().filter_map(|write| write.time.as_ref());
    let made = found.metadata.creation_timestamp.as_ref();
    let at = writes.chain(made).map(|time| time.0).max();
    let report = NodeReport {
        status: serde_json::from_value(status).unwrap_or_default(),
        at: at.map(|time| time.to_string()).unwrap_or_default(),
    };
    (found.name_any(), report)
}

/// Reads the state of the agent. A Node without a Ready condition has not been checked yet, and does not count as lost.
pub fn node_state(found: &Node) -> (String, NodeState) {
    let conditions = found.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten().find(|one| one.type_ == "Ready");
    let since = |ready: &NodeCondition| {
        let since = ready.last_transition_time.as_ref().map(|time| time.0.to_string());
        since.unwrap_or_default()
    };
    let state = NodeState {
        ours: is_reported_by_windlass(found),
        lost: ready.filter(|ready| ready.status == "Unknown").map(since),
    };
    (found.name_any(), state)
}
