//! Embedded node agent: registers this machine as a node of its own server.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use windlass_node::AgentOptions;
use windlass_node::feature_gates::FeatureGates;
use windlass_node::metrics::AgentMetrics;
use windlass_node::projections::HostProjections;
use windlass_runtime::durable::FileSystem;
use windlass_runtime::metrics::MetricsRegistry;
use windlass_server::{LocalClient, MASTERS, Server, ServerFeatureGates, User};

use crate::commands::token::bindings::BootstrapBinding;
use crate::datadir::DataDirLayout;

/// Delay before a failed agent is restarted.
const PAUSE: Duration = Duration::from_secs(5);

/// Settings of the embedded node agent.
pub struct EmbeddedNode {
    name: String,
    projections: Option<(PathBuf, HostProjections)>,
    gates: FeatureGates,
    /// Kept over restarts of the agent.
    metrics: AgentMetrics,
}

impl EmbeddedNode {
    /// Creates the settings of a node with a host projections file; fails if the file is invalid.
    pub fn new(
        name: &str,
        projections: Option<&Path>,
        features: ServerFeatureGates,
        metrics: &MetricsRegistry,
    ) -> Result<Self> {
        let projections = projections.map(read_projections).transpose()?;
        let (name, gates) = (name.to_owned(), gates(features));
        Ok(Self { name, projections, gates, metrics: AgentMetrics::register(metrics) })
    }
}

pub fn read_projections(path: &Path) -> Result<(PathBuf, HostProjections)> {
    let projections = windlass_node::projections::read(path, &FileSystem::default());
    let projections = projections.context("--projections")?;
    Ok((path.to_owned(), projections))
}

/// Derives the agent's feature gates from those of the server.
pub fn gates(features: ServerFeatureGates) -> FeatureGates {
    FeatureGates {
        cluster_trust_bundle_projection: features.cluster_trust_bundle_projection,
        pod_certificate_request: features.pod_certificate_request,
    }
}

/// Runs an agent until it is stopped. Its failures do not affect the server.
///
/// It requests its first certificate with the administrator's kubeconfig, so no token is needed. It
/// connects to the server like any other node.
pub fn start(
    node: EmbeddedNode,
    layout: &DataDirLayout,
    server: &Arc<Server>,
    mut shutdown: watch::Receiver<bool>,
) -> JoinHandle<()> {
    let user = User::authenticated("system:windlass:up", "", vec![MASTERS.into()]);
    let client = kube::Client::new(LocalClient::new(server.clone(), user), "default");
    let layout = layout.clone();
    tokio::spawn(async move {
        let down = shutdown.clone();
        let work = async {
            if let Err(error) = BootstrapBinding::rotation().ensure(&client).await {
                tracing::warn!("cannot approve the node's certificate automatically: {error:#}");
            }
            loop {
                // The server's address may have changed; the administrator's kubeconfig has the
                // current one.
                let _ = std::fs::remove_file(layout.node("kubeconfig"));
                match windlass_node::run(options(&node, &layout), down.clone()).await {
                    Ok(()) => return,
                    Err(error) => tracing::error!("node agent failed: {error}"),
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::select! {
            () = work => {}
            _ = shutdown.wait_for(|down| *down) => {}
        }
    })
}

fn options(node: &EmbeddedNode, layout: &DataDirLayout) -> AgentOptions {
    AgentOptions {
        node_name: node.name.clone(),
        root_dir: layout.node(""),
        projections: node.projections.clone(),
        gates: node.gates,
        metrics: node.metrics.clone(),
        bootstrap_kubeconfig: Some(layout.kubeconfig()),
        ..AgentOptions::new(layout.node("kubeconfig"), layout.node("pki"))
    }
}
