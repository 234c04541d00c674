//! Admit: the checks that have the last word on a valid object.

use serde_json::Value;

use super::WriteOperation;
use crate::chain::admission;
use crate::chain::authz::Decision;
use crate::chain::authz::attributes::{AuthorizationAttributes, AuthorizationTarget, ResourceAttributes};
use crate::error::Error;
use crate::registry::kind::Scope;
use crate::verbs::RequestContext;

/// Checks the right to create and runs validating admission.
pub(super) fn admit(
    call: &RequestContext<'_>,
    operation: WriteOperation<'_>,
    object: &Value,
) -> Result<(), Error> {
    if let WriteOperation::Create = operation {
        check_create_permission(call)?;
    }
    admission::validate(call, operation.admission(), object)
}

/// A PUT or PATCH of an object that does not exist creates it, which its caller must be allowed to as well. The
/// error is the reason alone, as in Kubernetes.
fn check_create_permission(call: &RequestContext<'_>) -> Result<(), Error> {
    let path = call.path;
    // Only PUT and PATCH name the object in the path; a POST is authorized as a create.
    if path.name.is_empty() {
        return Ok(());
    }
    let target = AuthorizationTarget::Resource(ResourceAttributes {
        group: &path.group,
        version: &path.version,
        resource: &path.resource,
        namespace: match call.kind.scope {
            Scope::Cluster => "",
            Scope::Namespaced => &path.namespace,
        },
        name: &path.name,
        ..ResourceAttributes::default()
    });
    let asked = AuthorizationAttributes { user: call.user, verb: "create", target };
    match call.server.authorizer.decide(&asked) {
        Decision::Allow(_) => Ok(()),
        Decision::Deny(why) | Decision::NoOpinion(why) => {
            Err(Error::Forbidden(call.subject(&path.name), why))
        }
    }
}
