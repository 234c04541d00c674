//! The bounds on what a client can make the server do, each with its reason.

use std::time::Duration;

/// Kubernetes' own limit on a request body (`--max-request-bytes` of etcd plus room).
pub const BODY: usize = 3 * 1024 * 1024;

/// How long a body that nobody wants is still read, so that the client gets to see why;
/// and how long a server that goes down leaves its last answers to get through.
pub const DRAIN: Duration = Duration::from_secs(1);

/// The largest object stored: Kubernetes on etcd refuses about 1.5 MiB, and clients of either
/// should not find that an object fits one and not the other.
pub const OBJECT: usize = 3 * 512 * 1024;

/// Bodies that are not stored: questions about access and tokens, options of a deletion, bindings. A question about a
/// user with ten thousand groups fits.
pub const SMALL_BODY: usize = 512 * 1024;

/// Objects and bodies of this size are worked on away from the threads that answer everybody else
/// (`offload.rs`): below it there are a few thousand list elements at most, and a stage of a request takes a few
/// milliseconds.
pub const LARGE: usize = 16 * 1024;

/// Longer request lines are refused by kube-apiserver's HTTP library as well (1 MiB of headers);
/// the longest legal URL is a selector of a few KiB.
pub const URL: usize = 64 * 1024;

/// All request headers together. Tokens are below 10 KiB.
pub const HEADERS: usize = 128 * 1024;

/// From the first byte of a connection to the end of the TLS handshake: silent connections must
/// not pile up (CVE-2026-73500).
pub const HANDSHAKE: Duration = Duration::from_secs(10);

/// From the TLS handshake to the end of the first request's header.
pub const HEADER_READ: Duration = Duration::from_secs(30);

/// How long a connection may be without an open request, and how long the header of a later request may take
/// over HTTP/1; kube-apiserver's number. Clients that keep idle connections as long retry a request that
/// meets the end of one.
pub const IDLE: Duration = Duration::from_secs(90);

/// How long a connection may take to end after its graceful shutdown has begun and its last request is
/// answered.
pub const CLOSING: Duration = Duration::from_secs(10);

/// How long a client may leave unread what is sent to it before its HTTP/2 stream is reset, or its
/// connection closed. What is read in this time must be a [`FRAME`], which is 4 kbit/s.
pub const UNREAD: Duration = Duration::from_secs(60);

/// Open connections, where descriptors allow: 10,000 watches through a proxy that speaks HTTP/1, three times.
pub const CONNECTIONS: usize = 32_768;

/// The part of the connections that one address never takes, as one in so many. A fleet behind address
/// translation, a balancer or a local proxy is one address, so it must be small.
pub const CONNECTIONS_FOR_OTHERS: usize = 4;

/// Connections without an authenticated request, as every agent of a fleet has after a restart. An idle one
/// costs some 15 KiB.
pub const UNAUTHENTICATED_CONNECTIONS: usize = 2048;

/// Answers to unauthenticated requests that are not yet written. Each costs some 6 KiB with its stream, and
/// a client that reads has it for milliseconds.
pub const UNAUTHENTICATED_ANSWERS: usize = 1024;

/// How long to wait after a connection could not be accepted.
pub const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Log lines per second about connections that were refused or could not be accepted.
pub const CONNECTION_LOG_RATE: f64 = 0.1;

/// The longest a request that is not a watch may take, and the default of `?timeout=`.
pub const REQUEST: Duration = Duration::from_secs(60);

/// How long a read waits for a resourceVersion that is still to come.
pub const FUTURE_VERSION: Duration = Duration::from_secs(3);

/// How long a request waits until it is certain that the caches show the newest state: longer than a
/// cluster of stores takes to find a new leader.
pub const CATCH_UP: Duration = Duration::from_secs(10);

/// How long a server that is cut off from its store says that it is ready: a new leader is found
/// within this time, and then nobody should have gone away.
pub const CUT_OFF: Duration = Duration::from_secs(10);

/// Streams one HTTP/2 connection may have open; Kubernetes' number. client-go opens another connection when
/// it has more watches.
pub const STREAMS: u32 = 100;

/// How often a writer tries again when its object changes under it.
pub const UPDATE_RETRIES: usize = 64;

/// How often a patch is tried again when its object changes under it; Kubernetes' number.
pub const PATCH_RETRIES: usize = 5;

/// How often another generated name is tried; Kubernetes' number.
pub const NAME_RETRIES: usize = 8;

/// How many single permissions the rules of a role may come to when its author does not hold them as
/// they stand, and each must be looked for. Lists multiply: a small body could ask for billions.
pub const PERMISSIONS: usize = 20_000;

/// How many bytes the names in those permissions may have together: each permission repeats the names of its rule,
/// and a name can be as long as a body.
pub const PERMISSION_BYTES: usize = 16 * 1024 * 1024;

/// How many words may be compared to find out whether permissions are held: a tenth of a second, and ten times
/// what the largest default role takes.
pub const COMPARISONS: usize = 30_000_000;

/// How many words of rules are listed to a caller who asks what they may do: some ten MiB.
pub const LISTED_RULES: usize = 200_000;

