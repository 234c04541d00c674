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
//! - [`response`], [`body`], [`table`], [`object`]: how answers are written, and objects encoded.
//! - [`documents`] serves [`discovery`] and [`openapi`]; [`health`] and [`metrics`] are for operators.
//! - [`user`], [`peer`], [`tokens`]: who calls, from where, and the tokens that service accounts get.
//! - [`policy`]: the roles and bindings that there are from the start.
//! - [`endpoint_advertiser`]: the Service `default/kubernetes`, through which clients find the servers.
//! - [`audit`]: every request written down, once.
//! - [`local_client`]: the same chain for clients in this process; [`expiry`]: events go after an hour.
//! - [`server`] is what the parts share; [`feature_gates`] and [`limits`] what bounds them ([`rate_limit`]); [`error`] is every
//!   way in which a request ends badly, and how it is told.
//!
//! Only `verbs` writes to the store, only the store's feed writes to the cache, and every read
//! comes from the cache.

pub mod audit;
pub mod body;
pub mod cache;
pub mod chain;
pub mod discovery;
pub mod documents;
pub mod endpoint_advertiser;
pub mod error;
pub mod expiry;
pub mod fault_injection;
pub mod feature_gates;
pub mod health;
pub mod limits;
pub mod list_body;
pub mod listener;
pub mod local_client;
pub mod metrics;
pub mod object;
pub mod offload;
pub mod openapi;
pub mod peer;
pub mod policy;
pub mod rate_limit;
pub mod registry;
pub mod request;
pub mod response;
pub mod server;
pub mod table;
pub mod tls;
pub mod tokens;
pub mod user;
pub mod verbs;
pub mod watch;
