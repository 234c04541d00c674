//! Fixture: `windlass controllers` as a process next to `windlass server`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::process::Signal;
use serde_json::{Value, json};
use windlass_testkit::ChildProcess;

use crate::server::{TestDataDir, TestServer};

/// API path of the CertificateSigningRequests.
pub const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// A controllers process; killed when dropped.
pub struct ControllersProcess {
    process: ChildProcess,
}

impl ControllersProcess {
    /// Starts the process with a separate log.
    pub fn start<F: AsRef<OsStr>>(
        server: &TestServer,
        kubeconfig: &Path,
        name: &str,
        flags: impl IntoIterator<Item = F>,
    ) -> ControllersProcess {
        let log = server.place().path().join(format!("controllers-{name}.log"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command.args(["controllers", "--kubeconfig"]).arg(kubeconfig).args(flags);
        let process = ChildProcess::spawn_logged(command.stdin(Stdio::null()), &log);
        ControllersProcess { process }
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Returns the exit status; `None` after the timeout.
    pub fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        self.process.wait(patience)
    }

    /// Returns a value in KiB from `/proc/PID/status`, such as `VmHWM`.
    pub fn memory_kib(&self, field: &str) -> u64 {
        self.process.memory_kib(field)
    }

    pub fn log(&self) -> String {
        self.process.log()
    }
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
    place.launch(command).unwrap_or_else(|place| panic!("not ready; log:\n{}", place.log()))
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
