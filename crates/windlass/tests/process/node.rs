//! `windlass node`: machines that join, renew and restart, with a real server.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use hyper::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use time::OffsetDateTime;
use windlass_pki::{
    AltNames, CertificateAuthority, CertificateTemplate, CertificateUsages, IssuedSubject, PrivateKey,
    Serial, SubjectKey, SystemRandom, Validity, issue_certificate,
};
use windlass_testkit::{ChildProcess, HttpClient, poll_until as wait_until};

use crate::issue::{windlass, windlass_ok};
use crate::kubectl::Kubectl;
use crate::server::{PATIENCE, TestDataDir};

const CERT_DIR: &str = "windlass-node/pki";

/// A node agent process; killed when dropped.
struct NodeAgentProcess {
    process: ChildProcess,
}

impl NodeAgentProcess {
    /// Runs the command that `windlass token create` prints, with additional flags.
    fn join(admin: &Kubectl, flags: &str) -> Self {
        let made = windlass_ok(admin, &["token", "create", "-o", "json"]);
        let made: Value = serde_json::from_str(&made).unwrap();
        Self::join_with(admin, made["command"].as_str().unwrap(), flags)
    }

    fn join_with(admin: &Kubectl, command: &str, flags: &str) -> Self {
        let (prepare, join) = command.rsplit_once(" && ").unwrap();
        assert!(shell(admin.server.place().path(), prepare).status().unwrap().success());
        Self::start(admin, &format!("{join} --node-name n1 {flags}"))
    }

    /// Restarts the agent without its bootstrap credentials.
    fn restart(admin: &Kubectl, flags: &str) -> Self {
        let own = "--kubeconfig windlass-node/kubeconfig --node-name n1";
        Self::start(admin, &format!("windlass node {own} --cert-dir {CERT_DIR} {flags}"))
    }

    fn start(admin: &Kubectl, line: &str) -> Self {
        let log = admin.server.place().path().join("node.log");
        let line = line.replacen(" --node-name \"$(uname -n)\"", "", 1);
        let process = ChildProcess::spawn_logged(
            &mut shell(admin.server.place().path(), &format!("exec {line}")),
            &log,
        );
        Self { process }
    }

    fn log_text(&self) -> String {
        self.process.log()
    }

    /// Returns the listen addresses: the public one, then the local one.
    fn listens(&self) -> Vec<SocketAddr> {
        let said = self.log_text();
        let addresses = said.lines().filter_map(|line| line.split_once("listening address="));
        addresses.map(|(_, address)| address.trim().parse().unwrap()).collect()
    }

    /// Sends SIGTERM and expects a clean exit.
    fn stop(mut self) {
        self.process.stop(PATIENCE);
    }
}

/// Returns a shell command in a directory, with our program in `PATH`.
pub fn shell(directory: &Path, line: &str) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_windlass")).parent().unwrap().display();
    let path = format!("{program}:{}", std::env::var("PATH").unwrap());
    let mut command = Command::new("sh");
    command.args(["-euc", line]).env("PATH", path).stdin(Stdio::null()).current_dir(directory);
    command
}

/// Returns a page at the `--metrics-listen` of an agent, with the HTTP headers.
pub fn agent_page(agent: &ChildProcess, path: &str) -> String {
    let address = wait_until("it does not listen", || {
        let log = agent.log();
        let (_, rest) = log.split_once("listening address=")?;
        rest.split_whitespace().next()?.parse().ok()
    });
    page(address, path)
}

