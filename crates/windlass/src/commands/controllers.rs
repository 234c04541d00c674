//! `windlass controllers`: the controllers alone, against any API server.

use anyhow::{Context, Result, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::sync::watch;

use crate::cli::ControllersArgs;
use crate::serve::signals;

/// Works until told to stop.
pub fn run(arguments: ControllersArgs) -> Result<()> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(work(arguments))
}

async fn work(arguments: ControllersArgs) -> Result<()> {
    let path = &arguments.kubeconfig;
    let file = Kubeconfig::read_from(path).with_context(|| path.display().to_string())?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .with_context(|| path.display().to_string())?;
    let client = kube::Client::try_from(config)?;
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
