//! Tests of CA replacement: verifiers always have a trust anchor, and no certificate of the new CA
//! is issued before its anchor is delivered.

use kube::api::{DynamicObject, PostParams};
use kube::core::ApiResource;

use super::*;

const NAME: &str = "example.com:web:anchors";

/// Simulated nodes and the bundles delivered to them, in place of agents.
struct FakeNodes {
    api: Api<DynamicObject>,
    delivered: Vec<(&'static str, String)>,
}

impl FakeNodes {
    fn new(site: &SignerFixture) -> FakeNodes {
        let api = Api::all_with(site.world.client.clone(), &node_trusts());
        FakeNodes { api, delivered: vec![("n1", String::new()), ("n2", String::new())] }
    }

    /// Delivers the current bundle to a node and reports it.
    async fn deliver(&mut self, node: &str, bundle: &Bundle) {
        let text = &bundle.spec.trust_bundle;
        let fingerprints = pem::certificates(text.as_bytes()).unwrap();
        let fingerprints: Vec<_> = fingerprints.iter().map(|der| windlass_pki::fingerprint(der)).collect();
        let digest = windlass_pki::certificate_set_digest(&fingerprints);
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let carried = json!([{"name": NAME, "digest": format!("sha256:{digest}")}]);
        let source = json!({"name": NAME, "bundles": carried, "volumes": ["v"]});
        let mut report = DynamicObject::new(node, &node_trusts());
        report.data = json!({"status": {"volumes": 1, "bundles": 1, "sources": [source]}});
        match self.api.get_opt(node).await.unwrap() {
            Some(found) => {
                report.metadata = found.metadata;
                self.api.replace(node, &PostParams::default(), &report).await.unwrap();
            }
            None => drop(self.api.create(&PostParams::default(), &report).await.unwrap()),
        }
        let (_, delivered) = self.delivered.iter_mut().find(|(name, _)| *name == node).unwrap();
        delivered.clone_from(text);
    }

    /// Verifies every leaf against the anchors on every node.
    fn verify(&self, leaves: &[&Csr], now: OffsetDateTime) {
        for (_, delivered) in &self.delivered {
            for leaf in leaves {
                verify_chain(leaf, delivered, now);
            }
        }
    }
}

fn node_trusts() -> ApiResource {
    ApiResource {
        group: "windlass.dev".into(),
        version: "v1alpha1".into(),
        api_version: "windlass.dev/v1alpha1".into(),
        kind: "NodeTrust".into(),
        plural: "nodetrusts".into(),
    }
}

impl SignerFixture {
    async fn issue(&self, name: &str) -> Csr {
        GOOD.create(&self.requests_as("alice", "x"), name).await;
        self.wait_until_settled(name).await
    }

    fn now(&self) -> OffsetDateTime {
        *self.now.lock().unwrap()
    }

