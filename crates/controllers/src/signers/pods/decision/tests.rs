use std::path::Path;
use std::sync::Arc;

use k8s_openapi::ByteString;
use serde_json::{Value, json};
use time::Duration;
use time::macros::datetime;
use windlass_pki::{DistinguishedName, ForeignCertificate, IssuedChain, PrivateKey, Subject, Validity};
use windlass_testkit::{ca_with_validity, random_serial};
use x509_cert::der::Decode as _;

use super::*;
use crate::ca::CaSource;
use crate::signers::config::SignersConfig;

macro_rules! fixture {
    ($name:literal) => {
        ByteString(
            include_bytes!(concat!("../../../../../server/tests/api/conformance/fixtures/", $name)).to_vec(),
        )
    };
}

const NOW: OffsetDateTime = datetime!(2026-05-04 12:00 UTC);
const FROM: OffsetDateTime = datetime!(2026-01-01 0:00 UTC);
const POD_UID: &str = "9f1c7b9e-6d0b-4a55-8f39-0d5b6f0c1a11";

fn profile(lines: &[&str]) -> PodProfile {
    let head = "apiVersion: windlass.dev/v1\nkind: Signers\nsigners:\n- name: example.com/pods\n  \
                ca: {files: {certificate: ca.crt, key: ca.key}}\n  pods:\n";
    let lines: String = lines.iter().map(|line| format!("    {line}\n")).collect();
    let signers = SignersConfig::parse(Path::new("signers.yaml"), &format!("{head}{lines}"));
    signers.unwrap().signers.remove(0).pods.unwrap()
}

fn request(changes: Value) -> PodRequest {
    let mut spec = json!({
        "signerName": "example.com/pods",
        "podName": "web-0",
        "podUID": POD_UID,
        "serviceAccountName": "frontend",
        "serviceAccountUID": "s1",
        "nodeName": "n1",
        "nodeUID": "n1",
        "maxExpirationSeconds": 86_400,
        "stubPKCS10Request": fixture!("pcr-p256.stub.der"),
        "pkixPublicKey": null,
        "proofOfPossession": null,
    });
    for (key, value) in changes.as_object().unwrap() {
        spec[key] = value.clone();
    }
    serde_json::from_value(json!({
        "apiVersion": "certificates.k8s.io/v1beta1",
        "kind": "PodCertificateRequest",
        "metadata": {"name": "req-1", "namespace": "web", "uid": "u", "resourceVersion": "1"},
        "spec": spec,
        "status": {},
    }))
    .unwrap()
}

fn world() -> PodContext {
    let pod = json!({
        "metadata": {"name": "web-0", "namespace": "web", "uid": POD_UID, "labels": {"app": "web"}},
        "spec": {"serviceAccountName": "frontend", "containers": []},
    });
    let service = |name: &str, app: &str| {
        let service = json!({"metadata": {"name": name}, "spec": {"selector": {"app": app}}});
        serde_json::from_value(service).unwrap()
    };
    let services = vec![service("web", "web"), service("all", "web"), service("db", "db")];
    PodContext { pod: Some(serde_json::from_value(pod).unwrap()), services, leaf_limit: None }
}

fn authority(until: OffsetDateTime) -> SigningCa {
    ca_with_validity("pods", Validity::new(FROM, until).unwrap()).into()
}

fn usual() -> SigningCa {
    authority(datetime!(2036-01-01 0:00 UTC))
}

fn answer(request: &PodRequest, profile: &PodProfile) -> PodRequestDecision {
    decide(request, profile, &world(), &usual(), NOW)
}

fn refusal(answer: PodRequestDecision) -> (&'static str, &'static str, String) {
    match answer {
        PodRequestDecision::Denied(why) => ("Denied", why.reason, why.message),
        PodRequestDecision::Failed(why) => ("Failed", why.reason, why.message),
        PodRequestDecision::Delayed(why) => ("Delayed", why.reason, why.message),
        other => panic!("{other:?}"),
    }
}

