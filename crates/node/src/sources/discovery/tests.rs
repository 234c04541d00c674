use std::collections::BTreeMap;
use std::sync::Mutex;

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use kube::client::Body;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::*;

/// What a server has: plurals by version, or a status.
#[derive(Default)]
struct DiscoveryServer {
    versions: BTreeMap<&'static str, &'static [&'static str]>,
    fails: Option<u16>,
    asked: Vec<String>,
}

struct DiscoveryFixture {
    server: Arc<Mutex<DiscoveryServer>>,
    again: RecheckSignal,
    presence: watch::Receiver<ApiAvailability>,
    _task: JoinSet<()>,
}

impl DiscoveryFixture {
    fn start(versions: &[(&'static str, &'static [&'static str])]) -> Self {
        let versions = versions.iter().copied().collect();
        let server =
            Arc::new(Mutex::new(DiscoveryServer { versions, ..DiscoveryServer::default() }));
        let (answers, again) = (server.clone(), RecheckSignal::default());
        let client = Client::new(
            tower::service_fn(move |request: http::Request<Body>| {
                let answer = answers.lock().unwrap().answer(request.uri().path());
                async { Ok::<_, std::convert::Infallible>(answer) }
            }),
            "default",
        );
        let (out, presence) = watch::channel(ApiAvailability::Unknown);
        let mut task = JoinSet::new();
        task.spawn(watch_availability(client, TRUST_BUNDLES, again.clone(), out));
        Self { server, again, presence, _task: task }
    }

    /// Waits for the next change: the version, or none if it is missing.
    async fn next(&mut self) -> Option<String> {
        let changed = self.presence.changed();
        tokio::time::timeout(Duration::from_secs(3600), changed).await.unwrap().unwrap();
        match &*self.presence.borrow() {
            ApiAvailability::Unknown => panic!("it was known"),
            ApiAvailability::Missing => None,
            ApiAvailability::Served(resource) => Some(resource.version.clone()),
        }
    }

    fn set_served(&self, version: &'static str, plurals: &'static [&'static str]) {
        self.server.lock().unwrap().versions.insert(version, plurals);
    }
}

impl DiscoveryServer {
    fn answer(&mut self, path: &str) -> Response<Full<Bytes>> {
        self.asked.push(path.to_owned());
        let answer = |code: u16, text: String| {
            Response::builder().status(code).body(Full::from(text)).unwrap()
        };
        if let Some(code) = self.fails {
            return answer(code, "no".into());
        }
        let version = path.strip_prefix("/apis/certificates.k8s.io/").unwrap();
        let Some(plurals) = self.versions.get(version) else {
            return answer(404, "404 page not found".into());
        };
        let resources = plurals.iter().map(|plural| {
            json!({"name": plural, "singularName": "", "namespaced": false, "kind": "X", "verbs": []})
        });
        let list = json!({
            "kind": "APIResourceList", "apiVersion": "v1", "resources": resources.collect::<Vec<_>>(),
            "groupVersion": format!("certificates.k8s.io/{version}"),
        });
        answer(200, list.to_string())
    }
}

const CSRS: &[&str] = &["certificatesigningrequests"];
const BUNDLES: &[&str] = &["clustertrustbundles", "clustertrustbundles/status"];

#[tokio::test(start_paused = true)]
async fn the_best_version_counts() {
    for (versions, expected) in [
        (&[("v1", CSRS)][..], None),
        (&[][..], None),
        (&[("v1", BUNDLES), ("v1alpha1", BUNDLES)][..], Some("v1")),
        (&[("v1", CSRS), ("v1alpha1", BUNDLES), ("v1beta1", BUNDLES)][..], Some("v1beta1")),
        (&[("v1", CSRS), ("v1alpha1", BUNDLES)][..], Some("v1alpha1")),
    ] {
        let mut scene = DiscoveryFixture::start(versions);
        assert_eq!(scene.next().await.as_deref(), expected, "{versions:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn it_appears_gets_better_and_vanishes() {
    let mut scene = DiscoveryFixture::start(&[("v1", CSRS)]);
    assert_eq!(scene.next().await, None);
    let asked = Instant::now();
    scene.set_served("v1beta1", BUNDLES);
    assert_eq!(scene.next().await.as_deref(), Some("v1beta1"));
    assert!(asked.elapsed() < Duration::from_secs(15), "{:?}", asked.elapsed());
    scene.set_served("v1", BUNDLES);
    assert_eq!(scene.next().await.as_deref(), Some("v1"));
    scene.server.lock().unwrap().versions.clear();
    let told = Instant::now();
    scene.again.notify_one();
    assert_eq!(scene.next().await, None);
    assert!(told.elapsed() < Duration::from_secs(1), "{:?}", told.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_fails_has_not_said_anything() {
    let mut scene = DiscoveryFixture::start(&[("v1", BUNDLES)]);
    scene.server.lock().unwrap().fails = Some(503);
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(*scene.presence.borrow(), ApiAvailability::Unknown);
    let asked = scene.server.lock().unwrap().asked.len();
    assert!((10..25).contains(&asked), "{asked}");
    scene.server.lock().unwrap().fails = None;
    assert_eq!(scene.next().await.as_deref(), Some("v1"));
    for code in [401, 403, 500] {
        scene.server.lock().unwrap().fails = Some(code);
        scene.again.notify_one();
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert!(!scene.presence.has_changed().unwrap(), "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_has_it_is_asked_seldom() {
    let mut scene = DiscoveryFixture::start(&[("v1", BUNDLES)]);
    scene.next().await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let asked = scene.server.lock().unwrap().asked.len();
    assert!((12..=21).contains(&asked), "{asked}");
}
