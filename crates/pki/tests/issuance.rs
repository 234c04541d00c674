//! Compares issued certificates with those of kube-controller-manager.
//!
//! `issuance/recorded.json` contains requests with what a real one issued, or its error.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use serde_json::{Value, json};
use time::macros::datetime;
use time::{Duration, OffsetDateTime};
use windlass_pki::policy::{
    RequestedAttributes, validate_api_client, validate_kubelet_client, validate_kubelet_serving,
};
use windlass_pki::{
    CertificateAuthority, CertificateRequest, CertificateTemplate, CertificateUsages, Error, KeyType,
    LintWarning, PrivateKey, Serial, Subject, SystemRandom, Validity, issue_certificate, lifetime,
};
use x509_cert::der::{Decode, Encode};

const RECORDED: &str = include_str!("issuance/recorded.json");
const NOW: OffsetDateTime = datetime!(2026-06-01 12:00:00.5 UTC);
const MAX_LIFETIME: Duration = Duration::days(365);
const AUTHORITY_KEY_IDENTIFIER: &str = "2.5.29.35";

#[test]
fn issues_the_same_certificates_as_kubernetes() {
    let authority = authority();
    let cases = serde_json::from_str::<Vec<Value>>(RECORDED).unwrap();
    let (mut issued, mut failed) = (0, 0);
    for case in &cases {
        let name = case["case"].as_str().unwrap();
        if case.get("pending").is_some() {
            continue;
        }
        let request = CertificateRequest::from_pem(case["request"].as_str().unwrap().as_bytes());
        let request = request.unwrap();
        if let Err(message) = policy(case, &request) {
            assert_eq!(case["failed"]["reason"], "SignerValidationFailure", "{name}");
            assert_eq!(case["failed"]["message"], message, "{name}");
            failed += 1;
            continue;
        }
        let made = issue(&authority, &request, case);
        assert_eq!(made.unwrap(), expected(case), "{name}");
        issued += 1;
    }
    assert_eq!((cases.len(), issued, failed), (36, 23, 12));
}

fn authority() -> CertificateAuthority {
    let subject = Subject::new("kubernetes", &[]).unwrap();
    let validity = Validity::lasting(NOW - Duration::DAY, 10 * MAX_LIFETIME).unwrap();
    let key = PrivateKey::generate_type(KeyType::EcdsaP256).unwrap();
    CertificateAuthority::self_signed(&subject, validity, key, serial()).unwrap()
}

fn serial() -> Serial {
    Serial::random(&SystemRandom::new()).unwrap()
}

fn usages(case: &Value) -> Vec<&str> {
    case["usages"].as_array().unwrap().iter().map(|usage| usage.as_str().unwrap()).collect()
}

fn policy(case: &Value, request: &CertificateRequest) -> Result<(), String> {
    let usages = usages(case);
    let asked = RequestedAttributes::new(request, &usages);
    let verdict = match case["signerName"].as_str().unwrap() {
        "kubernetes.io/kubelet-serving" => validate_kubelet_serving(&asked),
        "kubernetes.io/kube-apiserver-client-kubelet" => validate_kubelet_client(&asked),
        "kubernetes.io/kube-apiserver-client" => validate_api_client(&asked),
        other => panic!("{other}"),
    };
    verdict.map_err(|error| error.to_string())
}

fn issue(
    authority: &CertificateAuthority,
    request: &CertificateRequest,
    case: &Value,
) -> Result<Value, Error> {
    let requested = case.get("expirationSeconds").map(|value| value.as_i64().unwrap());
    let requested = requested.map(Duration::seconds);
    let validity = lifetime(requested, MAX_LIFETIME, authority.certificate(), NOW).unwrap();
    let usages = CertificateUsages::from_names(&usages(case)).unwrap();
    let wanted = CertificateTemplate::from_request(request, usages, validity, serial())?;
    let issued = issue_certificate(authority, &wanted)?;
    let short = issued.warnings().contains(&LintWarning::ShortKey(1024));
    assert_eq!(short, case["case"] == "key rsa1024");
    // The parser below would sort unsorted sets.
    let subject = wanted.subject.as_der();
    assert!(issued.der().windows(subject.len()).any(|window| window == subject));
    assert_eq!(case["issued"]["subject_der"], hex(subject));
    Ok(described(issued.der()))
}

fn expected(case: &Value) -> Value {
    json!({
        "subject_der": case["issued"]["subject_der"],
        "lifetime_seconds": case["issued"]["lifetime_seconds"],
        "extensions": case["issued"]["extensions"],
        "has_authority_key_id": case["issued"]["has_authority_key_id"],
    })
}

/// Describes a certificate like the recording, without the signer's own fields.
fn described(der: &[u8]) -> Value {
    let certificate = x509_cert::Certificate::from_der(der).unwrap();
    let body = certificate.tbs_certificate();
    let seconds = |time: x509_cert::time::Time| time.to_unix_duration().as_secs();
    let all = body.extensions().unwrap();
    let is_own = |oid: &str| oid == AUTHORITY_KEY_IDENTIFIER;
    let extensions = all.iter().filter(|extension| !is_own(&extension.extn_id.to_string()));
    let extensions = extensions.map(|extension| {
        json!({
            "oid": extension.extn_id.to_string(),
            "critical": extension.critical,
            "value": hex(extension.extn_value.as_bytes()),
        })
    });
    json!({
        "subject_der": hex(&body.subject().to_der().unwrap()),
        "lifetime_seconds": seconds(body.validity().not_after) - seconds(body.validity().not_before),
        "extensions": extensions.collect::<Vec<_>>(),
        "has_authority_key_id": all.iter().any(|extension| is_own(&extension.extn_id.to_string())),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
