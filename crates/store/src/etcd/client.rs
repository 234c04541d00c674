//! Calls to an etcd cluster: how long, how often, what a refusal means.

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
    self, CompactionRequest, CompactionResponse, KeyValue, RangeRequest, RangeResponse,
    ResponseHeader, TxnRequest, TxnResponse, WatchRequest, WatchResponse,
};
use crate::Error;
use crate::fatal_latch::FatalLatch;

/// The pause between attempts on one call.
const PAUSE: Duration = Duration::from_millis(50);

/// How long a stream that was dropped may take to end.
const DRAIN: Duration = Duration::from_secs(10);

/// Why a call to etcd failed, and whether it may be retried.
#[derive(Debug)]
pub(super) enum CallFailure {
    /// The revision asked for has been compacted.
    Compacted,
    /// The revision asked for has not happened.
    Future,
    /// Nothing was done, and another member or a moment's wait may help.
    NotApplied(Error),
    /// Whether anything was done is open.
    Unknown(Error),
    /// Asking again will not help.
    Final(Error),
}

impl CallFailure {
    /// The error for a caller who did not ask for a revision.
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

/// A stream of answers that is cancelled when it is dropped.
pub(super) struct WatchStream {
    /// Both are there until the stream is dropped.
    open: Option<(Arc<UnboundedSender<WatchRequest>>, Streaming<WatchResponse>)>,
    link: Arc<MemberConnection>,
}

/// Asks a stream how far it is, for as long as it is there.
#[derive(Default, Clone)]
pub(super) struct ProgressRequester(Weak<UnboundedSender<WatchRequest>>);

impl ProgressRequester {
    /// Asks; the answer comes on the stream, if the stream has told everything by then. Returns
    /// whether there was somebody to ask.
    pub(super) fn request(&self) -> bool {
        let order = wire::WatchOrder::Progress(wire::WatchProgressRequest {});
        let ask = WatchRequest { order: Some(order) };
        self.0.upgrade().is_some_and(|requests| requests.unbounded_send(ask).is_ok())
    }
}

impl WatchStream {
    /// The next answer; may be dropped while it waits.
    pub(super) async fn message(&mut self) -> Result<Option<WatchResponse>, Status> {
        match &mut self.open {
            Some((_, answers)) => answers.message().await,
            None => Ok(None),
        }
    }

