//! Client-side runtime: what every client of the Kubernetes API in Windlass needs, written once.
//!
//! It stands between the libraries (`api`, `pki`, `store`) and the parts (`server`, `controllers`, `node`, the binary), and knows
//! no controller and no volume. The server uses `metrics` only; the binary reloads its files.
//!
//! | module | holds |
//! |---|---|
//! | [`watch`] | watches that survive errors and relist: pulled by a loop, or with a callback for controllers |
//! | [`discovery`] | optional kinds: which version a server serves, and tasks that run while it does |
//! | [`work_queue`], [`workers`], [`backoff`] | reconcile keys, the tasks that process them, and when they are retried |
//! | [`events`] | recorder of events, with a rate limit and series of repeats |
//! | [`failure_log`], [`rate_limit`] | throttled logging, token bucket |
//! | [`client_error`] | descriptions of client errors, on one line and with the server URL |
//! | [`config`] | configuration files whose errors carry the position of the value |
//! | [`csr`] | state of a CertificateSigningRequest |
//! | [`file_watch`] | files that are reloaded when they change, with the last good content |
//! | [`durable`], [`file_lock`] | atomic, durable writes with fault injection; advisory locks |
//! | [`metrics`] | registry that is passed as a parameter, and its text format |
//!
//! # Differences from `kube::runtime::Controller`
//!
//! The low-level `kube::runtime::watcher` is used; `Controller`, `reflector` and `Recorder` are not:
//!
//! - **No cache of whole objects.** A `Controller` needs a reflector store of the kind that it reconciles. Most controllers here
//!   keep a few fields or only keys ([`watch::ListTracker`]), and watch metadata where that suffices. A store of all
//!   CertificateSigningRequests or Secrets would let any user of the cluster fill the memory of the controller.
//! - **Keys are arbitrary.** A `Controller` reconciles references to objects of one kind. Here keys are also nodes, namespaces or
//!   signers, and the sources of a queue are watches, timers and files.
//! - **Watches fall back.** [`watch::ObjectWatch`] streams lists and falls back for servers that reject or ignore
//!   `sendInitialEvents`; it relists on 410 in place of a watch, and varies the timeouts of watches.
//!   A `Controller` is configured for one strategy and waits forever for the missing bookmark.
//! - **Errors are classified and reported.** Callers learn that a watch is refused, not served or broken, and say so in conditions.
//!   A repeated cause is logged every few minutes.
//! - **Failures back off per key** with jitter and an upper bound, and an event resets the delay but not the count. A panic of one
//!   reconciliation is an error of its key: it ends neither the other workers nor the process.
//! - **Metrics carry the names of client-go** (`workqueue_*`), so that existing dashboards and alerts work. `Controller` has none.
//! - **Events are limited in rate**, because any user can cause them by creating objects.
//!
//! Clock and jitter come from `tokio::time`, which tests pause, or are parameters.

pub mod backoff;
pub mod client_error;
pub mod config;
pub mod csr;
pub mod discovery;
pub mod durable;
pub mod events;
pub mod failure_log;
pub mod file_lock;
pub mod file_watch;
pub mod metrics;
pub mod rate_limit;
pub mod watch;
pub mod work_queue;
pub mod workers;
