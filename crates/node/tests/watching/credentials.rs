//! Tests of ConfigMaps, Secrets and tokens of pods.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use kube::Api;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use windlass_node::sources::objects::{ObjectCache, ObjectId, ObjectKind, ObjectState};
use windlass_node::sources::tokens::{TokenManager, TokenSpec};
use windlass_node::sources::{ChangeSender, SourceChange};
use windlass_node::volume::id::{SourceId, VolumeId, VolumeOwner};
use windlass_node::volume::plan::CredentialState;
use zeroize::Zeroizing;

use crate::fixture::{PATIENCE, SwitchableServer, WatchingFixture, change, create, delete, pass};

/// Waits until a condition holds, checking it at every wake-up.
async fn until(wakes: &mut mpsc::UnboundedReceiver<SourceChange>, what: &str, good: impl Fn() -> bool) {
    let waiting = async {
        while !good() {
            wakes.recv().await.unwrap();
        }
    };
    if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
        panic!("it never was that {what}");
    }
}

fn id(kind: ObjectKind, name: &str) -> ObjectId {
    ObjectId { kind, namespace: "default".into(), name: name.into() }
}

fn value(objects: &ObjectCache, name: &str) -> Option<String> {
    match objects.config_map("default", name) {
        ObjectState::Present(map) => map.data.as_ref()?.get("k").cloned(),
        ObjectState::Absent | ObjectState::Unknown(_) => None,
    }
}

#[tokio::test]
async fn a_node_sees_objects_that_its_pods_reference() {
    let world = WatchingFixture::start().await;
    let (maps, secrets) = (world.api::<ConfigMap>(), world.api::<Secret>());
    create(&maps, json!({"metadata": {"name": "m"}, "data": {"k": "1"}})).await;
    let fixed = json!({"metadata": {"name": "s"}, "immutable": true, "stringData": {"k": "v"}});
    create(&secrets, fixed).await;
    let (send, mut wakes) = mpsc::unbounded_channel();
    let objects = ObjectCache::new(world.node(), send);
    let wanted = BTreeSet::from([
        id(ObjectKind::ConfigMap, "m"),
        id(ObjectKind::ConfigMap, "none"),
        id(ObjectKind::Secret, "s"),
    ]);
    objects.set_watched(&wanted);
    until(&mut wakes, "it is forbidden", || {
        matches!(objects.config_map("default", "m"), ObjectState::Unknown(Some(why))
            if why.contains("forbidden") && why.contains("system:node:n1"))
    })
    .await;
    let sources = json!([
        {"configMap": {"name": "m"}}, {"configMap": {"name": "none", "optional": true}},
        {"secret": {"name": "s"}},
    ]);
    world.create_pod("p", "n1", sources).await;
    until(&mut wakes, "it is allowed", || value(&objects, "m").as_deref() == Some("1")).await;
    until(&mut wakes, "there is none", || {
        matches!(objects.config_map("default", "none"), ObjectState::Absent)
    })
    .await;
    let is_secret = || match objects.secret("default", "s") {
        ObjectState::Present(secret) => secret.data.as_ref().is_some_and(|data| data["k"].0 == b"v"),
        ObjectState::Absent | ObjectState::Unknown(_) => false,
    };
    until(&mut wakes, "there is a secret", is_secret).await;
    assert_eq!(format!("{:?}", objects.secret("default", "s")), "Is(…)");
    // Immutable objects are not watched.
    delete(&secrets, "s").await;
    change(&maps, "m", json!({"data": {"k": "2"}})).await;
    until(&mut wakes, "it has changed", || value(&objects, "m").as_deref() == Some("2")).await;
    create(&maps, json!({"metadata": {"name": "none"}, "data": {"k": "3"}})).await;
    until(&mut wakes, "it has come", || value(&objects, "none").as_deref() == Some("3")).await;
    delete(&maps, "m").await;
    until(&mut wakes, "it is gone", || matches!(objects.config_map("default", "m"), ObjectState::Absent))
        .await;
    assert!(is_secret());
    objects.set_watched(&BTreeSet::new());
    assert!(matches!(objects.config_map("default", "none"), ObjectState::Unknown(None)));
}

