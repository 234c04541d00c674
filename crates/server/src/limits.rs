//! Limits on what a client can make the server do, each with its reason.

use std::time::Duration;

/// Kubernetes' limit on a request body (`--max-request-bytes` of etcd plus room).
pub const BODY: usize = 3 * 1024 * 1024;

/// How long an unwanted body is drained so that the client sees the response, and how long a
/// stopping server waits for its last responses to be delivered.
pub const DRAIN: Duration = Duration::from_secs(1);

/// Maximum size of a stored object: Kubernetes on etcd rejects about 1.5 MiB, and an object should
/// fit either both or neither.
pub const OBJECT: usize = 3 * 512 * 1024;

/// Maximum size of bodies that are not stored: access and token reviews, delete options, bindings.
/// A review of a user with ten thousand groups fits.
pub const SMALL_BODY: usize = 512 * 1024;

/// Objects and bodies of this size are worked on away from the threads that answer everybody else
/// (`offload.rs`): below it there are a few thousand list elements at most, and a stage of a request takes a few
/// milliseconds.
pub const LARGE: usize = 16 * 1024;

/// Maximum URL length. kube-apiserver's HTTP library limits the request line too (1 MiB of
/// headers); the longest legal URL is a selector of a few KiB.
pub const URL: usize = 64 * 1024;

/// Maximum size of all request headers. Tokens are below 10 KiB.
pub const HEADERS: usize = 128 * 1024;

/// Timeout from the first byte of a connection to the end of the TLS handshake: silent connections
/// must not accumulate (CVE-2026-73500).
pub const HANDSHAKE: Duration = Duration::from_secs(10);

/// Timeout from the TLS handshake to the end of the first request's header.
pub const HEADER_READ: Duration = Duration::from_secs(30);

/// Maximum time a connection may be idle, and timeout of the header of a later request over HTTP/1;
/// same as kube-apiserver. Clients that keep idle connections as long retry a request that meets a
/// closing one.
pub const IDLE: Duration = Duration::from_secs(90);

/// Maximum time a connection may take to close after graceful shutdown has begun and its last
/// response was sent.
pub const CLOSING: Duration = Duration::from_secs(10);

/// How long a client may leave sent data unread before its HTTP/2 stream is reset or its connection
/// closed. It must read a [`FRAME`] in this time, which is 4 kbit/s.
pub const UNREAD: Duration = Duration::from_secs(60);

/// Maximum open connections, if file descriptors allow: 10,000 watches through an HTTP/1 proxy,
/// three times.
pub const CONNECTIONS: usize = 32_768;

/// Share of the connections that one address never takes (1/n). A fleet behind NAT, a load balancer
/// or a local proxy is one address, so the share must be small.
pub const CONNECTIONS_FOR_OTHERS: usize = 4;

/// Maximum connections without an authenticated request, as every agent of a fleet has after a
/// restart. An idle one costs about 15 KiB.
pub const UNAUTHENTICATED_CONNECTIONS: usize = 2048;

/// Maximum unwritten responses to unauthenticated requests. Each costs about 6 KiB with its stream,
/// and a client that reads holds it for milliseconds.
pub const UNAUTHENTICATED_ANSWERS: usize = 1024;

/// Delay after a connection could not be accepted.
pub const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Log lines per second about refused or failed connections.
pub const CONNECTION_LOG_RATE: f64 = 0.1;

/// Maximum duration of a request other than a watch, and default of `?timeout=`.
pub const REQUEST: Duration = Duration::from_secs(60);

/// How long a read waits for a resourceVersion that is not reached yet.
pub const FUTURE_VERSION: Duration = Duration::from_secs(3);

/// How long a request waits for confirmation that the caches are current: longer than an etcd
/// leader election takes.
pub const CATCH_UP: Duration = Duration::from_secs(10);

/// How long a server stays ready while cut off from its store: a leader election completes within
/// this time, and clients should not move away for it.
pub const CUT_OFF: Duration = Duration::from_secs(10);

/// Maximum HTTP/2 streams per connection; same as Kubernetes. client-go opens another connection
/// for more watches.
pub const STREAMS: u32 = 100;

/// Retries of an update after conflicts.
pub const UPDATE_RETRIES: usize = 64;

/// Retries of a patch after conflicts; same as Kubernetes.
pub const PATCH_RETRIES: usize = 5;

/// Retries with another generated name; same as Kubernetes.
pub const NAME_RETRIES: usize = 8;

/// Maximum number of single permissions in a role's rules when its author does not hold the rules
/// as a whole and each must be checked. Lists multiply: a small body could request billions.
pub const PERMISSIONS: usize = 20_000;

/// Maximum total bytes of names in those permissions: each permission repeats the names of its
/// rule, and a name can be as long as a body.
pub const PERMISSION_BYTES: usize = 16 * 1024 * 1024;

/// Maximum words compared to check whether permissions are held: a tenth of a second, and ten times
/// what the largest default role takes.
pub const COMPARISONS: usize = 30_000_000;

