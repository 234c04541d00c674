//! `windlass node`: runs the node agent, against any API server.

mod status;

use std::net::SocketAddr;

use anyhow::{Context as _, Result, anyhow};
use tokio::net::TcpListener;
use tokio::sync::watch;
use windlass_node::AgentOptions;
use windlass_server::ServerFeatureGates;

use super::{api_client, cannot_listen, data_dir};
use crate::cli::{NodeArgs, NodeCommand, NodeRunArgs};
use crate::serve::{node, signals};

/// Runs the agent until a signal stops it, or shows the status of a running one.
pub fn run(arguments: NodeArgs) -> Result<()> {
    match (arguments.command, arguments.run) {
        (Some(NodeCommand::Status(arguments)), _) => status::show(&arguments),
        (None, Some(arguments)) => api_client::block_on(run_agent(arguments)),
        (None, None) => Err(anyhow!("--kubeconfig and --cert-dir are required")),
    }
}

async fn run_agent(arguments: NodeRunArgs) -> Result<()> {
    // Install the handlers first: the parent process may send a signal at any time.
    let signal = signals()?;
    let node_name = match arguments.node_name {
        Some(name) => name,
        None => default_node_name()?,
    };
    let gates = arguments.feature_gates.iter().map(|gate| (gate.name.as_str(), gate.enabled));
    let features = ServerFeatureGates::with(gates).context("--feature-gates")?;
    let projections = arguments.projections.as_deref().map(node::read_projections);
    let options = AgentOptions {
        node_name,
        bootstrap_kubeconfig: arguments.bootstrap_kubeconfig,
        root_dir: arguments.root_dir.unwrap_or_else(|| arguments.cert_dir.clone()),
        addresses: arguments.node_ip,
        rotate_server_certificates: arguments.rotate_server_certificates,
        serving: bind("--listen", arguments.listen).await?,
        metrics_listener: bind("--metrics-listen", arguments.metrics_listen).await?,
        projections: projections.transpose()?,
        gates: node::gates(features),
        ..AgentOptions::new(arguments.kubeconfig, arguments.cert_dir)
    };
    let (down, shutdown) = watch::channel(false);
    let agent = windlass_node::run(options, shutdown);
    let signal = async {
        signal.await;
        tracing::info!("shutting down");
        down.send_replace(true);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        outcome = agent => Ok(outcome?),
        () = signal => Ok(()),
    }
}

fn default_node_name() -> Result<String> {
    let name = data_dir::hostname().unwrap_or_default().trim().to_lowercase();
    if windlass_api::names::dns1123_subdomain(&name).is_empty() {
        return Ok(name);
    }
    Err(anyhow!("host name {name:?} is not a valid node name; set --node-name"))
}

async fn bind(flag: &str, address: Option<SocketAddr>) -> Result<Option<TcpListener>> {
    let Some(address) = address else { return Ok(None) };
    let bound = TcpListener::bind(address).await;
    let listener = bound.map_err(|error| cannot_listen(flag, address, &error))?;
    tracing::info!(address = %listener.local_addr()?, "listening");
    Ok(Some(listener))
}
