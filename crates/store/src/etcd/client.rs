//! Calls to an etcd cluster: which member, how long, what a refusal means.

use std::error::Error as _;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use http::uri::PathAndQuery;
use prost::Message;
use tokio::runtime::Handle;
use tonic::client::Grpc;

use tonic::metadata::MetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Status, Streaming};
use tonic_prost::ProstCodec;

use super::keys::Keys;
use super::wire::{
    self, CompactionRequest, CompactionResponse, Header, KeyValue, RangeRequest, RangeResponse,
    TxnRequest, TxnResponse, WatchRequest, WatchResponse,
};
use super::{Options, Tls};
use crate::Error;
use crate::embedded::Fuse;

/// The pause between attempts on one call.
const PAUSE: Duration = Duration::from_millis(50);
/// etcd ends connections whose pings come more often than every five seconds.
const PING: Duration = Duration::from_secs(6);

/// How long a stream that was dropped may take to end.
const DRAIN: Duration = Duration::from_secs(10);

/// Why a call failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The revision asked for has been compacted.
    Compacted,
    /// The revision asked for has not happened.
    Future,
    /// Nothing was done, and another member or a moment's wait may help.
    NotDone(Error),
    /// Whether anything was done is open.
    Open(Error),
    /// Asking again will not help.
    Final(Error),
}

impl Failure {
    /// The error for a caller who did not ask for a revision.
    pub(super) fn into_error(self, name: &std::path::Path) -> Error {
        match self {
            Self::Compacted | Self::Future => Error::Unavailable {
                path: name.to_owned(),
                what: "the revision read from is out of reach".to_owned(),
            },
            Self::NotDone(error) | Self::Open(error) | Self::Final(error) => error,
        }
    }
}

/// The connections to one member. Streams have their own, so that what they carry, and how they
/// end, does not touch the calls.
struct Member {
    calls: Channel,
    streams: Channel,
}

/// A stream of answers that is cancelled when it is dropped.
pub(super) struct Stream {
    /// Both are there until the stream is dropped.
    open: Option<(UnboundedSender<WatchRequest>, Streaming<WatchResponse>)>,
}

impl Stream {
    /// The next answer; may be dropped while it waits.
    pub(super) async fn message(&mut self) -> Result<Option<WatchResponse>, Status> {
        match &mut self.open {
            Some((_, answers)) => answers.message().await,
            None => Ok(None),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let Some((requests, mut answers)) = self.open.take() else { return };
        // The end of the requests makes etcd end the answers. What it sends until then has to be
        // read: HTTP/2 counts unread frames against the connection, and closes it at some point.
        drop(requests);
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(tokio::time::timeout(DRAIN, async move {
                while let Ok(Some(_)) = answers.message().await {}
            }));
        }
    }
}

/// A cluster, through one of its members at a time.
pub(super) struct Client {
    members: Vec<Member>,
    current: AtomicUsize,
    /// How the cluster is called in errors.
    pub(super) name: PathBuf,
    /// How long one attempt may take, so that another member gets its turn.
    pub(super) attempt: Duration,
    /// How long a call may take with all its attempts.
    pub(super) patience: Duration,
    cluster: OnceLock<u64>,
    fuse: Fuse,
}

impl Client {
    /// Prepares connections; they are made when they are first used, on the current runtime.
    pub(super) fn new(options: &Options, name: PathBuf, fuse: Fuse) -> Result<Self, Error> {
        let refuse = |what: String| Error::Refused { path: name.clone(), what };
        if options.endpoints.is_empty() {
            return Err(refuse("has no endpoints".to_owned()));
        }
        let tls = options.tls.as_ref().map(tls_config).transpose()?;
        let mut members = Vec::new();
        for url in &options.endpoints {
            let member = Endpoint::from_shared(url.clone())
                .and_then(|endpoint| match &tls {
                    Some(tls) if url.starts_with("https:") => endpoint.tls_config(tls.clone()),
                    _ => Ok(endpoint),
                })
                .map_err(|error| refuse(format!("has a bad endpoint {url}: {error}")))?
                .connect_timeout(options.attempt)
                .tcp_nodelay(true)
                .http2_keep_alive_interval(PING)
                .keep_alive_timeout(options.attempt)
                .keep_alive_while_idle(true)
                .initial_connection_window_size(8 << 20)
                .initial_stream_window_size(4 << 20);
            members.push(Member { calls: member.connect_lazy(), streams: member.connect_lazy() });
        }
        Ok(Self {
            members,
            current: AtomicUsize::new(0),
            name,
            attempt: options.attempt,
            patience: options.patience,
            cluster: OnceLock::new(),
            fuse,
        })
    }

