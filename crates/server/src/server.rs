//! Shared state of the server.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http::header::USER_AGENT;
use http_body_util::Full;
use serde_json::Value;
use time::OffsetDateTime;
use tokio::sync::watch;
use tower::ServiceExt as _;
use windlass_runtime::metrics::MetricsRegistry;
use windlass_store::Store;

use crate::audit::AuditLog;
use crate::cache::{KindCache, ResourceCaches};
use crate::chain::admission::AdmissionPlugins;
use crate::chain::authn::Authenticator;
use crate::chain::authn::revocation::{RevocationChecker, end_watches_on_revocation};
use crate::chain::authz::Authorizer;
use crate::chain::flow_control::{self, FlowController};
use crate::error::Error;
use crate::fault_injection::FaultInjection;
use crate::feature_gates::ServerFeatureGates;
use crate::limits;
use crate::local_client::LocalClient;
use crate::metrics::{ServerMetrics, register_cache_metrics};
use crate::offload::OffloadPool;
use crate::openapi::OpenApiDocuments;
use crate::registry::kind::Kind;
use crate::registry::{KINDS, KindRegistry};
use crate::tokens::TokenSigner;
use crate::user::{MASTERS, User};
use crate::verbs::store_error::store_error;

/// State that all requests to one API server share.
pub struct Server {
    /// Durable storage of all objects: embedded, or etcd.
    pub store: Arc<dyn Store>,
    /// Caches of all kinds, which serve all reads.
    pub caches: Arc<ResourceCaches>,
    /// Kinds that this server serves, given its feature gates.
    pub registry: KindRegistry,
    /// Authenticates every request before anything else is decided.
    pub authenticator: Authenticator,
    /// Revoked client certificates, from the cache of CertificateRevocations.
    pub revocations: RevocationChecker,
    /// Decides which requests authenticated users may make.
    pub authorizer: Authorizer,
    /// Serializes the creation of objects that must differ from all others of their kind.
    pub exclusive_creates: tokio::sync::Mutex<()>,
    /// Limits concurrency and queues requests fairly.
    pub flow: FlowController,
    /// Threads for work on large objects.
    pub offload: OffloadPool,
    /// Admission plugins that are enabled on this server.
    pub plugins: AdmissionPlugins,
    /// Audit log of all requests.
    pub audit: AuditLog,
    /// Faults injected by tests; empty in production.
    pub faults: FaultInjection,
    /// OpenAPI documents, rendered on demand and shared while they are sent.
    pub documents: OpenApiDocuments,
    /// Metrics served under `/metrics`, in Prometheus text format.
    pub metrics: ServerMetrics,
    /// Source of the current time; tests set it forward.
    pub clock: Clock,
    /// Signs service account tokens; without it token requests are refused.
    pub tokens: Option<TokenSigner>,
    /// Feature gates; they do not change while the server runs.
    pub features: ServerFeatureGates,
    /// State of the default policy.
    pub policy: crate::policy::DefaultPolicy,
    /// Minimum duration of a watch unless it requests less; half of the maximum.
    pub min_request_timeout: Duration,
    /// Becomes true before shutdown; the server is then unready but serves as before.
    pub shutting_down: watch::Receiver<bool>,
    /// Becomes true at shutdown; watches end then.
    pub shutdown: watch::Receiver<bool>,
}

impl Server {
    /// Waits until the caches include every write acknowledged before the call.
    pub async fn catch_up(&self) -> Result<(), Error> {
        // Without other writers, they always do.
        if !self.store.is_shared() {
            return Ok(());
        }
        // After a long outage requests do not wait: that would be in vain, and occupy seats.
        if self.store.lost_since().is_some_and(|since| since.elapsed() >= limits::CUT_OFF) {
            return Err(Error::Unavailable("store unreachable; try again".into()));
        }
        match tokio::time::timeout(limits::CATCH_UP, self.caches.catch_up(&self.store)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(store_error(self, error)),
            Err(_) => {
                let text = "timed out waiting for the newest state of the store; try again";
                Err(Error::Unavailable(text.into()))
            }
        }
    }

    /// Returns true if shutdown has begun or is imminent.
    pub fn is_shutting_down(&self) -> bool {
        *self.shutting_down.borrow() || *self.shutdown.borrow()
    }

    /// Returns the cache of a core kind for a check. A missing cache fails the check; it does not
    /// mean that the object is absent.
    pub fn core(&self, plural: &str) -> Result<&Arc<KindCache>, Error> {
        let kind = self.registry.by_path("", "v1", plural);
        let cache = kind.and_then(|(kind, _)| self.caches.for_kind(kind));
        cache.ok_or_else(|| Error::Internal(format!("{plural} are not served")))
    }

    /// Returns the object of a core kind under `key` (`namespace/name`, or `name` at cluster
    /// scope).
    pub fn core_object(&self, plural: &str, key: &str) -> Result<Option<Value>, Error> {
        Ok(self.core(plural)?.get(key).map(|object| object.stored_value()))
    }
}

/// Returns the current time; injectable for tests.
pub type Clock = Arc<dyn Fn() -> OffsetDateTime + Send + Sync>;

/// Returns the clock of the operating system, in UTC.
pub fn system_clock() -> Clock {
    Arc::new(OffsetDateTime::now_utc)
}

