//! What a server has: bundles, what nodes report, and nodes. First listed, then watched.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, bail};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::ApiResource;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt as _};
use windlass_controllers::served::TRUST_BUNDLES;
use windlass_node::trust::object;
use windlass_node::volume::content::Bundle;

use super::delivery::{Reported, World};
use crate::commands::connect;

/// Objects to get at a time.
const PAGE: u32 = 500;
/// How long changes are gathered before somebody looks at them.
const GATHER: Duration = Duration::from_millis(100);

/// A server, and what it has.
pub struct Server {
    /// What it has.
    pub world: World,
    events: BoxStream<'static, (What, watcher::Result<Event<DynamicObject>>)>,
    /// What is listed anew.
    fresh: World,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Bundles,
    Reports,
}

impl Server {
    /// Looks at everything once.
    pub async fn look(client: Client) -> Result<Self> {
        let resource = bundles(&client).await?;
        let watch = |resource: &ApiResource| {
            let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
            watcher(api, watcher::Config::default().page_size(PAGE)).default_backoff().boxed()
        };
        let bundles = watch(&resource).map(|event| (What::Bundles, event));
        let reports = watch(&object::resource()).map(|event| (What::Reports, event));
        let events = futures::stream::select(bundles, reports).boxed();
        let mut server = Self { world: World::default(), events, fresh: World::default() };
        let mut missing = vec![What::Bundles, What::Reports];
        while !missing.is_empty() {
            let (what, event) = connect::answer(server.next()).await??;
            match event {
                Ok(event) => {
                    if server.take(what, event) {
                        missing.retain(|each| *each != what);
                    }
                }
                Err(watcher::Error::InitialListFailed(error)) => return Err(why(what, error)),
                // The first of the lists is watched already; that matters to those who wait.
                Err(error) => tracing::debug!(%error, "the watch broke off"),
            }
        }
        server.world.nodes = nodes(&client).await?;
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
        let (what, event) = self.next().await?;
        match event {
            Ok(event) => {
                self.take(what, event);
                Ok(())
            }
            Err(
                watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error),
            ) if matches!(&error, kube::Error::Api(status) if matches!(status.code, 401 | 403)) => {
                Err(why(what, error))
            }
            Err(error) => {
                tracing::debug!(%error, "the watch broke off");
                Ok(())
            }
        }
    }

    async fn next(&mut self) -> Result<(What, watcher::Result<Event<DynamicObject>>)> {
        match self.events.next().await {
            Some(event) => Ok(event),
            None => bail!("the watch ended"),
        }
    }

    /// Takes note of an event; whether it ends a list.
    fn take(&mut self, what: What, event: Event<DynamicObject>) -> bool {
        let Self { world, fresh, .. } = self;
        match (what, event) {
            (What::Bundles, Event::Init) => {
                (fresh.known, fresh.bundles) = Default::default();
            }
            (What::Reports, Event::Init) => fresh.reports.clear(),
            (What::Bundles, Event::InitApply(found)) => fresh.set_bundle(bundle(&found)),
            (What::Bundles, Event::Apply(found)) => world.set_bundle(bundle(&found)),
            (What::Bundles, Event::Delete(found)) => world.remove_bundle(&found.name_any()),
            (What::Reports, Event::InitApply(found)) => {
                fresh.reports.insert(found.name_any(), reported(&found));
            }
            (What::Reports, Event::Apply(found)) => {
                world.reports.insert(found.name_any(), reported(&found));
            }
            (What::Reports, Event::Delete(found)) => {
                world.reports.remove(&found.name_any());
            }
            (What::Bundles, Event::InitDone) => {
                world.known = std::mem::take(&mut fresh.known);
                world.bundles = std::mem::take(&mut fresh.bundles);
                return true;
            }
            (What::Reports, Event::InitDone) => {
                world.reports = std::mem::take(&mut fresh.reports);
                return true;
            }
        }
        false
    }
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

/// The names of all nodes, if they are shown.
async fn nodes(client: &Client) -> Result<Option<BTreeSet<String>>> {
    let api: Api<Node> = Api::all(client.clone());
    let mut wanted = ListParams::default().limit(PAGE);
    let mut names = BTreeSet::new();
    loop {
        let page = match connect::answer(api.list_metadata(&wanted)).await? {
            Ok(page) => page,
            Err(kube::Error::Api(status)) if status.code == 403 => return Ok(None),
            Err(error) => return Err(connect::explain(error)),
        };
        names.extend(page.items.iter().map(kube::ResourceExt::name_any));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => wanted = wanted.continue_token(&token),
            None => return Ok(Some(names)),
        }
    }
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
