//! Runs the examples of the documentation page about Bundles.

use std::fs;

use super::bundle_fixture::{TRUST, bundle, joined, root, wait_for};
use crate::controllers::{kubeconfig, server, start_controllers};
use crate::kubectl::Kubectl;
use crate::server::{PATIENCE, TestDataDir};
use crate::trust_docs::{code_blocks, paste, programs, shell};

const PAGE: &str = include_str!("../../../../../docs/bundles.md");
const RUNNING: &str = include_str!("../../../../../docs/running.md");

#[test]
fn everything_can_be_pasted() {
    let place = TestDataDir::new();
    let path = place.path().to_owned();
    let programs = programs(&path);
    let blocks = code_blocks(PAGE, "sh");
    let (first, rest) = blocks.split_first().unwrap();
    // Other tests run servers at the same time.
    let first = first.replace("windlass up", "exec windlass up --no-node --listen 127.0.0.1:0");
    let server = place.launch(shell(&first, &path, &programs));

    let said = paste(&server, &rest.concat(), &programs, PATIENCE * 3);
    assert!(said.lines().any(|line| line == "2"), "{said}");
    assert!(said.contains("Targets: 6 of 6 up to date"), "{said}");
    assert_eq!(said.matches("friendlyName: ").count(), 2, "{said}");
}

/// The documented role is sufficient, without a single refusal, and its optional rules are
/// optional.
#[test]
fn the_documented_role_is_enough() {
    let [role] = code_blocks(PAGE, "yaml")[..] else { panic!("one role") };
    let account = code_blocks(RUNNING, "yaml")[0];
    let place = TestDataDir::new();
    let log = place.path().join("audit.log");
    let admin = Kubectl::with_server(server(place, ["--audit-log-path".as_ref(), log.as_os_str()]));
    admin.ok(&["create", "namespace", TRUST]);
    admin.ok_with(account, &["apply", "-f", "-"]);
    admin.ok_with(role, &["apply", "-f", "-"]);
    let name = "windlass-controllers";
    let token = admin.ok(&["--namespace=kube-system", "create", "token", name]);
    let config = kubeconfig(&admin.server, name, token.trim());
    let start = |flags: &[&str], log: &str| {
        let flags = [&["--controllers=bundle"], flags].concat();
        start_controllers(&admin.server, &config, log, flags)
    };
    let running = start(&["--secret-targets-enabled"], "all");
    let [one, two] = ["one", "two"].map(root);
    let data = serde_json::json!({"configMap": {"key": "ca.pem"}, "secret": {"key": "ca.pem"},
                                  "clusterTrustBundle": {"signerName": "example.com/ca"}});
    let create = |name: &str, certificate: &str, target: &serde_json::Value| {
        let sources = serde_json::json!([{"inLine": certificate}]);
        let object = bundle(name, sources, target.clone()).to_string();
        admin.ok_with(&object, &["apply", "-f", "-"]);
        admin.ok(&["wait", "--for=condition=Synced", "bundle", name, "--timeout=30s"]);
    };
    create("all", &one, &data);
    admin.ok(&["get", "clustertrustbundle", "example.com:ca:all"]);
    admin.ok(&["delete", "configmap", "all", "-n", "default"]);
    wait_for(|| {
        let found = admin.ok(&["get", "configmap", "all", "--ignore-not-found", "-o", "name"]);
        (!found.is_empty()).then_some(()).ok_or("it does not come back".to_owned())
    });
    let nothing = r#"{"spec": {"target": null}}"#;
    admin.ok(&["patch", "bundle", "all", "--type=merge", "-p", nothing]);
    wait_for(|| {
        let kinds = "configmaps,secrets,clustertrustbundles";
        let label = "trust.cert-manager.io/bundle=all";
        let found = admin.ok(&["get", kinds, "-A", "-l", label, "-o", "name"]);
        found.is_empty().then_some(()).ok_or(found)
    });
    drop(running);
    let user = format!("system:serviceaccount:kube-system:{name}");
    let events = fs::read_to_string(&log).unwrap();
    let its = events.lines().filter(|line| line.contains(&user)).collect::<Vec<_>>();
    assert!(its.len() > 10, "{its:?}");
    let refused = its.iter().find(|line| line.contains("\"code\":403"));
    assert!(refused.is_none(), "{refused:?}");

    // Without access to Secrets in all namespaces.
    let less = role.lines().filter(|line| !line.contains("resources: [secrets]"));
    admin.ok_with(&less.collect::<Vec<_>>().join("\n"), &["apply", "-f", "-"]);
    let reader = ["create", "role", "sources", "-n", TRUST, "--resource=secrets"];
    admin.ok(&[&reader[..], &["--verb=get,list,watch"]].concat());
    let account = format!("--serviceaccount=kube-system:{name}");
    admin.ok(&["create", "rolebinding", "sources", "-n", TRUST, "--role=sources", &account]);
    let _running = start(&["--leader-elect=false"], "less");
    create("less", &two, &serde_json::json!({"configMap": {"key": "ca.pem"}}));
    let text = admin.ok(&["get", "configmap", "less", "-o", "jsonpath={.data.ca\\.pem}"]);
    assert_eq!(text, joined(&[&two]));
}
