//! The node agent: connects all components and runs them until shutdown.

mod status_writer;
pub mod volumes;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use kube::Config;
use time::OffsetDateTime;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::bootstrap::{BootstrapCredentials, BootstrapOutcome, InitialCredential};
use crate::cert_store::{CertStore, CertStoreError};
use crate::client_switch::ClientSwitch;
use crate::clock::{self, Clock};
use crate::credential_monitor::CredentialMonitor;
use crate::events;
use crate::exposure;
use crate::feature_gates::FeatureGates;
use crate::metrics::{AgentMetrics, AgentSources};
use crate::node_certificates::{
    NodeCertificateConfig, NodeCertificateManager, NodeCertificateReport, RandomSource, RetryPolicy,
};
use crate::node_status::object::{HostInfo, system};
use crate::node_status::{NodeRegistrar, NodeRegistration};
use crate::projections::HostProjections;
use crate::serving::{self, PageHandler, ServingTransport};
use crate::status_file::CertificateStatus;
use crate::template::{CertificatePurpose, CertificateTemplate};
use crate::volume_manager;
use windlass_runtime::client_error::describe;
use windlass_runtime::durable::{DiskError, FileSystem};
use windlass_runtime::file_lock::{DirectoryLock, LockError};
use windlass_runtime::metrics::MetricsRegistry;

use status_writer::StatusFileWriter;
use volumes::VolumeRuntime;

/// How long a node may take to get its first certificate before this is reported.
pub const PATIENCE: Duration = Duration::from_secs(5 * 60);
/// How often the wall clock is checked.
const LOOK: Duration = Duration::from_secs(60);
/// Age of the last heartbeat after which a node is not ready; the lease duration.
const STALE: time::Duration = time::Duration::seconds(40);

/// Options and dependencies of an agent.
pub struct AgentOptions {
    /// The name of the Node object; empty in the defaults, so the caller must set it.
    pub node_name: String,
    /// Kubeconfig of the API server.
    pub kubeconfig: PathBuf,
    /// Kubeconfig with bootstrap credentials, used until there is a certificate.
    pub bootstrap_kubeconfig: Option<PathBuf>,
    /// Directory of the node's certificates and keys, in kubelet's layout; the agent locks it.
    pub cert_dir: PathBuf,
    /// Directory of all other state.
    pub root_dir: PathBuf,
    /// Addresses of the node; detected if empty.
    pub addresses: Vec<IpAddr>,
    /// Whether to request and rotate a serving certificate.
    pub rotate_server_certificates: bool,
    /// Listener for health and metrics over TLS, with the serving certificate.
    pub serving: Option<TcpListener>,
    /// Listener for health and metrics over plain HTTP.
    pub metrics_listener: Option<TcpListener>,
    /// Metrics that the agent updates. Where an agent is restarted in a process, pass the same handle again.
    pub metrics: AgentMetrics,
    /// Host projections, and the file that they were read from.
    pub projections: Option<(PathBuf, HostProjections)>,
    /// Feature gates that turn volume sources off; all are on by default.
    pub gates: FeatureGates,
    /// Whether pod volumes are on a tmpfs, where this process may mount one.
    pub tmpfs: bool,
    /// How often the wall clock is checked, because it may jump.
    pub look: Duration,
    /// How long to wait for the first certificate.
    pub patience: Duration,
    /// Retry delays and request limits.
    pub pace: RetryPolicy,
    /// Source of wall-clock and monotonic time; tests replace it.
    pub clock: Clock,
    /// Random numbers that spread the requests of nodes started together.
    pub random: RandomSource,
    /// File system access; tests inject failures through its hook.
    pub files: FileSystem,
}

impl AgentOptions {
    /// Returns the default options, without a node name.
    pub fn new(kubeconfig: PathBuf, cert_dir: PathBuf) -> Self {
        Self {
            node_name: String::new(),
            kubeconfig,
            bootstrap_kubeconfig: None,
            root_dir: cert_dir.clone(),
            cert_dir,
            addresses: Vec::new(),
            rotate_server_certificates: false,
            serving: None,
            metrics_listener: None,
            metrics: AgentMetrics::register(&MetricsRegistry::new()),
            projections: None,
            gates: FeatureGates::default(),
            tmpfs: true,
            look: LOOK,
            patience: PATIENCE,
            pace: RetryPolicy::default(),
            clock: clock::system(),
            random: Arc::new(rand::random::<f64>),
            files: FileSystem::default(),
        }
    }
}

