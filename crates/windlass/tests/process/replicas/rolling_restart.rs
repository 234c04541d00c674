//! All servers are restarted, one after the other, without errors for clients.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Method, Request, Version};
use rustix::process::Signal;
use serde_json::Value;
use tokio::task::JoinSet;
use windlass_testkit::etcd::EtcdCluster;
use windlass_testkit::{HttpClient, HttpConnection, wait_for_async};

use super::balancer::LoadBalancer;
use super::shared_etcd::{CONFIG_MAPS, command, config_map, etcd, launch, share, version};
use crate::server::BoxedError;
use crate::server::{ADMIN_TOKEN, PATIENCE, TestDataDir, TestServer};

/// Two servers behind a load balancer.
struct ReplicatedServers {
    etcd: EtcdCluster,
    balancer: LoadBalancer,
    ports: [SocketAddr; 2],
}

impl ReplicatedServers {
    async fn start() -> (ReplicatedServers, [TestServer; 2]) {
        let balancer = LoadBalancer::start().await;
        let ports = [(); 2].map(|()| {
            let url = windlass_testkit::etcd::MemberAddress::on_loopback("https").unwrap().client;
            url.strip_prefix("https://").unwrap().parse().unwrap()
        });
        let mut site = ReplicatedServers { etcd: etcd(), balancer, ports };
        let first = site.launch(0, TestDataDir::new());
        let place = TestDataDir::new();
        share(first.place(), &place);
        let second = site.launch(1, place);
        let servers = [first, second];
        for (port, server) in ports.into_iter().zip(&servers) {
            let ca = server.place().data().join("pki/ca.crt");
            site.balancer.add(port, HttpClient::new(port, &ca, ADMIN_TOKEN));
        }
        site.balancer.wait_for_ready_backends(2).await;
        (site, servers)
    }

    fn launch(&self, which: usize, place: TestDataDir) -> TestServer {
        let flags = [
            format!("--listen={}", self.ports[which]),
            format!("--external-url=https://{}", self.balancer.address),
            "--shutdown-delay-duration=1s".to_owned(),
        ];
        let command = command("server", &place, &self.etcd, flags);
        launch(place, command)
    }
}

/// Stop flag and progress counters shared by all clients.
#[derive(Default)]
struct ClientProgress {
    stop: AtomicBool,
    done: AtomicUsize,
    made: Mutex<BTreeSet<String>>,
}

impl ClientProgress {
    fn record_created(&self, name: String) {
        self.made.lock().unwrap().insert(name);
        self.done.fetch_add(1, Relaxed);
    }

    fn should_continue(&self) -> bool {
        !self.stop.load(Relaxed)
    }

    /// Waits until clients have made this much progress.
    async fn progress(&self) {
        let before = self.done.load(Relaxed);
        wait_for_async("clients go on", async || self.done.load(Relaxed) >= before + 20).await;
    }
}

/// A client with a new connection for each request.
async fn coming_and_going(http: HttpClient, work: Arc<ClientProgress>) {
    for index in 0.. {
        if !work.should_continue() {
            return;
        }
        let name = format!("new-{index}");
        let (status, made) = http.request(Method::POST, CONFIG_MAPS, config_map(&name)).await;
        assert_eq!(status, 201, "{made}");
        let (status, found) = http.request(Method::GET, &format!("{CONFIG_MAPS}/{name}"), Value::Null).await;
        assert_eq!((status, found), (200, made));
        work.record_created(name);
    }
}

/// A client that keeps its connection until the server asks it to close.
async fn run_persistent_connection(http: HttpClient, work: Arc<ClientProgress>) {
    let mut connection: Option<HttpConnection> = None;
    for index in 0.. {
        if !work.should_continue() {
            return;
        }
        let name = format!("kept-{index}");
        let body = Bytes::from(config_map(&name).to_string());
        let request = || {
            let request = Request::post(CONFIG_MAPS)
                .header("host", "windlass")
                .header("authorization", format!("Bearer {ADMIN_TOKEN}"))
                .header("content-type", "application/json");
            request.body(Full::new(body.clone())).unwrap()
        };
        let mut used = match connection.take() {
            Some(connection) => connection,
            None => http.connect().await.unwrap(),
        };
        let response = used.exchange(request()).await.unwrap();
        let closes = response.headers().get("connection").is_some_and(|value| value == "close");
        assert_eq!(response.status(), 201);
        response.into_body().collect().await.unwrap();
        work.record_created(name);
        connection = Some(used).filter(|_| !closes);
    }
}

/// An HTTP/2 client, like most clients.
async fn run_http2_requests(http: HttpClient, work: Arc<ClientProgress>) {
    let mut sender = http.connect_http2().await.unwrap();
    for index in 0.. {
        if !work.should_continue() {
            return;
        }
        let name = format!("streams-{index}");
        let request = || {
            let request = Request::post(format!("https://windlass{CONFIG_MAPS}"))
                .version(Version::HTTP_2)
                .header("authorization", format!("Bearer {ADMIN_TOKEN}"))
                .header("content-type", "application/json");
            request.body(Full::from(config_map(&name).to_string())).unwrap()
        };
        let response = loop {
            match sender.send_request(request()).await {
                Ok(response) => break response,
                // The server sent GOAWAY; this request was not sent.
                Err(error) if error.is_canceled() => {
                    sender = http.connect_http2().await.unwrap();
                }
                Err(error) => panic!("{error:?}"),
            }
        };
        assert_eq!(response.status(), 201);
        response.into_body().collect().await.unwrap();
        work.record_created(name);
    }
}

