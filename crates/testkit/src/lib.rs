//! What tests and benchmarks share. Only dev-dependencies and `xtask` may name this crate: it must never be part of
//! the binary.
//!
//! | for | start at |
//! |---|---|
//! | the API server in this process, without a socket | [`TestServer`] |
//! | controllers and agents against a server whose answers and faults a test chooses | [`ScriptedApi`], [`scripted_client`] |
//! | HTTPS over a socket | [`HttpClient`] |
//! | the `windlass` program as a process | [`ServerDataDir`], [`ServerProcess`], [`ChildProcess`] |
//! | real etcd processes | [`etcd::EtcdCluster`] |
//! | PKCS#11 tokens of SoftHSM | [`SoftHsm`] |
//! | CAs, certificates | [`self_signed_ca`], [`write_ca`], [`CertificateFixture`] |
//! | a ledger with known contents | [`ledger_segment`] |
//! | typed objects, and waiting for them | [`object`], [`create`], [`wait_until`] |
//! | waiting for anything else | [`wait_for`], [`poll_until`], [`retry`] and their async forms |
//!
//! Unit tests inside `windlass-server` and `windlass-store` see a second instance of their own crate's types behind this
//! crate, so they use only the parts that do not show those types.

#![allow(clippy::unwrap_used, reason = "a fixture fails by panicking")]

pub mod etcd;
mod http_client;
mod ledger;
mod objects;
mod pki;
mod polling;
mod process;
mod request;
mod scripted_api;
mod server;
mod softhsm;

pub use http_client::{HttpClient, HttpConnection, HttpProtocol, WatchStream};
pub use ledger::ledger_segment;
pub use objects::{
    MAPS, PODS, config_map, create, names, object, owner_reference, pod, version, wait_until,
    wait_until_removed,
};
pub use pki::{
    AUTHORITY, CertificateFixture, START, ca_with_validity, leaf_template, random_serial, self_signed_ca,
    write_ca,
};
pub use polling::{PATIENCE, poll_until, poll_until_async, retry, retry_async, wait_for, wait_for_async};
pub use process::{
    ADMIN_TOKEN, ChildProcess, ServerDataDir, ServerProcess, free_address, read_lines, wait_for_exit,
};
pub use request::{TestRequest, TestResponse, TestWatch, brief};
pub use scripted_api::{ApiCall, InjectedFault, ScriptedApi, Signer, SigningPolicy, scripted_client};
pub use server::{ISSUER, TOKENS, TestServer, TestServerBuilder};
pub use softhsm::{PIN, SoftHsm};