    /// Triggers a reconcile and waits until a removed label is back.
    async fn wait_for_reconcile(&self) -> Bundle {
        let bundles = self.bundles();
        let patch = Patch::Merge(json!({"metadata": {"labels": {"purpose": null}}}));
        bundles.patch(NAME, &PatchParams::default(), &patch).await.unwrap();
        let labelled = |b: Option<&Bundle>| b.is_some_and(|b| b.labels().contains_key("purpose"));
        wait_until(&bundles, NAME, "be labelled", labelled).await.unwrap()
    }
}

fn is_signed_by(authority: &CertificateAuthority, request: &Csr) -> bool {
    let text = &request.status.as_ref().unwrap().certificate.as_ref().unwrap().0;
    let leaf = pem::certificates(text).unwrap().remove(0);
    authority.has_issued(&Certificate::from_der(&leaf).unwrap())
}

fn records(bundle: &Bundle) -> serde_json::Value {
    serde_json::from_str(&bundle.annotations()["windlass.dev/anchors"]).unwrap()
}

/// Two services with 24-hour certificates and an overlap of one hour.
#[tokio::test(flavor = "multi_thread")]
async fn services_verify_each_other_at_every_step() {
    let files = tempfile::tempdir().unwrap();
    let (old, new) = (authority("old", 90), authority("new", 90));
    write_ca(files.path(), &old, &[]);
    let site = SignerFixture::start_in(files, WEB).await;
    let mut nodes = FakeNodes::new(&site);
    let bundle = site.wait_until_published(NAME, &[old.certificate()]).await;
    for node in ["n1", "n2"] {
        nodes.deliver(node, &bundle).await;
    }
    let (one, two) = (site.issue("one").await, site.issue("two").await);
    nodes.verify(&[&one, &two], site.now());

    write_ca(site.files.path(), &new, &[]);
    let both = site.wait_until_published(NAME, &[new.certificate(), old.certificate()]).await;
    nodes.verify(&[&one, &two], site.now());
    // First no node has the new root, then one of them.
    let three = site.issue("three").await;
    assert!(is_signed_by(&old, &three), "signed by a CA that no node knows");
    nodes.deliver("n1", &both).await;
    let four = site.issue("four").await;
    assert!(is_signed_by(&old, &four), "signed by a CA that a node does not know");
    nodes.verify(&[&one, &two, &three, &four], site.now());
    nodes.deliver("n2", &both).await;
    let open = |b: Option<&Bundle>| b.is_some_and(|b| !records(b).to_string().contains("holdUntil"));
    wait_until(&site.bundles(), NAME, "be delivered", open).await.unwrap();
    let renewed = async {
        for round in 0.. {
            let renewed = site.issue(&format!("five-{round}")).await;
            nodes.verify(&[&renewed], site.now());
            if is_signed_by(&new, &renewed) {
                return renewed;
            }
        }
        unreachable!()
    };
    let five = tokio::time::timeout(crate::fixture::PATIENCE, renewed).await.unwrap();
    nodes.verify(&[&one, &two, &three, &four, &five], site.now());

    // The overlap has passed, and both services still have certificates of the old CA.
    for hours in [1, 22] {
        *site.now.lock().unwrap() += hours * HOUR;
        let bundle = site.wait_for_reconcile().await;
        nodes.deliver("n1", &bundle).await;
        nodes.deliver("n2", &bundle).await;
        nodes.verify(&[&one, &two, &three, &four, &five], site.now());
    }
    // Certificates last at most 48 hours, so the longest one has expired.
    *site.now.lock().unwrap() += 27 * HOUR;
    let patch = Patch::Merge(json!({"metadata": {"labels": {"theirs": "too"}}}));
    site.bundles().patch(NAME, &PatchParams::default(), &patch).await.unwrap();
    site.wait_until_published(NAME, &[new.certificate()]).await;
    site.world.shut_down().await;
}

impl SignerFixture {
    /// Stops the controllers, replaces the CA, and restarts them with the new files.
    async fn restart_with(&mut self, authority: &CertificateAuthority) {
        self.world.stop_controllers().await;
        write_ca(self.files.path(), authority, &[]);
        let clock: Clock = Arc::new({
            let now = self.now.clone();
            move || *now.lock().unwrap()
        });
        let custom = signers::open(&self.files.path().join("signers.yaml"), &clock).unwrap();
        self.world.run_controllers_with(ControllerOptions {
            custom,
            ca_overlap: HOUR,
            controllers: "custom-signer-controller".parse().unwrap(),
            ..ControllerOptions::new(clock)
        });
    }
}

/// The files are replaced while the controllers are stopped, so the old key is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_ca_replaced_during_downtime_waits_and_reports_it() {
    let files = tempfile::tempdir().unwrap();
    let (old, new) = (authority("old", 90), authority("new", 90));
    write_ca(files.path(), &old, &[]);
    let mut site = SignerFixture::start_in(files, WEB).await;
    let mut nodes = FakeNodes::new(&site);
    let bundle = site.wait_until_published(NAME, &[old.certificate()]).await;
    nodes.deliver("n1", &bundle).await;
    nodes.deliver("n2", &bundle).await;
    let one = site.issue("one").await;
    site.restart_with(&new).await;
    site.wait_until_published(NAME, &[new.certificate(), old.certificate()]).await;
    let api = site.requests_as("alice", "x");
    GOOD.create(&api, "waits").await;
    let delayed = |request: Option<&Csr>| {
        let reported = request.and_then(|r| condition(r, "windlass.dev/SigningDelayed"));
        reported.is_some_and(|reported| reported.reason.as_deref() == Some("CaNotDelivered"))
    };
    let request = wait_until(&api, "waits", "be put off", delayed).await.unwrap();
    let reported = condition(&request, "windlass.dev/SigningDelayed").unwrap();
    assert!(reported.message.as_ref().unwrap().contains("at the latest at "), "{reported:?}");
    let metrics = site.world.metrics();
    assert!(metrics.contains("windlass_signer_ca_pending{signer=\"example.com/web\"}"), "{metrics}");
    // The timeout passes without a report from the node.
    *site.now.lock().unwrap() += Duration::from_secs(5 * 60 + 1);
    let both = site.wait_for_reconcile().await;
    let request = site.wait_until_settled("waits").await;
    assert!(is_signed_by(&new, &request));
    verify_chain(&request, &both.spec.trust_bundle, site.now());
    verify_chain(&one, &both.spec.trust_bundle, site.now());
    // Replaced again and then restored: all anchors stay.
    let third = authority("third", 90);
    site.restart_with(&third).await;
    let all = [third.certificate(), new.certificate(), old.certificate()];
    site.wait_until_published(NAME, &all).await;
    site.restart_with(&old).await;
    let all = [old.certificate(), third.certificate(), new.certificate()];
    site.wait_until_published(NAME, &all).await;
    assert!(is_signed_by(&old, &site.issue("known").await), "every node has this one");
    site.world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_anchor_that_is_removed_by_hand_stays_away_and_its_ca_stops() {
    let files = tempfile::tempdir().unwrap();
    let (old, new) = (authority("old", 90), authority("new", 90));
    write_ca(files.path(), &old, &[]);
    let site = SignerFixture::start_in(files, WEB).await;
    let mut nodes = FakeNodes::new(&site);
    let bundle = site.wait_until_published(NAME, &[old.certificate()]).await;
    nodes.deliver("n1", &bundle).await;
    assert!(is_signed_by(&old, &site.issue("one").await));
    write_ca(site.files.path(), &new, &[]);
    site.wait_until_published(NAME, &[new.certificate(), old.certificate()]).await;
    let patch = Patch::Merge(json!({"spec": {"trustBundle": new.certificate().to_pem()}}));
    site.bundles().patch(NAME, &PatchParams::default(), &patch).await.unwrap();
    let forgotten = |b: Option<&Bundle>| b.is_some_and(|b| records(b).as_object().unwrap().len() == 1);
    let alone = wait_until(&site.bundles(), NAME, "forget the anchor", forgotten).await.unwrap();
    assert_eq!(alone.spec.trust_bundle, new.certificate().to_pem());
    let api = site.requests_as("alice", "x");
    GOOD.create(&api, "two").await;
    nodes.deliver("n1", &alone).await;
    assert!(is_signed_by(&new, &site.wait_until_settled("two").await));
    site.world.shut_down().await;
}
