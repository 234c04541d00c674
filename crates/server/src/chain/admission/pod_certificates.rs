//! Who may sign a pod certificate request. Kubernetes reports this as a validation error, and so
//! does this.

use serde_json::Value;
use windlass_api::field::{FieldErrors, FieldPath, quote};

use super::AdmissionOperation;
use super::signers::{SignerAction, permits};
use crate::error::Error;
use crate::registry::object_fields::text;
use crate::verbs::RequestContext;

/// Rejects updates by callers who may not sign.
pub(super) fn admit(
    call: &RequestContext<'_>,
    operation: AdmissionOperation<'_>,
    request: &Value,
) -> Result<(), Error> {
    if (call.served.group, call.kind.plural) != ("certificates.k8s.io", "podcertificaterequests") {
        return Ok(());
    }
    let AdmissionOperation::Update(old) = operation else { return Ok(()) };
    if call.path.subresource != "status" || old.get("status") == request.get("status") {
        return Ok(());
    }
    let signer = text(old, "/spec/signerName");
    if permits(call, SignerAction::Sign, signer) {
        return Ok(());
    }
    let mut errors = FieldErrors::new();
    let (user, signer) = (quote(&call.user.name), quote(signer));
    let why = format!("User {user} is not permitted to \"sign\" for signer {signer}");
    errors.forbidden(&FieldPath::new("spec").child("signerName"), &why);
    Err(call.invalid(&call.path.name, errors))
}
