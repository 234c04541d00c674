//! Ten times as many clients as the server can handle: it keeps its throughput, tells the others to
//! retry, and affects neither health checks nor leader leases.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use windlass_testkit::{HttpClient, MAPS as CONFIG_MAPS};

use crate::server::BoxedError;
use crate::server::{TestDataDir, TestServer};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const USERS: usize = 4;
/// Concurrent requests of all users that the server handles without refusals.
const AT_EASE: usize = 16;
const OVERLOAD: usize = 10 * AT_EASE;
/// Number of rounds; the median counts.
const ROUNDS: usize = 5;
/// Time until clients that started or stopped no longer affect the rate.
const SETTLE: Duration = Duration::from_millis(300);

/// Counts of the responses that all clients received.
#[derive(Default)]
struct OverloadCounters {
    good: AtomicU64,
    refused: AtomicU64,
    /// Other responses; there must be none.
    wrong: AtomicU64,
    names: AtomicU64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_requests_cost_little_and_starve_no_user() {
    let server = start();
    let made = create_lease(&server).await;
    let stop = Arc::new(AtomicBool::new(false));
    let health = tokio::spawn(check_health(server.http_as("prober"), stop.clone()));
    let lease = tokio::spawn(renew_lease(server.http_as("leader"), made, stop.clone()));

    let seen = Arc::new(OverloadCounters::default());
    let (crowd, comes) = watch::channel(false);
    let mut workers = JoinSet::new();
    for user in 0..USERS {
        let token = format!("user-{user}");
        let sender = connect(&server, &token).await.unwrap();
        for number in 0..OVERLOAD / USERS {
            let client = OverloadClient {
                sender: sender.clone(),
                address: server.address.to_string(),
                authorization: format!("Bearer {token}"),
                only_in_crowds: (number >= AT_EASE / USERS).then(|| comes.clone()),
            };
            workers.spawn(send_requests(client, seen.clone(), stop.clone()));
        }
    }
    // In rounds, so that temporary load from other processes is not mistaken for overload.
    let (mut rounds, mut refused) = (Vec::new(), 0);
    for _ in 0..ROUNDS {
        let at_ease = rate(&seen, Duration::from_millis(1000)).await;
        let before = seen.refused.load(Ordering::Relaxed);
        crowd.send_replace(true);
        let overloaded = rate(&seen, Duration::from_millis(1500)).await;
        crowd.send_replace(false);
        refused += seen.refused.load(Ordering::Relaxed) - before;
        rounds.push((overloaded / at_ease, at_ease, overloaded));
    }
    stop.store(true, Ordering::Relaxed);
    let (checks, slowest_check) = health.await.unwrap();
    let (renewals, slowest_renewal) = lease.await.unwrap();

    crowd.send_replace(true);
    while let Some(worker) = workers.join_next().await {
        worker.unwrap();
    }

    rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
    let kept = rounds[ROUNDS / 2].0;
    let reported = format!(
        "{rounds:.2?} requests a second at ease and overloaded, {refused} refused; {checks} health \
         checks, at most {slowest_check:?}; {renewals} renewals, at most {slowest_renewal:?}"
    );
    eprintln!("{reported}");
    assert_eq!(seen.wrong.load(Ordering::Relaxed), 0, "{reported}");
    assert!(refused > 0, "it was no overload: {reported}");
    assert!(kept >= 0.7, "{reported}");
    assert!(slowest_check <= Duration::from_secs(1), "{reported}");
    assert!(slowest_renewal <= Duration::from_secs(2), "{reported}");
    assert!(checks > 20 && renewals > 20, "{reported}");
}

/// Starts a server with low limits and several users.
fn start() -> TestServer {
    let place = TestDataDir::new();
    let mut tokens = String::new();
    let users = (0..USERS).map(|user| format!("user-{user}"));
    for user in users.chain(["prober".into(), "leader".into(), "admin-token".into()]) {
        tokens.push_str(&format!("{user},{user},{user},\"system:masters\"\n"));
    }
    fs::write(place.path().join("tokens.csv"), tokens).unwrap();
    place.start_with(["--max-requests-inflight", "8", "--max-mutating-requests-inflight", "4"])
}

/// Returns the rate of successful requests per second, after a settling time.
async fn rate(seen: &OverloadCounters, lasts: Duration) -> f64 {
    tokio::time::sleep(SETTLE).await;
    let (begun, good) = (Instant::now(), seen.good.load(Ordering::Relaxed));
    tokio::time::sleep(lasts).await;
    let done = seen.good.load(Ordering::Relaxed) - good;
    done as f64 / begun.elapsed().as_secs_f64()
}

/// Creates and reads objects, one request after the other. Refused requests are retried after the
/// requested delay, as Kubernetes clients do.
async fn send_requests(mut client: OverloadClient, seen: Arc<OverloadCounters>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        if let Some(comes) = &mut client.only_in_crowds {
            comes.wait_for(|here| *here).await.unwrap();
        }
        let name = format!("map-{}", seen.names.fetch_add(1, Ordering::Relaxed));
        let object = json!({"metadata": {"name": name}, "data": {"k": "v"}}).to_string();
        let made = client.send(Method::POST, CONFIG_MAPS, object.into()).await.unwrap();
        let mut retry = record_response(&seen, &made, StatusCode::CREATED);
        if retry.is_none() {
            let path = format!("{CONFIG_MAPS}/{name}");
            let read = client.send(Method::GET, &path, Bytes::new()).await.unwrap();
            retry = record_response(&seen, &read, StatusCode::OK);
        }
        if let Some(wait) = retry {
            tokio::time::sleep(wait).await;
        }
    }
}

