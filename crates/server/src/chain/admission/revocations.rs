//! Who may revoke certificates, and when a revocation may be deleted.

use std::collections::BTreeSet;

use serde_json::Value;
use windlass_api::field::quote;
use windlass_api::revocation::CERTIFICATE_HOLD;
use windlass_api::signer_name::is_kubernetes;
use windlass_api::timestamp;

use super::signers::{SignerAction, permits};
use super::{AdmissionOperation, new_name};
use crate::cache::WalkAction;
use crate::error::Error;
use crate::registry::object_fields::{list, text};
use crate::registry::signers::SIGNERS_KIND;
use crate::verbs::RequestContext;

/// Rejects writes of revocations for signers that the caller may not sign for, and deletions that would make a
/// certificate valid again although its revocation is final.
pub(super) fn admit(
    call: &RequestContext<'_>,
    operation: AdmissionOperation<'_>,
    revocation: &Value,
) -> Result<(), Error> {
    if (call.served.group, call.kind.plural) != ("windlass.dev", "certificaterevocations")
        || !call.path.subresource.is_empty()
    {
        return Ok(());
    }
    match operation {
        AdmissionOperation::Create => {
            check_right(call, revocation)?;
            check_authority(call, revocation)
        }
        // The spec is immutable, but an owner reference is enough to have the garbage collector delete a
        // hold.
        AdmissionOperation::Update(_) => check_right(call, revocation),
        AdmissionOperation::Delete => check_deletion(call, revocation),
    }
}

fn check_right(call: &RequestContext<'_>, revocation: &Value) -> Result<(), Error> {
    let signer_name = text(revocation, "/spec/signerName");
    if permits(call, SignerAction::Sign, signer_name) {
        return Ok(());
    }
    Err(refusal(
        call,
        revocation,
        format!("user not permitted to sign for signerName {}", quote(signer_name)),
    ))
}

/// Without this check, whoever may sign for one signer could revoke the certificates of another, or
/// lock every client out of this server. The status of a Signer takes no right to sign, so an authority
/// that several Signers list, by sharing a CA or by a forged status, takes the right for all of them.
fn check_authority(call: &RequestContext<'_>, revocation: &Value) -> Result<(), Error> {
    let (id, signer_name) = (text(revocation, "/spec/authorityID"), text(revocation, "/spec/signerName"));
    let cache = call.server.caches.for_kind(&SIGNERS_KIND);
    let signers = cache.map(|cache| cache.snapshot("", None, |_| WalkAction::Include).objects);
    let (mut is_own, mut others) = (false, BTreeSet::new());
    for signer in signers.unwrap_or_default() {
        let signer = signer.stored_value();
        if list(&signer, "/status/authorities").iter().any(|authority| text(authority, "/id") == id) {
            match text(&signer, "/spec/signerName") {
                own if own == signer_name => is_own = true,
                other => drop(others.insert(other.to_owned())),
            }
        }
    }
    let clients = call.server.authenticator.client_cas.load();
    let is_of_clients = clients.has_authority(id) && !is_kubernetes(signer_name);
    if !is_own && (!others.is_empty() || is_of_clients) {
        let why = format!("authority {id} does not belong to signerName {}", quote(signer_name));
        return Err(refusal(call, revocation, why));
    }
    match others.iter().find(|other| !permits(call, SignerAction::Sign, other)) {
        Some(other) => {
            let why = format!(
                "authority {id} is also used by signerName {}, for which the user is not permitted to sign",
                quote(other)
            );
            Err(refusal(call, revocation, why))
        }
        None => Ok(()),
    }
}

fn check_deletion(call: &RequestContext<'_>, revocation: &Value) -> Result<(), Error> {
    let not_after = text(revocation, "/spec/notAfter");
    if timestamp::parse(not_after).is_ok_and(|expiry| expiry <= call.now) {
        return Ok(());
    }
    if text(revocation, "/spec/reason") == CERTIFICATE_HOLD {
        return check_right(call, revocation);
    }
    let why = format!(
        "revocation is final until the certificate expires at {not_after}; only {CERTIFICATE_HOLD} can be undone"
    );
    Err(refusal(call, revocation, why))
}

fn refusal(call: &RequestContext<'_>, revocation: &Value, why: String) -> Error {
    let name = if call.path.name.is_empty() { new_name(revocation) } else { &call.path.name };
    Error::Forbidden(call.subject(name), why)
}
