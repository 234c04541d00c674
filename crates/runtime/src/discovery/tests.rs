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

/// Discovery API of a server: plurals by version, or a status.
#[derive(Default)]
struct DiscoveryServer {
    versions: BTreeMap<&'static str, &'static [&'static str]>,
    failure: Option<u16>,
    requests: Vec<String>,
}

struct PresenceScene {
    server: Arc<Mutex<DiscoveryServer>>,
    recheck: RecheckSignal,
    presence: watch::Receiver<KindPresence>,
    _task: JoinSet<Infallible>,
}

impl PresenceScene {
    fn start(versions: &[(&'static str, &'static [&'static str])]) -> Self {
        let versions = versions.iter().copied().collect();
        let server = Arc::new(Mutex::new(DiscoveryServer { versions, ..DiscoveryServer::default() }));
        let recheck = RecheckSignal::default();
        let client = client(&server);
        let (out, presence) = watch::channel(KindPresence::Unknown);
        let mut task = JoinSet::new();
        let watch = watch_presence(client, CLUSTER_TRUST_BUNDLES, AGENT_PACING, recheck.clone(), out);
        task.spawn(watch);
        Self { server, recheck, presence, _task: task }
    }

    /// Waits for the next change: the version, or none if the kind is not served.
    async fn next(&mut self) -> Option<String> {
        let changed = self.presence.changed();
        tokio::time::timeout(Duration::from_secs(3600), changed).await.unwrap().unwrap();
        match &*self.presence.borrow() {
            KindPresence::Unknown => panic!("presence became unknown"),
            KindPresence::NotServed => None,
            KindPresence::Served(resource) => Some(resource.version.clone()),
        }
    }

    fn client(&self) -> Client {
        client(&self.server)
    }

    fn serve(&self, version: &'static str, plurals: &'static [&'static str]) {
        self.server.lock().unwrap().versions.insert(version, plurals);
    }
}

fn client(server: &Arc<Mutex<DiscoveryServer>>) -> Client {
    let server = server.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let response = server.lock().unwrap().respond(request.uri().path());
        async { Ok::<_, Infallible>(response) }
    });
    Client::new(service, "default")
}

impl DiscoveryServer {
    fn respond(&mut self, path: &str) -> Response<Full<Bytes>> {
        self.requests.push(path.to_owned());
        let answer =
            |code: u16, text: String| Response::builder().status(code).body(Full::from(text)).unwrap();
        if let Some(code) = self.failure {
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
async fn the_best_served_version_is_used() {
    for (versions, expected) in [
        (&[("v1", CSRS)][..], None),
        (&[][..], None),
        (&[("v1", BUNDLES), ("v1alpha1", BUNDLES)][..], Some("v1")),
        (&[("v1", CSRS), ("v1alpha1", BUNDLES), ("v1beta1", BUNDLES)][..], Some("v1beta1")),
        (&[("v1", CSRS), ("v1alpha1", BUNDLES)][..], Some("v1alpha1")),
    ] {
        let mut scene = PresenceScene::start(versions);
        assert_eq!(scene.next().await.as_deref(), expected, "{versions:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_appears_gets_a_better_version_and_vanishes() {
    let mut scene = PresenceScene::start(&[("v1", CSRS)]);
    assert_eq!(scene.next().await, None);
    let start = Instant::now();
    scene.serve("v1beta1", BUNDLES);
    assert_eq!(scene.next().await.as_deref(), Some("v1beta1"));
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    scene.serve("v1", BUNDLES);
    assert_eq!(scene.next().await.as_deref(), Some("v1"));
    scene.server.lock().unwrap().versions.clear();
    let start = Instant::now();
    scene.recheck.notify_one();
    assert_eq!(scene.next().await, None);
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn failed_discovery_changes_nothing() {
    let mut scene = PresenceScene::start(&[("v1", BUNDLES)]);
    scene.server.lock().unwrap().failure = Some(503);
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(*scene.presence.borrow(), KindPresence::Unknown);
    let requests = scene.server.lock().unwrap().requests.len();
    assert!((10..25).contains(&requests), "{requests}");
    scene.server.lock().unwrap().failure = None;
    assert_eq!(scene.next().await.as_deref(), Some("v1"));
    for code in [401, 403, 500] {
        scene.server.lock().unwrap().failure = Some(code);
        scene.recheck.notify_one();
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert!(!scene.presence.has_changed().unwrap(), "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_served_kind_is_discovered_rarely() {
    let mut scene = PresenceScene::start(&[("v1", BUNDLES)]);
    scene.next().await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let requests = scene.server.lock().unwrap().requests.len();
    assert!((12..=21).contains(&requests), "{requests}");
}

#[tokio::test(start_paused = true)]
async fn controllers_run_while_their_kind_is_served() {
    let scene = PresenceScene::start(&[]);
    let (sender, mut events) = tokio::sync::mpsc::unbounded_channel();
    let not_served = sender.clone();
    let start = move |resource: ApiResource| {
        let sender = sender.clone();
        async move {
            sender.send(resource.version).unwrap();
            std::future::pending::<Infallible>().await
        }
    };
    let client = scene.client();
    let running = tokio::spawn(async move {
        let absent = || not_served.send("not served".to_owned()).unwrap();
        run_while_served(client, CLUSTER_TRUST_BUNDLES, "test", start, absent).await;
    });
    assert_eq!(events.recv().await.unwrap(), "not served");
    scene.serve("v1beta1", BUNDLES);
    assert_eq!(events.recv().await.unwrap(), "v1beta1");
    scene.serve("v1", BUNDLES);
    assert_eq!(events.recv().await.unwrap(), "v1");
    scene.server.lock().unwrap().versions.clear();
    assert_eq!(events.recv().await.unwrap(), "not served");
    running.abort();
}
