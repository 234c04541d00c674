//! Tests of Bundles: targets are written and kept in sync.

mod access_check;
mod failures;
mod lifecycle;
mod sources;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use time::OffsetDateTime;
use windlass_controllers::bundles::BundleSettings;
use windlass_controllers::{Clock, ControllerOptions};
use windlass_server::system_clock;

use crate::fixture::{PATIENCE, TestCluster, object, wait_until};

/// Root certificates that are valid until 2056.
const P256: &str = include_str!("../../../pki/tests/verdicts/ca-p256.pem");
const ED25519: &str = include_str!("../../../pki/tests/verdicts/ca-ed25519.pem");
const RSA: &str = include_str!("../../../pki/tests/verdicts/ca-rsa2048.pem");

const TRUST: &str = "cert-manager";
const LABEL: &str = "trust.cert-manager.io/bundle";
const HASH: &str = "trust.cert-manager.io/hash";

/// A server with the trust namespace and two other namespaces.
struct BundleFixture {
    world: TestCluster,
}

fn settings() -> BundleSettings {
    BundleSettings { secret_targets: true, ..BundleSettings::default() }
}

impl BundleFixture {
    async fn start() -> BundleFixture {
        BundleFixture::start_with(settings(), system_clock()).await
    }

    async fn start_with(bundles: BundleSettings, clock: Clock) -> BundleFixture {
        let mut site = BundleFixture::without_controllers().await;
        site.run(bundles, clock);
        site
    }

    async fn without_controllers() -> BundleFixture {
        BundleFixture::with_stored_objects(&[]).await
    }

    /// Starts with stored objects that the server would reject.
    async fn with_stored_objects(objects: &[(&str, String)]) -> BundleFixture {
        let world = TestCluster::with_stored_objects(objects).await;
        for name in [TRUST, "a", "b"] {
            world.create_namespace(name).await;
        }
        BundleFixture { world }
    }

    fn run(&mut self, bundles: BundleSettings, clock: Clock) {
        self.world.run_controllers_with(ControllerOptions { bundles, ..ControllerOptions::new(clock) });
    }

    fn bundles(&self) -> Api<DynamicObject> {
        let resource = ApiResource {
            group: "trust.cert-manager.io".into(),
            version: "v1alpha1".into(),
            api_version: "trust.cert-manager.io/v1alpha1".into(),
            kind: "Bundle".into(),
            plural: "bundles".into(),
        };
        Api::all_with(self.world.client.clone(), &resource)
    }

    fn config_maps(&self, namespace: &str) -> Api<ConfigMap> {
        self.world.api(namespace)
    }

    fn secrets(&self, namespace: &str) -> Api<Secret> {
        self.world.api(namespace)
    }

    async fn create(&self, name: &str, sources: Value, target: Value) {
        let mut spec = json!({"sources": sources});
        if !target.is_null() {
            spec["target"] = target;
        }
        let bundle = json!({
            "apiVersion": "trust.cert-manager.io/v1alpha1", "kind": "Bundle",
            "metadata": {"name": name}, "spec": spec,
        });
        self.bundles().create(&PostParams::default(), &object(bundle)).await.unwrap();
    }

    async fn patch(&self, name: &str, patch: Value) {
        let patch = Patch::Merge(patch);
        self.bundles().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Creates or replaces a source ConfigMap in the trust namespace.
    async fn apply_source(&self, name: &str, data: Value) {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data,
        });
        let parameters = PatchParams::apply("test").force();
        self.config_maps(TRUST).patch(name, &parameters, &Patch::Apply(map)).await.unwrap();
    }

    /// Waits until `look` returns a value.
    async fn wait_for<T>(&self, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
        let waiting = async {
            loop {
                if let Some(found) = look().await {
                    return found;
                }
                tokio::task::yield_now().await;
            }
        };
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(found) => found,
            Err(_) => {
                let bundles = self.bundles().list(&ListParams::default()).await.unwrap();
                let said = bundles.items.iter().map(|bundle| bundle.data["status"].to_string());
                panic!("{what}: {:?}", said.collect::<Vec<_>>());
            }
        }
    }

    /// Waits until a Bundle's condition has this reason; returns its message and the status.
    async fn wait_for_reason(&self, name: &str, reason: &str) -> (String, Value) {
        self.wait_for(&format!("{name} is {reason}"), async || {
            let bundle = self.bundles().get(name).await.unwrap();
            let status = &bundle.data["status"];
            let condition = status["conditions"].as_array()?.first()?;
            let current = condition["observedGeneration"].as_i64() == bundle.metadata.generation;
            let said = condition["reason"] == reason && current;
            said.then(|| (condition["message"].as_str().unwrap().to_owned(), status.clone()))
        })
        .await
    }

    /// Waits until a ConfigMap in this namespace has exactly this data.
    async fn wait_for_data(&self, namespace: &str, name: &str, data: &[(&str, &str)]) -> ConfigMap {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let wanted: BTreeMap<String, String> = data.iter().map(own).collect();
        let right = move |map: Option<&ConfigMap>| {
            map.is_some_and(|map| map.data.clone().unwrap_or_default() == wanted)
        };
        wait_until(&self.config_maps(namespace), name, "have the certificates", right).await.unwrap()
    }

    /// Returns the resource versions of all targets, to show that none was written.
    async fn target_versions(&self) -> Vec<(String, Option<String>)> {
        let labelled = ListParams::default().labels(LABEL);
        let maps: Api<ConfigMap> = Api::all(self.world.client.clone());
        let secrets: Api<Secret> = Api::all(self.world.client.clone());
        let maps = maps.list(&labelled).await.unwrap().items.into_iter().map(|map| map.metadata);
        let secrets = secrets.list(&labelled).await.unwrap().items.into_iter();
        let all = maps.chain(secrets.map(|secret| secret.metadata));
        all.map(|metadata| (metadata.namespace.unwrap(), metadata.resource_version)).collect()
    }
}

/// Returns the PEM text of these certificates in the order of a Bundle.
fn bundle_pem(certificates: &[&str]) -> String {
    use windlass_controllers::bundles::certificate_set::{CertificateFilter, CertificateSet};
    let mut pool = CertificateSet::new(CertificateFilter::default(), OffsetDateTime::now_utc());
    pool.add(certificates.concat().as_bytes()).unwrap();
    pool.pem()
}

/// Returns a clock that always shows this time.
fn fixed_clock(at: OffsetDateTime) -> Clock {
    Arc::new(move || at)
}
