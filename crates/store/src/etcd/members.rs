//! The members of a cluster, and verified connections to them.
//!
//! After connecting, the cluster ID is checked before a connection is used, and a closed connection
//! is not reestablished transparently. So nothing is ever written to another cluster that has
//! replaced this one. Certificates are read for every connection, so rotated ones are found.

use std::error::Error as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::join_all;
use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use tokio::sync::Notify;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Status};
use tower::ServiceExt as _;

use super::client::{CallFailure, append_causes, unary};
use super::keys::KeySpace;
use super::version::has_reliable_progress;
use super::wire::{self, RangeRequest, RangeResponse, StatusRequest, StatusResponse};
use super::{EtcdTlsFiles, Options};
use crate::Error;
use crate::fatal_latch::FatalLatch;

/// Ping interval. etcd closes connections whose pings come more often than every five seconds, or
/// come without a call or stream.
const PING: Duration = Duration::from_secs(6);

/// How long an unresponsive member is used only if all others are unresponsive too. An election
/// among the others is over by then, and until then they reject calls immediately.
const SHUN: Duration = Duration::from_secs(10);

/// Purpose of a connection. Streams have separate connections, so that their traffic and closing do
/// not affect calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionPurpose {
    Calls,
    Streams,
}

pub(super) struct MemberConnection {
    pub(super) channel: Channel,
    /// Client URL of the member, one of the configured endpoints.
    pub(super) url: String,
    /// Whether the member reports the progress of a stream correctly.
    pub(super) true_progress: bool,
    at: usize,
    purpose: ConnectionPurpose,
}

struct ClusterMember {
    url: String,
    /// ID of the cluster it was last found in; 0 if unknown.
    cluster: AtomicU64,
    /// Time at which it last was unresponsive.
    silent: Mutex<Option<Instant>>,
    calls: ConnectionSlot,
    streams: ConnectionSlot,
}

/// Holds the connection in use.
#[derive(Default)]
struct ConnectionSlot {
    link: Mutex<Option<Arc<MemberConnection>>>,
    connecting: tokio::sync::Mutex<()>,
}

pub(super) struct ClusterMembers {
    list: Vec<ClusterMember>,
    calls: AtomicUsize,
    streams: AtomicUsize,
    /// ID of the store's cluster: that of the first member that answered.
    cluster: OnceLock<u64>,
    name: PathBuf,
    attempt: Duration,
    /// Notifies the owner of the watch stream that a member has stopped responding.
    pub(super) silenced: Notify,
    /// A key that this client may read.
    key: Bytes,
    tls: Option<EtcdTlsFiles>,
    /// Last valid contents of the TLS files.
    last_good: Mutex<Option<ClientTlsConfig>>,
    latch: FatalLatch,
}

impl ClusterMembers {
    /// Parses the addresses and reads the files; connections are opened on first use.
    pub(super) fn new(options: &Options, name: PathBuf, fuse: FatalLatch) -> Result<Self, Error> {
        if options.endpoints.is_empty() {
            return Err(Error::Refused { path: name, what: "has no endpoints".to_owned() });
        }
        let member = |url: &String| ClusterMember {
            url: url.clone(),
            cluster: AtomicU64::new(0),
            silent: Mutex::new(None),
            calls: ConnectionSlot::default(),
            streams: ConnectionSlot::default(),
        };
        let members = Self {
            list: options.endpoints.iter().map(member).collect(),
            calls: AtomicUsize::new(0),
            streams: AtomicUsize::new(0),
            cluster: OnceLock::new(),
            name,
            attempt: options.attempt,
            silenced: Notify::new(),
            key: KeySpace::with_prefix(&options.prefix).meta_key(),
            tls: options.tls.clone(),
            last_good: Mutex::new(None),
            latch: fuse,
        };
        let tls = members.tls_config()?;
        for url in &options.endpoints {
            members.endpoint(url, tls.clone())?;
        }
        *members.last_good.lock().unwrap_or_else(PoisonError::into_inner) = tls;
        Ok(members)
    }

