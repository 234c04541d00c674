//! Kills a server under load repeatedly with `kill -9`: no acknowledged write is lost, no version
//! is used twice, and watches resume.

mod history;
mod load;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hyper::Method;
use rand::Rng;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use windlass_testkit::{HttpClient, version};

use self::history::{CrashHistory, StoredObject};
use self::load::{ResumingWatcher, write};
use crate::server::{PATIENCE, TestServer, long};

const NAMESPACE: &str = "swept";
const CONFIG_MAPS: &str = "/api/v1/namespaces/swept/configmaps";
const WRITERS: usize = 16;
const FOLLOWERS: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn kill_repeatedly() {
    let rounds = if long() { 200 } else { 20 };
    let mut server = TestServer::start();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    let (status, answer) = server.http().request(Method::POST, "/api/v1/namespaces", namespace).await;
    assert_eq!(status, 201, "{answer}");
    let (start, _) = list(&server.http()).await;
    let mut followers: Vec<ResumingWatcher> = (0..FOLLOWERS).map(|_| ResumingWatcher::from(start)).collect();
    let mut history = CrashHistory::new(start);

    for round in 0..rounds {
        let http = server.http();
        let writers = start_writers(&http, round, history.newest());
        let following = start_followers(&http, followers, None);
        // A deliberate sleep: the moment of the kill is varied.
        sleep(Duration::from_millis(rand::rng().random_range(50..600))).await;
        let place = server.kill();
        for life in timeout(PATIENCE, writers.join_all()).await.expect("writers end with the server") {
            history.add(life);
        }
        followers = timeout(PATIENCE, following.join_all()).await.expect("watches end with the server");
        for follower in &mut followers {
            history.observe(follower.fresh());
        }

        let restarted = Instant::now();
        server = place.start();
        let (version, objects) = list(&server.http()).await;
        history.check(version, &objects);
        eprintln!(
            "round {round}: {} objects at {version}, up after {:?}",
            objects.len(),
            restarted.elapsed()
        );
    }

    // One more change, so that the watchers know when they are complete.
    let last = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "w-last"}, "data": {"step": "0"}});
    let (status, last) = server.http().request(Method::POST, CONFIG_MAPS, last).await;
    assert_eq!(status, 201, "{last}");
    let end = version(&last);
    let following = start_followers(&server.http(), followers, Some(end));
    followers = timeout(PATIENCE, following.join_all()).await.expect("the followers catch up");
    for follower in &followers {
        history.check_complete(&follower.seen, end);
    }
    assert!(history.acknowledged() > rounds, "only {} writes: no load", history.acknowledged());
}

fn start_writers(http: &HttpClient, round: usize, floor: u64) -> JoinSet<Vec<history::ObjectLifetime>> {
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let prefix = format!("w{writer}-{round}");
        writers.spawn(write(http.clone(), prefix, floor));
    }
    writers
}

fn start_followers(
    http: &HttpClient,
    followers: Vec<ResumingWatcher>,
    until: Option<u64>,
) -> JoinSet<ResumingWatcher> {
    let mut following = JoinSet::new();
    for follower in followers {
        following.spawn(follower.watch(http.clone(), until));
    }
    following
}

/// Lists all objects, with the version of the list.
async fn list(http: &HttpClient) -> (u64, BTreeMap<String, StoredObject>) {
    let (status, answer) = http.request(Method::GET, CONFIG_MAPS, Value::Null).await;
    assert_eq!(status, 200, "{answer}");
    let items = answer["items"].as_array().unwrap();
    let objects = items
        .iter()
        .map(|item| (name(item), StoredObject { version: version(item), step: step(item) }))
        .filter(|(name, _)| name.starts_with('w'))
        .collect();
    (version(&answer), objects)
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

/// Returns the change counter in the object; 0 for objects of other origin.
fn step(object: &Value) -> u32 {
    object["data"]["step"].as_str().and_then(|step| step.parse().ok()).unwrap_or(0)
}
