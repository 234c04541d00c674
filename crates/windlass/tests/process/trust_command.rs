//! `windlass trust status`: shows which nodes have which bundle, according to their reports.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::sync::Arc;

use hyper::Method;
use serde_json::{Value, json};
use windlass_node::trust::object::digest_text;
use windlass_node::volume::trust_anchors::TrustBundle;

use crate::access::add_user;
use crate::issue::{windlass, windlass_fails, windlass_ok};
use crate::kubectl::Kubectl;
use crate::server::{PATIENCE, TestDataDir, lines, wait};

const TRUSTS: &str = "/apis/windlass.dev/v1alpha1/nodetrusts";
const NODES: &str = "/api/v1/nodes";

fn anchors(name: &str) -> String {
    let folder = "../server/tests/api/conformance/fixtures";
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(name);
    fs::read_to_string(file).unwrap()
}

fn digest(anchors: &str) -> String {
    digest_text(&TrustBundle::new("x", 0, "", BTreeMap::new(), anchors).anchors.digest())
}

fn bundle(name: &str, anchors: &str) -> String {
    json!({"apiVersion": "certificates.k8s.io/v1", "kind": "ClusterTrustBundle",
           "metadata": {"name": name}, "spec": {"trustBundle": anchors}})
    .to_string()
}

fn report(node: &str, bundle: &str, generation: i64, digest: &str) -> Value {
    let carried = json!([{"name": bundle, "generation": generation, "digest": digest}]);
    json!({"apiVersion": "windlass.dev/v1alpha1", "kind": "NodeTrust", "metadata": {"name": node},
           "status": {"volumes": 1, "blocked": 0, "bundles": 1, "sources": [
               {"name": bundle, "digest": digest, "bundles": carried,
                "volumes": ["default/web-0/trust"]}]}})
}

fn node(name: &str) -> String {
    node_object(name).to_string()
}

fn node_object(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
}

/// Returns the text and JSON output; the command must exit with this code.
fn trust_status(admin: &Kubectl, code: i32, args: &[&str]) -> (String, String) {
    let args = [&["trust", "status"], args].concat();
    let Output { status, stdout, stderr } = windlass(admin, &args).output().unwrap();
    let [out, err] = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
    assert_eq!(status.code(), Some(code), "{args:?}: {out}\n{err}");
    (out, err)
}

