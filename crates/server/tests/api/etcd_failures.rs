//! A full etcd, and one that compacts while a server starts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Method;
use serde_json::json;
use windlass_store::{
    BoxFuture, ChangeEvent, CommittedWrite, Error, KeyChange, KeyRange, RangePage, Revision, Sink, Store,
    WritePrecondition, WriteRequest,
};

use super::etcd::TestEtcd;
use windlass_testkit::{MAPS, TestServer, config_map, names};

/// Writes fail with 503 and are counted, reads continue, and writes recover with free space.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_reports_a_full_etcd() {
    let etcd = TestEtcd::start_with(&["--quota-backend-bytes=12000000"]);
    let server = TestServer::start_on_store(etcd.open()).await;
    let large = |n: usize| {
        let mut map = config_map(&format!("large-{n}"));
        map["data"] = json!({"k": "v".repeat(800_000)});
        map
    };
    let mut made = Vec::new();
    let refused = loop {
        let n = made.len();
        let answer = server.post(MAPS, &large(n)).await;
        if answer.status != 201 {
            break answer;
        }
        made.push(format!("large-{n}"));
        assert!(n < 50, "it is never full");
    };
    refused.fails(503, "ServiceUnavailable");
    assert_eq!(refused.headers["retry-after"], "1");
    // The first failure may be of a change that was applied; the second is not.
    server.post(MAPS, &config_map("none")).await.fails(503, "ServiceUnavailable");
    let metrics = server.get("/metrics").await;
    let text = String::from_utf8_lossy(&metrics.body).into_owned();
    assert!(text.contains("windlass_store_errors_total{reason=\"full\"}"), "{text}");
    let listed = server.get(MAPS).await.expect(200);
    assert!(made.iter().all(|name| names(&listed).contains(&name.as_str())));
    assert!(!names(&listed).contains(&"none"));
    assert_eq!(server.get("/readyz").await.status, 200);
    for name in &made {
        server.request(Method::DELETE, &format!("{MAPS}/{name}")).send().await.expect(200);
    }
    let newest = server.store.catch_up().await.unwrap();
    server.store.compact(newest).await.unwrap();
    etcd.defragment();
    server.post(MAPS, &config_map("small")).await.expect(201);
}

/// A store that is compacted during reads, a given number of times.
struct CompactingStore {
    store: Arc<dyn Store>,
    /// Remaining compactions during pages, history reads and feeds.
    pages: AtomicUsize,
    feeds: AtomicUsize,
}

impl CompactingStore {
    /// Writes to the store and compacts it, if any are left.
    async fn compact_behind(&self, left: &AtomicUsize, name: &str) {
        if left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_err() {
            return;
        }
        let done = self.put(name).await;
        self.store.compact(done.revision).await.unwrap();
        // Ensures that history exists.
        self.put("last").await;
    }

    async fn put(&self, name: &str) -> CommittedWrite {
        let mut map = config_map(name);
        map["metadata"]["namespace"] = json!("default");
        let key = format!("core/configmaps/default/{name}");
        let change = KeyChange::Put(map.to_string().into());
        self.store.commit(WriteRequest { key, expect: WritePrecondition::Any, change }).await.unwrap()
    }
}

impl Store for CompactingStore {
    fn commit(&self, write: WriteRequest) -> BoxFuture<'_, Result<CommittedWrite, Error>> {
        self.store.commit(write)
    }

    fn range(&self, range: KeyRange) -> BoxFuture<'_, Result<RangePage, Error>> {
        Box::pin(async move {
            if range.at.is_some() {
                self.compact_behind(&self.pages, "page").await;
            }
            self.store.range(range).await
        })
    }

    fn history(&self, after: Revision, limit: usize) -> BoxFuture<'_, Result<Vec<ChangeEvent>, Error>> {
        self.store.history(after, limit)
    }

    fn watch(&self, after: Revision, sink: Sink) -> Result<(), Error> {
        tokio::task::block_in_place(|| {
            let overtake = self.compact_behind(&self.feeds, "feed");
            tokio::runtime::Handle::current().block_on(overtake);
            self.store.watch(after, sink)
        })
    }

    fn compact(&self, upto: Revision) -> BoxFuture<'_, Result<(), Error>> {
        self.store.compact(upto)
    }

    fn revision(&self) -> Revision {
        self.store.revision()
    }

    fn floor(&self) -> Revision {
        self.store.floor()
    }

    fn failure(&self) -> Option<Error> {
        self.store.failure()
    }

    fn failed(&self) -> BoxFuture<'static, Error> {
        self.store.failed()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.store.close()
    }

    fn catch_up(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        self.store.catch_up()
    }

    fn is_shared(&self) -> bool {
        self.store.is_shared()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_compactions_overtake_begins_again() {
    let etcd = TestEtcd::start();
    {
        let first = TestServer::start_on_store(etcd.open()).await;
        // More than one page.
        for n in 0..600 {
            first.post(MAPS, &config_map(&format!("m{n}"))).await.expect(201);
        }
        first.delete(&format!("{MAPS}/m0")).await.expect(200);
    }
    let store = Arc::new(CompactingStore {
        store: etcd.open(),
        pages: AtomicUsize::new(1),
        feeds: AtomicUsize::new(1),
    });
    let second = TestServer::start_on_store(store.clone()).await;
    for left in [&store.pages, &store.feeds] {
        assert_eq!(left.load(Ordering::SeqCst), 0, "all were overtaken");
    }
    let listed = second.get(MAPS).await.expect(200);
    let found = names(&listed);
    assert!(["page", "feed", "last", "m1", "m599"].iter().all(|name| found.contains(name)));
    assert!(!found.contains(&"m0"));
    second.post(MAPS, &config_map("next")).await.expect(201);
    assert!(names(&second.get(MAPS).await.expect(200)).contains(&"next"));
}
