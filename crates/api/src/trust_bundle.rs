//! `Bundle` of `trust.cert-manager.io/v1alpha1`: trust-manager's kind, and what we add to it.
//!
//! - [`Bundle`] and its parts: what a controller reads and writes.
//! - [`validate`]: what a server checks before it stores one. First the schema with its rules, then,
//!   if that holds, what trust-manager's webhook says, each in trust-manager's words.
//! - [`set_defaults`] and [`custom_resource_definition`]: the rest of the schema, from the same table.
//!
//! Beyond trust-manager: a source may be `optional`; sources and the target may be
//! ClusterTrustBundles; the status says what each source gave; names that do not fit into a label
//! are refused, and so are keys that no ConfigMap can have.

mod descriptions;
mod property_schema;
mod schema;
mod types;
mod validation;

pub use schema::{custom_resource_definition, set_defaults, validate_schema};
pub use types::{
    AdditionalFormats, Bundle, BundleCondition, BundleMeta, BundleSource, BundleSpec, BundleStatus,
    BundleTarget, JksKeystore, ObjectSource, Pkcs12Keystore, SourceStatus, StorePassword,
    TargetMetadata, TargetTemplate, TrustBundleSource, TrustBundleTemplate,
};
pub use validation::{RESERVED_NAMES, is_reserved_name, validate, validate_new, validate_rules};

/// API group of trust-manager's Bundle resource.
pub const GROUP: &str = "trust.cert-manager.io";
/// The only supported version of the API group.
pub const VERSION: &str = "v1alpha1";
/// Group and version, as objects say it.
pub const API_VERSION: &str = "trust.cert-manager.io/v1alpha1";
/// Kind of the resource, as in `kind`.
pub const KIND: &str = "Bundle";
/// Plural resource name, as in URLs and RBAC rules.
pub const PLURAL: &str = "bundles";
/// The label of targets; its value is the name of their Bundle.
pub const BUNDLE_LABEL: &str = "trust.cert-manager.io/bundle";
/// The annotation of targets that tells what they were made from.
pub const HASH_ANNOTATION: &str = "trust.cert-manager.io/hash";
/// What targets and the status are written under.
pub const FIELD_MANAGER: &str = "trust-manager";
/// The condition of a Bundle that its targets are as they should be.
pub const SYNCED: &str = "Synced";
/// The password of a JKS store if none is given: what Java uses.
pub const JKS_PASSWORD: &str = "changeit";

#[cfg(test)]
mod tests;
