//! What a server knows about a signer, its consumers and its certificates.

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DynamicObject, ListParams};
use kube::core::ApiResource;
use kube::{Api, Client};
use windlass_api::trust_bundle::Bundle;
use windlass_node::trust::object;
use windlass_runtime::discovery::{ApiKind, CLUSTER_TRUST_BUNDLES, TRUST_MANAGER_BUNDLES};

use super::super::rotations::{self, RotationObject, SignerObject};
use crate::commands::api_client;
use crate::commands::cert::ledger::{self, LedgerContents};
use crate::commands::trust::delivery::TrustState;
use crate::commands::trust::server_watch::{node_state, trust_bundle, trust_report};

/// What was read. What could not be read is the reason, because a rotation would be held by it.
pub struct RotationSnapshot {
    /// The signer whose CA is to be replaced.
    pub signer: SignerObject,
    /// All rotations of the server, oldest first.
    pub rotations: Vec<RotationObject>,
    /// ClusterTrustBundles, reports of nodes, and Nodes.
    pub trust: Result<TrustState, String>,
    /// Bundles of trust-manager; empty if the kind is not served.
    pub bundles: Result<Vec<Bundle>, String>,
    /// All certificates that the ledger has, with their revocations.
    pub ledger: Result<LedgerContents, String>,
}

/// Reads the state of the server. Fails only if rotations cannot be listed.
pub async fn fetch(client: &Client, signer: SignerObject) -> Result<RotationSnapshot> {
    let rotations = rotations::list(client).await?;
    let (trust, bundles, ledger) =
        tokio::join!(read_trust(client), read_bundles(client), ledger::read_contents(client));
    let ledger = ledger.map_err(|error| error.to_string());
    Ok(RotationSnapshot { signer, rotations, trust, bundles, ledger })
}

async fn read_trust(client: &Client) -> Result<TrustState, String> {
    let Some(resource) = find(client, CLUSTER_TRUST_BUNDLES).await? else {
        return Err("the server does not serve ClusterTrustBundles".into());
    };
    let bundles: Vec<DynamicObject> = list(&Api::all_with(client.clone(), &resource)).await?;
    let reports: Vec<DynamicObject> = list(&Api::all_with(client.clone(), &object::resource())).await?;
    let nodes: Vec<Node> = list(&Api::all(client.clone())).await?;
    let mut trust = TrustState {
        reports: reports.iter().map(trust_report).collect(),
        nodes: nodes.iter().map(node_state).collect(),
        ..TrustState::default()
    };
    bundles.iter().map(trust_bundle).for_each(|bundle| trust.set_bundle(bundle));
    Ok(trust)
}

async fn read_bundles(client: &Client) -> Result<Vec<Bundle>, String> {
    let Some(resource) = find(client, TRUST_MANAGER_BUNDLES).await? else { return Ok(Vec::new()) };
    let objects: Vec<DynamicObject> = list(&Api::all_with(client.clone(), &resource)).await?;
    // Bundles that cannot be parsed are reported by their own controller.
    let parse = |object| Bundle::from_value(&serde_json::to_value(object).ok()?).ok();
    Ok(objects.into_iter().filter_map(parse).collect())
}

async fn find(client: &Client, kind: ApiKind) -> Result<Option<ApiResource>, String> {
    let found = api_client::with_timeout(kind.find(client)).await.map_err(|error| error.to_string())?;
    found.map_err(|error| api_client::explain(error).to_string())
}

async fn list<K>(api: &Api<K>) -> Result<Vec<K>, String>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let found = rotations::list_all(api, &ListParams::default()).await.map_err(|error| error.to_string())?;
    found.map_err(|error| api_client::explain(error).to_string())
}
