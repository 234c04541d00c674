//! Fetches a Bundle and its related objects from the server.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DynamicObject, ListParams, PartialObjectMeta};
use kube::core::ApiResource;
use kube::{Client, ResourceExt as _};
use serde_json::Value;
use windlass_api::trust_bundle::{BUNDLE_LABEL, Bundle, HASH_ANNOTATION, TargetTemplate};
use windlass_controllers::bundles::target::TargetKind;
use windlass_runtime::discovery::{CLUSTER_TRUST_BUNDLES, TRUST_MANAGER_BUNDLES};

use crate::commands::api_client;

/// Page size of list requests.
const PAGE: u32 = 500;

/// A Bundle, its targets and the namespaces to check.
#[derive(Debug, Default)]
pub struct BundleSnapshot {
    pub bundle: Bundle,
    /// Metadata of the namespaces to check, by name; used to evaluate namespace selectors.
    pub namespaces: BTreeMap<String, ObjectMeta>,
    /// Objects labelled as its targets, and the expected ClusterTrustBundle, by kind, namespace and
    /// name.
    pub targets: BTreeMap<(TargetKind, String, String), ObjectMeta>,
    /// Certificates of one target, chosen from those with the most common hash.
    pub content: Option<String>,
    /// Kinds that could not be listed, with the reason.
    pub unseen: Vec<(TargetKind, String)>,
}

type ObjectMetadata = PartialObjectMeta<DynamicObject>;

/// Fetches the Bundle and its targets in one namespace or in all; fails if the Bundle or the namespace does not exist.
pub async fn fetch_snapshot(client: &Client, name: &str, namespace: Option<&str>) -> Result<BundleSnapshot> {
    let bundle = bundle(client, name).await?;
    let namespaces = namespaces(client, namespace).await?;
    let mut seen = BundleSnapshot { bundle, namespaces, ..BundleSnapshot::default() };
    let resources = [
        (TargetKind::ConfigMap, ApiResource::erase::<ConfigMap>(&())),
        (TargetKind::Secret, ApiResource::erase::<Secret>(&())),
    ];
    for (kind, resource) in resources {
        let labelled = ListParams::default().labels(&format!("{BUNDLE_LABEL}={name}"));
        let api = match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        seen.add_targets(kind, list_metadata(api, labelled).await?)?;
    }
    let target = seen.bundle.spec.target.as_ref();
    let anchors = target.and_then(|target| target.cluster_trust_bundle.as_ref());
    if let Some(object) = anchors.map(|template| template.object_name(name)) {
        let kind = TargetKind::ClusterTrustBundle;
        match api_client::with_timeout(CLUSTER_TRUST_BUNDLES.find(client)).await? {
            Ok(Some(resource)) => {
                let api: Api<ObjectMetadata> = Api::all_with(client.clone(), &resource);
                let found = api_client::with_timeout(api.get_opt(&object)).await?;
                seen.add_targets(kind, found.map(|found| found.into_iter().collect()))?;
            }
            Ok(None) => seen.unseen.push((kind, "not served".to_owned())),
            Err(error) => return Err(api_client::explain(error)),
        }
    }
    seen.content = content(client, &seen).await?;
    Ok(seen)
}

async fn bundle(client: &Client, name: &str) -> Result<Bundle> {
    let served = api_client::with_timeout(TRUST_MANAGER_BUNDLES.find(client)).await?;
    let Some(resource) = served.map_err(api_client::explain)? else {
        bail!("the server does not serve Bundles; install them with windlass crds");
    };
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    match api_client::with_timeout(api.get_opt(name)).await?.map_err(api_client::explain)? {
        Some(found) => Ok(Bundle::from_value(&serde_json::to_value(found)?)?),
        None => bail!("Bundle {name:?} not found"),
    }
}

