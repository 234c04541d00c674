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
use super::keys::Keys;
use super::members::{Link, Members, Purpose};
use super::wire::{
    self, CompactionRequest, CompactionResponse, Header, KeyValue, RangeRequest, RangeResponse,
    TxnRequest, TxnResponse, WatchRequest, WatchResponse,
};
use crate::Error;
use crate::embedded::Fuse;

/// The pause between attempts on one call.
const PAUSE: Duration = Duration::from_millis(50);

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

/// A stream of answers that is cancelled when it is dropped.
pub(super) struct Stream {
    /// Both are there until the stream is dropped.
    open: Option<(Arc<UnboundedSender<WatchRequest>>, Streaming<WatchResponse>)>,
    link: Arc<Link>,
}

/// Asks a stream how far it is, for as long as it is there.
#[derive(Default, Clone)]
pub(super) struct Inquiry(Weak<UnboundedSender<WatchRequest>>);

impl Inquiry {
    /// Asks; the answer comes on the stream, if the stream has told everything by then. Returns
    /// whether there was somebody to ask.
    pub(super) fn ask(&self) -> bool {
        let order = wire::WatchOrder::Progress(wire::WatchProgressRequest {});
        let ask = WatchRequest { order: Some(order) };
        self.0.upgrade().is_some_and(|requests| requests.unbounded_send(ask).is_ok())
    }
}

impl Stream {
    /// The next answer; may be dropped while it waits.
    pub(super) async fn message(&mut self) -> Result<Option<WatchResponse>, Status> {
        match &mut self.open {
            Some((_, answers)) => answers.message().await,
            None => Ok(None),
        }
    }

    /// A way to ask how far the stream is, if its member can be believed.
    pub(super) fn inquiry(&self) -> Inquiry {
        match &self.open {
            Some((requests, _)) if self.link.true_progress => Inquiry(Arc::downgrade(requests)),
            _ => Inquiry::default(),
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
    members: Members,
    /// How the cluster is called in errors.
    pub(super) name: PathBuf,
    /// How long one attempt may take, so that another member gets its turn.
    pub(super) attempt: Duration,
    /// How long a call may take with all its attempts.
    pub(super) patience: Duration,
    fuse: Fuse,
}

impl Client {
    /// Finds out whether the members that answer are of one cluster.
    pub(super) async fn open(options: &Options, name: PathBuf, fuse: Fuse) -> Result<Self, Error> {
        let members = Members::new(options, name.clone(), fuse.clone())?;
        members.verify().await?;
        Ok(Self { members, name, attempt: options.attempt, patience: options.patience, fuse })
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
            match self.try_once(wire::TXN, request.clone()).await {
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
        let link = self.members.link(Purpose::Streams).await?;
        let call = async {
            let mut grpc = grpc(&link.channel);
            grpc.ready().await.map_err(not_sent)?;
            let mut request = tonic::Request::new(requests);
            require_leader(request.metadata_mut());
            let path = PathAndQuery::from_static(wire::WATCH);
            let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
            grpc.streaming(request, path, codec).await
        };
        let answers = self.within_attempt(&link, call).await?.into_inner();
        Ok(Stream { open: Some((Arc::new(sender), answers)), link })
    }

    /// Gives up the connection that a stream came on, for another member's.
    pub(super) fn leave(&self, stream: &Stream) {
        self.members.leave(&stream.link, true);
    }

    /// Waits until a member has become silent.
    pub(super) async fn silenced(&self) {
        self.members.silenced.notified().await;
    }

    /// Whether a stream comes from a member that has become silent.
    pub(super) fn is_silent(&self, stream: &Stream) -> bool {
        self.members.is_shunned(&stream.link)
    }

    /// Checks that an answer comes from the cluster this store began with; returns its revision.
    pub(super) fn check(&self, header: Option<Header>) -> Result<i64, Failure> {
        let header = header.unwrap_or_default();
        let expected = self.members.cluster(header.cluster_id);
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
        self.members.cluster(0)
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
        let refused = ["too many requests", "no leader", "not supported for learner"];
        if refused.iter().any(|what| text.ends_with(what)) || unsent(status) {
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
            match self.try_once(path, request.clone()).await {
                Err(Failure::NotDone(_) | Failure::Open(_)) if begun.elapsed() < self.patience => {
                    tokio::time::sleep(PAUSE).await;
                }
                answer => return answer,
            }
        }
    }

    async fn try_once<Q, A>(&self, path: &'static str, ask: Q) -> Result<A, Failure>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let link = self.members.link(Purpose::Calls).await?;
        self.within_attempt(&link, unary(&link.channel, path, ask, true)).await
    }

    /// Waits for an answer; if there is none that is final, turns to another member.
    async fn within_attempt<T>(
        &self,
        link: &Arc<Link>,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Failure> {
        let silence = async {
            tokio::time::sleep(self.attempt / 4).await;
            self.members.silence(link).await;
        };
        let answer = tokio::time::timeout(self.attempt, async {
            tokio::select! {
                answer = call => Some(answer),
                () = silence => None,
            }
        });
        let Ok(Some(answer)) = answer.await else {
            self.members.leave(link, true);
            let what = format!("{}: no answer in time", link.url);
            return Err(Failure::Open(self.unavailable(&what)));
        };
        answer.map_err(|status| {
            let failure = self.explain(&status);
            if let Failure::NotDone(_) | Failure::Open(_) = failure {
                // What the transport says has a cause, what etcd says has none.
                self.members.leave(link, status.source().is_some());
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
    grpc.ready().await.map_err(not_sent)?;
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
fn not_sent(error: tonic::transport::Error) -> Status {
    Status::from_error(Box::new(tonic::ConnectError(error.into())))
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
    causes(status.message().to_owned(), status)
}

/// What an error says, down to the cause.
pub(super) fn causes(mut text: String, error: &dyn StdError) -> String {
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
    fn what_etcd_says_is_understood() {
        let options = Options::new(["http://127.0.0.1:1"]);
        let name = PathBuf::from("etcd");
        let fuse = Fuse::new(name.clone());
        let members = Members::new(&options, name.clone(), fuse.clone()).unwrap();
        let client =
            Client { members, name, attempt: options.attempt, patience: options.patience, fuse };
        let meaning = |code, text: &str| match client.explain(&Status::new(code, text)) {
            Failure::Compacted => "compacted",
            Failure::Future => "future",
            Failure::NotDone(Error::Unavailable { .. }) => "not done",
            Failure::Open(Error::Unavailable { .. }) => "open",
            Failure::Final(Error::Full { .. }) => "full",
            Failure::Final(Error::Refused { .. }) => "refused",
            Failure::Final(Error::Unavailable { .. }) => "final",
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
