//! Stage: rules that need more than the object itself: other objects, or who asks.
//!
//! Mutating admission runs before validation, validating admission after it, as in Kubernetes; which
//! of two broken rules a client hears of depends on that.

// Every case is decided: one that nobody thought of must not slip through (CVE-2026-30836).
#![deny(clippy::wildcard_enum_match_arm)]

mod certificates;
mod escalation;
mod namespace_lifecycle;
mod node_restriction;
mod pod_certificates;
mod projections;
mod service_account;
mod signers;
mod trust_bundles;

use serde_json::Value;
use windlass_api::meta::ObjectMetaView;

use crate::error::Error;
use crate::fault_injection::AccessCheck;
use crate::verbs::RequestContext;

/// What is being done. With a subresource in the call's path it is done to that.
#[derive(Clone, Copy)]
pub(crate) enum AdmissionOperation<'a> {
    /// A new object, or a POST to a subresource.
    Create,
    /// A change of this object.
    Update(&'a Value),
    /// Deletion of one object or of each object in a collection.
    Delete,
}

/// Which of the plugins that can be turned off are on.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionPlugins {
    /// Gives pods an account and a token.
    pub service_account: bool,
    /// NodeRestriction: limits kubelets to their own Node and the pods bound to it.
    pub node_restriction: bool,
}

impl Default for AdmissionPlugins {
    fn default() -> AdmissionPlugins {
        AdmissionPlugins { service_account: true, node_restriction: true }
    }
}

/// Waits for what mutating admission needs to find: the account that a controller is about to make
/// for a new namespace.
pub(crate) async fn wait_for_dependencies(call: &RequestContext<'_>, object: &Value) {
    if call.server.plugins.service_account {
        service_account::wait_for_default(call, object).await;
    }
}

/// The rules that come before validation and may change the object.
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

/// The rules that come after validation.
pub(crate) fn validate(
    call: &RequestContext<'_>,
    operation: AdmissionOperation<'_>,
    object: &Value,
) -> Result<(), Error> {
    call.server.faults.check(AccessCheck::Signers)?;
    pod_certificates::admit(call, operation, object)?;
    certificates::admit(call, operation, object)?;
    trust_bundles::admit(call, operation, object)
}

/// How a refusal calls an object that is being made and may not have a name yet.
fn new_name(object: &Value) -> &str {
    let meta = ObjectMetaView::from_object(object);
    match (meta.name(), meta.generate_name()) {
        ("", "") => "Unknown",
        ("", prefix) => prefix,
        (name, _) => name,
    }
}

/// The rules on a deletion; `object` is what goes.
pub(crate) fn delete(call: &RequestContext<'_>, object: &Value) -> Result<(), Error> {
    let (plugins, faults) = (call.server.plugins, &call.server.faults);
    faults.check(AccessCheck::NamespaceLifecycle)?;
    namespace_lifecycle::admit(call, AdmissionOperation::Delete, object)?;
    if plugins.node_restriction {
        faults.check(AccessCheck::NodeRestriction)?;
        node_restriction::admit(call, AdmissionOperation::Delete, object)?;
    }
    Ok(())
}
