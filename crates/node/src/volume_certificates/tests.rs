//! Runs of nodes in virtual time, against a scripted server.

mod anchors;
mod restarts;
mod taints;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use time::Duration as Span;
use windlass_pki::{ForeignCertificate, PrivateKey, pem};
use windlass_testkit::{InjectedFault, ScriptedApi, SigningPolicy};

use super::testing::{IssuanceTestNode, SIGNER, host_id, id, minutes};
use super::*;
use crate::key_pair::matches_key;

const DAY: SigningPolicy = SigningPolicy::Issue(Span::DAY);

/// Returns the leaf, checked against the key of the pair.
fn leaf(pair: &CredentialBundle) -> ForeignCertificate {
    let chain = pem::certificates(pair.chain.as_bytes()).unwrap();
    let leaf = ForeignCertificate::from_der(&chain[0]).unwrap();
    let key = PrivateKey::from_pem(pair.key.as_bytes()).unwrap();
    assert!(matches_key(&leaf, key.public_key()));
    leaf
}

fn reasons(node: &IssuanceTestNode) -> Vec<(String, String)> {
    let text = |event: &Value, field: &str| event[field].as_str().unwrap().to_owned();
    node.server.events().iter().map(|e| (text(e, "reason"), text(e, "note"))).collect()
}

#[tokio::test(start_paused = true)]
async fn a_pod_gets_a_certificate_and_another_in_time() {
    let node = IssuanceTestNode::new(DAY);
    let mut life = node.start();
    assert_eq!(life.reason(&id("web", 0)), "no credentials yet");
    let annotations = BTreeMap::from([("example.com/path".to_owned(), "a".to_owned())]);
    let mut wanted = node.pod_spec();
    wanted.source.user_annotations = annotations;
    wanted.source.max_expiration_seconds = Some(7200);
    life.certificates.ensure(&id("web", 0), wanted.clone());
    life.certificates.ensure(&id("web", 0), wanted);
    let first = life.ready(&id("web", 0)).await;
    leaf(&first);
    assert_eq!(life.states(), [("fresh", 1)].into());
    let made = node.server.created().remove(0);
    let spec = &made["spec"];
    let uids = ["podUID", "serviceAccountUID", "nodeUID"].map(|f| spec[f].as_str().unwrap());
    assert_eq!(uids, ["web-uid", "account", "node"]);
    let names = ["signerName", "podName", "serviceAccountName", "nodeName"];
    let names = names.map(|f| spec[f].as_str().unwrap());
    assert_eq!(names, [SIGNER, "web", "frontend", "n1"]);
    assert_eq!(spec["maxExpirationSeconds"], 7200);
    assert_eq!(spec["unverifiedUserAnnotations"], json!({"example.com/path": "a"}));
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "web-uid"}]);
    assert_eq!(made["metadata"]["ownerReferences"], owner);
    // It is renewed when the signer says, or up to five minutes later, with another key.
    let second = life.after(&id("web", 0), &first).await;
    let age = node.now() - leaf(&first).not_before();
    assert!(age >= Span::hours(16) && age <= Span::hours(16) + minutes(6), "{age}");
    assert_ne!(second.key, first.key);
    assert_eq!(node.server.created().len(), 2);
    assert_eq!(node.server.calls("node"), 1, "who the node is does not change");
    assert_eq!(reasons(&node), []);
}

#[tokio::test(start_paused = true)]
async fn refusal_is_reported_and_retried() {
    for (kind, state) in [("Denied", "denied"), ("Failed", "failed")] {
        let node = IssuanceTestNode::new(SigningPolicy::Refuse(kind));
        let mut life = node.start();
        life.certificates.ensure(&id("web", 0), node.pod_spec());
        life.until(&id("web", 0), |got| format!("{got:?}").contains("Because")).await;
        let (why, name) = (life.reason(&id("web", 0)), node.server.names().remove(0));
        let verb = if kind == "Denied" { "was denied" } else { "failed" };
        let expected = format!("PodCertificateRequest \"default/{name}\" {verb}: Because: of the script");
        assert_eq!(why, expected);
        assert_eq!(life.states(), [(state, 1)].into());
        node.server.until(|server| server.created().len() == 4).await;
        node.server.policy(DAY);
        life.ready(&id("web", 0)).await;
        let created = node.server.created();
        let keys = created.iter().map(|made| made["spec"]["stubPKCS10Request"].to_string());
        assert_eq!(keys.collect::<BTreeSet<_>>().len(), 5, "each with a separate key");
        // About one minute, two, four and eight.
        let at = node.server.call_times("create");
        for (gap, times) in at.windows(2).zip([1, 2, 4, 8]) {
            let gap = (gap[1] - gap[0]).as_secs_f64() / 60.0 / f64::from(times);
            assert!((0.74..1.27).contains(&gap), "{gap}");
        }
        let told = reasons(&node);
        assert_eq!(told[0], (kind.to_owned(), expected));
        assert_eq!(told.len(), 4);
        assert_eq!(life.states(), [("fresh", 1)].into());
    }
}

