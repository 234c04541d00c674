use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::time::Instant;
use windlass_testkit::scripted_client;

use super::*;

/// API server with one Lease that also records who created ConfigMaps and when.
#[derive(Default)]
struct FakeLeaseApi {
    lease: Mutex<Option<Value>>,
    written: Mutex<Vec<(Instant, String)>>,
}

/// Connection of one process to the fake API.
#[derive(Clone)]
struct ApiConnection {
    fake: Arc<FakeLeaseApi>,
    cut: Arc<AtomicBool>,
}

impl ApiConnection {
    fn new(fake: &Arc<FakeLeaseApi>) -> ApiConnection {
        ApiConnection { fake: fake.clone(), cut: Arc::default() }
    }

    fn client(&self) -> Client {
        let link = self.clone();
        scripted_client(move |call| {
            let link = link.clone();
            async move {
                if link.cut.load(Relaxed) {
                    std::future::pending::<()>().await;
                }
                link.fake.answer(&call.method, &call.path, call.body)
            }
        })
    }
}

impl FakeLeaseApi {
    fn answer(&self, method: &Method, path: &str, mut body: Value) -> (u16, Value) {
        if path.contains("configmaps") {
            if *method == Method::GET {
                return (200, json!({"metadata": {"name": "read"}}));
            }
            let who = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            self.written.lock().unwrap().push((Instant::now(), who));
            return (200, body);
        }
        let mut lease = self.lease.lock().unwrap();
        match (method, &mut *lease) {
            (&Method::GET, Some(lease)) => (200, lease.clone()),
            (&Method::GET, None) => failure(404, "NotFound"),
            (&Method::POST, Some(_)) => failure(409, "AlreadyExists"),
            (&Method::PUT, Some(old))
                if old["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] =>
            {
                failure(409, "Conflict")
            }
            (_, lease) => {
                let version = body["metadata"]["resourceVersion"].as_str().unwrap_or("0");
                let version: u64 = version.parse().unwrap();
                body["metadata"]["resourceVersion"] = (version + 1).to_string().into();
                *lease = Some(body.clone());
                (200, body)
            }
        }
    }

    fn holder(&self) -> Option<String> {
        let lease = self.lease.lock().unwrap();
        lease.as_ref()?["spec"]["holderIdentity"].as_str().map(str::to_owned)
    }

    /// Returns the first and last write of each process, in order of the first.
    fn write_spans(&self) -> Vec<(String, Instant, Instant)> {
        let mut spans: Vec<(String, Instant, Instant)> = Vec::new();
        for (at, who) in self.written.lock().unwrap().iter() {
            match spans.last_mut() {
                Some((last, _, until)) if last == who => *until = *at,
                _ => spans.push((who.clone(), *at, *at)),
            }
        }
        spans
    }
}

fn failure(code: u16, reason: &str) -> (u16, Value) {
    (code, json!({"kind": "Status", "status": "Failure", "message": "", "reason": reason, "code": code}))
}

/// Returns a clock that follows the runtime's time and can be set forward.
fn clock(ahead: Arc<Mutex<Duration>>) -> Clock {
    let (start, epoch) = (Instant::now(), OffsetDateTime::UNIX_EPOCH);
    Arc::new(move || epoch + start.elapsed() + *ahead.lock().unwrap())
}

async fn write(client: &Client, who: &str) -> kube::Result<ConfigMap> {
    let map = serde_json::from_value(json!({"metadata": {"name": who}})).unwrap();
    Api::default_namespaced(client.clone()).create(&PostParams::default(), &map).await
}

/// Starts a process that writes continuously while it leads, even after it was told to stop.
fn spawn_process(
    link: &ApiConnection,
    who: &'static str,
) -> (watch::Sender<bool>, tokio::task::JoinHandle<()>) {
    let (down, shutdown) = watch::channel(false);
    let start = move |client: Client| async move {
        loop {
            let _ = write(&client, who).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let running = run(
        link.client(),
        None,
        LeaderElection::new(who.into()),
        clock(Arc::default()),
        ElectionMetrics::register(&MetricsRegistry::new()).lease("lease"),
        shutdown,
        start,
    );
    (down, tokio::spawn(running))
}

async fn until_held_by(fake: &FakeLeaseApi, who: Option<&str>) {
    let waiting = async {
        while fake.holder().as_deref() != who {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_leads_and_the_next_follows_when_the_lease_has_run_out() {
    let fake = Arc::new(FakeLeaseApi::default());
    let (first, second) = (ApiConnection::new(&fake), ApiConnection::new(&fake));
    let (_down, one) = spawn_process(&first, "one");
    until_held_by(&fake, Some("one")).await;
    let (_down, _two) = spawn_process(&second, "two");
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(fake.holder().as_deref(), Some("one"));
    one.abort();
    until_held_by(&fake, Some("two")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let spans = fake.write_spans();
    let [(a, _, last), (b, first, _)] = spans.as_slice() else { panic!("{spans:?}") };
    assert_eq!((a.as_str(), b.as_str()), ("one", "two"));
    let pause = *first - *last;
    // The lease was renewed at most a retry period and a little before the end. The other process
    // reads it every 2.4 s at most, so it notices the renewal and the expiry that much later.
    assert!(pause > Duration::from_millis(12_500) && pause < Duration::from_secs(20), "{pause:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stopping_leader_releases_its_lease_at_once() {
    let fake = Arc::new(FakeLeaseApi::default());
    let link = ApiConnection::new(&fake);
    let (down, one) = spawn_process(&link, "one");
    until_held_by(&fake, Some("one")).await;
    let (_down, _two) = spawn_process(&link, "two");
    tokio::time::sleep(Duration::from_secs(5)).await;
    down.send_replace(true);
    one.await.unwrap();
    assert_eq!(fake.holder(), None);
    let released = Instant::now();
    until_held_by(&fake, Some("two")).await;
    assert!(released.elapsed() < Duration::from_secs(3), "{:?}", released.elapsed());
    let transitions = fake.lease.lock().unwrap().as_ref().unwrap()["spec"]["leaseTransitions"].clone();
    assert_eq!(transitions, 1);
}

#[tokio::test(start_paused = true)]
async fn an_isolated_leader_stops_before_another_starts() {
    let fake = Arc::new(FakeLeaseApi::default());
    let (first, second) = (ApiConnection::new(&fake), ApiConnection::new(&fake));
    let (_down, _one) = spawn_process(&first, "one");
    until_held_by(&fake, Some("one")).await;
    let (_down, _two) = spawn_process(&second, "two");
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(7)).await;
        first.cut.store(true, Relaxed);
        until_held_by(&fake, Some("two")).await;
        first.cut.store(false, Relaxed);
        tokio::time::sleep(Duration::from_secs(7)).await;
        second.cut.store(true, Relaxed);
        until_held_by(&fake, Some("one")).await;
        second.cut.store(false, Relaxed);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let names: Vec<String> = fake.write_spans().into_iter().map(|(who, ..)| who).collect();
    assert_eq!(names, ["one", "two", "one", "two", "one", "two", "one"]);
}

#[tokio::test(start_paused = true)]
async fn a_suspended_process_writes_nothing_after_it_resumes() {
    let fake = Arc::new(FakeLeaseApi::default());
    let ahead = Arc::new(Mutex::new(Duration::ZERO));
    let lease_guard = Arc::new(LeaseGuard::new(clock(ahead.clone())));
    let client = fenced_client(&ApiConnection::new(&fake).client(), lease_guard.clone());
    let (term, maps) = (Duration::from_secs(10), Api::<ConfigMap>::default_namespaced(client.clone()));
    assert!(write(&client, "before").await.is_err());
    lease_guard.extend(lease_guard.now(), term);
    write(&client, "leading").await.unwrap();
    // Suspended process: nothing runs while time passes.
    tokio::time::advance(term).await;
    let error = write(&client, "late").await.unwrap_err();
    assert!(error.to_string().contains("not written"), "{error}");
    // Reads still work.
    assert_eq!(maps.get("x").await.unwrap().metadata.name.as_deref(), Some("read"));
    // Suspended machine: only the wall clock advances.
    lease_guard.extend(lease_guard.now(), term);
    *ahead.lock().unwrap() += term;
    assert!(write(&client, "asleep").await.is_err());
    lease_guard.extend(lease_guard.now(), term);
    write(&client, "again").await.unwrap();
    lease_guard.end();
    assert!(write(&client, "ended").await.is_err());
    let written: Vec<String> = fake.write_spans().into_iter().map(|(who, ..)| who).collect();
    assert_eq!(written, ["leading", "again"]);
}

#[tokio::test(start_paused = true)]
async fn a_write_is_canceled_exactly_at_its_deadline() {
    let link = ApiConnection::new(&Arc::default());
    link.cut.store(true, Relaxed);
    let lease_guard = Arc::new(LeaseGuard::new(clock(Arc::default())));
    let client = fenced_client(&link.client(), lease_guard.clone());
    let start = Instant::now();
    lease_guard.extend(lease_guard.now(), Duration::from_secs(10));
    let writing = tokio::spawn(async move { write(&client, "slow").await });
    tokio::time::sleep(Duration::from_secs(8)).await;
    lease_guard.extend(lease_guard.now(), Duration::from_secs(10));
    assert!(writing.await.unwrap().is_err());
    assert_eq!(start.elapsed().as_secs(), 18);
}

#[test]
fn times_must_leave_room_for_renewals() {
    let good = LeaderElection::new("me".into());
    assert_eq!(good.check(), Ok(()));
    let seconds = Duration::from_secs;
    for (lease, renew, retry, words) in [
        (0, 0, 0, "leaseDuration must be greater than zero"),
        (10, 10, 2, "leaseDuration must be greater than renewDeadline"),
        (15, 10, 9, "renewDeadline must be greater than retryPeriod*JitterFactor"),
        (15, 10, 0, "retryPeriod must be greater than zero"),
    ] {
        let (lease_duration, renew_deadline) = (seconds(lease), seconds(renew));
        let retry_period = seconds(retry);
        let times = LeaderElection { lease_duration, renew_deadline, retry_period, ..good.clone() };
        assert_eq!(times.check(), Err(words));
    }
    assert!(LeaderElection::new(String::new()).check().is_err());
}
