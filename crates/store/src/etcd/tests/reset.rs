//! A feed that was disconnected during a compaction resyncs.

use std::collections::BTreeMap;
use std::io::copy;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use super::*;
use crate::FeedMessage;

/// A proxy to etcd that can be cut.
struct TestProxy {
    url: String,
    open: Arc<Mutex<Option<Vec<TcpStream>>>>,
}

impl TestProxy {
    fn connect_to(process: &EtcdProcess) -> Self {
        let there = process.url().trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let open = Arc::new(Mutex::new(Some(Vec::new())));
        let streams = Arc::clone(&open);
        thread::spawn(move || {
            for from in listener.incoming().flatten() {
                // Connections during the cut are closed immediately.
                let mut streams = streams.lock().unwrap();
                let Some(streams) = streams.as_mut() else { continue };
                let to = TcpStream::connect(&there).unwrap();
                for (mut a, mut b) in [(&from, &to), (&to, &from)]
                    .map(|(a, b)| (a.try_clone().unwrap(), b.try_clone().unwrap()))
                {
                    thread::spawn(move || {
                        let _ = copy(&mut a, &mut b);
                        let _ = b.shutdown(Shutdown::Both);
                    });
                }
                streams.extend([from, to]);
            }
        });
        Self { url, open }
    }

    fn disconnect(&self) {
        for stream in self.open.lock().unwrap().take().unwrap() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn reconnect(&self) {
        *self.open.lock().unwrap() = Some(Vec::new());
    }
}

/// The state that a sink rebuilds from the feed.
type ReplicaMap = Arc<Mutex<BTreeMap<String, Bytes>>>;

/// Watches a store; sends the revision of each reset.
fn maintain_replica(store: &EtcdStore) -> (ReplicaMap, Receiver<Revision>) {
    let kept = ReplicaMap::default();
    let (sender, resets) = channel();
    let state = Arc::clone(&kept);
    let sink = move |message: FeedMessage<'_>| {
        let mut state = state.lock().unwrap();
        match message {
            FeedMessage::Changes(events) => {
                for event in events {
                    match &event.value {
                        Some(value) => state.insert(event.key.clone(), value.clone()),
                        None => state.remove(&event.key),
                    };
                }
            }
            FeedMessage::Reset(page) => {
                let items = page.items.iter();
                *state = items.map(|(key, stored)| (key.clone(), stored.value.clone())).collect();
                sender.send(page.revision).unwrap();
            }
        }
    };
    store.watch(store.revision(), Box::new(sink)).unwrap();
    (kept, resets)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_feed_that_missed_a_compaction_resyncs() {
    let process = EtcdProcess::start_own(&[]);
    let way = TestProxy::connect_to(&process);
    let a = open(&process, "/shared").unwrap();
    let b = EtcdStore::open(long_timeout_options(vec![way.url.clone()], "/shared")).unwrap();
    let (kept, resets) = maintain_replica(&b);
    for round in 0..3 {
        a.commit(put("goes", "1")).await.unwrap();
        b.catch_up().await.unwrap();
        assert!(kept.lock().unwrap().contains_key("goes"));
        let seen = b.revision();
        way.disconnect();
        a.commit(delete("goes")).await.unwrap();
        let last = a.commit(put("comes", format!("{round}"))).await.unwrap().revision;
        a.compact(last).await.unwrap();
        way.reconnect();
        let reset = resets.recv_timeout(Duration::from_secs(30)).unwrap();
        assert!(reset >= last && last > seen);
        assert!(b.catch_up().await.unwrap() >= last);
        assert_eq!(b.floor(), last);
        let there = |key: &str| kept.lock().unwrap().get(key).cloned();
        assert_eq!(there("goes"), None);
        assert_eq!(there("comes"), Some(Bytes::from(format!("{round}"))));
        // From here on the feed works normally, and new sinks find all history there is.
        let next = b.commit(put("next", format!("{round}"))).await.unwrap().revision;
        assert_eq!(there("next"), Some(Bytes::from(format!("{round}"))));
        let history = b.history(last, usize::MAX).await.unwrap();
        assert_eq!(history.last().map(|event| event.revision), Some(next));
        assert_eq!(history, a.history(last, usize::MAX).await.unwrap());
    }
    assert_eq!(b.failure(), None);
    assert!(resets.try_recv().is_err(), "one reset a cut");
}

/// No sink may get a state whose revisions have another meaning now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_feed_that_missed_a_new_count_fails() {
    let process = EtcdProcess::start_own(&[]);
    let way = TestProxy::connect_to(&process);
    let store = EtcdStore::open(long_timeout_options(vec![way.url.clone()], "/shared")).unwrap();
    let (_, resets) = maintain_replica(&store);
    store.commit(put("k", "1")).await.unwrap();
    way.disconnect();
    let options = long_timeout_options(vec![process.url()], "/shared");
    crate::raise_revision(options, 500).unwrap();
    let other = open(&process, "/shared").unwrap();
    let last = other.commit(put("k", "2")).await.unwrap().revision;
    other.compact(last).await.unwrap();
    way.reconnect();
    let failed = tokio::time::timeout(Duration::from_secs(30), store.failed()).await;
    let Ok(Error::Failed { what }) = failed else { panic!("{failed:?}") };
    assert!(what.ends_with("was changed"), "{what}");
    assert!(resets.try_recv().is_err(), "nothing was delivered");
}