/// Fetches a page over plain HTTP.
fn page(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn status(admin: &Kubectl, flags: &[&str]) -> Output {
    let args = [&["node", "status", "--cert-dir", CERT_DIR], flags].concat();
    windlass(admin, &args).output().unwrap()
}

fn status_json(admin: &Kubectl) -> Option<Value> {
    serde_json::from_slice(&status(admin, &["-o", "json"]).stdout).ok()
}

/// Waits until the status of the agent matches.
fn wait_for_status(admin: &Kubectl, what: &str, check: impl Fn(&Value) -> bool) -> Value {
    wait_until(what, || status_json(admin).filter(|status| check(status)))
}

fn wait_until_ready(admin: &Kubectl) -> Value {
    wait_until("the node is not ready", || {
        let nodes = admin.json(&["get", "nodes"]);
        let node = nodes["items"].as_array().unwrap().iter().find(|node| {
            let conditions = node["status"]["conditions"].as_array();
            node["metadata"]["name"] == "n1"
                && conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
        });
        node.cloned()
    })
}

fn heartbeat(admin: &Kubectl) -> Option<String> {
    let leases = admin.json(&["get", "leases", "-n", "kube-node-lease"]);
    let lease = leases["items"].as_array()?.iter().find(|one| one["metadata"]["name"] == "n1")?;
    assert_eq!(lease["spec"]["holderIdentity"], "n1");
    assert_eq!(lease["metadata"]["ownerReferences"][0]["kind"], "Node");
    Some(lease["spec"]["renewTime"].as_str()?.to_owned())
}

fn requests(admin: &Kubectl) -> usize {
    admin.json(&["get", "csr"])["items"].as_array().unwrap().len()
}

#[test]
fn a_machine_joins_by_the_printed_command_and_stays() {
    let admin = Kubectl::new();
    let node = NodeAgentProcess::join(&admin, "--metrics-listen 127.0.0.1:0 --node-ip 192.0.2.7");
    let object = wait_until_ready(&admin);
    assert_eq!(object["metadata"]["labels"]["kubernetes.io/hostname"], "n1");
    assert_eq!(object["metadata"]["labels"]["kubernetes.io/os"], "linux");
    assert_eq!(object["status"]["addresses"][0]["address"], "192.0.2.7");
    let first = wait_until("no heartbeat", || heartbeat(&admin));
    wait_until("no other heartbeat", || heartbeat(&admin).filter(|beat| *beat > first));
    assert_eq!(requests(&admin), 1);
    assert!(admin.ok(&["get", "csr"]).contains("Approved,Issued"));
    let events = wait_until("no event", || {
        let events = admin.ok(&["get", "events"]);
        events.contains("node/n1").then_some(events)
    });
    assert!(events.contains("stored a new client certificate"), "{events}");

    // The kubeconfig authenticates as the node.
    let place = admin.server.place().path();
    let own = admin.with_kubeconfig(wait_until("no kubeconfig", || {
        Some(place.join("windlass-node/kubeconfig")).filter(|path| path.exists())
    }));
    assert!(own.ok(&["auth", "whoami"]).contains("system:node:n1"));

    let said = String::from_utf8(status(&admin, &[]).stdout).unwrap();
    for line in ["running (process ", "system:node:n1, expires ", "registered with 192.0.2.7"] {
        assert!(said.contains(line), "{said}");
    }
    let metrics = page(node.listens()[0], "/metrics");
    let ttl =
        metrics.lines().find_map(|line| line.strip_prefix("kubelet_certificate_manager_client_ttl_seconds "));
    assert!(ttl.unwrap().parse::<i64>().unwrap() > 300 * 24 * 3600, "{metrics}");
    node.stop();
    let said = status(&admin, &[]);
    assert_eq!(said.status.code(), Some(1), "the agent is not running");
    assert!(String::from_utf8(said.stdout).unwrap().contains("not running"));
    assert!(String::from_utf8(said.stderr).unwrap().contains("node agent is not running"));
}

#[test]
fn a_joined_node_needs_no_token_and_survives_server_restarts() {
    let admin = Kubectl::new();
    let node = NodeAgentProcess::join(&admin, "");
    wait_until_ready(&admin);
    let tokens: Value = serde_json::from_str(&windlass_ok(&admin, &["token", "list", "-o", "json"])).unwrap();
    windlass_ok(&admin, &["token", "delete", tokens["items"][0]["id"].as_str().unwrap()]);
    let before = wait_until("no heartbeat", || heartbeat(&admin));
    node.stop();
    let node = NodeAgentProcess::restart(&admin, "");
    wait_until("no heartbeat without the token", || heartbeat(&admin).filter(|beat| *beat > before));
    assert_eq!(requests(&admin), 1, "nothing was asked for again");

    // A restart of the server barely affects the node.
    let Kubectl { server, .. } = admin;
    let server = std::sync::Arc::into_inner(server).unwrap();
    let place: TestDataDir = server.kill();
    wait_until("it does not miss the server", || node.log_text().contains("cannot report").then_some(()));
    let admin = Kubectl::with_server(place.start());
    let now = OffsetDateTime::now_utc();
    let now = now.format(&time::format_description::well_known::Rfc3339).unwrap();
    wait_until("no heartbeat on the new server", || heartbeat(&admin).filter(|beat| *beat > now));
    node.stop();
}

#[test]
fn a_pending_request_is_reported_and_adopted_again() {
    let admin = Kubectl::new();
    let made = windlass_ok(&admin, &["token", "create", "--no-bindings", "-o", "json"]);
    let made: Value = serde_json::from_str(&made).unwrap();
    let group = format!("--group={}", made["groups"][0].as_str().unwrap());
    let role = "--clusterrole=system:node-bootstrapper";
    admin.ok(&["create", "clusterrolebinding", "bootstrap", role, &group]);
    let node = NodeAgentProcess::join_with(&admin, made["command"].as_str().unwrap(), "");
    let waits = wait_for_status(&admin, "it does not wait", |status| {
        status["certificates"][0]["activity"]["state"] == "Waiting"
    });
    let request = waits["certificates"][0]["activity"]["requestName"].as_str().unwrap().to_owned();
    let said = status(&admin, &[]);
    assert_eq!(said.status.code(), Some(1), "it is no node yet");
    let text = String::from_utf8(said.stdout).unwrap();
    assert!(text.contains(&format!("{request} has been waiting to be approved since ")), "{text}");
    drop(node);

    let line = made["command"].as_str().unwrap();
    let node = NodeAgentProcess::join_with(&admin, line, "");
    wait_for_status(&admin, "it does not wait again", |status| {
        status["pid"] == node.process.pid()
            && status["certificates"][0]["activity"]["requestName"] == request.as_str()
    });
    windlass_ok(&admin, &["csr", "approve", &request]);
    wait_until_ready(&admin);
    assert_eq!(requests(&admin), 1, "the same request after a kill");
    node.stop();
}

#[test]
fn an_invalid_token_is_reported_and_a_valid_one_is_picked_up() {
    let admin = Kubectl::new();
    let made: Value = serde_json::from_str(&windlass_ok(&admin, &["token", "create", "-o", "json"])).unwrap();
    windlass_ok(&admin, &["token", "delete", made["id"].as_str().unwrap()]);
    let node = NodeAgentProcess::join_with(&admin, made["command"].as_str().unwrap(), "");
    let problem = wait_for_status(&admin, "it finds nothing wrong", |status| {
        status["certificates"][0]["error"]["reason"] == "Unauthorized"
    });
    let message = problem["certificates"][0]["error"]["message"].as_str().unwrap();
    assert!(message.contains("the server rejected the credentials"), "{message}");
    assert!(node.log_text().contains("Unauthorized"), "{}", node.log_text());
    let said = status(&admin, &[]);
    assert_eq!(said.status.code(), Some(1));
    assert!(!node.log_text().contains(made["token"].as_str().unwrap()), "a secret is in the log");
    node.stop();
    let node = NodeAgentProcess::join_with(&admin, made["command"].as_str().unwrap(), "");

    // A valid file in the same place is sufficient to continue.
    let better: Value =
        serde_json::from_str(&windlass_ok(&admin, &["token", "create", "-o", "json"])).unwrap();
    let (prepare, _) = better["command"].as_str().unwrap().rsplit_once(" && ").unwrap();
    assert!(shell(admin.server.place().path(), prepare).status().unwrap().success());
    wait_until_ready(&admin);
    node.stop();
}

/// Returns a client certificate near its expiry, or an expired one if none is `left`.
fn old_certificate(data: &Path, left: time::Duration) -> String {
    let read = |name: &str| fs::read(data.join("pki").join(name)).unwrap();
    let authority = CertificateAuthority::from_pem(&read("client-ca.crt"), &read("client-ca.key")).unwrap();
    let key = PrivateKey::generate().unwrap();
    let public_key = SubjectKey::from_der(key.public_key().as_der()).unwrap();
    let now = OffsetDateTime::now_utc();
    // Past nine tenths of its lifetime.
    let validity = Validity::new(now - time::Duration::hours(2), now + left).unwrap();
    let issued = issue_certificate(
        &authority,
        &CertificateTemplate {
            subject: IssuedSubject::new("system:node:n1", &["system:nodes"]),
            alt_names: AltNames::default(),
            usages: CertificateUsages::from_names(&["digital signature", "client auth"]).unwrap(),
            validity,
            public_key: &public_key,
            serial: Serial::random(&SystemRandom::new()).unwrap(),
            crl_distribution_points: Vec::new(),
        },
    );
    format!("{}{}", issued.unwrap().to_pem(), &*key.to_pem().unwrap())
}

#[test]
fn an_old_certificate_is_replaced_by_itself() {
    let admin = Kubectl::new();
    // Creates the bindings and the kubeconfig of a joined node.
    NodeAgentProcess::join(&admin, "").stop_when_ready(&admin);
    let pki = admin.server.place().path().join(CERT_DIR);
    for name in fs::read_dir(&pki).unwrap() {
        fs::remove_file(name.unwrap().path()).unwrap();
    }
    let old = old_certificate(&admin.server.place().data(), time::Duration::minutes(2));
    let current = pki.join("kubelet-client-current.pem");
    fs::write(&current, &old).unwrap();
    let node = NodeAgentProcess::restart(&admin, "");
    wait_for_status(&admin, "nothing new", |status| status["certificates"][0]["storedCount"] == 1);
    let new = fs::read_to_string(&current).unwrap();
    let key = |text: &str| text.split("-----BEGIN PRIVATE KEY-----").nth(1).unwrap().to_owned();
    assert_ne!(key(&new), key(&old), "a new key");
    assert!(fs::symlink_metadata(&current).unwrap().is_symlink());
    assert!(!pki.join("kubelet-client.key.tmp").exists());
    let own = admin.with_kubeconfig(admin.server.place().path().join("windlass-node/kubeconfig"));
    assert!(own.ok(&["auth", "whoami"]).contains("system:node:n1"));
    assert_eq!(requests(&admin), 2, "one to join and one to renew");
    node.stop();
}

#[test]
fn a_denial_is_reported_everywhere() {
    let admin = Kubectl::new();
    NodeAgentProcess::join(&admin, "").stop_when_ready(&admin);
    let pki = admin.server.place().path().join(CERT_DIR);
    let current = pki.join("kubelet-client-current.pem");
    fs::remove_file(&current).unwrap();
    let old = old_certificate(&admin.server.place().data(), time::Duration::minutes(2));
    fs::write(&current, old).unwrap();
    // Renewals are no longer approved automatically.
    let binding = "windlass:node-autoapprove-certificate-rotation";
    admin.ok(&["delete", "clusterrolebinding", binding]);
    let node = NodeAgentProcess::restart(&admin, "--metrics-listen 127.0.0.1:0");
    let waits = wait_for_status(&admin, "it does not wait", |status| {
        status["certificates"][0]["activity"]["state"] == "Waiting"
    });
    let request = waits["certificates"][0]["activity"]["requestName"].as_str().unwrap().to_owned();
    windlass_ok(&admin, &["csr", "deny", &request, "--message", "not today"]);
    wait_for_status(&admin, "it does not know", |status| {
        status["certificates"][0]["error"]["reason"] == "RequestDenied"
    });
    let said = status(&admin, &[]);
    assert!(said.status.success(), "it still has a certificate");
    assert!(String::from_utf8(said.stdout).unwrap().contains("not today"));
    let described = wait_until("no event", || {
        let described = admin.ok(&["describe", "node", "n1"]);
        described.contains("RequestDenied").then_some(described)
    });
    assert!(described.contains("not today"), "{described}");
    let metrics = page(node.listens()[0], "/metrics");
    let trouble = "{certificate=\"kubelet-client\",reason=\"RequestDenied\"} 1";
    assert!(metrics.contains(trouble), "{metrics}");
    assert!(metrics.contains("kubelet_certificate_manager_client_expiration_renew_errors 1"));
    node.stop();
}

#[test]
fn after_a_long_absence_it_reports_and_accepts_a_bootstrap_credential() {
    let admin = Kubectl::new();
    NodeAgentProcess::join(&admin, "").stop_when_ready(&admin);
    let place = admin.server.place().path();
    let (pki, bootstrap) = (place.join(CERT_DIR), place.join("windlass-node/bootstrap.kubeconfig"));
    let current = pki.join("kubelet-client-current.pem");
    for name in fs::read_dir(&pki).unwrap() {
        fs::remove_file(name.unwrap().path()).unwrap();
    }
    let expired = old_certificate(&admin.server.place().data(), time::Duration::minutes(-1));
    fs::write(&current, expired).unwrap();
    let kept = fs::read(&bootstrap).unwrap();
    fs::remove_file(&bootstrap).unwrap();

    let flags = "--bootstrap-kubeconfig windlass-node/bootstrap.kubeconfig";
    let node = NodeAgentProcess::restart(&admin, flags);
    let status = wait_for_status(&admin, "it finds nothing wrong", |status| {
        status["certificates"][0]["error"]["reason"] == "NoCredential"
    });
    let advice = status["certificates"][0]["error"]["message"].as_str().unwrap();
    for part in ["expired at ", "does not exist", "windlass token create", "bootstrap.kubeconfig"] {
        assert!(advice.contains(part), "{part}: {advice}");
    }
    fs::write(&bootstrap, kept).unwrap();
    wait_for_status(&admin, "it does not come back", |status| status["certificates"][0]["storedCount"] == 1);
    wait_until_ready(&admin);
    node.stop();
}

#[test]
fn the_node_of_a_kubelet_is_not_modified() {
    let admin = Kubectl::new();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    admin.ok_with(&node.to_string(), &["create", "-f", "-"]);
    let info = ["machineID", "systemUUID", "bootID", "kernelVersion", "osImage"];
    let others = ["containerRuntimeVersion", "kubeProxyVersion", "operatingSystem", "architecture"];
    let mut info = info.iter().chain(&others).map(|&key| (key.to_owned(), json!("")));
    let mut info = info.by_ref().collect::<serde_json::Map<_, _>>();
    info.insert("kubeletVersion".into(), json!("v1.36.4"));
    let address = json!([{"type": "InternalIP", "address": "192.0.2.99"}]);
    let status = json!({"status": {"nodeInfo": info, "addresses": address}}).to_string();
    let patch = ["patch", "node", "n1", "--subresource=status", "--type=merge", "-p", &status];
    admin.ok(&patch);
    let before = admin.json(&["get", "node", "n1"])["metadata"]["resourceVersion"].clone();

    let node = NodeAgentProcess::join(&admin, "--rotate-server-certificates --node-ip 192.0.2.7");
    wait_for_status(&admin, "it does not see the kubelet", |status| {
        status["registration"]["kubeletReports"] == true
    });
    // Its names come from the kubelet's registration.
    let waits = wait_for_status(&admin, "it does not ask", |status| {
        status["certificates"][1]["activity"]["state"] == "Waiting"
    });
    let request = waits["certificates"][1]["activity"]["requestName"].as_str().unwrap();
    let shown = windlass_ok(&admin, &["csr", "show", request]);
    assert!(shown.contains("192.0.2.99") && !shown.contains("192.0.2.7\n"), "{shown}");
    let after = admin.json(&["get", "node", "n1"])["metadata"]["resourceVersion"].clone();
    assert_eq!(before, after, "the kubelet's node was changed");
    assert_eq!(heartbeat(&admin), None);
    node.stop();
}

#[test]
fn a_node_that_was_deleted_comes_back() {
    let admin = Kubectl::new();
    let node = NodeAgentProcess::join(&admin, "");
    let before = wait_until_ready(&admin)["metadata"]["uid"].clone();
    wait_until("no heartbeat", || heartbeat(&admin));
    admin.ok(&["delete", "node", "n1"]);
    wait_until("the node does not come back", || {
        (wait_until_ready(&admin)["metadata"]["uid"] != before).then_some(())
    });
    wait_until("no heartbeat", || heartbeat(&admin));
    node.stop();
}

impl NodeAgentProcess {
    fn stop_when_ready(self, admin: &Kubectl) {
        wait_until_ready(admin);
        wait_until("no kubeconfig", || {
            let path = admin.server.place().path().join("windlass-node/kubeconfig");
            path.exists().then_some(())
        });
        self.stop();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_serves_with_a_certificate_for_its_addresses() {
    let admin = Kubectl::with_server(TestDataDir::new().start_with(["--approve-kubelet-serving"]));
    let serving = "--rotate-server-certificates --listen 127.0.0.1:0 --node-ip";
    let node = NodeAgentProcess::join(&admin, &format!("{serving} 192.0.2.7"));
    wait_for_status(&admin, "no serving certificate", |s| s["certificates"][1]["current"].is_object());
    let ca = admin.server.place().data().join("pki/kubelet-serving-ca.crt");
    let address = node.listens()[0];
    assert!(HttpClient::new(address, &ca, "").connect_tls().await.is_err(), "it is not for this address");
    let port = admin.json(&["get", "node", "n1"]);
    let port = port["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].clone();
    assert_eq!(port, address.port());
    node.stop();

    // Other addresses need another certificate, and loopback addresses need manual approval.
    let node = NodeAgentProcess::restart(&admin, &format!("{serving} 192.0.2.7,127.0.0.1"));
    wait_until("no request for loopback", || {
        let all = admin.json(&["get", "csr"]);
        let waits = all["items"]
            .as_array()?
            .iter()
            .find(|request| request["status"]["conditions"][0]["reason"] == "ReservedName")?;
        let name = waits["metadata"]["name"].as_str()?;
        Some(admin.ok(&["certificate", "approve", name]))
    });
    wait_for_status(&admin, "no other serving certificate", |s| {
        let names = s["certificates"][1]["current"]["ipAddresses"].as_array();
        names.is_some_and(|names| names.len() == 2)
    });
    let address = node.listens()[0];
    let answer = HttpClient::new(address, &ca, "").request(Method::GET, "/healthz", Value::Null).await;
    assert_eq!(answer, (200, Value::String("ok".into())));
    node.stop();
}

#[test]
fn a_stopped_agent_is_detected_and_recovers() {
    let admin = Kubectl::with_server(
        TestDataDir::new().start_with(["--node-monitor-grace-period=15s", "--node-monitor-period=100ms"]),
    );
    let node = NodeAgentProcess::join(&admin, "");
    wait_until_ready(&admin);
    wait_until("no report", || {
        let reports = admin.ok(&["get", "nodetrusts", "-o", "name"]);
        (!reports.is_empty()).then_some(())
    });
    windlass_ok(&admin, &["trust", "status"]);
    let pid = Pid::from_raw(i32::try_from(node.process.pid()).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let ready = |status: &str| {
        let path = "jsonpath={.status.conditions[?(@.type=='Ready')].status}";
        wait_until("the condition does not change", || {
            (admin.ok(&["get", "node", "n1", "-o", path]) == status).then_some(())
        });
    };
    ready("Unknown");
    wait_until("no event", || admin.ok(&["describe", "node", "n1"]).contains("NodeNotReady").then_some(()));
    kill_process(pid, Signal::CONT).unwrap();
    ready("True");
    let conditions = admin.json(&["get", "node", "n1"])["status"]["conditions"].clone();
    assert_eq!(conditions.as_array().unwrap().len(), 1, "{conditions}");

    // The agent corrects its condition although its heartbeats never stopped: a controller may mark a node as lost late.
    let mut marked = admin.json(&["get", "node", "n1"]);
    marked["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    marked["status"]["conditions"][0]["status"] = "Unknown".into();
    admin.ok_with(&marked.to_string(), &["replace", "--raw", "/api/v1/nodes/n1/status", "-f", "-"]);
    ready("True");
    admin.ok(&["delete", "node", "n1"]);
    wait_until_ready(&admin);
    node.stop();
}

#[test]
fn up_can_run_its_own_node() {
    let place = TestDataDir::new();
    let up = |place: &TestDataDir| {
        let old = place.restart_command();
        let mut command = Command::new(old.get_program());
        command.args(old.get_args().filter(|arg| *arg != "--no-node"));
        command.args(["--node-name", "n1"]).stdin(Stdio::null());
        command
    };
    let command = up(&place);
    let admin = Kubectl::with_server(place.launch(command));
    wait_until_ready(&admin);
    let data = admin.server.place().path().join("data").join("node");
    for directory in [data.clone(), data.join("pki")] {
        let args = ["node", "status", "--cert-dir", directory.to_str().unwrap()];
        let said = windlass_ok(&admin, &args);
        assert!(said.contains("running (process "), "{said}");
    }
    let binding = "windlass:node-autoapprove-certificate-rotation";
    admin.ok(&["get", "clusterrolebinding", binding]);
    let metrics = admin.ok(&["get", "--raw", "/metrics"]);
    for name in ["kubelet_certificate_manager_client_ttl_seconds ", "apiserver_request_total{"] {
        assert!(metrics.lines().any(|line| line.starts_with(name)), "{name}: {metrics}");
    }
    let Kubectl { server, .. } = admin;
    let place = std::sync::Arc::into_inner(server).unwrap().stop();
    let command = up(&place);
    let admin = Kubectl::with_server(place.launch(command));
    let now = OffsetDateTime::now_utc();
    let now = now.format(&time::format_description::well_known::Rfc3339).unwrap();
    wait_until("no heartbeat after a restart", || heartbeat(&admin).filter(|beat| *beat > now));
    assert_eq!(requests(&admin), 1);
}
