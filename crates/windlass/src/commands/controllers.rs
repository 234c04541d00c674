//! `windlass controllers`: runs only the controllers, against any API server.

mod monitor;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::sync::watch;
use windlass_controllers::csr_signer::{self, BuiltInSigner, KubernetesSigner};
use windlass_controllers::{ControllerName, ControllerOptions, LeaderElection, RootCa, signers};
use windlass_pki::pem;
use windlass_runtime::metrics::MetricsRegistry;
use windlass_server::ServerFeatureGates;
use windlass_server::system_clock;

use super::{api_client, cannot_listen, data_dir};
use crate::cli::{ControllersArgs, ElectionArgs};
use crate::expiry::{CertificateRole, CertificateSource, ExpiryMonitor, MonitoredCertificate};
use crate::serve::certificates::signer_cas;
use crate::serve::signals;

/// Timeout for the server's first response, as in kube-controller-manager.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval of certificate expiry checks.
const EXPIRY_CHECK: Duration = Duration::from_secs(60);
/// Delay between two attempts to reach the server.
const PAUSE: Duration = Duration::from_millis(250);

/// Runs the controllers until a signal stops the process.
pub fn run(arguments: ControllersArgs) -> Result<()> {
    api_client::block_on(run_controllers(arguments))
}

async fn run_controllers(arguments: ControllersArgs) -> Result<()> {
    // Validate the flags first, so that mistakes are reported even if the server is unreachable.
    let files = arguments.signing.files().map_err(anyhow::Error::msg)?;
    let clock = system_clock();
    let built_in = csr_signer::open(&files, &clock);
    let settings = arguments.issuing.signer_settings(None)?;
    let custom = match &settings.file {
        Some(file) => signers::open_with(file, &settings, &clock).context("--signers")?,
        None => Vec::new(),
    };
    let bundles = arguments.bundles.settings()?;
    let node_monitor = arguments.nodes.monitor().map_err(anyhow::Error::msg)?;
    let election = election(&arguments.election)?;
    let config = api_client::config(&arguments.server()).await?;
    let roots = config.root_cert.clone();
    if arguments.issuing.approve_kubelet_serving {
        warn_of_shared_ca(&built_in, roots.as_deref().unwrap_or_default());
    }
    let client = api_client::from_config(config.clone())?;
    let version = version(&client).await.map_err(api_client::explain)?;
    let ours = version.contains("windlass");
    if !ours {
        tracing::info!(
            version,
            "server is not Windlass; controllers that kube-controller-manager runs are disabled"
        );
    }
    let root_ca = match (arguments.root_ca_file.clone(), roots) {
        (Some(file), _) => Some(RootCa::from_file(file).context("--root-ca-file")?),
        (None, Some(roots)) if ours => Some(fixed(&roots)?),
        (None, _) => None,
    };
    let features = arguments.feature_gates.iter().map(|gate| (gate.name.as_str(), gate.enabled));
    let features = ServerFeatureGates::with(features).context("--feature-gates")?;
    let mut selection = arguments.controllers;
    if !features.cluster_trust_bundle {
        selection = selection.without(ControllerName::TrustBundle);
    }
    if !features.pod_certificate_request {
        selection = selection.without(ControllerName::CleanPodRequests);
    }
    let mut api_server_names = arguments.api_server_names;
    api_server_names.extend(config.cluster_url.host().map(str::to_owned));
    api_server_names.extend(config.tls_server_name.clone());
    let mut monitored = own_certificates(&config, arguments.root_ca_file.as_deref());
    monitored
        .extend(files.iter().map(|each| MonitoredCertificate::signer(each.signer.name(), &each.certificate)));
    monitored.extend(signer_cas(&custom));
    let metrics = MetricsRegistry::new();
    let expiry = ExpiryMonitor::new(monitored, clock.clone(), &metrics);
    let options = ControllerOptions {
        housekeeping: ours,
        api_server_names,
        approve_kubelet_serving: arguments.issuing.approve_kubelet_serving,
        built_in,
        cluster_signing_duration: arguments.issuing.cluster_signing_duration,
        custom,
        signers: settings,
        root_ca,
        ca_overlap: arguments.issuing.ca_overlap,
        ca_delivery_timeout: arguments.issuing.ca_delivery_timeout,
        election,
        connection: Some(config),
        node_monitor,
        bundles,
        controllers: selection,
        metrics: metrics.clone(),
        ..ControllerOptions::new(clock)
    };
    tokio::spawn(report_expiry(Arc::new(expiry)));
    let (down, shutdown) = watch::channel(false);
    let signal = signals()?;
    let monitor = match arguments.metrics_listen {
        Some(address) => {
            let serving = monitor::serve(address, metrics).await;
            let cannot = |error| cannot_listen("--metrics-listen", address, &error);
            Some(serving.map_err(cannot)?)
        }
        None => None,
    };
    let controllers = tokio::spawn(windlass_controllers::run(client, options, shutdown));
    signal.await;
    down.send_replace(true);
    controllers.await.context("controllers panicked")?;
    drop(monitor);
    Ok(())
}

