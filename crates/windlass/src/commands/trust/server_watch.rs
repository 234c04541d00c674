//! What a server has: bundles, what nodes report, and nodes. First listed, then watched.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::ApiResource;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, Resource, ResourceExt as _};
use windlass_node::node_status::object::is_reported_by_windlass;
use windlass_node::trust::object;
use windlass_node::volume::trust_anchors::TrustBundle;
use windlass_runtime::discovery::CLUSTER_TRUST_BUNDLES;

use super::delivery::{NodeReport, NodeState, TrustState};
use crate::commands::api_client;

/// Objects to get at a time.
const PAGE: u32 = 500;
/// How long changes are gathered before somebody looks at them.
const GATHER: Duration = Duration::from_millis(100);

/// A server, and what it has.
pub struct TrustWatcher {
    pub world: TrustState,
    events: BoxStream<'static, WatchUpdate>,
    /// Objects of a relist in progress; they replace `world` when the list is complete.
    fresh: TrustState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchedKind {
    Bundles,
    Reports,
    Nodes,
}

/// Something that was seen, or why nothing can be.
enum WatchUpdate {
    Object(WatchedKind, Box<Event<DynamicObject>>),
    /// A Node may be large, so it is read as what it is and only what matters is kept.
    Node(Box<Event<Node>>),
    Failed(WatchedKind, watcher::Error),
}

impl TrustWatcher {
    /// Starts the watches and waits until every kind has been listed once.
    pub async fn start(client: Client) -> Result<Self> {
        let resource = bundles(&client).await?;
        let bundles = watch(&client, WatchedKind::Bundles, &resource);
        let reports = watch(&client, WatchedKind::Reports, &object::resource());
        let nodes = watcher(Api::<Node>::all(client.clone()), config()).default_backoff();
        let nodes = nodes.map(|event| match event {
            Ok(event) => WatchUpdate::Node(Box::new(event)),
            Err(error) => WatchUpdate::Failed(WatchedKind::Nodes, error),
        });
        let events = futures::stream::select_all([bundles, reports, nodes.boxed()]).boxed();
        let mut server =
            Self { world: TrustState::default(), events, fresh: TrustState::default() };
        let mut missing = vec![WatchedKind::Bundles, WatchedKind::Reports, WatchedKind::Nodes];
        while !missing.is_empty() {
            let seen = api_client::with_timeout(server.next()).await??;
            match seen {
                WatchUpdate::Failed(what, watcher::Error::InitialListFailed(error)) => {
                    return Err(explain_list_error(what, error));
                }
                // The first of the lists is watched already; that matters to those who wait.
                WatchUpdate::Failed(_, error) => log(&error),
                seen => {
                    let listed = server.apply_update(seen);
                    missing.retain(|each| Some(*each) != listed);
                }
            }
        }
        Ok(server)
    }

    /// Waits until something has changed.
    pub async fn change(&mut self) -> Result<()> {
        self.step().await?;
        // Nodes report together: what comes with it is looked at together.
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
            WatchUpdate::Failed(
                what,
                watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error),
            ) if matches!(&error, kube::Error::Api(status) if matches!(status.code, 401 | 403)) => {
                Err(explain_list_error(what, error))
            }
            WatchUpdate::Failed(_, error) => {
                log(&error);
                Ok(())
            }
            seen => {
                self.apply_update(seen);
                Ok(())
            }
        }
    }

    async fn next(&mut self) -> Result<WatchUpdate> {
        match self.events.next().await {
            Some(seen) => Ok(seen),
            None => bail!("the watch ended"),
        }
    }

    /// Takes note of an event; which list it ends.
    fn apply_update(&mut self, seen: WatchUpdate) -> Option<WatchedKind> {
        match seen {
            WatchUpdate::Object(WatchedKind::Bundles, event) => self.apply_bundle_event(*event),
            WatchUpdate::Object(_, event) => self.apply_report_event(*event),
            WatchUpdate::Node(event) => self.apply_node_event(*event),
            WatchUpdate::Failed(..) => None,
        }
    }

    fn apply_bundle_event(&mut self, event: Event<DynamicObject>) -> Option<WatchedKind> {
        let Self { world, fresh, .. } = self;
        match event {
            Event::Init => (fresh.known, fresh.bundles) = Default::default(),
            Event::InitApply(found) => fresh.set_bundle(bundle(&found)),
            Event::Apply(found) => world.set_bundle(bundle(&found)),
            Event::Delete(found) => world.remove_bundle(&found.name_any()),
            Event::InitDone => {
                world.known = std::mem::take(&mut fresh.known);
                world.bundles = std::mem::take(&mut fresh.bundles);
                return Some(WatchedKind::Bundles);
            }
        }
        None
    }

    fn apply_report_event(&mut self, event: Event<DynamicObject>) -> Option<WatchedKind> {
        let (world, fresh) = (&mut self.world.reports, &mut self.fresh.reports);
        apply_event(event, world, fresh, reported).then_some(WatchedKind::Reports)
    }

    fn apply_node_event(&mut self, event: Event<Node>) -> Option<WatchedKind> {
        let (world, fresh) = (&mut self.world.nodes, &mut self.fresh.nodes);
        apply_event(event, world, fresh, state).then_some(WatchedKind::Nodes)
    }
}

