//! ClusterTrustBundleAttest: who may publish trust anchors of a signer.

use serde_json::Value;
use windlass_api::field::quote;

use super::signers::{SignerAction, permits};
use super::{AdmissionOperation, new_name};
use crate::error::Error;
use crate::registry::object_fields::text;
use crate::verbs::RequestContext;

/// Rejects bundles of signers that the caller may not attest.
pub(super) fn admit(
    call: &RequestContext<'_>,
    operation: AdmissionOperation<'_>,
    bundle: &Value,
) -> Result<(), Error> {
    if (call.served.group, call.kind.plural) != ("certificates.k8s.io", "clustertrustbundles") {
        return Ok(());
    }
    let signer = text(bundle, "/spec/signerName");
    match operation {
        AdmissionOperation::Delete => return Ok(()),
        AdmissionOperation::Create | AdmissionOperation::Update(_) if signer.is_empty() => {
            return Ok(());
        }
        AdmissionOperation::Update(old) if is_metadata_cleanup(old, bundle) => return Ok(()),
        AdmissionOperation::Create | AdmissionOperation::Update(_) => {}
    }
    if permits(call, SignerAction::Attest, signer) {
        return Ok(());
    }
    let name = if call.path.name.is_empty() { new_name(bundle) } else { &call.path.name };
    let why = format!("user not permitted to attest for signerName {}", quote(signer));
    Err(Error::Forbidden(call.subject(name), why))
}

/// Returns true if only metadata written by the garbage collector changes.
fn is_metadata_cleanup(old: &Value, new: &Value) -> bool {
    let essence = |bundle: &Value| {
        let mut bundle = bundle.clone();
        if let Some(metadata) = bundle.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["ownerReferences", "finalizers", "managedFields"] {
                metadata.remove(field);
            }
        }
        for derived in ["kind", "apiVersion"] {
            bundle.as_object_mut().map(|bundle| bundle.remove(derived));
        }
        bundle
    };
    essence(old) == essence(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn garbage_collection_needs_no_permission_to_attest() {
        let old = json!({"metadata": {"name": "a"}, "spec": {"trustBundle": "x"}});
        for (new, housekeeping) in [
            (json!({"metadata": {"name": "a", "finalizers": ["f"]}, "spec": {"trustBundle": "x"}}), true),
            (json!({"metadata": {"name": "a", "ownerReferences": [{}]}, "spec": {"trustBundle": "x"}}), true),
            (json!({"metadata": {"name": "a", "labels": {"a": "b"}}, "spec": {"trustBundle": "x"}}), false),
            (json!({"metadata": {"name": "a"}, "spec": {"trustBundle": "y"}}), false),
        ] {
            assert_eq!(is_metadata_cleanup(&old, &new), housekeeping, "{new}");
        }
    }
}
