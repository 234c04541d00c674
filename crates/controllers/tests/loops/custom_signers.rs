//! Tests of custom signers: what they sign, approve and publish.

mod ca_replacement;
mod ca_secrets;
mod csr_template;
pub mod objects;
mod requester_templates;
mod rotation;
pub mod tokens;
mod upgrade;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::certificates::v1beta1::ClusterTrustBundle;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use time::OffsetDateTime;
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use windlass_controllers::signers::SignerSettings;
use windlass_controllers::{Clock, ControllerOptions, signers};
use windlass_pki::{Certificate, CertificateAuthority, CertificateDer, PrivateKey, Subject, Validity, pem};
use windlass_testkit::{ca_with_validity, random_serial as serial};

use crate::certificates::{approve, condition, is_settled};
use crate::fixture::{TestCluster, wait_until};
pub use csr_template::CsrTemplate;

type Csr = CertificateSigningRequest;
type Bundle = ClusterTrustBundle;

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// A server whose controllers run custom signers, with a clock that advances only when it is set.
struct SignerFixture {
    world: TestCluster,
    now: Arc<Mutex<OffsetDateTime>>,
    files: tempfile::TempDir,
}

impl SignerFixture {
    /// Starts with these signers in `signers.yaml`.
    async fn start(signers: &str) -> SignerFixture {
        let files = tempfile::tempdir().unwrap();
        SignerFixture::start_in(files, signers).await
    }

    /// Without the controller of rotations, times decide when a new CA signs.
    async fn start_in(files: tempfile::TempDir, signers: &str) -> SignerFixture {
        SignerFixture::start_controllers(files, signers, "custom-signer-controller").await
    }

    async fn start_controllers(files: tempfile::TempDir, signers: &str, controllers: &str) -> SignerFixture {
        let now = Arc::new(Mutex::new(OffsetDateTime::now_utc()));
        let clock: Clock = Arc::new({
            let now = now.clone();
            move || *now.lock().unwrap()
        });
        let file = files.path().join("signers.yaml");
        let text = format!("apiVersion: windlass.dev/v1\nkind: Signers\nsigners:\n{signers}");
        std::fs::write(&file, text).unwrap();
        let custom = signers::open(&file, &clock).unwrap();
        let mut world = TestCluster::without_controllers().await;
        world.run_controllers_with(ControllerOptions {
            custom,
            signers: SignerSettings { file: Some(file), ..SignerSettings::default() },
            ca_overlap: HOUR,
            // Other controllers would delete objects that are days old by this clock.
            controllers: controllers.parse().unwrap(),
            ..ControllerOptions::new(clock)
        });
        SignerFixture { world, now, files }
    }

    fn clock(&self) -> Clock {
        let now = self.now.clone();
        Arc::new(move || *now.lock().unwrap())
    }

    fn requests(&self) -> Api<Csr> {
        Api::all(self.world.client.clone())
    }

    /// Returns the request API as another user with all permissions.
    fn requests_as(&self, user: &str, group: &str) -> Api<Csr> {
        Api::all(self.world.client_as(user, &[group, "system:masters"]))
    }

    fn bundles(&self) -> Api<Bundle> {
        Api::all(self.world.client.clone())
    }

    async fn wait_until_settled(&self, name: &str) -> Csr {
        wait_until(&self.requests(), name, "be answered", is_settled).await.unwrap()
    }

    /// Waits until a bundle has exactly these certificates, in this order.
    async fn wait_until_published(&self, name: &str, certificates: &[&Certificate]) -> Bundle {
        let wanted: String = certificates.iter().map(|each| each.to_pem()).collect();
        let good = |found: Option<&Bundle>| found.is_some_and(|b| b.spec.trust_bundle == wanted);
        wait_until(&self.bundles(), name, "have its anchors", good).await.unwrap()
    }

    async fn events(&self, reason: &str) -> Vec<Event> {
        let events = self.world.api::<Event>("default");
        let all = events.list(&ListParams::default()).await.unwrap().items;
        all.into_iter().filter(|event| event.reason.as_deref() == Some(reason)).collect()
    }
}

fn authority(name: &str, days: i64) -> CertificateAuthority {
    let now = OffsetDateTime::now_utc();
    let validity = Validity::new(now - 3 * DAY, now + time::Duration::days(days)).unwrap();
    ca_with_validity(name, validity)
}

