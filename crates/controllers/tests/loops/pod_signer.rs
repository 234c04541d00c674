//! Tests of pod certificates, from the request to a certificate that others verify.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use serde_json::{Value, json};
use tempfile::TempDir;
use time::OffsetDateTime;
use tokio::task::JoinSet;
use webpki::{EndEntityCert, KeyUsage};
use windlass_controllers::ca::CaSource;
use windlass_controllers::ledger::Ledger;
use windlass_controllers::signers::config::SignersConfig;
use windlass_controllers::signers::{self, CustomSigner, pods};
use windlass_controllers::{Clock, MetricFamilies};
use windlass_pki::{IssuedChain, KeyType, PrivateKey, Subject, Validity, pem};
use windlass_testkit::{ca_with_validity, random_serial};

use crate::fixture::{TestCluster, object};

const SIGNER: &str = "example.com/workloads";
const DOCS: &str = include_str!("../../../../docs/pod-certificates.md");
const P256: &[u8] = include_bytes!("../../../server/tests/api/conformance/fixtures/pcr-p256.stub.der");
const P384: &[u8] = include_bytes!("../../../server/tests/api/conformance/fixtures/pcr-p384.stub.der");
const P521: &[u8] = include_bytes!("../../../server/tests/api/conformance/fixtures/pcr-p521.stub.der");
const ED25519: &[u8] = include_bytes!("../../../server/tests/api/conformance/fixtures/pcr-ed25519.stub.der");
const RSA3072: &[u8] = include_bytes!("../../../server/tests/api/conformance/fixtures/pcr-rsa3072.stub.der");
const RSA4096: &[u8] = include_bytes!("fixtures/pod-rsa4096.stub.der");

/// An intermediate CA in files, and signers that use it.
struct PodSignerFixture {
    ca: Arc<CaSource>,
    files: TempDir,
    loops: JoinSet<Infallible>,
}

impl PodSignerFixture {
    fn new() -> PodSignerFixture {
        let files = tempfile::tempdir().unwrap();
        let now = OffsetDateTime::now_utc();
        let validity = Validity::lasting(now - time::Duration::DAY, time::Duration::days(3650));
        let validity = validity.unwrap();
        let root = ca_with_validity("root", validity);
        let (subject, key) = (Subject::new("workloads", &[]), PrivateKey::generate().unwrap());
        let pair = root.intermediate(&subject.unwrap(), validity, key, random_serial()).unwrap();
        let (certificate, key) = (files.path().join("ca.crt"), files.path().join("ca.key"));
        let chain = pair.certificate().to_pem() + &root.certificate().to_pem();
        std::fs::write(&certificate, chain).unwrap();
        std::fs::write(&key, pair.key().to_pem().unwrap().as_bytes()).unwrap();
        let ca = CaSource::from_chain_files(certificate, key, clock());
        PodSignerFixture { ca, files, loops: JoinSet::new() }
    }

    /// Starts a signer with this profile in the format of `signers.yaml`.
    fn start(mut self, client: &Client, version: &str, profile: &str) -> PodSignerFixture {
        self.add(client, version, &[(SIGNER, profile)]);
        self
    }

    fn add(&mut self, client: &Client, version: &str, signers: &[(&str, &str)]) {
        let of = |(name, profile): &(&str, &str)| {
            let text = format!(
                "{{apiVersion: windlass.dev/v1, kind: Signers, signers: [{{name: {name}, \
                 ca: {{files: {{certificate: ca.crt, key: ca.key}}}}, pods: {{{profile}}}}}]}}"
            );
            let signers = SignersConfig::parse(&self.files.path().join("signers.yaml"), &text);
            let custom = signers.unwrap().signers.remove(0);
            CustomSigner::new(custom, self.ca.clone())
        };
        let custom = signers.iter().map(of).collect();
        let metrics = MetricFamilies::unregistered();
        self.loops.spawn(pods::run(
            client.clone(),
            resource(version),
            custom,
            Ledger::disabled(),
            clock(),
            metrics,
        ));
    }
}

fn clock() -> Clock {
    Arc::new(OffsetDateTime::now_utc)
}

fn resource(version: &str) -> ApiResource {
    let kind = GroupVersionKind::gvk("certificates.k8s.io", version, "PodCertificateRequest");
    ApiResource::from_gvk(&kind)
}

fn requests(world: &TestCluster, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(world.client.clone(), namespace, &resource("v1beta1"))
}