/// Runs kubectl in a loop until the stop flag is set.
fn kubectl(kubeconfig: &std::path::Path, work: &ClientProgress) {
    let home = tempfile::tempdir().unwrap();
    let program = std::env::var("WINDLASS_KUBECTL").unwrap_or_else(|_| "kubectl".into());
    for index in 0.. {
        if !work.should_continue() {
            return;
        }
        let name = format!("kubectl-{index}");
        for args in [["create", "configmap", &name], ["get", "configmap", &name]] {
            let mut command = Command::new(&program);
            command.env("HOME", home.path()).env("KUBECONFIG", kubeconfig).args(args);
            let output = command.output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        work.record_created(name);
    }
}

/// Watches until all expected events were received, resuming where it was; no event is repeated.
async fn watching(http: HttpClient, from: u64, seen: Arc<Mutex<Vec<String>>>) -> Result<(), BoxedError> {
    let mut last = from;
    loop {
        let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={last}");
        let mut events = http.watch(&path).await?.map_err(|status| format!("status {status}"))?;
        while let Some(event) = events.next().await? {
            if event["type"] != "ADDED" {
                return Err(event.to_string().into());
            }
            last = version(&event["object"]);
            let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
            seen.lock().unwrap().push(name.to_owned());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn server_restarts_cause_no_failures() {
    let (site, mut servers) = ReplicatedServers::start().await;
    let http = servers[0].http();
    let (_, list) = http.request(Method::GET, CONFIG_MAPS, Value::Null).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let watch = tokio::spawn(watching(http.clone(), version(&list), seen.clone()));
    let work = Arc::new(ClientProgress::default());
    let mut clients = JoinSet::new();
    clients.spawn(coming_and_going(http.clone(), work.clone()));
    clients.spawn(run_persistent_connection(http.clone(), work.clone()));
    clients.spawn(run_http2_requests(http.clone(), work.clone()));
    let (kubeconfig, shared) = (servers[0].kubeconfig(), work.clone());
    let kubeconfig = std::fs::read(kubeconfig).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), kubeconfig).unwrap();
    let path = file.path().to_owned();
    clients.spawn_blocking(move || kubectl(&path, &shared));

    for which in [0, 1, 0, 1] {
        work.progress().await;
        servers[which].signal(Signal::TERM);
        // It reports that it is not ready while it keeps serving, and stops only then.
        site.balancer.wait_for_ready_backends(1).await;
        let [a, b] = servers;
        let (leaving, other) = if which == 0 { (a, b) } else { (b, a) };
        let place = tokio::task::block_in_place(|| leaving.stop());
        work.progress().await;
        let back = tokio::task::block_in_place(|| site.launch(which, place));
        servers = if which == 0 { [back, other] } else { [other, back] };
        site.balancer.wait_for_ready_backends(2).await;
        if let Some(ended) = clients.try_join_next() {
            ended.expect("no request fails");
            panic!("a client has given up");
        }
    }
    work.progress().await;
    work.stop.store(true, Relaxed);
    while let Some(ended) = clients.join_next().await {
        ended.expect("no request fails");
    }
    let made = work.made.lock().unwrap().clone();
    wait_for_async("the watch does not see everything", async || {
        seen.lock().unwrap().len() >= made.len() || watch.is_finished()
    })
    .await;
    assert!(!watch.is_finished(), "{:?}", watch.await);
    watch.abort();
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen.iter().cloned().collect::<BTreeSet<_>>(), made);
    assert_eq!(seen.len(), made.len(), "nothing comes twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_the_wait() {
    let etcd = etcd();
    let place = TestDataDir::new();
    let flags = ["--listen=127.0.0.1:0", "--shutdown-delay-duration=1h"];
    let start = command("server", &place, &etcd, flags);
    let mut server = launch(place, start);
    let http = server.http();
    let ready = async |http: &HttpClient| http.request(Method::GET, "/readyz", Value::Null).await.0;
    assert_eq!(ready(&http).await, 200);
    server.signal(Signal::TERM);
    wait_for_async("it does not say that it leaves", async || ready(&http).await == 500).await;
    // New connections, writes and watches work as before.
    let (status, made) = http.request(Method::POST, CONFIG_MAPS, config_map("late")).await;
    assert_eq!(status, 201, "{made}");
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion=0");
    let mut events = http.watch(&path).await.unwrap().unwrap();
    let event = events.next().await.unwrap().unwrap();
    assert_eq!(event["object"]["metadata"]["name"], "late");
    assert_eq!(server.http().request(Method::GET, "/livez", Value::Null).await.0, 200);
    server.signal(Signal::TERM);
    assert!(server.wait(PATIENCE).is_some_and(|status| status.success()));
}
