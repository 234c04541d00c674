//! Runs the store, the server and the controllers in one process.

pub mod certificates;
mod files;
pub mod node;
mod reload;

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use windlass_controllers::ca::CaSource;
use windlass_controllers::csr_signer::{self, BuiltInSigner, KubernetesSigner, SignerFiles};
use windlass_controllers::signers::{self, CustomSigner, SignerSettings};
use windlass_controllers::{Clock, LeaderElection, RootCa};
use windlass_pki::{AltName, Certificate};
use windlass_runtime::metrics::MetricsRegistry;
use windlass_server::{
    AdmissionPlugins, AnonymousReads, AuditLog, AuditLogMode, ConnectionDeadlines, ConnectionTracker,
    InflightLimits, LocalClient, LogRotation, MASTERS, Server, ServerFeatureGates, ServerOptions,
    TokenSigner, User, start, system_clock,
};
use windlass_store::{EmbeddedOptions, EmbeddedStore, Store};

use crate::cli::{
    AccessArgs, AdmissionPlugin, AuditArgs, AuditLevelArg, AuditModeArg, BundleSyncArgs, FeatureGate,
    IssuingArgs, NodeMonitorArgs, ServeArgs,
};
use crate::commands::{cannot_listen, data_dir};
use crate::datadir::{DataDir, DataDirLayout};
use crate::descriptors::{connection_limits, raise_limit};
use crate::{cluster_identity, shell};
use certificates::CertificateMaintainer;

/// Settings with which a server starts.
pub struct ServerSettings {
    /// Bound already, so that the port is known, but not listening.
    pub listener: TcpListener,
    /// Embedded database directory or shared etcd store.
    pub store: StoreBackend,
    /// Serving certificate and key; reloaded on change.
    pub tls: TlsFiles,
    /// PEM file of the CAs that verify client certificates.
    pub client_ca: PathBuf,
    /// Key files that sign and verify service-account tokens.
    pub service_account_keys: ServiceAccountKeys,
    pub options: ServeArgs,
    /// Options of the embedded controllers; `None` if they do not run in this process, as with
    /// `windlass server`.
    pub controllers: Option<(IssuingArgs, BundleSyncArgs, NodeMonitorArgs)>,
    /// Node name of the embedded agent, if it runs, and its host projections file.
    pub node: Option<(String, Option<PathBuf>)>,
    /// The data directory, locked against other processes.
    pub data: DataDir,
    /// Fingerprint of the CA with which all servers on one store sign kubelet serving certificates;
    /// `None` without other servers.
    pub kubelet_serving_ca: Option<String>,
}

/// Storage backend that holds all objects.
pub enum StoreBackend {
    /// Embedded database in this directory.
    Directory(PathBuf),
    /// Store that other servers share.
    Shared(Arc<dyn Store>),
}

/// Files of a certificate chain and its key; reloaded on change.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// PEM file with the leaf first, followed by intermediates.
    pub certificate: PathBuf,
    /// PEM file with the private key of the leaf.
    pub key: PathBuf,
}

/// Key files of service-account tokens.
#[derive(Clone, Debug)]
pub struct ServiceAccountKeys {
    /// Private key that signs new tokens.
    pub signing: PathBuf,
    /// Keys that verify tokens; public or private.
    pub verifying: Vec<PathBuf>,
}

impl ServiceAccountKeys {
    /// Returns the key files of a data directory.
    pub fn from_layout(layout: &DataDirLayout) -> Self {
        Self { signing: layout.pki_file("sa.key"), verifying: vec![layout.pki_file("sa.pub")] }
    }
}

/// Maximum number of connections that wait to be accepted: after a restart, all agents of a fleet
/// reconnect.
const BACKLOG: i32 = 4096;

/// Timeout for withdrawing the server's address at shutdown. An unreachable store would block the
/// shutdown; the address then expires.
const WITHDRAWAL: Duration = Duration::from_secs(2);

/// Serves until SIGTERM or SIGINT is received.
pub fn serve(settings: ServerSettings) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(run(settings));
    // Blocking reads must not delay the shutdown.
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

