//! Table tests of validation and columns.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use time::macros::datetime;
use time::{Duration, OffsetDateTime};
use windlass_api::field::FieldErrors;
use windlass_api::timestamp;
use windlass_pki::{
    AltName, CertificateAuthority, LeafTemplate, PrivateKey, Serial, Subject, SystemRandom, Validity, issue,
    pem,
};
use windlass_testkit::leaf_template;

use super::{KIND, STABLE};
use crate::registry::kind::SubresourceAction;
use crate::registry::object_fields::tests::{cells, change_refusals, created, error_texts, refusals};

const NOW: OffsetDateTime = datetime!(2026-05-04 12:00 UTC);
const POD_UID: &str = "9f1c7b9e-6d0b-4a55-8f39-0d5b6f0c1a11";

macro_rules! fixture {
    ($name:literal) => {
        STANDARD.encode(include_bytes!(concat!("../../../tests/api/conformance/fixtures/", $name)))
    };
}

fn request() -> Value {
    let mut request = json!({
        "metadata": {"name": "r", "namespace": "n"},
        "spec": {
            "signerName": "example.com/pods",
            "podName": "p",
            "podUID": POD_UID,
            "serviceAccountName": "default",
            "serviceAccountUID": "s1",
            "nodeName": "node-1",
            "nodeUID": "n1",
            "stubPKCS10Request": fixture!("pcr-p256.stub.der"),
        },
        "status": {},
    });
    (KIND.defaults)(&mut request);
    request
}

fn with(changes: Value) -> Value {
    let mut request = request();
    for (field, value) in changes.as_object().unwrap() {
        request["spec"][field] = value.clone();
    }
    request
}

/// Returns a request with the older proof instead of the stub.
fn pair(key: String, proof: String) -> Value {
    with(json!({"stubPKCS10Request": null, "pkixPublicKey": key, "proofOfPossession": proof}))
}

#[test]
fn absent_fields_are_defaulted() {
    let mut made = created(&KIND, json!({"spec": {"podName": "p"}, "status": {"notAfter": "x"}}));
    let filled = json!({"podName": "p", "maxExpirationSeconds": 86400, "pkixPublicKey": null,
        "proofOfPossession": null});
    assert_eq!(made, json!({"spec": filled, "status": {}}));
    made = (STABLE.from_stored)(made);
    assert_eq!(made["spec"], json!({"podName": "p", "maxExpirationSeconds": 86400}));
    made = (STABLE.to_stored)(made);
    (KIND.defaults)(&mut made);
    assert_eq!(made["spec"], filled);
}