    pub(super) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, Failure> {
        let answer: RangeResponse = self.ask(wire::RANGE, request).await?;
        self.check(answer.header)?;
        Ok(answer)
    }

    pub(super) async fn compact(&self, revision: i64) -> Result<(), Failure> {
        let request = CompactionRequest { revision };
        let answer: CompactionResponse = self.ask(wire::COMPACT, request).await?;
        self.check(answer.header)?;
        Ok(())
    }

    /// A transaction, sent again only when it certainly was not carried out.
    ///
    /// One that was on its way to a leader that died is answered by etcd after more than five
    /// seconds. Nobody can say sooner what became of it, but whoever waits can be told that.
    pub(super) async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, Failure> {
        let begun = Instant::now();
        loop {
            match self.try_once(wire::TXN, request.clone(), self.attempt).await {
                Err(Failure::NotDone(_)) if begun.elapsed() < self.patience => {
                    tokio::time::sleep(PAUSE).await;
                }
                Err(failure) => return Err(failure),
                Ok(answer) => {
                    let answer: TxnResponse = answer;
                    self.check(answer.header)?;
                    return Ok(answer);
                }
            }
        }
    }

    /// The newest revision of the cluster; a read that a quorum confirms.
    pub(super) async fn revision(&self, key: Bytes) -> Result<i64, Failure> {
        let request = RangeRequest { key, count_only: true, ..RangeRequest::default() };
        let answer = self.range(request).await?;
        self.check(answer.header)
    }

    /// The newest revision of the cluster and the mark of a store, confirmed by a quorum.
    pub(super) async fn mark(&self, keys: &Keys) -> Result<(i64, Option<KeyValue>), Failure> {
        let request = RangeRequest { key: keys.mark(), ..RangeRequest::default() };
        let answer = self.range(request).await?;
        Ok((self.check(answer.header)?, answer.kvs.into_iter().next()))
    }

