//! The node agent beside the server: this machine as a node of its own server.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use windlass_node::Options;
use windlass_server::local::Local;
use windlass_server::server::Server;
use windlass_server::user::{MASTERS, User};

use crate::commands::token::bindings::Binding;
use crate::datadir::Layout;

/// How long to wait before beginning anew.
const PAUSE: Duration = Duration::from_secs(5);

/// Runs an agent until it is told to end. Whatever becomes of it, the server goes on.
///
/// It asks for its first certificate with the administrator's kubeconfig, which is there anyway; no
/// token is needed. It speaks to the server as any other node does.
pub fn start(
    name: String,
    layout: &Layout,
    server: &Arc<Server>,
    mut shutdown: watch::Receiver<bool>,
) -> JoinHandle<()> {
    let user = User::authenticated("system:windlass:up", "", vec![MASTERS.into()]);
    let client = kube::Client::new(Local::new(server.clone(), user), "default");
    let layout = layout.clone();
    tokio::spawn(async move {
        let down = shutdown.clone();
        let work = async {
            if let Err(error) = Binding::rotation().ensure(&client).await {
                tracing::warn!("the node's certificate will wait for approval: {error:#}");
            }
            loop {
                // The server may be somewhere else than last time; the administrator's knows.
                let _ = std::fs::remove_file(layout.node("kubeconfig"));
                match windlass_node::run(options(&name, &layout), down.clone()).await {
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

fn options(name: &str, layout: &Layout) -> Options {
    Options {
        node_name: name.to_owned(),
        bootstrap_kubeconfig: Some(layout.kubeconfig()),
        ..Options::new(layout.node("kubeconfig"), layout.node("pki"))
    }
}