pub fn write_ca(folder: &Path, authority: &CertificateAuthority, issuers: &[&Certificate]) {
    let chain: String = std::iter::once(authority.certificate())
        .chain(issuers.iter().copied())
        .map(Certificate::to_pem)
        .collect();
    std::fs::write(folder.join("tls.crt"), chain).unwrap();
    std::fs::write(folder.join("tls.key"), authority.key().to_pem().unwrap().as_bytes()).unwrap();
}

/// A signer whose CA comes from files.
const WEB: &str = r#"
- name: example.com/web
  ca: {files: {certificate: tls.crt, key: tls.key}}
  requests:
    commonNames: ["*.example.com"]
    organizations: [web]
    dnsNames: ["*.example.com"]
    ipAddresses: [10.0.0.0/8]
    emailAddresses: ["*@example.com"]
    uris: ["spiffe://example.com/*"]
    usages: [digital signature, server auth]
    requiredUsages: [server auth]
    maxDuration: 48h
    duration: 24h
    approval:
      automatic: {users: [alice], groups: [web]}
  publish:
    labels: {purpose: web}
"#;

const GOOD: CsrTemplate<'static> = CsrTemplate {
    signer: "example.com/web",
    subject: "CN=a.example.com,O=web",
    names: &["DNS:b.example.com", "IP:10.1.2.3", "EMAIL:me@example.com", "URI:spiffe://example.com/ns/a"],
    usages: &["digital signature", "server auth"],
    seconds: None,
};

