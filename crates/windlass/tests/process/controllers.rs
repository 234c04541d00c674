//! Fixture: `windlass controllers` as a process next to `windlass server`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::Method;
use serde_json::{Value, json};
use windlass_testkit::{ChildProcess, HttpClient, retry_async};

use crate::server::{PATIENCE, TestDataDir, TestServer};

/// API path of the CertificateSigningRequests.
pub const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// Lease that the leading controllers hold.
pub const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/windlass-controllers";

/// Starts `windlass controllers` with a separate log.
pub fn start_controllers<F: AsRef<OsStr>>(
    server: &TestServer,
    kubeconfig: &Path,
    name: &str,
    flags: impl IntoIterator<Item = F>,
) -> ChildProcess {
    let log = server.place().path().join(format!("controllers-{name}.log"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args(["controllers", "--kubeconfig"]).arg(kubeconfig).args(flags);
    ChildProcess::spawn_logged(command.stdin(Stdio::null()), &log)
}

/// Returns the flags for short leases of controllers with this identity that sign with the server's CA.
pub fn election_flags(server: &TestServer, identity: &str) -> impl Iterator<Item = String> {
    let flags = [
        "--leader-elect-lease-duration=2s".to_owned(),
        "--leader-elect-renew-deadline=1s".to_owned(),
        "--leader-elect-retry-period=250ms".to_owned(),
        format!("--leader-elect-identity={identity}"),
    ];
    flags.into_iter().chain(signing_flags(server))
}

/// Waits until a process other than `but` holds the lease; returns its identity.
pub async fn wait_for_leader(http: &HttpClient, but: Option<&str>) -> String {
    // After an outage of etcd, a lease expires late.
    retry_async(PATIENCE * 2, async || {
        let (_, lease) = http.request(Method::GET, LEASE, Value::Null).await;
        let holder = lease["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty());
        let other = holder.filter(|holder| Some(*holder) != but).map(str::to_owned);
        other.ok_or_else(|| format!("nobody but {but:?} takes {lease}"))
    })
    .await
}

/// Waits until a request has a certificate.
pub async fn wait_for_certificate(http: &HttpClient, name: &str, patience: Duration) {
    let mut connection = http.connect().await.unwrap();
    let path = format!("{REQUESTS}/{name}");
    retry_async(patience, async || {
        let (_, request) = connection.request(Method::GET, &path, &Value::Null).await.unwrap();
        let issued = request["status"]["certificate"].is_string();
        if issued { Ok(()) } else { Err(format!("not issued: {request}")) }
    })
    .await;
}

/// Starts `windlass server` with a data directory.
pub fn server<F: AsRef<OsStr>>(place: TestDataDir, flags: impl IntoIterator<Item = F>) -> TestServer {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command
        .args(["server", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(place.data())
        .arg("--token-auth-file")
        .arg(place.path().join("tokens.csv"))
        .args(flags)
        .stdin(Stdio::null());
    place.launch(command)
}

/// Writes a kubeconfig of this name that authenticates with a token.
pub fn kubeconfig(server: &TestServer, name: &str, token: &str) -> PathBuf {
    let text = fs::read_to_string(server.kubeconfig()).unwrap();
    let lines = text.lines().filter(|line| !line.contains("client-"));
    let text = lines.collect::<Vec<_>>().join("\n");
    let text = text.replace("  user:\n", "  user: {}\n");
    let text = text.replace("user: {}", &format!("user: {{token: {token}}}"));
    let file = server.place().path().join(format!("{name}.kubeconfig"));
    fs::write(&file, text).unwrap();
    file
}

/// Returns the flags for the CA that signs client certificates of this server.
pub fn signing_flags(server: &TestServer) -> [String; 2] {
    let pki = |name: &str| server.place().data().join("pki").join(name).display().to_string();
    [
        format!("--cluster-signing-cert-file={}", pki("client-ca.crt")),
        format!("--cluster-signing-key-file={}", pki("client-ca.key")),
    ]
}

/// Returns a node's request for a client certificate, which is approved if the requester may join
/// nodes.
pub fn node_request(name: &str) -> Value {
    let cases = include_str!("../../../controllers/tests/loops/issuance.json");
    let cases: Vec<Value> = serde_json::from_str(cases).unwrap();
    let case = cases.iter().find(|case| case["case"] == "kubelet client").unwrap();
    json!({
        "metadata": {"name": name},
        "spec": {
            "request": STANDARD.encode(case["request"].as_str().unwrap()),
            "signerName": case["signerName"],
            "usages": case["usages"],
        },
    })
}