/// Signs what was decided, as if it were recorded.
fn sign(
    answer: PodRequestDecision,
    ca: &SigningCa,
) -> Result<(String, CertificateTimes), PodRequestDecision> {
    let PodRequestDecision::Issue { prepared, times } = answer else { return Err(answer) };
    let recorded = RecordedIssuance::for_test(prepared.record.serial);
    Ok((sign_chain(&prepared, ca, &recorded)?, times))
}

fn leaf(answer: PodRequestDecision) -> (ForeignCertificate, CertificateTimes) {
    let (chain, times) = sign(answer, &usual()).unwrap();
    let chain = IssuedChain::parse(&chain).unwrap();
    assert_eq!(chain.leaf_faults().len(), 0);
    (chain.leaf().clone(), times)
}

#[test]
fn a_certificate_names_the_list_of_its_ca() {
    let text = "{apiVersion: windlass.dev/v1, kind: Signers, signers: [{name: example.com/pods, \
                ca: {files: {certificate: ca.crt, key: ca.key}}, pods: {trustDomain: example.com}, \
                crl: {distributionPoints: ['http://crl.example.com/{authority}.crl']}}]}";
    let mut signers = SignersConfig::parse(Path::new("signers.yaml"), text).unwrap().signers;
    let (profile, ca) = (signers.remove(0).pods.unwrap(), usual());
    let (chain, _) = sign(decide(&request(json!({})), &profile, &world(), &ca, NOW), &ca).unwrap();
    let leaf = windlass_pki::pem::certificates(chain.as_bytes()).unwrap().remove(0);
    let url = format!("http://crl.example.com/{}.crl", ca.certificate().authority_id());
    assert!(leaf.windows(url.len()).any(|part| part == url.as_bytes()), "{url}");
}

#[test]
fn a_certificate_names_the_account_and_its_services() {
    let id = "spiffe://example.com/ns/web/sa/frontend";
    let short = ["all.web.svc", "all.web.svc.cluster.local", "web.web.svc"];
    let names = [short.as_slice(), &["web.web.svc.cluster.local"]].concat();
    let other = ["all.web.svc", "all.web.svc.k.example", "web.web.svc", "web.web.svc.k.example"];
    let table: [(&[&str], &[&str], &[&str]); 4] = [
        (&["trustDomain: example.com"], &[], &[id]),
        (&["serviceNames: true"], &names, &[]),
        (&["serviceNames: true", "clusterDomain: k.example"], &other, &[]),
        (&["trustDomain: example.com", "serviceNames: true"], &names, &[id]),
    ];
    for (lines, dns_names, uris) in table {
        let (leaf, _) = leaf(answer(&request(json!({})), &profile(lines)));
        assert_eq!(leaf.alt_names().dns_names, dns_names);
        assert_eq!(leaf.alt_names().uris, uris);
        assert!(leaf.alt_names().ip_addresses.is_empty());
        assert_eq!(leaf.subject(), &DistinguishedName::default(), "it is not mistaken for a user");
    }
}

