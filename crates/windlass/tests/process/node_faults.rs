//! Resilience of a node agent: rotations under load, failing servers and networks, kills, unusable
//! disks and credentials.

mod agent_kills;
mod credentials;
mod disk_faults;
mod fault_proxy;
mod network_faults;
mod rotations;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::Method;
use serde_json::Value;
use time::OffsetDateTime;
use windlass_node::AgentOptions;
use windlass_node::key_pair::CertificateKeyPair;
use windlass_node::node_certificates::RetryPolicy;
use windlass_node::status_file::AgentStatus;
use windlass_pki::{
    AltNames, CertificateAuthority, CertificateRequest, CertificateTemplate, CertificateUsages,
    IssuedSubject, PrivateKey, Serial, SubjectKey, SystemRandom, Validity, issue_certificate,
};
use windlass_runtime::backoff::Backoff;
use windlass_runtime::rate_limit::RateLimit;
use windlass_testkit::{ChildProcess, retry};

use crate::controllers::{REQUESTS, kubeconfig};
use crate::issue::windlass_ok;
use crate::kubectl::Kubectl;
use crate::server::TestServer;

/// The directories of one node agent.
struct NodeHome {
    node: String,
    dir: PathBuf,
}

impl NodeHome {
    fn new(server: &TestServer, node: &str) -> Self {
        let dir = server.place().path().join(node);
        fs::create_dir_all(dir.join("state")).unwrap();
        Self { node: node.to_owned(), dir }
    }

    fn pki_dir(&self) -> PathBuf {
        self.dir.join("pki")
    }

    fn bootstrap(&self) -> PathBuf {
        self.dir.join("bootstrap.kubeconfig")
    }

    fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    fn current(&self) -> PathBuf {
        self.pki_dir().join("kubelet-client-current.pem")
    }

    /// Returns the current pair; fails if key and certificate do not match.
    fn pair(&self) -> CertificateKeyPair {
        CertificateKeyPair::from_pem(&fs::read(self.current()).unwrap()).unwrap()
    }

    /// Returns every key that has a certificate here.
    fn keys(&self) -> Vec<SubjectKey> {
        let Ok(files) = fs::read_dir(self.pki_dir()) else { return Vec::new() };
        let files = files.map(|file| file.unwrap().path());
        let pairs = files.filter(|file| file.extension().is_some_and(|end| end == "pem"));
        pairs
            .filter_map(|file| CertificateKeyPair::from_pem(&fs::read(file).ok()?).ok())
            .map(subject_key)
            .collect()
    }

    /// Writes a bootstrap kubeconfig with a token, and optionally another address.
    fn write_bootstrap_kubeconfig(&self, server: &TestServer, token: &str, by: Option<SocketAddr>) {
        let file = kubeconfig(server, &format!("{}-bootstrap", self.node), token);
        let mut text = fs::read_to_string(file).unwrap();
        if let Some(by) = by {
            text = text.replace(&server.address.to_string(), &by.to_string());
        }
        fs::write(self.bootstrap(), text).unwrap();
    }

    /// Installs a client certificate that is valid between these times, as a kubelet stores it.
    fn seed(&self, server: &TestServer, from: time::Duration, until: time::Duration) -> CertificateKeyPair {
        let read = |name: &str| fs::read(server.place().data().join("pki").join(name)).unwrap();
        let ca = CertificateAuthority::from_pem(&read("client-ca.crt"), &read("client-ca.key")).unwrap();
        let key = PrivateKey::generate().unwrap();
        let public_key = SubjectKey::from_der(key.public_key().as_der()).unwrap();
        let now = OffsetDateTime::now_utc();
        let wanted = CertificateTemplate {
            subject: IssuedSubject::new(&format!("system:node:{}", self.node), &["system:nodes"]),
            alt_names: AltNames::default(),
            usages: CertificateUsages::from_names(&["digital signature", "client auth"]).unwrap(),
            validity: Validity::new(now + from, now + until).unwrap(),
            public_key: &public_key,
            serial: Serial::random(&SystemRandom::new()).unwrap(),
            crl_distribution_points: Vec::new(),
        };
        let issued = issue_certificate(&ca, &wanted).unwrap();
        let text = format!("{}{}", issued.to_pem(), &*key.to_pem().unwrap());
        fs::create_dir_all(self.pki_dir()).unwrap();
        let name = "kubelet-client-2026-01-01-00-00-00.pem";
        fs::write(self.pki_dir().join(name), text).unwrap();
        symlink(name, self.current()).unwrap();
        self.pair()
    }