#[tokio::test(start_paused = true)]
async fn the_old_pair_is_served_while_another_is_refused() {
    let node = IssuanceTestNode::new(DAY);
    let mut life = node.start();
    life.certificates.ensure(&id("web", 0), node.pod_spec());
    let first = life.ready(&id("web", 0)).await;
    node.server.policy(SigningPolicy::Refuse("Denied"));
    node.server.until(|server| server.created().len() == 4).await;
    assert_eq!(life.credential(&id("web", 0)).unwrap().chain, first.chain);
    assert_eq!(life.states(), [("fresh", 1)].into());
    // It becomes overdue, and that is reported once.
    let overdue =
        |server: &ScriptedApi| server.events().iter().any(|e| e["reason"] == "CertificateOverdueForRefresh");
    node.server.until(overdue).await;
    assert_eq!(life.states(), [("overdue_for_refresh", 1)].into());
    let expired = |server: &ScriptedApi| server.events().iter().any(|e| e["reason"] == "CertificateExpired");
    node.server.until(expired).await;
    assert_eq!(life.states(), [("expired", 1)].into());
    assert_eq!(life.credential(&id("web", 0)).unwrap().chain, first.chain);
    node.server.policy(DAY);
    let second = life.after(&id("web", 0), &first).await;
    leaf(&second);
    assert_eq!(life.states(), [("fresh", 1)].into());
    let told = reasons(&node);
    let once = |reason: &str| told.iter().filter(|(told, _)| told == reason).count();
    assert_eq!((once("CertificateOverdueForRefresh"), once("CertificateExpired")), (1, 1));
    assert!(told.contains(&("CertificateExpired".into(), "PodCertificate expired".into())));
}

#[tokio::test(start_paused = true)]
async fn unusable_certificate_counts_as_refusal() {
    let table = [
        (SigningPolicy::IssueForAnother, "the certificate belongs to another key"),
        (SigningPolicy::IssueExpired, "the certificate expired at"),
        (SigningPolicy::IssueNonsense, "issued certificate chain must contain at least one certificate"),
    ];
    for (policy, expected) in table {
        let node = IssuanceTestNode::new(policy);
        let mut life = node.start();
        life.certificates.ensure(&id("web", 0), node.pod_spec());
        life.until(&id("web", 0), |got| format!("{got:?}").contains("is unusable")).await;
        assert!(life.reason(&id("web", 0)).contains(expected), "{}", life.reason(&id("web", 0)));
        assert_eq!(life.states(), [("failed", 1)].into());
        node.server.policy(DAY);
        leaf(&life.ready(&id("web", 0)).await);
    }
}

#[tokio::test(start_paused = true)]
async fn pending_request_is_recreated_only_after_deletion() {
    let node = IssuanceTestNode::new(SigningPolicy::Wait);
    let mut life = node.start();
    life.certificates.ensure(&id("web", 0), node.pod_spec());
    node.server.until(|server| server.created().len() == 1).await;
    // A day in which leftovers are removed every twenty minutes.
    for _ in 0..72 {
        tokio::time::sleep(Duration::from_secs(20 * 60)).await;
        node.server.delete_all();
    }
    let made = node.server.created();
    assert!((20..40).contains(&made.len()), "{}", made.len());
    let asks = made.iter().map(|made| {
        let stub = serde_json::from_value(made["spec"]["stubPKCS10Request"].clone());
        let k8s_openapi::ByteString(stub) = stub.unwrap();
        let stub = windlass_pki::CertificateRequest::from_der(&stub).unwrap();
        (made["metadata"]["name"].to_string(), stub.public_key().as_der().to_vec())
    });
    assert_eq!(asks.collect::<BTreeSet<_>>().len(), 1, "it is the same ask, with the same key");
    assert_eq!(life.states(), [("not_yet_issued", 1)].into());
    // While it exists, no other is created.
    node.server.until(|server| !server.names().is_empty()).await;
    let before = node.server.created().len();
    tokio::time::sleep(Duration::from_secs(86_400)).await;
    assert_eq!(node.server.created().len(), before);
    node.server.decide(DAY);
    leaf(&life.ready(&id("web", 0)).await);
}

