//! The controllers with the permissions of `docs/running.md`, and with those of the Kubernetes
//! role: both are sufficient, without a single refusal.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use windlass_testkit::retry;

use crate::controllers::{kubeconfig, node_request, server, start_controllers};
use crate::kubectl::Kubectl;
use crate::server::TestDataDir;
use crate::signing::authority;
use crate::trust_docs::code_blocks;

const RUNNING: &str = include_str!("../../../../docs/running.md");

/// Starts a server that audits refused requests.
fn audited() -> Kubectl {
    let place = TestDataDir::new();
    let log = place.path().join("audit.log");
    Kubectl::with_server(server(place, ["--audit-log-path".as_ref(), log.as_os_str()]))
}

/// Creates a kubeconfig for a service account in kube-system.
fn account(admin: &Kubectl, name: &str) -> PathBuf {
    let token = admin.ok(&["--namespace=kube-system", "create", "token", name]);
    kubeconfig(&admin.server, name, token.trim())
}

/// Asserts that no request of an account was refused.
fn was_never_refused(admin: &Kubectl, account: &str) {
    let log = fs::read_to_string(admin.server.place().path().join("audit.log")).unwrap();
    let user = format!("system:serviceaccount:kube-system:{account}");
    let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let its: Vec<Value> = events.filter(|event| event["user"]["username"] == user).collect();
    assert!(its.len() > 10, "{its:?}");
    let refused = its.iter().find(|event| event["responseStatus"]["code"] == 403);
    assert!(refused.is_none(), "{refused:?}");
}

/// Waits until the output of kubectl matches.
fn wait_for_output(admin: &Kubectl, args: &[&str], good: impl Fn(&str) -> bool) -> String {
    retry(|| {
        let found = admin.ok(args);
        if good(&found) { Ok(found) } else { Err(format!("kubectl {args:?} says {found}")) }
    })
}

fn issued(admin: &Kubectl, name: &str) {
    wait_for_output(admin, &["get", "csr", name, "--no-headers"], |row| row.contains("Approved,Issued"));
}

fn create(admin: &Kubectl, object: &Value) {
    admin.ok_with(&object.to_string(), &["create", "-f", "-"]);
}

/// Returns the manifest of a node's request.
fn request(name: &str) -> Value {
    let mut request = node_request(name);
    request["apiVersion"] = "certificates.k8s.io/v1".into();
    request["kind"] = "CertificateSigningRequest".into();
    request
}

/// Writes a CA that is valid for this many seconds.
fn write_ca(folder: &Path, seconds: i64) -> [String; 2] {
    let ca = authority("ca", -3600, seconds);
    let (certificate, key) = (folder.join("signer.crt"), folder.join("signer.key"));
    fs::write(&certificate, ca.certificate().to_pem()).unwrap();
    fs::write(&key, ca.key().to_pem().unwrap().as_bytes()).unwrap();
    [
        format!("--cluster-signing-cert-file={}", certificate.display()),
        format!("--cluster-signing-key-file={}", key.display()),
    ]
}

