//! The `kube` crate, which the controllers of Windlass use.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher::{self, Event, watcher};
use kube::runtime::{WatchStreamExt, reflector};
use kube::{Api, Client, Config, ResourceExt};
use serde_json::json;
use tokio::time::timeout;

use crate::server::{PATIENCE, TestServer};

async fn kube_client(server: &TestServer) -> Client {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig()).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    Client::try_from(config).unwrap()
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([("value".to_owned(), value.to_owned())])),
        ..ConfigMap::default()
    }
}

fn value(object: &ConfigMap) -> &str {
    object.data.as_ref().map_or("", |data| data["value"].as_str())
}

/// Returns the next item of a stream, which must not end.
async fn next<T>(stream: &mut (impl Stream<Item = T> + Unpin)) -> T {
    timeout(PATIENCE, stream.next()).await.expect("within the time").expect("not the end")
}

#[tokio::test(flavor = "multi_thread")]
async fn typed_api_requests_work() {
    let server = TestServer::start();
    let api: Api<ConfigMap> = Api::default_namespaced(kube_client(&server).await);
    let made = api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    assert_eq!(api.get("a").await.unwrap(), made);
    assert!(api.get_opt("b").await.unwrap().is_none());

    let mut changed = made.clone();
    changed.data = config_map("a", "2").data;
    let replaced = api.replace("a", &PostParams::default(), &changed).await.unwrap();
    assert_eq!(value(&replaced), "2");
    let patch = json!({"metadata": {"labels": {"app": "test"}}});
    let patched = api.patch("a", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    assert_eq!(patched.labels()["app"], "test");
    let apply = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"more": "yes"}});
    let applied = api.patch("a", &PatchParams::apply("tester"), &Patch::Apply(apply)).await.unwrap();
    assert_eq!(applied.data.unwrap().len(), 2);

    let labelled = ListParams::default().labels("app=test");
    assert_eq!(api.list(&labelled).await.unwrap().items.len(), 1);
    assert_eq!(api.list_metadata(&labelled).await.unwrap().items[0].name_any(), "a");
    assert_eq!(api.get_metadata("a").await.unwrap().uid(), made.uid());
    api.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(api.get_opt("a").await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_keep_their_status() {
    let server = TestServer::start();
    let api: Api<ConfigMap> = Api::default_namespaced(kube_client(&server).await);
    let status = |error: kube::Error| match error {
        kube::Error::Api(status) => (status.code, status.reason.clone()),
        other => panic!("not a status: {other}"),
    };
    let post = PostParams::default();
    assert_eq!(status(api.get("a").await.unwrap_err()), (404, "NotFound".to_owned()));
    let made = api.create(&post, &config_map("a", "1")).await.unwrap();
    let again = api.create(&post, &config_map("a", "1")).await.unwrap_err();
    assert_eq!(status(again), (409, "AlreadyExists".to_owned()));
    let patch = Patch::Merge(json!({"data": {"value": "2"}}));
    api.patch("a", &PatchParams::default(), &patch).await.unwrap();
    let stale = api.replace("a", &post, &made).await.unwrap_err();
    assert_eq!(status(stale), (409, "Conflict".to_owned()));
    let invalid = api.create(&post, &config_map("Not_A_Name", "1")).await.unwrap_err();
    assert_eq!(status(invalid), (422, "Invalid".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn watcher_that_lists_first() {
    check_watcher(watcher::Config::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watcher_with_a_streaming_list() {
    check_watcher(watcher::Config::default().streaming_lists()).await;
}

async fn check_watcher(config: watcher::Config) {
    let server = TestServer::start();
    let api: Api<Secret> = Api::default_namespaced(kube_client(&server).await);
    let secret =
        |name: &str| -> Secret { serde_json::from_value(json!({"metadata": {"name": name}})).unwrap() };
    let post = PostParams::default();
    api.create(&post, &secret("before")).await.unwrap();
    let mut events = pin!(watcher(api.clone(), config));
    assert!(matches!(next(&mut events).await.unwrap(), Event::Init));
    let Event::InitApply(first) = next(&mut events).await.unwrap() else {
        panic!("the present comes first");
    };
    assert_eq!(first.name_any(), "before");
    assert!(matches!(next(&mut events).await.unwrap(), Event::InitDone));

    api.create(&post, &secret("after")).await.unwrap();
    let Event::Apply(added) = next(&mut events).await.unwrap() else {
        panic!("the new one");
    };
    assert_eq!(added.name_any(), "after");
    api.delete("after", &DeleteParams::default()).await.unwrap();
    let Event::Delete(deleted) = next(&mut events).await.unwrap() else {
        panic!("its end");
    };
    assert_eq!(deleted.name_any(), "after");
}

#[tokio::test(flavor = "multi_thread")]
async fn reflector_keeps_a_copy() {
    let server = TestServer::start();
    let api: Api<Secret> = Api::default_namespaced(kube_client(&server).await);
    let (reader, writer) = reflector::store();
    let stream = reflector(writer, watcher(api.clone(), watcher::Config::default()));
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let running = tokio::spawn(stream.touched_objects().for_each(move |touched| {
        let _ = sender.send(touched.unwrap().name_any());
        std::future::ready(())
    }));
    timeout(PATIENCE, reader.wait_until_ready()).await.expect("an empty list is a list").unwrap();
    let made: Secret =
        serde_json::from_value(json!({"metadata": {"name": "a"}, "stringData": {"k": "v"}})).unwrap();
    let made = api.create(&PostParams::default(), &made).await.unwrap();
    let mut touched = async || timeout(PATIENCE, receiver.recv()).await.expect("an event");
    assert_eq!(touched().await.as_deref(), Some("a"));
    let key = reflector::ObjectRef::from_obj(&made);
    // The stored object was read back, with stringData merged into data.
    let kept = reader.get(&key).expect("in the store");
    assert_eq!(kept.data.as_ref().unwrap()["k"].0, b"v");
    api.delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(touched().await.as_deref(), Some("a"));
    assert!(reader.get(&key).is_none());
    running.abort();
}

/// A controller that creates an `answer` for every `question`.
#[tokio::test(flavor = "multi_thread")]
async fn controller_reacts() {
    let server = TestServer::start();
    let api: Api<ConfigMap> = Api::default_namespaced(kube_client(&server).await);
    let answer = async |object: Arc<ConfigMap>, api: Arc<Api<ConfigMap>>| -> Result<Action, kube::Error> {
        if value(&object) == "question" {
            let patch = Patch::Merge(json!({"data": {"value": "answer"}}));
            api.patch(&object.name_any(), &PatchParams::default(), &patch).await?;
        }
        Ok(Action::await_change())
    };
    let config = watcher::Config::default().labels("ask=yes");
    let controller = Controller::new(api.clone(), config).run(
        answer,
        |_, _, _| Action::requeue(Duration::from_millis(100)),
        Arc::new(api.clone()),
    );
    let running = tokio::spawn(controller.for_each(|_| std::future::ready(())));

    let mut asked = config_map("asked", "question");
    asked.labels_mut().insert("ask".to_owned(), "yes".to_owned());
    api.create(&PostParams::default(), &asked).await.unwrap();
    let only = watcher::Config::default().fields("metadata.name=asked");
    let mut states = pin!(watcher(api, only).applied_objects());
    while value(&next(&mut states).await.unwrap()) != "answer" {}
    running.abort();
}

/// Acquires, renews and loses a lease, as in leader election.
#[tokio::test(flavor = "multi_thread")]
async fn lease() {
    let server = TestServer::start();
    let api: Api<Lease> = Api::default_namespaced(kube_client(&server).await);
    let renewed_at = |second: i64| MicroTime(Timestamp::new(1_700_000_000 + second, 123_456_000).unwrap());
    let taken = Lease {
        metadata: ObjectMeta { name: Some("leader".to_owned()), ..ObjectMeta::default() },
        spec: Some(LeaseSpec {
            holder_identity: Some("one".to_owned()),
            lease_duration_seconds: Some(15),
            acquire_time: Some(renewed_at(0)),
            renew_time: Some(renewed_at(0)),
            ..LeaseSpec::default()
        }),
    };
    let post = PostParams::default();
    let first = api.create(&post, &taken).await.unwrap();
    let mut renewed = first.clone();
    renewed.spec.as_mut().unwrap().renew_time = Some(renewed_at(5));
    let second = api.replace("leader", &post, &renewed).await.unwrap();
    // Times keep their microseconds.
    assert_eq!(second.spec.unwrap().renew_time, Some(renewed_at(5)));

    // A client with an older version cannot acquire it.
    let mut stolen = first;
    stolen.spec.as_mut().unwrap().holder_identity = Some("two".to_owned());
    let lost = api.replace("leader", &post, &stolen).await;
    assert!(matches!(lost, Err(kube::Error::Api(status)) if status.code == 409));

    let holder = api.get("leader").await.unwrap().spec.unwrap().holder_identity;
    assert_eq!(holder.as_deref(), Some("one"));
}