/// Starts a command whose standard output is discarded.
fn spawn_quiet(admin: &Kubectl, args: &[&str]) -> Child {
    windlass(admin, args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn it_says_which_nodes_have_a_bundle_and_waits_for_them() {
    let admin = Kubectl::new();
    let apply = |text: &str| admin.ok_with(text, &["apply", "-f", "-"]);
    let (old, new) = (anchors("ca-p256.pem"), anchors("ca-ed25519.pem"));
    apply(&bundle("roots", &old));
    for name in ["n1", "n2", "n3"] {
        apply(&node(name));
    }
    for name in ["n1", "n2"] {
        apply(&report(name, "roots", 1, &digest(&old)).to_string());
    }

    let (out, err) = trust_status(&admin, 0, &["roots"]);
    assert!(out.starts_with("roots: generation 1, 1 certificate, sha256:"), "{out}");
    assert!(out.ends_with("\n2 of 2 nodes have it\n"), "{out}");
    assert_eq!(err, "windlass: no NodeTrust report from 1 node: n3\n");

    // The bundle changes, and one node updates.
    apply(&bundle("roots", &new));
    apply(&report("n1", "roots", 2, &digest(&new)).to_string());
    let (out, _) = trust_status(&admin, 1, &[]);
    let row = out.lines().find(|line| line.starts_with("roots ")).unwrap().split_whitespace();
    assert_eq!(row.collect::<Vec<_>>(), ["roots", "2", "1", "2", "1", "1", "incomplete"]);
    let (out, _) = trust_status(&admin, 1, &["roots"]);
    assert!(out.contains("1 of 2 nodes have it; 1 node lacks it:\nNODE "), "{out}");
    let last = out.lines().last().unwrap().split("   ").map(str::trim).collect::<Vec<_>>();
    assert_eq!(last[..4], ["n2", "stale", "generation 1", "default/web-0/trust"]);
    assert_eq!(trust_status(&admin, 1, &["roots", "-o", "name"]).0, "n2\n");
    let document: Value = serde_json::from_str(&trust_status(&admin, 1, &["-o", "json"]).0).unwrap();
    assert_eq!(document["nodesWithoutReport"], json!(["n3"]));
    let items = document["items"].as_array().unwrap();
    let roots = items.iter().find(|item| item["name"] == "roots").unwrap();
    assert_eq!((&roots["nodes"], &roots["digest"]), (&json!(2), &json!(digest(&new))));
    let yaml: Value = serde_saphyr::from_str(&trust_status(&admin, 1, &["roots", "-o", "yaml"]).0).unwrap();
    assert_eq!(yaml["outdated"][0]["nodeName"], "n2");
    assert_eq!(trust_status(&admin, 0, &["--signer", "example.com/none"]).0, "");
    let (_, err) = trust_status(&admin, 1, &["roots", "--wait", "--timeout", "1s"]);
    let timed_out = "timed out after 1s: 1 of 2 nodes have it; 1 node lacks it";
    assert!(err.contains(timed_out), "{err}");

    // The wait ends when the other node has it.
    let args = ["trust", "status", "roots", "--wait"];
    let mut waiting = spawn_quiet(&admin, &args);
    let message = lines(waiting.stderr.take().unwrap()).recv_timeout(PATIENCE).unwrap();
    assert_eq!(message, "windlass: waiting: 1 of 2 nodes have it; 1 node lacks it");
    apply(&report("n2", "roots", 2, &digest(&new)).to_string());
    assert!(wait(&mut waiting, PATIENCE).is_some_and(|status| status.success()));
}

#[test]
fn blocked_and_silent_nodes_do_not_have_it() {
    let admin = Kubectl::new();
    let apply = |text: &str| admin.ok_with(text, &["apply", "-f", "-"]);
    let (text, name) = (anchors("ca-p256.pem"), "example.com:web:v1");
    let linked = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "ClusterTrustBundle",
           "metadata": {"name": name, "labels": {"set": "live"}},
           "spec": {"signerName": "example.com/web", "trustBundle": text}});
    apply(&linked.to_string());
    let select = |signer: &str, label: &str| {
        json!({"signerName": signer, "labelSelector": {"matchLabels": {"set": label}},
               "volumes": ["default/web-0/trust"]})
    };
    let with = |node: &str, source: Value, blocked: u32| {
        let mut object = report(node, name, 1, &digest(&text));
        object["status"]["blocked"] = json!(blocked);
        object["status"]["sources"] = json!([source]);
        object.to_string()
    };
    let mut good = select("example.com/web", "live");
    good["digest"] = json!(digest(&text));
    good["bundles"] = json!([{"name": name, "generation": 1, "digest": digest(&text)}]);
    for node_name in ["n1", "n2"] {
        apply(&node(node_name));
        apply(&with(node_name, good.clone(), 0));
    }
    trust_status(&admin, 0, &[name]);

    // A typo in the label, and one in the signer name.
    apply(&with("n2", select("example.com/web", "lvie"), 1));
    let (out, _) = trust_status(&admin, 1, &[name]);
    assert!(out.contains("\n1 of 2 nodes have it; 1 node lacks it:\n"), "{out}");
    let why = "no bundle matches signerName=example.com/web, labelSelector set=lvie";
    assert!(out.contains(why), "{out}");
    let document: Value = serde_json::from_str(&trust_status(&admin, 1, &[name, "-o", "json"]).0).unwrap();
    let (nodes, outdated) = (&document["nodes"], &document["outdated"][0]);
    assert_eq!((nodes, &outdated["state"]), (&json!(2), &json!("Blocked")));
    assert_eq!(outdated["volumes"][0]["content"], json!({"type": "Unknown"}));
    apply(&with("n2", select("example.com/wbe", "live"), 1));
    let (out, _) = trust_status(&admin, 1, &[name]);
    assert!(out.contains("no bundle matches signerName=example.com/wbe"), "{out}");
    assert_eq!(trust_status(&admin, 1, &[name, "-o", "name"]).0, "n2\n");
    trust_status(&admin, 1, &[]);

    // A stopped agent, and a registered one that has not reported.
    apply(&with("n2", good, 0));
    trust_status(&admin, 0, &[name]);
    let patch = |status: Value| {
        let patch = json!({ "status": status }).to_string();
        admin.ok(&["patch", "node", "n2", "--subresource=status", "--type=merge", "-p", &patch]);
    };
    let ready = |status: &str| {
        json!({"conditions": [{"type": "Ready", "status": status,
        "reason": "x", "lastTransitionTime": "2026-03-01T12:00:00Z"}]})
    };
    patch(ready("Unknown"));
    let (out, _) = trust_status(&admin, 1, &[name]);
    assert!(out.contains("\n1 of 2 nodes have it; 1 node lacks it:\n"), "{out}");
    assert!(out.contains("silent"), "{out}");
    let mut waiting = spawn_quiet(&admin, &["trust", "status", name, "--wait"]);
    lines(waiting.stderr.take().unwrap()).recv_timeout(PATIENCE).unwrap();
    patch(ready("True"));
    assert!(wait(&mut waiting, PATIENCE).is_some_and(|status| status.success()));
    patch(json!({"nodeInfo": {"kubeletVersion": "v1.34.0-windlass"}}));
    admin.ok(&["delete", "nodetrust", "n2"]);
    let (out, _) = trust_status(&admin, 1, &[name]);
    assert!(out.contains("agent has not reported"), "{out}");
}

