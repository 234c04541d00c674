use k8s_openapi::ByteString;
use serde_json::json;

use super::*;

const SIGNER: &str = "example.com/a";
const REQUEST: &[u8] = include_bytes!("../../../../server/tests/api/conformance/fixtures/csr-p256.pem");
const BAD_SIGNATURE: &[u8] =
    include_bytes!("../../../../server/tests/api/conformance/fixtures/csr-badsig.pem");

fn csr(conditions: &[(&str, &str)], certificate: Option<&str>, request: &[u8]) -> Csr {
    let conditions = conditions.iter().map(|(kind, status)| json!({"type": kind, "status": status}));
    let mut csr: Csr = serde_json::from_value(json!({
        "metadata": {"name": "a"},
        "spec": {"request": "", "signerName": SIGNER, "username": "jane", "usages": ["client auth"]},
        "status": {"conditions": conditions.collect::<Vec<_>>()},
    }))
    .unwrap();
    csr.spec.request = ByteString(request.to_vec());
    csr.status.as_mut().unwrap().certificate = certificate.map(|text| ByteString(text.into()));
    csr
}

#[test]
fn only_an_approved_and_unanswered_request_can_be_signed() {
    let (approved, denied, failed) = ("Approved", "Denied", "Failed");
    let (yes, no, delayed) = ("True", "False", "windlass.dev/SigningDelayed");
    type ConditionRow<'a> = (&'a [(&'a str, &'a str)], Option<&'a str>, bool);
    let table: &[ConditionRow<'_>] = &[
        (&[], None, false),
        (&[(approved, yes)], None, true),
        (&[(approved, "")], None, true),
        (&[(approved, no)], None, false),
        (&[("approved", yes)], None, false),
        (&[(denied, yes)], None, false),
        (&[(delayed, yes)], None, false),
        (&[(approved, yes), (delayed, yes)], None, true),
        (&[(approved, yes), (denied, yes)], None, false),
        (&[(denied, yes), (approved, yes)], None, false),
        (&[(approved, yes), (denied, "")], None, false),
        (&[(approved, yes), (denied, "Unknown")], None, false),
        (&[(approved, yes), (denied, no)], None, true),
        (&[(approved, no), (denied, no)], None, false),
        (&[(approved, yes), (failed, yes)], None, false),
        (&[(approved, yes), (failed, "")], None, false),
        (&[(approved, yes), (failed, no)], None, true),
        (&[(approved, no), (failed, no)], None, false),
        (&[(approved, yes), (denied, no), (denied, yes)], None, false),
        (&[(approved, yes)], Some(""), true),
        (&[(approved, yes)], Some("x"), false),
        (&[(approved, no)], Some("x"), false),
        (&[], Some("x"), false),
    ];
    for (conditions, certificate, expected) in table {
        let csr = csr(conditions, *certificate, REQUEST);
        let verified = ApprovedCsr::verify(&csr, SIGNER);
        assert_eq!(verified.is_ok(), *expected, "{conditions:?} {certificate:?}");
        if let Err(error) = verified {
            assert_eq!(error, UnsignableCsr::NotPending, "{conditions:?} {certificate:?}");
        }
        assert_eq!(awaits_signer(&csr), *expected, "{conditions:?} {certificate:?}");
        let other = ApprovedCsr::verify(&csr, "example.com/b").err();
        assert_eq!(other, Some(UnsignableCsr::NotPending), "another signer");
    }
    assert!(ApprovedCsr::verify(&Csr::default(), "").is_err());
}

#[test]
fn the_requester_must_hold_the_key() {
    let verify = |request: &[u8]| {
        let csr = csr(&[("Approved", "True")], None, request);
        ApprovedCsr::verify(&csr, SIGNER).err()
    };
    assert_eq!(verify(REQUEST), None);
    assert!(matches!(verify(BAD_SIGNATURE), Some(UnsignableCsr::Unproven(Error::Unproven(_)))));
    assert!(matches!(verify(b"garbage"), Some(UnsignableCsr::Unreadable(_))));
    assert!(matches!(verify(b""), Some(UnsignableCsr::Unreadable(_))));
}