    /// Asks all members concurrently for their cluster ID; fails if they do not agree.
    ///
    /// Members that do not answer now are checked when they do.
    pub(super) async fn verify(&self) -> Result<(), Error> {
        let ask = |at| async move {
            let _ =
                tokio::time::timeout(self.attempt, self.connection_to(at, ConnectionPurpose::Calls)).await;
        };
        join_all((0..self.list.len()).map(ask)).await;
        let found = |member: &ClusterMember| {
            let cluster = member.cluster.load(Ordering::Acquire);
            (cluster != 0).then(|| (cluster, member.url.clone()))
        };
        let found: Vec<_> = self.list.iter().filter_map(found).collect();
        let agree = found.iter().all(|(cluster, _)| Some(cluster) == self.cluster.get());
        if agree {
            return Ok(());
        }
        let each: Vec<_> = found.iter().map(|(id, url)| format!("{url} is in {id:x}")).collect();
        let what = format!("has endpoints of different clusters: {}", each.join(", "));
        Err(Error::Refused { path: self.name.clone(), what })
    }

    /// Returns the ID of the store's cluster; the first call sets it.
    pub(super) fn cluster(&self, answered: u64) -> u64 {
        *self.cluster.get_or_init(|| answered)
    }

    /// Returns a connection to the current member; opens one if needed.
    pub(super) async fn connection(
        &self,
        purpose: ConnectionPurpose,
    ) -> Result<Arc<MemberConnection>, CallFailure> {
        let at = self.current_index(purpose).load(Ordering::Relaxed);
        let linked = tokio::time::timeout(self.attempt, self.connection_to(at, purpose)).await;
        let linked = linked.unwrap_or_else(|_| {
            self.avoid(at);
            let what = format!("{}: connecting timed out", self.member(at).url);
            Err(CallFailure::NotApplied(self.unavailable(what)))
        });
        if linked.is_err() {
            self.advance_turn(purpose, at);
        }
        linked
    }

