//! Clients that write, read and request certificates. [`crate::watchers`] has those that watch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::check::{BY_HAND, CONFIG_MAPS, REQUESTS, request_content};
use crate::client::{RecordingClient, name};
use crate::history::{OperationOutcome, OperationRequest, ReadVersion, RequestRoute, Revision};
use crate::probe;
use crate::test_cluster::{ChaosCluster, PATIENCE, wait_for};
use crate::watchers::{ContinuousWatcher, CsrApprover, RandomWatcher};

/// Two for each route to the servers.
const WRITERS: usize = 6;
const READERS: usize = 3;
const ASKERS: usize = 2;
const FOLLOWERS: usize = 3;
const WANDERERS: usize = 2;
/// Few enough that writers often conflict.
const OBJECTS: usize = 24;

/// Delays between requests, which leave CPU time for the other processes.
const WRITE_PACE: Duration = Duration::from_millis(25);
const READ_PACE: Duration = Duration::from_millis(40);
const ASK_PACE: Duration = Duration::from_millis(400);

const WAYS: [RequestRoute; 3] = [RequestRoute::Server(0), RequestRoute::Server(1), RequestRoute::Balancer];

/// State that all traffic clients share; clones refer to the same counters.
#[derive(Clone, Default)]
pub struct TrafficState {
    pub stop: Arc<AtomicBool>,
    /// Highest revision that any client has observed.
    newest: Arc<AtomicU64>,
    /// Number of certificates observed so far.
    pub issued: Arc<AtomicU64>,
}

impl TrafficState {
    pub fn observe_revision(&self, revision: Revision) {
        self.newest.fetch_max(revision, Ordering::Relaxed);
    }

    pub fn newest(&self) -> Revision {
        self.newest.load(Ordering::Relaxed)
    }

    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

pub struct ChaosTraffic {
    pub shared: TrafficState,
    working: JoinSet<()>,
    following: JoinSet<()>,
    approving: JoinSet<()>,
    /// Announces the final revisions of config maps and of requests to the watchers.
    until: watch::Sender<Option<[Revision; 2]>>,
}

impl ChaosTraffic {
    pub fn start(world: &ChaosCluster) -> Self {
        let shared = TrafficState::default();
        let mut numbers = 0..;
        let mut client = |via: RequestRoute| RecordingClient::new(world, numbers.next().unwrap(), via);
        let mut working = JoinSet::new();
        for way in 0..WRITERS {
            working.spawn(write(client(WAYS[way % 3]), shared.clone()));
        }
        for way in 0..READERS {
            working.spawn(read(client(WAYS[way % 3]), shared.clone()));
        }
        for way in 0..ASKERS {
            working.spawn(request_certificates(client(WAYS[way % 3]), shared.clone()));
        }
        for way in 0..WANDERERS {
            working.spawn(RandomWatcher::new(client(WAYS[way % 3]), shared.clone()).run());
        }
        let probe = probe::run(world.cluster.urls(), world.recorder.clone(), shared.clone());
        working.spawn(probe);
        let (until, end) = watch::channel(None);
        let mut following = JoinSet::new();
        for way in 0..FOLLOWERS {
            let follower = ContinuousWatcher::new(client(WAYS[way % 3]), CONFIG_MAPS, shared.clone());
            following.spawn(follower.run(end.clone()));
        }
        let follower = ContinuousWatcher::new(client(RequestRoute::Server(1)), REQUESTS, shared.clone());
        following.spawn(follower.run(end));
        let mut approving = JoinSet::new();
        let (eyes, hands) = (client(RequestRoute::Balancer), client(RequestRoute::Server(0)));
        approving.spawn(CsrApprover::new(eyes, hands, shared.clone()).run());
        Self { shared, working, following, approving, until }
    }

    /// Waits until both servers have accepted a write that was requested after the call.
    pub async fn wait_for_writes(&self, world: &ChaosCluster) {
        let now = world.recorder.now();
        wait_for("a server takes no writes any more", async || {
            let done = |server: usize| {
                world.recorder.with(|history| {
                    let fresh = history.operations.iter().rev().take_while(|op| op.end > now);
                    fresh.into_iter().any(|op| {
                        let written =
                            matches!(op.outcome, OperationOutcome::Written(_) | OperationOutcome::Deleted);
                        op.via == RequestRoute::Server(server) && op.start > now && written
                    })
                })
            };
            done(0) && done(1)
        })
        .await;
    }

    /// Waits until one more certificate is issued.
    pub async fn wait_for_issuance(&self) {
        let before = self.shared.issued.load(Ordering::Relaxed);
        wait_for("nothing is issued any more", async || self.shared.issued.load(Ordering::Relaxed) > before)
            .await;
    }