/// Why an agent ended before shutdown.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Another agent uses the certificate directory.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A disk operation failed, for this reason.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// No certificate was obtained in time.
    #[error("no client certificate after {} seconds: {why}", .patience.as_secs())]
    NoCertificate {
        /// How long the agent waited for it.
        patience: Duration,
        /// The reason why there is no certificate.
        why: String,
    },
    /// A component ended unexpectedly. The log contains the cause.
    #[error("a task of the agent panicked")]
    Broken,
    /// The server's address is not valid.
    #[error("cannot use the server of the kubeconfig: {0}")]
    Server(String),
}

/// Runs an agent until shutdown, or fails if it cannot start.
pub async fn run(mut options: AgentOptions, shutdown: watch::Receiver<bool>) -> Result<(), RunError> {
    // The kubeconfig contains these paths, and its readers run in other directories.
    for path in [&mut options.cert_dir, &mut options.root_dir] {
        *path = std::path::absolute(&path).unwrap_or_else(|_| path.clone());
    }
    options.files.create_directory(&options.root_dir)?;
    if let Some(exposed) = exposure::check(&options.root_dir) {
        tracing::warn!("{exposed}");
    }
    options.files.create_directory(&options.cert_dir)?;
    let _lock = DirectoryLock::acquire(&options.cert_dir)?;
    let root_dir = options.root_dir.clone();
    let mut agent = NodeAgent::new(options);
    let mut down = shutdown.clone();
    let outcome = tokio::select! {
        outcome = agent.run_until_shutdown(&shutdown) => outcome,
        _ = down.wait_for(|down| *down) => Ok(()),
    };
    agent.tasks.shutdown().await;
    volume_manager::release(&root_dir);
    outcome
}

struct NodeAgent {
    options: AgentOptions,
    boot: BootstrapCredentials,
    monitor: Arc<CredentialMonitor>,
    client: Arc<NodeCertificateManager>,
    serving: Option<Arc<NodeCertificateManager>>,
    templates: watch::Sender<Option<CertificateTemplate>>,
    registration: watch::Sender<NodeRegistration>,
    volumes: Arc<VolumeRuntime>,
    /// All tasks are aborted when the agent ends.
    tasks: JoinSet<()>,
}

impl NodeAgent {
    fn new(options: AgentOptions) -> Self {
        let store = |purpose: CertificatePurpose| {
            CertStore::new(&options.cert_dir, purpose.prefix(), options.files.clone())
        };
        let volumes = VolumeRuntime::new(&options);
        let monitor = CredentialMonitor::new(options.clock.clone());
        let setup = |purpose, templates, clients| NodeCertificateConfig {
            purpose,
            store: store(purpose),
            templates,
            clients,
            rejections: monitor.rejections(),
            bundles: volumes.bundles(),
            clock: options.clock.clone(),
            random: options.random.clone(),
            pace: options.pace,
        };
        let (client, kubeconfig) = (store(CertificatePurpose::Client), &options.kubeconfig);
        let bootstrap = options.bootstrap_kubeconfig.as_deref();
        let boot = BootstrapCredentials::new(kubeconfig, bootstrap, client, options.files.clone());
        let now = (options.clock)().wall;
        let BootstrapOutcome { source, loaded } = boot.prepare(now);
        log_initial_credential(source);
        let access = ClientSwitch::new(boot.clone(), options.clock.clone(), monitor.clone());
        let clients = access.clients();
        let (_, template) = watch::channel(Some(CertificateTemplate::client(&options.node_name)));
        let client = setup(CertificatePurpose::Client, template, clients.clone());
        let client = Arc::new(NodeCertificateManager::new(client, loaded));
        access.set_current(client.current());
        let templates = watch::Sender::new(None);
        let serving = options.rotate_server_certificates.then(|| {
            let loaded = store(CertificatePurpose::Serving).load(now);
            let setup = setup(CertificatePurpose::Serving, templates.subscribe(), clients);
            Arc::new(NodeCertificateManager::new(setup, loaded))
        });
        Self {
            boot,
            monitor,
            client,
            serving,
            templates,
            registration: watch::Sender::default(),
            volumes,
            tasks: JoinSet::new(),
            options,
        }
    }

