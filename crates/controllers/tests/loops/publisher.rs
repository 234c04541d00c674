//! Tests of root CA publication: clients find the API server's CA, and it follows its file.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::certificates::v1beta1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use time::OffsetDateTime;
use windlass_controllers::{ControllerOptions, RootCa};
use windlass_pki::Validity;
use windlass_testkit::ca_with_validity;

use crate::fixture::{TestCluster, object, wait_until, wait_until_removed};

const NAME: &str = "kube-root-ca.crt";
const SIGNER: &str = "kubernetes.io/kube-apiserver-serving";

fn generate_ca() -> String {
    let validity = Validity::lasting(OffsetDateTime::now_utc(), time::Duration::DAY).unwrap();
    ca_with_validity("ca", validity).certificate().to_pem()
}

/// A server whose controllers publish a CA file, with a clock that advances only when it is set.
struct PublishFixture {
    world: TestCluster,
    file: PathBuf,
    ca: Arc<RootCa>,
    now: Arc<Mutex<OffsetDateTime>>,
    text: String,
    _dir: tempfile::TempDir,
}

impl PublishFixture {
    async fn prepare() -> (PublishFixture, ControllerOptions) {
        let (dir, text) = (tempfile::tempdir().unwrap(), generate_ca());
        let file = dir.path().join("ca.crt");
        std::fs::write(&file, &text).unwrap();
        let ca = RootCa::from_file(file.clone()).unwrap();
        let now = Arc::new(Mutex::new(OffsetDateTime::now_utc()));
        let clock = now.clone();
        let options = ControllerOptions {
            root_ca: Some(ca.clone()),
            ca_overlap: Duration::from_secs(3600),
            ..ControllerOptions::new(Arc::new(move || *clock.lock().unwrap()))
        };
        let world = TestCluster::without_controllers().await;
        (PublishFixture { world, file, ca, now, text, _dir: dir }, options)
    }

    async fn start() -> PublishFixture {
        let (mut site, options) = PublishFixture::prepare().await;
        site.world.run_controllers_with(options);
        site
    }

    fn replace(&mut self) {
        self.text = generate_ca();
        std::fs::write(&self.file, &self.text).unwrap();
        // The file watch would also detect the change.
        self.ca.reload();
    }

    async fn wait_until_published(&self, namespace: &str) {
        let text = self.text.clone();
        let right = move |map: Option<&ConfigMap>| {
            let data = map.and_then(|map| map.data.as_ref());
            data.is_some_and(|data| data.len() == 1 && data["ca.crt"] == text)
        };
        wait_until(&self.world.api(namespace), NAME, "have the CA", right).await;
    }

    fn bundles(&self) -> Api<ClusterTrustBundle> {
        Api::all(self.world.client.clone())
    }

    /// Waits for a bundle with the current certificates.
    async fn wait_for_bundle(&self) -> String {
        let name = self.ca.current().bundle.as_ref().unwrap().name.clone();
        let text = self.text.clone();
        let right = move |found: Option<&ClusterTrustBundle>| {
            found.is_some_and(|found| found.spec.trust_bundle == text)
        };
        wait_until(&self.bundles(), &name, "be published", right).await;
        name
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_namespace_has_the_root_ca() {
    let mut site = PublishFixture::start().await;
    site.wait_until_published("default").await;
    site.world.create_namespace("new").await;
    site.wait_until_published("new").await;
    let maps = site.world.api::<ConfigMap>("new");
    let _ = maps.delete(NAME, &DeleteParams::default()).await.unwrap();
    site.wait_until_published("new").await;
    for wrong in [
        json!({"data": {"ca.crt": "other"}}),
        json!({"data": {"more": "keys"}}),
        json!({"metadata": {"annotations": null}}),
    ] {
        maps.patch(NAME, &PatchParams::default(), &Patch::Merge(&wrong)).await.unwrap();
        site.wait_until_published("new").await;
        let described = |map: Option<&ConfigMap>| {
            map.is_some_and(|map| map.annotations().contains_key("kubernetes.io/description"))
        };
        wait_until(&maps, NAME, "be described", described).await;
    }
    site.replace();
    site.wait_until_published("default").await;
    site.wait_until_published("new").await;
    let _ = site.world.namespaces().delete("new", &DeleteParams::default()).await.unwrap();
    wait_until_removed(&site.world.namespaces(), "new").await;
    site.world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_immutable_config_map_is_reported_and_unchanged() {
    let (mut site, options) = PublishFixture::prepare().await;
    let maps = site.world.api::<ConfigMap>("default");
    let stuck = json!({"metadata": {"name": NAME}, "data": {"ca.crt": "old"}, "immutable": true});
    let stuck = maps.create(&PostParams::default(), &object(stuck)).await.unwrap();
    site.world.run_controllers_with(options);
    let selector = format!("involvedObject.uid={}", stuck.uid().unwrap());
    let events = site.world.api::<Event>("default");
    let reported = || async { events.list(&ListParams::default().fields(&selector)).await.unwrap().items };
    let waiting = async {
        while reported().await.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waiting).await.unwrap();
    assert_eq!(reported().await[0].reason.as_deref(), Some("ImmutableRootCA"));
    // Other namespaces get the ConfigMap; this one gets it after the immutable one is deleted.
    site.wait_until_published("kube-system").await;
    let _ = maps.delete(NAME, &DeleteParams::default()).await.unwrap();
    site.wait_until_published("default").await;
    let events = reported().await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].series, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_that_is_replaced_stays_for_a_while() {
    let mut site = PublishFixture::start().await;
    let old = site.wait_for_bundle().await;
    let other = json!({
        "metadata": {"name": "kubernetes.io:kube-apiserver-serving:other"},
        "spec": {"signerName": SIGNER, "trustBundle": generate_ca()},
    });
    let other = site.bundles().create(&PostParams::default(), &object(other)).await.unwrap();
    site.replace();
    let new = site.wait_for_bundle().await;
    assert_ne!(old, new);
    let retired = |found: Option<&ClusterTrustBundle>| {
        found.is_some_and(|found| found.annotations().contains_key("windlass.dev/retired-at"))
    };
    wait_until(&site.bundles(), &old, "be retired", retired).await;
    *site.now.lock().unwrap() += Duration::from_secs(3599);
    // Triggers a reconcile of all bundles; it has finished when the new one is back.
    let _ = site.bundles().delete(&new, &DeleteParams::default()).await.unwrap();
    site.wait_for_bundle().await;
    assert!(site.bundles().get_opt(&old).await.unwrap().is_some());
    *site.now.lock().unwrap() += Duration::from_secs(1);
    let _ = site.bundles().delete(&new, &DeleteParams::default()).await.unwrap();
    wait_until_removed(&site.bundles(), &old).await;
    site.wait_for_bundle().await;
    let kept = site.bundles().get(&other.name_any()).await.unwrap();
    assert_eq!(kept.resource_version(), other.resource_version());
}

#[tokio::test(flavor = "multi_thread")]
async fn housekeeping_is_disabled_on_other_clusters() {
    let (mut site, options) = PublishFixture::prepare().await;
    site.world.run_controllers_with(ControllerOptions { housekeeping: false, ..options });
    site.world.create_namespace("new").await;
    site.wait_until_published("new").await;
    site.wait_for_bundle().await;
    let accounts = site.world.api::<k8s_openapi::api::core::v1::ServiceAccount>("new");
    assert!(accounts.get_opt("default").await.unwrap().is_none());
}