#[tokio::test(start_paused = true)]
async fn api_errors_are_retried() {
    for verb in ["account", "node", "create", "discover", "list", "watch", "get"] {
        let node = IssuanceTestNode::new(DAY);
        node.server.always(verb, InjectedFault::Status(503));
        let mut life = node.start();
        life.certificates.ensure(&id("web", 0), node.pod_spec());
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let calls = node.server.calls(verb);
        assert!(calls <= 200, "{verb}: {calls}");
        let why = match life.certificates.get(&id("web", 0)) {
            CredentialState::Unavailable(why) => why,
            CredentialState::Available(_) => {
                assert!(["list", "watch", "get"].contains(&verb), "{verb}");
                continue;
            }
        };
        if ["account", "node", "create"].contains(&verb) {
            assert!(why.contains("503") && calls > 40, "{verb}: {why} {calls}");
        }
        node.server.heal();
        leaf(&life.ready(&id("web", 0)).await);
        assert_eq!(node.server.created().len(), 1, "{verb}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_does_not_make_two_requests() {
    let node = IssuanceTestNode::new(DAY);
    node.server.always("create", InjectedFault::Lost);
    let mut life = node.start();
    life.certificates.ensure(&id("web", 0), node.pod_spec());
    node.server.until(|server| server.created().len() == 1).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    node.server.heal();
    leaf(&life.ready(&id("web", 0)).await);
    assert_eq!(node.server.created().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn changes_during_watch_outage_are_detected() {
    // Deleted, and answered, while the watch is broken.
    for answered in [false, true] {
        let node = IssuanceTestNode::new(SigningPolicy::Wait);
        let mut life = node.start();
        life.certificates.ensure(&id("web", 0), node.pod_spec());
        node.server.until(|server| server.created().len() == 1).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        node.server.always("watch", InjectedFault::Status(503));
        node.server.always("list", InjectedFault::Status(503));
        node.server.cut_watches();
        tokio::time::sleep(Duration::from_secs(60)).await;
        if answered {
            node.server.decide(DAY)
        } else {
            node.server.delete_all()
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        node.server.policy(DAY);
        node.server.heal();
        let healed = tokio::time::Instant::now();
        leaf(&life.ready(&id("web", 0)).await);
        // The watch is restarted within half a minute; a deleted request is retried a minute later.
        assert!(healed.elapsed() < Duration::from_secs(120), "{:?}", healed.elapsed());
        assert_eq!(node.server.created().len(), if answered { 1 } else { 2 });
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_that_comes_later_is_noticed() {
    let node = IssuanceTestNode::new(DAY);
    node.server.serve(None);
    let mut life = node.start();
    life.certificates.ensure(&id("web", 0), node.pod_spec());
    life.until(&id("web", 0), |got| format!("{got:?}").contains("does not serve")).await;
    let expected = "the server does not serve podcertificaterequests.certificates.k8s.io";
    assert_eq!(life.reason(&id("web", 0)), expected);
    assert_eq!(node.server.calls("create") + node.server.calls("list"), 0);
    for version in ["v1", "v1beta1", "v1alpha1"] {
        node.server.serve(Some(version));
        let pod = id(version, 0);
        life.certificates
            .ensure(&pod, CertificateSpec { state: node.state().join(version), ..node.pod_spec() });
        leaf(&life.ready(&pod).await);
        tokio::time::sleep(Duration::from_secs(600)).await;
    }
    leaf(&life.ready(&id("web", 0)).await);
    let made = node.server.created();
    let spec = &made.last().unwrap()["spec"];
    assert!(spec["stubPKCS10Request"].is_null() && !spec["proofOfPossession"].is_null());
}

#[tokio::test(start_paused = true)]
async fn a_server_without_stubs_gets_the_older_proof() {
    let node = IssuanceTestNode::new(DAY);
    node.server.forget_stubs();
    let mut life = node.start();
    for name in ["a", "b"] {
        let wanted = CertificateSpec { state: node.state().join(name), ..node.pod_spec() };
        life.certificates.ensure(&id(name, 0), wanted);
        leaf(&life.ready(&id(name, 0)).await);
    }
    assert_eq!(node.server.calls("create"), 3, "it is found out once");
}

#[tokio::test(start_paused = true)]
async fn a_disabled_gate_creates_no_pod_requests() {
    let mut node = IssuanceTestNode::new(DAY);
    node.gates.pod_certificate_request = false;
    let mut life = node.start();
    life.certificates.ensure(&id("web", 0), node.pod_spec());
    let expected = "PodCertificate projection: the feature gate PodCertificateRequest is off";
    assert_eq!(life.reason(&id("web", 0)), expected);
    assert_eq!(life.states(), BTreeMap::new());
    life.certificates.ensure(&host_id("edge"), node.host_spec());
    leaf(&life.ready(&host_id("edge")).await);
    assert_eq!(node.server.calls("discover"), 0);
    assert_eq!(node.server.created().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_host_creates_a_certificate_signing_request() {
    let node = IssuanceTestNode::new(SigningPolicy::Wait);
    let mut life = node.start();
    let mut wanted = node.host_spec();
    wanted.source.key_type = "RSA3072".into();
    wanted.source.max_expiration_seconds = Some(60);
    wanted.source.user_annotations = BTreeMap::from([("example.com/a".into(), "b".into())]);
    life.certificates.ensure(&host_id("edge"), wanted);
    node.server.until(|server| server.created().len() == 1).await;
    // Approval by people takes long.
    tokio::time::sleep(Duration::from_secs(5 * 3600)).await;
    assert_eq!(node.server.created().len(), 1);
    let made = node.server.created().remove(0);
    let spec = &made["spec"];
    assert_eq!((&spec["signerName"], &spec["expirationSeconds"]), (&json!(SIGNER), &json!(600)));
    let usages = json!(["digital signature", "key encipherment", "client auth", "server auth"]);
    assert_eq!(spec["usages"], usages);
    assert_eq!(made["metadata"]["annotations"], json!({"example.com/a": "b"}));
    let text: k8s_openapi::ByteString = serde_json::from_value(spec["request"].clone()).unwrap();
    let asked = windlass_pki::CertificateRequest::from_pem(&text.0).unwrap();
    assert_eq!(asked.subject().common_name(), "n1");
    assert_eq!(asked.alt_names().dns_names, ["edge.example"]);
    let got = format!("{:?}", life.certificates.get(&host_id("edge")));
    let name = made["metadata"]["name"].as_str().unwrap();
    assert!(got.contains(name) && got.contains("is waiting to be approved"), "{got}");
    node.server.policy(DAY);
    node.server.decide(SigningPolicy::Refuse("Denied"));
    life.until(&host_id("edge"), |got| format!("{got:?}").contains("was denied")).await;
    let first = life.ready(&host_id("edge")).await;
    let second = life.after(&host_id("edge"), &first).await;
    let age = node.now() - leaf(&first).not_before();
    assert!(age >= Span::DAY * 0.7 && age <= Span::DAY * 0.9 + Span::MINUTE, "{age}");
    leaf(&second);
    let told = reasons(&node);
    assert!(told[0].1.starts_with("projection \"edge\": CertificateSigningRequest "), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn removed_certificate_leaves_no_request_or_state() {
    let node = IssuanceTestNode::new(SigningPolicy::Wait);
    let life = node.start();
    let wanted = node.pod_spec();
    for index in 0..3 {
        life.certificates.ensure(&id("web", index), wanted.clone());
    }
    life.certificates.ensure(&id("db", 0), CertificateSpec { state: node.state().join("db"), ..wanted });
    node.server.until(|server| server.created().len() == 4).await;
    let owner = id("web", 0).volume.owner;
    life.certificates.retain(&owner, &[id("web", 1)]);
    let files = || {
        let mut names = std::fs::read_dir(node.state()).unwrap();
        let mut all = Vec::new();
        while let Some(Ok(name)) = names.next() {
            all.push(name.file_name().into_string().unwrap());
        }
        all.sort();
        all
    };
    assert_eq!(files(), ["db", "tls-1.pem"]);
    assert_eq!(life.reason(&id("web", 0)), "no credentials yet");
    assert_eq!(life.states(), [("not_yet_issued", 2)].into());
    node.server.delete_all();
    node.server.until(|server| server.names().len() == 2).await;
    tokio::time::sleep(Duration::from_secs(86_400)).await;
    assert_eq!(node.server.names().len(), 2);
    assert_eq!(files(), ["db", "tls-1.pem"]);
}