async fn run(settings: ServerSettings) -> Result<()> {
    let (down, shutdown) = watch::channel(false);
    let (shut_down, shutting_down) = watch::channel(false);
    // Validate the files before serving, so that an invalid one is reported without side effects.
    let metrics = MetricsRegistry::new();
    let mut options = controller_options(&settings, &metrics)?;
    if let (Some(options), StoreBackend::Shared(_)) = (&mut options, &settings.store) {
        // Other servers may run the same controllers.
        options.election = Some(LeaderElection::new(data_dir::identity()));
    }
    let node = settings.node.as_ref().map(|(name, projections)| {
        let features = features(&settings.options.feature_gates)?;
        node::EmbeddedNode::new(name, projections.as_deref(), features, &metrics)
    });
    let node = node.transpose()?;
    let store = open(&settings.store)?;
    let custom = options.as_ref().map(|options| options.custom.as_slice()).unwrap_or_default();
    let certificates = Arc::new(CertificateMaintainer::new(&settings, custom, system_clock(), &metrics));
    let limits = connection_limits(&settings.options.connections, raise_limit());
    let connections = ConnectionTracker::new(limits, ConnectionDeadlines::default());
    connections.register_metrics(&metrics);
    let signs = (shutting_down.clone(), shutdown.clone());
    let (server, tls) = assemble(&settings, &store, metrics, signs).await?;
    let address = settings.listener.local_addr()?;
    rustix::net::listen(&settings.listener, BACKLOG)
        .map_err(|error| cannot_listen("--listen", address, &error.into()))?;
    settings.listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(settings.listener)?;
    let serving = windlass_server::serve(
        server.clone(),
        listener,
        tls,
        connections,
        shutdown.clone(),
        settings.options.shutdown_grace,
    );
    let serving = tokio::spawn(serving);
    let advertised = advertised_address(settings.options.advertise_address, address);
    let advertiser = tokio::spawn(windlass_server::advertise_endpoints(server.clone(), advertised));
    // Runs until the runtime shuts down.
    tokio::spawn(certificates.run());
    let controllers = options.map(|options| controllers(&server, options, shutting_down.clone()));
    let layout = &settings.data.layout;
    let node = node.map(|node| node::start(node, layout, &server, shutdown.clone()));
    // Install the handlers before reporting readiness: a signal may follow at once.
    let signal = signals()?;
    print_ready_line(&settings.data);
    if controllers.is_some() {
        log_join_command(&settings.data);
    }
    let ended = tokio::select! {
        () = signal => Ok(()),
        error = store.failed() => Err(error).context("store failed"),
    };
    tracing::info!("shutting down");
    let again = signals()?;
    shut_down.send_replace(true);
    if ended.is_ok() && !settings.options.shutdown_delay_duration.is_zero() {
        // Load balancers notice that the server is not ready; until then it keeps serving.
        tokio::select! {
            () = tokio::time::sleep(settings.options.shutdown_delay_duration) => {}
            () = again => {}
            _ = store.failed() => {}
        }
    }
    // Takes little time: it writes at most three objects, and the server still responds.
    tokio::time::timeout(WITHDRAWAL, advertiser).await.ok();
    down.send_replace(true);
    if let Some(node) = node
        && node.await.is_err()
    {
        tracing::error!("node agent panicked");
    }
    serving.await.context("server task panicked")?;
    if let Some(controllers) = controllers {
        controllers.await.context("controllers panicked")?;
    }
    // No more requests are served: flush the audit log before the process exits.
    server.audit.close();
    // The reason of the exit takes precedence; a failed store also fails to close.
    let closed = store.close().await;
    ended?;
    Ok(closed?)
}

/// Returns the address at which other machines reach this server, selected as in kube-apiserver;
/// `None` on a machine without a network.
fn advertised_address(given: Option<IpAddr>, listen: SocketAddr) -> Option<SocketAddr> {
    let reachable = |ip: &IpAddr| !ip.is_loopback() && !ip.is_unspecified();
    let listen_ip = Some(listen.ip()).filter(reachable);
    let ip = given.or(listen_ip).or_else(|| default_route_address(listen.is_ipv6()))?;
    Some(SocketAddr::new(ip, listen.port())).filter(|address| reachable(&address.ip()))
}

