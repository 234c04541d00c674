//! The reporter against a scripted server in virtual time, and against a real one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use http::Method;
use serde_json::Value;
use windlass_testkit::{TestServer, scripted_client};

use super::*;
use crate::clock::{self, ClockReading};
use crate::read_observer::{AnchorReads, ReadState};
use crate::testing::START;
use crate::trust::status::tests::{named, pod, volume};

/// A server with one Node and possibly its NodeTrust.
#[derive(Clone, Default)]
struct FakeTrustServer(Arc<Mutex<FakeServerState>>);

#[derive(Default)]
struct FakeServerState {
    object: Option<Value>,
    version: u64,
    /// Response to all NodeTrust requests instead of the usual one.
    fault: Option<(u16, &'static str)>,
    /// Time and method of each write.
    writes: Vec<(Duration, Method)>,
    reads: usize,
    began: Option<Instant>,
}

impl FakeTrustServer {
    fn answer(&self, method: &Method, path: &str, body: &Value) -> (u16, Value) {
        let mut state = self.0.lock().unwrap();
        if path == "/api/v1/nodes/n1" {
            return (200, json!({"metadata": {"name": "n1", "uid": "u1"}}));
        }
        assert!(path.starts_with("/apis/windlass.dev/v1alpha1/nodetrusts"), "{path}");
        let since = state.began.get_or_insert_with(Instant::now).elapsed();
        match *method {
            Method::GET => state.reads += 1,
            _ => state.writes.push((since, method.clone())),
        }
        let failed = |code: u16, reason: &str, name: Option<&str>| {
            let details = name.map(|name| json!({"name": name})).unwrap_or_default();
            let said = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                "code": code, "reason": reason, "message": reason, "details": details});
            (code, said)
        };
        if let Some((code, reason)) = state.fault {
            return failed(code, reason, None);
        }
        match (method, &state.object) {
            (&Method::GET, Some(object)) => return (200, object.clone()),
            (&Method::GET | &Method::PUT, None) => return failed(404, "NotFound", Some("n1")),
            (&Method::POST, Some(_)) => return failed(409, "AlreadyExists", Some("n1")),
            _ => {}
        }
        let mut object = body.clone();
        let version = &object["metadata"]["resourceVersion"];
        if *method == Method::PUT && *version != json!(state.version.to_string()) {
            return failed(409, "Conflict", Some("n1"));
        }
        state.version += 1;
        object["metadata"]["resourceVersion"] = json!(state.version.to_string());
        state.object = Some(object.clone());
        (200, object)
    }

    fn client(&self) -> Client {
        let this = self.clone();
        scripted_client(move |call| {
            let this = this.clone();
            async move { this.answer(&call.method, &call.path, &call.body) }
        })
    }

    fn set(&self, change: impl FnOnce(&mut FakeServerState)) {
        change(&mut self.0.lock().unwrap());
    }

    fn writes(&self) -> usize {
        self.0.lock().unwrap().writes.len()
    }

    fn reads(&self) -> usize {
        self.0.lock().unwrap().reads
    }

    fn status(&self) -> Value {
        let state = self.0.lock().unwrap();
        state.object.as_ref().map(|object| object["status"].clone()).unwrap_or_default()
    }
}

struct RunningReporter {
    reports: watch::Sender<VolumeReports>,
    reads: watch::Sender<ReadStates>,
    task: tokio::task::JoinHandle<()>,
}

impl RunningReporter {
    fn start(client: Client, clock: Clock) -> Self {
        let reports = watch::Sender::new(VolumeReports::default());
        let reporter = NodeTrustReporter::new(client, "n1".into(), clock, Arc::new(|| 0.5));
        let reads = watch::Sender::new(ReadStates::default());
        let task = tokio::spawn(reporter.run(reports.subscribe(), reads.subscribe()));
        Self { reports, reads, task }
    }

    fn start_on(fake: &FakeTrustServer) -> Self {
        let began = Instant::now();
        let clock = move || ClockReading { wall: START + began.elapsed(), since: began.elapsed() };
        Self::start(fake.client(), Arc::new(clock))
    }

