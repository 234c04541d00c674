//! The Kubernetes API server: TLS on one side, a store on the other. It never signs a certificate.
//!
//! # Map
//!
//! ```text
//! listener ─ tls ─▶ chain ─ request (path, query, negotiation)
//!                     │     authn ─ impersonation ─ flow_control ─ authz ─ route
//!                     ▼
//!                   verbs ─ write_path: decode ─ mutate ─ prepare ─ validate ─ admit ─ commit ─▶ store
//!                     ▲                 (rules of a kind: registry, rules on requests: chain/admission) │
//!                   watch ◀── cache (objects, recent changes) ◀── cache/feed ◀──────────────────────────┘
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `server` | the state that all requests share, and [`start`] |
//! | `listener`, `tls`, `peer` | connections, their limits and deadlines, and who is at the other end |
//! | `chain` | the stages of a request before its verb; authentication, authorization and admission |
//! | `verbs` | one file per verb; `verbs/write_path.rs` is the list of stages of a write |
//! | `registry` | one descriptor ([`Kind`]) per kind, with pure functions to default, prepare and validate |
//! | `cache`, `watch`, `list_body` | objects in memory, and reads and watches served from them |
//! | `object`, `table`, `response`, `body` | encoding of objects and responses |
//! | `request` | parsing of paths, queries, options and media types |
//! | `user`, `tokens` | users, and service account tokens |
//! | `policy`, `endpoint_advertiser`, `expiry` | default roles, the Service `default/kubernetes`, deletion of old events |
//! | `documents`, `discovery`, `openapi`, `health` | documents for clients, and health checks |
//! | `audit`, `metrics` | audit log and metrics |
//! | `local_client` | the same chain for clients in this process |
//! | `error`, [`limits`], `offload`, `rate_limit`, `feature_gates`, `fault_injection` | every way a request fails; what bounds its work |
//!
//! Only `verbs` and `expiry` write to the store, only `cache/feed.rs` changes a cache, and every read of current objects
//! comes from a cache.
//!
//! # One request
//!
//! `POST /api/v1/namespaces/default/configmaps`:
//!
//! 1. `listener.rs` accepts the connection and completes the TLS handshake; `peer.rs` keeps the client certificate.
//! 2. `chain.rs` ([`handle_request`]) runs the stages: `request/info.rs` parses the path, `chain/authn.rs` finds the
//!    user, `chain/flow_control.rs` waits for a seat, `chain/authz.rs` decides, `chain/route.rs` finds kind and verb.
//! 3. `verbs/create.rs` decodes the body and calls `verbs/write_path.rs`, which mutates, prepares, validates, admits and
//!    commits.
//! 4. The store calls `cache/feed.rs`, which updates the cache and wakes watchers, before it acknowledges the commit.
//! 5. `response.rs` sends the object from the cache.
//!
//! # Running a server
//!
//! The binary opens a store, fills in [`ServerOptions`] ([`Authenticator`], [`TokenSigner`], [`AuditLog`],
//! [`InflightLimits`], a metrics registry), calls [`start`], and then [`serve`] with a listener, a [`tls_config`] and a
//! [`ConnectionTracker`]. [`advertise_endpoints`] publishes the address. Controllers in the same process use a
//! [`LocalClient`], which passes the same chain without TLS.

mod audit;
mod body;
mod cache;
mod chain;
mod discovery;
mod documents;
mod endpoint_advertiser;
mod error;
mod expiry;
mod fault_injection;
mod feature_gates;
mod health;
pub mod limits;
mod list_body;
mod listener;
mod local_client;
mod metrics;
mod object;
mod offload;
mod openapi;
mod peer;
mod policy;
mod rate_limit;
mod registry;
mod request;
mod response;
mod revocation_list;
mod server;
mod table;
mod tls;
mod tokens;
mod user;
mod verbs;
mod watch;

pub use audit::{AnonymousReads, AuditLog, AuditLogMode, LogRotation};
pub use body::{Incoming, ResponseBody};
pub use chain::admission::AdmissionPlugins;
pub use chain::authn::Authenticator;
pub use chain::authn::client_cert::ClientCas;
pub use chain::authn::front_proxy::FrontProxy;
pub use chain::authn::token_file::TokenFile;
pub use chain::flow_control::InflightLimits;
pub use chain::handle_request;
pub use endpoint_advertiser::{EndpointAdvertiser, advertise_endpoints};
pub use fault_injection::{AccessCheck, FaultInjection};
pub use feature_gates::ServerFeatureGates;
pub use listener::{ConnectionDeadlines, ConnectionLimits, ConnectionTracker, serve};
pub use local_client::LocalClient;
pub use object::encode_object;
pub use peer::Peer;
pub use registry::KINDS;
pub use registry::bundles::BUNDLES_KIND;
pub use registry::carotations::CA_ROTATIONS_KIND;
pub use registry::kind::{Kind, Scope, ServedVersion};
pub use registry::ledgersegments::LEDGER_SEGMENTS_KIND;
pub use registry::nodetrusts::NODETRUSTS_KIND;
pub use registry::revocations::{REVOCATION_LISTS_KIND, REVOCATIONS_KIND};
pub use registry::signers::SIGNERS_KIND;
pub use server::{Clock, Server, ServerOptions, start, system_clock};
pub use tls::tls_config;
pub use tokens::{TokenSigner, TokenVerifier};
pub use user::{MASTERS, User};

/// Parsers of untrusted request parts, exposed for the fuzz targets only.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::request::info::RequestInfo;
    pub use crate::request::options::{DeleteOptions, ListOptions, WriteOptions};
    pub use crate::request::query::QueryParameters;
}