/// Status code and Retry-After in seconds.
type ResponseSummary = (StatusCode, Option<u64>);

/// Counts a response; returns the delay if it was a refusal.
fn record_response(
    seen: &OverloadCounters,
    answer: &ResponseSummary,
    wanted: StatusCode,
) -> Option<Duration> {
    let (count, wait) = match *answer {
        (code, _) if code == wanted => (&seen.good, None),
        (StatusCode::TOO_MANY_REQUESTS, Some(seconds)) if seconds > 0 => {
            (&seen.refused, Some(Duration::from_secs(seconds)))
        }
        _ => {
            eprintln!("an answer that should not be: {answer:?}");
            (&seen.wrong, Some(Duration::from_millis(100)))
        }
    };
    count.fetch_add(1, Ordering::Relaxed);
    wait
}

/// One of many clients on the same HTTP/2 connection.
struct OverloadClient {
    sender: SendRequest<Full<Bytes>>,
    address: String,
    authorization: String,
    /// Whether overload is active, for clients that run only then.
    only_in_crowds: Option<watch::Receiver<bool>>,
}

async fn connect(server: &TestServer, token: &str) -> Result<SendRequest<Full<Bytes>>, BoxedError> {
    let stream = TokioIo::new(server.http_as(token).connect_tls().await?);
    let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
    tokio::spawn(connection);
    Ok(sender)
}

impl OverloadClient {
    async fn send(&mut self, method: Method, path: &str, body: Bytes) -> Result<ResponseSummary, BoxedError> {
        let request = Request::builder()
            .method(method)
            .uri(format!("https://{}{path}", self.address))
            .header("authorization", &self.authorization)
            .header("content-type", "application/json")
            .body(Full::new(body))?;
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let retry = response.headers().get("retry-after");
        let retry = retry.and_then(|value| value.to_str().ok()?.parse().ok());
        let code = response.status();
        response.into_body().collect().await?;
        Ok((code, retry))
    }
}

/// Polls the readiness until stopped; returns the number of checks and the longest duration.
async fn check_health(http: HttpClient, stop: Arc<AtomicBool>) -> (usize, Duration) {
    let mut connection = http.connect().await.unwrap();
    let (mut checks, mut slowest) = (0, Duration::ZERO);
    while !stop.load(Ordering::Relaxed) {
        let asked = Instant::now();
        let (code, answer) = connection.request(Method::GET, "/readyz", &Value::Null).await.unwrap();
        slowest = slowest.max(asked.elapsed());
        assert_eq!(code, 200, "{answer}");
        checks += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    (checks, slowest)
}

async fn create_lease(server: &TestServer) -> Value {
    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "leader"}});
    let (code, answer) = server.http_as("leader").request(Method::POST, LEASES, lease).await;
    assert_eq!(code, 201, "{answer}");
    answer
}

/// Renews a lease until stopped; returns the number of renewals and the longest duration.
async fn renew_lease(http: HttpClient, made: Value, stop: Arc<AtomicBool>) -> (usize, Duration) {
    let mut connection = http.connect().await.unwrap();
    let path = format!("{LEASES}/l");
    let (mut lease, mut renewals, mut slowest) = (made, 0, Duration::ZERO);
    while !stop.load(Ordering::Relaxed) {
        let asked = Instant::now();
        lease["spec"]["leaseTransitions"] = json!(renewals);
        let (code, renewed) = connection.request(Method::PUT, &path, &lease).await.unwrap();
        slowest = slowest.max(asked.elapsed());
        assert_eq!(code, 200, "{renewed}");
        lease = renewed;
        renewals += 1;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    (renewals, slowest)
}
