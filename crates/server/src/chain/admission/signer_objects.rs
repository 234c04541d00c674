//! Who may write Signers and CARotations, and that no two Signers have the same name.
//!
//! Whoever configures a signer or replaces its CA decides what it signs and which anchors it publishes,
//! so writing these objects takes the rights to sign and to attest for it. The status belongs to the
//! controllers.

use serde_json::Value;
use windlass_api::field::{FieldErrors, FieldPath, quote};

use super::signers::{SignerAction, permits};
use super::{AdmissionOperation, new_name};
use crate::cache::WalkAction;
use crate::error::Error;
use crate::registry::object_fields::text;
use crate::verbs::RequestContext;

/// Rejects writes of Signers and CARotations for whose signer the caller may not sign and attest, and
/// second Signers for a signer.
pub(super) fn admit(
    call: &RequestContext<'_>,
    operation: AdmissionOperation<'_>,
    object: &Value,
) -> Result<(), Error> {
    let is_signer = match (call.served.group, call.kind.plural) {
        ("windlass.dev", "signers") => true,
        ("windlass.dev", "carotations") => false,
        _ => return Ok(()),
    };
    if !call.path.subresource.is_empty() {
        return Ok(());
    }
    check_rights(call, object)?;
    match operation {
        AdmissionOperation::Create if is_signer => check_unique(call, object),
        AdmissionOperation::Create => Ok(()),
        // The stored name counts as well, whatever validation thinks of the new one.
        AdmissionOperation::Update(old) => check_rights(call, old),
        AdmissionOperation::Delete => Ok(()),
    }
}

fn check_rights(call: &RequestContext<'_>, object: &Value) -> Result<(), Error> {
    let signer_name = text(object, "/spec/signerName");
    for action in [SignerAction::Sign, SignerAction::Attest] {
        if !permits(call, action, signer_name) {
            let name = if call.path.name.is_empty() { new_name(object) } else { &call.path.name };
            let verb = action.verb();
            let why = format!("user not permitted to {verb} for signerName {}", quote(signer_name));
            return Err(Error::Forbidden(call.subject(name), why));
        }
    }
    Ok(())
}

/// The write path serializes the creation of Signers on this server, so of two at once the second is
/// rejected. Servers on a shared store can race; the controllers then ignore the younger Signer.
fn check_unique(call: &RequestContext<'_>, signer: &Value) -> Result<(), Error> {
    let signer_name = text(signer, "/spec/signerName");
    let others = call.cache()?.snapshot("", None, |_| WalkAction::Include).objects;
    if others.iter().all(|other| text(&other.stored_value(), "/spec/signerName") != signer_name) {
        return Ok(());
    }
    let mut errors = FieldErrors::new();
    errors.duplicate(&FieldPath::new("spec").child("signerName"), &Value::from(signer_name));
    Err(call.invalid(new_name(signer), errors))
}
