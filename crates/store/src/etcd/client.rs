//! Calls to an etcd cluster: timeouts, retries and error classification.

use std::error::Error as StdError;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use http::uri::PathAndQuery;
use prost::Message;
use tokio::runtime::Handle;
use tonic::client::Grpc;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};
use tonic_prost::ProstCodec;

use super::Options;
use super::keys::KeySpace;
use super::members::{ClusterMembers, ConnectionPurpose, MemberConnection};
use super::wire::{
    self, CompactionRequest, CompactionResponse, KeyValue, RangeRequest, RangeResponse, ResponseHeader,
    TxnRequest, TxnResponse, WatchRequest, WatchResponse,
};
use crate::Error;
use crate::fatal_latch::FatalLatch;

/// Delay between attempts of one call.
const PAUSE: Duration = Duration::from_millis(50);

/// Timeout for draining a dropped stream.
const DRAIN: Duration = Duration::from_secs(10);

/// Error of a call to etcd, and whether it may be retried.
#[derive(Debug)]
pub(super) enum CallFailure {
    /// The requested revision has been compacted.
    Compacted,
    /// The requested revision is in the future.
    Future,
    /// Nothing was applied; a retry, perhaps with another member, may succeed.
    NotApplied(Error),
    /// Whether anything was applied is unknown.
    Unknown(Error),
    /// A retry will not succeed.
    Final(Error),
}

impl CallFailure {
    /// Converts to the error for a caller that did not request a revision.
    pub(super) fn into_error(self, name: &std::path::Path) -> Error {
        match self {
            Self::Compacted | Self::Future => Error::Unavailable {
                path: name.to_owned(),
                what: "the requested revision is not available".to_owned(),
            },
            Self::NotApplied(error) | Self::Unknown(error) | Self::Final(error) => error,
        }
    }
}

/// A watch stream that is cancelled on drop.
pub(super) struct WatchStream {
    /// Both are present until the stream is dropped.
    open: Option<(Arc<UnboundedSender<WatchRequest>>, Streaming<WatchResponse>)>,
    link: Arc<MemberConnection>,
}

/// Requests progress of a stream while it exists.
#[derive(Default, Clone)]
pub(super) struct ProgressRequester(Weak<UnboundedSender<WatchRequest>>);

impl ProgressRequester {
    /// Requests progress; the reply arrives on the stream once it has delivered everything. Returns
    /// false if the stream is gone.
    pub(super) fn request(&self) -> bool {
        let order = wire::WatchOrder::Progress(wire::WatchProgressRequest {});
        let ask = WatchRequest { order: Some(order) };
        self.0.upgrade().is_some_and(|requests| requests.unbounded_send(ask).is_ok())
    }
}

impl WatchStream {
    /// Returns the next response; cancellation-safe.
    pub(super) async fn message(&mut self) -> Result<Option<WatchResponse>, Status> {
        match &mut self.open {
            Some((_, answers)) => answers.message().await,
            None => Ok(None),
        }
    }

    /// Returns a progress requester, if the member's progress is reliable.
    pub(super) fn progress_requester(&self) -> ProgressRequester {
        match &self.open {
            Some((requests, _)) if self.link.true_progress => ProgressRequester(Arc::downgrade(requests)),
            _ => ProgressRequester::default(),
        }
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        let Some((requests, mut answers)) = self.open.take() else { return };
        // Ending the requests makes etcd end the responses. Whatever it sends until then must be
        // read: HTTP/2 counts unread frames against the connection, and eventually closes it.
        drop(requests);
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(tokio::time::timeout(DRAIN, async move {
                while let Ok(Some(_)) = answers.message().await {}
            }));
        }
    }
}

/// Client of a cluster, connected to one member at a time.
pub(super) struct EtcdClient {
    members: ClusterMembers,
    /// Name of the cluster in errors.
    pub(super) name: PathBuf,
    /// Timeout of one attempt, after which another member is tried.
    pub(super) attempt: Duration,
    /// Timeout of a call with all its attempts.
    pub(super) patience: Duration,
    latch: FatalLatch,
}

impl EtcdClient {
    /// Connects, and checks that all responding members belong to one cluster.
    pub(super) async fn open(options: &Options, name: PathBuf, fuse: FatalLatch) -> Result<Self, Error> {
        let members = ClusterMembers::new(options, name.clone(), fuse.clone())?;
        members.verify().await?;
        Ok(Self { members, name, attempt: options.attempt, patience: options.patience, latch: fuse })
    }

    pub(super) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, CallFailure> {
        let answer: RangeResponse = self.call(wire::RANGE, request).await?;
        self.check(answer.header)?;
        Ok(answer)
    }

    pub(super) async fn compact(&self, revision: i64) -> Result<(), CallFailure> {
        let request = CompactionRequest { revision };
        let answer: CompactionResponse = self.call(wire::COMPACT, request).await?;
        self.check(answer.header)?;
        Ok(())
    }

