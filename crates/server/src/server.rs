//! The server's state, shared by all requests.

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
use crate::chain::authz::Authorizer;
use crate::chain::flow_control::{self, FlowController};
use crate::error::Error;
use crate::fault_injection::FaultInjection;
use crate::feature_gates::ServerFeatureGates;
use crate::limits;
use crate::local_client::LocalClient;
use crate::metrics::{MetricsSource, ServerMetrics, register_cache_metrics};
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
    /// Where they are read from.
    pub caches: Arc<ResourceCaches>,
    /// Kinds that this server serves, given its feature gates.
    pub registry: KindRegistry,
    /// Authenticates every request before anything else is decided.
    pub authenticator: Authenticator,
    /// Decides which requests authenticated users may make.
    pub authorizer: Authorizer,
    /// When they may do it.
    pub flow: FlowController,
    /// Where the work on large objects is done.
    pub offload: OffloadPool,
    /// Which rules on writes are on.
    pub plugins: AdmissionPlugins,
    /// Where it is written down.
    pub audit: AuditLog,
    /// Which checks fail, in tests.
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
    /// Whether the default policy is in place.
    pub policy: crate::policy::DefaultPolicy,
    /// The least time that a watch stays open unless it asks for less, and half of the longest.
    pub min_request_timeout: Duration,
    /// Turns true when the server is about to go down; it is not ready then, but answers as before.
    pub shutting_down: watch::Receiver<bool>,
    /// Turns true when the server goes down; watches end then.
    pub shutdown: watch::Receiver<bool>,
}

impl Server {
    /// Makes sure that the caches show every write that anyone was acknowledged before the call.
    pub async fn catch_up(&self) -> Result<(), Error> {
        // Without other writers, they always do.
        if !self.store.is_shared() {
            return Ok(());
        }
        // After a long outage nobody waits: that would be in vain, and occupy seats.
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

    /// Whether it goes down, now or soon.
    pub fn is_shutting_down(&self) -> bool {
        *self.shutting_down.borrow() || *self.shutdown.borrow()
    }

    /// The cache of a core kind that a check looks into. That there is none is a failure of the check, not
    /// the absence of an object.
    pub fn core(&self, plural: &str) -> Result<&Arc<KindCache>, Error> {
        let kind = self.registry.by_path("", "v1", plural);
        let cache = kind.and_then(|(kind, _)| self.caches.for_kind(kind));
        cache.ok_or_else(|| Error::Internal(format!("{plural} are not served")))
    }

    /// The object of a core kind under `key` (`namespace/name`, or `name` at cluster scope).
    pub fn core_object(&self, plural: &str, key: &str) -> Result<Option<Value>, Error> {
        Ok(self.core(plural)?.get(key).map(|object| object.stored_value()))
    }
}

/// Reads the time; an argument so that tests can set it.
pub type Clock = Arc<dyn Fn() -> OffsetDateTime + Send + Sync>;

/// Returns the clock of the operating system, in UTC.
pub fn system_clock() -> Clock {
    Arc::new(OffsetDateTime::now_utc)
}

/// What a server is made of.
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
    /// Turns true when the server is about to go down.
    pub shutting_down: watch::Receiver<bool>,
    /// Turns true when the server goes down.
    pub shutdown: watch::Receiver<bool>,
    /// Registry that the metrics of the server and of the process are added to, and that `/metrics` serves. Use one
    /// registry per server.
    pub metrics: MetricsRegistry,
    /// Metrics of other parts of the process, served after those of the registry.
    pub metrics_sources: Vec<MetricsSource>,
    /// How many requests are worked on at a time.
    pub flow: flow_control::InflightLimits,
    /// The least time that a watch stays open unless it asks for less, and half of the longest.
    pub min_request_timeout: Duration,
    /// Which rules on writes are on.
    pub plugins: AdmissionPlugins,
    /// Where requests are written down.
    pub audit: AuditLog,
    /// Which checks fail, in tests.
    pub faults: FaultInjection,
}

impl ServerOptions {
    /// Everything that can be served, on `store`, for nobody yet.
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
            metrics_sources: Vec::new(),
            flow: flow_control::InflightLimits::default(),
            min_request_timeout: limits::MIN_REQUEST_TIMEOUT,
            plugins: AdmissionPlugins::default(),
            audit: AuditLog::default(),
            faults: FaultInjection::default(),
        }
    }
}

/// Makes a server that is ready to answer: its caches are filled, and the namespaces that parts
/// of the system live in exist, and so do the default roles.
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
    let server = Arc::new(Server {
        store,
        caches,
        documents: OpenApiDocuments::new(&registry),
        registry,
        authenticator: setup.authenticator,
        authorizer,
        flow,
        offload: OffloadPool::new(std::thread::available_parallelism().map_or(1, usize::from)),
        plugins: setup.plugins,
        audit: setup.audit,
        faults,
        metrics: ServerMetrics::register(metrics, setup.metrics_sources),
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
    Ok(server)
}

/// Watches wait for changes only; this makes them look up when the server goes down.
async fn wake_watches_on_shutdown(server: Arc<Server>) {
    let mut shutdown = server.shutdown.clone();
    // An error means that whoever could shut down is gone: that is the end as well.
    let _ = shutdown.wait_for(|down| *down).await;
    server.caches.wake_watchers();
}

/// The namespaces every Kubernetes has.
const NAMESPACES: &[&str] = &["default", "kube-node-lease", "kube-public", "kube-system"];

/// Makes those that are missing.
pub(crate) async fn create_namespaces(server: &Arc<Server>) {
    let Ok(cache) = server.core("namespaces") else { return };
    for name in NAMESPACES.iter().filter(|name| cache.get(name).is_none()) {
        let body = format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"Namespace\",\"metadata\":{{\"name\":\"{name}\"}}}}"
        );
        let request = Request::post("/api/v1/namespaces")
            .header(USER_AGENT, "windlass")
            .body(Full::from(body));
        let Ok(request) = request else { continue };
        let owner = User::authenticated("system:apiserver", "", vec![MASTERS.into()]);
        let response = LocalClient::new(server.clone(), owner).oneshot(request).await;
        if let Ok(response) = response
            && !response.status().is_success()
        {
            tracing::error!(
                name,
                code = response.status().as_u16(),
                "system namespace not created"
            );
        }
    }
}
