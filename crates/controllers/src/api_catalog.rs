//! Resources that the API serves, by discovery of each group version. A group version that fails is recorded, and the
//! others are used.

use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures::future::join_all;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource;
use kube::Client;
use kube::core::ApiResource;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use windlass_runtime::client_error::describe;
use windlass_runtime::failure_log::FailureLog;

/// Latest discovery result, refreshed periodically.
pub struct ApiCatalog {
    client: Client,
    latest: watch::Sender<Arc<CatalogSnapshot>>,
    failures: Counter,
    /// Held during a discovery, so that concurrent callers wait for its result.
    discovery_lock: Mutex<()>,
}

/// Result of one discovery.
#[derive(Debug, Default)]
pub struct CatalogSnapshot {
    /// All resources in all versions, without subresources.
    pub resources: Vec<Arc<ServedResource>>,
    /// Errors of the group versions that could not be discovered.
    pub failures: BTreeMap<String, String>,
    /// Group-versions that discovery returned but that do not parse.
    pub malformed: Vec<String>,
    taken: Option<Instant>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedResource {
    /// Group, version, kind and plural name.
    pub api: ApiResource,
    /// Whether its objects are namespaced.
    pub namespaced: bool,
    /// Whether this is the preferred version of the resource.
    pub preferred: bool,
    verbs: Vec<String>,
}

/// Interval between discoveries, as in kube-controller-manager.
const EVERY: Duration = Duration::from_secs(30);
/// Delay after a failed discovery.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Refreshes the catalog periodically.
pub async fn run_refresh(catalog: Arc<ApiCatalog>) -> Infallible {
    let mut failures = FailureLog::default();
    loop {
        let (error, pause) = match catalog.refresh(AFTER_FAILURE).await {
            Ok(found) => {
                let groups = found.failures.iter().map(|(group, why)| format!("{group}: {why}"));
                (groups.collect::<Vec<_>>().join("; "), EVERY)
            }
            Err(error) => (describe(error.as_ref()), AFTER_FAILURE),
        };
        if error.is_empty() {
            failures.clear();
        } else if failures.is_due(&error, Instant::now()) {
            tracing::warn!(error, "API discovery failed; retrying");
        }
        tokio::time::sleep(pause).await;
    }
}

impl ApiCatalog {
    /// Creates an empty catalog. `failures` counts discoveries that fail for at least one group version.
    pub fn new(client: Client, failures: Counter) -> ApiCatalog {
        let (latest, _) = watch::channel(Arc::default());
        ApiCatalog { client, latest, failures, discovery_lock: Mutex::new(()) }
    }

    /// Returns the latest snapshot, which is empty until the first discovery succeeds.
    pub fn current(&self) -> Arc<CatalogSnapshot> {
        self.latest.borrow().clone()
    }

    /// Returns a receiver that is notified of every new snapshot.
    pub fn changes(&self) -> watch::Receiver<Arc<CatalogSnapshot>> {
        self.latest.subscribe()
    }

    /// Returns the latest snapshot if it is not older than `age`, and discovers otherwise.
    pub async fn refresh(&self, age: Duration) -> anyhow::Result<Arc<CatalogSnapshot>> {
        let _discovering = self.discovery_lock.lock().await;
        let known = self.current();
        if known.taken.is_some_and(|taken| taken.elapsed() <= age) {
            return Ok(known);
        }
        let found = discover(&self.client).await;
        if !found.as_ref().is_ok_and(|found| found.failures.is_empty()) {
            self.failures.inc();
        }
        let found = Arc::new(found?);
        self.latest.send_replace(found.clone());
        Ok(found)
    }

    /// Finds the resource of objects with this `apiVersion` and `kind`.
    pub async fn resolve(&self, api_version: &str, kind: &str) -> anyhow::Result<Arc<ServedResource>> {
        if let Some(found) = self.current().get(api_version, kind) {
            return Ok(found);
        }
        let snapshot = self.refresh(AFTER_FAILURE).await?;
        match (snapshot.get(api_version, kind), snapshot.failures.get(api_version)) {
            (Some(found), _) => Ok(found),
            (None, Some(why)) => anyhow::bail!("discovery of {api_version} failed: {why}"),
            (None, None) => anyhow::bail!("the server does not serve {kind} in {api_version}"),
        }
    }
}

impl CatalogSnapshot {
    /// Finds the resource of objects with this `apiVersion` and `kind`.
    pub fn get(&self, api_version: &str, kind: &str) -> Option<Arc<ServedResource>> {
        let mut all = self.resources.iter();
        all.find(|r| r.api.api_version == api_version && r.api.kind == kind).cloned()
    }

    /// Lists each resource once, in its preferred version, if it supports all `verbs`.
    pub fn preferred<'a>(&'a self, verbs: &'a [&str]) -> impl Iterator<Item = &'a Arc<ServedResource>> + 'a {
        let able = |r: &&Arc<ServedResource>| r.preferred && verbs.iter().all(|verb| r.supports(verb));
        self.resources.iter().filter(able)
    }
}

impl ServedResource {
    /// Creates a resource that supports no verbs.
    #[cfg(test)]
    pub fn new(api: ApiResource, namespaced: bool) -> ServedResource {
        ServedResource { api, namespaced, preferred: true, verbs: Vec::new() }
    }

    pub fn supports(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }

    /// Returns the group and plural name, which are the same in all versions.
    pub fn group_resource(&self) -> (&str, &str) {
        (&self.api.group, &self.api.plural)
    }
}

async fn discover(client: &Client) -> anyhow::Result<CatalogSnapshot> {
    let core = client.list_core_api_versions().await.context("GET /api")?;
    let groups = client.list_api_groups().await.context("GET /apis")?;
    // Preferred versions first within each group.
    let mut versions: Vec<String> = core.versions;
    let mut malformed = Vec::new();
    for group in groups.groups {
        let first = group.preferred_version.map(|version| version.group_version);
        let rest = group.versions.into_iter().map(|version| version.group_version);
        let rest: Vec<String> = rest.filter(|version| Some(version) != first.as_ref()).collect();
        versions.extend(first.into_iter().chain(rest));
    }
    versions.retain(|version| {
        let good = !version.is_empty() && version.matches('/').count() <= 1;
        if !good {
            malformed.push(version.clone());
        }
        good
    });
    let lists = join_all(versions.iter().map(|version| async move {
        if version.contains('/') {
            client.list_api_group_resources(version).await
        } else {
            client.list_core_api_resources(version).await
        }
    }))
    .await;
    let mut snapshot =
        CatalogSnapshot { malformed, taken: Some(Instant::now()), ..CatalogSnapshot::default() };
    let mut preferred = HashSet::new();
    for (version, list) in versions.iter().zip(lists) {
        match list {
            Ok(list) => {
                for found in list.resources {
                    let Some(mut resource) = parse_resource(version, found) else { continue };
                    let (group, plural) = resource.group_resource();
                    resource.preferred = preferred.insert((group.to_owned(), plural.to_owned()));
                    snapshot.resources.push(Arc::new(resource));
                }
            }
            Err(error) => {
                snapshot.failures.insert(version.clone(), describe(&error));
            }
        }
    }
    Ok(snapshot)
}

/// Parses a resource of a group-version; `None` for a subresource.
fn parse_resource(group_version: &str, found: APIResource) -> Option<ServedResource> {
    if found.name.contains('/') {
        return None;
    }
    let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
    let api = ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: group_version.to_owned(),
        kind: found.kind,
        plural: found.name,
    };
    Some(ServedResource { api, namespaced: found.namespaced, preferred: false, verbs: found.verbs })
}