    /// Stops the writers, waits for the last certificates, and lets the watchers reach the end.
    pub async fn finish(mut self, world: &mut ChaosCluster) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.working.join_all().await;
        let mut last = RecordingClient::new(world, usize::MAX, RequestRoute::Server(0));
        wait_for("requests wait for ever", async || {
            // Every list is recorded and checked afterwards; few are enough.
            sleep(Duration::from_millis(100)).await;
            match last.list(REQUESTS, ReadVersion::Newest).await {
                OperationOutcome::Listed { objects, .. } => {
                    objects.values().all(|object| !object.content.ends_with('/'))
                }
                _ => false,
            }
        })
        .await;
        self.approving.shutdown().await;
        for which in [0, 1] {
            world.kill_controllers(which);
        }
        world.record_store_changes();
        // The watchers now know when they are complete.
        let end = world.recorder.with(|history| {
            [CONFIG_MAPS, REQUESTS].map(|resource| {
                let mut changes = history.changes.iter().rev();
                changes.find(|change| change.key.starts_with(resource)).unwrap().revision
            })
        });
        self.until.send_replace(Some(end));
        let following = std::mem::take(&mut self.following).join_all();
        tokio::time::timeout(PATIENCE, following).await.expect("all watches come to the end");
    }
}

/// Creates, changes and deletes objects that other clients also write.
async fn write(mut client: RecordingClient, shared: TrafficState) {
    for step in 0_u64.. {
        if shared.stopped() {
            return;
        }
        sleep(WRITE_PACE).await;
        let key = format!("{CONFIG_MAPS}/object-{}", rand::random_range(0..OBJECTS));
        let content = format!("{}-{step}", client.number);
        let request = match client.get(&key, ReadVersion::Newest).await {
            OperationOutcome::Absent => OperationRequest::Create { key, content },
            OperationOutcome::Found(object) => match rand::random_range(0..20) {
                0..9 => OperationRequest::Update { key, content, expect: object.version },
                9..14 => OperationRequest::Patch { key, content },
                14..17 => OperationRequest::Delete { key, expect: Some(object.version) },
                17..19 => OperationRequest::Delete { key, expect: None },
                _ => OperationRequest::Create { key, content },
            },
            _ => continue,
        };
        if let OperationOutcome::Written(revision) = client.write(request).await {
            shared.observe_revision(revision);
        }
    }
}

/// Reads in all supported ways, through changing servers.
async fn read(mut client: RecordingClient, shared: TrafficState) {
    while !shared.stopped() {
        sleep(READ_PACE).await;
        client.switch_route(WAYS[rand::random_range(0..3)]);
        let key = format!("{CONFIG_MAPS}/object-{}", rand::random_range(0..OBJECTS));
        let newest = shared.newest();
        let past = newest.saturating_sub(rand::random_range(0..100)).max(1);
        let outcome = match rand::random_range(0..7) {
            0 => client.get(&key, ReadVersion::Newest).await,
            1 => client.get(&key, ReadVersion::Any).await,
            2 if newest > 0 => client.get(&key, ReadVersion::NotOlderThan(newest)).await,
            3 => client.list(CONFIG_MAPS, ReadVersion::Any).await,
            4 if newest > 0 => client.list(CONFIG_MAPS, ReadVersion::NotOlderThan(newest)).await,
            5 if newest > 0 => client.list(CONFIG_MAPS, ReadVersion::Exact(past)).await,
            _ => client.list(CONFIG_MAPS, ReadVersion::Newest).await,
        };
        if let OperationOutcome::Listed { version, .. } = outcome {
            shared.observe_revision(version);
        }
    }
}

/// Requests certificates: of nodes, which the controllers approve, and others, which need manual
/// approval.
async fn request_certificates(mut client: RecordingClient, shared: TrafficState) {
    let cases = include_str!("../../../controllers/tests/loops/issuance.json");
    let cases: Vec<Value> = serde_json::from_str(cases).unwrap();
    let case = |name: &str| cases.iter().find(|case| case["case"] == name).unwrap().clone();
    let (node, by_hand) = (case("kubelet client"), case("key p256"));
    for step in 0.. {
        if shared.stopped() {
            return;
        }
        sleep(ASK_PACE).await;
        let number = client.number;
        let (key, case) = match step % 2 {
            0 => (format!("{BY_HAND}{number}-{step}"), &by_hand),
            _ => (format!("{REQUESTS}/node-{number}-{step}"), &node),
        };
        let body = json!({
            "metadata": {"name": name(&key)},
            "spec": {
                "request": STANDARD.encode(case["request"].as_str().unwrap()),
                "signerName": case["signerName"],
                "usages": case["usages"],
            },
        });
        let content = request_content(false, None);
        client.request(OperationRequest::Create { key, content }, &body).await;
    }
}
