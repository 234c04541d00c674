//! `CertificateRevocation` and `CertificateRevocationList` of `windlass.dev/v1alpha1`.
//!
//! A CertificateRevocation says that one certificate is no longer valid; its name is derived from the
//! authority and the serial number, so there is at most one per certificate. A
//! CertificateRevocationList is the signed CRL of one CA key.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::custom_resource::CustomResource;
use crate::field::{FieldErrors, FieldPath};
use crate::schema::{Schema, ValidationStyle};

/// The names of CertificateRevocation and its type in the schema.
pub const RESOURCE: CustomResource = CustomResource {
    group: "windlass.dev",
    version: "v1alpha1",
    api_version: "windlass.dev/v1alpha1",
    kind: "CertificateRevocation",
    plural: "certificaterevocations",
    singular: "certificaterevocation",
    short_names: &[],
    // The usual name is that of a kind.
    list_kind_override: "CertificateRevocationItemList",
    type_name: "dev.windlass.v1alpha1.CertificateRevocation",
    has_status_subresource: true,
};

/// The names of CertificateRevocationList and its type in the schema.
pub const LIST_RESOURCE: CustomResource = CustomResource {
    group: "windlass.dev",
    version: "v1alpha1",
    api_version: "windlass.dev/v1alpha1",
    kind: "CertificateRevocationList",
    plural: "certificaterevocationlists",
    singular: "certificaterevocationlist",
    short_names: &["crl"],
    list_kind_override: "",
    type_name: "dev.windlass.v1alpha1.CertificateRevocationList",
    has_status_subresource: false,
};

/// The reason of revocations that can be undone by deleting the object.
pub const CERTIFICATE_HOLD: &str = "certificateHold";

/// A certificate, and why it is revoked. Immutable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateRevocationSpec {
    /// Signer that issued the certificate.
    pub signer_name: String,
    /// Subject key identifier of the CA that issued it, in lower-case hexadecimal.
    #[serde(rename = "authorityID")]
    pub authority_id: String,
    /// Serial number in lower-case hexadecimal, two digits for each byte.
    pub serial_number: String,
    /// Reason with its name in RFC 5280, such as `keyCompromise`.
    pub reason: String,
    /// When the certificate expires, as RFC 3339.
    pub not_after: String,
    /// An explanation for people; absent if none was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// Who revoked a certificate and when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateRevocationStatus {
    /// When it was revoked, as RFC 3339; absent until the server or a controller set it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked_time: Option<String>,
    /// User who revoked it; absent until the server or a controller set it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requester: Option<String>,
}

/// A signed list of revoked certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateRevocationListSpec {
    /// Signer whose certificates the list revokes.
    pub signer_name: String,
    /// Subject key identifier of the CA that signed it, in lower-case hexadecimal.
    #[serde(rename = "authorityID")]
    pub authority_id: String,
    /// The list: DER as base64.
    pub crl: String,
    /// The CRL number, which never decreases.
    pub number: u64,
    /// When the list was signed, as RFC 3339.
    pub this_update: String,
    /// Until when the list is valid, as RFC 3339.
    pub next_update: String,
}

/// Returns the name of the object that revokes a certificate.
pub fn object_name(authority_id: &str, serial_number: &str) -> String {
    format!("{authority_id}-{serial_number}")
}

/// Validates a CertificateRevocation: against the schema and, if that passes, its name.
pub fn validate(object: &Value, errors: &mut FieldErrors) {
    Schema::get().validate(RESOURCE.type_id(), ValidationStyle::BuiltIn, object, errors);
    if errors.is_empty() {
        let spec = &object["spec"];
        let expected = object_name(text(spec, "authorityID"), text(spec, "serialNumber"));
        check_name(object, &expected, "the authorityID, a hyphen and the serialNumber", errors);
    }
}

/// Validates an update of a CertificateRevocation, whose spec is immutable.
pub fn validate_update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    Schema::get().validate(RESOURCE.type_id(), ValidationStyle::BuiltIn, new, errors);
    if new["spec"] != old["spec"] {
        errors.forbidden(&FieldPath::new("spec"), "is immutable");
    }
}

/// Validates an update of the status, whose fields are set once.
pub fn validate_status_update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    Schema::get().validate(RESOURCE.type_id(), ValidationStyle::BuiltIn, new, errors);
    for field in ["revokedTime", "requester"] {
        let (new, old) = (&new["status"][field], &old["status"][field]);
        if !old.is_null() && new != old {
            let path = FieldPath::new("status").child(field);
            errors.invalid(&path, new, "field is immutable");
        }
    }
}

/// Validates a CertificateRevocationList: against the schema and, if that passes, its name.
pub fn validate_list(object: &Value, errors: &mut FieldErrors) {
    Schema::get().validate(LIST_RESOURCE.type_id(), ValidationStyle::BuiltIn, object, errors);
    if errors.is_empty() {
        check_name(object, text(&object["spec"], "authorityID"), "the authorityID", errors);
    }
}

/// Validates an update of a CertificateRevocationList: it stays that of its authority, and a reader never gets an
/// older list after a newer one.
pub fn validate_list_update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    validate_list(new, errors);
    let (path, new, old) = (FieldPath::new("spec"), &new["spec"], &old["spec"]);
    for field in ["signerName", "authorityID"] {
        if new[field] != old[field] {
            errors.invalid(&path.child(field), &new[field], "field is immutable");
        }
    }
    if new["number"].as_i64() < old["number"].as_i64() {
        errors.invalid(&path.child("number"), &new["number"], "may not decrease");
    }
}

