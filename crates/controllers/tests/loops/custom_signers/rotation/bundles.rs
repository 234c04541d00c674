//! Tests of rotations whose anchors are distributed by Bundles.

use k8s_openapi::api::core::v1::ConfigMap;
use tokio::task::JoinHandle;

use super::*;

/// A bundle controller that can be stopped without the others.
struct BundleProcess {
    down: tokio::sync::watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl BundleProcess {
    fn start(fixture: &RotationFixture) -> BundleProcess {
        let (down, shutdown) = tokio::sync::watch::channel(false);
        let options = ControllerOptions {
            controllers: "bundle-controller".parse().unwrap(),
            ..ControllerOptions::new(fixture.site.clock())
        };
        let client = fixture.site.world.client.clone();
        BundleProcess { down, task: tokio::spawn(windlass_controllers::run(client, options, shutdown)) }
    }

    async fn stop(self) {
        self.down.send_replace(true);
        self.task.await.unwrap();
    }
}

async fn create_bundle(fixture: &RotationFixture, name: &str, source: Value) {
    let resource = ApiResource {
        group: "trust.cert-manager.io".into(),
        version: "v1alpha1".into(),
        api_version: "trust.cert-manager.io/v1alpha1".into(),
        kind: "Bundle".into(),
        plural: "bundles".into(),
    };
    let mut bundle = DynamicObject::new(name, &resource);
    let target = json!({"configMap": {"key": "ca.crt"}});
    bundle.data = json!({"spec": {"sources": [{"clusterTrustBundle": source}], "target": target}});
    let bundles: Api<DynamicObject> = Api::all_with(fixture.site.world.client.clone(), &resource);
    bundles.create(&PostParams::default(), &bundle).await.unwrap();
}

/// Waits until the target of a Bundle has this number of certificates.
async fn wait_for_target(fixture: &RotationFixture, name: &str, count: usize) -> String {
    let text = |map: &ConfigMap| map.data.as_ref().and_then(|data| data.get("ca.crt")).cloned();
    let good = |map: Option<&ConfigMap>| {
        map.and_then(text).is_some_and(|text| text.matches("BEGIN").count() == count)
    };
    let maps: Api<ConfigMap> = fixture.site.world.api("default");
    let found = wait_until(&maps, name, &format!("have {count} certificates"), good).await.unwrap();
    text(&found).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn bundles_are_waited_for_until_their_targets_have_the_anchors() {
    let fixture = RotationFixture::start("{labels: {purpose: web}}").await;
    create_bundle(&fixture, "named", json!({"name": MAIN})).await;
    let selector = json!({"matchLabels": {"purpose": "web"}});
    let selected = json!({"signerName": "example.com/made", "labelSelector": selector});
    create_bundle(&fixture, "selected", selected).await;
    let selector = json!({"matchLabels": {"purpose": "mail"}});
    // It reads none of the signer's bundles, so nobody waits for it.
    let other = json!({"signerName": "example.com/made", "labelSelector": selector});
    create_bundle(&fixture, "other", other).await;
    let bundles = BundleProcess::start(&fixture);
    for name in ["named", "selected"] {
        wait_for_target(&fixture, name, 1).await;
    }
    bundles.stop().await;

    // Both are synced with what the bundle had before.
    fixture.create("rotation", json!({})).await;
    let are_listed = |status: &Value| {
        let laggards = status["laggards"].as_array().cloned().unwrap_or_default();
        let names: Vec<_> = laggards.iter().filter_map(|each| each["name"].as_str()).collect();
        status["phase"] == "WaitingForTrust" && names == ["bundle/named", "bundle/selected"]
    };
    let status = fixture.wait("rotation", "held by two Bundles", are_listed).await;
    assert_eq!(held(&status), Some("ConsumersLagging"), "{status:#}");
    assert_eq!(status["laggards"][0]["kind"], "BundleTarget");
    assert_eq!(status["laggards"][0]["reason"], "NotWritten");
    assert_eq!(status["consumers"]["total"], 2);

    let bundles = BundleProcess::start(&fixture);
    assert_eq!(fixture.complete("rotation", &[]).await, "Completed");
    let status = fixture.status("rotation").await;
    assert_eq!(status["consumers"]["notObservable"], 2, "{status:#}");
    let new = certificate(&fixture.secret().await, "tls.crt");
    for name in ["named", "selected"] {
        assert_eq!(wait_for_target(&fixture, name, 1).await.trim_end(), new.to_pem().trim_end());
    }
    bundles.stop().await;
    fixture.site.world.shut_down().await;
}
