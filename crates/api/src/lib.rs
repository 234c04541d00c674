//! The wire format of API objects and the rules they must meet, as pure functions.
//!
//! A request body passes through these modules in this order:
//!
//! ```text
//! bytes ─ decode ─▶ Value ─ normal_form ─▶ Value in canonical form ─ patch / apply ─▶ new Value
//!                     │                      │
//!                  protobuf               schema: one table of types drives all of these,
//!                                         and the OpenAPI documents
//! ```
//!
//! - [`decode`]: JSON, YAML and protobuf bodies, within [`limits`].
//! - [`schema`]: the tables under `schema/`; [`normal_form`]: the form in which objects are compared
//!   and stored.
//! - [`patch`]: JSON, merge and strategic merge patches; [`apply`]: server-side apply, managed fields.
//! - [`trust_bundle`] (Bundle), [`node_trust`] (NodeTrust), [`signer`] (Signer), [`ca_rotation`]
//!   (CARotation), [`ledger_segment`] (LedgerSegment), [`revocation`] (CertificateRevocation,
//!   CertificateRevocationList): kinds beyond Kubernetes' own, with Rust types; [`custom_resource`]: their CustomResourceDefinitions for other API servers.
//! - [`meta`], [`names`], [`selector`], [`conditions`], [`signer_name`]: rules on parts of objects.
//! - [`quantity`], [`duration`], [`timestamp`], [`age`]: how amounts and times are written.
//! - [`field`], [`status`]: how errors are reported.
//!
//! Nothing here does I/O, reads a clock or parses X.509: the server's registry combines these rules
//! with `windlass-pki`.
//!
//! ```
//! use serde_json::json;
//! use windlass_api::trust_bundle;
//!
//! let bundle = json!({"metadata": {"name": "roots"}, "spec": {"sources": []}});
//! let errors = trust_bundle::validate(&bundle);
//! assert_eq!(
//!     errors.joined(),
//!     "spec.sources: Invalid value: 0: spec.sources in body should have at least 1 items"
//! );
//! ```

pub mod age;
pub mod apply;
pub mod ca_rotation;
pub mod conditions;
pub mod custom_resource;
pub mod decode;
pub mod duration;
pub mod field;
pub mod ledger_segment;
pub mod limits;
pub mod meta;
pub mod names;
pub mod node_trust;
pub mod normal_form;
pub mod patch;
pub mod quantity;
pub mod revocation;
pub mod schema;
pub mod selector;
pub mod signer;
pub mod signer_name;
pub mod status;
pub mod timestamp;
pub mod trust_bundle;
