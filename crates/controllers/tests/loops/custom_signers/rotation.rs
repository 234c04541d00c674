//! Tests of CARotations: which steps are taken, what holds them, and that crashes, rollbacks and second controllers lead
//! to the same end.

mod bundles;
mod canary;
mod deletion;
mod lifetimes;
mod sources;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::{DynamicObject, PostParams};
use kube::core::ApiResource;
use serde_json::Value;

use super::*;

const CONTROLLERS: &str = "custom-signer-controller,ca-rotation-controller";
const MAIN: &str = "example.com:made:anchors";
const CANARY: &str = "example.com:made:canary";
const SECRET: &str = "signer-ca-made.example.com";

/// A signer with a CA that the controllers generate, as flow YAML.
fn generated(publish: &str) -> String {
    format!(
        "- {{name: example.com/made, ca: {{selfSigned: {{duration: 720h, renewBefore: 240h}}}}, publish: {publish}, \
         requests: {{commonNames: ['*'], usages: [server auth], maxDuration: 48h, \
         approval: {{automatic: {{users: [alice]}}}}}}}}\n"
    )
}

fn kind(name: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: "windlass.dev".into(),
        version: "v1alpha1".into(),
        api_version: "windlass.dev/v1alpha1".into(),
        kind: name.into(),
        plural: plural.into(),
    }
}

/// A signer, its rotations, and nodes that report what the test says.
struct RotationFixture {
    site: SignerFixture,
    rotations: Api<DynamicObject>,
    nodes: Api<DynamicObject>,
    signer: &'static str,
}

impl RotationFixture {
    async fn start(publish: &str) -> RotationFixture {
        let files = tempfile::tempdir().unwrap();
        let fixture = RotationFixture::start_in(files, &generated(publish), "example.com/made").await;
        fixture.site.wait_until_anchored(MAIN, 1).await;
        fixture
    }

    async fn start_in(files: tempfile::TempDir, signers: &str, signer: &'static str) -> RotationFixture {
        let site = SignerFixture::start_controllers(files, signers, CONTROLLERS).await;
        let client = site.world.client.clone();
        let rotations = Api::all_with(client.clone(), &kind("CARotation", "carotations"));
        let nodes = Api::all_with(client, &kind("NodeTrust", "nodetrusts"));
        RotationFixture { site, rotations, nodes, signer }
    }

    async fn create(&self, name: &str, spec: Value) {
        let mut rotation = DynamicObject::new(name, &kind("CARotation", "carotations"));
        rotation.data = json!({"spec": spec});
        rotation.data["spec"]["signerName"] = self.signer.into();
        self.rotations.create(&PostParams::default(), &rotation).await.unwrap();
    }

