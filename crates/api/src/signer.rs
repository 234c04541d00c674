//! `Signer` of `windlass.dev/v1alpha1`: the CA of a custom signer, which requests it signs, and what
//! the controllers report about it.
//!
//! - [`SignerSpec`], [`SignerStatus`]: what a controller reads and writes.
//! - [`validate`], [`validate_update`], [`validate_status`]: what a server checks before it stores one.
//!   The syntax of name patterns is checked by the controllers, which report it in the condition
//!   [`READY`].
//! - [`RESOURCE`]: its names, and its CustomResourceDefinition.
//!
//! The fields and their limits are defined in `schema/windlass.v1alpha1.schema`, whose head says how
//! to add one.

mod types;
mod validation;

pub use types::{AuthorityState, SignerAuthority, SignerSpec, SignerStatus};
pub use validation::{validate, validate_status, validate_update};

use crate::custom_resource::CustomResource;

/// The names of Signer and its type in the schema.
pub const RESOURCE: CustomResource = CustomResource {
    group: "windlass.dev",
    version: "v1alpha1",
    api_version: "windlass.dev/v1alpha1",
    kind: "Signer",
    plural: "signers",
    singular: "signer",
    short_names: &[],
    list_kind_override: "",
    type_name: "dev.windlass.v1alpha1.Signer",
    has_status_subresource: true,
};

/// Condition of a signer whose CA is usable and whose configuration is valid.
pub const READY: &str = "Ready";
/// Condition of a signer whose CA certificate expires soon.
pub const CA_EXPIRING: &str = "CAExpiring";
/// Condition of a signer whose trust anchors are in their ClusterTrustBundle.
pub const PUBLISHED: &str = "Published";
/// Condition of a signer whose CA has a current certificate revocation list.
pub const CRL_PUBLISHED: &str = "CRLPublished";
/// What distribution points have in place of the id of the CA.
pub const AUTHORITY_PLACEHOLDER: &str = "{authority}";
/// Maximum number of entries of `status.authorities`.
pub const MAX_AUTHORITIES: usize = 32;
/// The label of published bundles that the controllers set, so `publish.labels` may not.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";

#[cfg(test)]
mod tests;