#[test]
fn every_key_is_signed_in_both_forms() {
    let pair = |key: ByteString, proof: ByteString| {
        let stub = Value::Null;
        json!({"stubPKCS10Request": stub, "pkixPublicKey": key, "proofOfPossession": proof})
    };
    let stub = |stub: ByteString| json!({ "stubPKCS10Request": stub });
    let rsa4096 = include_bytes!("../../../../tests/loops/fixtures/pod-rsa4096.stub.der").to_vec();
    let table = [
        (stub(fixture!("pcr-p256.stub.der")), KeyType::EcdsaP256),
        (stub(fixture!("pcr-p384.stub.der")), KeyType::EcdsaP384),
        (stub(fixture!("pcr-p521.stub.der")), KeyType::EcdsaP521),
        (stub(fixture!("pcr-ed25519.stub.der")), KeyType::Ed25519),
        (stub(fixture!("pcr-rsa3072.stub.der")), KeyType::Rsa3072),
        (stub(ByteString(rsa4096)), KeyType::Rsa4096),
        (pair(fixture!("pcr-p256.spki"), fixture!("pcr-p256.pop")), KeyType::EcdsaP256),
        (pair(fixture!("pcr-p384.spki"), fixture!("pcr-p384.pop")), KeyType::EcdsaP384),
        (pair(fixture!("pcr-p521.spki"), fixture!("pcr-p521.pop")), KeyType::EcdsaP521),
        (pair(fixture!("pcr-ed25519.spki"), fixture!("pcr-ed25519.pop")), KeyType::Ed25519),
        (pair(fixture!("pcr-rsa3072.spki"), fixture!("pcr-rsa3072.pop")), KeyType::Rsa3072),
    ];
    let all = profile(&["trustDomain: example.com"]);
    for (changes, kind) in table {
        let (leaf, _) = leaf(answer(&request(changes.clone()), &all));
        assert_eq!(leaf.public_key().pod_key_type(), Ok(kind));
        let only = |kind: &str| profile(&["trustDomain: e.com", &format!("keyTypes: [{kind}]")]);
        let mut others = KeyType::POD_CERTIFICATE.iter().filter(|each| **each != kind);
        let other = others.next().unwrap().name();
        let (answer, reason, message) = refusal(answer(&request(changes), &only(other)));
        assert_eq!((answer, reason), ("Denied", "UnsupportedKeyType"));
        assert!(message.ends_with(&format!("; it signs {other}")), "{message}");
    }
}

#[test]
fn usages_are_those_of_the_profile() {
    // Extension values: key usage bits, and a list of object identifiers.
    let (signature, and_encipherment) = ("03020780", "030205a0");
    let (server, client) = ("06082b06010505070301", "06082b06010505070302");
    let (both, one) = (format!("3014{server}{client}"), format!("300a{client}"));
    let (ecdsa, rsa) = (fixture!("pcr-p256.stub.der"), fixture!("pcr-rsa3072.stub.der"));
    let chosen = "usages: [digital signature, client auth]";
    let table = [
        (&ecdsa, "", signature, &both),
        (&rsa, "", and_encipherment, &both),
        (&ecdsa, chosen, signature, &one),
        (&rsa, chosen, signature, &one),
    ];
    for (stub, line, key, extended) in table {
        let profile = profile(&["trustDomain: example.com", line]);
        let (leaf, _) = leaf(answer(&request(json!({ "stubPKCS10Request": stub })), &profile));
        assert_eq!(extension(&leaf, "2.5.29.15"), key, "{line}");
        assert_eq!(extension(&leaf, "2.5.29.37"), *extended, "{line}");
    }
}