    async fn run_until_shutdown(&mut self, shutdown: &watch::Receiver<bool>) -> Result<(), RunError> {
        self.serve();
        self.tasks.spawn(self.status_writer().run());
        let notices = self.client.notices();
        self.spawn_manager(self.client.clone(), shutdown);
        let ready = self.client.ready(self.options.patience).await;
        let patience = self.options.patience;
        ready.map_err(|report| RunError::NoCertificate { patience, why: failure_message(&report) })?;
        self.tasks.spawn(write_kubeconfig(self.boot.clone(), self.options.clock.clone()));
        let config = self.boot.cluster().await.map_err(RunError::Server)?;
        self.register(&config, notices)?;
        if let Some(serving) = self.serving.clone() {
            self.count_ages(&serving);
            self.spawn_manager(serving, shutdown);
        }
        // Some tasks end when their work is done.
        while let Some(ended) = self.tasks.join_next().await {
            if ended.is_err() {
                return Err(RunError::Broken);
            }
        }
        Ok(())
    }

    fn spawn_manager(&mut self, manager: Arc<NodeCertificateManager>, shutdown: &watch::Receiver<bool>) {
        let shutdown = shutdown.clone();
        self.tasks.spawn(async move { manager.run(shutdown).await });
    }

    fn serve(&mut self) {
        let pages = self.pages();
        self.options.metrics.set_sources(self.metrics_sources());
        if let Some(listener) = self.options.metrics_listener.take() {
            self.tasks.spawn(serving::serve(listener, ServingTransport::Plain, pages.clone()));
        }
        if let (Some(listener), Some(manager)) = (self.options.serving.take(), &self.serving) {
            self.registration.send_modify(|known| {
                known.port = listener.local_addr().map(|address| address.port()).ok();
            });
            self.tasks.spawn(serving::serve(listener, ServingTransport::Tls(manager.current()), pages));
        }
    }

    fn pages(&self) -> PageHandler {
        let (client, clock) = (self.client.clone(), self.options.clock.clone());
        let (metrics, registration) = (self.options.metrics.clone(), self.registration.subscribe());
        Arc::new(move |path| match path {
            "/healthz" | "/livez" => Some((StatusCode::OK, "ok".into())),
            "/readyz" => Some(match readiness(&client.report(), &registration.borrow(), clock().wall) {
                Ok(()) => (StatusCode::OK, "ok".into()),
                Err(why) => (StatusCode::SERVICE_UNAVAILABLE, why + "\n"),
            }),
            "/metrics" => Some((StatusCode::OK, metrics.encode())),
            _ => None,
        })
    }

    fn metrics_sources(&self) -> AgentSources {
        let managers = [Some(self.client.clone()), self.serving.clone()];
        let reports = self.volumes.reports.subscribe();
        let (bundles, certificates) = (self.volumes.clone(), self.volumes.clone());
        AgentSources {
            clock: self.options.clock.clone(),
            certificates: Box::new(move || {
                managers.iter().flatten().map(|manager| manager.report()).collect()
            }),
            volumes: Box::new(move || reports.borrow().clone()),
            bundle_bytes: Box::new(move || bundles.bundle_bytes()),
            certificate_states: Box::new(move || certificates.certificate_states()),
        }
    }

    fn register(
        &mut self,
        config: &Config,
        notices: tokio::sync::broadcast::Receiver<crate::node_certificates::RotationNotice>,
    ) -> Result<(), RunError> {
        let failed = |error: kube::Error| RunError::Server(describe(&error));
        let client = crate::client::connect(config, self.client.current(), self.monitor.clone());
        let client = client.map_err(failed)?;
        let probe = self.monitor.clone().probe(client.clone());
        self.tasks.spawn(async { match probe.await {} });
        let (node, clock) = (&self.options.node_name, &self.options.clock);
        let report_notices = |purpose, notices| {
            events::record_notices(client.clone(), node.clone(), purpose, notices, clock.clone())
        };
        self.tasks.spawn(report_notices(CertificatePurpose::Client, notices));
        if let Some(serving) = &self.serving {
            self.tasks.spawn(report_notices(CertificatePurpose::Serving, serving.notices()));
        }
        let url = &config.cluster_url;
        let port = url.port_u16().unwrap_or(443);
        let registrar = NodeRegistrar {
            client: client.clone(),
            server: (url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned(), port),
            chosen: self.options.addresses.clone(),
            host: HostInfo {
                name: node.clone(),
                addresses: Vec::new(),
                port: self.registration.borrow().port,
                system: system(),
            },
            clock: clock.clone(),
            random: self.options.random.clone(),
            registration: self.registration.clone(),
            templates: self.templates.clone(),
        };
        self.tasks.spawn(registrar.run());
        let registration = self.registration.subscribe();
        self.volumes.start(&self.options, &client, registration, &mut self.tasks);
        Ok(())
    }

