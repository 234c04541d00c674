//! The node agent beside the server: this machine as a node of its own server.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use windlass_node::AgentOptions;
use windlass_node::feature_gates::FeatureGates;
use windlass_node::files::FileSystem;
use windlass_node::projections::HostProjections;
use windlass_node::serving::PageHandler;
use windlass_server::LocalClient;
use windlass_server::Server;
use windlass_server::ServerFeatureGates;
use windlass_server::{MASTERS, User};

use crate::commands::token::bindings::BootstrapBinding;
use crate::datadir::DataDirLayout;

/// How long to wait before beginning anew.
const PAUSE: Duration = Duration::from_secs(5);

/// What the node is to be.
pub struct EmbeddedNode {
    name: String,
    projections: Option<(PathBuf, HostProjections)>,
    gates: FeatureGates,
    pages: watch::Sender<Option<PageHandler>>,
}

impl EmbeddedNode {
    /// A node of this name, with the volumes of a file. A bad file is told of here.
    pub fn new(
        name: &str,
        projections: Option<&Path>,
        features: ServerFeatureGates,
    ) -> Result<Self> {
        let projections = projections.map(read_projections).transpose()?;
        let (name, gates) = (name.to_owned(), gates(features));
        Ok(Self { name, projections, gates, pages: watch::Sender::new(None) })
    }

    /// What it counts, for the metrics of the server.
    pub fn metrics(&self) -> windlass_server::MetricsSource {
        let pages = self.pages.subscribe();
        Box::new(move |out| {
            let pages = pages.borrow().clone();
            if let Some((_, text)) = pages.and_then(|pages| pages("/metrics")) {
                out.push_str(&text);
            }
        })
    }
}

/// Reads the volumes of a machine.
pub fn read_projections(path: &Path) -> Result<(PathBuf, HostProjections)> {
    let projections = windlass_node::projections::read(path, &FileSystem::default());
    let projections = projections.context("--projections")?;
    Ok((path.to_owned(), projections))
}

/// What is turned off in an agent when it is turned off in a server.
pub fn gates(features: ServerFeatureGates) -> FeatureGates {
    FeatureGates {
        cluster_trust_bundle_projection: features.cluster_trust_bundle_projection,
        pod_certificate_request: features.pod_certificate_request,
    }
}

/// Runs an agent until it is told to end. Whatever becomes of it, the server goes on.
///
/// It asks for its first certificate with the administrator's kubeconfig, which is there anyway; no
/// token is needed. It speaks to the server as any other node does.
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
                tracing::warn!("the node's certificate will wait for approval: {error:#}");
            }
            loop {
                // The server may be somewhere else than last time; the administrator's knows.
                let _ = std::fs::remove_file(layout.node("kubeconfig"));
                match windlass_node::run(options(&node, &layout), down.clone()).await {
                    Ok(()) => return,
                    Err(error) => tracing::error!("the node agent ended: {error}"),
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
        pages: Some(node.pages.clone()),
        bootstrap_kubeconfig: Some(layout.kubeconfig()),
        ..AgentOptions::new(layout.node("kubeconfig"), layout.node("pki"))
    }
}