fn extension(certificate: &ForeignCertificate, id: &str) -> String {
    let certificate = x509_cert::Certificate::from_der(certificate.der()).unwrap();
    let mut all = certificate.tbs_certificate().extensions().unwrap().iter();
    let found = all.find(|extension| extension.extn_id.to_string() == id).unwrap();
    found.extn_value.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn times_have_the_format_of_the_api() {
    let day = 24 * 60;
    // Profile, requested lifetime, and in minutes: lifetime and time until renewal.
    let table = [
        ("", 86_400, day, 950),
        ("", 7_862_400, day, 950),
        ("", 3600, 60, 39),
        ("maxDuration: 2h", 86_400, 120, 79),
        ("maxDuration: 2h", 3600, 60, 39),
        ("refreshAfter: 0.5", 3600, 60, 30),
        ("refreshAfter: 0.01", 3600, 60, 10),
        ("refreshAfter: 0.99", 3600, 60, 50),
        ("maxDuration: 2184h", 7_862_400, 91 * day, 86_486),
    ];
    let start = NOW - Duration::minutes(2);
    for (line, asked, life, renewal) in table {
        let profile = profile(&["trustDomain: example.com", line]);
        let request = request(json!({ "maxExpirationSeconds": asked }));
        let (leaf, times) = leaf(answer(&request, &profile));
        assert_eq!((leaf.not_before(), leaf.not_after()), (start, start + Duration::minutes(life)));
        assert_eq!(times.validity.not_before(), leaf.not_before());
        assert_eq!(times.validity.not_after(), leaf.not_after());
        let until = (times.begin_refresh_at - start).whole_minutes();
        assert_eq!(until, renewal, "{line} {asked}");
    }
    // A planned retirement of the CA ends it earlier.
    let request_day = request(json!({ "maxExpirationSeconds": 86_400 }));
    for (limit, life) in [(90, 92), (3 * day, day)] {
        let limited = PodContext { leaf_limit: Some(NOW + Duration::minutes(limit)), ..world() };
        let profile = profile(&["trustDomain: example.com"]);
        let (leaf, _) = leaf(decide(&request_day, &profile, &limited, &usual(), NOW));
        assert_eq!(leaf.not_after() - leaf.not_before(), Duration::minutes(life), "{limit}");
    }
    let mut unsaid = request(json!({}));
    unsaid.data["spec"].as_object_mut().unwrap().remove("maxExpirationSeconds");
    let profile = profile(&["trustDomain: example.com", "maxDuration: 48h"]);
    let (leaf, _) = leaf(answer(&unsaid, &profile));
    assert_eq!(leaf.not_after() - leaf.not_before(), Duration::DAY);
}

#[test]
fn unsupported_requests_are_denied() {
    let domain = "trustDomain: example.com";
    let annotations = json!({"unverifiedUserAnnotations": {"b.com/x": "1", "a.com/y": "2"}});
    let permitted = "this signer does not sign for service account web/frontend";
    let key = "this signer does not sign keys of type ECDSAP256; it signs RSA3072, ED25519";
    let nothing = json!({});
    let table = [
        ("namespaces: [other]", &nothing, "NotPermitted", permitted),
        ("namespaces: []", &nothing, "NotPermitted", permitted),
        ("serviceAccounts: [web/other, db/frontend]", &nothing, "NotPermitted", permitted),
        (
            "",
            &annotations,
            "InvalidUnverifiedUserAnnotations",
            "\"a.com/y\" is not supported: this signer accepts no annotations",
        ),
        ("keyTypes: [RSA3072, ED25519]", &nothing, "UnsupportedKeyType", key),
        (
            "",
            &json!({"serviceAccountName": "admin"}),
            "NotPermitted",
            "pod web/web-0 does not run as service account admin",
        ),
    ];
    for (line, changes, reason, message) in table {
        let answer = answer(&request(changes.clone()), &profile(&[domain, line]));
        assert_eq!(refusal(answer), ("Denied", reason, message.to_owned()), "{line} {changes}");
    }
    for line in ["namespaces: [web]", "serviceAccounts: [web/frontend]", "keyTypes: [RSA3072, ECDSAP256]"] {
        leaf(answer(&request(json!({"unverifiedUserAnnotations": {}})), &profile(&[domain, line])));
    }
}

#[test]
fn permanent_errors_fail() {
    let mut tampered = fixture!("pcr-p256.stub.der");
    *tampered.0.last_mut().unwrap() ^= 1;
    let pair = |proof: Value| {
        let key = fixture!("pcr-p256.spki");
        json!({"stubPKCS10Request": null, "pkixPublicKey": key, "proofOfPossession": proof})
    };
    let table = [
        (json!({"stubPKCS10Request": tampered}), "KeyUnproven"),
        (json!({"stubPKCS10Request": ByteString(b"garbage".to_vec())}), "KeyUnproven"),
        (json!({"stubPKCS10Request": null}), "KeyUnproven"),
        (json!({"stubPKCS10Request": ""}), "KeyUnproven"),
        (pair(json!(fixture!("pcr-p384.pop"))), "KeyUnproven"),
        (pair(Value::Null), "KeyUnproven"),
        (json!({"stubPKCS10Request": "***"}), "RequestUnreadable"),
        (json!({"podUID": 7}), "RequestUnreadable"),
        (json!({"maxExpirationSeconds": 3599}), "TooShort"),
    ];
    let profile = profile(&["trustDomain: example.com"]);
    for (changes, expected) in table {
        let (answer, reason, message) = refusal(answer(&request(changes.clone()), &profile));
        assert_eq!((answer, reason), ("Failed", expected), "{changes} {message}");
    }
    let mut other_pod = request(pair(json!(fixture!("pcr-p256.pop"))));
    leaf(answer(&other_pod, &profile));
    other_pod.data["spec"]["podUID"] = json!("another");
    assert_eq!(refusal(answer(&other_pod, &profile)).1, "KeyUnproven");
    let weak = request(json!({"stubPKCS10Request": fixture!("pcr-rsa2048.stub.der")}));
    assert_eq!(refusal(answer(&weak, &profile)).1, "UnsupportedKeyType");
}

#[test]
fn transient_errors_are_retried() {
    let (id, dns) = (profile(&["trustDomain: example.com"]), profile(&["serviceNames: true"]));
    let (good, soon) = (usual(), authority(NOW + Duration::minutes(57)));
    let expired = authority(NOW - Duration::HOUR);
    let without = |remove: &str| {
        let mut world = world();
        match remove {
            "pod" => world.pod = None,
            "uid" => world.pod.as_mut().unwrap().metadata.uid = Some("another".into()),
            "labels" => world.pod.as_mut().unwrap().metadata.labels = None,
            "nothing" => {}
            other => panic!("{other}"),
        }
        world
    };
    let with_services = |count: usize, length: usize| {
        let mut world = world();
        let name = |number: usize| {
            let mut service = world.services[0].clone();
            service.metadata.name = Some(format!("s{number:0length$}"));
            service
        };
        world.services = (0..count).map(name).collect();
        world
    };
    let table = [
        (&id, without("pod"), &good, "PodNotFound"),
        (&id, without("uid"), &good, "PodNotFound"),
        (&dns, without("labels"), &good, "NoNames"),
        (&dns, with_services(MAX_ALT_NAMES / 2, 4), &good, "TooManyNames"),
        (&dns, with_services(MAX_ALT_NAMES / 2 - 1, 62), &good, "ChainTooLong"),
        (&id, without("nothing"), &soon, "SignerExpired"),
        (&id, without("nothing"), &expired, "SignerExpired"),
    ];
    for (profile, world, ca, expected) in table {
        let answer = decide(&request(json!({})), profile, &world, ca, NOW);
        let (answer, reason, message) = refusal(answer);
        assert_eq!((answer, reason), ("Delayed", expected), "{message}");
    }
    let nameless = decide(&request(json!({})), &id, &without("labels"), &good, NOW);
    assert_eq!(leaf(nameless).0.alt_names().uris.len(), 1, "an id needs no service");
    let many = with_services(MAX_ALT_NAMES / 2 - 1, 4);
    let named = leaf(decide(&request(json!({})), &dns, &many, &good, NOW)).0;
    assert_eq!(named.alt_names().dns_names.len(), MAX_ALT_NAMES - 2);
}

#[test]
fn only_a_pending_request_is_answered() {
    let profile = profile(&["trustDomain: example.com"]);
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status});
    let conditions = |list: &[Value]| json!({ "conditions": list });
    for (status, is_answered) in [
        (json!({}), false),
        (conditions(&[condition("Issued", "True")]), true),
        (conditions(&[condition("Denied", "True")]), true),
        (conditions(&[condition("Failed", "True")]), true),
        (conditions(&[condition("Denied", "")]), true),
        (conditions(&[condition("Failed", "Unknown")]), true),
        (conditions(&[json!({"type": "Denied"})]), true),
        (conditions(&[condition("Issued", "False")]), false),
        (conditions(&[condition("Denied", "False")]), false),
        (conditions(&[condition("Denied", "False"), condition("Failed", "True")]), true),
        (conditions(&[condition("windlass.dev/Other", "True")]), false),
        (json!({"certificateChain": "x"}), true),
        (json!({"certificateChain": ""}), false),
    ] {
        let mut request = request(json!({}));
        request.data["status"] = status.clone();
        let answer = answer(&request, &profile);
        assert_eq!(answer == PodRequestDecision::Nothing, is_answered, "{status} {answer:?}");
        assert_eq!(matches!(answer, PodRequestDecision::Issue { .. }), !is_answered, "{status}");
        let parsed = PendingPodRequest::parse(&request).err();
        assert_eq!(parsed.is_some(), is_answered, "{status}");
    }
}