    /// Returns the command of the agent process.
    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command.args(["node", "--node-name", &self.node, "--metrics-listen", "127.0.0.1:0"]);
        command.arg("--kubeconfig").arg(self.kubeconfig());
        command.arg("--bootstrap-kubeconfig").arg(self.bootstrap());
        command.arg("--cert-dir").arg(self.pki_dir());
        command.arg("--root-dir").arg(self.dir.join("state"));
        command
    }

    fn start(&self) -> ChildProcess {
        self.run(self.command())
    }

    /// Runs a command that executes an agent.
    fn run(&self, mut command: Command) -> ChildProcess {
        let log = self.dir.join("log");
        ChildProcess::spawn_logged(command.stdin(Stdio::null()), &log)
    }

    /// Returns options for an agent in this process, with shorter intervals.
    fn options(&self) -> AgentOptions {
        let millis = Duration::from_millis;
        let quick = Backoff::new(millis(20), millis(200));
        let requests = RateLimit { burst: 1000, ..RetryPolicy::default().requests };
        let pace = RetryPolicy { trouble: quick, refusal: quick, requests, ..RetryPolicy::default() };
        AgentOptions {
            node_name: self.node.clone(),
            bootstrap_kubeconfig: Some(self.bootstrap()),
            root_dir: self.dir.join("state"),
            pace,
            ..AgentOptions::new(self.kubeconfig(), self.pki_dir())
        }
    }

    /// Reads the status that the agent wrote.
    fn status(&self) -> Option<AgentStatus> {
        // On a full disk, the file may be truncated.
        AgentStatus::read(&self.dir.join("state")).ok().flatten()
    }

    /// Returns the output of `windlass node status`.
    fn status_text(&self) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command.args(["node", "status", "--cert-dir"]).arg(self.pki_dir());
        let output = command.arg("--root-dir").arg(self.dir.join("state")).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Waits until the status of the agent matches.
    fn wait_for_status(&self, what: &str, good: impl Fn(&AgentStatus) -> bool) -> AgentStatus {
        retry(|| match self.status() {
            Some(status) if good(&status) => Ok(status),
            status => Err(format!("{}: {what}: {status:#?}", self.node)),
        })
    }
}

/// Starts `windlass up` with additional flags.
fn start_server(flags: &[&str]) -> Kubectl {
    Kubectl::with_server(crate::server::TestDataDir::new().start_with(flags))
}

/// Creates a token with the bindings that it needs.
fn token(admin: &Kubectl) -> String {
    let made = windlass_ok(admin, &["token", "create", "-o", "json"]);
    let made: Value = serde_json::from_str(&made).unwrap();
    made["token"].as_str().unwrap().to_owned()
}

/// Lists all requests for client certificates of a node.
async fn requests(server: &TestServer, node: &str) -> Vec<Value> {
    let (status, list) = server.http().request(Method::GET, REQUESTS, Value::Null).await;
    assert_eq!(status, 200, "{list}");
    let mut found = list["items"].as_array().unwrap().clone();
    found.retain(|request| {
        let signer = &request["spec"]["signerName"];
        signer == "kubernetes.io/kube-apiserver-client-kubelet" && subject(request).ends_with(node)
    });
    found
}

fn parse_csr(request: &Value) -> CertificateRequest {
    let text = STANDARD.decode(request["spec"]["request"].as_str().unwrap()).unwrap();
    CertificateRequest::from_pem(&text).unwrap()
}

fn subject(request: &Value) -> String {
    parse_csr(request).subject().common_name().to_owned()
}

fn subject_key(pair: CertificateKeyPair) -> SubjectKey {
    SubjectKey::from_der(pair.key().public_key().as_der()).unwrap()
}

/// Asserts that no key was requested twice.
fn are_distinct(requests: &[Value]) {
    let keys = requests.iter().map(|request| parse_csr(request).public_key().clone());
    let keys = keys.collect::<Vec<_>>();
    for (at, key) in keys.iter().enumerate() {
        assert!(!keys[..at].contains(key), "two requests for one key: {requests:#?}");
    }
}

/// Asserts that the pair of a node is valid and belongs to its last request.
async fn assert_current_pair(server: &TestServer, home: &NodeHome, made: usize) {
    let pair = home.pair();
    assert!(pair.is_valid_at(OffsetDateTime::now_utc()), "{}", home.node);
    assert!(fs::symlink_metadata(home.current()).unwrap().is_symlink());
    let requests = requests(server, &home.node).await;
    assert_eq!(requests.len(), made, "{}: {requests:#?}", home.node);
    are_distinct(&requests);
    let key = subject_key(pair);
    assert!(requests.iter().any(|request| *parse_csr(request).public_key() == key), "{}", home.node);
    assert!(!home.pki_dir().join("kubelet-client.key.tmp").exists(), "{}", home.node);
}

fn names(directory: &Path) -> Vec<String> {
    let files = fs::read_dir(directory).unwrap();
    files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
}

/// Random source that makes renewals due as early as possible.
fn soon() -> windlass_node::node_certificates::RandomSource {
    Arc::new(|| 0.0)
}
