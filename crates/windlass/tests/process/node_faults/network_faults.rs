//! Servers and networks that fail while a node requests, awaits and renews its certificate.

use std::fs;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use windlass_node::status_file::{AgentStatus, CertificateStatus};
use windlass_node::{AgentOptions, RunError};
use windlass_testkit::{ChildProcess, retry_async, wait_for_async};

use super::fault_proxy::{FaultProxy, ProxyMode};
use super::{NodeHome, are_distinct, parse_csr, requests, soon, token};
use crate::controllers::{REQUESTS, signing_flags, start_controllers};
use crate::kubectl::Kubectl;
use crate::server::{PATIENCE, TestDataDir, TestServer};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionEnd {
    /// It continues: the network was slow.
    Release,
    /// The proxy resets the connection.
    Cut,
}

const WAYS: [(ProxyMode, ConnectionEnd); 5] = [
    (ProxyMode::Refuse, ConnectionEnd::Release),
    (ProxyMode::Stall, ConnectionEnd::Release),
    (ProxyMode::Stall, ConnectionEnd::Cut),
    (ProxyMode::Deaf, ConnectionEnd::Release),
    (ProxyMode::Deaf, ConnectionEnd::Cut),
];

/// A node behind a separate fault proxy.
struct NetworkTrial {
    mode: ProxyMode,
    after: ConnectionEnd,
    proxy: FaultProxy,
    home: NodeHome,
    agent: JoinHandle<Result<(), RunError>>,
    down: watch::Sender<bool>,
}

impl NetworkTrial {
    async fn start(server: &TestServer, token: &str, (mode, after): (ProxyMode, ConnectionEnd)) -> Self {
        let home = NodeHome::new(server, &format!("{mode:?}-{after:?}").to_lowercase());
        let proxy = FaultProxy::start(server.address).await;
        home.write_bootstrap_kubeconfig(server, token, Some(proxy.address));
        proxy.set(mode);
        let options = AgentOptions { random: soon(), ..home.options() };
        let (down, shutdown) = watch::channel(false);
        let agent = tokio::spawn(windlass_node::run(options, shutdown));
        Self { mode, after, proxy, home, agent, down }
    }

    /// Makes the network fail from now on.
    fn fail(&self) {
        self.proxy.set(self.mode);
        if self.mode == ProxyMode::Refuse {
            self.proxy.reset_connections();
        }
    }

    /// Waits until the fault took effect, then repairs the network.
    async fn recover(&self, phase: &str) {
        let what = format!("{} at {phase}: nothing was felt", self.home.node);
        wait_for_async(&what, async || self.proxy.mode_was_observed()).await;
        if self.after == ConnectionEnd::Cut {
            self.proxy.reset_connections();
        }
        self.proxy.set(ProxyMode::Pass);
    }

    async fn wait_for_certificate(&self, phase: &str, good: impl Fn(&CertificateStatus) -> bool) {
        retry_async(PATIENCE, async || match self.home.status() {
            Some(status) if good(&status.certificates[0]) => Ok(()),
            status => Err(format!("{} at {phase}: {status:#?}", self.home.node)),
        })
        .await;
    }

    fn stored(&self) -> u64 {
        self.home.status().map_or(0, |status| status.certificates[0].stored_count)
    }
}

/// Starts `windlass server`, which runs no controllers; port 0 if no address is given.
fn serve(place: TestDataDir, address: Option<SocketAddr>) -> TestServer {
    let address = address.map_or("127.0.0.1:0".to_owned(), |address| address.to_string());
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args(["server", "--listen", &address, "--data-dir"]).arg(place.data());
    command.arg("--token-auth-file").arg(place.path().join("tokens.csv")).stdin(Stdio::null());
    place.launch(command)
}