#[test]
fn a_new_request_keeps_the_rules() {
    let subdomain = "Invalid value: \"A\": a lowercase RFC 1123 subdomain";
    let long = "u".repeat(129);
    let big = "v".repeat(256 * 1024);
    let cases: &[(Value, &[&str])] = &[
        (json!({}), &[]),
        (json!({"signerName": ""}), &["spec.signerName: Required value"]),
        (json!({"signerName": "x"}), &["spec.signerName: Invalid value: \"x\": must be a fully"]),
        (json!({"podName": "A"}), &[&format!("spec.podName: {subdomain}")]),
        (json!({"serviceAccountName": "A"}), &[&format!("spec.serviceAccountName: {subdomain}")]),
        (json!({"nodeName": "A"}), &[&format!("spec.nodeName: {subdomain}")]),
        (json!({"podUID": ""}), &["spec.podUID: Invalid value: \"\": must not be empty"]),
        (json!({"podUID": &long[1..]}), &[]),
        (json!({"podUID": long}), &["spec.podUID: Too long: may not be more than 128 bytes"]),
        (json!({"serviceAccountUID": ""}), &["spec.serviceAccountUID: Invalid value: \"\""]),
        (json!({"serviceAccountUID": long}), &["spec.serviceAccountUID: Too long"]),
        (json!({"nodeUID": ""}), &["spec.nodeUID: Invalid value: \"\": must not be empty"]),
        (json!({"nodeUID": long}), &["spec.nodeUID: Too long: may not be more than 128 bytes"]),
        (json!({"maxExpirationSeconds": 3600}), &[]),
        (json!({"maxExpirationSeconds": 7_862_400}), &[]),
        (
            json!({"maxExpirationSeconds": 3599}),
            &["spec.maxExpirationSeconds: Invalid value: 3599: must be in the range [3600, 7862400]"],
        ),
        (
            json!({"maxExpirationSeconds": 7_862_401}),
            &["spec.maxExpirationSeconds: Invalid value: 7862401: must be in the range"],
        ),
        (json!({"signerName": "x.kubernetes.io/y"}), &[]),
        (
            json!({"signerName": "kubernetes.io/y", "maxExpirationSeconds": 86401}),
            &["spec.maxExpirationSeconds: Invalid value: 86401: must be in the range [3600, 86400]"],
        ),
        (
            // Checks after an absent lifetime are skipped.
            json!({"maxExpirationSeconds": null, "stubPKCS10Request": null}),
            &["spec.maxExpirationSeconds: Required value: must be set"],
        ),
        (json!({"unverifiedUserAnnotations": {"Example.com/A": "", "spiffe/x": "y"}}), &[]),
        (
            json!({"unverifiedUserAnnotations": {"a": "b"}}),
            &["spec.unverifiedUserAnnotations: Invalid value: \"a\": must be a domain-prefixed key"],
        ),
        (json!({"unverifiedUserAnnotations": {"": "b"}}), &["spec.unverifiedUserAnnotations: Req"]),
        (
            json!({"unverifiedUserAnnotations": {"a.b/c": big}}),
            &["spec.unverifiedUserAnnotations: Too long: may not be more than 262144 bytes"],
        ),
    ];
    for (changes, want) in cases {
        let reported = refusals(&KIND, &with(changes.clone()));
        assert_eq!(reported.len(), want.len(), "{changes}: {reported:?}");
        assert!(
            reported.iter().zip(*want).all(|(reported, want)| reported.starts_with(want)),
            "{reported:?}"
        );
    }
}