#[test]
fn a_request_is_verified_against_its_pod_and_its_key() {
    let verify = |changes: Value, pod: Option<&Pod>| {
        let pending = PendingPodRequest::parse(&request(changes)).unwrap();
        pending.verify(pod).err()
    };
    let good = world().pod.unwrap();
    let changed = |change: fn(&mut Pod)| {
        let mut pod = good.clone();
        change(&mut pod);
        pod
    };
    let other_uid = changed(|pod| pod.metadata.uid = Some("other".into()));
    let no_uid = changed(|pod| pod.metadata.uid = None);
    let other_account = changed(|pod| pod.spec.as_mut().unwrap().service_account_name = Some("admin".into()));
    let no_account = changed(|pod| pod.spec.as_mut().unwrap().service_account_name = None);
    let mut tampered = fixture!("pcr-p256.stub.der");
    *tampered.0.last_mut().unwrap() ^= 1;
    let reason = |refused: Option<UnsignablePodRequest>| match refused {
        None => "",
        Some(UnsignablePodRequest::NotPending) => "NotPending",
        Some(UnsignablePodRequest::Unreadable(_)) => "Unreadable",
        Some(UnsignablePodRequest::KeyUnproven(_)) => "KeyUnproven",
        Some(UnsignablePodRequest::PodNotFound(_)) => "PodNotFound",
        Some(UnsignablePodRequest::NotPermitted(_)) => "NotPermitted",
    };
    for (changes, pod, expected) in [
        (json!({}), Some(&good), ""),
        (json!({}), None, "PodNotFound"),
        (json!({}), Some(&other_uid), "PodNotFound"),
        (json!({}), Some(&no_uid), "PodNotFound"),
        (json!({}), Some(&other_account), "NotPermitted"),
        (json!({}), Some(&no_account), "NotPermitted"),
        (json!({"serviceAccountName": "default"}), Some(&no_account), ""),
        (json!({"stubPKCS10Request": tampered}), Some(&good), "KeyUnproven"),
        (json!({"stubPKCS10Request": null}), Some(&good), "KeyUnproven"),
    ] {
        assert_eq!(reason(verify(changes.clone(), pod)), expected, "{changes}");
    }
}