/// Configuration and dependencies of a server.
pub struct ServerOptions {
    /// Durable storage of all objects: embedded, or etcd.
    pub store: Arc<dyn Store>,
    /// Kinds to serve; those whose feature gate is off are left out.
    pub kinds: &'static [&'static Kind],
    /// Authenticates the requests to this server, including anonymous ones.
    pub authenticator: Authenticator,
    /// Signs service account tokens; `None` refuses token requests.
    pub tokens: Option<TokenSigner>,
    /// Feature gates, fixed when the server starts.
    pub features: ServerFeatureGates,
    /// Source of the current time; the system clock by default.
    pub clock: Clock,
    /// Becomes true before shutdown, when the server turns unready.
    pub shutting_down: watch::Receiver<bool>,
    /// Becomes true when the server shuts down.
    pub shutdown: watch::Receiver<bool>,
    /// Registry that the metrics of the server and of the process are added to, and that `/metrics` serves; other parts
    /// of the process may share it. Use one registry per server.
    pub metrics: MetricsRegistry,
    /// Limits on concurrently executing requests.
    pub flow: flow_control::InflightLimits,
    /// Minimum duration of a watch unless it requests less; half of the maximum.
    pub min_request_timeout: Duration,
    /// Admission plugins to enable on this server.
    pub plugins: AdmissionPlugins,
    /// Audit log of all requests; disabled by default.
    pub audit: AuditLog,
    /// Faults injected by tests; empty in production.
    pub faults: FaultInjection,
}

impl ServerOptions {
    /// Serves all kinds from `store`, to anonymous users and bootstrap tokens only.
    pub fn new(store: Arc<dyn Store>, shutdown: watch::Receiver<bool>) -> ServerOptions {
        ServerOptions {
            store,
            kinds: KINDS,
            authenticator: Authenticator::default(),
            tokens: None,
            features: ServerFeatureGates::default(),
            clock: system_clock(),
            shutting_down: shutdown.clone(),
            shutdown,
            metrics: MetricsRegistry::new(),
            flow: flow_control::InflightLimits::default(),
            min_request_timeout: limits::MIN_REQUEST_TIMEOUT,
            plugins: AdmissionPlugins::default(),
            audit: AuditLog::default(),
            faults: FaultInjection::default(),
        }
    }
}

/// Starts a server that is ready to serve: its caches are filled, and the system namespaces and
/// default roles exist.
pub async fn start(setup: ServerOptions) -> Result<Arc<Server>, windlass_store::Error> {
    let ServerOptions { store, kinds, features, shutdown, metrics, faults, .. } = setup;
    let kinds: Vec<_> = kinds.iter().copied().filter(|kind| (kind.enabled)(features)).collect();
    let caches = Arc::new(ResourceCaches::new(&kinds));
    caches.attach(&store).await?;
    register_cache_metrics(&metrics, &caches, kinds.clone());
    let flow = FlowController::new(setup.flow, faults.clone());
    flow.register_metrics(&metrics);
    setup.audit.register_metrics(&metrics);
    let registry = KindRegistry::new(&kinds);
    let authorizer = Authorizer::new(&caches, &registry, features, faults.clone());
    let revocations = RevocationChecker::new(&caches);
    let server = Arc::new(Server {
        store,
        caches,
        revocations,
        exclusive_creates: tokio::sync::Mutex::new(()),
        documents: OpenApiDocuments::new(&registry),
        registry,
        authenticator: setup.authenticator,
        authorizer,
        flow,
        offload: OffloadPool::new(std::thread::available_parallelism().map_or(1, usize::from)),
        plugins: setup.plugins,
        audit: setup.audit,
        faults,
        metrics: ServerMetrics::register(metrics),
        clock: setup.clock,
        tokens: setup.tokens,
        features,
        policy: crate::policy::DefaultPolicy::default(),
        min_request_timeout: setup.min_request_timeout,
        shutting_down: setup.shutting_down,
        shutdown,
    });
    create_namespaces(&server).await;
    crate::policy::establish(&server).await;
    tokio::spawn(crate::expiry::run(server.clone(), server.shutdown.clone()));
    tokio::spawn(wake_watches_on_shutdown(server.clone()));
    tokio::spawn(end_watches_on_revocation(server.clone()));
    Ok(server)
}

/// Wakes watches at shutdown, because they wait for changes only.
async fn wake_watches_on_shutdown(server: Arc<Server>) {
    let mut shutdown = server.shutdown.clone();
    // An error means that the sender is gone, which is a shutdown as well.
    let _ = shutdown.wait_for(|down| *down).await;
    server.caches.wake_watchers();
}

/// Namespaces of every Kubernetes cluster.
const NAMESPACES: &[&str] = &["default", "kube-node-lease", "kube-public", "kube-system"];

/// Creates the missing system namespaces.
pub(crate) async fn create_namespaces(server: &Arc<Server>) {
    let Ok(cache) = server.core("namespaces") else { return };
    for name in NAMESPACES.iter().filter(|name| cache.get(name).is_none()) {
        let body =
            format!("{{\"apiVersion\":\"v1\",\"kind\":\"Namespace\",\"metadata\":{{\"name\":\"{name}\"}}}}");
        let request =
            Request::post("/api/v1/namespaces").header(USER_AGENT, "windlass").body(Full::from(body));
        let Ok(request) = request else { continue };
        let owner = User::authenticated("system:apiserver", "", vec![MASTERS.into()]);
        let response = LocalClient::new(server.clone(), owner).oneshot(request).await;
        if let Ok(response) = response
            && !response.status().is_success()
        {
            tracing::error!(name, code = response.status().as_u16(), "system namespace not created");
        }
    }
}
