//! CertificateApproval, CertificateSigning and CertificateSubjectRestriction: who may approve or
//! sign a certificate signing request, and which subjects may not be requested.

use serde_json::Value;
use windlass_api::field::quote;

use super::signers::{SignerAction, permits};
use super::{AdmissionOperation, new_name};
use crate::error::Error;
use crate::registry::object_fields::text;
use crate::user::MASTERS;
use crate::verbs::RequestContext;

/// The signer whose certificates authenticate to the API as any user they name.
const API_CLIENTS: &str = "kubernetes.io/kube-apiserver-client";

/// Rejects requests that violate these rules.
pub(super) fn admit(
    call: &RequestContext<'_>,
    operation: AdmissionOperation<'_>,
    request: &Value,
) -> Result<(), Error> {
    if (call.served.group, call.kind.plural) != ("certificates.k8s.io", "certificatesigningrequests") {
        return Ok(());
    }
    match (operation, call.path.subresource.as_str()) {
        (AdmissionOperation::Update(old), "approval") => decide(call, SignerAction::Approve, old),
        (AdmissionOperation::Update(old), "status") if is_signed(old, request) => {
            decide(call, SignerAction::Sign, old)
        }
        (AdmissionOperation::Create, "") => no_masters(call, request),
        (AdmissionOperation::Create | AdmissionOperation::Update(_) | AdmissionOperation::Delete, _) => {
            Ok(())
        }
    }
}

/// The stored request determines the signer, whatever the update says.
fn decide(call: &RequestContext<'_>, act: SignerAction, old: &Value) -> Result<(), Error> {
    let signer = text(old, "/spec/signerName");
    if permits(call, act, signer) {
        return Ok(());
    }
    let (verb, signer) = (act.verb(), quote(signer));
    let why = format!("user not permitted to {verb} requests with signerName {signer}");
    Err(Error::Forbidden(call.subject(&call.path.name), why))
}

fn is_signed(old: &Value, new: &Value) -> bool {
    let certificate = |request: &Value| text(request, "/status/certificate").to_owned();
    let conditions = |request: &Value| request.pointer("/status/conditions").cloned();
    certificate(old) != certificate(new) || conditions(old) != conditions(new)
}

fn no_masters(call: &RequestContext<'_>, request: &Value) -> Result<(), Error> {
    if text(request, "/spec/signerName") != API_CLIENTS {
        return Ok(());
    }
    let refuse = |why: String| Err(Error::Forbidden(call.subject(new_name(request)), why));
    // Validation rejects what cannot be parsed; if it did not, this does.
    let parsed = call.csr.parse(request);
    let asked = match &*parsed {
        Ok(asked) => asked,
        Err(error) => return refuse(format!("failed to parse CSR: {error}")),
    };
    if asked.subject().organizations().contains(&MASTERS) {
        return refuse(format!("use of {API_CLIENTS} signer with {MASTERS} group is not allowed"));
    }
    Ok(())
}
