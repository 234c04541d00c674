//! The official Python client, with scripts that check the responses.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use crate::server::TestServer;

/// Runs a script of `python/` against a new server; it must succeed.
fn run(script: &str) {
    let server = TestServer::start();
    let python = std::env::var_os("WINDLASS_PYTHON").unwrap_or(OsString::from("python3"));
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/process/python");
    let output = Command::new(python)
        .arg("-B")
        .arg(scripts.join(script))
        .arg(server.kubeconfig())
        .output()
        .expect("Python must be installed (cargo xtask test does it)");
    assert!(
        output.status.success(),
        "{script}: {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn objects() {
    run("objects.py");
}

#[test]
fn watches() {
    run("watches.py");
}

#[test]
fn pages() {
    run("pages.py");
}

#[test]
fn errors() {
    run("errors.py");
}
