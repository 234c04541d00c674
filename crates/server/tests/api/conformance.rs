//! Replays recorded exchanges with kube-apiserver v1.37.0-rc.1 and compares the answers.
//!
//! A scenario is a list of steps run in order on a fresh server; a step is a request and the answer
//! that Kubernetes gave to it, with what differs from run to run replaced. A difference is a bug of
//! ours, with the exceptions named in [`EXCEPTIONS`], each with its reason.

pub mod compare;
mod steps;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::fixture::TestServer;

/// The scenarios whose kinds and rules are served so far.
const REPLAYED: &[&str] = &[
    "namespaced",
    "pod-projection",
    "discovery",
    "access-reviews",
    "tokens",
    "node-restriction",
    "access-approve",
    "access-attest",
];

/// Why most exceptions are there.
const CERTIFICATES: &str = "the certificates group is not served yet";

/// Steps that answer differently: (scenario, step from 1, why).
const EXCEPTIONS: &[(&str, usize, &str)] = &[
    ("discovery", 1, CERTIFICATES),
    ("discovery", 2, CERTIFICATES),
    ("discovery", 3, CERTIFICATES),
    ("discovery", 5, CERTIFICATES),
    ("discovery", 14, CERTIFICATES),
    ("discovery", 15, CERTIFICATES),
    ("tokens", 10, CERTIFICATES),
    ("node-restriction", 3, CERTIFICATES),
    ("node-restriction", 4, CERTIFICATES),
    ("node-restriction", 5, CERTIFICATES),
    ("node-restriction", 7, CERTIFICATES),
    ("access-approve", 1, CERTIFICATES),
    ("access-approve", 5, CERTIFICATES),
    ("access-approve", 8, CERTIFICATES),
    ("access-approve", 9, CERTIFICATES),
    ("access-approve", 12, CERTIFICATES),
    ("access-approve", 13, CERTIFICATES),
    ("access-approve", 14, CERTIFICATES),
    ("access-attest", 3, CERTIFICATES),
    ("access-attest", 4, CERTIFICATES),
    ("access-attest", 7, CERTIFICATES),
    ("access-attest", 8, CERTIFICATES),
    ("access-attest", 9, CERTIFICATES),
    ("access-attest", 10, CERTIFICATES),
    ("access-attest", 13, CERTIFICATES),
    ("access-attest", 14, CERTIFICATES),
    ("access-attest", 15, CERTIFICATES),
    ("access-attest", 16, CERTIFICATES),
    ("access-attest", 17, CERTIFICATES),
];

#[tokio::test]
async fn recorded_answers_are_given_again() {
    let mut differences = Vec::new();
    let mut compared = 0;
    for name in REPLAYED {
        compared += replay(name, &mut differences).await;
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(compared > 30, "only {compared} steps were compared");
}

async fn replay(name: &str, differences: &mut Vec<String>) -> usize {
    let file = folder().join("scenarios").join(format!("{name}.json"));
    let scenario: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let server = TestServer::start().await;
    let mut captured = HashMap::new();
    let steps = scenario["steps"].as_array().unwrap();
    for (i, step) in steps.iter().enumerate() {
        let number = i + 1;
        let answer = steps::run(&server, step, &mut captured).await;
        let found = compare::differences(&step["expect"], &answer);
        let excepted = EXCEPTIONS.iter().any(|(s, n, _)| *s == name && *n == number);
        if excepted && found.is_empty() {
            differences.push(format!("{name} #{number}: the exception is no longer needed"));
        }
        if !excepted && !found.is_empty() {
            let (method, path) = (&step["method"], &step["path"]);
            let lines = found.join("\n    ");
            differences.push(format!("{name} #{number} {method} {path}\n    {lines}"));
        }
    }
    steps.len()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/api/conformance")
}
