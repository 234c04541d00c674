//! Replays recorded exchanges with kube-apiserver v1.37.0-rc.1 and compares the responses.
//!
//! A scenario is a list of steps, run in order on one server. A step is a request and the response
//! of Kubernetes, with volatile values replaced. A difference is a bug of ours, except for those in
//! [`EXCEPTIONS`], each with its reason.

pub mod compare;
mod steps;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use windlass_testkit::TestServer;

/// Steps with different responses: (scenario, step from 1, reason).
const EXCEPTIONS: &[(&str, usize, &str)] = &[];

#[tokio::test]
async fn recorded_answers_are_given_again() {
    compare_all(&TestServer::start().await).await;
}

/// Replays all scenarios on a fresh server.
pub async fn compare_all(server: &TestServer) {
    let mut names: Vec<String> = std::fs::read_dir(folder().join("scenarios"))
        .unwrap()
        .map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    let mut differences = Vec::new();
    let mut compared = 0;
    for name in &names {
        compared += replay(server, name, &mut differences).await;
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(compared >= 340, "only {compared} steps were compared");
}

async fn replay(server: &TestServer, name: &str, differences: &mut Vec<String>) -> usize {
    let file = folder().join("scenarios").join(format!("{name}.json"));
    let scenario: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let mut captured = HashMap::new();
    let steps = scenario["steps"].as_array().unwrap();
    for (i, step) in steps.iter().enumerate() {
        let number = i + 1;
        let answer = steps::run(server, step, &mut captured).await;
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
