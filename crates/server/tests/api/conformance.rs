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
    "csr-create",
    "csr-create-bad",
    "csr-fields",
    "csr-approve",
    "csr-sign",
    "csr-table",
    "ctb-create",
    "ctb-create-bad",
    "ctb-update",
    "pcr-create",
    "pcr-create-bad",
    "pcr-status",
    "pcr-v1",
    "apply",
    "patch",
    "watch",
    "list-pages",
];

/// Steps that answer differently: (scenario, step from 1, why).
const EXCEPTIONS: &[(&str, usize, &str)] = &[
    ("list-pages", 8, "the recorded server held bundles of other scenarios behind these"),
    ("pcr-status", 24, "nobody is denied yet"),
    ("pcr-status", 26, "nobody is denied yet, so that step 24 settled the request"),
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