/// A bearer token that is read at all as one of a service account; those that are issued here have one to
/// three KiB, and only a long list of audiences makes them longer.
pub const TOKEN: usize = 32 * 1024;

/// How many service-account tokens are remembered as well signed: a node's pods each have a few, and a
/// token that is forgotten only costs another verification.
pub const VERIFIED_TOKENS: usize = 4096;

/// Certificates in a client's chain. Real chains have up to four.
pub const CHAIN: usize = 10;

/// The part of the seats that one user's requests never take, as one in so many: a request can keep its
/// seat for all its time by sending its body slowly, and everybody would be kept waiting.
pub const SEATS_FOR_OTHERS: usize = 4;

/// The most seats that one request takes, as one in so many: a heavy list must leave room for others even where there
/// are few seats. Kubernetes' share is 15 %.
pub const HEAVIEST_SHARE: usize = 7;

/// Objects in a list, or in the initial state of a watch, for each seat it takes; Kubernetes' number.
pub const OBJECTS_PER_SEAT: usize = 100;

/// The most seats that a list takes, however long it is; Kubernetes' number. It is encoded as the client reads, so its
/// memory does not grow with its length, apart from a pointer to each object.
pub const SEATS_PER_LIST: usize = 10;

/// Bytes of responses of one user that are encoded but not yet written, not counting what is shared with a cache or with
/// other responses. A single response may be larger, if it is the only one. Without this bound, as many responses as
/// there are seats could hold as many copies of the largest object or review.
pub const PENDING_BYTES_PER_USER: usize = 32 * 1024 * 1024;

/// A frame of a response body. hyper hands a frame to HTTP/2 as soon as the client's window is open by a single byte, and
/// then it waits in memory until it is read; so this times the number of streams is what clients can make us hold.
pub const FRAME: usize = 32 * 1024;

/// Objects of a past state, which are in no cache, that a list holds at a time: the rest is read from the store as the
/// client reads.
pub const PAST_BYTES: usize = 1024 * 1024;

/// Requests one user may have waiting, for each seat there is: when all seats are that user's, the
/// last one waits for four rounds. More would only be told later what can be told now.
pub const QUEUE_PER_USER: usize = 4;

/// Requests that may wait in all, for each seat there is. A request that waits costs a task and a
/// stream, some 10 KiB; with the usual 400 seats that is 64 MiB at most.
pub const QUEUE_IN_ALL: usize = 16;

/// How long a request may wait for a seat: a quarter of the time it has, as in Kubernetes, so that
/// what gets a seat also has the time to use it.
pub const QUEUE_WAIT: Duration = Duration::from_secs(15);

/// Watches one user may have open. A watch costs some 20 KiB with its stream, and Kubernetes has no
/// bound; this is one that only a client that leaks watches meets. A fleet's agents are users of
/// their own, and one user's 10,000 informers fit twice.
pub const WATCHES_PER_USER: usize = 20_000;

/// Audit events that wait to be written: 16 MiB, and a burst of a second or so. Behind that,
/// requests wait for the disk.
pub const AUDIT_QUEUE: usize = 8192;

/// The bytes of an audit event that take one place in the queue; most are shorter, and a longer one takes
/// several places.
pub const AUDIT_EVENT: usize = 2 * 1024;

/// What is kept of a `User-Agent` in an audit event; Kubernetes' number.
pub const AUDIT_USER_AGENT: usize = 1024;

/// What is kept of a request's address in an audit event: any selector a person writes fits.
pub const AUDIT_URI: usize = 8 * 1024;

/// Addresses kept of an `X-Forwarded-For` in an audit event: no chain of proxies is longer.
pub const AUDIT_SOURCES: usize = 32;

/// How much of an answer is searched for the name that a new object got.
pub const AUDIT_ANSWER: usize = 64 * 1024;

/// The least time that a watch stays open unless it asks for less; none stays open for twice this time.
/// Kubernetes' default, and its bound for watches that ask for nothing. Those that ask for more are honoured
/// there; here they are capped, so that a client connects and authenticates again every hour.
pub const MIN_REQUEST_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// How long an open watch may go without a check of its credential and its rights when nothing that they
/// depend on changes: the longest that an expired credential still receives events.
pub const WATCH_RECHECK: Duration = Duration::from_secs(60);

/// Audit events of requests without a credential that are written at once, in units of [`AUDIT_EVENT`] bytes:
/// two MiB, and enough for any probe that is not a flood.
pub const AUDIT_ANONYMOUS_BURST: u32 = 1000;

/// The same per second, in the long run: at most 170 MiB a day, so that whoever can connect can neither fill
/// the disk nor push a week of other events out of ten files of 100 MiB.
pub const AUDIT_ANONYMOUS_RATE: f64 = 1.0;

/// Handshakes that failed because of a certificate, and are logged at info level at once. Anybody who
/// connects can cause them.
pub const HANDSHAKE_LOG_BURST: u32 = 10;

/// The same per second, in the long run: six a minute. The next one says how many were left out.
pub const HANDSHAKE_LOG_RATE: f64 = 0.1;