async fn create_pod(world: &TestCluster, name: &str) -> Pod {
    let pod: Pod = object(json!({
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {
            "serviceAccountName": "frontend",
            "nodeName": "n1",
            "containers": [{"name": "c", "image": "i"}],
        },
    }));
    world.api::<Pod>("default").create(&PostParams::default(), &pod).await.unwrap()
}

async fn create_service(world: &TestCluster, name: &str, app: &str) {
    let spec = json!({"selector": {"app": app}, "ports": [{"port": 443}]});
    let service: Service = object(json!({"metadata": {"name": name}, "spec": spec}));
    world.api::<Service>("default").create(&PostParams::default(), &service).await.unwrap();
}

async fn create_request(world: &TestCluster, name: &str, pod: &Pod, changes: Value) -> DynamicObject {
    let mut spec = json!({
        "signerName": SIGNER,
        "podName": pod.name_any(),
        "podUID": pod.uid(),
        "serviceAccountName": "frontend",
        "serviceAccountUID": "s1",
        "nodeName": "n1",
        "nodeUID": "n1",
    });
    for (key, value) in changes.as_object().unwrap() {
        spec[key] = value.clone();
    }
    let request: DynamicObject = object(json!({
        "apiVersion": "certificates.k8s.io/v1beta1",
        "kind": "PodCertificateRequest",
        "metadata": {"name": name},
        "spec": spec,
    }));
    let namespace = pod.namespace().unwrap();
    requests(world, &namespace).create(&PostParams::default(), &request).await.unwrap()
}

fn stub(der: &[u8]) -> Value {
    json!({"stubPKCS10Request": ByteString(der.to_vec())})
}

/// Builds the older form of a request: a public key, and the pod's UID signed with it.
fn proof_of_possession(pod: &Pod, kind: KeyType) -> Value {
    let key = PrivateKey::generate_type(kind).unwrap();
    let proof = key.sign(pod.uid().unwrap().as_bytes()).unwrap();
    let public = ByteString(key.public_key().as_der().to_vec());
    json!({"pkixPublicKey": public, "proofOfPossession": ByteString(proof)})
}

/// Waits until a request is answered; returns the type, reason and message of its condition.
async fn wait_for_answer(api: &Api<DynamicObject>, name: &str) -> (DynamicObject, [String; 3]) {
    let is_answered = |found: Option<&DynamicObject>| {
        found.is_some_and(|request| request.data.pointer("/status/conditions/0").is_some())
    };
    let waiting = kube::runtime::wait::await_condition(api.clone(), name, is_answered);
    let answered = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    let request = answered.unwrap_or_else(|_| panic!("{name} was to be answered")).unwrap().unwrap();
    let condition = &request.data["status"]["conditions"][0];
    let reported = ["type", "reason", "message"].map(|f| condition[f].as_str().unwrap().to_owned());
    (request, reported)
}