#[test]
fn a_key_comes_with_one_proof() {
    let key = |name: &str, value: Value| json!({ name: value });
    let one_of = "spec: Invalid value: exactly one of (stubPKCS10Request) or (pkixPublicKey, \
                  proofOfPossession) must be set";
    let stub_modulus = "spec.stubPKCS10Request: Invalid value: \"2048-bit modulus\": RSA keys \
                        must have modulus size 3072 or 4096";
    let modulus = stub_modulus.replace("stubPKCS10Request", "pkixPublicKey");
    let curve = "spec.pkixPublicKey: Invalid value: \"curve P-224\": elliptic public keys must \
                 use curve P256 or P384";
    let proof = "spec.proofOfPossession: Invalid value: could not verify proof-of-possession signature";
    let long = STANDARD.encode(vec![0; 10_241]);
    let stub = |value: Value| with(key("stubPKCS10Request", value));
    let tampered = {
        let mut der = include_bytes!("../../../tests/api/conformance/fixtures/pcr-p256.stub.der").to_vec();
        *der.last_mut().unwrap() ^= 1;
        STANDARD.encode(der)
    };
    let p256 = || fixture!("pcr-p256.pop");
    let cases: Vec<(Value, &str)> = vec![
        (stub(json!(fixture!("pcr-p384.stub.der"))), ""),
        (stub(json!(fixture!("pcr-p521.stub.der"))), ""),
        (stub(json!(fixture!("pcr-ed25519.stub.der"))), ""),
        (stub(json!(fixture!("pcr-rsa3072.stub.der"))), ""),
        (stub(json!(fixture!("pcr-rsa2048.stub.der"))), stub_modulus),
        (stub(json!("Z2FyYmFnZQ==")), "spec.stubPKCS10Request: Invalid value: must be a valid PKCS#10 CSR"),
        (
            stub(json!(tampered)),
            "spec.stubPKCS10Request: Invalid value: could not verify PKCS#10 CSR signature",
        ),
        (stub(json!(long)), "spec.stubPKCS10Request: Too long: may not be more than 10240 bytes"),
        (stub(Value::Null), one_of),
        (with(key("pkixPublicKey", json!("eA=="))), one_of),
        (with(json!({"stubPKCS10Request": null, "pkixPublicKey": "eA=="})), one_of),
        (with(json!({"stubPKCS10Request": null, "proofOfPossession": "eA=="})), one_of),
        (pair(fixture!("pcr-p256.spki"), p256()), ""),
        (pair(fixture!("pcr-p384.spki"), fixture!("pcr-p384.pop")), ""),
        (pair(fixture!("pcr-p521.spki"), fixture!("pcr-p521.pop")), ""),
        (pair(fixture!("pcr-ed25519.spki"), fixture!("pcr-ed25519.pop")), ""),
        (pair(fixture!("pcr-rsa3072.spki"), fixture!("pcr-rsa3072.pop")), ""),
        (pair(fixture!("pcr-rsa2048.spki"), fixture!("pcr-rsa2048.pop")), &modulus),
        (pair(fixture!("pcr-p224.spki"), fixture!("pcr-p224.pop")), curve),
        (pair(fixture!("pcr-p384.spki"), p256()), proof),
        (pair(fixture!("pcr-ed25519.spki"), p256()), proof),
        (pair(fixture!("pcr-rsa3072.spki"), p256()), proof),
        (
            pair("Z2FyYmFnZQ==".into(), p256()),
            "spec.pkixPublicKey: Invalid value: \"Z2FyYmFnZQ==\": must be a valid PKIX-serialized public key",
        ),
        (pair(long.clone(), p256()), "spec.pkixPublicKey: Too long: may not be more than 10240 bytes"),
        (
            pair(fixture!("pcr-p256.spki"), long.clone()),
            "spec.proofOfPossession: Too long: may not be more than 10240 bytes",
        ),
    ];
    for (i, (request, want)) in cases.iter().enumerate() {
        let want: Vec<&str> = if want.is_empty() { Vec::new() } else { vec![want] };
        assert_eq!(refusals(&KIND, request), want, "case {i}");
    }
    let mut other_pod = pair(fixture!("pcr-p256.spki"), p256());
    other_pod["spec"]["podUID"] = json!("another");
    assert_eq!(refusals(&KIND, &other_pod), [proof]);
}

#[test]
fn the_requested_spec_is_immutable() {
    let old = request();
    let mut new = request();
    new["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(change_refusals(&KIND, &new, &old), [""; 0]);
    new["spec"]["maxExpirationSeconds"] = json!(7200);
    new["spec"]["unverifiedUserAnnotations"] = json!({"a.b/c": "d"});
    let reported = change_refusals(&KIND, &new, &old);
    assert_eq!(reported.len(), 1);
    assert!(reported[0].starts_with("spec: Invalid value: {\"SignerName\":\"example.com/pods\","));
    assert!(reported[0].contains("\"MaxExpirationSeconds\":7200,\"PKIXPublicKey\":null,"));
    let end = "\"UnverifiedUserAnnotations\":{\"a.b/c\":\"d\"}}: field is immutable";
    assert!(reported[0].ends_with(end), "{reported:?}");
}

fn condition(kind: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": "R",
        "lastTransitionTime": "2026-05-04T12:00:00Z"})
}

fn answered(status: Value) -> Value {
    let mut request = request();
    request["status"] = status;
    request
}

