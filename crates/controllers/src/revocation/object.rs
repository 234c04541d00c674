//! CertificateRevocations as they are read.

use kube::api::DynamicObject;
use kube::{Resource as _, ResourceExt as _};
use serde_json::Value;
use windlass_api::timestamp;
use windlass_ledger::{AuthorityId, RevocationReason, SerialNumber};

/// Identity of a certificate: its CA and its serial number.
pub type CertificateKey = (AuthorityId, SerialNumber);

/// A CertificateRevocation. All times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownRevocation {
    /// Signer that the object names.
    pub signer: String,
    pub reason: RevocationReason,
    /// Last second in which the certificate is valid.
    pub not_after: i64,
    /// When the certificate was revoked: `status.revokedTime`, or else when the object was created.
    pub revoked_at: i64,
    /// User who revoked it; empty if the server does not record that.
    pub requester: String,
    /// Whether `status.revokedTime` is set, so that no controller has to.
    pub has_time: bool,
}

/// Reads an object; `None` if it is invalid, which the schema of the kind rules out.
pub fn parse(object: &DynamicObject) -> Option<(CertificateKey, KnownRevocation)> {
    let text = |pointer: &str| object.data.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let seconds = |pointer: &str| timestamp::parse(text(pointer)).ok().map(|time| time.unix_timestamp());
    let key = (text("/spec/authorityID").parse().ok()?, text("/spec/serialNumber").parse().ok()?);
    let revoked_time = seconds("/status/revokedTime");
    let created = object.meta().creation_timestamp.as_ref().map(|time| time.0.as_second());
    Some((
        key,
        KnownRevocation {
            signer: text("/spec/signerName").to_owned(),
            reason: RevocationReason::from_name(text("/spec/reason"))?,
            not_after: seconds("/spec/notAfter")?,
            revoked_at: revoked_time.or(created)?,
            requester: text("/status/requester").to_owned(),
            has_time: revoked_time.is_some(),
        },
    ))
}

/// As [`parse`]; reports an object that is invalid.
pub fn parse_or_log(object: &DynamicObject) -> Option<(CertificateKey, KnownRevocation)> {
    let parsed = parse(object);
    if parsed.is_none() {
        tracing::warn!(name = object.name_any(), "CertificateRevocation is invalid; ignoring it");
    }
    parsed
}

/// Returns the name of the object that revokes a certificate.
pub fn name((authority, serial): &CertificateKey) -> String {
    windlass_api::revocation::object_name(&authority.to_string(), &serial.to_string())
}

/// Finds the certificate that an object of this name revokes.
pub fn parse_name(name: &str) -> Option<CertificateKey> {
    let (authority, serial) = name.split_once('-')?;
    Some((authority.parse().ok()?, serial.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_read_with_and_without_a_status() {
        let mut object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "windlass.dev/v1alpha1",
            "kind": "CertificateRevocation",
            "metadata": {"name": "0a0b-01", "creationTimestamp": "1970-01-01T00:01:00Z"},
            "spec": {
                "signerName": "a.b/c", "authorityID": "0a0b", "serialNumber": "01",
                "reason": "keyCompromise", "notAfter": "1970-01-02T00:00:00Z",
            },
        }))
        .unwrap();
        let (key, bare) = parse(&object).unwrap();
        assert_eq!((name(&key).as_str(), parse_name("0a0b-01")), ("0a0b-01", Some(key)));
        assert_eq!((bare.revoked_at, bare.has_time, bare.not_after), (60, false, 86_400));
        assert_eq!((bare.reason, bare.requester.as_str()), (RevocationReason::KeyCompromise, ""));
        object.data["status"] = json!({"revokedTime": "1970-01-01T00:02:00Z", "requester": "alice"});
        let full = parse(&object).unwrap().1;
        let expected = KnownRevocation { revoked_at: 120, has_time: true, requester: "alice".into(), ..bare };
        assert_eq!(full, expected);
        object.data["spec"]["serialNumber"] = json!("x");
        assert_eq!(parse(&object), None);
    }
}