/// Takes note of an event of objects that are kept by name; whether it ends a list.
fn apply_event<K: Resource<DynamicType = D>, D, T>(
    event: Event<K>,
    world: &mut BTreeMap<String, T>,
    fresh: &mut BTreeMap<String, T>,
    read: impl Fn(&K) -> T,
) -> bool {
    match event {
        Event::Init => fresh.clear(),
        Event::InitApply(found) => drop(fresh.insert(found.name_any(), read(&found))),
        Event::Apply(found) => drop(world.insert(found.name_any(), read(&found))),
        Event::Delete(found) => drop(world.remove(&found.name_any())),
        Event::InitDone => {
            *world = std::mem::take(fresh);
            return true;
        }
    }
    false
}

fn config() -> watcher::Config {
    watcher::Config::default().page_size(PAGE)
}

fn watch(
    client: &Client,
    what: WatchedKind,
    resource: &ApiResource,
) -> BoxStream<'static, WatchUpdate> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let events = watcher(api, config()).default_backoff();
    let seen = events.map(move |event| match event {
        Ok(event) => WatchUpdate::Object(what, Box::new(event)),
        Err(error) => WatchUpdate::Failed(what, error),
    });
    seen.boxed()
}

fn log(error: &watcher::Error) {
    tracing::debug!(error = windlass_client_error::describe(error), "watch ended; resuming");
}

fn explain_list_error(what: WatchedKind, error: kube::Error) -> anyhow::Error {
    match (what, &error) {
        (WatchedKind::Reports, kube::Error::Api(status)) if status.code == 404 => anyhow::anyhow!(
            "the server has no NodeTrusts, so nodes cannot report; see windlass crds"
        ),
        _ => api_client::explain(error),
    }
}

/// Bundles, in the best version that the server has.
async fn bundles(client: &Client) -> Result<ApiResource> {
    for resource in CLUSTER_TRUST_BUNDLES.resources() {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        match api_client::with_timeout(api.list_metadata(&ListParams::default().limit(1))).await? {
            Ok(_) => return Ok(resource),
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(api_client::explain(error)),
        }
    }
    bail!("the server has no ClusterTrustBundles")
}

fn bundle(found: &DynamicObject) -> TrustBundle {
    let spec = |field: &str| found.data["spec"][field].as_str().unwrap_or_default();
    let generation = found.metadata.generation.unwrap_or_default();
    let (labels, name) = (found.labels().clone(), found.name_any());
    TrustBundle::new(&name, generation, spec("signerName"), labels, spec("trustBundle"))
}

fn reported(found: &DynamicObject) -> NodeReport {
    let status = found.data.get("status").cloned().unwrap_or_default();
    let writes = found.managed_fields().iter().filter_map(|write| write.time.as_ref());
    let made = found.metadata.creation_timestamp.as_ref();
    let at = writes.chain(made).map(|time| time.0).max();
    NodeReport {
        status: serde_json::from_value(status).unwrap_or_default(),
        at: at.map(|time| time.to_string()).unwrap_or_default(),
    }
}

/// What a Node says of its agent. One without a Ready condition has not been judged yet.
fn state(found: &Node) -> NodeState {
    let conditions = found.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten().find(|one| one.type_ == "Ready");
    let since = |ready: &NodeCondition| {
        let since = ready.last_transition_time.as_ref().map(|time| time.0.to_string());
        since.unwrap_or_default()
    };
    NodeState {
        ours: is_reported_by_windlass(found),
        lost: ready.filter(|ready| ready.status == "Unknown").map(since),
    }
}