    /// Sends a transaction; retries only if it certainly was not applied.
    ///
    /// If the leader dies with a transaction in flight, etcd replies after more than five seconds.
    /// The outcome cannot be known sooner, but a waiting caller can get that as the error.
    pub(super) async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, CallFailure> {
        let begun = Instant::now();
        loop {
            match self.try_once(wire::TXN, request.clone()).await {
                Err(CallFailure::NotApplied(_)) if begun.elapsed() < self.patience => {
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

    /// Returns the newest revision of the cluster by a linearizable read.
    pub(super) async fn revision(&self, key: Bytes) -> Result<i64, CallFailure> {
        let request = RangeRequest { key, count_only: true, ..RangeRequest::default() };
        let answer = self.range(request).await?;
        self.check(answer.header)
    }

    /// Returns the newest revision of the cluster and the store's meta key by a linearizable read.
    pub(super) async fn get_meta_key(&self, keys: &KeySpace) -> Result<(i64, Option<KeyValue>), CallFailure> {
        let request = RangeRequest { key: keys.meta_key(), ..RangeRequest::default() };
        let answer = self.range(request).await?;
        Ok((self.check(answer.header)?, answer.kvs.into_iter().next()))
    }

    /// Opens a watch stream; it ends by itself when its member loses the leader.
    pub(super) async fn watch(&self, order: wire::WatchCreateRequest) -> Result<WatchStream, CallFailure> {
        let create = WatchRequest { order: Some(wire::WatchOrder::Create(order)) };
        // The request stream must stay open while responses are wanted.
        let (sender, requests) = unbounded();
        let _ = sender.unbounded_send(create);
        let link = self.members.connection(ConnectionPurpose::Streams).await?;
        let call = async {
            let mut grpc = grpc(&link.channel);
            grpc.ready().await.map_err(unsent_status)?;
            let mut request = tonic::Request::new(requests);
            require_leader(request.metadata_mut());
            let path = PathAndQuery::from_static(wire::WATCH);
            let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
            grpc.streaming(request, path, codec).await
        };
        let answers = self.within_attempt(&link, call).await?.into_inner();
        Ok(WatchStream { open: Some((Arc::new(sender), answers)), link })
    }

    /// Abandons the stream's connection, and switches to another member.
    pub(super) fn abandon(&self, stream: &WatchStream) {
        self.members.abandon(&stream.link, true);
    }

    /// Waits until a member stops responding.
    pub(super) async fn silenced(&self) {
        self.members.silenced.notified().await;
    }

    /// Returns true if the stream's member has stopped responding.
    pub(super) fn is_silent(&self, stream: &WatchStream) -> bool {
        self.members.is_avoided(&stream.link)
    }

    /// Checks that a response comes from the cluster that the store was opened on; returns its
    /// revision.
    pub(super) fn check(&self, header: Option<ResponseHeader>) -> Result<i64, CallFailure> {
        let header = header.unwrap_or_default();
        let expected = self.members.cluster(header.cluster_id);
        if header.cluster_id != expected {
            let what = format!(
                "{} answers as cluster {:x}, but this store is in cluster {expected:x}",
                self.name.display(),
                header.cluster_id
            );
            return Err(CallFailure::Final(self.fail(what)));
        }
        Ok(header.revision)
    }

    /// Fails the store permanently, and returns the error.
    pub(super) fn fail(&self, what: String) -> Error {
        let error = Error::Failed { what };
        self.latch.trip(&error);
        error
    }

    /// Fails the store because its meta key has changed since it was opened: every further revision
    /// would be wrong.
    pub(super) fn fail_offset_changed(&self) -> Error {
        self.fail(format!("the revision offset of {} was changed", self.name.display()))
    }

    /// Returns the ID of the cluster that answered first; all others must match.
    pub(super) fn cluster(&self) -> u64 {
        self.members.cluster(0)
    }

    pub(super) fn unavailable(&self, what: &str) -> Error {
        Error::Unavailable { path: self.name.clone(), what: what.to_owned() }
    }

    /// Classifies an error from etcd or the transport.
    pub(super) fn explain(&self, status: &Status) -> CallFailure {
        let text = status.message();
        let path = self.name.clone();
        if text.contains("has been compacted") {
            return CallFailure::Compacted;
        }
        if text.contains("is a future revision") {
            return CallFailure::Future;
        }
        if text.contains("database space exceeded") {
            return CallFailure::Final(Error::Full { path });
        }
        // etcd rejects requests above its own limit; far above, its transport does.
        if text.contains("request is too large") || text.contains("message larger than max") {
            return CallFailure::Final(Error::Refused { path, what: format!("refused: {text}") });
        }
        // etcd returns these before it proposes anything to its peers.
        let refused = ["too many requests", "no leader", "not supported for learner"];
        if refused.iter().any(|what| text.ends_with(what)) || is_unsent(status) {
            return CallFailure::NotApplied(self.unavailable(&describe(status)));
        }
        match status.code() {
            Code::InvalidArgument | Code::Unauthenticated | Code::PermissionDenied | Code::Unimplemented => {
                CallFailure::Final(self.unavailable(&describe(status)))
            }
            _ => CallFailure::Unknown(self.unavailable(&describe(status))),
        }
    }

    /// Sends an idempotent call with retries.
    async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A, CallFailure>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let begun = Instant::now();
        loop {
            match self.try_once(path, request.clone()).await {
                Err(CallFailure::NotApplied(_) | CallFailure::Unknown(_))
                    if begun.elapsed() < self.patience =>
                {
                    tokio::time::sleep(PAUSE).await;
                }
                answer => return answer,
            }
        }
    }

    async fn try_once<Q, A>(&self, path: &'static str, ask: Q) -> Result<A, CallFailure>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let link = self.members.connection(ConnectionPurpose::Calls).await?;
        self.within_attempt(&link, unary(&link.channel, path, ask, true)).await
    }

    /// Waits for a response; switches to another member unless the response is final.
    async fn within_attempt<T>(
        &self,
        link: &Arc<MemberConnection>,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, CallFailure> {
        let silence = async {
            tokio::time::sleep(self.attempt / 4).await;
            self.members.mark_silent(link).await;
        };
        let answer = tokio::time::timeout(self.attempt, async {
            tokio::select! {
                answer = call => Some(answer),
                () = silence => None,
            }
        });
        let Ok(Some(answer)) = answer.await else {
            self.members.abandon(link, true);
            let what = format!("{}: timed out", link.url);
            return Err(CallFailure::Unknown(self.unavailable(&what)));
        };
        answer.map_err(|status| {
            let failure = self.explain(&status);
            if let CallFailure::NotApplied(_) | CallFailure::Unknown(_) = failure {
                // Transport errors have a cause, etcd errors have none.
                self.members.abandon(link, status.source().is_some());
            }
            failure
        })
    }
}

fn grpc(channel: &Channel) -> Grpc<Channel> {
    Grpc::new(channel.clone()).max_decoding_message_size(usize::MAX)
}

/// Sends one call on one connection.
pub(super) async fn unary<Q, A>(
    channel: &Channel,
    path: &'static str,
    ask: Q,
    leader: bool,
) -> Result<A, Status>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let mut grpc = grpc(channel);
    grpc.ready().await.map_err(unsent_status)?;
    let mut request = tonic::Request::new(ask);
    if leader {
        require_leader(request.metadata_mut());
    }
    let codec = ProstCodec::<Q, A>::default();
    let answer = grpc.unary(request, PathAndQuery::from_static(path), codec).await?;
    Ok(answer.into_inner())
}

/// Makes a member without a leader reject the call instead of letting it hang.
fn require_leader(metadata: &mut tonic::metadata::MetadataMap) {
    metadata.insert("hasleader", MetadataValue::from_static("true"));
}

/// Returns the status of a call that was never sent.
fn unsent_status(error: tonic::transport::Error) -> Status {
    Status::from_error(Box::new(tonic::ConnectError(error.into())))
}

/// Returns true if a call failed before it was sent.
fn is_unsent(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// Formats a status with its causes.
fn describe(status: &Status) -> String {
    append_causes(status.message().to_owned(), status)
}

/// Formats an error with its causes.
pub(super) fn append_causes(mut text: String, error: &dyn StdError) -> String {
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etcd_errors_are_classified() {
        let options = Options::new(["http://127.0.0.1:1"]);
        let name = PathBuf::from("etcd");
        let fuse = FatalLatch::new(name.clone());
        let members = ClusterMembers::new(&options, name.clone(), fuse.clone()).unwrap();
        let client =
            EtcdClient { members, name, attempt: options.attempt, patience: options.patience, latch: fuse };
        let meaning = |code, text: &str| match client.explain(&Status::new(code, text)) {
            CallFailure::Compacted => "compacted",
            CallFailure::Future => "future",
            CallFailure::NotApplied(Error::Unavailable { .. }) => "not done",
            CallFailure::Unknown(Error::Unavailable { .. }) => "open",
            CallFailure::Final(Error::Full { .. }) => "full",
            CallFailure::Final(Error::Refused { .. }) => "refused",
            CallFailure::Final(Error::Unavailable { .. }) => "final",
            failure => panic!("{failure:?}"),
        };
        for (code, text, is) in [
            (Code::ResourceExhausted, "etcdserver: too many requests", "not done"),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", "full"),
            (Code::Unavailable, "etcdserver: no leader", "not done"),
            (Code::Unavailable, "etcdserver: rpc not supported for learner", "not done"),
            (Code::Unavailable, "etcdserver: leader changed", "open"),
            (Code::Unavailable, "etcdserver: request timed out", "open"),
            (
                Code::Unavailable,
                "etcdserver: request timed out, possibly due to previous leader failure",
                "open",
            ),
            (Code::Unavailable, "etcdserver: server stopped", "open"),
            (Code::Unknown, "context deadline exceeded", "open"),
            (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted", "compacted"),
            (Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision", "future"),
            (Code::InvalidArgument, "etcdserver: request is too large", "refused"),
            (Code::PermissionDenied, "etcdserver: permission denied", "final"),
            (Code::Unauthenticated, "etcdserver: invalid auth token", "final"),
        ] {
            assert_eq!(meaning(code, text), is, "{text}");
        }
    }
}
