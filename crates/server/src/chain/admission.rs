//! Stage: admission, for rules that depend on other objects or on the requester.
//!
//! Mutating admission runs before validation and validating admission after it, as in Kubernetes,
//! because the order decides which of two violations is reported.

// Every match is exhaustive: an unforeseen case must not slip through (CVE-2026-30836).
#![deny(clippy::wildcard_enum_match_arm)]

mod certificates;
mod escalation;
mod namespace_lifecycle;
mod node_restriction;
mod pod_certificates;
mod projections;
mod revocations;
mod service_account;
mod signer_objects;
mod signers;
mod trust_bundles;

use serde_json::Value;
use windlass_api::meta::ObjectMetaView;

use crate::error::Error;
use crate::fault_injection::AccessCheck;
use crate::verbs::RequestContext;

/// The operation to admit. If the path has a subresource, it applies to that.
#[derive(Clone, Copy)]
pub(crate) enum AdmissionOperation<'a> {
    /// Creation of an object, or a POST to a subresource.
    Create,
    /// Update of this stored object.
    Update(&'a Value),
    /// Deletion of one object or of each object in a collection.
    Delete,
}

/// Optional admission plugins that are enabled.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionPlugins {
    /// ServiceAccount: gives pods a service account and a token volume.
    pub service_account: bool,
    /// NodeRestriction: limits kubelets to their own Node and the pods bound to it.
    pub node_restriction: bool,
}

impl Default for AdmissionPlugins {
    fn default() -> AdmissionPlugins {
        AdmissionPlugins { service_account: true, node_restriction: true }
    }
}

/// Waits for objects that mutating admission needs: the service account that a controller is about
/// to create in a new namespace.
pub(crate) async fn wait_for_dependencies(call: &RequestContext<'_>, object: &Value) {
    if call.server.plugins.service_account {
        service_account::wait_for_default(call, object).await;
    }
}

/// Runs mutating admission, before validation.
pub(crate) fn mutate(
    call: &RequestContext<'_>,
    operation: AdmissionOperation<'_>,
    object: &mut Value,
) -> Result<(), Error> {
    let (plugins, faults) = (call.server.plugins, &call.server.faults);
    faults.check(AccessCheck::NamespaceLifecycle)?;
    namespace_lifecycle::admit(call, operation, object)?;
    if plugins.service_account {
        faults.check(AccessCheck::ServiceAccountAdmission)?;
        service_account::admit(call, operation, object)?;
    }
    if plugins.node_restriction {
        faults.check(AccessCheck::NodeRestriction)?;
        node_restriction::admit(call, operation, object)?;
    }
    projections::drop_disabled(call, operation, object);
    faults.check(AccessCheck::Escalation)?;
    escalation::admit(call, operation, object)
}

/// Runs validating admission, after validation.
pub(crate) fn validate(
    call: &RequestContext<'_>,
    operation: AdmissionOperation<'_>,
    object: &Value,
) -> Result<(), Error> {
    call.server.faults.check(AccessCheck::Signers)?;
    pod_certificates::admit(call, operation, object)?;
    certificates::admit(call, operation, object)?;
    trust_bundles::admit(call, operation, object)?;
    signer_objects::admit(call, operation, object)?;
    revocations::admit(call, operation, object)
}

/// Returns the name used in error messages for a new object, which may not have a name yet.
fn new_name(object: &Value) -> &str {
    let meta = ObjectMetaView::from_object(object);
    match (meta.name(), meta.generate_name()) {
        ("", "") => "Unknown",
        ("", prefix) => prefix,
        (name, _) => name,
    }
}

/// Admits a deletion; `object` is the object to delete.
pub(crate) fn delete(call: &RequestContext<'_>, object: &Value) -> Result<(), Error> {
    let (plugins, faults) = (call.server.plugins, &call.server.faults);
    faults.check(AccessCheck::NamespaceLifecycle)?;
    namespace_lifecycle::admit(call, AdmissionOperation::Delete, object)?;
    if plugins.node_restriction {
        faults.check(AccessCheck::NodeRestriction)?;
        node_restriction::admit(call, AdmissionOperation::Delete, object)?;
    }
    faults.check(AccessCheck::Signers)?;
    signer_objects::admit(call, AdmissionOperation::Delete, object)?;
    revocations::admit(call, AdmissionOperation::Delete, object)
}
