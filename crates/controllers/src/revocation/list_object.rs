//! The CertificateRevocationList of an authority as an object of the API.

use k8s_openapi::ByteString;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use kube::core::ApiResource;
use serde_json::{Value, json};
use windlass_api::timestamp;
use windlass_pki::{Certificate, CertificateRevocationList};

use super::decision::PublishedList;
use crate::signers::config::MANAGED_BY;

/// Returns the DER of the list in an object; `None` if it has none.
pub fn list_der(object: &DynamicObject) -> Option<Vec<u8>> {
    let bytes: ByteString = serde_json::from_value(object.data.pointer("/spec/crl")?.clone()).ok()?;
    Some(bytes.0)
}

/// Returns the signer that an object names; empty if it has none.
pub fn signer_name(object: &DynamicObject) -> &str {
    object.data.pointer("/spec/signerName").and_then(Value::as_str).unwrap_or_default()
}

/// Reads the published list of a CA. One that the CA has not signed counts by its number only.
pub fn read(object: &DynamicObject, ca: &Certificate) -> PublishedList {
    let parsed = list_der(object).and_then(|der| CertificateRevocationList::from_der(&der).ok());
    let list = parsed.filter(|list| list.verify(ca).is_ok());
    let stated = object.data.pointer("/spec/number").and_then(Value::as_u64).unwrap_or(0);
    let signed = list.as_ref().and_then(CertificateRevocationList::number).unwrap_or(0);
    PublishedList { number: stated.max(signed), list }
}

/// Builds the object for a list. An existing object keeps its version, so that a concurrent change is not overwritten,
/// and its signer, which is immutable.
pub fn build(
    existing: Option<DynamicObject>,
    resource: &ApiResource,
    authority: &str,
    signer: &str,
    list: &CertificateRevocationList,
) -> DynamicObject {
    let mut object = existing.unwrap_or_else(|| DynamicObject::new(authority, resource));
    let signer = Some(signer_name(&object)).filter(|known| !known.is_empty()).unwrap_or(signer).to_owned();
    object.labels_mut().insert(MANAGED_BY.0.to_owned(), MANAGED_BY.1.to_owned());
    object.data = json!({"spec": {
        "signerName": signer,
        "authorityID": authority,
        "crl": ByteString(list.der().to_vec()),
        "number": list.number(),
        "thisUpdate": timestamp::format(list.this_update()),
        "nextUpdate": timestamp::format(list.next_update()),
    }});
    object
}