    async fn change(&self, name: &str, spec: Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.rotations.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn status(&self, name: &str) -> Value {
        let found = self.rotations.get_opt(name).await.unwrap();
        found.map(|found| found.data["status"].clone()).unwrap_or_default()
    }

    /// Waits until the status of a rotation is good.
    async fn wait(&self, name: &str, what: &str, good: impl Fn(&Value) -> bool) -> Value {
        let deadline = tokio::time::Instant::now() + crate::fixture::PATIENCE;
        loop {
            let status = self.status(name).await;
            if good(&status) {
                return status;
            }
            assert!(tokio::time::Instant::now() < deadline, "{name} was to be {what}, but is {status:#}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn wait_for_phase(&self, name: &str, phase: &str) -> Value {
        self.wait(name, phase, |status| status["phase"] == phase).await
    }

    async fn wait_until_held(&self, name: &str, phase: &str, reason: &str) -> Value {
        let is_held = |status: &Value| status["phase"] == phase && held(status) == Some(reason);
        self.wait(name, &format!("{phase}, held by {reason}"), is_held).await
    }

    /// A node reports that a volume has the present content of a bundle.
    async fn deliver(&self, node: &str, name: &str) {
        self.report(node, name, json!({})).await;
    }

    /// The same, with what is known about reads.
    async fn report(&self, node: &str, name: &str, reads: Value) {
        let bundle = self.site.bundles().get(name).await.unwrap();
        let certificates = pem::certificates(bundle.spec.trust_bundle.as_bytes()).unwrap();
        let fingerprints: Vec<_> = certificates.iter().map(|der| windlass_pki::fingerprint(der)).collect();
        let digest = windlass_pki::certificate_set_digest(&fingerprints);
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let carried = json!([{"name": name, "digest": format!("sha256:{digest}")}]);
        let mut source = json!({"name": name, "bundles": carried, "volumes": ["shop/web/trust"]});
        source.as_object_mut().unwrap().extend(reads.as_object().unwrap().clone());
        let mut report = DynamicObject::new(node, &kind("NodeTrust", "nodetrusts"));
        report.data = json!({"status": {"volumes": 1, "bundles": 1, "sources": [source]}});
        match self.nodes.get_opt(node).await.unwrap() {
            Some(found) => {
                report.metadata = found.metadata;
                self.nodes.replace(node, &PostParams::default(), &report).await.unwrap();
            }
            None => drop(self.nodes.create(&PostParams::default(), &report).await.unwrap()),
        }
    }

    async fn issue(&self, name: &str) -> Csr {
        let template = CsrTemplate {
            signer: self.signer,
            subject: "CN=a.example.com",
            names: &[],
            usages: &["server auth"],
            seconds: None,
        };
        template.create(&self.site.requests_as("alice", "x"), name).await;
        self.site.wait_until_settled(name).await
    }

    async fn secret(&self) -> Secret {
        let secrets: Api<Secret> = Api::namespaced(self.site.world.client.clone(), "windlass-system");
        secrets.get(SECRET).await.unwrap()
    }

    /// Stops the controllers and starts others, which know only what the server has.
    async fn restart(&mut self) {
        self.site.world.stop_controllers().await;
        let file = self.site.files.path().join("signers.yaml");
        let clock = self.site.clock();
        self.site.world.run_controllers_with(options(&file, clock));
    }

    /// Delivers and renews until the rotation ends; returns its last phase.
    async fn complete(&self, name: &str, nodes: &[&str]) -> String {
        let deadline = tokio::time::Instant::now() + crate::fixture::PATIENCE;
        for round in 0.. {
            let status = self.status(name).await;
            if let Some(phase @ ("Completed" | "RolledBack" | "Failed")) = status["phase"].as_str() {
                return phase.to_owned();
            }
            assert!(tokio::time::Instant::now() < deadline, "{status:#}");
            for node in nodes {
                self.deliver(node, MAIN).await;
            }
            if matches!(status["phase"].as_str(), Some("Renewing" | "RollingBack")) {
                self.issue(&format!("{name}-renewed-{round}")).await;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        unreachable!()
    }
}

impl SignerFixture {
    /// Waits until a bundle has this number of anchors.
    async fn wait_until_anchored(&self, name: &str, count: usize) -> Bundle {
        let good = |found: Option<&Bundle>| {
            found.is_some_and(|bundle| bundle.spec.trust_bundle.matches("BEGIN").count() == count)
        };
        wait_until(&self.bundles(), name, &format!("have {count} anchors"), good).await.unwrap()
    }
}

fn options(file: &Path, clock: Clock) -> ControllerOptions {
    ControllerOptions {
        custom: signers::open(file, &clock).unwrap(),
        signers: SignerSettings { file: Some(file.to_owned()), ..SignerSettings::default() },
        ca_overlap: HOUR,
        controllers: CONTROLLERS.parse().unwrap(),
        ..ControllerOptions::new(clock)
    }
}

fn held(status: &Value) -> Option<&str> {
    let conditions = status["conditions"].as_array()?;
    let held = conditions.iter().find(|each| each["type"] == "Held" && each["status"] == "True")?;
    held["reason"].as_str()
}

fn entry(secret: &Secret, name: &str) -> Option<Vec<u8>> {
    secret.data.as_ref()?.get(name).map(|ByteString(bytes)| bytes.clone())
}

fn certificate(secret: &Secret, name: &str) -> Certificate {
    Certificate::from_pem(&entry(secret, name).unwrap()).unwrap()
}

/// Whether a request got a certificate of the CA with this certificate.
fn is_of(ca: &Certificate, request: &Csr) -> bool {
    let text = &request.status.as_ref().unwrap().certificate.as_ref().unwrap().0;
    let leaf = pem::certificates(text).unwrap().remove(0);
    let anchors = [anchor_from_trusted_cert(&CertificateDer::from(ca.der().to_vec())).unwrap().to_owned()];
    let not_after = Certificate::from_der(&leaf).unwrap().validity().not_after();
    let seconds = Duration::from_secs(not_after.unix_timestamp().try_into().unwrap());
    let at = rustls_pki_types::UnixTime::since_unix_epoch(seconds);
    let leaf = EndEntityCert::try_from(&leaf).unwrap();
    leaf.verify_for_usage(ALL_VERIFICATION_ALGS, &anchors, &[], at, KeyUsage::server_auth(), None, None)
        .is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generated_ca_is_rotated_when_every_node_has_its_anchor() {
    let fixture = RotationFixture::start("{}").await;
    fixture.deliver("n1", MAIN).await;
    let old = certificate(&fixture.secret().await, "tls.crt");
    let one = fixture.issue("one").await;
    fixture.create("rotation", json!({})).await;
    let status = fixture.wait_until_held("rotation", "WaitingForTrust", "ConsumersLagging").await;
    assert_eq!(status["laggards"][0]["name"], "node/n1/shop/web/trust", "{status:#}");
    assert_eq!(status["laggards"][0]["reason"], "NotWritten");
    assert_eq!(status["leaves"]["outstanding"], 1, "{status:#}");
    // Both anchors are published, and the old CA signs.
    let union = fixture.site.wait_until_anchored(MAIN, 2).await;
    verify_chain(&one, &union.spec.trust_bundle, *fixture.site.now.lock().unwrap());
    assert!(is_of(&old, &fixture.issue("two").await));

    fixture.deliver("n1", MAIN).await;
    let status = fixture.wait_for_phase("rotation", "Renewing").await;
    let secret = fixture.secret().await;
    let new = certificate(&secret, "tls.crt");
    assert!(new.der() != old.der());
    assert_eq!(certificate(&secret, "previous.crt").der(), old.der());
    assert_eq!(entry(&secret, "next.crt"), None);
    assert_eq!(status["newAuthority"]["id"], new.authority_id());
    let tainted = |bundle: Option<&Bundle>| {
        bundle.is_some_and(|bundle| bundle.annotations().contains_key("windlass.dev/tainted-authorities"))
    };
    let bundle = wait_until(&fixture.site.bundles(), MAIN, "be tainted", tainted).await.unwrap();
    let taint: Value =
        serde_json::from_str(&bundle.annotations()["windlass.dev/tainted-authorities"]).unwrap();
    assert_eq!(taint[old.authority_id()]["window"], "600s", "{taint}");

    // The anchor stays while a leaf of the old CA is outstanding, whatever time passes.
    *fixture.site.now.lock().unwrap() += HOUR;
    fixture.wait_until_held("rotation", "Renewing", "LeavesOutstanding").await;
    fixture.site.wait_until_anchored(MAIN, 2).await;
    assert!(is_of(&new, &fixture.issue("three").await), "signed by the new CA");
    let status = fixture.wait_until_held("rotation", "Retiring", "ConsumersLagging").await;
    assert_eq!(status["laggards"][0]["reason"], "StillPresent", "{status:#}");
    let alone = fixture.site.wait_until_anchored(MAIN, 1).await;
    assert_eq!(alone.spec.trust_bundle, new.to_pem());
    fixture.deliver("n1", MAIN).await;
    let status = fixture.wait_for_phase("rotation", "Completed").await;
    let phases: Vec<&str> =
        status["steps"].as_array().unwrap().iter().map(|step| step["phase"].as_str().unwrap()).collect();
    let wanted =
        ["Preparing", "Publishing", "WaitingForTrust", "Switching", "Renewing", "Retiring", "Completed"];
    assert_eq!(phases, wanted);
    let metrics = fixture.site.world.metrics();
    let line = "windlass_rotation_phase{signer=\"example.com/made\",phase=\"Completed\"} 1";
    assert!(metrics.lines().any(|found| found == line), "{metrics}");

    // The old key is destroyed after its retention.
    assert!(entry(&fixture.secret().await, "previous.key").is_some());
    *fixture.site.now.lock().unwrap() += 7 * DAY;
    let destroyed =
        |secret: Option<&Secret>| secret.is_some_and(|secret| entry(secret, "previous.key").is_none());
    let secrets: Api<Secret> = Api::namespaced(fixture.site.world.client.clone(), "windlass-system");
    let secret = wait_until(&secrets, SECRET, "have one key", destroyed).await.unwrap();
    assert_eq!(certificate(&secret, "tls.crt").der(), new.der());
    fixture.site.world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn excluded_nodes_are_not_waited_for_and_a_second_rotation_is_refused() {
    let fixture = RotationFixture::start("{}").await;
    fixture.deliver("n1", MAIN).await;
    fixture.deliver("gone", MAIN).await;
    fixture.create("first", json!({})).await;
    fixture.wait_until_held("first", "WaitingForTrust", "ConsumersLagging").await;
    fixture.create("second", json!({})).await;
    let refused = fixture.wait_for_phase("second", "Failed").await;
    assert_eq!(refused["conditions"][0]["reason"], "AnotherRotation", "{refused:#}");
    fixture.change("first", json!({"paused": true})).await;
    fixture.wait_until_held("first", "WaitingForTrust", "Paused").await;
    fixture.deliver("n1", MAIN).await;
    fixture.change("first", json!({"paused": false})).await;
    let only = |status: &Value| {
        status["laggards"]
            .as_array()
            .is_some_and(|all| all.len() == 1 && all[0]["name"] == "node/gone/shop/web/trust")
    };
    fixture.wait("first", "held by one node", only).await;
    fixture.change("first", json!({"excludedNodes": ["gone"]})).await;
    assert_eq!(fixture.complete("first", &["n1"]).await, "Completed");
    fixture.site.world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_was_not_read_holds_the_rotation_until_it_is_accepted() {
    let fixture = RotationFixture::start("{}").await;
    fixture.deliver("n1", MAIN).await;
    let old = certificate(&fixture.secret().await, "tls.crt");
    fixture.create("rotation", json!({})).await;
    fixture.wait_until_held("rotation", "WaitingForTrust", "ConsumersLagging").await;
    let unread = json!({"notReadVolumes": ["shop/web/trust"], "notReadSince": "2026-11-18T12:00:00Z"});
    fixture.report("n1", MAIN, unread).await;
    let status = fixture.wait_until_held("rotation", "WaitingForTrust", "ConsumersNotRead").await;
    assert_eq!(status["laggards"][0]["name"], "node/n1/shop/web/trust", "{status:#}");
    assert_eq!(status["laggards"][0]["reason"], "NotRead");
    assert_eq!(status["laggards"][0]["since"], "2026-11-18T12:00:00Z");
    assert_eq!(status["consumers"]["notRead"], 1);
    assert!(is_of(&old, &fixture.issue("one").await));
    fixture.change("rotation", json!({"acceptedConsumers": ["node/n1/shop/web/trust"]})).await;
    assert_eq!(fixture.complete("rotation", &["n1"]).await, "Completed");
    fixture.site.world.shut_down().await;
}

/// An agent that has registered its node and not reported may have any consumer.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_a_report_holds_the_rotation_until_it_is_excluded() {
    let fixture = RotationFixture::start("{}").await;
    let info = json!({"kubeletVersion": "v0.1.0+windlass", "architecture": "", "bootID": "",
        "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "", "machineID": "",
        "operatingSystem": "", "osImage": "", "systemUUID": ""});
    let nodes: Api<Node> = Api::all(fixture.site.world.client.clone());
    let node =
        crate::fixture::object::<Node>(json!({"metadata": {"name": "silent"}, "status": {"nodeInfo": info}}));
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let status = Patch::Merge(json!({ "status": {"nodeInfo": info} }));
    nodes.patch_status("silent", &PatchParams::default(), &status).await.unwrap();
    fixture.deliver("n1", MAIN).await;
    fixture.create("rotation", json!({})).await;
    fixture.wait_until_held("rotation", "WaitingForTrust", "ConsumersLagging").await;
    fixture.deliver("n1", MAIN).await;
    let is_silent = |status: &Value| {
        let laggards = status["laggards"].as_array().cloned().unwrap_or_default();
        laggards.len() == 1 && laggards[0]["name"] == "node/silent" && laggards[0]["reason"] == "NotReporting"
    };
    fixture.wait("rotation", "held by a silent node", is_silent).await;
    fixture.change("rotation", json!({"excludedNodes": ["silent"]})).await;
    assert_eq!(fixture.complete("rotation", &["n1"]).await, "Completed");
    fixture.site.world.shut_down().await;
}

/// Files replaced under a running signer become a rotation.
#[tokio::test(flavor = "multi_thread")]
async fn replaced_files_become_a_rotation() {
    let files = tempfile::tempdir().unwrap();
    let (old, new) = (authority("old", 90), authority("new", 90));
    write_ca(files.path(), &old, &[]);
    let signer = "- {name: example.com/made, ca: {files: {certificate: tls.crt, key: tls.key}}, publish: {}, \
                  requests: {commonNames: ['*'], usages: [server auth], maxDuration: 48h, \
                  approval: {automatic: {users: [alice]}}}}\n";
    let fixture = RotationFixture::start_in(files, signer, "example.com/made").await;
    fixture.site.wait_until_published(MAIN, &[old.certificate()]).await;
    fixture.deliver("n1", MAIN).await;
    assert!(is_of(old.certificate(), &fixture.issue("one").await));
    write_ca(fixture.site.files.path(), &new, &[]);
    fixture.site.wait_until_published(MAIN, &[old.certificate(), new.certificate()]).await;
    let found = fixture.rotations.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(found.len(), 1);
    let name = found[0].name_any();
    assert_eq!(found[0].data["spec"]["trigger"], "SourceChanged");
    fixture.wait_until_held(&name, "WaitingForTrust", "ConsumersLagging").await;
    // No timeout lets the new CA sign.
    *fixture.site.now.lock().unwrap() += HOUR;
    assert!(
        is_of(old.certificate(), &fixture.issue("two").await),
        "signed by a CA that a node does not know"
    );
    assert_eq!(fixture.complete(&name, &["n1"]).await, "Completed");
    assert!(is_of(new.certificate(), &fixture.issue("three").await));
    fixture.site.wait_until_published(MAIN, &[new.certificate()]).await;
    assert_eq!(fixture.rotations.list(&ListParams::default()).await.unwrap().items.len(), 1);
    fixture.site.world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_returns_to_the_old_ca_before_and_after_the_switch() {
    let fixture = RotationFixture::start("{}").await;
    fixture.deliver("n1", MAIN).await;
    let old = certificate(&fixture.secret().await, "tls.crt");
    fixture.issue("one").await;
    fixture.create("early", json!({})).await;
    fixture.wait_until_held("early", "WaitingForTrust", "ConsumersLagging").await;
    fixture.change("early", json!({"rollback": true})).await;
    assert_eq!(fixture.complete("early", &["n1"]).await, "RolledBack");
    fixture.site.wait_until_published(MAIN, &[&old]).await;
    assert_eq!(entry(&fixture.secret().await, "next.key"), None);

    fixture.create("late", json!({})).await;
    fixture.site.wait_until_anchored(MAIN, 2).await;
    fixture.deliver("n1", MAIN).await;
    fixture.wait_for_phase("late", "Renewing").await;
    let new = certificate(&fixture.secret().await, "tls.crt");
    assert!(new.der() != old.der());
    let two = loop {
        // The signer may still have the old CA in memory for a moment.
        let request = fixture.issue(&format!("two-{}", rand_suffix())).await;
        if is_of(&new, &request) {
            break request;
        }
    };
    fixture.change("late", json!({"rollback": true})).await;
    // The anchor of the new CA stays while its leaf is outstanding.
    fixture.wait_for_phase("late", "RollingBack").await;
    let union = fixture.site.wait_until_anchored(MAIN, 2).await;
    verify_chain(&two, &union.spec.trust_bundle, *fixture.site.now.lock().unwrap());
    assert_eq!(fixture.complete("late", &["n1"]).await, "RolledBack");
    fixture.site.wait_until_published(MAIN, &[&old]).await;
    assert_eq!(certificate(&fixture.secret().await, "tls.crt").der(), old.der());
    assert!(is_of(&old, &fixture.issue("three").await));
    fixture.site.world.shut_down().await;
}

fn rand_suffix() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos().into()
}

#[tokio::test(flavor = "multi_thread")]
async fn restarts_in_every_phase_lead_to_the_same_end() {
    let mut fixture = RotationFixture::start("{}").await;
    fixture.deliver("n1", MAIN).await;
    let old = certificate(&fixture.secret().await, "tls.crt");
    fixture.issue("one").await;
    fixture.create("rotation", json!({})).await;
    fixture.wait_until_held("rotation", "WaitingForTrust", "ConsumersLagging").await;
    fixture.restart().await;
    let prepared = certificate(&fixture.secret().await, "next.crt");
    fixture.deliver("n1", MAIN).await;
    fixture.wait_for_phase("rotation", "Renewing").await;
    fixture.restart().await;
    fixture.site.wait_until_anchored(MAIN, 2).await;
    fixture.issue("two").await;
    fixture.wait_until_held("rotation", "Retiring", "ConsumersLagging").await;
    fixture.restart().await;
    fixture.wait_until_held("rotation", "Retiring", "ConsumersLagging").await;
    fixture.deliver("n1", MAIN).await;
    fixture.wait_for_phase("rotation", "Completed").await;
    let secret = fixture.secret().await;
    assert_eq!(certificate(&secret, "tls.crt").der(), prepared.der(), "the CA that was prepared first");
    assert_eq!(certificate(&secret, "previous.crt").der(), old.der());
    fixture.site.wait_until_published(MAIN, &[&prepared]).await;
    fixture.site.world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_controllers_rotate_once() {
    let fixture = RotationFixture::start("{}").await;
    let copy = fixture.site.files.path().join("copy.yaml");
    std::fs::copy(fixture.site.files.path().join("signers.yaml"), &copy).unwrap();
    let (down, shutdown) = tokio::sync::watch::channel(false);
    let other = windlass_controllers::run(
        fixture.site.world.client.clone(),
        options(&copy, fixture.site.clock()),
        shutdown,
    );
    let other = tokio::spawn(other);
    fixture.deliver("n1", MAIN).await;
    fixture.create("rotation", json!({})).await;
    assert_eq!(fixture.complete("rotation", &["n1"]).await, "Completed");
    let secret = fixture.secret().await;
    let (new, old) = (certificate(&secret, "tls.crt"), certificate(&secret, "previous.crt"));
    assert!(new.der() != old.der());
    fixture.site.wait_until_published(MAIN, &[&new]).await;
    down.send_replace(true);
    other.await.unwrap();
    fixture.site.world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ca_that_expires_soon_is_rotated() {
    let fixture = RotationFixture::start("{}").await;
    let old = certificate(&fixture.secret().await, "tls.crt");
    fixture.deliver("n1", MAIN).await;
    *fixture.site.now.lock().unwrap() += 481 * HOUR;
    let patch = Patch::Merge(json!({"metadata": {"labels": {"look": "now"}}}));
    let secrets: Api<Secret> = Api::namespaced(fixture.site.world.client.clone(), "windlass-system");
    secrets.patch(SECRET, &PatchParams::default(), &patch).await.unwrap();
    fixture.site.wait_until_anchored(MAIN, 2).await;
    let found = fixture.rotations.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].data["spec"]["trigger"], "Expiry");
    assert_eq!(certificate(&fixture.secret().await, "tls.crt").der(), old.der(), "the old CA signs");
    assert_eq!(fixture.complete(&found[0].name_any(), &["n1"]).await, "Completed");
    assert!(certificate(&fixture.secret().await, "tls.crt").der() != old.der());
    fixture.site.world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leaves_of_a_compromised_ca_are_revoked_and_not_waited_for() {
    let fixture = RotationFixture::start("{}").await;
    fixture.deliver("n1", MAIN).await;
    let old = certificate(&fixture.secret().await, "tls.crt");
    fixture.issue("one").await;
    fixture.create("rotation", json!({"compromised": true})).await;
    fixture.site.wait_until_anchored(MAIN, 2).await;
    fixture.deliver("n1", MAIN).await;
    let alone = fixture.site.wait_until_anchored(MAIN, 1).await;
    assert!(alone.spec.trust_bundle != old.to_pem());
    fixture.deliver("n1", MAIN).await;
    fixture.wait_for_phase("rotation", "Completed").await;
    let client = fixture.site.world.client.clone();
    let revocations: Api<DynamicObject> =
        Api::all_with(client, &kind("CertificateRevocation", "certificaterevocations"));
    let revoked = revocations.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(revoked.len(), 1);
    assert_eq!(revoked[0].data["spec"]["reason"], "cACompromise");
    assert_eq!(revoked[0].data["spec"]["authorityID"], old.authority_id());
    fixture.site.world.shut_down().await;
}

/// The root of another signer's intermediate is retired after that signer has rotated.
#[tokio::test(flavor = "multi_thread")]
async fn a_root_waits_for_the_signers_below_it() {
    let signers = "- {name: example.com/root, ca: {selfSigned: {}}, publish: {}, \
                   intermediates: {signerNames: [example.com/below], maxDuration: 240h}}\n\
                   - {name: example.com/below, ca: {issuerSignerName: example.com/root, duration: 48h}, publish: {}, \
                   requests: {commonNames: ['*'], usages: [server auth], maxDuration: 24h, \
                   approval: {automatic: {users: [alice]}}}}\n";
    let files = tempfile::tempdir().unwrap();
    let mut fixture = RotationFixture::start_in(files, signers, "example.com/below").await;
    fixture.site.wait_until_anchored("example.com:below:anchors", 1).await;
    let one = fixture.issue("one").await;
    fixture.signer = "example.com/root";
    fixture.create("root", json!({})).await;
    let status = fixture.wait_until_held("root", "Renewing", "ConsumersLagging").await;
    assert_eq!(status["laggards"][0]["name"], "signer/example.com/below", "{status:#}");
    assert_eq!(status["laggards"][0]["kind"], "Signer");
    let union = fixture.site.wait_until_anchored("example.com:below:anchors", 2).await;
    verify_chain(&one, &union.spec.trust_bundle, *fixture.site.now.lock().unwrap());
    let all = fixture.rotations.list(&ListParams::default()).await.unwrap().items;
    let below = all.iter().find(|each| each.data["spec"]["signerName"] == "example.com/below").unwrap();
    fixture.wait_for_phase(&below.name_any(), "Renewing").await;
    assert_eq!(fixture.status("root").await["phase"], "Renewing");
    fixture.signer = "example.com/below";
    fixture.issue("two").await;
    fixture.wait_for_phase(&below.name_any(), "Completed").await;
    fixture.wait_for_phase("root", "Completed").await;
    fixture.site.world.shut_down().await;
}