fn check_name(object: &Value, expected: &str, parts: &str, errors: &mut FieldErrors) {
    let name = text(&object["metadata"], "name");
    if name != expected {
        let detail = format!("must be {expected}: {parts}");
        errors.invalid_str(&FieldPath::new("metadata").child("name"), name, &detail);
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const AUTHORITY: &str = "00112233445566778899aabbccddeeff00112233";

    fn texts(check: impl Fn(&mut FieldErrors)) -> String {
        let mut errors = FieldErrors::new();
        check(&mut errors);
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    fn with(mut object: Value, pointer: &str, value: Value) -> Value {
        *object.pointer_mut(pointer).unwrap() = value;
        object
    }

    fn revocation() -> Value {
        json!({"metadata": {"name": format!("{AUTHORITY}-0a1b")}, "spec": {
            "signerName": "example.com/web", "authorityID": AUTHORITY, "serialNumber": "0a1b",
            "reason": "keyCompromise", "notAfter": "2026-01-01T00:00:00Z", "comment": "lost",
        }})
    }

    fn list() -> Value {
        json!({"metadata": {"name": AUTHORITY}, "spec": {
            "signerName": "example.com/web", "authorityID": AUTHORITY, "crl": "YQ==", "number": 3,
            "thisUpdate": "2026-01-01T00:00:00Z", "nextUpdate": "2026-01-02T00:00:00Z",
        }})
    }

    #[test]
    fn revocations_name_one_certificate() {
        assert_eq!(texts(|errors| validate(&revocation(), errors)), "");
        let kubernetes = with(revocation(), "/spec/signerName", json!("kubernetes.io/kubelet-serving"));
        assert_eq!(texts(|errors| validate(&kubernetes, errors)), "");
        let serial = "must be a positive number as lower-case hexadecimal digits, two for each byte, \
                      without leading zero bytes";
        for (pointer, value, want) in [
            (
                "/metadata/name",
                json!("x"),
                format!(
                    "metadata.name: Invalid value: \"x\": must be {AUTHORITY}-0a1b: the authorityID, a hyphen and the serialNumber"
                ),
            ),
            (
                "/spec/serialNumber",
                json!("a1b"),
                format!("spec.serialNumber: Invalid value: \"a1b\": {serial}"),
            ),
            (
                "/spec/serialNumber",
                json!("000a"),
                format!("spec.serialNumber: Invalid value: \"000a\": {serial}"),
            ),
            (
                "/spec/serialNumber",
                json!("ff".repeat(21)),
                "spec.serialNumber: Too long: may not be more than 40 bytes".to_owned(),
            ),
            (
                "/spec/authorityID",
                json!("AB"),
                "spec.authorityID: Invalid value: \"AB\": must be bytes as lower-case hexadecimal digits"
                    .to_owned(),
            ),
            (
                "/spec/reason",
                json!("removeFromCRL"),
                "spec.reason: Unsupported value: \"removeFromCRL\": supported values: \"unspecified\", \
                 \"keyCompromise\", \"cACompromise\", \"affiliationChanged\", \"superseded\", \
                 \"cessationOfOperation\", \"certificateHold\", \"privilegeWithdrawn\", \"aACompromise\""
                    .to_owned(),
            ),
            ("/spec/notAfter", Value::Null, "spec.notAfter: Required value".to_owned()),
        ] {
            let object = with(revocation(), pointer, value);
            assert_eq!(texts(|errors| validate(&object, errors)), want, "{object}");
        }
    }

    #[test]
    fn revocations_do_not_change() {
        let old = with(revocation(), "/spec/comment", json!("found"));
        let found = texts(|errors| validate_update(&revocation(), &old, errors));
        assert_eq!(found, "spec: Forbidden: is immutable");
        let mut set = revocation();
        set["status"] = json!({"revokedTime": "2025-01-01T00:00:00Z", "requester": "alice"});
        assert_eq!(texts(|errors| validate_status_update(&set, &revocation(), errors)), "");
        assert_eq!(texts(|errors| validate_status_update(&set, &set, errors)), "");
        let forged = with(set.clone(), "/status/requester", json!("bob"));
        let found = texts(|errors| validate_status_update(&forged, &set, errors));
        assert_eq!(found, "status.requester: Invalid value: \"bob\": field is immutable");
    }

    #[test]
    fn lists_belong_to_an_authority_and_advance() {
        assert_eq!(texts(|errors| validate_list(&list(), errors)), "");
        let renamed = with(list(), "/metadata/name", json!("x"));
        let found = texts(|errors| validate_list(&renamed, errors));
        assert_eq!(
            found,
            format!("metadata.name: Invalid value: \"x\": must be {AUTHORITY}: the authorityID")
        );
        let older = with(list(), "/spec/number", json!(2));
        let found = texts(|errors| validate_list_update(&older, &list(), errors));
        assert_eq!(found, "spec.number: Invalid value: 2: may not decrease");
        let other = with(list(), "/spec/signerName", json!("example.com/other"));
        let found = texts(|errors| validate_list_update(&other, &list(), errors));
        assert_eq!(found, "spec.signerName: Invalid value: \"example.com/other\": field is immutable");
    }
}