    /// Opens a stream of changes; it ends by itself when its member loses the leader.
    pub(super) async fn watch(&self, order: wire::WatchCreateRequest) -> Result<Stream, Failure> {
        let create = WatchRequest { order: Some(wire::WatchOrder::Create(order)) };
        // The stream of requests must stay open for as long as answers are wanted.
        let (sender, requests) = unbounded();
        let _ = sender.unbounded_send(create);
        let call = async {
            let mut grpc = grpc(&self.member().streams);
            grpc.ready().await.map_err(|error| self.not_done(&error.to_string()))?;
            let mut request = tonic::Request::new(requests);
            require_leader(request.metadata_mut());
            let path = PathAndQuery::from_static(wire::WATCH);
            let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
            let answer = grpc.streaming(request, path, codec).await;
            answer.map_err(|status| self.explain(&status))
        };
        let answer = match tokio::time::timeout(self.attempt, call).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::Open(self.unavailable("no answer in time"))),
        };
        match answer {
            Ok(answers) => Ok(Stream { open: Some((sender, answers.into_inner())) }),
            Err(failure) => {
                self.next_member();
                Err(failure)
            }
        }
    }

    /// Checks that an answer comes from the cluster this store began with; returns its revision.
    pub(super) fn check(&self, header: Option<Header>) -> Result<i64, Failure> {
        let header = header.unwrap_or_default();
        let expected = *self.cluster.get_or_init(|| header.cluster_id);
        if header.cluster_id != expected {
            let what = format!(
                "{} answers as cluster {:x}, but this store is in cluster {expected:x}",
                self.name.display(),
                header.cluster_id
            );
            return Err(Failure::Final(self.fail(what)));
        }
        Ok(header.revision)
    }

    /// Fails the store for good.
    pub(super) fn fail(&self, what: String) -> Error {
        let error = Error::Failed { what };
        self.fuse.blow(&error);
        error
    }

    /// Fails the store because its mark is not the one it was opened with: every revision that it
    /// told from now on would be wrong.
    pub(super) fn recounted(&self) -> Error {
        self.fail(format!("the revisions of {} were changed", self.name.display()))
    }

    /// The cluster that answered first, which all others must be.
    pub(super) fn cluster(&self) -> u64 {
        self.cluster.get().copied().unwrap_or_default()
    }

    /// Turns to another member for the next call.
    pub(super) fn next_member(&self) {
        self.current.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn unavailable(&self, what: &str) -> Error {
        Error::Unavailable { path: self.name.clone(), what: what.to_owned() }
    }

    /// Translates what etcd or the transport said.
    pub(super) fn explain(&self, status: &Status) -> Failure {
        let text = status.message();
        let path = self.name.clone();
        if text.contains("has been compacted") {
            return Failure::Compacted;
        }
        if text.contains("is a future revision") {
            return Failure::Future;
        }
        if text.contains("database space exceeded") {
            return Failure::Final(Error::Full { path });
        }
        // Above its own limit etcd refuses; far above, its transport does.
        if text.contains("request is too large") || text.contains("message larger than max") {
            return Failure::Final(Error::Refused { path, what: format!("refused: {text}") });
        }
        // etcd says these before it proposes anything to its peers.
        if text.contains("too many requests") || text.ends_with("no leader") || unsent(status) {
            return Failure::NotDone(self.unavailable(&describe(status)));
        }
        match status.code() {
            Code::InvalidArgument
            | Code::Unauthenticated
            | Code::PermissionDenied
            | Code::Unimplemented => Failure::Final(self.unavailable(&describe(status))),
            _ => Failure::Open(self.unavailable(&describe(status))),
        }
    }

    /// A call that may be made more than once.
    async fn ask<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Failure>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let begun = Instant::now();
        loop {
            match self.try_once(path, request.clone(), self.attempt).await {
                Err(Failure::NotDone(_) | Failure::Open(_)) if begun.elapsed() < self.patience => {
                    tokio::time::sleep(PAUSE).await;
                }
                answer => return answer,
            }
        }
    }

    async fn try_once<Q, A>(
        &self,
        path: &'static str,
        ask: Q,
        limit: Duration,
    ) -> Result<A, Failure>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let call = async {
            let mut grpc = grpc(&self.member().calls);
            grpc.ready().await.map_err(|error| self.not_done(&error.to_string()))?;
            let mut request = tonic::Request::new(ask);
            require_leader(request.metadata_mut());
            let codec = ProstCodec::<Q, A>::default();
            let answer = grpc.unary(request, PathAndQuery::from_static(path), codec).await;
            answer.map_err(|status| self.explain(&status))
        };
        let answer = match tokio::time::timeout(limit, call).await {
            Ok(answer) => answer.map(tonic::Response::into_inner),
            Err(_) => Err(Failure::Open(self.unavailable("no answer in time"))),
        };
        if let Err(Failure::NotDone(_) | Failure::Open(_)) = answer {
            self.next_member();
        }
        answer
    }

    fn not_done(&self, what: &str) -> Failure {
        Failure::NotDone(self.unavailable(what))
    }

    #[expect(clippy::indexing_slicing, reason = "`new` refuses to have no members")]
    fn member(&self) -> &Member {
        &self.members[self.current.load(Ordering::Relaxed) % self.members.len()]
    }
}

fn grpc(channel: &Channel) -> Grpc<Channel> {
    Grpc::new(channel.clone()).max_decoding_message_size(usize::MAX)
}

/// A member without a leader refuses instead of letting the call hang.
fn require_leader(metadata: &mut tonic::metadata::MetadataMap) {
    metadata.insert("hasleader", MetadataValue::from_static("true"));
}

/// Whether a call failed before it left this process.
fn unsent(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// What a status says, down to the cause.
fn describe(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut source = status.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        source = error.source();
    }
    text
}

fn tls_config(tls: &Tls) -> Result<ClientTlsConfig, Error> {
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
    Ok(config)
}