/// Warns if kubelet serving certificates come from a CA with which clients verify the API server:
/// then only the approver's check of names prevents a node from impersonating the API server.
fn warn_of_shared_ca(signers: &[BuiltInSigner], roots: &[Vec<u8>]) {
    let serving = signers.iter().filter(|each| each.signer == KubernetesSigner::KubeletServing);
    for ca in serving.filter_map(|each| each.ca.current()) {
        if roots.iter().any(|root| **root == **ca.certificate().der()) {
            tracing::warn!(
                "kubernetes.io/kubelet-serving signs with a CA that clients verify the API server \
                 with; give it a separate CA with --cluster-signing-kubelet-serving-cert-file, or \
                 list every name of the API server in --api-server-names"
            );
        }
    }
}

/// Lists the certificates that the controllers depend on: their client credential and the published
/// root CA.
fn own_certificates(config: &kube::Config, root_ca: Option<&Path>) -> Vec<MonitoredCertificate> {
    let auth = &config.auth_info;
    let embedded = auth.client_certificate_data.as_ref();
    let embedded = embedded.and_then(|data| STANDARD.decode(data).ok()).map(CertificateSource::Text);
    let named = auth.client_certificate.as_ref().map(|path| CertificateSource::File(path.into()));
    let client = embedded.or(named).map(|source| MonitoredCertificate {
        source,
        ..MonitoredCertificate::file("kubeconfig-client", CertificateRole::Provided, "")
    });
    let roots = root_ca.map(|path| MonitoredCertificate::file("root-ca", CertificateRole::Authority, path));
    client.into_iter().chain(roots).collect()
}

/// Reports expiring certificates; runs until it is cancelled.
async fn report_expiry(monitor: Arc<ExpiryMonitor>) {
    loop {
        let certificates = monitor.clone();
        let _ = tokio::task::spawn_blocking(move || certificates.check()).await;
        tokio::time::sleep(EXPIRY_CHECK).await;
    }
}

/// Returns the server's version as soon as it responds.
async fn version(client: &kube::Client) -> kube::Result<String> {
    let started = tokio::time::Instant::now();
    loop {
        match client.apiserver_version().await {
            Ok(version) => return Ok(version.git_version),
            Err(error) if started.elapsed() > PATIENCE => return Err(error),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

fn election(arguments: &ElectionArgs) -> Result<Option<LeaderElection>> {
    if !arguments.leader_elect {
        return Ok(None);
    }
    let identity = arguments.leader_elect_identity.clone();
    let identity = identity.unwrap_or_else(data_dir::identity);
    let election = LeaderElection {
        namespace: arguments.leader_elect_resource_namespace.clone(),
        name: arguments.leader_elect_resource_name.clone(),
        identity,
        lease_duration: arguments.leader_elect_lease_duration,
        renew_deadline: arguments.leader_elect_renew_deadline,
        retry_period: arguments.leader_elect_retry_period,
    };
    election.check().map_err(anyhow::Error::msg).context("--leader-elect")?;
    Ok(Some(election))
}

/// Builds a fixed root CA from the CAs of a kubeconfig.
fn fixed(roots: &[Vec<u8>]) -> Result<Arc<RootCa>> {
    let text = pem::encode_certificates(roots.iter().map(Vec::as_slice));
    RootCa::from_pem(text.as_bytes()).context("CA certificates of the kubeconfig")
}