    /// Publishes this many volumes with this version of a bundle.
    fn publish(&self, volumes: usize, version: u8) {
        let all = (0..volumes).map(|i| (pod(&format!("p{i:03}")), volume(vec![named("a", version)], None)));
        self.reports.send_replace(Arc::new(all.collect::<BTreeMap<_, _>>()));
    }
}

impl Drop for RunningReporter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn advance(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_burst_is_one_write_and_writes_are_apart() {
    let fake = FakeTrustServer::default();
    let agent = RunningReporter::start_on(&fake);
    agent.publish(1, 1);
    advance(250).await;
    assert_eq!((fake.writes(), fake.reads()), (1, 1));
    advance(10_000).await;
    assert_eq!(fake.writes(), 1);

    // After a quiet period a change is written at once, and a burst once.
    for i in 1..=110 {
        agent.publish(i, 2);
        advance(2).await;
    }
    advance(150).await;
    assert_eq!(fake.writes(), 2);
    assert_eq!(fake.status()["volumes"], 110);

    // Continuous changes cause one write per second.
    advance(5_000).await;
    for version in [3, 4].repeat(500) {
        agent.publish(110, version);
        advance(10).await;
    }
    let many = fake.writes() - 2;
    assert!((6..=11).contains(&many), "{many}");
    advance(2_000).await;
    assert_eq!(fake.status()["sources"][0]["bundles"][0]["generation"], 4);
    let before = fake.writes();
    // A change that does not affect the report is not written.
    agent.publish(110, 4);
    advance(5_000).await;
    assert_eq!((fake.writes(), fake.reads()), (before, 1));
}

#[tokio::test(start_paused = true)]
async fn a_restart_that_finds_the_same_writes_nothing() {
    let fake = FakeTrustServer::default();
    let agent = RunningReporter::start_on(&fake);
    agent.publish(3, 1);
    advance(2_000).await;
    drop(agent);
    let before = fake.status();
    let agent = RunningReporter::start_on(&fake);
    advance(300).await;
    for i in 1..=3 {
        agent.publish(i, 1);
        advance(500).await;
    }
    advance(60_000).await;
    assert_eq!((fake.writes(), fake.status()), (1, before));
    drop(agent);
    // A reporter that finds no volumes for long reports none.
    let agent = RunningReporter::start_on(&fake);
    advance(20_000).await;
    assert_eq!(fake.writes(), 1);
    advance(20_000).await;
    assert_eq!((fake.writes(), &fake.status()["volumes"]), (2, &json!(0)));
    drop(agent);
}

#[tokio::test(start_paused = true)]
async fn external_changes_are_repaired() {
    let fake = FakeTrustServer::default();
    let agent = RunningReporter::start_on(&fake);
    agent.publish(1, 1);
    advance(2_000).await;
    // Another client adds a label, which changes the version; the label stays.
    fake.set(|state| {
        state.version += 1;
        let version = state.version.to_string();
        let object = state.object.as_mut().unwrap();
        object["metadata"]["resourceVersion"] = json!(version);
        object["metadata"]["labels"] = json!({"seen": "yes"});
    });
    agent.publish(2, 1);
    advance(3_000).await;
    assert_eq!(fake.status()["volumes"], 2);
    assert_eq!(fake.0.lock().unwrap().object.as_ref().unwrap()["metadata"]["labels"]["seen"], "yes");
    // The object is deleted, and recreated without a change on the node.
    fake.set(|state| state.object = None);
    advance(16 * 60 * 1000).await;
    assert_eq!(fake.status()["volumes"], 2);
    fake.set(|state| state.object = None);
    agent.publish(3, 1);
    advance(3_000).await;
    assert_eq!(fake.status()["volumes"], 3);
    let owner = fake.0.lock().unwrap().object.as_ref().unwrap()["metadata"]["ownerReferences"].clone();
    assert_eq!(owner, json!([{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1"}]));
}

#[tokio::test(start_paused = true)]
async fn a_server_without_the_api_is_polled_once_a_minute() {
    for (fault, most) in [((404, "NotFound"), 6), ((403, "Forbidden"), 6), ((500, "Oh"), 16)] {
        let fake = FakeTrustServer::default();
        fake.set(|state| state.fault = Some(fault));
        let agent = RunningReporter::start_on(&fake);
        agent.publish(1, 1);
        advance(5 * 60 * 1000).await;
        assert_eq!(fake.writes(), 0);
        assert!((3..=most).contains(&fake.reads()), "{fault:?}: {}", fake.reads());
        fake.set(|state| state.fault = None);
        advance(2 * 60 * 1000).await;
        assert_eq!(fake.status()["volumes"], 1, "{fault:?}");
        // The server rejects reports later, and then accepts them again.
        fake.set(|state| state.fault = Some(fault));
        agent.publish(2, 1);
        advance(5 * 60 * 1000).await;
        fake.set(|state| state.fault = None);
        advance(3 * 60 * 1000).await;
        assert_eq!(fake.status()["volumes"], 2, "{fault:?}");
    }
}

#[tokio::test]
async fn a_real_server_takes_what_a_node_reports() {
    let server = TestServer::start().await;
    let (admin, node) = (server.client(), server.client_as("system:node:n1", &["system:nodes"]));
    let nodes: Api<Node> = Api::all(admin.clone());
    let object = serde_json::from_value(json!({"metadata": {"name": "n1"}})).unwrap();
    let registered = nodes.create(&PostParams::default(), &object).await.unwrap();

    let agent = RunningReporter::start(node.clone(), clock::system());
    agent.publish(2, 1);
    let trusts: Api<DynamicObject> = Api::all_with(admin, &resource());
    let until = |generation: i64| {
        let trusts = trusts.clone();
        async move {
            loop {
                let found = trusts.get_opt("n1").await.unwrap();
                let bundle = "/status/sources/0/bundles/0/generation";
                if let Some(found) = found
                    && found.data.pointer(bundle) == Some(&json!(generation))
                {
                    return found;
                }
                tokio::task::yield_now().await;
            }
        }
    };
    let found = timeout(PATIENCE, until(1)).await.unwrap();
    let owners = found.metadata.owner_references.unwrap();
    assert_eq!(Some(owners[0].uid.clone()), registered.metadata.uid);
    let said: NodeTrustStatus = serde_json::from_value(found.data["status"].clone()).unwrap();
    assert_eq!((said.volumes, said.blocked, said.bundles), (2, 0, 1));
    assert_eq!(said, status_of(&agent.reports.borrow(), &PreviousReport::default(), &ReadStates::default()));
    agent.publish(2, 2);
    timeout(PATIENCE, until(2)).await.unwrap();

    let theirs: Api<DynamicObject> = Api::all_with(node, &resource());
    let other = DynamicObject::new("n2", &resource());
    let refused = theirs.create(&PostParams::default(), &other).await.unwrap_err();
    assert!(describe(&refused).contains("the same name as the requesting node"), "{refused}");
    let delete = kube::api::DeleteParams::default();
    assert!(theirs.delete("n1", &delete).await.is_err());
    assert!(theirs.list(&kube::api::ListParams::default()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn reads_are_reported_together_and_do_not_delay_content() {
    let fake = FakeTrustServer::default();
    let agent = RunningReporter::start_on(&fake);
    agent.publish(100, 1);
    advance(2_000).await;
    assert_eq!(fake.writes(), 1);
    let read = |number: usize| {
        agent.reads.send_modify(|reads| {
            let state = AnchorReads { changed: START, state: ReadState::Read };
            let mut all = (**reads).clone();
            all.insert((pod(&format!("p{number:03}")), "ca.crt".into()), state);
            *reads = Arc::new(all);
        });
    };
    // A read every 100 ms for 9 seconds.
    for number in 0..90 {
        read(number);
        advance(100).await;
    }
    assert!((3..=5).contains(&fake.writes()), "{}", fake.writes());
    advance(4_000).await;
    assert_eq!(fake.status()["sources"][0]["readVolumes"], 90);
    assert_eq!(fake.status()["sources"][0]["notReadVolumes"].as_array().unwrap().len(), 10);
    let before = fake.writes();
    read(95);
    agent.publish(100, 2);
    advance(200).await;
    assert_eq!(fake.writes(), before + 1, "content is reported at once");
    assert_eq!(fake.status()["sources"][0]["readVolumes"], 91);
    advance(60_000).await;
    assert_eq!(fake.writes(), before + 1);
}
