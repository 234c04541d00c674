//! Alert rules in `deploy/prometheus`: tested with promtool, about metrics that exist, and documented.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use windlass_testkit::retry;

use crate::kubectl::Kubectl;
use crate::server::TestDataDir;
use crate::trust_docs::MountGuard;

const RULES: &str = include_str!("../../../../deploy/prometheus/windlass.rules.yaml");
const TESTS: &str = include_str!("../../../../deploy/prometheus/windlass.test.yaml");
const PAGE: &str = include_str!("../../../../docs/monitoring.md");

/// Returns name and expression of every alert.
fn alerts() -> Vec<(String, String)> {
    let rules: Value = serde_saphyr::from_str(RULES).unwrap();
    let groups = rules["groups"].as_array().unwrap().iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap());
    rules.map(|rule| ["alert", "expr"].map(|field| rule[field].as_str().unwrap().to_owned()).into()).collect()
}

/// Returns the metrics in an expression: words with the prefix of Windlass or kubelet.
fn metrics(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
    words.filter(|word| word.starts_with("windlass_") || word.starts_with("kubelet_"))
}

/// Starts everything in one process, with the node agent, which exports metrics of its own.
fn start_with_node() -> (Kubectl, MountGuard) {
    let place = TestDataDir::new();
    let mounted = MountGuard(place.data().join("node/pods"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command
        .args(["up", "--node-name", "n1", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(place.data())
        .stdin(Stdio::null());
    (Kubectl::with_server(place.launch(command)), mounted)
}

#[test]
fn promtool_accepts_the_rules_and_their_tests_pass() {
    let promtool = std::env::var_os("WINDLASS_PROMTOOL").unwrap_or_else(|| "promtool".into());
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/prometheus");
    for arguments in [["check", "rules", "windlass.rules.yaml"], ["test", "rules", "windlass.test.yaml"]] {
        let output = Command::new(&promtool)
            .args(arguments)
            .current_dir(&directory)
            .stdin(Stdio::null())
            .output()
            .unwrap_or_else(|error| {
                panic!("promtool is needed: `cargo xtask test` fetches it, or install prometheus: {error}")
            });
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(output.status.success() && said.contains("SUCCESS"), "{said}");
    }
}

#[test]
fn every_alert_is_tested_and_documented() {
    for (alert, _) in alerts() {
        // Each is expected to be silent and to fire.
        let name = format!("alertname: {alert}");
        assert!(TESTS.matches(&name).count() >= 2, "{alert} is not tested");
        assert!(PAGE.contains(&format!("\n| `{alert}` | ")), "{alert} is not in docs/monitoring.md");
    }
    let documented = PAGE.lines().filter_map(|line| line.strip_prefix("| `Windlass")).count();
    assert_eq!(documented, alerts().len());
}

#[test]
fn the_metrics_of_all_alerts_are_exported() {
    let (admin, _mounted) = start_with_node();
    let alerts = alerts();
    let named: BTreeSet<&str> = alerts.iter().flat_map(|(_, expression)| metrics(expression)).collect();
    assert!(named.len() >= alerts.len(), "{named:?}");
    retry(|| {
        let text = admin.ok(&["get", "--raw", "/metrics"]);
        let families: BTreeSet<&str> =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
        let missing: Vec<_> = named.difference(&families).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("not exported: {missing:?}")) }
    });
    // The ledger is there before the first certificate, so that the alerts do not fire on a new cluster.
    let text = admin.ok(&["get", "--raw", "/metrics"]);
    assert!(text.contains("\nwindlass_ledger_available 1\n"), "{text}");
}