    /// Switches to the next member, and drops a connection that is no longer usable.
    pub(super) fn abandon(&self, link: &Arc<MemberConnection>, broken: bool) {
        if broken {
            let slot = self.member(link.at).slot(link.purpose);
            let mut kept = slot.link.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, link)) {
                *kept = None;
            }
        }
        self.advance_turn(link.purpose, link.at);
    }

    /// Probes a member; returns once it does not respond, and never if it does.
    ///
    /// A member that has no leader, or still believes in a dead one, lets calls wait, but answers
    /// this probe.
    pub(super) async fn mark_silent(&self, link: &MemberConnection) {
        let asked = unary::<_, StatusResponse>(&link.channel, wire::STATUS, StatusRequest {}, false);
        if tokio::time::timeout(self.attempt / 2, asked).await.is_ok() {
            std::future::pending::<()>().await;
        }
        self.avoid(link.at);
    }

    /// Returns true if the connection's member was unresponsive recently.
    pub(super) fn is_avoided(&self, link: &MemberConnection) -> bool {
        self.member(link.at).is_avoided()
    }

    fn avoid(&self, at: usize) {
        let member = self.member(at);
        *member.silent.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        tracing::debug!(url = %member.url, "etcd member does not respond");
        self.silenced.notify_one();
    }

    /// Of many callers that reject the same member, only the first advances the turn.
    fn advance_turn(&self, purpose: ConnectionPurpose, at: usize) {
        let turn = self.current_index(purpose);
        let now = turn.load(Ordering::Relaxed);
        if now % self.list.len() == at % self.list.len() {
            let others = (1..self.list.len()).map(|step| now.wrapping_add(step));
            let mut heard = others.filter(|at| !self.member(*at).is_avoided());
            let next = heard.next().unwrap_or_else(|| now.wrapping_add(1));
            let _ = turn.compare_exchange(now, next, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    fn current_index(&self, purpose: ConnectionPurpose) -> &AtomicUsize {
        match purpose {
            ConnectionPurpose::Calls => &self.calls,
            ConnectionPurpose::Streams => &self.streams,
        }
    }

    #[expect(clippy::indexing_slicing, reason = "`new` refuses to have no members")]
    fn member(&self, at: usize) -> &ClusterMember {
        &self.list[at % self.list.len()]
    }

    async fn connection_to(
        &self,
        at: usize,
        purpose: ConnectionPurpose,
    ) -> Result<Arc<MemberConnection>, CallFailure> {
        let slot = self.member(at).slot(purpose);
        if let Some(link) = slot.current() {
            return Ok(link);
        }
        let _one = slot.connecting.lock().await;
        if let Some(link) = slot.current() {
            return Ok(link);
        }
        let link = Arc::new(self.connect(at, purpose).await?);
        *slot.link.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&link));
        Ok(link)
    }

    async fn connect(&self, at: usize, purpose: ConnectionPurpose) -> Result<MemberConnection, CallFailure> {
        let member = self.member(at);
        let url = member.url.clone();
        let refused =
            |what: String| CallFailure::NotApplied(self.unavailable(format!("{}: {what}", member.url)));
        let endpoint = self.fresh_endpoint(&url).map_err(CallFailure::NotApplied)?;
        let channel = endpoint
            .connect_with_connector(single_use(self.attempt))
            .await
            .map_err(|error| refused(append_causes(error.to_string(), &error)))?;
        let (cluster, version) = self.identify(&channel).await.map_err(|status| {
            let hint = if status.source().is_some() { self.hint(&url) } else { "" };
            refused(append_causes(status.message().to_owned(), &status) + hint)
        })?;
        self.admit(member, cluster)?;
        let true_progress = has_reliable_progress(&version);
        tracing::debug!(%url, %version, ?purpose, "connected to etcd");
        Ok(MemberConnection { channel, url, true_progress, at, purpose })
    }

    /// Returns a hint for a connection that closes immediately. In TLS 1.3 a client learns only
    /// after the handshake that its certificate was rejected, and the transport does not report
    /// why.
    fn hint(&self, url: &str) -> &'static str {
        match &self.tls {
            Some(EtcdTlsFiles { identity: None, .. }) if url.starts_with("https:") => {
                "; it may require a client certificate, and none is configured"
            }
            Some(_) if url.starts_with("https:") => "; it may reject the client certificate",
            _ => "",
        }
    }

    /// Returns cluster ID and version of the member. Works without the version if the client may
    /// not request it.
    async fn identify(&self, channel: &Channel) -> Result<(u64, String), Status> {
        let asked: Result<StatusResponse, _> = unary(channel, wire::STATUS, StatusRequest {}, false).await;
        match asked {
            Ok(status) => Ok((status.header.unwrap_or_default().cluster_id, status.version)),
            Err(status) if matches!(status.code(), Code::PermissionDenied | Code::Unauthenticated) => {
                let request = RangeRequest {
                    key: self.key.clone(),
                    serializable: true,
                    count_only: true,
                    ..RangeRequest::default()
                };
                let answer: RangeResponse = unary(channel, wire::RANGE, request, false).await?;
                Ok((answer.header.unwrap_or_default().cluster_id, String::new()))
            }
            Err(status) => Err(status),
        }
    }

    /// Admits a member if it is in the right cluster. The store fails when no member is.
    fn admit(&self, member: &ClusterMember, found: u64) -> Result<(), CallFailure> {
        let expected = self.cluster(found);
        let before = member.cluster.swap(found, Ordering::AcqRel);
        if found == expected {
            return Ok(());
        }
        let what =
            format!("{} answers as cluster {found:x}, but this store is in cluster {expected:x}", member.url);
        let foreign = |member: &ClusterMember| {
            let cluster = member.cluster.load(Ordering::Acquire);
            cluster != 0 && cluster != expected
        };
        if self.list.iter().all(foreign) {
            let error = Error::Failed { what };
            self.latch.trip(&error);
            return Err(CallFailure::Final(error));
        }
        if before != found {
            tracing::error!("{what}; ignoring this member");
        }
        Err(CallFailure::NotApplied(self.unavailable(what)))
    }

    fn unavailable(&self, what: String) -> Error {
        Error::Unavailable { path: self.name.clone(), what }
    }

    /// Builds the endpoint with the current TLS files; if they are invalid, with their last valid
    /// contents.
    fn fresh_endpoint(&self, url: &str) -> Result<Endpoint, Error> {
        let fresh = self.tls_config().and_then(|tls| Ok((self.endpoint(url, tls.clone())?, tls)));
        let mut last_good = self.last_good.lock().unwrap_or_else(PoisonError::into_inner);
        match fresh {
            Ok((endpoint, tls)) => {
                *last_good = tls;
                Ok(endpoint)
            }
            Err(error) => {
                tracing::warn!(%error, "cannot reload the etcd client certificate; connecting with the previous one");
                self.endpoint(url, last_good.clone())
            }
        }
    }

    fn endpoint(&self, url: &str, tls: Option<ClientTlsConfig>) -> Result<Endpoint, Error> {
        let refuse = |what: String| Error::Refused { path: self.name.clone(), what };
        let endpoint = Endpoint::from_shared(url.to_owned())
            .map_err(|error| refuse(format!("has an invalid endpoint {url}: {error}")))?
            .connect_timeout(self.attempt)
            .http2_keep_alive_interval(PING)
            .keep_alive_timeout(self.attempt)
            .keep_alive_while_idle(false)
            .initial_connection_window_size(8 << 20)
            .initial_stream_window_size(4 << 20);
        match tls {
            Some(tls) if url.starts_with("https:") => endpoint.tls_config(tls).map_err(|error| {
                let what = append_causes(error.to_string(), &error);
                refuse(format!("cannot use the certificates for {url}: {what}"))
            }),
            _ => Ok(endpoint),
        }
    }

    fn tls_config(&self) -> Result<Option<ClientTlsConfig>, Error> {
        let Some(tls) = &self.tls else { return Ok(None) };
        let read = |path: &PathBuf| {
            std::fs::read(path)
                .map_err(|error| Error::Unavailable { path: path.clone(), what: error.to_string() })
        };
        let mut config = ClientTlsConfig::new();
        if let Some(ca) = &tls.ca {
            config = config.ca_certificate(Certificate::from_pem(read(ca)?));
        }
        if let Some((cert, key)) = &tls.identity {
            config = config.identity(Identity::from_pem(read(cert)?, read(key)?));
        }
        Ok(Some(config))
    }
}

impl ClusterMember {
    fn is_avoided(&self) -> bool {
        let silent = *self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        silent.is_some_and(|since| since.elapsed() < SHUN)
    }

    fn slot(&self, purpose: ConnectionPurpose) -> &ConnectionSlot {
        match purpose {
            ConnectionPurpose::Calls => &self.calls,
            ConnectionPurpose::Streams => &self.streams,
        }
    }
}

impl ConnectionSlot {
    fn current(&self) -> Option<Arc<MemberConnection>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Connects once. By default a channel reconnects when its connection has ended, without verifying
/// the peer.
fn single_use(
    limit: Duration,
) -> impl tower::Service<
    Uri,
    Response = <HttpConnector as tower::Service<Uri>>::Response,
    Error = Box<dyn std::error::Error + Send + Sync>,
    Future: Send,
> + Send {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(limit));
    let mut unused = Some(http);
    tower::service_fn(move |uri: Uri| {
        let http = unused.take();
        async move {
            match http {
                Some(http) => Ok(http.oneshot(uri).await?),
                None => Err("the connection has ended".into()),
            }
        }
    })
}
