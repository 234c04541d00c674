//! What clients verify the API server with is where they look for it, and follows its file.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::certificates::v1beta1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use time::OffsetDateTime;
use windlass_controllers::{Options, RootCa};
use windlass_pki::{Authority, PrivateKey, Serial, Subject, SystemRandom, Validity};

use crate::fixture::{World, object, until, until_gone};

const NAME: &str = "kube-root-ca.crt";
const SIGNER: &str = "kubernetes.io/kube-apiserver-serving";

fn ca() -> String {
    let (subject, key) = (Subject::new("ca", &[]).unwrap(), PrivateKey::generate().unwrap());
    let (now, day) = (OffsetDateTime::now_utc(), time::Duration::days(1));
    let serial = Serial::random(&SystemRandom::new()).unwrap();
    let validity = Validity::lasting(now, day).unwrap();
    let authority = Authority::self_signed(&subject, validity, key, serial).unwrap();
    authority.certificate().to_pem()
}

/// A server whose controllers publish a file, and a clock that stands until it is set.
struct Site {
    world: World,
    file: PathBuf,
    ca: Arc<RootCa>,
    now: Arc<Mutex<OffsetDateTime>>,
    text: String,
    _dir: tempfile::TempDir,
}

impl Site {
    async fn prepare() -> (Site, Options) {
        let (dir, text) = (tempfile::tempdir().unwrap(), ca());
        let file = dir.path().join("ca.crt");
        std::fs::write(&file, &text).unwrap();
        let ca = RootCa::file(file.clone()).unwrap();
        let now = Arc::new(Mutex::new(OffsetDateTime::now_utc()));
        let clock = now.clone();
        let options = Options {
            root_ca: Some(ca.clone()),
            ca_overlap: Duration::from_secs(3600),
            ..Options::new(Arc::new(move || *clock.lock().unwrap()))
        };
        let world = World::without_controllers().await;
        (Site { world, file, ca, now, text, _dir: dir }, options)
    }

    async fn start() -> Site {
        let (mut site, options) = Site::prepare().await;
        site.world.run_controllers_with(options);
        site
    }

    fn replace(&mut self) {
        self.text = ca();
        std::fs::write(&self.file, &self.text).unwrap();
        // The watch would find it as well.
        self.ca.reload();
    }

    async fn published(&self, namespace: &str) {
        let text = self.text.clone();
        let right = move |map: Option<&ConfigMap>| {
            let data = map.and_then(|map| map.data.as_ref());
            data.is_some_and(|data| data.len() == 1 && data["ca.crt"] == text)
        };
        until(&self.world.all(namespace), NAME, "have the CA", right).await;
    }

    fn bundles(&self) -> Api<ClusterTrustBundle> {
        Api::all(self.world.client.clone())
    }

    /// Waits for a bundle with the current text.
    async fn bundle(&self) -> String {
        let name = self.ca.current().bundle.as_ref().unwrap().name.clone();
        let text = self.text.clone();
        let right = move |found: Option<&ClusterTrustBundle>| {
            found.is_some_and(|found| found.spec.trust_bundle == text)
        };
        until(&self.bundles(), &name, "be published", right).await;
        name
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_namespace_has_the_root_ca() {
    let mut site = Site::start().await;
    site.published("default").await;
    site.world.namespace("new").await;
    site.published("new").await;
    let maps = site.world.all::<ConfigMap>("new");
    let _ = maps.delete(NAME, &DeleteParams::default()).await.unwrap();
    site.published("new").await;
    for wrong in [
        json!({"data": {"ca.crt": "other"}}),
        json!({"data": {"more": "keys"}}),
        json!({"metadata": {"annotations": null}}),
    ] {
        maps.patch(NAME, &PatchParams::default(), &Patch::Merge(&wrong)).await.unwrap();
        site.published("new").await;
        let described = |map: Option<&ConfigMap>| {
            map.is_some_and(|map| map.annotations().contains_key("kubernetes.io/description"))
        };
        until(&maps, NAME, "be described", described).await;
    }
    site.replace();
    site.published("default").await;
    site.published("new").await;
    let _ = site.world.namespaces().delete("new", &DeleteParams::default()).await.unwrap();
    until_gone(&site.world.namespaces(), "new").await;
    site.world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_immutable_map_is_told_of_and_left() {
    let (mut site, options) = Site::prepare().await;
    let maps = site.world.all::<ConfigMap>("default");
    let stuck = json!({"metadata": {"name": NAME}, "data": {"ca.crt": "old"}, "immutable": true});
    let stuck = maps.create(&PostParams::default(), &object(stuck)).await.unwrap();
    site.world.run_controllers_with(options);
    let selector = format!("involvedObject.uid={}", stuck.uid().unwrap());
    let events = site.world.all::<Event>("default");
    let told =
        || async { events.list(&ListParams::default().fields(&selector)).await.unwrap().items };
    let waiting = async {
        while told().await.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waiting).await.unwrap();
    assert_eq!(told().await[0].reason.as_deref(), Some("ImmutableRootCA"));
    // Others get theirs, and this one does when it is deleted.
    site.published("kube-system").await;
    let _ = maps.delete(NAME, &DeleteParams::default()).await.unwrap();
    site.published("default").await;
    let events = told().await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].series, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_that_is_replaced_stays_for_a_while() {
    let mut site = Site::start().await;
    let old = site.bundle().await;
    let other = json!({
        "metadata": {"name": "kubernetes.io:kube-apiserver-serving:other"},
        "spec": {"signerName": SIGNER, "trustBundle": ca()},
    });
    let other = site.bundles().create(&PostParams::default(), &object(other)).await.unwrap();
    site.replace();
    let new = site.bundle().await;
    assert_ne!(old, new);
    let retired = |found: Option<&ClusterTrustBundle>| {
        found.is_some_and(|found| found.annotations().contains_key("windlass.dev/retired-at"))
    };
    until(&site.bundles(), &old, "be retired", retired).await;
    *site.now.lock().unwrap() += Duration::from_secs(3599);
    // A look at all of them, which the return of the new one shows to be over.
    let _ = site.bundles().delete(&new, &DeleteParams::default()).await.unwrap();
    site.bundle().await;
    assert!(site.bundles().get_opt(&old).await.unwrap().is_some());
    *site.now.lock().unwrap() += Duration::from_secs(1);
    let _ = site.bundles().delete(&new, &DeleteParams::default()).await.unwrap();
    until_gone(&site.bundles(), &old).await;
    site.bundle().await;
    let kept = site.bundles().get(&other.name_any()).await.unwrap();
    assert_eq!(kept.resource_version(), other.resource_version());
}

#[tokio::test(flavor = "multi_thread")]
async fn housekeeping_is_left_to_others_on_their_clusters() {
    let (mut site, options) = Site::prepare().await;
    site.world.run_controllers_with(Options { housekeeping: false, ..options });
    site.world.namespace("new").await;
    site.published("new").await;
    site.bundle().await;
    let accounts = site.world.all::<k8s_openapi::api::core::v1::ServiceAccount>("new");
    assert!(accounts.get_opt("default").await.unwrap().is_none());
}
