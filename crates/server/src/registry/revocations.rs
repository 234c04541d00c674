//! CertificateRevocations and CertificateRevocationLists.
//!
//! On other servers the kinds are custom resources; `windlass_api::revocation` has their schema and
//! their rules. Who may revoke is decided in `chain/admission/revocations.rs`; authentication reads the
//! revocations through `chain/authn/revocation.rs`, and `revocation_list.rs` serves the lists.

use serde_json::{Value, json};
use windlass_api::revocation::{
    LIST_RESOURCE, RESOURCE, validate, validate_list, validate_list_update, validate_status_update,
    validate_update,
};

use super::kind::{Kind, ServedVersion, Subresource};
use super::object_fields::{integer, map, part, restore_field, text};
use super::table_cells::{self, described, with_type};
use crate::user::User;

/// Descriptor of CertificateRevocation, which declares one certificate invalid.
pub const REVOCATIONS_KIND: Kind = Kind {
    served: &[ServedVersion::new(RESOURCE.group, RESOURCE.version, RESOURCE.type_name)],
    subresources: &[Subresource::status(
        |new, old, _| restore_field(new, old, "spec"),
        |new, old, _, errors| validate_status_update(new, old, errors),
    )],
    columns: &[
        table_cells::NAME,
        described("Signer Name", "Signer that issued the certificate"),
        described("Serial", "Serial number of the certificate"),
        described("Reason", "Reason of the revocation"),
        described("Expires", "Expiry of the certificate"),
        described("Requester", "User who revoked the certificate"),
        table_cells::AGE,
    ],
    row: |object, now| {
        let mut row = vec![table_cells::name(object)];
        let pointers =
            ["/spec/signerName", "/spec/serialNumber", "/spec/reason", "/spec/notAfter", "/status/requester"];
        row.extend(pointers.iter().map(|pointer| Value::from(text(object, pointer))));
        row.push(table_cells::age(object, now));
        row
    },
    generation: true,
    prepare_create: |object| drop(map(object).remove("status")),
    prepare_create_as: record_requester,
    prepare_update: |new, old| restore_field(new, old, "status"),
    validate_create: validate,
    validate_update,
    ..Kind::custom(&RESOURCE)
};

/// Descriptor of CertificateRevocationList, the CRL of one CA key.
pub const REVOCATION_LISTS_KIND: Kind = Kind {
    served: &[ServedVersion::new(LIST_RESOURCE.group, LIST_RESOURCE.version, LIST_RESOURCE.type_name)],
    columns: &[
        table_cells::NAME,
        described("Signer Name", "Signer that issued the certificates"),
        with_type("integer", described("Number", "CRL number")),
        described("This Update", "Time of the signature"),
        described("Next Update", "End of the list's validity"),
        table_cells::AGE,
    ],
    row: |object, now| {
        vec![
            table_cells::name(object),
            text(object, "/spec/signerName").into(),
            integer(object, "/spec/number").unwrap_or_default().into(),
            text(object, "/spec/thisUpdate").into(),
            text(object, "/spec/nextUpdate").into(),
            table_cells::age(object, now),
        ]
    },
    generation: true,
    validate_create: validate_list,
    validate_update: validate_list_update,
    ..Kind::custom(&LIST_RESOURCE)
};

/// Records who revokes and when. Names beyond the limit of the field are cut, because a user whose
/// name is too long must still be able to revoke.
fn record_requester(object: &mut Value, user: &User) {
    const MAX_BYTES: usize = 1024;
    let mut end = user.name.len().min(MAX_BYTES);
    while !user.name.is_char_boundary(end) {
        end -= 1;
    }
    let created = text(object, "/metadata/creationTimestamp").to_owned();
    let status = part(object, "status");
    status.insert("revokedTime".into(), json!(created));
    status.insert("requester".into(), json!(user.name[..end]));
}

#[cfg(test)]
mod tests {
    use super::super::object_fields::tests::{cells, created};
    use super::*;

    #[test]
    fn the_server_says_who_revoked() {
        let object = json!({
            "metadata": {"name": "0a-01", "creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {"signerName": "example.com/web", "authorityID": "0a", "serialNumber": "01",
                     "reason": "keyCompromise", "notAfter": "2027-01-01T00:00:00Z"},
            "status": {"requester": "forged"},
        });
        let mut object = created(&REVOCATIONS_KIND, object);
        let user = User::authenticated("alice", "", Vec::new());
        (REVOCATIONS_KIND.prepare_create_as)(&mut object, &user);
        let want = json!({"requester": "alice", "revokedTime": "1970-01-01T00:00:00Z"});
        assert_eq!(object["status"], want);
        let row = json!([
            "0a-01",
            "example.com/web",
            "01",
            "keyCompromise",
            "2027-01-01T00:00:00Z",
            "alice",
            "120m"
        ]);
        assert_eq!(cells(&REVOCATIONS_KIND, &object), row);
        let long = User::authenticated(&"\u{e9}".repeat(600), "", Vec::new());
        (REVOCATIONS_KIND.prepare_create_as)(&mut object, &long);
        assert_eq!(text(&object, "/status/requester").len(), 1024);
    }

    #[test]
    fn lists_are_shown() {
        let object = json!({
            "metadata": {"name": "0a", "creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {"signerName": "example.com/web", "number": 3, "thisUpdate": "2027-01-01T00:00:00Z",
                     "nextUpdate": "2027-01-02T00:00:00Z"},
        });
        let row = json!(["0a", "example.com/web", 3, "2027-01-01T00:00:00Z", "2027-01-02T00:00:00Z", "120m"]);
        assert_eq!(cells(&REVOCATION_LISTS_KIND, &object), row);
    }
}
