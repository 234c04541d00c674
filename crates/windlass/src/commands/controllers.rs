//! `windlass controllers`: the controllers alone, against any API server.

use anyhow::{Context, Result, bail};
use tokio::sync::watch;

use super::connect;
use crate::cli::ControllersArgs;
use crate::serve::signals;

/// Works until told to stop.
pub fn run(arguments: ControllersArgs) -> Result<()> {
    connect::block_on(work(arguments))
}

async fn work(arguments: ControllersArgs) -> Result<()> {
    let client = connect::client(Some(&arguments.kubeconfig)).await?;
    let version = client.apiserver_version().await.context("the server does not answer")?;
    if !version.git_version.contains("windlass") {
        // Two garbage collectors on one cluster would only get in each other's way.
        bail!(
            "the server is Kubernetes {}, whose kube-controller-manager runs these controllers already",
            version.git_version
        );
    }
    let (down, shutdown) = watch::channel(false);
    let told = signals()?;
    let controllers = tokio::spawn(windlass_controllers::run(client, shutdown));
    told.await;
    down.send_replace(true);
    controllers.await.context("the controllers ended badly")
}