    /// A way to ask how far the stream is, if its member can be believed.
    pub(super) fn progress_requester(&self) -> ProgressRequester {
        match &self.open {
            Some((requests, _)) if self.link.true_progress => {
                ProgressRequester(Arc::downgrade(requests))
            }
            _ => ProgressRequester::default(),
        }
    }
}

impl Drop for WatchStream {
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
pub(super) struct EtcdClient {
    members: ClusterMembers,
    /// How the cluster is called in errors.
    pub(super) name: PathBuf,
    /// How long one attempt may take, so that another member gets its turn.
    pub(super) attempt: Duration,
    /// How long a call may take with all its attempts.
    pub(super) patience: Duration,
    latch: FatalLatch,
}

impl EtcdClient {
    /// Finds out whether the members that answer are of one cluster.
    pub(super) async fn open(
        options: &Options,
        name: PathBuf,
        fuse: FatalLatch,
    ) -> Result<Self, Error> {
        let members = ClusterMembers::new(options, name.clone(), fuse.clone())?;
        members.verify().await?;
        Ok(Self {
            members,
            name,
            attempt: options.attempt,
            patience: options.patience,
            latch: fuse,
        })
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

    /// A transaction, sent again only when it certainly was not carried out.
    ///
    /// One that was on its way to a leader that died is answered by etcd after more than five
    /// seconds. Nobody can say sooner what became of it, but whoever waits can be told that.
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

    /// The newest revision of the cluster; a read that a quorum confirms.
    pub(super) async fn revision(&self, key: Bytes) -> Result<i64, CallFailure> {
        let request = RangeRequest { key, count_only: true, ..RangeRequest::default() };
        let answer = self.range(request).await?;
        self.check(answer.header)
    }

    /// The newest revision of the cluster and the mark of a store, confirmed by a quorum.
    pub(super) async fn get_meta_key(
        &self,
        keys: &KeySpace,
    ) -> Result<(i64, Option<KeyValue>), CallFailure> {
        let request = RangeRequest { key: keys.meta_key(), ..RangeRequest::default() };
        let answer = self.range(request).await?;
        Ok((self.check(answer.header)?, answer.kvs.into_iter().next()))
    }

    /// Opens a stream of changes; it ends by itself when its member loses the leader.
    pub(super) async fn watch(
        &self,
        order: wire::WatchCreateRequest,
    ) -> Result<WatchStream, CallFailure> {
        let create = WatchRequest { order: Some(wire::WatchOrder::Create(order)) };
        // The stream of requests must stay open for as long as answers are wanted.
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

    /// Gives up the connection that a stream came on, for another member's.
    pub(super) fn abandon(&self, stream: &WatchStream) {
        self.members.abandon(&stream.link, true);
    }

    /// Waits until a member has become silent.
    pub(super) async fn silenced(&self) {
        self.members.silenced.notified().await;
    }

    /// Whether a stream comes from a member that has become silent.
    pub(super) fn is_silent(&self, stream: &WatchStream) -> bool {
        self.members.is_avoided(&stream.link)
    }

    /// Checks that an answer comes from the cluster this store began with; returns its revision.
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

    /// Fails the store for good.
    pub(super) fn fail(&self, what: String) -> Error {
        let error = Error::Failed { what };
        self.latch.trip(&error);
        error
    }

    /// Fails the store because its mark is not the one it was opened with: every revision that it
    /// told from now on would be wrong.
    pub(super) fn fail_offset_changed(&self) -> Error {
        self.fail(format!("the revision offset of {} was changed", self.name.display()))
    }

    /// The cluster that answered first, which all others must be.
    pub(super) fn cluster(&self) -> u64 {
        self.members.cluster(0)
    }

    pub(super) fn unavailable(&self, what: &str) -> Error {
        Error::Unavailable { path: self.name.clone(), what: what.to_owned() }
    }

    /// Translates what etcd or the transport said.
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
        // Above its own limit etcd refuses; far above, its transport does.
        if text.contains("request is too large") || text.contains("message larger than max") {
            return CallFailure::Final(Error::Refused { path, what: format!("refused: {text}") });
        }
        // etcd says these before it proposes anything to its peers.
        let refused = ["too many requests", "no leader", "not supported for learner"];
        if refused.iter().any(|what| text.ends_with(what)) || is_unsent(status) {
            return CallFailure::NotApplied(self.unavailable(&describe(status)));
        }
        match status.code() {
            Code::InvalidArgument
            | Code::Unauthenticated
            | Code::PermissionDenied
            | Code::Unimplemented => CallFailure::Final(self.unavailable(&describe(status))),
            _ => CallFailure::Unknown(self.unavailable(&describe(status))),
        }
    }

    /// A call that may be made more than once.
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

    /// Waits for an answer; if there is none that is final, turns to another member.
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
                // What the transport says has a cause, what etcd says has none.
                self.members.abandon(link, status.source().is_some());
            }
            failure
        })
    }
}

fn grpc(channel: &Channel) -> Grpc<Channel> {
    Grpc::new(channel.clone()).max_decoding_message_size(usize::MAX)
}

/// One call on one connection.
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

/// A member without a leader refuses instead of letting the call hang.
fn require_leader(metadata: &mut tonic::metadata::MetadataMap) {
    metadata.insert("hasleader", MetadataValue::from_static("true"));
}

/// The status of a call that never left this process.
fn unsent_status(error: tonic::transport::Error) -> Status {
    Status::from_error(Box::new(tonic::ConnectError(error.into())))
}

/// Whether a call failed before it left this process.
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

/// What a status says, down to the cause.
fn describe(status: &Status) -> String {
    append_causes(status.message().to_owned(), status)
}

/// What an error says, down to the cause.
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
        let client = EtcdClient {
            members,
            name,
            attempt: options.attempt,
            patience: options.patience,
            latch: fuse,
        };
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
            (
                Code::OutOfRange,
                "etcdserver: mvcc: required revision has been compacted",
                "compacted",
            ),
            (
                Code::OutOfRange,
                "etcdserver: mvcc: required revision is a future revision",
                "future",
            ),
            (Code::InvalidArgument, "etcdserver: request is too large", "refused"),
            (Code::PermissionDenied, "etcdserver: permission denied", "final"),
            (Code::Unauthenticated, "etcdserver: invalid auth token", "final"),
        ] {
            assert_eq!(meaning(code, text), is, "{text}");
        }
    }
}
