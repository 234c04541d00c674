//! The wire contract: what an object looks like and which rules it must meet, as pure functions.
//!
//! In the order in which a request body meets them:
//!
//! ```text
//! bytes ─ decode ─▶ Value ─ normal ─▶ Value in canonical form ─ patch / apply ─▶ new Value
//!                     │                      │
//!                  protobuf               schema: one table of types drives all of these,
//!                                         and the OpenAPI documents
//! ```
//!
//! - [`decode`]: JSON, YAML and protobuf bodies, within [`limits`].
//! - [`schema`]: the tables; [`normal_form`]: the one form in which objects are compared and stored.
//! - [`patch`]: JSON, merge and strategic merge patches; [`apply`]: server-side apply, managed fields.
//! - [`trust_bundle`]: the kind of trust-manager.
//! - [`meta`], [`names`], [`selector`], [`conditions`], [`signer_name`]: the rules on parts.
//! - [`quantity`], [`duration`], [`timestamp`], [`age`]: how amounts and times are written.
//! - [`field`], [`status`]: how a broken rule is told.
//!
//! Nothing here does I/O, reads a clock or parses X.509: the server's registry joins these rules
//! with `pki`.

pub mod age;
pub mod apply;
pub mod conditions;
pub mod decode;
pub mod duration;
pub mod field;
pub mod limits;
pub mod meta;
pub mod names;
pub mod normal_form;
pub mod patch;
pub mod quantity;
pub mod schema;
pub mod selector;
pub mod signer_name;
pub mod status;
pub mod timestamp;
pub mod trust_bundle;
