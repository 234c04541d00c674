//! `Bundle` of `trust.cert-manager.io/v1alpha1`: trust-manager's kind, and what we add to it.
//!
//! - [`Bundle`] and its parts: what a controller reads and writes.
//! - [`validate`]: what a server checks before it stores one. First the schema with its rules, then,
//!   if that holds, the rules of trust-manager's webhook, each in trust-manager's words.
//! - [`RESOURCE`]: its names, and its CustomResourceDefinition.
//!
//! The fields, their limits, defaults and rules are defined in `schema/trust.v1alpha1.schema`, whose
//! head says how to add one. The structs here are written by hand, because generating them would
//! need a build script; a test compares each of them field by field with the schema.
//!
//! Beyond trust-manager: a source may be `optional`; sources and the target may be
//! ClusterTrustBundles; the status reports the result of each source; names that do not fit into a
//! label are refused, and so are keys that no ConfigMap can have.

mod types;
mod validation;

pub use types::{
    AdditionalFormats, Bundle, BundleCondition, BundleMeta, BundleSource, BundleSpec, BundleStatus,
    BundleTarget, JksKeystore, MAX_STATUS_BUNDLES, ObjectSource, Pkcs12Keystore, SourceStatus,
    SourceStatusBundle, StorePassword, TargetMetadata, TargetTemplate, TrustBundleSource,
    TrustBundleTemplate,
};
pub use validation::{
    RESERVED_NAMES, is_reserved_name, validate, validate_new, validate_rules, validate_schema,
};

use serde_json::Value;

use crate::custom_resource::CustomResource;
use crate::schema::Schema;

/// The names of Bundle and its type in the schema.
pub const RESOURCE: CustomResource = CustomResource {
    group: GROUP,
    version: VERSION,
    api_version: API_VERSION,
    kind: KIND,
    plural: PLURAL,
    singular: "bundle",
    short_names: &[],
    list_kind_override: "",
    type_name: "io.cert-manager.trust.v1alpha1.Bundle",
    has_status_subresource: true,
};

/// API group of trust-manager's Bundle resource.
pub const GROUP: &str = "trust.cert-manager.io";
/// The only supported version of the API group.
pub const VERSION: &str = "v1alpha1";
/// Group and version, as in `apiVersion`.
pub const API_VERSION: &str = "trust.cert-manager.io/v1alpha1";
/// Kind of the resource, as in `kind`.
pub const KIND: &str = "Bundle";
/// Plural resource name, as in URLs and RBAC rules.
pub const PLURAL: &str = "bundles";
/// The label of targets; its value is the name of their Bundle.
pub const BUNDLE_LABEL: &str = "trust.cert-manager.io/bundle";
/// The annotation of targets with the hash of what they were written from.
pub const HASH_ANNOTATION: &str = "trust.cert-manager.io/hash";
/// The field manager under which targets and the status are applied.
pub const FIELD_MANAGER: &str = "trust-manager";
/// The condition of a Bundle whose targets are up to date.
pub const SYNCED: &str = "Synced";
/// The default password of a JKS store: Java's own.
pub const JKS_PASSWORD: &str = "changeit";

/// Sets the defaults of the schema on fields that are absent.
pub fn set_defaults(object: &mut Value) {
    Schema::get().set_defaults(RESOURCE.type_id(), object);
}

#[cfg(test)]
mod tests;
