//! `CARotation` of `windlass.dev/v1alpha1`: the replacement of a signer's CA, and its progress.
//!
//! - [`CaRotationSpec`], [`CaRotationStatus`]: what a controller reads and writes.
//! - [`validate`], [`validate_update`], [`validate_status`]: what a server checks before it stores one.
//!   That only one rotation per signer runs is decided by the controllers, because servers on a shared
//!   store cannot check it without a race.
//! - [`RESOURCE`]: its names, and its CustomResourceDefinition.
//!
//! The fields and their limits are defined in `schema/windlass.v1alpha1.schema`, whose head says how
//! to add one.

mod types;
mod validation;

pub use types::{
    CaRotationAuthority, CaRotationCanary, CaRotationConsumers, CaRotationLaggard, CaRotationLeaves,
    CaRotationRetirement, CaRotationSpec, CaRotationStatus, CaRotationStep, HeldReason, LaggardKind,
    LaggardReason, RotationPhase, RotationTrigger,
};
pub use validation::{validate, validate_status, validate_update};

use std::time::Duration;

use crate::custom_resource::CustomResource;

/// The names of CARotation and its type in the schema.
pub const RESOURCE: CustomResource = CustomResource {
    group: "windlass.dev",
    version: "v1alpha1",
    api_version: "windlass.dev/v1alpha1",
    kind: "CARotation",
    plural: "carotations",
    singular: "carotation",
    short_names: &["car"],
    list_kind_override: "",
    type_name: "dev.windlass.v1alpha1.CARotation",
    has_status_subresource: true,
};

/// Condition of a rotation that waits; its reason is a [`HeldReason`].
pub const HELD: &str = "Held";
/// Condition of a rotation that has ended; `True` only if the old authority was replaced.
pub const COMPLETE: &str = "Complete";
/// Reason of [`COMPLETE`] on a rotation that failed because an older one of the same signer runs.
pub const ANOTHER_ROTATION: &str = "AnotherRotation";

/// `canary.soakTime` if absent.
pub const DEFAULT_SOAK_TIME: Duration = Duration::from_secs(10 * 60);
/// `renewalWindow` if absent.
pub const DEFAULT_RENEWAL_WINDOW: Duration = Duration::from_secs(10 * 60);
/// `retirement.keyRetention` if absent.
pub const DEFAULT_KEY_RETENTION: Duration = Duration::from_secs(168 * 60 * 60);

/// Maximum number of entries of `status.laggards`.
pub const MAX_LAGGARDS: usize = 100;
/// Maximum number of entries of `status.steps`.
pub const MAX_STEPS: usize = 64;
/// Maximum number of entries of `status.steps[].waitedFor`.
pub const MAX_WAITED_FOR: usize = 20;

#[cfg(test)]
mod tests;