#[test]
fn intermediates_above_the_issuer_are_included() {
    let files = tempfile::tempdir().unwrap();
    let (certificate, key) = (files.path().join("ca.crt"), files.path().join("ca.key"));
    let profile = profile(&["trustDomain: example.com"]);
    // Decides with a CA that has this many issuers above it.
    let behind = |count: usize| {
        let validity = Validity::new(FROM, datetime!(2030-01-01 0:00 UTC)).unwrap();
        let mut chain = vec![ca_with_validity("root", validity)];
        for number in 0..count {
            let subject = Subject::new(&format!("ca {number}"), &[]).unwrap();
            let key = PrivateKey::generate().unwrap();
            chain.push(chain[number].intermediate(&subject, validity, key, random_serial()).unwrap());
        }
        let text: String = chain.iter().rev().map(|each| each.certificate().to_pem()).collect();
        let last = chain.last().unwrap();
        std::fs::write(&certificate, text).unwrap();
        std::fs::write(&key, last.key().to_pem().unwrap().as_bytes()).unwrap();
        let ca = CaSource::from_chain_files(certificate.clone(), key.clone(), Arc::new(|| NOW));
        let ca = ca.current().unwrap();
        (sign(decide(&request(json!({})), &profile, &world(), &ca, NOW), &ca), chain)
    };
    for count in 0..3 {
        let (Ok((chain, _)), authorities) = behind(count) else { panic!() };
        let chain = pem::certificates(chain.as_bytes()).unwrap();
        assert_eq!(chain.len(), 1 + count, "the root is not sent");
        for (issued, authority) in chain.iter().zip(authorities.iter().rev()) {
            assert!(authority.has_issued(&Certificate::from_der(issued).unwrap()));
        }
    }
    let (_, reason, _) = refusal(behind(200).0.unwrap_err());
    assert_eq!(reason, "ChainTooLong");
}