/// Returns the issued certificates after verifying them against these trust anchors.
fn verify_chain(request: &Csr, anchors: &str, now: OffsetDateTime) -> Vec<CertificateDer<'static>> {
    let status = request.status.as_ref().unwrap();
    let text = status.certificate.as_ref().map(|text| text.0.clone());
    let chain = pem::certificates(&text.unwrap_or_else(|| panic!("{status:?}"))).unwrap();
    let (leaf, intermediates) = chain.split_first().unwrap();
    let anchors = pem::certificates(anchors.as_bytes()).unwrap();
    let anchors: Vec<_> = anchors.iter().map(|anchor| anchor_from_trusted_cert(anchor).unwrap()).collect();
    let seconds = Duration::from_secs(now.unix_timestamp().try_into().unwrap());
    let now = rustls_pki_types::UnixTime::since_unix_epoch(seconds);
    EndEntityCert::try_from(leaf)
        .unwrap()
        .verify_for_usage(
            ALL_VERIFICATION_ALGS,
            &anchors,
            intermediates,
            now,
            KeyUsage::server_auth(),
            None,
            None,
        )
        .unwrap();
    chain
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_ca_issues_what_verifies() {
    let kinds = ["ECDSAP256", "ECDSAP384", "RSA3072", "RSA4096", "ED25519"];
    let signers: String = kinds
        .iter()
        .map(|kind| {
            let name = kind.to_lowercase();
            format!(
                "- name: example.com/{name}\n  ca: {{selfSigned: {{directory: {name}, keyType: {kind}}}}}\n  \
                   requests: {{commonNames: ['*'], usages: [server auth], maxDuration: 1h, \
                   approval: {{automatic: {{groups: [web]}}}}}}\n  \
                   publish: {{}}\n"
            )
        })
        .collect();
    let site = SignerFixture::start(&signers).await;
    let (api, now) = (site.requests_as("bob", "web"), *site.now.lock().unwrap());
    for kind in kinds.map(str::to_lowercase) {
        let signer = format!("example.com/{kind}");
        let asked = CsrTemplate {
            signer: &signer,
            subject: "CN=x",
            names: &[],
            usages: &["server auth"],
            seconds: None,
        };
        asked.create(&api, &kind).await;
        let made = std::fs::read(site.files.path().join(&kind).join("ca.crt")).unwrap();
        let made = Certificate::from_pem(&made).unwrap();
        assert_eq!(made.common_name(), Some(signer.as_str()));
        let bundle = site.wait_until_published(&format!("example.com:{kind}:anchors"), &[&made]).await;
        let request = site.wait_until_settled(&kind).await;
        let chain = verify_chain(&request, &bundle.spec.trust_bundle, now);
        assert_eq!(chain.len(), 1, "the self-signed root is omitted");
        let approved = condition(&request, "Approved").unwrap();
        assert_eq!(approved.reason.as_deref(), Some("AutoApproved"));
    }
    site.world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_is_included_up_to_the_self_signed_root() {
    let files = tempfile::tempdir().unwrap();
    let (root, now) = (authority("root", 99), OffsetDateTime::now_utc());
    let below = |above: &CertificateAuthority, name: &str| {
        let validity = Validity::lasting(now, time::Duration::days(9)).unwrap();
        let subject = Subject::new(name, &[]).unwrap();
        above.intermediate(&subject, validity, PrivateKey::generate().unwrap(), serial()).unwrap()
    };
    let middle = below(&root, "middle");
    let ca = below(&middle, "ca");
    write_ca(files.path(), &ca, &[middle.certificate(), root.certificate()]);
    let quiet = WEB.replace("example.com/web", "example.com/quiet").replace(
        "    maxDuration",
        "    includeChain: false
    maxDuration",
    );
    let site = SignerFixture::start_in(files, &format!("{WEB}{quiet}")).await;
    let api = site.requests_as("alice", "x");
    GOOD.create(&api, "web").await;
    CsrTemplate { signer: "example.com/quiet", ..GOOD }.create(&api, "quiet").await;
    let bundle = site.wait_until_published("example.com:web:anchors", &[root.certificate()]).await;
    let chain = verify_chain(&site.wait_until_settled("web").await, &bundle.spec.trust_bundle, now);
    let wanted = [ca.certificate().der(), middle.certificate().der()];
    assert!(chain.iter().skip(1).eq(wanted), "{} certificates", chain.len());
    let leaf = Certificate::from_der(chain.first().unwrap()).unwrap();
    let lasts = leaf.validity().not_after() - leaf.validity().not_before();
    assert_eq!(lasts, time::Duration::DAY, "what is said for those who do not say");
    let quiet = site.wait_until_settled("quiet").await.status.unwrap().certificate.unwrap().0;
    assert_eq!(pem::certificates(&quiet).unwrap().len(), 1);
    site.world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_outside_the_profile_are_rejected() {
    let files = tempfile::tempdir().unwrap();
    write_ca(files.path(), &authority("ca", 9), &[]);
    let site = SignerFixture::start_in(files, WEB).await;
    let api = site.requests();
    let table: [(&str, CsrTemplate<'_>, &str); 9] = [
        ("cn", CsrTemplate { subject: "CN=example.com", ..GOOD }, "common name \"example.com\" is not"),
        ("o", CsrTemplate { subject: "O=admins,O=web", ..GOOD }, "organization \"admins\" is not"),
        ("ou", CsrTemplate { subject: "OU=x,CN=a.example.com", ..GOOD }, "attribute 2.5.4.11 (\"x\")"),
        ("dns", CsrTemplate { names: &["DNS:a.b.example.com"], ..GOOD }, "DNS name \"a.b.example.com\""),
        ("ip", CsrTemplate { names: &["IP:11.0.0.1"], ..GOOD }, "IP address \"11.0.0.1\" is not"),
        ("mail", CsrTemplate { names: &["EMAIL:a@b.c"], ..GOOD }, "e-mail address \"a@b.c\" is not"),
        ("uri", CsrTemplate { names: &["URI:spiffe://b.c/d"], ..GOOD }, "URI \"spiffe://b.c/d\" is not"),
        ("usage", CsrTemplate { usages: &["client auth"], ..GOOD }, "usage \"client auth\" is not"),
        (
            "lacks",
            CsrTemplate { usages: &["digital signature"], ..GOOD },
            "usage \"server auth\" is required",
        ),
    ];
    for (name, asked, said) in table {
        asked.create(&api, name).await;
        approve(&api, name).await;
        let request = site.wait_until_settled(name).await;
        let failed = condition(&request, "Failed").unwrap();
        assert_eq!(failed.reason.as_deref(), Some("SignerValidationFailure"));
        let message = failed.message.as_deref().unwrap();
        assert!(message.contains(said), "{name}: {message}");
    }
    // A requested lifetime above the maximum is shortened to it.
    CsrTemplate { seconds: Some(99 * 3600), ..GOOD }.create(&api, "long").await;
    approve(&api, "long").await;
    let text = site.wait_until_settled("long").await.status.unwrap().certificate.unwrap().0;
    let issued = Certificate::from_pem(&text).unwrap().validity();
    assert_eq!(issued.not_after() - issued.not_before(), time::Duration::days(2));
    let metrics = site.world.metrics();
    let count = |line: &&str| line.starts_with("windlass_signer_failed_total{signer=\"example.com/web\"}");
    let failed = metrics.lines().find(count).unwrap().rsplit_once(' ').unwrap().1;
    assert!(failed.parse::<u32>().unwrap() >= 9, "{failed}");
    site.world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_known_requesters_are_approved_and_only_for_what_is_signed() {
    let files = tempfile::tempdir().unwrap();
    write_ca(files.path(), &authority("ca", 9), &[]);
    let site = SignerFixture::start_in(files, WEB).await;
    GOOD.create(&site.requests_as("mallory", "webs"), "stranger").await;
    let alice = site.requests_as("alice", "x");
    CsrTemplate { names: &["DNS:evil.org"], ..GOOD }.create(&alice, "too-much").await;
    let reported = |request: Option<&Csr>| {
        request.is_some_and(|r| condition(r, "windlass.dev/ApprovalDelayed").is_some())
    };
    let request = wait_until(&alice, "too-much", "have a condition", reported).await.unwrap();
    let reported = condition(&request, "windlass.dev/ApprovalDelayed").unwrap();
    assert_eq!(reported.reason.as_deref(), Some("ProfileMismatch"));
    assert!(reported.message.as_ref().unwrap().contains("DNS name \"evil.org\""));
    assert!(condition(&request, "Approved").is_none());
    GOOD.create(&site.requests_as("bob", "web"), "of-group").await;
    GOOD.create(&alice, "of-user").await;
    for name in ["of-group", "of-user"] {
        let request = site.wait_until_settled(name).await;
        let approved = condition(&request, "Approved").unwrap();
        assert_eq!(approved.reason.as_deref(), Some("AutoApproved"), "{name}");
        assert!(request.status.unwrap().certificate.is_some(), "{name}");
    }
    // This request was created first, so it has been evaluated.
    let stranger = alice.get("stranger").await.unwrap();
    assert_eq!(stranger.status.and_then(|status| status.conditions), None);
    // The same task writes the event after the condition.
    let waiting = async {
        while site.events("ProfileMismatch").await.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waiting).await.unwrap();
    site.world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_ca_signs_pending_requests_and_an_invalid_one_none() {
    let files = tempfile::tempdir().unwrap();
    write_ca(files.path(), &authority("old", 1), &[]);
    let site = SignerFixture::start_in(files, WEB).await;
    *site.now.lock().unwrap() += 2 * DAY;
    let api = site.requests_as("alice", "x");
    GOOD.create(&api, "waits").await;
    // Before its anchor is published, the reason is another one.
    let expired = |request: Option<&Csr>| {
        let condition = request.and_then(|request| condition(request, "windlass.dev/SigningDelayed"));
        condition.is_some_and(|delayed| delayed.reason.as_deref() == Some("SignerExpired"))
    };
    wait_until(&api, "waits", "be delayed by the expired CA", expired).await;
    // A key that does not match the certificate, then one that does.
    let new = authority("new", 99);
    write_ca(site.files.path(), &new, &[]);
    let other = PrivateKey::generate().unwrap();
    std::fs::write(site.files.path().join("tls.key"), other.to_pem().unwrap().as_bytes()).unwrap();
    write_ca(site.files.path(), &new, &[]);
    let request = site.wait_until_settled("waits").await;
    let now = *site.now.lock().unwrap();
    verify_chain(&request, &new.certificate().to_pem(), now);
    assert!(condition(&request, "windlass.dev/SigningDelayed").is_none());
    site.world.shut_down().await;
}

/// One signer's CA is invalid at startup: its requests report this, the other signer works, and the
/// CA is loaded once its files are valid.
#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_ca_at_startup_degrades_its_signer_only() {
    const OTHER: &str = r#"
- name: example.com/other
  ca: {selfSigned: {directory: other}}
  requests: {commonNames: ["*"], organizations: [web], dnsNames: ["*"], maxDuration: 48h,
    ipAddresses: [0.0.0.0/0], emailAddresses: ["*"], uris: ["*"],
    usages: [digital signature, server auth], approval: {automatic: {users: [alice]}}}
"#;
    let files = tempfile::tempdir().unwrap();
    write_ca(files.path(), &authority("expired", -1), &[]);
    let site = SignerFixture::start_in(files, &format!("{WEB}{OTHER}")).await;
    let api = site.requests_as("alice", "x");
    GOOD.create(&api, "waits").await;
    CsrTemplate { signer: "example.com/other", ..GOOD }.create(&api, "works").await;
    assert!(site.wait_until_settled("works").await.status.unwrap().certificate.is_some());
    let delayed = |request: Option<&Csr>| {
        request.is_some_and(|r| condition(r, "windlass.dev/SigningDelayed").is_some())
    };
    let request = wait_until(&api, "waits", "be put off", delayed).await.unwrap();
    let reported = condition(&request, "windlass.dev/SigningDelayed").unwrap();
    assert_eq!(reported.reason.as_deref(), Some("SignerUnavailable"));
    let message = reported.message.as_deref().unwrap();
    assert!(message.starts_with("the signer's CA cannot be used: it expired at "), "{message}");

    let new = authority("new", 99);
    write_ca(site.files.path(), &new, &[]);
    let request = site.wait_until_settled("waits").await;
    verify_chain(&request, &new.certificate().to_pem(), *site.now.lock().unwrap());
    site.wait_until_published("example.com:web:anchors", &[new.certificate()]).await;
    assert_eq!(site.events("SignerUnavailable").await.len(), 1);
    site.world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn old_anchors_are_retained_beside_the_new_one() {
    let files = tempfile::tempdir().unwrap();
    let (old, new) = (authority("old", 90), authority("new", 90));
    write_ca(files.path(), &old, &[]);
    let site = SignerFixture::start_in(files, WEB).await;
    let (name, bundles) = ("example.com:web:anchors", site.bundles());
    let bundle = site.wait_until_published(name, &[old.certificate()]).await;
    assert_eq!(bundle.spec.signer_name.as_deref(), Some("example.com/web"));
    let labels = [("app.kubernetes.io/managed-by", "windlass"), ("purpose", "web")];
    for (key, value) in labels {
        assert_eq!(bundle.labels().get(key).map(String::as_str), Some(value));
    }
    let patch =
        |patch| async { bundles.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap() };
    write_ca(site.files.path(), &new, &[]);
    let both = site.wait_until_published(name, &[new.certificate(), old.certificate()]).await;
    assert!(both.annotations()["windlass.dev/anchors"].contains("retainUntil"));
    // Maximum certificate lifetime, overlap, and the time until the new CA signs.
    *site.now.lock().unwrap() += 49 * HOUR + Duration::from_secs(299);
    // Triggers a reconcile; it has finished when the removed label is back.
    patch(json!({"metadata": {"labels": {"purpose": null}}})).await;
    let labelled = |b: Option<&Bundle>| b.is_some_and(|b| b.labels().contains_key("purpose"));
    let bundle = wait_until(&bundles, name, "be labelled", labelled).await.unwrap();
    assert_eq!(bundle.spec.trust_bundle, both.spec.trust_bundle);
    *site.now.lock().unwrap() += Duration::from_secs(2);
    patch(json!({"metadata": {"labels": {"theirs": "too"}}})).await;
    let bundle = site.wait_until_published(name, &[new.certificate()]).await;
    assert!(!bundle.annotations()["windlass.dev/anchors"].contains("retainUntil"));
    site.world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_is_reconciled_unless_another_manager_owns_it() {
    let files = tempfile::tempdir().unwrap();
    let ca = authority("ca", 9);
    write_ca(files.path(), &ca, &[]);
    let other = WEB.replace("example.com/web", "example.com/mine");
    let site = SignerFixture::start_in(files, &other).await;
    let (name, bundles) = ("example.com:mine:anchors", site.bundles());
    site.wait_until_published(name, &[ca.certificate()]).await;
    // Changes by others are reverted, except for their own labels.
    let evil = authority("evil", 9).certificate().to_pem();
    let patch: serde_json::Value = json!({
        "metadata": {"labels": {"theirs": "too", "purpose": "another"}},
        "spec": {"trustBundle": evil},
    });
    bundles.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    let bundle = site.wait_until_published(name, &[ca.certificate()]).await;
    assert_eq!(bundle.labels().get("purpose").map(String::as_str), Some("web"));
    assert_eq!(bundle.labels().get("theirs").map(String::as_str), Some("too"));
    // Without the managed-by label the bundle counts as another manager's.
    let theirs = authority("theirs", 9).certificate().to_pem();
    let patch: serde_json::Value = json!({
        "metadata": {"labels": {"app.kubernetes.io/managed-by": "me"}},
        "spec": {"trustBundle": theirs},
    });
    let foreign = bundles.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    let waiting = async {
        while site.events("ForeignTrustBundle").await.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waiting).await.unwrap();
    let event = site.events("ForeignTrustBundle").await.remove(0);
    assert_eq!(event.regarding.unwrap().name.as_deref(), Some(name));
    let gauge = |value| {
        let line = format!("windlass_signer_bundle_conflict{{signer=\"example.com/mine\"}} {value}");
        site.world.metrics().lines().any(|l| l == line)
    };
    assert!(gauge(1));
    let found = bundles.get(name).await.unwrap();
    assert_eq!(found.resource_version(), foreign.resource_version());
    // After it is deleted, our bundle is created again.
    let _ = bundles.delete(name, &DeleteParams::default()).await.unwrap();
    site.wait_until_published(name, &[ca.certificate()]).await;
    assert!(gauge(0));
    site.world.shut_down().await;
}
