//! Who may decide on a pod certificate request. Kubernetes checks it as a rule on the object, so it is told as one.

use serde_json::Value;
use windlass_api::field::{Errors, Path, quote};

use super::Operation;
use super::signers::{Act, permits};
use crate::error::Error;
use crate::registry::parts::text;
use crate::verbs::Call;

/// Refuses what the rule forbids.
pub fn admit(call: &Call<'_>, operation: Operation<'_>, request: &Value) -> Result<(), Error> {
    if (call.served.group, call.kind.plural) != ("certificates.k8s.io", "podcertificaterequests") {
        return Ok(());
    }
    let Operation::Update(old) = operation else { return Ok(()) };
    if call.path.subresource != "status" || old.get("status") == request.get("status") {
        return Ok(());
    }
    let signer = text(old, "/spec/signerName");
    if permits(call, Act::Sign, signer) {
        return Ok(());
    }
    let mut errors = Errors::new();
    let (user, signer) = (quote(&call.user.name), quote(signer));
    let why = format!("User {user} is not permitted to \"sign\" for signer {signer}");
    errors.forbidden(&Path::new("spec").child("signerName"), &why);
    Err(call.invalid(&call.path.name, errors))
}