/// Waits for an event on a request and returns it.
async fn wait_for_event(world: &TestCluster, name: &str, reason: &str) -> Event {
    let events: Api<Event> = world.api("default");
    let found = async {
        loop {
            let mut all = events.list(&ListParams::default()).await.unwrap().items.into_iter();
            let reported = all.find(|event| {
                let regarding = event.regarding.as_ref().unwrap();
                regarding.name.as_deref() == Some(name) && event.reason.as_deref() == Some(reason)
            });
            match reported {
                Some(event) => return event,
                None => tokio::task::yield_now().await,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), found).await.unwrap()
}

/// Verifies an issued certificate as client and as server of these names; returns the leaf.
fn verify(request: &DynamicObject, ca: &CaSource, names: &[&str]) -> windlass_pki::ForeignCertificate {
    let text = request.data["status"]["certificateChain"].as_str().unwrap();
    let chain: Vec<CertificateDer<'_>> = pem::certificates(text.as_bytes()).unwrap();
    let (leaf, rest) = chain.split_first().unwrap();
    let root = ca.current().unwrap();
    let root = CertificateDer::from(root.anchor().der().to_vec());
    let anchors = [webpki::anchor_from_trusted_cert(&root).unwrap()];
    let now = u64::try_from(OffsetDateTime::now_utc().unix_timestamp()).unwrap();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
    let end = EndEntityCert::try_from(leaf).unwrap();
    for usage in [KeyUsage::client_auth(), KeyUsage::server_auth()] {
        let algorithms = webpki::ALL_VERIFICATION_ALGS;
        end.verify_for_usage(algorithms, &anchors, rest, now, usage, None, None).unwrap();
    }
    for name in names {
        let name = ServerName::try_from(*name).unwrap();
        end.verify_is_valid_for_subject_name(&name).unwrap();
    }
    IssuedChain::parse(text).unwrap().leaf().clone()
}

#[tokio::test]
async fn every_key_gets_a_certificate_that_verifies() {
    for version in ["v1", "v1beta1"] {
        let world = TestCluster::without_controllers().await;
        create_service(&world, "web", "web").await;
        create_service(&world, "other", "other").await;
        let profile = "trustDomain: example.com, serviceNames: true";
        let signing = PodSignerFixture::new().start(&world.client, version, profile);
        let pod = create_pod(&world, "web-0").await;
        let table = [
            (stub(P256), KeyType::EcdsaP256),
            (stub(P384), KeyType::EcdsaP384),
            (stub(P521), KeyType::EcdsaP521),
            (stub(ED25519), KeyType::Ed25519),
            (stub(RSA3072), KeyType::Rsa3072),
            (stub(RSA4096), KeyType::Rsa4096),
            (proof_of_possession(&pod, KeyType::EcdsaP256), KeyType::EcdsaP256),
            (proof_of_possession(&pod, KeyType::Ed25519), KeyType::Ed25519),
        ];
        for (number, (key, kind)) in table.into_iter().enumerate() {
            let name = format!("req-{number}");
            create_request(&world, &name, &pod, key).await;
            let (request, reported) = wait_for_answer(&requests(&world, "default"), &name).await;
            assert_eq!(reported[0], "Issued", "{reported:?}");
            let names = ["web.default.svc", "web.default.svc.cluster.local"];
            let leaf = verify(&request, &signing.ca, &names);
            assert_eq!(leaf.public_key().pod_key_type(), Ok(kind));
            assert_eq!(leaf.alt_names().dns_names, names);
            assert_eq!(leaf.alt_names().uris, ["spiffe://example.com/ns/default/sa/frontend"]);
            assert!(leaf.subject().attributes().is_empty());
        }
    }
}

#[tokio::test]
async fn certificates_last_as_long_as_both_allow() {
    let world = TestCluster::without_controllers().await;
    let signing =
        PodSignerFixture::new().start(&world.client, "v1", "trustDomain: example.com, maxDuration: 30h");
    let pod = create_pod(&world, "web-0").await;
    // Requested lifetime, and in seconds: lifetime and time until renewal.
    for (name, asked, life, renewal) in [
        ("hour", json!(3600), 3600, 2376),
        ("unsaid", Value::Null, 86_400, 57_024),
        ("long", json!(7_862_400), 108_000, 71_280),
    ] {
        let mut wanted = stub(P256);
        wanted["maxExpirationSeconds"] = asked;
        create_request(&world, name, &pod, wanted).await;
        let (request, reported) = wait_for_answer(&requests(&world, "default"), name).await;
        assert_eq!(reported[0], "Issued", "{reported:?}");
        let leaf = verify(&request, &signing.ca, &[]);
        let seconds = |field: &str| {
            let text = request.data["status"][field].as_str().unwrap();
            text.parse::<k8s_openapi::jiff::Timestamp>().unwrap().as_second()
        };
        let (from, to) = (seconds("notBefore"), seconds("notAfter"));
        assert_eq!(from, leaf.not_before().unix_timestamp());
        assert_eq!(to, leaf.not_after().unix_timestamp());
        assert_eq!((to - from, seconds("beginRefreshAt") - from), (life, renewal), "{name}");
    }
}

#[tokio::test]
async fn unsupported_requests_are_denied_and_affect_no_other() {
    let world = TestCluster::without_controllers().await;
    let mut signing = PodSignerFixture::new();
    let picky = "trustDomain: example.com, keyTypes: [ECDSAP384], serviceAccounts: [default/frontend]";
    let elsewhere = "trustDomain: example.com, namespaces: [web]";
    let signers = [(SIGNER, picky), ("example.com/elsewhere", elsewhere)];
    signing.add(&world.client, "v1", &signers);
    let (pod, api) = (create_pod(&world, "web-0").await, requests(&world, "default"));
    let with = |mut spec: Value, key: &str, value: Value| {
        spec[key] = value;
        spec
    };
    let note = json!({"example.com/note": "x"});
    let table = [
        ("type", stub(P256), "UnsupportedKeyType"),
        ("note", with(stub(P384), "unverifiedUserAnnotations", note), "InvalidUnverifiedUserAnnotations"),
        ("who", with(stub(P384), "serviceAccountName", json!("admin")), "NotPermitted"),
        ("where", with(stub(P384), "signerName", json!("example.com/elsewhere")), "NotPermitted"),
    ];
    let foreign = with(stub(P384), "signerName", json!("example.com/foreign"));
    create_request(&world, "foreign", &pod, foreign).await;
    for (name, spec, reason) in table {
        create_request(&world, name, &pod, spec).await;
        let (request, reported) = wait_for_answer(&api, name).await;
        assert_eq!((reported[0].as_str(), reported[1].as_str()), ("Denied", reason), "{reported:?}");
        assert!(request.data["status"].get("certificateChain").is_none_or(|c| c == ""));
    }
    create_request(&world, "good", &pod, stub(P384)).await;
    let (request, _) = wait_for_answer(&api, "good").await;
    verify(&request, &signing.ca, &[]);
    let foreign = api.get("foreign").await.unwrap();
    assert!(foreign.data.pointer("/status/conditions/0").is_none(), "it belongs to another signer");
}

#[tokio::test]
async fn a_pending_request_gets_the_reason_and_is_signed_when_possible() {
    let world = TestCluster::without_controllers().await;
    let signing = PodSignerFixture::new().start(&world.client, "v1", "serviceNames: true");
    let (gone, pod) = (create_pod(&world, "gone").await, create_pod(&world, "web-0").await);
    let now = DeleteParams::default().grace_period(0);
    let _ = world.api::<Pod>("default").delete("gone", &now).await.unwrap();
    create_request(&world, "late", &gone, stub(P256)).await;
    wait_for_event(&world, "late", "PodNotFound").await;

    create_request(&world, "early", &pod, stub(P256)).await;
    let reported = wait_for_event(&world, "early", "NoNames").await;
    assert_eq!(reported.note.as_deref(), Some("no service in default selects pod web-0"));
    let regarding = reported.regarding.unwrap();
    assert_eq!(regarding.kind.as_deref(), Some("PodCertificateRequest"));
    assert_eq!(regarding.namespace.as_deref(), Some("default"));
    create_service(&world, "web", "web").await;
    let (request, _) = wait_for_answer(&requests(&world, "default"), "early").await;
    verify(&request, &signing.ca, &["web.default.svc"]);
    let late = requests(&world, "default").get("late").await.unwrap();
    assert!(late.data.pointer("/status/conditions/0").is_none());
}

#[tokio::test]
async fn a_restart_in_the_middle_loses_nothing() {
    let world = TestCluster::without_controllers().await;
    let profile = "trustDomain: example.com";
    let mut signing = PodSignerFixture::new().start(&world.client, "v1", profile);
    let (pod, api) = (create_pod(&world, "web-0").await, requests(&world, "default"));
    let names: Vec<String> = (0..60).map(|number| format!("req-{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        create_request(&world, name, &pod, stub(P256)).await;
        if number % 20 == 10 {
            wait_for_answer(&api, &names[number / 2]).await;
            signing.loops.shutdown().await;
        }
        if number % 20 == 15 {
            signing = signing.start(&world.client, "v1", profile);
            // Two signers run for a while.
            signing = signing.start(&world.client, "v1beta1", profile);
        }
    }
    let mut serials = std::collections::HashSet::new();
    for name in &names {
        let (request, reported) = wait_for_answer(&api, name).await;
        assert_eq!(reported[0], "Issued", "{reported:?}");
        assert!(serials.insert(verify(&request, &signing.ca, &[]).der().to_vec()));
    }
}

#[tokio::test]
async fn a_thousand_at_once_are_answered() {
    const COUNT: usize = 1000;
    let world = TestCluster::without_controllers().await;
    create_service(&world, "web", "web").await;
    let profile = "trustDomain: example.com, serviceNames: true";
    let signing = PodSignerFixture::new().start(&world.client, "v1", profile);
    let pod = create_pod(&world, "web-0").await;
    let names: Vec<String> = (0..COUNT).map(|number| format!("req-{number}")).collect();
    for some in names.chunks(50) {
        join_all(some.iter().map(|name| create_request(&world, name, &pod, stub(P256)))).await;
    }
    let api = requests(&world, "default");
    for name in &names {
        let (request, reported) = wait_for_answer(&api, name).await;
        assert_eq!(reported[0], "Issued", "{name}: {reported:?}");
        verify(&request, &signing.ca, &["web.default.svc"]);
    }
}

/// Returns the YAML example in the documentation that begins with `start`.
fn documentation_example(start: &str) -> &'static str {
    let mut blocks = DOCS.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.find(|block| block.starts_with(start)).unwrap()
}

async fn create_documented_pod(world: &TestCluster) -> Pod {
    world.create_namespace("web").await;
    let service: Service = object(json!({
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 443}]},
    }));
    world.api::<Service>("web").create(&PostParams::default(), &service).await.unwrap();
    let pod: Pod = serde_saphyr::from_str(documentation_example("apiVersion: v1\nkind: Pod\n")).unwrap();
    world.api::<Pod>("web").create(&PostParams::default(), &pod).await.unwrap()
}