/// Maximum words of rules in a rules review: about ten MiB.
pub const LISTED_RULES: usize = 200_000;

/// Maximum size of a service account token. Tokens issued here have one to three KiB; only a long
/// list of audiences makes them longer.
pub const TOKEN: usize = 32 * 1024;

/// Number of service account tokens whose signature verification is cached: a node's pods each have
/// a few, and an evicted token only costs another verification.
pub const VERIFIED_TOKENS: usize = 4096;

/// Maximum certificates in a client's chain. Real chains have up to four.
pub const CHAIN: usize = 10;

/// Share of the seats that one user's requests never take (1/n): a request can hold its seat for
/// its whole duration by sending its body slowly, and all others would wait.
pub const SEATS_FOR_OTHERS: usize = 4;

/// Maximum share of the seats for one request (1/n): a heavy list must leave room for others even
/// with few seats. Kubernetes' share is 15 %.
pub const HEAVIEST_SHARE: usize = 7;

/// Objects per seat in a list or in the initial state of a watch; same as Kubernetes.
pub const OBJECTS_PER_SEAT: usize = 100;

/// Maximum seats of a list of any length; same as Kubernetes. A list is encoded while the client
/// reads, so its memory does not grow with its length, apart from a pointer to each object.
pub const SEATS_PER_LIST: usize = 10;

/// Maximum encoded but unwritten response bytes per user, without bytes shared with a cache or
/// other responses. A user's only response may be larger. Without this limit, each seat could hold
/// a copy of the largest object or review.
pub const PENDING_BYTES_PER_USER: usize = 32 * 1024 * 1024;

/// Size of a response body frame. hyper hands a frame to HTTP/2 as soon as the client's window is
/// open by a single byte, and it then stays in memory until read; clients can make us hold this
/// size times the number of streams.
pub const FRAME: usize = 32 * 1024;

/// Bytes of uncached objects of a past revision that a list holds at a time; the rest is read from
/// the store while the client reads.
pub const PAST_BYTES: usize = 1024 * 1024;

/// Maximum queued requests of one user per seat: when one user holds all seats, the last request
/// waits for four rounds. A longer queue would only delay the rejection.
pub const QUEUE_PER_USER: usize = 4;

/// Maximum queued requests in total per seat. A queued request costs a task and a stream, about 10
/// KiB; with the usual 400 seats that is 64 MiB at most.
pub const QUEUE_IN_ALL: usize = 16;

/// Maximum wait for a seat: a quarter of the request's time, as in Kubernetes, so that a seated
/// request has time left to execute.
pub const QUEUE_WAIT: Duration = Duration::from_secs(15);

/// Maximum open watches per user. A watch costs about 20 KiB with its stream. Kubernetes has no
/// limit; only a client that leaks watches reaches this one. The agents of a fleet are separate
/// users, and one user's 10,000 informers fit twice.
pub const WATCHES_PER_USER: usize = 20_000;

/// Queued audit events: 16 MiB, or a burst of about a second. Beyond that, requests wait for the
/// disk.
pub const AUDIT_QUEUE: usize = 8192;

/// Bytes of an audit event per queue slot; most events are shorter, and a longer one takes several
/// slots.
pub const AUDIT_EVENT: usize = 2 * 1024;

/// Maximum length of a `User-Agent` in an audit event; same as Kubernetes.
pub const AUDIT_USER_AGENT: usize = 1024;

/// Maximum length of a URI in an audit event; any hand-written selector fits.
pub const AUDIT_URI: usize = 8 * 1024;

/// Maximum addresses of `X-Forwarded-For` in an audit event; no proxy chain is longer.
pub const AUDIT_SOURCES: usize = 32;

/// Bytes of a response searched for the name of a new object.
pub const AUDIT_ANSWER: usize = 64 * 1024;

/// Minimum duration of a watch unless it requests less; no watch lasts twice this time. Same as
/// Kubernetes' default and its limit for watches that request no timeout. Kubernetes honours longer
/// requests; here they are capped, so that a client reconnects and authenticates every hour.
pub const MIN_REQUEST_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Maximum time between checks of an open watch's credential and permissions when none of their
/// dependencies change: an expired credential receives events at most this long.
pub const WATCH_RECHECK: Duration = Duration::from_secs(60);

/// Burst of audit events of unauthenticated requests, in units of [`AUDIT_EVENT`] bytes: two MiB,
/// enough for any probe that is not a flood.
pub const AUDIT_ANONYMOUS_BURST: u32 = 1000;

/// Sustained rate of the same per second: at most 170 MiB a day, so that unauthenticated callers
/// can neither fill the disk nor push a week of other events out of ten files of 100 MiB.
pub const AUDIT_ANONYMOUS_RATE: f64 = 1.0;

/// Burst of handshake failures caused by certificates that are logged at info level. Anybody who
/// connects can cause them.
pub const HANDSHAKE_LOG_BURST: u32 = 10;

/// Sustained rate of the same per second: six a minute. The next message reports how many were
/// suppressed.
pub const HANDSHAKE_LOG_RATE: f64 = 0.1;
