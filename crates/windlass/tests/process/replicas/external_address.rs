//! Addresses at which clients reach a server, and connections from servers to etcd.

use std::fs;
use std::io::ErrorKind;
use std::net::{TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};

use hyper::Method;
use serde_json::Value;
use windlass_testkit::etcd::{EtcdCluster, MemberAddress as At};

use super::shared_etcd::{CONFIG_MAPS, command, config_map, etcd, expect_start_failure, launch, share};
use crate::controllers;
use crate::server::{PATIENCE, TestDataDir, lines, wait};

/// Returns whether a serving certificate matches a host, according to openssl.
fn certificate_matches_host(place: &TestDataDir, flag: &str, host: &str) -> bool {
    let pki = place.data().join("pki");
    let output = Command::new("openssl")
        .args(["verify", "-x509_strict", "-CAfile"])
        .arg(pki.join("ca.crt"))
        .args([flag, host])
        .arg(pki.join("server.crt"))
        .output()
        .unwrap();
    output.status.success()
}

#[test]
fn a_serving_certificate_has_the_names_that_clients_use() {
    let place = TestDataDir::new();
    let command = |place: &TestDataDir, flags: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command.args(["server", "--data-dir"]).arg(place.data()).args(flags).stdin(Stdio::null());
        command
    };
    let start = command(&place, &["--listen=0.0.0.0:0"]);
    let place = launch(place, start).stop();
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert!(certificate_matches_host(&place, "-verify_hostname", name.trim()));
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    if socket.connect("192.0.2.1:9").is_ok() {
        let address = socket.local_addr().unwrap().ip().to_string();
        assert!(certificate_matches_host(&place, "-verify_ip", &address), "{address}");
    }
    assert!(!certificate_matches_host(&place, "-verify_hostname", "lb.example"));

    let sans = ["--listen=0.0.0.0:0", "--tls-san=lb.example,192.0.2.9", "--tls-san=*.lb.example"];
    let start = command(&place, &sans);
    let place = launch(place, start).stop();
    assert!(certificate_matches_host(&place, "-verify_hostname", "lb.example"));
    assert!(certificate_matches_host(&place, "-verify_hostname", "a.lb.example"));
    assert!(certificate_matches_host(&place, "-verify_ip", "192.0.2.9"));
    let before = fs::read(place.data().join("pki/server.crt")).unwrap();
    let start = command(&place, &sans);
    let place = launch(place, start).stop();
    let same = fs::read(place.data().join("pki/server.crt")).unwrap();
    assert!(before == same, "it is reissued only when names change");
}

/// Returns certificates for etcd and its clients: those of a server are suitable.
fn certificates() -> TestDataDir {
    controllers::server(TestDataDir::new(), [""; 0]).stop()
}

fn etcd_with_tls(pki: &Path) -> EtcdCluster {
    let flag = |flag: &str, file: &str| format!("--{flag}={}", pki.join(file).display());
    let flags = [
        flag("cert-file", "server.crt"),
        flag("key-file", "server.key"),
        flag("trusted-ca-file", "client-ca.crt"),
        "--client-cert-auth".to_owned(),
    ];
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    EtcdCluster::start_at(vec![At::on_loopback("https").unwrap()], &flags).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_and_its_servers_know_each_other_by_certificates() {
    let known = certificates();
    let pki = known.data().join("pki");
    let etcd = etcd_with_tls(&pki);
    let flag = |flag: &str, file: &str| format!("--etcd-{flag}={}", pki.join(file).display());
    let flags = [
        "--listen=127.0.0.1:0".to_owned(),
        flag("cafile", "ca.crt"),
        flag("certfile", "admin.crt"),
        flag("keyfile", "admin.key"),
    ];
    let place = TestDataDir::new();
    let start = command("server", &place, &etcd, &flags);
    let first = launch(place, start);
    let place = TestDataDir::new();
    share(first.place(), &place);
    let start = command("up", &place, &etcd, flags.iter().chain([&"--no-node".to_owned()]));
    let second = launch(place, start);
    let (status, made) = first.http().request(Method::POST, CONFIG_MAPS, config_map("shared")).await;
    assert_eq!(status, 201, "{made}");
    let path = format!("{CONFIG_MAPS}/shared");
    assert_eq!(second.http().request(Method::GET, &path, Value::Null).await, (200, made));
}

/// Starts a server that cannot reach its etcd; returns what it logs while it retries.
fn expect_error_text(mut command: Command) -> String {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let said = lines(child.stderr.take().unwrap());
    let found = loop {
        let line = said.recv_timeout(PATIENCE).expect("a complaint");
        if line.contains("etcd is not reachable; retrying") {
            break line;
        }
    };
    child.kill().unwrap();
    child.wait().unwrap();
    found
}

#[test]
fn etcd_errors_are_reported() {
    let known = certificates();
    let pki = known.data().join("pki");
    let etcd = etcd_with_tls(&pki);
    let flag = |flag: &str, file: &str| format!("--etcd-{flag}={}", pki.join(file).display());
    let place = TestDataDir::new();
    let listen = "--listen=127.0.0.1:0".to_owned();
    let missing = [listen.clone(), "--etcd-cafile=/nowhere/ca.crt".to_owned()];
    let said = expect_start_failure(command("server", &place, &etcd, missing));
    assert!(said.contains("--etcd-cafile: cannot read /nowhere/ca.crt"), "{said}");

    let url = etcd.urls()[0].clone();
    let foreign = [listen.clone(), flag("cafile", "client-ca.crt")];
    let said = expect_error_text(command("server", &place, &etcd, foreign));
    assert!(said.contains(&url) && said.contains("certificate"), "{said}");
    let stranger = [listen.clone(), flag("cafile", "ca.crt")];
    let said = expect_error_text(command("server", &place, &etcd, stranger));
    assert!(said.contains(&url) && said.contains("--etcd-certfile"), "{said}");
    drop(etcd);
    assert!(!place.data().exists(), "nothing is made before etcd has answered");
}

#[test]
fn a_server_waits_for_an_etcd_that_starts_later() {
    let at = At::on_loopback("http").unwrap();
    let url = at.client.clone();
    let place = TestDataDir::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    let listen = At::on_loopback("https").unwrap().client;
    let listen = listen.strip_prefix("https://").unwrap();
    command.args(["server", "--listen", listen, "--etcd-servers", &url, "--data-dir"]);
    command.arg(place.data()).stdin(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (ready, said) = (lines(child.stdout.take().unwrap()), lines(child.stderr.take().unwrap()));
    let line = said.recv_timeout(PATIENCE).expect("a complaint");
    assert!(line.contains(&url) && line.contains("refused"), "{line}");
    // Clients are refused at once meanwhile, and try another server.
    let refused = TcpStream::connect(listen).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let _etcd = EtcdCluster::start_at(vec![at], &[]).unwrap();
    assert!(ready.recv_timeout(PATIENCE).is_ok());
    assert!(TcpStream::connect(listen).is_ok());
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(wait(&mut child, PATIENCE).is_some_and(|status| status.success()));
}

#[test]
fn connecting_to_a_missing_etcd_times_out() {
    let mut etcd = etcd();
    etcd.members_mut()[0].kill().unwrap();
    let place = TestDataDir::new();
    let said = expect_start_failure(command("server", &place, &etcd, ["--listen=127.0.0.1:0"]));
    let last = said.lines().last().unwrap();
    assert!(last.starts_with("windlass: --etcd-servers: etcd at "), "{said}");
    assert!(last.contains(&etcd.urls()[0]) && last.contains("refused"), "{said}");
}