const SIGNERS: &str = "apiVersion: windlass.dev/v1\nkind: Signers\n";

fn metric_value(world: &TestCluster, name: &str) -> u64 {
    let metrics = world.metrics();
    let start = format!("{name}{{signer=\"{SIGNER}\"}} ");
    let value = metrics.lines().find_map(|line| line.strip_prefix(&start)).unwrap();
    value.parse().unwrap()
}

#[tokio::test]
async fn the_documented_file_is_sufficient() {
    let (mut world, files) = (TestCluster::without_controllers().await, tempfile::tempdir().unwrap());
    let file = files.path().join("signers.yaml");
    std::fs::write(&file, documentation_example(SIGNERS)).unwrap();
    let mut options = windlass_controllers::ControllerOptions::new(clock());
    options.custom = signers::open(&file, &clock()).unwrap();
    let ca = options.custom[0].ca.clone();
    world.run_controllers_with(options);
    let pod = create_documented_pod(&world).await;
    for (name, key) in [("stub", stub(P256)), ("older", proof_of_possession(&pod, KeyType::Ed25519))] {
        create_request(&world, name, &pod, key).await;
        let (request, reported) = wait_for_answer(&requests(&world, "web"), name).await;
        assert_eq!(reported[0], "Issued", "{reported:?}");
        verify(&request, &ca, &["web.web.svc"]);
    }
    for name in ["windlass_signer_issued_total", "windlass_signer_ca_expiration_seconds"] {
        // Counters are incremented after the write.
        let counted = async {
            while metric_value(&world, name) < 2 {
                tokio::task::yield_now().await
            }
        };
        tokio::time::timeout(Duration::from_secs(30), counted).await.expect(name);
    }
    world.shut_down().await;
}