    fn count_ages(&mut self, serving: &NodeCertificateManager) {
        let (metrics, mut notices) = (self.options.metrics.clone(), serving.notices());
        self.tasks.spawn(async move {
            use tokio::sync::broadcast::error::RecvError;
            loop {
                match notices.recv().await {
                    Ok(notice) => metrics.observe_rotation(&notice),
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return,
                }
            }
        });
    }

    fn status_writer(&self) -> StatusFileWriter {
        StatusFileWriter {
            node: self.options.node_name.clone(),
            cert_dir: self.options.cert_dir.clone(),
            root_dir: self.options.root_dir.clone(),
            files: self.options.files.clone(),
            clock: self.options.clock.clone(),
            reports: [Some(&self.client), self.serving.as_ref()]
                .into_iter()
                .flatten()
                .map(|manager| manager.reports())
                .collect(),
            registration: self.registration.subscribe(),
            volumes: self.volumes.reports.subscribe(),
            projections_error: self.volumes.projections.subscribe_error(),
        }
    }
}

/// Logs the credential that the node starts with.
fn log_initial_credential(source: Result<InitialCredential, CertStoreError>) {
    match source {
        Ok(InitialCredential::Managed) => {}
        Ok(InitialCredential::Kubeconfig) => {
            tracing::info!("starting with the certificate of the kubeconfig")
        }
        Ok(InitialCredential::Bootstrap) => {
            tracing::info!("no certificate yet; requesting one")
        }
        Ok(InitialCredential::Nothing(advice)) => tracing::error!("{advice}"),
        // Then the manager has no certificate, and reports what it does.
        Err(error) => tracing::warn!(%error, "cannot import the certificate of the kubeconfig"),
    }
}

/// Writes the kubeconfig for other programs that authenticate as this node. The agent does not need
/// it, so a disk error blocks nothing.
async fn write_kubeconfig(boot: BootstrapCredentials, clock: Clock) {
    let mut pause = Duration::from_secs(1);
    loop {
        let (boot, now) = (boot.clone(), (clock)().wall);
        match tokio::task::spawn_blocking(move || boot.write_kubeconfig(now)).await {
            Ok(Err(error)) => tracing::warn!("{error}"),
            Ok(Ok(_)) | Err(_) => return,
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(60));
    }
}

/// Formats the reason why there is no certificate.
fn failure_message(report: &NodeCertificateReport) -> String {
    let doing = CertificateStatus::from_report(report).activity;
    match (&report.trouble, doing.request_name) {
        (_, Some(_)) => doing.message,
        (Some(trouble), None) => trouble.message.clone(),
        (None, None) => doing.message,
    }
}

/// Returns whether the node is ready, or why not.
fn readiness(
    client: &NodeCertificateReport,
    registration: &NodeRegistration,
    now: OffsetDateTime,
) -> Result<(), String> {
    match &client.held {
        None => return Err(format!("no client certificate: {}", failure_message(client))),
        Some(held) if held.expires < now => {
            return Err(format!("the client certificate has expired: {}", failure_message(client)));
        }
        Some(held) if held.rejected_since.is_some() => {
            return Err(format!("the server rejects the client certificate: {}", failure_message(client)));
        }
        Some(_) => {}
    }
    let problem = || registration.problem.clone().unwrap_or_else(|| "not yet registered".into());
    match registration.heartbeat {
        _ if registration.kubelet => Ok(()),
        Some(beat) if now - beat <= STALE => Ok(()),
        Some(_) | None => Err(format!("no heartbeat: {}", problem())),
    }
}

#[cfg(test)]
mod tests;