/// Fetches the metadata of the named namespace, or of all.
async fn namespaces(client: &Client, name: Option<&str>) -> Result<BTreeMap<String, ObjectMeta>> {
    let api: Api<ObjectMetadata> = Api::all_with(client.clone(), &ApiResource::erase::<Namespace>(&()));
    let found = match name {
        Some(name) => match api_client::with_timeout(api.get_opt(name)).await? {
            Ok(None) => bail!("namespace {name:?} not found"),
            found => found.map(|found| found.into_iter().collect()),
        },
        None => list_metadata(api, ListParams::default()).await?,
    };
    let found: Vec<ObjectMetadata> = found.map_err(api_client::explain)?;
    Ok(found.into_iter().map(|found| (found.name_any(), found.metadata)).collect())
}

async fn list_metadata(
    api: Api<ObjectMetadata>,
    mut wanted: ListParams,
) -> Result<Result<Vec<ObjectMetadata>, kube::Error>> {
    wanted = wanted.limit(PAGE);
    let mut found = Vec::new();
    loop {
        let page = match api_client::with_timeout(api.list(&wanted)).await? {
            Ok(page) => page,
            Err(error) => return Ok(Err(error)),
        };
        found.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => wanted = wanted.continue_token(&token),
            None => return Ok(Ok(found)),
        }
    }
}

impl BundleSnapshot {
    fn add_targets(
        &mut self,
        kind: TargetKind,
        found: Result<Vec<ObjectMetadata>, kube::Error>,
    ) -> Result<()> {
        match found {
            Ok(found) => {
                let found = found.into_iter().map(|found| {
                    let namespace = found.namespace().unwrap_or_default();
                    ((kind, namespace, found.name_any()), found.metadata)
                });
                self.targets.extend(found);
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.code == 403 => {
                self.unseen.push((kind, status.message));
                Ok(())
            }
            Err(error) => Err(api_client::explain(error)),
        }
    }

    /// Returns a target with the most common hash, preferring ConfigMaps.
    fn sample(&self) -> Option<(TargetKind, &str, &str)> {
        let hash = |metadata: &ObjectMeta| metadata.annotations.as_ref()?.get(HASH_ANNOTATION).cloned();
        let mut counts: BTreeMap<String, (usize, (TargetKind, &str, &str))> = BTreeMap::new();
        for ((kind, namespace, name), metadata) in &self.targets {
            if let Some(hash) = hash(metadata) {
                let at = (*kind, namespace.as_str(), name.as_str());
                counts.entry(hash).or_insert((0, at)).0 += 1;
            }
        }
        // ConfigMaps sort first, and users with few permissions can usually read them.
        let best = counts.into_values().max_by_key(|(count, (kind, ..))| (std::cmp::Reverse(*kind), *count));
        best.map(|(_, at)| at)
    }
}

/// Reads the certificates of one target; `None` if the user may not read it.
async fn content(client: &Client, seen: &BundleSnapshot) -> Result<Option<String>> {
    let Some((kind, namespace, name)) = seen.sample() else { return Ok(None) };
    let target = seen.bundle.spec.target.as_ref();
    let key = |template: Option<&TargetTemplate>| template.map(|template| template.key.clone());
    let answer = match kind {
        TargetKind::ConfigMap => {
            let Some(key) = key(target.and_then(|target| target.config_map.as_ref())) else {
                return Ok(None);
            };
            let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
            let found = api_client::with_timeout(api.get_opt(name)).await?;
            found.map(|map| map?.data?.remove(&key))
        }
        TargetKind::Secret => {
            let Some(key) = key(target.and_then(|target| target.secret.as_ref())) else {
                return Ok(None);
            };
            let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
            let found = api_client::with_timeout(api.get_opt(name)).await?;
            found.map(|secret| String::from_utf8(secret?.data?.remove(&key)?.0).ok())
        }
        TargetKind::ClusterTrustBundle => {
            let resource = api_client::with_timeout(CLUSTER_TRUST_BUNDLES.find(client)).await?;
            let Some(resource) = resource.map_err(api_client::explain)? else { return Ok(None) };
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            let found = api_client::with_timeout(api.get_opt(name)).await?;
            let text = |found: DynamicObject| {
                found.data.pointer("/spec/trustBundle").and_then(Value::as_str).map(str::to_owned)
            };
            found.map(|found| found.and_then(text))
        }
    };
    match answer {
        Ok(text) => Ok(text),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(None),
        Err(error) => Err(api_client::explain(error)),
    }
}