#[tokio::test]
async fn the_documented_permissions_are_enough() {
    let world = TestCluster::without_controllers().await;
    let pod = create_documented_pod(&world).await;
    let signers = SignersConfig::parse(Path::new("/signers.yaml"), documentation_example(SIGNERS));
    let custom = signers.unwrap().signers.remove(0);
    let signing = PodSignerFixture::new();
    let signer = CustomSigner::new(custom, signing.ca.clone());
    let (client, mut loops) = (world.client_as("windlass", &["system:authenticated"]), JoinSet::new());
    let metrics = MetricFamilies::unregistered();
    loops.spawn(pods::run(client, resource("v1"), vec![signer], Ledger::disabled(), clock(), metrics));

    // First all rules but one, then all.
    let role = documentation_example("apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n");
    let role: ClusterRole = serde_saphyr::from_str(role).unwrap();
    let signs = |rule: &k8s_openapi::api::rbac::v1::PolicyRule| rule.verbs == ["sign"];
    let mut less = role.clone();
    less.rules.as_mut().unwrap().retain(|rule| !signs(rule));
    let roles: Api<ClusterRole> = Api::all(world.client.clone());
    let created = roles.create(&PostParams::default(), &less).await.unwrap();
    let binding: ClusterRoleBinding = object(json!({
        "metadata": {"name": "windlass"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role.name_any(),
        },
        "subjects": [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "windlass"},
        ],
    }));
    let bindings: Api<ClusterRoleBinding> = Api::all(world.client.clone());
    bindings.create(&PostParams::default(), &binding).await.unwrap();
    create_request(&world, "one", &pod, stub(P256)).await;
    let events: Api<Event> = world.api("web");
    let reported = |event: &Event| event.reason.as_deref() == Some("AnswerRefused");
    let seen = async {
        while !events.list(&ListParams::default()).await.unwrap().items.iter().any(reported) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), seen).await.unwrap();

    let whole = ClusterRole { metadata: created.metadata, ..role };
    roles.replace(&whole.name_any(), &PostParams::default(), &whole).await.unwrap();
    let (request, reported) = wait_for_answer(&requests(&world, "web"), "one").await;
    assert_eq!(reported[0], "Issued", "{reported:?}");
    let leaf = verify(&request, &signing.ca, &["web.web.svc.cluster.local"]);
    assert_eq!(leaf.alt_names().uris, ["spiffe://example.com/ns/web/sa/frontend"]);
}
