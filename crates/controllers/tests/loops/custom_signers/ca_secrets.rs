//! Tests of CAs in Secrets: generated, provided and issued by another signer.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;

use super::*;

const NAMESPACE: &str = "windlass-system";

/// A signer with this CA, as flow YAML.
fn signer(name: &str, rest: &str) -> String {
    format!(
        "- {{name: example.com/{name}, {rest}, requests: {{commonNames: ['*'], usages: [server auth], \
         maxDuration: 48h, approval: {{automatic: {{users: [alice]}}}}}}}}\n"
    )
}

fn secrets(site: &SignerFixture) -> Api<Secret> {
    Api::namespaced(site.world.client.clone(), NAMESPACE)
}

fn template(signer: &str) -> CsrTemplate<'_> {
    CsrTemplate { signer, subject: "CN=x", names: &[], usages: &["server auth"], seconds: None }
}

/// Requests a certificate and returns its PEM, which may have a chain.
async fn issue(site: &SignerFixture, signer: &str, name: &str) -> Csr {
    template(signer).create(&site.requests_as("alice", "x"), name).await;
    site.wait_until_settled(name).await
}

fn entry(secret: &Secret, name: &str) -> Vec<u8> {
    secret.data.as_ref().unwrap()[name].0.clone()
}

async fn wait_for_secret(site: &SignerFixture, name: &str, good: impl Fn(&Secret) -> bool) -> Secret {
    let good = |found: Option<&Secret>| found.is_some_and(&good);
    wait_until(&secrets(site), name, "have the CA", good).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generated_ca_is_kept_in_a_secret_and_shared() {
    let entry_text = signer("made", "ca: {selfSigned: {duration: 72h, renewBefore: 24h}}, publish: {}");
    let mut site = SignerFixture::start(&entry_text).await;
    // A second set of controllers without an election: both use the CA that one of them generated.
    let text = std::fs::read_to_string(site.files.path().join("signers.yaml")).unwrap();
    let copy = site.files.path().join("copy.yaml");
    std::fs::write(&copy, text).unwrap();
    let (clock, (down, shutdown)) = (site.clock(), tokio::sync::watch::channel(false));
    let options = ControllerOptions {
        custom: signers::open(&copy, &clock).unwrap(),
        controllers: "custom-signer-controller".parse().unwrap(),
        ..ControllerOptions::new(clock)
    };
    let second = options.custom[0].ca.clone();
    let other = tokio::spawn(windlass_controllers::run(site.world.client.clone(), options, shutdown));
    let secret = wait_for_secret(&site, "signer-ca-made.example.com", |_| true).await;
    assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/tls"));
    assert_eq!(secret.annotations()["windlass.dev/signer-name"], "example.com/made");
    let first = Certificate::from_pem(&entry(&secret, "tls.crt")).unwrap();
    assert_eq!(first.common_name(), Some("example.com/made"));
    let request = issue(&site, "example.com/made", "one").await;
    verify_chain(&request, &first.to_pem(), *site.now.lock().unwrap());
    let shared = async {
        while second.current().is_none_or(|ca| ca.certificate().der() != first.der()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(crate::fixture::PATIENCE, shared).await.unwrap();
    down.send_replace(true);
    other.await.unwrap();

    // Renewal: a new key, whose anchor is published before it signs; the old anchor stays.
    site.wait_until_published("example.com:made:anchors", &[&first]).await;
    *site.now.lock().unwrap() += 49 * HOUR;
    let patch = Patch::Merge(json!({"metadata": {"labels": {"look": "now"}}}));
    secrets(&site).patch(&secret.name_any(), &PatchParams::default(), &patch).await.unwrap();
    let renewed = wait_for_secret(&site, &secret.name_any(), |secret| {
        entry(secret, "tls.crt") != first.to_pem().as_bytes()
    })
    .await;
    let second = Certificate::from_pem(&entry(&renewed, "tls.crt")).unwrap();
    assert!(second.public_key() != first.public_key());
    site.wait_until_published("example.com:made:anchors", &[&second, &first]).await;
    site.world.stop_controllers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provided_secret_is_followed_and_a_bad_one_degrades_its_signer_only() {
    let entries = [
        signer("mine", "ca: {secretName: mine}"),
        signer("thief", "ca: {secretName: mine}"),
        signer("works", "ca: {selfSigned: {}}"),
    ];
    let site = SignerFixture::start(&entries.concat()).await;
    let api = site.requests_as("alice", "x");
    template("example.com/mine").create(&api, "waits").await;
    let works = issue(&site, "example.com/works", "works").await;
    assert!(works.status.unwrap().certificate.is_some());
    let delayed = |request: Option<&Csr>| {
        let reported = request.and_then(|r| condition(r, "windlass.dev/SigningDelayed"));
        reported.is_some_and(|reported| reported.message.as_deref().unwrap().contains("does not exist"))
    };
    let request = wait_until(&api, "waits", "be put off", delayed).await.unwrap();
    let reported = condition(&request, "windlass.dev/SigningDelayed").unwrap();
    assert_eq!(reported.reason.as_deref(), Some("SignerUnavailable"));

    let data = |ca: &CertificateAuthority| {
        let key = ca.key().to_pem().unwrap();
        [("tls.crt", ca.certificate().to_pem()), ("tls.key", key.to_string())]
            .map(|(name, text)| (name.to_owned(), ByteString(text.into_bytes())))
            .into()
    };
    let (old, new) = (authority("old", 9), authority("new", 9));
    let mut secret =
        Secret { type_: Some("kubernetes.io/tls".into()), data: Some(data(&old)), ..Secret::default() };
    secret.metadata.name = Some("mine".into());
    secrets(&site).create(&PostParams::default(), &secret).await.unwrap();
    // No signer may use a Secret that names none.
    let unannotated = |request: Option<&Csr>| {
        let delay = request.and_then(|r| condition(r, "windlass.dev/SigningDelayed"));
        delay.is_some_and(|delay| delay.message.as_deref().unwrap().contains("lacks the annotation"))
    };
    wait_until(&api, "waits", "be put off", unannotated).await.unwrap();
    let owner = json!({"metadata": {"annotations": {"windlass.dev/signer-name": "example.com/mine"}}});
    secrets(&site).patch("mine", &PatchParams::default(), &Patch::Merge(owner)).await.unwrap();
    let now = *site.now.lock().unwrap();
    verify_chain(&site.wait_until_settled("waits").await, &old.certificate().to_pem(), now);
    // Another signer must not use it.
    template("example.com/thief").create(&api, "stolen").await;
    let refused = |request: Option<&Csr>| {
        let reported = request.and_then(|r| condition(r, "windlass.dev/SigningDelayed"));
        reported
            .is_some_and(|reported| reported.message.as_deref().unwrap().contains("belongs to the signer"))
    };
    wait_until(&api, "stolen", "be put off", refused).await.unwrap();

    // A replaced pair is used at once without publication; a broken one is not.
    let replace = async |data| {
        let patch = Patch::Merge(json!({ "data": data }));
        secrets(&site).patch("mine", &PatchParams::default(), &patch).await.unwrap();
    };
    replace(json!({"tls.key": ByteString(b"rubbish".to_vec())})).await;
    let metrics = async |value| {
        let line = format!("windlass_signer_ca_degraded{{signer=\"example.com/mine\"}} {value}");
        while !site.world.metrics().lines().any(|l| l == line) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(crate::fixture::PATIENCE, metrics(1)).await.unwrap();
    let request = issue(&site, "example.com/mine", "meanwhile").await;
    verify_chain(&request, &old.certificate().to_pem(), now);
    let new_data: std::collections::BTreeMap<String, ByteString> = data(&new);
    replace(json!(new_data)).await;
    tokio::time::timeout(crate::fixture::PATIENCE, metrics(0)).await.unwrap();
    let request = issue(&site, "example.com/mine", "renewed").await;
    verify_chain(&request, &new.certificate().to_pem(), now);
    site.world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_intermediate_of_another_signer_verifies_with_its_root() {
    let root = "- {name: example.com/root, ca: {selfSigned: {}}, \
                intermediates: {signerNames: [example.com/below], maxDuration: 240h}}\n";
    let below =
        |name: &str| signer(name, "ca: {issuerSignerName: example.com/root, duration: 48h}, publish: {}");
    let site = SignerFixture::start(&[root, &below("below"), &below("stranger")].concat()).await;
    let request = issue(&site, "example.com/below", "one").await;
    let root = wait_for_secret(&site, "signer-ca-root.example.com", |_| true).await;
    let root = Certificate::from_pem(&entry(&root, "tls.crt")).unwrap();
    let chain = verify_chain(&request, &root.to_pem(), *site.now.lock().unwrap());
    assert_eq!(chain.len(), 2, "leaf and intermediate");
    let intermediate = Certificate::from_der(&chain[1]).unwrap();
    assert_eq!(intermediate.common_name(), Some("example.com/below"));
    let validity = intermediate.validity();
    assert!(validity.not_after() - validity.not_before() <= 48 * HOUR + Duration::from_secs(300));
    site.wait_until_published("example.com:below:anchors", &[&root]).await;
    // The root issues only for the signers that it names.
    let api = site.requests_as("alice", "x");
    template("example.com/stranger").create(&api, "refused").await;
    let refused = |request: Option<&Csr>| {
        let reported = request.and_then(|r| condition(r, "windlass.dev/SigningDelayed"));
        reported.is_some_and(|reported| {
            reported.message.as_deref().unwrap().contains("does not issue an intermediate")
        })
    };
    wait_until(&api, "refused", "be put off", refused).await.unwrap();
    site.world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_delay_requests_and_say_so() {
    let limits = "limits: {certificatesPerRequesterPerHour: 2}, ca: {selfSigned: {}}";
    let site = SignerFixture::start(&signer("limited", limits)).await;
    for name in ["one", "two"] {
        assert!(issue(&site, "example.com/limited", name).await.status.unwrap().certificate.is_some());
    }
    let api = site.requests_as("alice", "x");
    template("example.com/limited").create(&api, "three").await;
    let limited = |request: Option<&Csr>| {
        let reported = request.and_then(|r| condition(r, "windlass.dev/SigningDelayed"));
        reported.is_some_and(|reported| reported.reason.as_deref() == Some("RateLimited"))
    };
    let request = wait_until(&api, "three", "be limited", limited).await.unwrap();
    let reported = condition(&request, "windlass.dev/SigningDelayed").unwrap();
    assert!(reported.message.as_ref().unwrap().contains("2 certificates"), "{reported:?}");
    let line = "windlass_signer_limited_total{signer=\"example.com/limited\",reason=\"RateLimited\"}";
    assert!(site.world.metrics().contains(line), "{}", site.world.metrics());
    // Another requester has a window of its own, and the window ends.
    let bob = site.requests_as("bob", "x");
    template("example.com/limited").create(&bob, "bobs").await;
    approve(&bob, "bobs").await;
    assert!(site.wait_until_settled("bobs").await.status.unwrap().certificate.is_some());
    *site.now.lock().unwrap() += HOUR;
    assert!(site.wait_until_settled("three").await.status.unwrap().certificate.is_some());
    site.world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_file_applies_without_a_restart_and_a_bad_one_not() {
    let site = SignerFixture::start(&signer("first", "ca: {selfSigned: {directory: first}}")).await;
    let write = |signers: &str| {
        let text = format!("apiVersion: windlass.dev/v1\nkind: Signers\nsigners:\n{signers}");
        std::fs::write(site.files.path().join("signers.yaml"), text).unwrap();
    };
    issue(&site, "example.com/first", "one").await;
    let first =
        Certificate::from_pem(&std::fs::read(site.files.path().join("first/ca.crt")).unwrap()).unwrap();
    let both =
        signer("first", "ca: {selfSigned: {directory: first}}") + &signer("second", "ca: {selfSigned: {}}");
    // Requests that came before their signer are signed as well.
    template("example.com/second").create(&site.requests_as("alice", "x"), "early").await;
    write(&both);
    assert!(site.wait_until_settled("early").await.status.unwrap().certificate.is_some());
    let request = issue(&site, "example.com/first", "two").await;
    verify_chain(&request, &first.to_pem(), *site.now.lock().unwrap());
    // The last good content stays in use.
    write("- {name: broken}\n");
    let degraded = async {
        while !site
            .world
            .metrics()
            .lines()
            .any(|line| line.starts_with("windlass_signers_file_degraded") && line.ends_with(" 1"))
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(crate::fixture::PATIENCE, degraded).await.unwrap();
    issue(&site, "example.com/second", "three").await;
    // A narrower profile applies to the next request.
    write(&both.replace("maxDuration: 48h", "maxDuration: 1h"));
    let shorter = async {
        for round in 0.. {
            let text = issue(&site, "example.com/first", &format!("short-{round}")).await;
            let text = text.status.unwrap().certificate.unwrap().0;
            let validity = Certificate::from_pem(&text).unwrap().validity();
            if validity.not_after() - validity.not_before() < 2 * time::Duration::HOUR {
                break;
            }
        }
    };
    tokio::time::timeout(crate::fixture::PATIENCE, shorter).await.unwrap();
    site.world.shut_down().await;
}
