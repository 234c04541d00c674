//! Two servers on one store, one of which receives changes as late as the store's guarantees allow:
//! only when it asks, or after its own write. A client that moves between them must not notice.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use http::Method;
use serde_json::{Value, json};
use windlass_store::{
    BoxFuture, ChangeEvent, CommittedWrite, EmbeddedOptions, EmbeddedStore, Error, FeedMessage, KeyRange,
    RangePage, Revision, Sink, Store, WriteRequest,
};

use windlass_testkit::{MAPS, TestServer, config_map, version};

struct DelayedStore {
    inner: Arc<EmbeddedStore>,
    sinks: Mutex<Vec<DelayedSink>>,
}

#[derive(Clone)]
struct DelayedSink(Arc<Mutex<(Sink, Vec<ChangeEvent>)>>);

impl DelayedStore {
    fn deliver(&self) {
        for DelayedSink(held) in self.sinks.lock().unwrap().iter() {
            let (sink, events) = &mut *held.lock().unwrap();
            if !events.is_empty() {
                sink(FeedMessage::Changes(&std::mem::take(events)));
            }
        }
    }
}

impl Store for DelayedStore {
    fn commit(&self, write: WriteRequest) -> BoxFuture<'_, Result<CommittedWrite, Error>> {
        Box::pin(async move {
            let done = self.inner.commit(write).await;
            self.deliver();
            done
        })
    }

    fn range(&self, range: KeyRange) -> BoxFuture<'_, Result<RangePage, Error>> {
        self.inner.range(range)
    }

    fn history(&self, after: Revision, limit: usize) -> BoxFuture<'_, Result<Vec<ChangeEvent>, Error>> {
        self.inner.history(after, limit)
    }

    fn watch(&self, after: Revision, sink: Sink) -> Result<(), Error> {
        let held = DelayedSink(Arc::new(Mutex::new((sink, Vec::new()))));
        self.sinks.lock().unwrap().push(held.clone());
        let keep = move |message: FeedMessage<'_>| {
            held.0.lock().unwrap().1.extend_from_slice(message.changes());
        };
        self.inner.watch(after, Box::new(keep))?;
        self.deliver();
        Ok(())
    }

    fn compact(&self, upto: Revision) -> BoxFuture<'_, Result<(), Error>> {
        self.inner.compact(upto)
    }

    fn revision(&self) -> Revision {
        self.inner.revision()
    }

    fn floor(&self) -> Revision {
        self.inner.floor()
    }

    fn failure(&self) -> Option<Error> {
        self.inner.failure()
    }

    fn failed(&self) -> BoxFuture<'static, Error> {
        self.inner.failed()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.inner.close()
    }

    fn catch_up(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        Box::pin(async move {
            let revision = self.inner.revision();
            self.deliver();
            Ok(revision)
        })
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn lost_since(&self) -> Option<Instant> {
        None
    }
}

/// Starts one server that is always current and one that is delayed.
async fn prompt_and_delayed_servers() -> (TestServer, TestServer, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let inner = Arc::new(EmbeddedStore::open(EmbeddedOptions::new(dir.path())).unwrap());
    let prompt = TestServer::start_on_store(inner.clone()).await;
    let late = Arc::new(DelayedStore { inner, sinks: Mutex::default() });
    let late = TestServer::start_on_store(late).await;
    (prompt, late, dir)
}

/// Creates an object that both servers have seen.
async fn create_known(prompt: &TestServer, late: &TestServer, name: &str) -> (String, Value) {
    let made = prompt.post(MAPS, &config_map(name)).await.expect(201);
    let path = format!("{MAPS}/{name}");
    assert_eq!(late.get(&path).await.expect(200), made);
    (path, made)
}

#[tokio::test]
async fn a_write_finds_what_another_server_made() {
    let (prompt, late, _dir) = prompt_and_delayed_servers().await;
    for name in ["put", "merge", "delete"] {
        let mut made = prompt.post(MAPS, &config_map(name)).await.expect(201);
        let path = format!("{MAPS}/{name}");
        made["data"] = json!({"k": "w"});
        match name {
            "put" => drop(late.put(&path, &made).await.expect(200)),
            "merge" => drop(late.patch(&path, "merge", &json!({"data": {"x": "y"}})).await.expect(200)),
            _ => drop(late.delete(&path).await.expect(200)),
        }
    }
    prompt.post("/api/v1/namespaces", &json!({"metadata": {"name": "new"}})).await.expect(201);
    late.post("/api/v1/namespaces/new/configmaps", &config_map("in-it")).await.expect(201);
}

