//! Certificates of pods and of the host, from a real server in this process and its signers.

#![allow(clippy::unwrap_used)]

mod fixture;

use std::collections::BTreeMap;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use time::{Duration as Span, OffsetDateTime};
use windlass_node::volume::plan::{CredentialBundle, CredentialState};
use windlass_node::volume_certificates::{CertificateSpec, CertificateSubject};
use windlass_pki::{AltNames, ForeignCertificate, KeyType, PrivateKey, SubjectKey, pem};

use fixture::{Certificate, IssuingFixture, SIGNER, host, source};

const TYPES: [(&str, KeyType); 6] = [
    ("RSA3072", KeyType::Rsa3072),
    ("RSA4096", KeyType::Rsa4096),
    ("ECDSAP256", KeyType::EcdsaP256),
    ("ECDSAP384", KeyType::EcdsaP384),
    ("ECDSAP521", KeyType::EcdsaP521),
    ("ED25519", KeyType::Ed25519),
];

/// Returns the leaf, checked against the key of the pair.
fn leaf(pair: &CredentialBundle) -> ForeignCertificate {
    let chain = pem::certificates(pair.chain.as_bytes()).unwrap();
    assert!(!chain.is_empty());
    let leaf = ForeignCertificate::from_der(&chain[0]).unwrap();
    let key = PrivateKey::from_pem(pair.key.as_bytes()).unwrap();
    let public = SubjectKey::from_der(key.public_key().as_der()).unwrap();
    assert_eq!(*leaf.public_key(), public);
    leaf
}

#[tokio::test]
async fn every_key_type_in_every_version_gets_a_pair() {
    for version in ["v1", "v1beta1", "v1alpha1"] {
        let mut world = IssuingFixture::start(version).await;
        let mut node = world.node();
        let types = TYPES.map(|(key_type, _)| source(key_type));
        let pod = world.create_pod("web", &types).await;
        for (index, source) in types.into_iter().enumerate() {
            node.ensure(&pod.id(index), pod.certificate_spec(source, node.state()));
        }
        for (index, (key_type, kind)) in TYPES.into_iter().enumerate() {
            let pair = node.ready(&pod.id(index)).await;
            let leaf = leaf(&pair);
            assert_eq!(leaf.public_key().pod_key_type(), Ok(kind), "{version} {key_type}");
            assert_eq!(leaf.alt_names().uris, ["spiffe://example.com/ns/default/sa/frontend"]);
        }
        let requests = world.requests().await;
        assert_eq!(requests.len(), 6);
        for request in requests {
            let owner = &request.metadata.owner_references.as_ref().unwrap()[0];
            assert_eq!((owner.kind.as_str(), &owner.uid), ("Pod", &pod.uid));
            assert_eq!((owner.controller, owner.block_owner_deletion), (None, None));
            assert!(request.name_any().starts_with("req-"));
            let older = !request.data["spec"]["pkixPublicKey"].is_null();
            let key_type = request.data["spec"]["stubPKCS10Request"].is_null();
            assert_eq!(older, key_type, "one or the other");
        }
        let fresh = BTreeMap::from([((SIGNER.to_owned(), "fresh"), 6)]);
        assert_eq!(node.certificates.states(), fresh);
    }
}

#[tokio::test]
async fn a_pod_says_how_long_its_certificate_may_last() {
    let mut world = IssuingFixture::start("v1").await;
    let mut node = world.node();
    let mut source = source("ECDSAP256");
    source.max_expiration_seconds = Some(7200);
    let pod = world.create_pod("web", std::slice::from_ref(&source)).await;
    node.ensure(&pod.id(0), pod.certificate_spec(source, node.state()));
    let leaf = leaf(&node.ready(&pod.id(0)).await);
    assert!(leaf.not_after() - leaf.not_before() <= Span::hours(2));
    assert!(leaf.not_after() > OffsetDateTime::now_utc() + Span::HOUR);
    let request = world.requests().await.remove(0);
    assert_eq!(request.data["spec"]["maxExpirationSeconds"], 7200);
    assert_eq!(request.data["spec"]["podUID"], json!(pod.uid));
}

