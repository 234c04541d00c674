//! Bundles are where they belong, and stay there.

mod life;
mod rights;
mod sources;
mod trouble;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use time::OffsetDateTime;
use windlass_controllers::bundles::Settings;
use windlass_controllers::{Clock, Options};
use windlass_server::server::system_clock;

use crate::fixture::{PATIENCE, World, object, until};

/// Roots that are good until 2056.
const P256: &str = include_str!("../../../pki/tests/verdicts/ca-p256.pem");
const ED25519: &str = include_str!("../../../pki/tests/verdicts/ca-ed25519.pem");
const RSA: &str = include_str!("../../../pki/tests/verdicts/ca-rsa2048.pem");

const TRUST: &str = "cert-manager";
const LABEL: &str = "trust.cert-manager.io/bundle";
const HASH: &str = "trust.cert-manager.io/hash";

/// A server with the trust namespace and two others.
struct Site {
    world: World,
}

fn settings() -> Settings {
    Settings { secret_targets: true, ..Settings::default() }
}

impl Site {
    async fn start() -> Site {
        Site::with(settings(), system_clock()).await
    }

    async fn with(bundles: Settings, clock: Clock) -> Site {
        let mut site = Site::idle().await;
        site.run(bundles, clock);
        site
    }

    /// Without controllers.
    async fn idle() -> Site {
        Site::holding(&[]).await
    }

    /// The same, with objects that the server would not take.
    async fn holding(objects: &[(&str, String)]) -> Site {
        let world = World::holding(objects).await;
        for name in [TRUST, "a", "b"] {
            world.namespace(name).await;
        }
        Site { world }
    }

    fn run(&mut self, bundles: Settings, clock: Clock) {
        self.world.run_controllers_with(Options { bundles, ..Options::new(clock) });
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

    fn maps(&self, namespace: &str) -> Api<ConfigMap> {
        self.world.all(namespace)
    }

    fn secrets(&self, namespace: &str) -> Api<Secret> {
        self.world.all(namespace)
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

    async fn change(&self, name: &str, patch: Value) {
        let patch = Patch::Merge(patch);
        self.bundles().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Makes a source in the trust namespace, or makes it another.
    async fn source(&self, name: &str, data: Value) {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data,
        });
        let parameters = PatchParams::apply("test").force();
        self.maps(TRUST).patch(name, &parameters, &Patch::Apply(map)).await.unwrap();
    }

    /// Waits until something is so.
    async fn wait<T>(&self, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
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

    /// Waits until a Bundle says this of itself; the answer is the message and the whole status.
    async fn says(&self, name: &str, reason: &str) -> (String, Value) {
        self.wait(&format!("{name} is {reason}"), async || {
            let bundle = self.bundles().get(name).await.unwrap();
            let status = &bundle.data["status"];
            let condition = status["conditions"].as_array()?.first()?;
            let current = condition["observedGeneration"].as_i64() == bundle.metadata.generation;
            let said = condition["reason"] == reason && current;
            said.then(|| (condition["message"].as_str().unwrap().to_owned(), status.clone()))
        })
        .await
    }

    /// Waits until a ConfigMap in this namespace has this data and nothing else.
    async fn has(&self, namespace: &str, name: &str, data: &[(&str, &str)]) -> ConfigMap {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let wanted: BTreeMap<String, String> = data.iter().map(own).collect();
        let right = move |map: Option<&ConfigMap>| {
            map.is_some_and(|map| map.data.clone().unwrap_or_default() == wanted)
        };
        until(&self.maps(namespace), name, "have the certificates", right).await.unwrap()
    }

    /// The versions of all targets, so that one can tell that none was written.
    async fn versions(&self) -> Vec<(String, Option<String>)> {
        let labelled = ListParams::default().labels(LABEL);
        let maps: Api<ConfigMap> = Api::all(self.world.client.clone());
        let secrets: Api<Secret> = Api::all(self.world.client.clone());
        let maps = maps.list(&labelled).await.unwrap().items.into_iter().map(|map| map.metadata);
        let secrets = secrets.list(&labelled).await.unwrap().items.into_iter();
        let all = maps.chain(secrets.map(|secret| secret.metadata));
        all.map(|metadata| (metadata.namespace.unwrap(), metadata.resource_version)).collect()
    }
}

/// The text of these, as a Bundle has it.
fn text(certificates: &[&str]) -> String {
    use windlass_controllers::bundles::pool::{Filters, Pool};
    let mut pool = Pool::new(Filters::default(), OffsetDateTime::now_utc());
    pool.add(certificates.concat().as_bytes()).unwrap();
    pool.pem()
}

/// A clock that stands still.
fn standing(at: OffsetDateTime) -> Clock {
    Arc::new(move || at)
}