/// Updates the status and returns the result and its errors.
fn answer(mut new: Value, old: &Value) -> (Value, Vec<String>) {
    let SubresourceAction::View { prepare_update, validate_update } =
        KIND.subresource("status").unwrap().action
    else {
        panic!("the status is no view")
    };
    prepare_update(&mut new, old, NOW);
    let mut errors = FieldErrors::new();
    validate_update(&new, old, NOW, &mut errors);
    (new, error_texts(&errors))
}

#[test]
fn an_answer_changes_nothing_else() {
    let mut old = request();
    old["metadata"]["labels"] = json!({"a": "b"});
    let mut new = answered(json!({"conditions": [condition("Denied")]}));
    new["metadata"]["annotations"] = json!({"c": "d"});
    new["metadata"]["finalizers"] = json!(["e/f"]);
    new["spec"]["podName"] = json!("other");
    let (new, reported) = answer(new, &old);
    assert_eq!(reported, [""; 0]);
    assert_eq!((&new["metadata"], &new["spec"]), (&old["metadata"], &old["spec"]));
}

#[test]
fn a_request_is_answered_once() {
    let settled = "status: Invalid value: immutable after PodCertificateRequest is issued, denied, or failed";
    let empty = "status: Invalid value: non-condition status fields must be empty when denying or \
                 failing the PodCertificateRequest";
    let pending = "status: Invalid value: status is immutable unless transitioning to \
                   \"Issued\", \"Denied\", or \"Failed\"";
    let of = |kinds: &[&str]| {
        let conditions: Vec<Value> = kinds.iter().map(|kind| condition(kind)).collect();
        json!({ "conditions": conditions })
    };
    let with = |mut status: Value, field: &str, value: &str| {
        status[field] = json!(value);
        status
    };
    let mut untrue = of(&["Denied"]);
    untrue["conditions"][0]["status"] = json!("False");
    let mut untimed = of(&["Denied"]);
    untimed["conditions"][0]["lastTransitionTime"] = Value::Null;
    let cases: Vec<(Value, Value, Vec<&str>)> = vec![
        (json!({}), json!({}), vec![]),
        (json!({}), of(&["Denied"]), vec![]),
        (json!({}), of(&["Failed"]), vec![]),
        (of(&["Denied"]), of(&["Denied"]), vec![]),
        (of(&["Denied"]), of(&["Failed"]), vec![settled]),
        (of(&["Failed"]), json!({}), vec![settled]),
        (of(&["Issued"]), with(of(&["Issued"]), "certificateChain", "x"), vec![settled]),
        (json!({}), with(of(&["Denied"]), "certificateChain", "x"), vec![empty]),
        (json!({}), with(of(&["Failed"]), "notAfter", "2026-05-04T12:00:00Z"), vec![empty]),
        (json!({}), with(json!({}), "certificateChain", "x"), vec![pending]),
        (
            json!({}),
            untrue,
            vec!["status.conditions.[0].status: Unsupported value: \"False\": supported values: \"True\""],
        ),
        (json!({}), untimed, vec!["status.conditions[0].lastTransitionTime: Required value: must be set"]),
        (
            json!({}),
            of(&["Denied", "Failed"]),
            vec![
                "status.conditions.[1].type: Invalid value: \"Failed\": There may be at most one condition with type \"Issued\", \"Denied\", or \"Failed\"",
            ],
        ),
        (
            json!({}),
            of(&["Seen"]),
            vec![
                "status.conditions.[0].type: Unsupported value: \"Seen\": supported values: \"Issued\", \"Denied\", \"Failed\"",
            ],
        ),
    ];
    for (old, new, want) in cases {
        let (_, reported) = answer(answered(new.clone()), &answered(old));
        assert_eq!(reported, want, "{new}");
    }
}

/// A signer that issues for one pod's key.
struct TestSigner {
    authority: CertificateAuthority,
    key: PrivateKey,
}

/// Parameters of a certificate: start, lifetime and name.
struct IssueParameters {
    starts: Duration,
    lasts: Duration,
    name: &'static str,
}

const USUAL: IssueParameters =
    IssueParameters { starts: Duration::ZERO, lasts: Duration::hours(24), name: "pod.example.com" };

