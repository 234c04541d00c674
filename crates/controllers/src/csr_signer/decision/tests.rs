use std::time::Duration;

use k8s_openapi::ByteString;
use serde_json::{Value, json};
use time::macros::datetime;
use windlass_pki::{Certificate, Validity};

use super::super::policy::KubernetesSigner;
use super::*;
use crate::csr::Csr;
use crate::ledger::RecordedIssuance;

const NOW: OffsetDateTime = datetime!(2026-06-01 12:00 UTC);
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Returns the request of a recorded case.
fn recorded_csr(case: &str) -> Csr {
    let cases = include_str!("../../../tests/loops/issuance.json");
    let cases: Vec<Value> = serde_json::from_str(cases).unwrap();
    let case = cases.into_iter().find(|each| each["case"] == case).unwrap();
    let mut request: Csr = serde_json::from_value(json!({
        "metadata": {"name": "asked"},
        "spec": {"request": "", "signerName": case["signerName"], "usages": case["usages"]},
        "status": {"conditions": [{"type": "Approved", "status": "True"}]},
    }))
    .unwrap();
    request.spec.request = ByteString(case["request"].as_str().unwrap().into());
    request
}

fn authority(until: OffsetDateTime) -> SigningCa {
    let validity = Validity::new(NOW - time::Duration::days(9), until).unwrap();
    windlass_testkit::ca_with_validity("ca", validity).into()
}

/// Answer of a built-in signer.
fn decide(
    request: &Csr,
    signer: KubernetesSigner,
    ca: &SigningCa,
    max_duration: Duration,
    now: OffsetDateTime,
) -> CsrDecision {
    let terms = SigningTerms::BuiltIn { signer, max_duration };
    match ApprovedCsr::verify(request, signer.name()) {
        Ok(request) => super::decide(&request, &terms, ca, None, now),
        Err(reason) => reason.into(),
    }
}

#[test]
fn a_certificate_is_one_block_by_the_authority() {
    let authority = authority(NOW + time::Duration::days(999));
    let request = recorded_csr("kubelet client");
    let answer = decide(&request, KubernetesSigner::KubeletClient, &authority, YEAR, NOW);
    let CsrDecision::Issue(prepared) = answer else { panic!("{answer:?}") };
    let record = &prepared.record;
    assert_eq!(
        (record.subject.as_str(), record.node.as_deref()),
        ("CN=system:node:n1,O=system:nodes", Some("n1"))
    );
    assert_eq!(
        (record.request.name.as_str(), record.signer.as_str()),
        ("asked", request.spec.signer_name.as_str())
    );
    let terms = SigningTerms::BuiltIn { signer: KubernetesSigner::KubeletClient, max_duration: YEAR };
    let other = RecordedIssuance::for_test(windlass_ledger::SerialNumber::from_bytes(&[1]).unwrap());
    assert!(sign(&prepared, &terms, &authority, &other).is_err(), "that is another certificate's record");
    let recorded = RecordedIssuance::for_test(record.serial);
    let text = sign(&prepared, &terms, &authority, &recorded).unwrap();
    let certificate = Certificate::from_pem(text.as_bytes()).unwrap();
    assert!(authority.authority().has_issued(&certificate));
    assert_eq!(certificate.serial(), record.serial.as_bytes());
    assert_eq!(certificate.common_name(), Some("system:node:n1"));
    assert_eq!(certificate.validity().not_before(), NOW - time::Duration::minutes(5));
}

#[test]
fn errors_other_than_policy_violations_are_retried() {
    let of = |change: fn(&mut Csr)| {
        let mut request = recorded_csr("kubelet client");
        // Only `legacy-unknown` has no other checks.
        request.spec.signer_name = KubernetesSigner::LegacyUnknown.name().into();
        change(&mut request);
        let authority = authority(NOW + time::Duration::days(999));
        decide(&request, KubernetesSigner::LegacyUnknown, &authority, YEAR, NOW)
    };
    let garbage = of(|request| request.spec.request = ByteString(b"garbage".to_vec()));
    assert_eq!(garbage, delayed("RequestUnreadable", "PEM block type must be CERTIFICATE REQUEST"));
    let unknown = of(|request| request.spec.usages = Some(vec!["tea".into()]));
    assert_eq!(unknown, delayed("UsagesUnknown", "unrecognized usage values: [\"tea\"]"));
    let unproven = of(|request| {
        let bad = include_bytes!("../../../../server/tests/api/conformance/fixtures/csr-badsig.pem");
        request.spec.request = ByteString(bad.to_vec());
    });
    assert!(
        matches!(&unproven, CsrDecision::Delayed(SigningDelay { reason: "RequestUnproven", .. })),
        "{unproven:?}"
    );
}

#[test]
fn an_expired_authority_signs_nothing() {
    for (before, said) in [
        (time::Duration::SECOND, "refusing to sign a certificate that expired in the past"),
        (time::Duration::DAY, "the signer has expired"),
    ] {
        let request = recorded_csr("kubelet client");
        let answer = decide(&request, KubernetesSigner::KubeletClient, &authority(NOW - before), YEAR, NOW);
        let CsrDecision::Delayed(SigningDelay { reason, message }) = &answer else { panic!("{answer:?}") };
        assert_eq!(*reason, "SignerExpired");
        assert!(message.starts_with(said), "{message}");
    }
}

#[test]
fn unsignable_requests_are_rejected() {
    let of = |case: &str, signer| {
        let authority = authority(NOW + time::Duration::days(999));
        decide(&recorded_csr(case), signer, &authority, YEAR, NOW)
    };
    let message = "subject organization is not system:nodes";
    assert_eq!(
        of("kubelet client, wrong group", KubernetesSigner::KubeletClient),
        CsrDecision::Refused(message.into())
    );
}
