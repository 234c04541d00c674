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
use windlass_controllers::served::TRUST_BUNDLES;
use windlass_node::register::object::is_ours;
use windlass_node::trust::object;
use windlass_node::volume::content::Bundle;

use super::delivery::{NodeState, Reported, World};
use crate::commands::connect;

/// Objects to get at a time.
const PAGE: u32 = 500;
/// How long changes are gathered before somebody looks at them.
const GATHER: Duration = Duration::from_millis(100);

/// A server, and what it has.
pub struct Server {
    /// What it has.
    pub world: World,
    events: BoxStream<'static, Seen>,
    /// What is listed anew.
    fresh: World,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Bundles,
    Reports,
    Nodes,
}

/// Something that was seen, or why nothing can be.
enum Seen {
    Object(What, Box<Event<DynamicObject>>),
    /// A Node may be large, so it is read as what it is and only what matters is kept.
    Node(Box<Event<Node>>),
    Failed(What, watcher::Error),
}

impl Server {
    /// Looks at everything once.
    pub async fn look(client: Client) -> Result<Self> {
        let resource = bundles(&client).await?;
        let bundles = watch(&client, What::Bundles, &resource);
        let reports = watch(&client, What::Reports, &object::resource());
        let nodes = watcher(Api::<Node>::all(client.clone()), config()).default_backoff();
        let nodes = nodes.map(|event| match event {
            Ok(event) => Seen::Node(Box::new(event)),
            Err(error) => Seen::Failed(What::Nodes, error),
        });
        let events = futures::stream::select_all([bundles, reports, nodes.boxed()]).boxed();
        let mut server = Self { world: World::default(), events, fresh: World::default() };
        let mut missing = vec![What::Bundles, What::Reports, What::Nodes];
        while !missing.is_empty() {
            let seen = connect::answer(server.next()).await??;
            match seen {
                Seen::Failed(what, watcher::Error::InitialListFailed(error)) => {
                    return Err(why(what, error));
                }
                // The first of the lists is watched already; that matters to those who wait.
                Seen::Failed(_, error) => log(&error),
                seen => {
                    let listed = server.take(seen);
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
            Seen::Failed(
                what,
                watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error),
            ) if matches!(&error, kube::Error::Api(status) if matches!(status.code, 401 | 403)) => {
                Err(why(what, error))
            }
            Seen::Failed(_, error) => {
                log(&error);
                Ok(())
            }
            seen => {
                self.take(seen);
                Ok(())
            }
        }
    }

    async fn next(&mut self) -> Result<Seen> {
        match self.events.next().await {
            Some(seen) => Ok(seen),
            None => bail!("the watch ended"),
        }
    }

    /// Takes note of an event; which list it ends.
    fn take(&mut self, seen: Seen) -> Option<What> {
        match seen {
            Seen::Object(What::Bundles, event) => self.take_bundle(*event),
            Seen::Object(_, event) => self.take_report(*event),
            Seen::Node(event) => self.take_node(*event),
            Seen::Failed(..) => None,
        }
    }

    fn take_bundle(&mut self, event: Event<DynamicObject>) -> Option<What> {
        let Self { world, fresh, .. } = self;
        match event {
            Event::Init => (fresh.known, fresh.bundles) = Default::default(),
            Event::InitApply(found) => fresh.set_bundle(bundle(&found)),
            Event::Apply(found) => world.set_bundle(bundle(&found)),
            Event::Delete(found) => world.remove_bundle(&found.name_any()),
            Event::InitDone => {
                world.known = std::mem::take(&mut fresh.known);
                world.bundles = std::mem::take(&mut fresh.bundles);
                return Some(What::Bundles);
            }
        }
        None
    }

    fn take_report(&mut self, event: Event<DynamicObject>) -> Option<What> {
        let (world, fresh) = (&mut self.world.reports, &mut self.fresh.reports);
        take(event, world, fresh, reported).then_some(What::Reports)
    }

    fn take_node(&mut self, event: Event<Node>) -> Option<What> {
        let (world, fresh) = (&mut self.world.nodes, &mut self.fresh.nodes);
        take(event, world, fresh, state).then_some(What::Nodes)
    }
}

/// Takes note of an event of objects that are kept by name; whether it ends a list.
fn take<K: Resource<DynamicType = D>, D, T>(
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

fn watch(client: &Client, what: What, resource: &ApiResource) -> BoxStream<'static, Seen> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let events = watcher(api, config()).default_backoff();
    let seen = events.map(move |event| match event {
        Ok(event) => Seen::Object(what, Box::new(event)),
        Err(error) => Seen::Failed(what, error),
    });
    seen.boxed()
}

fn log(error: &watcher::Error) {
    tracing::debug!(error = windlass_client_error::describe(error), "watch ended; resuming");
}

fn why(what: What, error: kube::Error) -> anyhow::Error {
    match (what, &error) {
        (What::Reports, kube::Error::Api(status)) if status.code == 404 => anyhow::anyhow!(
            "the server has no NodeTrusts, so nodes cannot report; see windlass crds"
        ),
        _ => connect::explain(error),
    }
}

/// Bundles, in the best version that the server has.
async fn bundles(client: &Client) -> Result<ApiResource> {
    for resource in TRUST_BUNDLES.versions() {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        match connect::answer(api.list_metadata(&ListParams::default().limit(1))).await? {
            Ok(_) => return Ok(resource),
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(connect::explain(error)),
        }
    }
    bail!("the server has no ClusterTrustBundles")
}

fn bundle(found: &DynamicObject) -> Bundle {
    let spec = |field: &str| found.data["spec"][field].as_str().unwrap_or_default();
    let generation = found.metadata.generation.unwrap_or_default();
    let (labels, name) = (found.labels().clone(), found.name_any());
    Bundle::new(&name, generation, spec("signerName"), labels, spec("trustBundle"))
}

fn reported(found: &DynamicObject) -> Reported {
    let status = found.data.get("status").cloned().unwrap_or_default();
    let writes = found.managed_fields().iter().filter_map(|write| write.time.as_ref());
    let made = found.metadata.creation_timestamp.as_ref();
    let at = writes.chain(made).map(|time| time.0).max();
    Reported {
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
        ours: is_ours(found),
        lost: ready.filter(|ready| ready.status == "Unknown").map(since),
    }
}