impl TestSigner {
    fn new() -> TestSigner {
        let years = Validity::lasting(NOW - Duration::days(365), Duration::days(3650)).unwrap();
        let authority = CertificateAuthority::self_signed(
            &Subject::new("CA", &[]).unwrap(),
            years,
            PrivateKey::generate().unwrap(),
            Serial::random(&SystemRandom::new()).unwrap(),
        );
        TestSigner { authority: authority.unwrap(), key: PrivateKey::generate().unwrap() }
    }

    fn request(&self) -> Value {
        let proof = self.key.sign(POD_UID.as_bytes()).unwrap();
        pair(STANDARD.encode(self.key.public_key().as_der()), STANDARD.encode(proof))
    }

    fn chain(&self, wanted: &IssueParameters) -> String {
        let leaf = LeafTemplate {
            alt_names: vec![AltName::Dns(wanted.name.into())],
            ..leaf_template(
                "pod",
                &[],
                Validity::lasting(NOW + wanted.starts, wanted.lasts).unwrap(),
                &self.key,
            )
        };
        let leaf = issue(&self.authority, &leaf).unwrap();
        pem::encode_certificates([leaf.as_slice(), self.authority.certificate().der()])
    }

    fn status(&self, wanted: &IssueParameters) -> Value {
        let at = |time: OffsetDateTime| timestamp::format(time);
        let (from, to) = (NOW + wanted.starts, NOW + wanted.starts + wanted.lasts);
        json!({
            "conditions": [condition("Issued")],
            "certificateChain": self.chain(wanted),
            "notBefore": at(from),
            "beginRefreshAt": at(from + wanted.lasts / 2),
            "notAfter": at(to),
        })
    }

    fn update_errors(&self, status: Value) -> Vec<String> {
        let old = self.request();
        let mut new = old.clone();
        new["status"] = status;
        answer(new, &old).1
    }
}

#[test]
fn issued_certificates_match_their_request() {
    let signer = TestSigner::new();
    assert_eq!(signer.update_errors(signer.status(&USUAL)), [""; 0]);
    let chain = "status.certificateChain: Invalid value: ";
    let starts = |starts| IssueParameters { starts, ..USUAL };
    let lasts = |lasts| IssueParameters { lasts, ..USUAL };
    let name = |name| IssueParameters { name, ..USUAL };
    let cases: &[(IssueParameters, &[&str])] = &[
        (starts(Duration::seconds(299)), &[]),
        (starts(Duration::seconds(-299)), &[]),
        (
            starts(Duration::minutes(5)),
            &[
                "status.notBefore: Invalid value: \"2026-05-04T12:05:00Z\": must be set to within 5 minutes of kube-apiserver's current time",
            ],
        ),
        (
            starts(Duration::minutes(-5)),
            &[
                "status.notBefore: Invalid value: \"2026-05-04T11:55:00Z\": must be set to within 5 minutes of kube-apiserver's current time",
            ],
        ),
        (lasts(Duration::hours(1)), &[]),
        (
            lasts(Duration::seconds(3599)),
            &[&format!("{chain}3599000000000: leaf certificate lifetime must be >= 1 hour")],
        ),
        (
            lasts(Duration::seconds(86_401)),
            &[&format!(
                "{chain}86401000000000: leaf certificate lifetime must be <= spec.maxExpirationSeconds (86400)"
            )],
        ),
        (name("a..b"), &[&format!("{chain}\"a..b\": leaf certificate's DNSName should not contain '..'")]),
        (
            name(".b."),
            &[&format!("{chain}\".b.\": leaf certificate's DNSName should not start or end with '.'")],
        ),
    ];
    for (wanted, want) in cases {
        assert_eq!(signer.update_errors(signer.status(wanted)), *want);
    }
}

