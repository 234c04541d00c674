//! Fixture: servers that share an etcd.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use windlass_testkit::etcd::EtcdCluster;

pub use windlass_testkit::{MAPS as CONFIG_MAPS, config_map, version};

use crate::server::{PATIENCE, TestDataDir, TestServer, wait};

/// Files under `pki/` that the servers of a cluster share.
pub const SHARED: [&str; 8] = [
    "ca.crt",
    "ca.key",
    "client-ca.crt",
    "client-ca.key",
    "kubelet-serving-ca.crt",
    "kubelet-serving-ca.key",
    "sa.key",
    "sa.pub",
];

/// Starts a single-member etcd cluster.
pub fn etcd() -> EtcdCluster {
    EtcdCluster::start(1, &[]).unwrap()
}

/// Builds a `windlass server` or `windlass up` command that uses an etcd.
pub fn command<F: AsRef<OsStr>>(
    what: &str,
    place: &TestDataDir,
    etcd: &EtcdCluster,
    flags: impl IntoIterator<Item = F>,
) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command
        .args([what, "--data-dir"])
        .arg(place.data())
        .arg("--token-auth-file")
        .arg(place.path().join("tokens.csv"))
        .args(["--etcd-servers", &etcd.urls().join(",")])
        .args(flags)
        .stdin(Stdio::null());
    command
}

/// Starts a server with a data directory on a separate port.
pub fn server(place: TestDataDir, etcd: &EtcdCluster) -> TestServer {
    let command = command("server", &place, etcd, ["--listen", "127.0.0.1:0"]);
    launch(place, command)
}

pub fn launch(place: TestDataDir, command: Command) -> TestServer {
    place.launch(command)
}

/// Starts two servers that share CAs and etcd.
pub fn pair(etcd: &EtcdCluster) -> [TestServer; 2] {
    let first = server(TestDataDir::new(), etcd);
    let place = TestDataDir::new();
    share(first.place(), &place);
    [first, server(place, etcd)]
}

/// Copies the CAs of one data directory to another.
pub fn share(from: &TestDataDir, to: &TestDataDir) {
    let pki = |place: &TestDataDir| place.data().join("pki");
    fs::create_dir_all(pki(to)).unwrap();
    for name in SHARED {
        fs::copy(pki(from).join(name), pki(to).join(name)).unwrap();
    }
}

/// Runs a start that must fail; kills a server that keeps running.
pub fn expect_start_failure(mut command: Command) -> String {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let ended = wait(&mut child, PATIENCE * 2);
    if ended.is_none() {
        child.kill().unwrap();
    }
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(ended.is_some_and(|status| !status.success()), "it started:\n{said}");
    said
}

/// Returns the commands in an error message: its indented lines.
pub fn advice(said: &str) -> String {
    said.lines().filter_map(|line| line.strip_prefix("  ")).collect::<Vec<_>>().join("\n")
}

pub fn shell(script: &str) -> Output {
    Command::new("sh").args(["-euc", script]).stdin(Stdio::null()).output().unwrap()
}

/// Returns the permission bits of a file.
pub fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}
