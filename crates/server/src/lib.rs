//! The API server: TLS in, Kubernetes' wire out, a store behind. It never signs a certificate.
//!
//! A request meets the parts in this order:
//!
//! ```text
//! listen ─ tls ─▶ chain ─ request (path, query, negotiation)
//!                   │     authn ─ authz ─ route
//!                   ▼
//!                 verbs ─ decode ─ admission ─ registry (a kind's own rules) ─▶ store
//!                   ▲                                                            │ feed
//!                 watch ◀──────────────── cache (objects, recent changes) ◀──────┘
//! ```
//!
//! - `response`, `body`, `table`, `object`: how answers are written, and objects encoded.
//! - `documents` serves `discovery` and `openapi`; `health` and `metrics` are for operators.
//! - `user`, `peer`, `tokens`: who calls, from where, and the tokens that service accounts get.
//! - `policy`: the roles and bindings that there are from the start.
//! - `endpoint_advertiser`: the Service `default/kubernetes`, through which clients find the servers.
//! - `audit`: every request written down, once.
//! - `local_client`: the same chain for clients in this process; `expiry`: events go after an hour.
//! - `server` is what the parts share; `feature_gates` and `limits` what bounds them (`rate_limit`); `error` is every
//!   way in which a request ends badly, and how it is told.
//!
//! Only `verbs` writes to the store, only the store's feed writes to the cache, and every read
//! comes from the cache.

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
pub use chain::handle as handle_request;
pub use endpoint_advertiser::{EndpointAdvertiser, run as advertise_endpoints};
pub use fault_injection::{AccessCheck, FaultInjection};
pub use feature_gates::ServerFeatureGates;
pub use listener::{ConnectionDeadlines, ConnectionLimits, ConnectionTracker, serve};
pub use local_client::LocalClient;
pub use metrics::MetricsSource;
pub use object::encode as encode_object;
pub use peer::Peer;
pub use registry::KINDS;
pub use registry::bundles::KIND as BUNDLES_KIND;
pub use registry::kind::{Kind, Scope, ServedVersion};
pub use registry::nodetrusts::KIND as NODETRUSTS_KIND;
pub use server::{Clock, Server, ServerOptions, start, system_clock};
pub use tls::config as tls_config;
pub use tokens::{TokenSigner, TokenVerifier};
pub use user::{MASTERS, User};

/// Parsers of untrusted request parts, exposed for the fuzz targets only.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::request::info::RequestInfo;
    pub use crate::request::options::{DeleteOptions, ListOptions, WriteOptions};
    pub use crate::request::query::QueryParameters;
}