/// Returns the address of the interface with the default route. Connecting a datagram socket makes
/// the kernel select a route and sends nothing; the destination is reserved for documentation.
fn default_route_address(is_ipv6: bool) -> Option<IpAddr> {
    let (local, remote) = if is_ipv6 { ("[::]:0", "[2001:db8::1]:9") } else { ("0.0.0.0:0", "192.0.2.1:9") };
    let socket = UdpSocket::bind(local).ok()?;
    socket.connect(remote).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

fn open(place: &StoreBackend) -> Result<Arc<dyn Store>> {
    Ok(match place {
        StoreBackend::Directory(directory) => Arc::new(EmbeddedStore::open(EmbeddedOptions::new(directory))?),
        StoreBackend::Shared(store) => store.clone(),
    })
}

async fn assemble(
    settings: &ServerSettings,
    store: &Arc<dyn Store>,
    metrics: MetricsRegistry,
    (shutting_down, shutdown): (watch::Receiver<bool>, watch::Receiver<bool>),
) -> Result<(Arc<Server>, Arc<arc_swap::ArcSwap<rustls::ServerConfig>>)> {
    let reloader = reload::FileReloader::new(settings);
    let tls = files::load_tls_config(&settings.tls)?;
    let authenticator = files::authenticator(settings)?;
    let key = files::signing_key(&settings.service_account_keys)?;
    let issuer = authenticator.service_accounts.as_ref().map_or("", |v| v.issuer()).to_owned();
    let server = start(ServerOptions {
        authenticator,
        tokens: Some(TokenSigner::new(key, &issuer)?),
        features: features(&settings.options.feature_gates)?,
        plugins: plugins(&settings.options.access).context("--disable-admission-plugins")?,
        metrics,
        flow: InflightLimits {
            reads: settings.options.inflight.max_requests_inflight.get(),
            writes: settings.options.inflight.max_mutating_requests_inflight.get(),
        },
        min_request_timeout: Duration::from_secs(settings.options.inflight.min_request_timeout.into()),
        audit: audit(&settings.options.audit)?,
        shutting_down,
        ..ServerOptions::new(store.clone(), shutdown)
    })
    .await?;
    let tls = Arc::new(arc_swap::ArcSwap::from_pointee(tls));
    tokio::spawn(reloader.run(server.clone(), tls.clone()));
    Ok((server, tls))
}

fn plugins(access: &AccessArgs) -> Result<AdmissionPlugins> {
    let mut plugins = AdmissionPlugins::default();
    for plugin in &access.disable_admission_plugins {
        match plugin {
            AdmissionPlugin::NamespaceLifecycle => bail!("NamespaceLifecycle cannot be disabled"),
            AdmissionPlugin::NodeRestriction => plugins.node_restriction = false,
            AdmissionPlugin::ServiceAccount => plugins.service_account = false,
        }
    }
    Ok(plugins)
}

fn features(gates: &[FeatureGate]) -> Result<ServerFeatureGates> {
    let gates = gates.iter().map(|gate| (gate.name.as_str(), gate.enabled));
    ServerFeatureGates::with(gates).context("--feature-gates")
}

fn audit(arguments: &AuditArgs) -> Result<AuditLog> {
    let Some(path) = &arguments.audit_log_path else { return Ok(AuditLog::default()) };
    let rotation = LogRotation {
        max_size_mb: arguments.audit_log_maxsize,
        max_backups: arguments.audit_log_maxbackup,
        max_age_days: arguments.audit_log_maxage,
    };
    let mode = match arguments.audit_log_mode {
        AuditModeArg::Batch => AuditLogMode::Batch,
        AuditModeArg::Blocking => AuditLogMode::Blocking,
        AuditModeArg::BlockingStrict => AuditLogMode::BlockingStrict,
    };
    let anonymous_reads = match arguments.audit_anonymous_reads {
        AuditLevelArg::None => AnonymousReads::None,
        AuditLevelArg::Metadata => AnonymousReads::Metadata,
    };
    let audit = AuditLog::to_file(path, rotation, system_clock())
        .with_context(|| format!("--audit-log-path {}", path.display()))?;
    Ok(audit.with_mode(mode).with_anonymous_reads(anonymous_reads))
}

/// Runs the controllers on the server's own service.
fn controllers(
    server: &Arc<Server>,
    options: windlass_controllers::ControllerOptions,
    shutdown: watch::Receiver<bool>,
) -> tokio::task::JoinHandle<()> {
    let user = User::authenticated("system:kube-controller-manager", "", vec![MASTERS.into()]);
    let client = kube::Client::new(LocalClient::new(server.clone(), user), "default");
    tokio::spawn(windlass_controllers::run(client, options, shutdown))
}

/// Returns the options of the embedded controllers. Only the client CA issues certificates for
/// authentication, and only the server's own certificate is issued by the CA with which clients
/// verify the server. Neither signs for other purposes: kubelet serving certificates have a
/// separate CA.
fn controller_options(
    settings: &ServerSettings,
    metrics: &MetricsRegistry,
) -> Result<Option<windlass_controllers::ControllerOptions>> {
    let Some((issuing, bundles, nodes)) = &settings.controllers else { return Ok(None) };
    let (data, clock) = (&settings.data, system_clock());
    let root_ca = data.layout.pki_file("ca.crt");
    let signers = issuing.signer_settings(Some(data.layout.signers()))?;
    let custom = custom_signers(&signers, &clock)?;
    warn_of_serving_ca(&root_ca, &custom)?;
    let mut server_names: Vec<String> = data.server_names.iter().map(name_text).collect();
    server_names.extend(settings.options.advertise_address.map(|address| address.to_string()));
    Ok(Some(windlass_controllers::ControllerOptions {
        approve_kubelet_serving: issuing.approve_kubelet_serving,
        api_server_names: server_names,
        built_in: built_in_signers(&data.layout, settings.kubelet_serving_ca.clone(), &clock),
        publish_kubelet_serving: true,
        cluster_signing_duration: issuing.cluster_signing_duration,
        custom,
        signers,
        root_ca: Some(RootCa::from_file(root_ca)?),
        ca_overlap: issuing.ca_overlap,
        ca_delivery_timeout: issuing.ca_delivery_timeout,
        bundles: bundles.settings()?,
        node_monitor: nodes.monitor().map_err(anyhow::Error::msg)?,
        metrics: metrics.clone(),
        ..windlass_controllers::ControllerOptions::new(clock)
    }))
}

fn name_text(name: &AltName) -> String {
    match name {
        AltName::Dns(name) | AltName::Uri(name) => name.clone(),
        AltName::Ip(address) => address.to_string(),
    }
}

/// Returns the built-in signers with the CAs of a data directory. If other servers have recorded
/// their CA of kubelet serving certificates, only that one is used.
fn built_in_signers(layout: &DataDirLayout, recorded: Option<String>, clock: &Clock) -> Vec<BuiltInSigner> {
    let file = |name: &str| layout.pki_file(name);
    let clients = [KubernetesSigner::Client, KubernetesSigner::KubeletClient].map(|signer| SignerFiles {
        signer,
        certificate: file("client-ca.crt"),
        key: file("client-ca.key"),
    });
    let mut signers = csr_signer::open(&clients, clock);
    let [certificate, key] = ["kubelet-serving-ca.crt", "kubelet-serving-ca.key"].map(file);
    let ca = match recorded {
        Some(wanted) => CaSource::from_files_with_check(
            certificate,
            key,
            cluster_identity::recorded_ca(wanted),
            clock.clone(),
        ),
        None => CaSource::from_files(certificate, key, clock.clone()),
    };
    let servers = [KubernetesSigner::KubeletServing, KubernetesSigner::LegacyUnknown];
    signers.extend(servers.map(|signer| BuiltInSigner { signer, ca: ca.clone() }));
    signers
}

/// Warns about custom signers that can impersonate the API server.
fn warn_of_serving_ca(root_ca: &Path, custom: &[CustomSigner]) -> Result<()> {
    let text = std::fs::read(root_ca).with_context(|| root_ca.display().to_string())?;
    let server = Certificate::from_pem(&text).with_context(|| root_ca.display().to_string())?;
    for CustomSigner { custom, ca, .. } in custom {
        let Some(ca) = ca.current() else { continue };
        if ca.certificate().public_key() == server.public_key() {
            let (signer, file) = (custom.name.as_str(), root_ca.display());
            tracing::warn!(signer, %file, "signer shares the CA of the API server; its serving certificates can impersonate the API server");
        }
    }
    Ok(())
}

/// Loads the custom signers of the named file, or of the file in the data directory if it exists.
fn custom_signers(settings: &SignerSettings, clock: &Clock) -> Result<Vec<CustomSigner>> {
    match &settings.file {
        Some(file) if !settings.is_file_optional => {
            signers::open_with(file, settings, clock).context("--signers")
        }
        Some(file) if file.exists() => signers::open_with(file, settings, clock),
        _ => Ok(Vec::new()),
    }
}

/// Prints one line for the user on standard output; logs go to standard error.
fn print_ready_line(data: &DataDir) {
    let mut line = format!("windlass is ready at {}", data.url);
    if data.has_kubeconfig() {
        line.push_str(&format!(" (kubeconfig: {})", data.layout.kubeconfig().display()));
    }
    line.push('\n');
    // Ignore the error if standard output is closed.
    let _ = std::io::stdout().write_all(line.as_bytes());
    let _ = std::io::stdout().flush();
}

/// Logs how nodes join. A token is a credential, so none is created until it is requested.
fn log_join_command(data: &DataDir) {
    let kubeconfig = data.layout.kubeconfig();
    let kubeconfig = kubeconfig.to_string_lossy();
    let kubeconfig = shell::word(&kubeconfig);
    tracing::info!("to join a node, run: windlass token create --kubeconfig {kubeconfig}");
}

/// Installs handlers for SIGTERM and SIGINT; the returned future completes when one is received,
/// instead of the process being terminated.
pub fn signals() -> Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

#[cfg(test)]
mod tests;
