use std::path::Path;

use serde_json::Value;

use super::super::config::SignersConfig;
use super::*;

/// Builds a profile with these fields, usages and a maximum lifetime.
fn profile(fields: &str) -> RequestProfile {
    let text = format!(
        "{{apiVersion: windlass.dev/v1, kind: Signers, signers: [{{name: a.b/c, \
         ca: {{selfSigned: {{directory: d}}}}, requests: {{usages: [client auth], maxDuration: 1h, {fields}}}}}]}}"
    );
    let mut signers = SignersConfig::parse(Path::new("f"), &text).unwrap().signers;
    signers.remove(0).requests.unwrap()
}

/// Returns the request of a recorded case.
fn recorded(case: &str) -> CertificateRequest {
    let cases = include_str!("../../../tests/loops/issuance.json");
    let cases: Vec<Value> = serde_json::from_str(cases).unwrap();
    let case = cases.into_iter().find(|each| each["case"] == case).unwrap();
    CertificateRequest::from_pem(case["request"].as_str().unwrap().as_bytes()).unwrap()
}

fn check_message(fields: &str, case: &str) -> String {
    let checked = check(
        &profile(fields),
        &RequesterIdentity::new("jane"),
        &recorded(case),
        &["client auth".to_owned()],
    );
    checked.err().map(|offence| offence.to_string()).unwrap_or_default()
}

#[test]
fn every_part_of_a_subject_counts() {
    let any = "commonNames: ['*'], organizations: ['*']";
    assert_eq!(check_message(any, "key p256"), "");
    assert_eq!(check_message(any, "several organizations"), "");
    assert_eq!(check_message(any, "two common names"), "");
    let full = check_message(any, "full subject, odd order");
    assert!(full.starts_with("subject attribute 2.5.4."), "{full}");
    assert!(full.ends_with("is not allowed by the signer's profile"), "{full}");
    // Kubernetes would issue only the last common name; both must be allowed.
    let names = recorded("two common names");
    let names: Vec<&str> = names.subject().attributes().iter().filter_map(|each| each.value()).collect();
    for name in &names {
        let one =
            check_message(&format!("commonNames: [{name:?}], organizations: ['*']"), "two common names");
        assert!(one.contains("is not allowed"), "{name}: {one}");
    }
    let both = format!("commonNames: {names:?}, organizations: ['*']");
    assert_eq!(check_message(&both, "two common names"), "");
    let nobody = check_message("organizations: ['*']", "key p256");
    assert!(nobody.starts_with("common name "), "{nobody}");
}

#[test]
fn keys_are_of_the_kinds_that_are_named() {
    let any = "commonNames: ['*'], organizations: ['*'], keyTypes";
    for (case, kind) in [
        ("key p256", "ECDSAP256"),
        ("p384 with sha256 signature", "ECDSAP384"),
        ("key p521", "ECDSAP521"),
        ("key ed25519", "ED25519"),
        ("key rsa4096", "RSA4096"),
        ("rsa sha512", "RSA2048"),
    ] {
        assert_eq!(check_message(&format!("{any}: [{kind}]"), case), "", "{case}");
        let message = format!("a key of type {kind} is not allowed by the signer's profile");
        assert_eq!(check_message(&format!("{any}: [RSA3072]"), case), message);
    }
    let weak = "a key of type RSA1024 is not allowed by the signer's profile";
    assert_eq!(check_message(&format!("{any}: [RSA2048, RSA3072]"), "key rsa1024"), weak);
    let unnamed = "commonNames: ['*'], organizations: ['*']";
    assert_eq!(check_message(unnamed, "key rsa1024"), weak);
    assert_eq!(check_message(unnamed, "rsa sha512"), "");
}

#[test]
fn names_of_every_kind_are_checked() {
    let subject = "commonNames: ['*'], organizations: ['*']";
    let mut allowed = subject.to_owned();
    for (what, field) in [
        ("DNS name ", "dnsNames: ['*']"),
        ("e-mail address ", "emailAddresses: ['*']"),
        ("URI ", "uris: ['*']"),
        ("IP address ", "ipAddresses: [0.0.0.0/0, '::/0']"),
    ] {
        let message = check_message(&allowed, "all san types");
        assert!(message.starts_with(what), "{message}");
        allowed = format!("{allowed}, {field}");
    }
    assert_eq!(check_message(&allowed, "all san types"), "");
}