#[test]
fn the_documented_role_is_enough() {
    let admin = audited();
    admin.ok_with(code_blocks(RUNNING, "yaml")[0], &["apply", "-f", "-"]);
    let folder = admin.server.place().path().to_owned();
    let roots = folder.join("roots.crt");
    fs::copy(admin.server.place().data().join("pki/ca.crt"), &roots).unwrap();
    let flags = [
        "--approve-kubelet-serving".to_owned(),
        "--ca-overlap=0s".to_owned(),
        format!("--root-ca-file={}", roots.display()),
        "--controllers=*,-serviceaccount,-clusterrole-aggregation,-namespace,-garbagecollector,\
         -nodelifecycle,-unscheduled-pod"
            .to_owned(),
    ];
    let flags = flags.into_iter().chain(write_ca(&folder, 4));
    let ours = account(&admin, "windlass-controllers");
    let controllers = start_controllers(&admin.server, &ours, "ours", flags);

    // Approved, signed, and deleted after the certificate has expired.
    create(&admin, &request("short"));
    issued(&admin, "short");
    wait_for_output(&admin, &["get", "csr", "-o", "name"], |names| !names.contains("short"));
    // Delayed at first, and signed in the end.
    create(&admin, &request("late"));
    wait_for_output(&admin, &["describe", "csr", "late"], |text| text.contains("SignerExpired"));
    write_ca(&folder, 3600);
    issued(&admin, "late");
    wait_for_output(&admin, &["get", "events", "-o", "json"], |events| events.contains("SignerExpired"));

    // A serving certificate for a node that does not exist.
    let node = crate::signing::serving_request(&folder, "node-serving", "n1");
    admin.ok_with(&node, &["create", "-f", "-", "--as=system:node:n1", "--as-group=system:nodes"]);
    wait_for_output(&admin, &["describe", "csr", "node-serving"], |text| text.contains("NodeNotFound"));

    // The root CA, before and after a change.
    let maps = ["get", "configmap", "kube-root-ca.crt", "-o", "jsonpath={.data.ca\\.crt}"];
    wait_for_output(&admin, &["get", "configmaps", "-o", "name"], |names| names.contains("kube-root-ca.crt"));
    let bundles = ["get", "clustertrustbundles", "-o", "name"];
    let old = wait_for_output(&admin, &bundles, |names| names.contains("kube-apiserver-serving"));
    let new = authority("new root", -60, 3600).certificate().to_pem();
    fs::write(&roots, &new).unwrap();
    wait_for_output(&admin, &maps, |text| text == new);
    wait_for_output(&admin, &bundles, |names| names.lines().count() == 1 && names != old);

    // A Bundle with targets in namespaces and in the cluster, and its removal from one of them.
    let root = authority("bundled", -60, 3600).certificate().to_pem();
    let target = json!({"configMap": {"key": "k"}, "clusterTrustBundle": {}});
    create(
        &admin,
        &json!({
            "apiVersion": "trust.cert-manager.io/v1alpha1", "kind": "Bundle",
            "metadata": {"name": "roots"},
            "spec": {"sources": [{"inLine": root}], "target": target},
        }),
    );
    admin.ok(&["wait", "--for=condition=Synced", "bundle/roots", "--timeout=30s"]);
    wait_for_output(&admin, &["get", "events", "-o", "json"], |events| events.contains("\"Synced\""));
    let nothing = r#"{"spec": {"target": null}}"#;
    admin.ok(&["patch", "bundle", "roots", "--type=merge", "--patch", nothing]);
    wait_for_output(&admin, &["get", "configmaps", "-o", "name"], |names| !names.contains("roots"));
    wait_for_output(&admin, &bundles, |names| !names.contains("/roots"));

    for verb in ["list", "watch", "delete"] {
        let whom = "--as=system:serviceaccount:kube-system:windlass-controllers";
        admin.ok(&["auth", "can-i", verb, "podcertificaterequests", "-A", whom]);
    }
    assert!(controllers.log().contains("became the leader"), "{}", controllers.log());
    was_never_refused(&admin, "windlass-controllers");
}

#[test]
fn the_role_of_kubernetes_is_enough_for_certificates() {
    let admin = audited();
    let name = "certificate-controller";
    admin.ok(&["--namespace=kube-system", "create", "serviceaccount", name]);
    let flags = ["--controllers=csrapproving,csrsigning,csrcleaner", "--leader-elect=false"];
    let flags = flags.into_iter().map(str::to_owned);
    let flags = flags.chain(write_ca(admin.server.place().path(), 4));
    let theirs = account(&admin, name);
    let _controllers = start_controllers(&admin.server, &theirs, "theirs", flags);
    create(&admin, &request("short"));
    issued(&admin, "short");
    wait_for_output(&admin, &["get", "csr", "-o", "name"], |names| !names.contains("short"));
    was_never_refused(&admin, name);
}