#[test]
fn it_lists_nodes_that_still_have_a_deleted_bundle() {
    let admin = Kubectl::new();
    let apply = |text: &str| admin.ok_with(text, &["apply", "-f", "-"]);
    let text = anchors("ca-p256.pem");
    apply(&bundle("roots", &text));
    apply(&node("n1"));
    apply(&report("n1", "roots", 1, &digest(&text)).to_string());
    trust_status(&admin, 0, &["roots"]);
    let (out, _) = trust_status(&admin, 1, &["roots", "--gone"]);
    assert!(out.starts_with("1 node still has roots:\n"), "{out}");
    admin.ok(&["delete", "clustertrustbundle", "roots"]);
    let (out, _) = trust_status(&admin, 1, &["roots"]);
    assert!(out.starts_with("roots: deleted\n1 node has it in volumes"), "{out}");
    let (list, _) = trust_status(&admin, 1, &[]);
    let row = list.lines().find(|line| line.starts_with("roots ")).unwrap().split_whitespace();
    assert_eq!(row.collect::<Vec<_>>(), ["roots", "-", "-", "1", "1", "0", "gone"]);

    let args = ["trust", "status", "roots", "--gone", "--wait"];
    let mut waiting = spawn_quiet(&admin, &args);
    let message = lines(waiting.stderr.take().unwrap()).recv_timeout(PATIENCE).unwrap();
    assert_eq!(message, "windlass: waiting: 1 node still has roots");
    admin.ok(&["delete", "nodetrust", "n1"]);
    assert!(wait(&mut waiting, PATIENCE).is_some_and(|status| status.success()));
    trust_status(&admin, 0, &["roots", "--gone"]);
    let none = windlass_fails(&admin, &["trust", "status", "roots"]);
    assert!(none.contains("bundle \"roots\" not found"), "{none}");
}

#[test]
fn report_access_follows_rbac() {
    let admin = Kubectl::new();
    let reader = admin.with_kubeconfig(add_user(&admin, "reader", &[]));
    let refused = windlass_fails(&reader, &["trust", "status"]);
    assert!(refused.contains("cannot list resource \"clustertrustbundles\""), "{refused}");
    let binding = ["create", "clusterrolebinding", "reader", "--user", "reader"];
    admin.ok(&[&binding[..], &["--clusterrole", "windlass:trust-reader"]].concat());
    windlass_ok(&reader, &["trust", "status"]);
}