#[tokio::test]
async fn a_write_finds_what_another_server_changed() {
    let (prompt, late, _dir) = prompt_and_delayed_servers().await;
    let (path, made) = create_known(&prompt, &late, "conditional").await;
    let mut changed = made.clone();
    changed["data"] = json!({"k": "two"});
    let mut changed = prompt.put(&path, &changed).await.expect(200);
    changed["data"] = json!({"k": "three"});
    // The newest version succeeds; the previous one conflicts.
    late.put(&path, &changed).await.expect(200);
    late.put(&path, &made).await.expect(409);

    let (path, _) = create_known(&prompt, &late, "tested").await;
    prompt.patch(&path, "merge", &json!({"data": {"k": "two"}})).await.expect(200);
    let test = |value: &str| json!([{"op": "test", "path": "/data/k", "value": value}, {"op": "add", "path": "/data/l", "value": "x"}]);
    late.patch(&path, "json", &test("two")).await.expect(200);
    prompt.patch(&path, "merge", &json!({"data": {"k": "three"}})).await.expect(200);
    late.patch(&path, "json", &test("two")).await.expect(422);
}

/// To the delayed server, this looks like a no-op.
#[tokio::test]
async fn objects_seen_by_both_servers_can_be_rewritten() {
    let (prompt, late, _dir) = prompt_and_delayed_servers().await;
    let (path, mut made) = create_known(&prompt, &late, "back").await;
    prompt.patch(&path, "merge", &json!({"data": {"k": "other"}})).await.expect(200);
    late.put(&path, &made).await.expect(409);
    prompt.patch(&path, "merge", &json!({"data": {"k": "more"}})).await.expect(200);
    made["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let written = late.put(&path, &made).await.expect(200);
    assert_eq!(written["data"]["k"], "v");
    assert_eq!(prompt.get(&path).await.expect(200), written);

    let before = version(&written);
    prompt.patch(&path, "merge", &json!({"data": {"k": "other"}})).await.expect(200);
    let patched = late.patch(&path, "merge", &json!({"data": {"k": "v"}})).await.expect(200);
    assert!(version(&patched) > before + 1);
    assert_eq!(prompt.get(&path).await.expect(200)["data"]["k"], "v");
}

#[tokio::test]
async fn a_write_knows_what_another_server_deleted() {
    let (prompt, late, _dir) = prompt_and_delayed_servers().await;
    for name in ["put", "merge", "delete", "create"] {
        let (path, made) = create_known(&prompt, &late, name).await;
        prompt.delete(&path).await.expect(200);
        match name {
            "put" => drop(late.put(&path, &made).await.expect(404)),
            "merge" => drop(late.patch(&path, "merge", &json!({"data": {"k": "v"}})).await.expect(404)),
            "delete" => drop(late.delete(&path).await.expect(404)),
            _ => drop(late.post(MAPS, &config_map(name)).await.expect(201)),
        }
    }
    // A terminating object is returned in its current state, although a second deletion changes
    // nothing.
    let mut held = config_map("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    prompt.post(MAPS, &held).await.expect(201);
    let path = format!("{MAPS}/held");
    late.delete(&path).await.expect(200);
    let newest = prompt.patch(&path, "merge", &json!({"data": {"k": "w"}})).await.expect(200);
    assert_eq!(late.delete(&path).await.expect(200), newest);
}

#[tokio::test]
async fn a_dry_run_reads_the_newest_state() {
    let (prompt, late, _dir) = prompt_and_delayed_servers().await;
    prompt.post(MAPS, &config_map("there")).await.expect(201);
    late.post(&format!("{MAPS}?dryRun=All"), &config_map("there")).await.expect(409);
    let (path, _) = create_known(&prompt, &late, "gone").await;
    prompt.delete(&path).await.expect(200);
    late.request(Method::DELETE, &format!("{path}?dryRun=All")).send().await.expect(404);
}
