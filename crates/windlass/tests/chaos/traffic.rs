//! The clients: who writes, who reads, who asks for certificates. Who watches is in [`crate::watchers`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::check::{BY_HAND, CONFIG_MAPS, REQUESTS, request_content};
use crate::client::{Client, name};
use crate::history::{Outcome, Request, Revision, Version, Via};
use crate::probe;
use crate::watchers::{Approver, Follower, Wanderer};
use crate::world::{PATIENCE, World};

/// Two on each way to the servers.
const WRITERS: usize = 6;
const READERS: usize = 3;
const ASKERS: usize = 2;
const FOLLOWERS: usize = 3;
const WANDERERS: usize = 2;
/// So few objects that writers often meet.
const OBJECTS: usize = 24;

/// How long clients rest, so that the machine has time for the others too.
const WRITE_PACE: Duration = Duration::from_millis(25);
const READ_PACE: Duration = Duration::from_millis(40);
const ASK_PACE: Duration = Duration::from_millis(400);

const WAYS: [Via; 3] = [Via::Server(0), Via::Server(1), Via::Balancer];

/// What all clients know.
#[derive(Clone, Default)]
pub struct Shared {
    pub stop: Arc<AtomicBool>,
    /// The newest revision that any of them has seen.
    newest: Arc<AtomicU64>,
    /// How many certificates were seen.
    pub issued: Arc<AtomicU64>,
}

impl Shared {
    pub fn saw(&self, revision: Revision) {
        self.newest.fetch_max(revision, Ordering::Relaxed);
    }

    pub fn newest(&self) -> Revision {
        self.newest.load(Ordering::Relaxed)
    }

    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

pub struct Traffic {
    pub shared: Shared,
    working: JoinSet<()>,
    following: JoinSet<()>,
    approving: JoinSet<()>,
    /// Tells those who follow where the end is, of config maps and of requests.
    until: watch::Sender<Option<[Revision; 2]>>,
}

impl Traffic {
    pub fn start(world: &World) -> Self {
        let shared = Shared::default();
        let mut numbers = 0..;
        let mut client = |via: Via| Client::new(world, numbers.next().unwrap(), via);
        let mut working = JoinSet::new();
        for way in 0..WRITERS {
            working.spawn(write(client(WAYS[way % 3]), shared.clone()));
        }
        for way in 0..READERS {
            working.spawn(read(client(WAYS[way % 3]), shared.clone()));
        }
        for way in 0..ASKERS {
            working.spawn(ask_for_certificates(client(WAYS[way % 3]), shared.clone()));
        }
        for way in 0..WANDERERS {
            working.spawn(Wanderer::new(client(WAYS[way % 3]), shared.clone()).run());
        }
        let probe = probe::run(world.cluster.urls(), world.recorder.clone(), shared.clone());
        working.spawn(probe);
        let (until, end) = watch::channel(None);
        let mut following = JoinSet::new();
        for way in 0..FOLLOWERS {
            let follower = Follower::new(client(WAYS[way % 3]), CONFIG_MAPS, shared.clone());
            following.spawn(follower.run(end.clone()));
        }
        let follower = Follower::new(client(Via::Server(1)), REQUESTS, shared.clone());
        following.spawn(follower.run(end));
        let mut approving = JoinSet::new();
        let (eyes, hands) = (client(Via::Balancer), client(Via::Server(0)));
        approving.spawn(Approver::new(eyes, hands, shared.clone()).run());
        Self { shared, working, following, approving, until }
    }

    /// Waits until both servers have taken a write that was asked for after now.
    pub async fn goes_on(&self, world: &World) {
        let (begun, now) = (Instant::now(), world.recorder.now());
        loop {
            let done = |server: usize| {
                world.recorder.with(|history| {
                    let fresh = history.operations.iter().rev().take_while(|op| op.end > now);
                    fresh.into_iter().any(|op| {
                        let written = matches!(op.outcome, Outcome::Written(_) | Outcome::Deleted);
                        op.via == Via::Server(server) && op.start > now && written
                    })
                })
            };
            if done(0) && done(1) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "a server takes no writes any more");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until one more certificate was issued.
    pub async fn issues(&self) {
        let (begun, before) = (Instant::now(), self.shared.issued.load(Ordering::Relaxed));
        while self.shared.issued.load(Ordering::Relaxed) == before {
            assert!(begun.elapsed() < PATIENCE, "nothing is issued any more");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Ends the writing, waits for the last certificates, and lets those who watch see the end.
    pub async fn finish(mut self, world: &mut World) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.working.join_all().await;
        let mut last = Client::new(world, usize::MAX, Via::Server(0));
        let begun = Instant::now();
        loop {
            let waiting = match last.list(REQUESTS, Version::Newest).await {
                Outcome::Listed { objects, .. } => {
                    objects.values().filter(|object| object.content.ends_with('/')).count()
                }
                _ => usize::MAX,
            };
            if waiting == 0 {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "{waiting} requests wait for ever");
            sleep(Duration::from_millis(100)).await;
        }
        self.approving.shutdown().await;
        for which in [0, 1] {
            world.kill_controllers(which);
        }
        world.note_truth();
        // Those who watch know now when they have everything.
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

/// Creates, changes and deletes objects that others write too.
async fn write(mut client: Client, shared: Shared) {
    for step in 0_u64.. {
        if shared.stopped() {
            return;
        }
        sleep(WRITE_PACE).await;
        let key = format!("{CONFIG_MAPS}/object-{}", rand::random_range(0..OBJECTS));
        let content = format!("{}-{step}", client.number);
        let request = match client.get(&key, Version::Newest).await {
            Outcome::Absent => Request::Create { key, content },
            Outcome::Found(object) => match rand::random_range(0..20) {
                0..9 => Request::Update { key, content, expect: object.version },
                9..14 => Request::Patch { key, content },
                14..17 => Request::Delete { key, expect: Some(object.version) },
                17..19 => Request::Delete { key, expect: None },
                _ => Request::Create { key, content },
            },
            _ => continue,
        };
        if let Outcome::Written(revision) = client.write(request).await {
            shared.saw(revision);
        }
    }
}

/// Reads in every way there is, now here, now there.
async fn read(mut client: Client, shared: Shared) {
    while !shared.stopped() {
        sleep(READ_PACE).await;
        client.turn_to(WAYS[rand::random_range(0..3)]);
        let key = format!("{CONFIG_MAPS}/object-{}", rand::random_range(0..OBJECTS));
        let newest = shared.newest();
        let past = newest.saturating_sub(rand::random_range(0..100)).max(1);
        let outcome = match rand::random_range(0..7) {
            0 => client.get(&key, Version::Newest).await,
            1 => client.get(&key, Version::Any).await,
            2 if newest > 0 => client.get(&key, Version::NotOlderThan(newest)).await,
            3 => client.list(CONFIG_MAPS, Version::Any).await,
            4 if newest > 0 => client.list(CONFIG_MAPS, Version::NotOlderThan(newest)).await,
            5 if newest > 0 => client.list(CONFIG_MAPS, Version::Exact(past)).await,
            _ => client.list(CONFIG_MAPS, Version::Newest).await,
        };
        if let Outcome::Listed { version, .. } = outcome {
            shared.saw(version);
        }
    }
}

/// Asks for certificates: of nodes, which the controllers approve, and others, which somebody has to.
async fn ask_for_certificates(mut client: Client, shared: Shared) {
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
        client.ask(Request::Create { key, content }, &body).await;
    }
}