#[test]
fn kubectl_knows_the_kind() {
    let admin = Kubectl::new();
    let text = anchors("ca-p256.pem");
    let good = report("n1", "roots", 1, &digest(&text));
    let created = admin.ok_with(&good.to_string(), &["create", "-f", "-"]);
    assert_eq!(created, "nodetrust.windlass.dev/n1 created\n");
    for name in ["nodetrusts", "nodetrust", "ntr", "nodetrusts.windlass.dev"] {
        let table = admin.ok(&["get", name]);
        let mut rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(rows.next().unwrap(), ["NAME", "VOLUMES", "BLOCKED", "BUNDLES", "AGE"]);
        assert_eq!(rows.next().unwrap()[..4], ["n1", "1", "0", "1"]);
    }
    assert_eq!(admin.json(&["get", "ntr", "n1"])["status"], good["status"]);
    let explained = admin.ok(&["explain", "nodetrust.status.sources"]);
    for words in ["GROUP:      windlass.dev", "labelSelector", "Reason why the volumes"] {
        assert!(explained.contains(words), "{words} in\n{explained}");
    }
    let mut bad = good.clone();
    bad["status"]["sources"][0]["digest"] = json!("sha256:0");
    let refused = admin.fails_with(&bad.to_string(), &["replace", "-f", "-"]);
    assert!(refused.contains("status.sources[0].digest: Invalid value"), "{refused}");
    bad["status"]["sources"][0] = json!({"name": "roots", "sort": "x"});
    let refused = admin.fails_with(&bad.to_string(), &["replace", "-f", "-"]);
    assert!(refused.contains("unknown field \"status.sources[0].sort\""), "{refused}");
    let printed = windlass_ok(&admin, &["crds"]);
    assert!(printed.contains("\n  name: nodetrusts.windlass.dev\n"), "{printed}");
}

#[test]
fn a_report_is_deleted_with_its_node() {
    let admin = Kubectl::new();
    admin.ok_with(&node("n1"), &["create", "-f", "-"]);
    let uid = admin.json(&["get", "node", "n1"])["metadata"]["uid"].clone();
    let mut object = report("n1", "roots", 1, &digest(""));
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid});
    object["metadata"]["ownerReferences"] = json!([owner]);
    admin.ok_with(&object.to_string(), &["create", "-f", "-"]);
    admin.ok(&["delete", "node", "n1"]);
    admin.ok(&["wait", "--for=delete", "nodetrust/n1", "--timeout=30s"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_nodes_are_streamed() {
    let place = TestDataDir::new();
    let log = place.path().join("audit.log");
    let server = place.start_with(["--audit-log-path".as_ref(), log.as_os_str()]);
    let text = anchors("ca-p256.pem");
    let mut connection = server.http().connect().await.unwrap();
    for number in 0..2000 {
        let (digest, generation) = match number {
            1234 | 1999 => (format!("sha256:{}", "0".repeat(64)), 3),
            _ => (digest(&text), 4),
        };
        let name = format!("n{number:04}");
        let (code, answer) = connection.request(Method::POST, NODES, &node_object(&name)).await.unwrap();
        assert_eq!(code, 201, "{answer}");
        let object = report(&name, "roots", generation, &digest);
        let (code, answer) = connection.request(Method::POST, TRUSTS, &object).await.unwrap();
        assert_eq!(code, 201, "{answer}");
    }
    let admin = Kubectl::with_server(server);
    admin.ok_with(&bundle("roots", &text), &["create", "-f", "-"]);
    let (out, _) = trust_status(&admin, 1, &["roots"]);
    assert!(out.contains("\n1,998 of 2,000 nodes have it; 2 nodes lack it:\n"), "{out}");
    assert_eq!(trust_status(&admin, 1, &["roots", "-o", "name"]).0, "n1234\nn1999\n");
    // The log is complete when the process has exited.
    let _place = Arc::into_inner(admin.server).unwrap().stop();
    let events = fs::read_to_string(log).unwrap();
    let events = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    // Neither side ever holds all reports in one list.
    let requests = events.filter(|event| event["objectRef"]["resource"] == "nodetrusts");
    let requests = requests.map(|event| (event["verb"].clone(), event["requestURI"].clone()));
    let requests = requests.filter(|(verb, _)| verb == "list" || verb == "watch");
    let requests = requests.collect::<Vec<_>>();
    // A watch that was interrupted resumes from a revision, without a list.
    let streamed = |(verb, uri): &(Value, Value)| {
        let uri = uri.as_str().unwrap();
        let resumes = !uri.contains("sendInitialEvents") && !uri.ends_with("resourceVersion=0");
        verb == "watch" && (uri.contains("sendInitialEvents=true") || resumes)
    };
    assert!(requests.len() >= 2 && requests.iter().all(streamed), "{requests:?}");
}
