//! Who may write Signers, and that no two have the same name.
//!
//! Whoever configures a signer decides what it signs and which anchors it publishes, so writing its
//! object takes the rights to sign and to attest for it. The status belongs to the controllers.

use serde_json::Value;
use windlass_api::field::{FieldErrors, FieldPath, quote};

use super::signers::{SignerAction, permits};
use super::{AdmissionOperation, new_name};
use crate::cache::WalkAction;
use crate::error::Error;
use crate::registry::object_fields::text;
use crate::verbs::RequestContext;

/// Rejects writes of Signers for whose signer the caller may not sign and attest, and second Signers
/// for a signer.
pub(super) fn admit(
    call: &RequestContext<'_>,
    operation: AdmissionOperation<'_>,
    signer: &Value,
) -> Result<(), Error> {
    if (call.served.group, call.kind.plural) != ("windlass.dev", "signers")
        || !call.path.subresource.is_empty()
    {
        return Ok(());
    }
    check_rights(call, signer)?;
    match operation {
        AdmissionOperation::Create => check_unique(call, signer),
        // The stored name counts as well, whatever validation thinks of the new one.
        AdmissionOperation::Update(old) => check_rights(call, old),
        AdmissionOperation::Delete => Ok(()),
    }
}

fn check_rights(call: &RequestContext<'_>, signer: &Value) -> Result<(), Error> {
    let signer_name = text(signer, "/spec/signerName");
    for action in [SignerAction::Sign, SignerAction::Attest] {
        if !permits(call, action, signer_name) {
            let name = if call.path.name.is_empty() { new_name(signer) } else { &call.path.name };
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