fn token(tokens: &TokenManager, id: &SourceId) -> Result<Zeroizing<String>, String> {
    match tokens.get(id) {
        CredentialState::Available(token) => Ok(token),
        CredentialState::Unavailable(why) => Err(why),
    }
}

fn claims(token: &str) -> Value {
    let payload = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap()
}

/// A server with a pod that has a token, as the node sees it.
struct TokenFixture {
    world: WatchingFixture,
    line: SwitchableServer,
    id: SourceId,
    uid: String,
    send: ChangeSender,
    wakes: mpsc::UnboundedReceiver<SourceChange>,
}

impl TokenFixture {
    async fn new() -> Self {
        let world = WatchingFixture::start().await;
        let source = json!({"audience": "vault", "expirationSeconds": 600, "path": "token"});
        let pod: Pod = world.create_pod("p", "n1", json!([{"serviceAccountToken": source}])).await;
        let uid = pod.metadata.uid.unwrap();
        let owner = VolumeOwner::Pod { namespace: "default".into(), name: "p".into(), uid: uid.clone() };
        let id = SourceId { volume: VolumeId { owner, name: "v".into() }, index: 0 };
        let (line, (send, wakes)) = (world.line(), mpsc::unbounded_channel());
        Self { world, line, id, uid, send, wakes }
    }

    fn tokens(&self) -> Arc<TokenManager> {
        let (client, clock) = (self.line.client(), self.world.clock());
        TokenManager::new(client, clock, Arc::new(|| 0.5), self.send.clone())
    }

    fn ensure(&self, tokens: &TokenManager, found: Option<Zeroizing<String>>) {
        let wanted = TokenSpec {
            service_account: "default".into(),
            audience: Some("vault".into()),
            expiration_seconds: 600,
        };
        tokens.ensure(&self.id, wanted, found);
    }

    async fn account(&self) {
        let accounts = self.world.api::<ServiceAccount>();
        create(&accounts, json!({"metadata": {"name": "default"}})).await;
    }
}

#[tokio::test]
async fn a_pod_gets_its_token_and_another_in_time() {
    let mut scene = TokenFixture::new().await;
    let tokens = scene.tokens();
    scene.ensure(&tokens, None);
    let why = "failed to fetch token: serviceaccounts \"default\" not found";
    until(&mut scene.wakes, "there is no account", || {
        token(&tokens, &scene.id).is_err_and(|said| said == why)
    })
    .await;
    scene.account().await;
    until(&mut scene.wakes, "there is a token", || token(&tokens, &scene.id).is_ok()).await;
    let first = token(&tokens, &scene.id).unwrap();
    let claimed = claims(&first);
    assert_eq!(claimed["aud"], json!(["vault"]));
    assert_eq!(claimed["kubernetes.io"]["pod"], json!({"name": "p", "uid": scene.uid}));
    scene.world.ahead.store(481, SeqCst);
    pass(Duration::from_secs(61)).await;
    until(&mut scene.wakes, "there is another", || {
        token(&tokens, &scene.id).is_ok_and(|second| second != first)
    })
    .await;
}

#[tokio::test]
async fn a_restart_requests_nothing_that_is_still_valid() {
    let mut scene = TokenFixture::new().await;
    scene.account().await;
    let before = scene.tokens();
    scene.ensure(&before, None);
    until(&mut scene.wakes, "there is a token", || token(&before, &scene.id).is_ok()).await;
    let first = token(&before, &scene.id).unwrap();
    drop(before);
    assert_eq!(scene.line.tokens.load(SeqCst), 1);
    let after = scene.tokens();
    scene.ensure(&after, Some(first.clone()));
    assert!(token(&after, &scene.id).is_ok_and(|found| found == first));
    scene.world.ahead.store(400, SeqCst);
    for _ in 0..2 {
        pass(Duration::from_secs(20)).await;
        // Earlier requests have been sent when this is answered.
        Api::<Pod>::default_namespaced(scene.line.client()).get("p").await.unwrap();
    }
    assert_eq!(scene.line.tokens.load(SeqCst), 1);
    scene.world.ahead.store(500, SeqCst);
    pass(Duration::from_secs(61)).await;
    until(&mut scene.wakes, "there is another", || {
        token(&after, &scene.id).is_ok_and(|second| second != first)
    })
    .await;
    assert_eq!(scene.line.tokens.load(SeqCst), 2);
}
