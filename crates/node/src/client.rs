//! API client that authenticates as the node, with the certificate that is current at each
//! handshake.
//!
//! A new certificate comes with new connections. New requests use them at once; requests on old
//! connections may complete for a grace period, after which these are closed.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::config::AuthInfo;
use kube::{Client, Config};
use rustls::client::Resumption;
use tokio::sync::watch;
use tower::{BoxError, Service};
use windlass_runtime::client_error::name_server;

use crate::credential_monitor::CredentialMonitor;
use crate::key_pair::CertificateKeyPair;
use crate::tls_resolver::{CurrentKeyPair, TlsCertResolver, is_same_key_pair};

/// How long requests with an old certificate may continue. Watches are restarted after that.
const GRACE: Duration = Duration::from_secs(10);
/// Time limit of connecting, including the TLS handshake.
const CONNECT: Duration = Duration::from_secs(15);
/// How soon a dead connection is detected.
const SILENCE: Duration = Duration::from_secs(30);

/// Creates a client for the server of `config` with the current certificate and no other
/// credential. The monitor learns from every response whether the certificate is accepted.
pub fn connect(
    config: &Config,
    current: CurrentKeyPair,
    monitor: Arc<CredentialMonitor>,
) -> kube::Result<Client> {
    let mut config = config.clone();
    config.auth_info = AuthInfo::default();
    let pools = ConnectionPools::new(connector(&config, current.clone())?, current);
    let service = ClientService { pools: Arc::new(pools), monitor };
    tokio::spawn(watch_certificate(Arc::downgrade(&service.pools)));
    let builder = ClientBuilder::new(service, config.default_namespace.clone());
    let builder = name_server(builder, &config.cluster_url);
    Ok(builder.with_layer(&config.base_uri_layer()).build())
}

type Connector = TimeoutConnector<HttpsConnector<HttpConnector>>;
type HttpClient = legacy::Client<Connector, Body>;

fn connector(config: &Config, current: CurrentKeyPair) -> kube::Result<Connector> {
    let mut tls = config.rustls_client_config()?;
    tls.client_auth_cert_resolver = TlsCertResolver::new(current);
    // A resumed session would keep the certificate it started with.
    tls.resumption = Resumption::disabled();
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(SILENCE / 2));
    tcp.set_keepalive_interval(Some(SILENCE / 6));
    tcp.set_keepalive_retries(Some(3));
    tcp.set_tcp_user_timeout(Some(SILENCE));
    let mut https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = name.clone().try_into().map_err(|error| kube::Error::Service(Box::new(error)))?;
        https = https.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let mut connector = TimeoutConnector::new(https.enable_http1().wrap_connector(tcp));
    connector.set_connect_timeout(Some(CONNECT));
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    Ok(connector)
}

/// Connections that use the current certificate.
struct ConnectionPools {
    connector: Connector,
    current: CurrentKeyPair,
    pool: Mutex<ConnectionPool>,
}

struct ConnectionPool {
    identity: Option<Arc<CertificateKeyPair>>,
    http: HttpClient,
    /// Dropping it closes the connections of this pool.
    _hold: watch::Sender<()>,
}

impl ConnectionPools {
    fn new(connector: Connector, current: CurrentKeyPair) -> Self {
        let identity = current.borrow().clone();
        let pool = Mutex::new(ConnectionPool::new(&connector, identity));
        Self { connector, current, pool }
    }

    /// Returns a client whose connections use the current certificate, and that certificate.
    fn http(&self) -> (HttpClient, Option<Arc<CertificateKeyPair>>) {
        let identity = self.current.borrow().clone();
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_same_key_pair(pool.identity.as_ref(), identity.as_ref()) {
            let old = std::mem::replace(&mut *pool, ConnectionPool::new(&self.connector, identity));
            tokio::spawn(async move {
                let ConnectionPool { http, _hold, .. } = old;
                // This closes idle connections.
                drop(http);
                tokio::time::sleep(GRACE).await;
            });
        }
        (pool.http.clone(), pool.identity.clone())
    }
}

impl ConnectionPool {
    fn new(connector: &Connector, identity: Option<Arc<CertificateKeyPair>>) -> Self {
        let (hold, held) = watch::channel(());
        let http = legacy::Client::builder(ConnectionExecutor { held }).build(connector.clone());
        Self { identity, http, _hold: hold }
    }
}

/// Replaces the connections as soon as the certificate changes, even without requests.
async fn watch_certificate(pools: std::sync::Weak<ConnectionPools>) {
    let Some(mut current) = pools.upgrade().map(|pools| pools.current.clone()) else { return };
    while current.changed().await.is_ok() {
        let Some(pools) = pools.upgrade() else { return };
        drop(pools.http());
    }
}

/// Runs connections until their pool is dropped.
#[derive(Clone)]
struct ConnectionExecutor {
    held: watch::Receiver<()>,
}

type ConnectionTask = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Executor<ConnectionTask> for ConnectionExecutor {
    fn execute(&self, task: ConnectionTask) {
        let mut held = self.held.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = task => {}
                // Nothing is ever sent; this resolves when the sender is dropped.
                _ = held.changed() => {}
            }
        });
    }
}

struct ClientService {
    pools: Arc<ConnectionPools>,
    monitor: Arc<CredentialMonitor>,
}

impl Service<Request<Body>> for ClientService {
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (http, identity) = self.pools.http();
        let (monitor, current) = (self.monitor.clone(), self.pools.current.clone());
        async move {
            let response = http.request(request).await?;
            // A response to an earlier certificate says nothing about the current one.
            if let Some(identity) = identity
                && is_same_key_pair(Some(&identity), current.borrow().as_ref())
            {
                monitor.observe(&identity, response.status());
            }
            Ok(response)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests;