#[test]
fn an_issued_status_agrees_with_its_certificate() {
    let signer = TestSigner::new();
    let good = signer.chain(&USUAL);
    let (leaf, root) = good.split_at(good.find("-----END").unwrap() + 26);
    let key = include_str!("../../../tests/api/conformance/fixtures/key-block.pem");
    let cut = "-----BEGIN CERTIFICATE-----\neHl6\n-----END CERTIFICATE-----\n";
    let is = "must be present and consistent with the issued certificate";
    let cases: Vec<(&str, Value, Vec<String>)> = vec![
        ("certificateChain", json!(leaf), vec![]),
        ("certificateChain", json!(format!("hello\n{leaf}there\n{root}bye\n")), vec![]),
        (
            "certificateChain",
            json!("x"),
            vec!["\"x\": issued certificate chain must contain at least one certificate".into()],
        ),
        ("certificateChain", json!(key), vec!["entirely of CERTIFICATE PEM blocks".into()]),
        ("certificateChain", json!(cut), vec!["leaf certificate does not parse as valid".into()]),
        (
            "certificateChain",
            json!(format!("{root}{leaf}")),
            vec!["leaf certificate was not issued to the requested public key".into()],
        ),
        ("certificateChain", json!(format!("{leaf}{key}")), vec!["CERTFICATE PEM blocks".into()]),
        (
            "certificateChain",
            json!(format!("{leaf}{cut}")),
            vec!["intermediate certificate does not parse as valid X.509".into()],
        ),
        (
            "certificateChain",
            json!(format!("{good}{}", "x".repeat(102_400))),
            vec!["status.certificateChain: Too long: may not be more than 102400 bytes".into()],
        ),
        ("notBefore", Value::Null, vec![format!("status.notBefore: Required value: {is}")]),
        ("notAfter", Value::Null, vec![format!("status.notAfter: Required value: {is}")]),
        (
            "beginRefreshAt",
            Value::Null,
            vec!["must be present and in the range [notbefore+10min, notafter-10min]".into()],
        ),
        (
            "notBefore",
            json!("2026-05-04T12:00:01Z"),
            vec!["must be set to the NotBefore time encoded in the leaf certificate".into()],
        ),
        (
            "notAfter",
            json!("2026-05-05T12:00:01Z"),
            vec!["must be set to the NotAfter time encoded in the leaf certificate".into()],
        ),
        ("beginRefreshAt", json!("2026-05-04T12:10:00Z"), vec![]),
        (
            "beginRefreshAt",
            json!("2026-05-04T12:09:59Z"),
            vec!["must be at least 10 minutes after status.notBefore".into()],
        ),
        ("beginRefreshAt", json!("2026-05-05T11:50:00Z"), vec![]),
        (
            "beginRefreshAt",
            json!("2026-05-05T11:50:01Z"),
            vec!["must be at least 10 minutes before status.notAfter".into()],
        ),
    ];
    for (i, (field, value, want)) in cases.iter().enumerate() {
        let mut status = signer.status(&USUAL);
        status["certificateChain"] = json!(good);
        status[field] = value.clone();
        let reported = signer.update_errors(status);
        assert_eq!(reported.len(), want.len(), "case {i}: {reported:?}");
        assert!(
            reported.iter().zip(want).all(|(reported, want)| reported.contains(want)),
            "{i}: {reported:?}"
        );
    }
}

#[test]
fn rows_show_the_outcome_of_requests() {
    let mut request = request();
    let row =
        |state: &str, notes: &str| json!(["r", "p", "default", "node-1", "example.com/pods", state, notes]);
    assert_eq!(cells(&KIND, &request), row("Pending", "<none>"));
    request["spec"]["unverifiedUserAnnotations"] = json!({"b.c/d": "2", "a.b/c": "1"});
    for state in ["Issued", "Denied", "Failed"] {
        request["status"] = json!({"conditions": [condition(state)]});
        assert_eq!(cells(&KIND, &request), row(state, "a.b/c=1,b.c/d=2"));
    }
}