#[tokio::test]
async fn annotations_arrive_and_a_signer_that_rejects_them_reports_to_the_pod() {
    let mut world = IssuingFixture::start("v1").await;
    let mut node = world.node();
    let mut source = source("ECDSAP256");
    source.user_annotations = BTreeMap::from([("example.com/team".to_owned(), "payments".to_owned())]);
    let pod = world.create_pod("web", std::slice::from_ref(&source)).await;
    node.ensure(&pod.id(0), pod.certificate_spec(source, node.state()));
    node.until(&pod.id(0), |got| matches!(got, CredentialState::Unavailable(why) if why.contains("denied")))
        .await;
    let request = world.requests().await.remove(0);
    let annotations = &request.data["spec"]["unverifiedUserAnnotations"];
    assert_eq!(*annotations, json!({"example.com/team": "payments"}));
    let denied = BTreeMap::from([((SIGNER.to_owned(), "denied"), 1)]);
    assert_eq!(node.certificates.states(), denied);
    let expected = format!(
        "PodCertificateRequest \"default/{}\" was denied: InvalidUnverifiedUserAnnotations: \
         \"example.com/team\" is not supported: this signer accepts no annotations",
        request.name_any()
    );
    assert!(
        matches!(node.certificates.get(&pod.id(0)), CredentialState::Unavailable(why) if why == expected)
    );
    let events: Api<Event> = Api::namespaced(world.admin(), "default");
    let reported = async {
        loop {
            let all = events.list(&ListParams::default()).await.unwrap().items;
            match all.into_iter().find(|event| event.reason.as_deref() == Some("Denied")) {
                Some(event) => return event,
                None => tokio::task::yield_now().await,
            }
        }
    };
    let reported = tokio::time::timeout(fixture::PATIENCE, reported).await.unwrap();
    assert_eq!((reported.note, reported.type_.as_deref()), (Some(expected), Some("Warning")));
    assert_eq!(reported.regarding.unwrap().uid, Some(pod.uid));
}

#[tokio::test]
async fn a_restart_requests_nothing_and_a_refresh_creates_a_new_pair() {
    let mut world = IssuingFixture::start("v1").await;
    let mut node = world.node();
    let pod = world.create_pod("web", &[source("ECDSAP256")]).await;
    let wanted = pod.certificate_spec(source("ECDSAP256"), node.state());
    node.ensure(&pod.id(0), wanted.clone());
    let first = node.ready(&pod.id(0)).await;
    let mut node = node.restart().await;
    node.ensure(&pod.id(0), wanted.clone());
    assert!(
        matches!(node.certificates.get(&pod.id(0)), CredentialState::Available(now) if now.chain == first.chain)
    );
    assert_eq!(world.requests().await.len(), 1);
    // Near the end of its lifetime, by the node's clock.
    world.ahead(Span::hours(23));
    let mut node = node.restart().await;
    node.ensure(&pod.id(0), wanted);
    let second = node.after(&pod.id(0), &first).await;
    leaf(&second);
    assert_ne!(second.key, first.key);
    assert_eq!(world.requests().await.len(), 2);
}

#[tokio::test]
async fn a_host_gets_an_approved_certificate() {
    let mut world = IssuingFixture::start("v1").await;
    let mut node = world.node();
    let names = AltNames { dns_names: vec!["edge.example".into()], ..AltNames::default() };
    let wanted = CertificateSpec {
        source: Certificate { signer: host::SIGNER.into(), ..source("ECDSAP256") },
        subject: CertificateSubject::Host { common_name: Some("edge".into()), names },
        state: node.state(),
    };
    node.ensure(&host::id("edge"), wanted);
    let api: Api<CertificateSigningRequest> = Api::all(world.admin());
    let found = async {
        loop {
            match api.list(&ListParams::default()).await.unwrap().items.pop() {
                Some(found) => return found,
                None => tokio::task::yield_now().await,
            }
        }
    };
    let found = tokio::time::timeout(fixture::PATIENCE, found).await.unwrap();
    let condition = json!({
        "type": "Approved", "status": "True", "reason": "Test", "message": "approved by the test",
    });
    let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
    let approved = api.patch_approval(&found.name_any(), &PatchParams::default(), &patch).await;
    approved.unwrap();
    let pair = node.ready(&host::id("edge")).await;
    let chain = pem::certificates(pair.chain.as_bytes()).unwrap();
    let leaf = ForeignCertificate::from_der(&chain[0]).unwrap();
    assert_eq!(leaf.subject().common_name(), "edge");
    assert_eq!(leaf.alt_names().dns_names, ["edge.example"]);
}