async fn approve(server: &TestServer, mut request: Value) {
    let name = request["metadata"]["name"].as_str().unwrap().to_owned();
    request["status"]["conditions"] =
        json!([{"type": "Approved", "status": "True", "reason": "Test", "message": "good"}]);
    let path = format!("{REQUESTS}/{name}/approval");
    let (status, answer) = server.http().request(Method::PUT, &path, request).await;
    assert_eq!(status, 200, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_gets_through_every_failure_of_the_network_and_the_server() {
    let admin = Kubectl::with_server(serve(TestDataDir::new(), None));
    let token = token(&admin);
    let mut server = std::sync::Arc::into_inner(admin.server).unwrap();
    let mut trials = Vec::new();
    for way in WAYS {
        trials.push(NetworkTrial::start(&server, &token, way).await);
    }
    join(&server, &trials).await;
    let mut flags = signing_flags(&server).to_vec();
    flags.extend(["--cluster-signing-duration=131s".into(), "--leader-elect=false".into()]);
    let controllers = sign(&server, &trials, &flags).await;
    renew(&server, &trials).await;

    // The server is killed during renewals and restarted.
    let address = server.address;
    let before = trials.iter().map(NetworkTrial::stored).collect::<Vec<_>>();
    let place = server.kill();
    for trial in &trials {
        // A node with a pending request waits, without an error.
        trial.wait_for_certificate("death", |client| client.activity.state != "Holding").await;
    }
    server = serve(place, Some(address));
    for (trial, before) in trials.iter().zip(before) {
        trial.wait_for_certificate("life after death", |client| client.stored_count > before + 1).await;
    }
    drop(controllers);
    for trial in trials {
        finish(&server, trial).await;
    }
}

/// They request their first certificate, and wait for approval.
async fn join(server: &TestServer, trials: &[NetworkTrial]) {
    for trial in trials {
        let node = &trial.home.node;
        if trial.mode == ProxyMode::Deaf {
            // The server has the request, but the node got no response.
            let what = format!("{node} asks for nothing");
            wait_for_async(&what, async || requests(server, node).await.len() == 1).await;
        }
        trial.recover("boot").await;
        trial.wait_for_certificate("asking", |client| client.activity.state == "Waiting").await;
        let made = requests(server, node).await;
        assert_eq!(made.len(), 1, "{node} asked more than once: {made:#?}");
        trial.fail();
        approve(server, made[0].clone()).await;
    }
    for trial in trials {
        trial.recover("approval").await;
        trial
            .wait_for_certificate("approval", |client| client.activity.message.contains("to be signed"))
            .await;
    }
}

/// They wait for the signer.
async fn sign(server: &TestServer, trials: &[NetworkTrial], flags: &[String]) -> ChildProcess {
    trials.iter().for_each(NetworkTrial::fail);
    let controllers = start_controllers(server, &server.kubeconfig(), "late", flags);
    for trial in trials {
        let node = &trial.home.node;
        let what = format!("nobody signs for {node}");
        wait_for_async(&what, async || requests(server, node).await[0]["status"]["certificate"].is_string())
            .await;
        trial.recover("signature").await;
        trial.wait_for_certificate("signature", |client| client.stored_count > 0).await;
    }
    controllers
}

/// They renew repeatedly; each renewal is due a second after the last.
async fn renew(server: &TestServer, trials: &[NetworkTrial]) {
    for trial in trials {
        let (node, before) = (&trial.home.node, trial.stored());
        let made = requests(server, node).await.len();
        trial.fail();
        let pair = trial.home.pair();
        if trial.mode == ProxyMode::Deaf {
            let what = format!("{node} does not renew");
            // A node with a pending request creates no other.
            wait_for_async(&what, async || {
                let waits = |status: AgentStatus| status.certificates[0].activity.state == "Waiting";
                trial.home.status().is_some_and(waits) || requests(server, node).await.len() > made
            })
            .await;
        } else {
            trial.wait_for_certificate("renewal", |client| client.activity.state != "Holding").await;
        }
        assert!(pair.is_valid_at(OffsetDateTime::now_utc()));
        trial.recover("renewal").await;
        trial.wait_for_certificate("renewal", |client| client.stored_count > before).await;
    }
}

/// In the end there is one valid pair, and every request produced a certificate that was used.
async fn finish(server: &TestServer, trial: NetworkTrial) {
    let node = trial.home.node.clone();
    trial.down.send_replace(true);
    trial.agent.await.unwrap().unwrap();
    let pair = trial.home.pair();
    assert!(pair.is_valid_at(OffsetDateTime::now_utc()), "{node}");
    let stored = trial.home.status().unwrap().certificates[0].stored_count;
    let made = requests(server, &node).await;
    are_distinct(&made);
    // One renewal may be in progress.
    let asked = made.len() as u64;
    assert!((stored..=stored + 1).contains(&asked), "{node}: {asked} requests, {stored} stored");
    let current = super::subject_key(pair);
    assert!(made.iter().any(|request| *parse_csr(request).public_key() == current), "{node}");
    let connections = trial.proxy.connection_count() as u64;
    assert!(connections < 100 + 20 * asked, "{node}: {connections} connections, {asked} requests");
    assert!(fs::read_dir(trial.home.pki_dir()).unwrap().count() <= 5, "{node}");
}

/// A network that drops a connection silently, so that nothing on it ever ends. The agent checks
/// its request on another connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_was_lost_in_silence_is_not_awaited() {
    let server = super::start_server(&[]);
    let token = token(&server);
    let binding = "windlass:node-autoapprove-bootstrap";
    server.ok(&["delete", "clusterrolebinding", binding]);
    let server = &server.server;
    let home = NodeHome::new(server, "n1");
    let proxy = FaultProxy::start(server.address).await;
    home.write_bootstrap_kubeconfig(server, &token, Some(proxy.address));
    let mut options = home.options();
    options.pace.patience = Duration::from_secs(2);
    let (down, shutdown) = watch::channel(false);
    let agent = tokio::spawn(windlass_node::run(options, shutdown));
    wait_for_async("it does not wait", async || {
        home.status().is_some_and(|status| status.certificates[0].activity.state == "Waiting")
    })
    .await;
    proxy.blackhole_connections();
    let made = requests(server, "n1").await;
    approve(server, made[0].clone()).await;
    wait_for_async("it waits for ever", async || {
        home.status().is_some_and(|status| status.certificates[0].stored_count == 1)
    })
    .await;
    down.send_replace(true);
    agent.await.unwrap().unwrap();
    super::assert_current_pair(server, &home, 1).await;
}
