//! `kubectl`, as users run it.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::thread;

use serde_json::Value;
use tempfile::TempDir;
use windlass_testkit::wait_for;

use crate::server::{PATIENCE, TestServer, lines};

/// kubectl with a server and a home directory without a cache.
pub struct Kubectl {
    pub server: Arc<TestServer>,
    pub kubeconfig: PathBuf,
    token: Option<String>,
    home: TempDir,
}

impl Kubectl {
    /// Authenticates as the administrator of a new server.
    pub fn new() -> Self {
        Self::with_server(TestServer::start())
    }

    /// Authenticates as the administrator of this server.
    pub fn with_server(server: TestServer) -> Self {
        let (kubeconfig, home) = (server.kubeconfig(), tempfile::tempdir().unwrap());
        Self { server: Arc::new(server), kubeconfig, token: None, home }
    }

    /// Authenticates with another kubeconfig at the same server.
    pub fn with_kubeconfig(&self, kubeconfig: PathBuf) -> Self {
        let server = self.server.clone();
        Self { server, kubeconfig, token: None, home: tempfile::tempdir().unwrap() }
    }

    /// Authenticates with a token at the same server; the kubeconfig contains its URL and no
    /// credentials.
    pub fn with_token(&self, token: &str) -> Self {
        let text = std::fs::read_to_string(&self.kubeconfig).unwrap();
        let anonymous: Vec<&str> = text.lines().filter(|line| !line.contains("client-")).collect();
        let somebody = self.with_kubeconfig(self.home.path().join("anonymous.kubeconfig"));
        std::fs::write(&somebody.kubeconfig, anonymous.join("\n").replace("  user:\n", "  user: {}\n"))
            .unwrap();
        Self { token: Some(token.to_owned()), ..somebody }
    }

    fn command(&self, args: &[&str]) -> Command {
        let program = std::env::var_os("WINDLASS_KUBECTL").unwrap_or(OsString::from("kubectl"));
        let mut command = Command::new(program);
        command
            .env("HOME", self.home.path())
            .env("KUBECONFIG", &self.kubeconfig)
            .args(args)
            .args(self.token.iter().flat_map(|token| ["--token", token]))
            .stdin(Stdio::null());
        command
    }

    /// Runs kubectl with this standard input.
    fn feed(&self, input: &str, args: &[&str]) -> Output {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl must be installed (cargo xtask test does it)");
        // kubectl may exit without reading its input; its output shows why.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    }

    /// Returns the output; kubectl must succeed.
    pub fn ok(&self, args: &[&str]) -> String {
        self.ok_with("", args)
    }

    pub fn ok_with(&self, input: &str, args: &[&str]) -> String {
        let output = self.feed(input, args);
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success(),
            "kubectl {args:?}: {}\n{stdout}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        stdout
    }

    /// Returns the error message; kubectl must fail.
    pub fn fails(&self, args: &[&str]) -> String {
        self.fails_with("", args)
    }

    pub fn fails_with(&self, input: &str, args: &[&str]) -> String {
        let output = self.feed(input, args);
        assert!(!output.status.success(), "kubectl {args:?} should fail");
        String::from_utf8(output.stderr).unwrap()
    }

    pub fn json(&self, args: &[&str]) -> Value {
        let args = [args, &["-o", "json"]].concat();
        serde_json::from_str(&self.ok(&args)).unwrap()
    }

    /// Returns the minor version of the client.
    pub fn minor(&self) -> u32 {
        let version = self.ok(&["version", "--client", "-o", "json"]);
        let version: Value = serde_json::from_str(&version).unwrap();
        let minor = version["clientVersion"]["minor"].as_str().unwrap();
        minor.trim_end_matches('+').parse().unwrap()
    }
}

/// Returns a ConfigMap manifest with one key.
fn manifest(name: &str, key: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  {key}: \"{value}\"\n")
}

/// Returns the columns of the header line.
fn columns(table: &str) -> Vec<&str> {
    let head = table.lines().next().unwrap_or_default();
    // NOMINATED NODE and READINESS GATES contain one space; columns are at least two apart.
    head.split("  ").map(str::trim).filter(|column| !column.is_empty()).collect()
}

#[test]
fn create_get_delete() {
    let kubectl = Kubectl::new();
    let created = kubectl.ok(&["create", "configmap", "greeting", "--from-literal=hello=world"]);
    assert_eq!(created, "configmap/greeting created\n");
    let again = kubectl.fails(&["create", "configmap", "greeting"]);
    assert!(again.contains("configmaps \"greeting\" already exists"), "{again}");

    let table = kubectl.ok(&["get", "configmaps", "greeting", "-o", "wide"]);
    assert_eq!(columns(&table), ["NAME", "DATA", "AGE"]);
    assert!(table.lines().nth(1).unwrap().starts_with("greeting"), "{table}");
    let yaml = kubectl.ok(&["get", "configmap", "greeting", "-o", "yaml"]);
    assert!(yaml.contains("\n  hello: world\n"), "{yaml}");
    let json = kubectl.json(&["get", "configmap", "greeting"]);
    assert_eq!(json["data"]["hello"], "world");
    assert_eq!(kubectl.json(&["get", "configmaps"])["kind"], "List");

    let deleted = kubectl.ok(&["delete", "configmap", "greeting"]);
    assert!(deleted.starts_with("configmap \"greeting\" deleted"), "{deleted}");
    let missing = kubectl.fails(&["get", "configmap", "greeting"]);
    assert_eq!(missing, "Error from server (NotFound): configmaps \"greeting\" not found\n");
}

#[test]
fn delete_all() {
    let kubectl = Kubectl::new();
    for name in ["a", "b", "c"] {
        kubectl.ok(&["create", "secret", "generic", name, "--from-literal=k=v"]);
    }
    kubectl.ok(&["delete", "secrets", "--all"]);
    assert_eq!(kubectl.ok(&["get", "secrets", "-o", "name"]), "");
}

#[test]
fn apply_is_created_then_unchanged_then_configured() {
    let kubectl = Kubectl::new();
    let apply = |value| kubectl.ok_with(&manifest("applied", "key", value), &["apply", "-f", "-"]);
    assert_eq!(apply("one"), "configmap/applied created\n");
    assert_eq!(apply("one"), "configmap/applied unchanged\n");
    assert_eq!(apply("two"), "configmap/applied configured\n");
    assert_eq!(kubectl.json(&["get", "configmap", "applied"])["data"]["key"], "two");

    // Fields removed from the manifest are removed from the object.
    kubectl.ok_with(&manifest("applied", "other", "three"), &["apply", "-f", "-"]);
    let applied = kubectl.json(&["get", "configmap", "applied"]);
    assert_eq!(applied["data"], serde_json::json!({"other": "three"}));
}

#[test]
fn server_side_apply_and_its_conflict() {
    let kubectl = Kubectl::new();
    let args = ["apply", "--server-side", "-f", "-"];
    let one = manifest("shared", "key", "one");
    assert_eq!(kubectl.ok_with(&one, &args), "configmap/shared serverside-applied\n");
    assert_eq!(kubectl.ok_with(&one, &args), "configmap/shared serverside-applied\n");

    let other = [&args[..], &["--field-manager=other"]].concat();
    let two = manifest("shared", "key", "two");
    let conflict = kubectl.fails_with(&two, &other);
    assert!(
        conflict.contains("Apply failed with 1 conflict: conflict with \"kubectl\": .data.key"),
        "{conflict}"
    );
    let forced = [&other[..], &["--force-conflicts"]].concat();
    kubectl.ok_with(&two, &forced);
    let shared = kubectl.json(&["get", "configmap", "shared", "--show-managed-fields"]);
    assert_eq!(shared["data"]["key"], "two");
    let managers: Vec<&str> = shared["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["fieldsV1"].get("f:data").is_some())
        .map(|entry| entry["manager"].as_str().unwrap())
        .collect();
    // The first manager still owns the map, but not the key.
    assert!(managers.contains(&"other"), "{shared:#}");
}

#[test]
fn strict_validation_names_the_unknown_field() {
    let kubectl = Kubectl::new();
    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: odd\nmore: yes\n";
    let refused = kubectl.fails_with(manifest, &["create", "--validate=strict", "-f", "-"]);
    assert!(refused.contains("unknown field \"more\""), "{refused}");
    let ignored = ["create", "--validate=ignore", "-f", "-"];
    kubectl.ok_with(manifest, &ignored);
}

#[test]
fn describe() {
    let kubectl = Kubectl::new();
    kubectl.ok(&["create", "configmap", "told", "--from-literal=hello=world"]);
    let reported = kubectl.ok(&["describe", "configmap", "told"]);
    for part in ["Name:         told", "Namespace:    default", "hello:\n----\nworld"] {
        assert!(reported.contains(part), "{part:?} in\n{reported}");
    }
    let namespace = kubectl.ok(&["describe", "namespace", "default"]);
    assert!(namespace.contains("Status:       Active"), "{namespace}");
}

#[test]
fn explain() {
    let kubectl = Kubectl::new();
    let config_map = kubectl.ok(&["explain", "configmap"]);
    for part in ["ConfigMap", "binaryData", "immutable"] {
        assert!(config_map.contains(part), "{part:?} in\n{config_map}");
    }
    let volumes = kubectl.ok(&["explain", "pod.spec.volumes"]);
    for part in ["projected", "configMap", "emptyDir"] {
        assert!(volumes.contains(part), "{part:?} in\n{volumes}");
    }
    let unknown = kubectl.fails(&["explain", "pod.spec.nothing"]);
    assert!(unknown.contains("field \"nothing\" does not exist"), "{unknown}");
}

#[test]
fn patches_of_three_kinds() {
    let kubectl = Kubectl::new();
    kubectl.ok(&["create", "configmap", "patched", "--from-literal=a=1", "--from-literal=b=2"]);
    let patch = |kind: &str, name: &str, how: &str, patch: &str| {
        kubectl.ok(&["patch", kind, name, "--type", how, "-p", patch])
    };
    let merged = patch("configmap", "patched", "merge", r#"{"data":{"a":null,"c":"3"}}"#);
    assert_eq!(merged, "configmap/patched patched\n");
    let nothing = patch("configmap", "patched", "merge", r#"{"data":{"c":"3"}}"#);
    assert_eq!(nothing, "configmap/patched patched (no change)\n");
    let json =
        r#"[{"op":"test","path":"/data/b","value":"2"},{"op":"move","from":"/data/b","path":"/data/d"}]"#;
    patch("configmap", "patched", "json", json);
    let data = kubectl.json(&["get", "configmap", "patched"])["data"].clone();
    assert_eq!(data, serde_json::json!({"c": "3", "d": "2"}));

    // A list with a merge key grows with a strategic merge patch.
    kubectl.ok(&["create", "serviceaccount", "robot"]);
    patch("serviceaccount", "robot", "strategic", r#"{"secrets":[{"name":"one"}]}"#);
    patch("serviceaccount", "robot", "strategic", r#"{"secrets":[{"name":"two"}]}"#);
    let robot = kubectl.json(&["get", "serviceaccount", "robot"]);
    assert_eq!(robot["secrets"].as_array().unwrap().len(), 2, "{robot:#}");
}

#[test]
fn labels_annotations_and_selectors() {
    let kubectl = Kubectl::new();
    for name in ["red", "blue"] {
        kubectl.ok(&["create", "configmap", name]);
    }
    kubectl.ok(&["label", "configmap", "red", "colour=red", "size=big"]);
    kubectl.ok(&["label", "configmap", "blue", "colour=blue"]);
    let refused = kubectl.fails(&["label", "configmap", "red", "colour=green"]);
    assert!(refused.contains("--overwrite is false"), "{refused}");
    kubectl.ok(&["label", "configmap", "red", "colour=green", "size-", "--overwrite"]);
    kubectl.ok(&["annotate", "configmap", "red", "note=hello there"]);

    let names = |selector| kubectl.ok(&["get", "configmaps", "-o", "name", "-l", selector]);
    assert_eq!(names("colour in (green,blue)"), "configmap/blue\nconfigmap/red\n");
    assert_eq!(names("colour=green,!size"), "configmap/red\n");
    assert_eq!(names("size"), "");
    let field = ["get", "configmaps", "-o", "name", "--field-selector", "metadata.name=blue"];
    assert_eq!(kubectl.ok(&field), "configmap/blue\n");
    let red = kubectl.json(&["get", "configmap", "red"]);
    assert_eq!(red["metadata"]["annotations"]["note"], "hello there");
}

#[test]
fn wait_for_a_value_and_for_the_end() {
    let kubectl = Kubectl::new();
    kubectl.ok(&["create", "configmap", "job", "--from-literal=state=running"]);
    if kubectl.minor() >= 23 {
        thread::scope(|scope| {
            let condition = "--for=jsonpath={.data.state}=done";
            let waiting = scope.spawn(|| kubectl.ok(&["wait", condition, "configmap/job", "--timeout=30s"]));
            kubectl.ok(&["patch", "configmap", "job", "--type=merge", "-p", r#"{"data":{"state":"done"}}"#]);
            assert_eq!(waiting.join().unwrap(), "configmap/job condition met\n");
        });
    } else {
        // Printed, because a skipped part of the test must not look like one that passed.
        eprintln!("kubectl 1.{} cannot wait for a value; only the end is waited for", kubectl.minor());
    }
    thread::scope(|scope| {
        let waiting = scope.spawn(|| kubectl.ok(&["wait", "--for=delete", "configmap/job", "--timeout=30s"]));
        kubectl.ok(&["delete", "configmap", "job"]);
        waiting.join().unwrap();
    });
}

#[test]
fn get_watch_sees_events() {
    let kubectl = Kubectl::new();
    kubectl.ok(&["create", "configmap", "before"]);
    let mut watch = kubectl
        .command(&["get", "configmaps", "-w", "--output-watch-events"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let events = lines(watch.stdout.take().unwrap());
    // `kube-root-ca.crt` may be listed too; the header is repeated when the columns change.
    let next = || loop {
        let line = events.recv_timeout(PATIENCE).expect("an event");
        let words: Vec<&str> = line.split_whitespace().take(2).collect();
        if !matches!(words[..], ["EVENT", _] | [_, "kube-root-ca.crt"]) {
            return words.join(" ");
        }
    };
    assert_eq!(next(), "ADDED before");
    kubectl.ok(&["create", "configmap", "after"]);
    assert_eq!(next(), "ADDED after");
    kubectl.ok(&["label", "configmap", "after", "a=b"]);
    assert_eq!(next(), "MODIFIED after");
    kubectl.ok(&["delete", "configmap", "after"]);
    assert_eq!(next(), "DELETED after");
    watch.kill().unwrap();
    watch.wait().unwrap();
}

#[test]
fn discovery_and_version() {
    let kubectl = Kubectl::new();
    let resources = kubectl.ok(&["api-resources", "--no-headers", "-o", "wide"]);
    for resource in ["configmaps", "leases", "nodes", "csidrivers", "runtimeclasses", "resourceslices"] {
        let found = resources.lines().any(|line| line.split_whitespace().next() == Some(resource));
        assert!(found, "{resource} in\n{resources}");
    }
    let versions = kubectl.ok(&["api-versions"]);
    for version in ["v1", "coordination.k8s.io/v1", "events.k8s.io/v1"] {
        assert!(versions.lines().any(|line| line == version), "{version} in\n{versions}");
    }
    let version: Value = serde_json::from_str(&kubectl.ok(&["version", "-o", "json"])).unwrap();
    assert_eq!(version["serverVersion"]["major"], "1", "{version:#}");
    assert_eq!(kubectl.ok(&["get", "--raw", "/readyz"]), "ok");
    // Short names and groups.
    kubectl.ok(&["get", "cm,ns,sa,no,po,svc,pv,pvc,ev"]);
    kubectl.ok(&["get", "leases.coordination.k8s.io", "-A"]);
}

#[test]
fn a_pod_and_its_wide_columns() {
    let kubectl = Kubectl::new();
    let pod = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n  containers:\n  - name: web\n    image: example.com/web:1\n    volumeMounts:\n    - {name: all, mountPath: /all}\n  volumes:\n  - name: all\n    projected:\n      defaultMode: 0640\n      sources:\n      - configMap: {name: web}\n      - downwardAPI:\n          items:\n          - {path: name, fieldRef: {fieldPath: metadata.name}}\n";
    kubectl.ok_with(pod, &["create", "-f", "-"]);
    let table = kubectl.ok(&["get", "pods", "-o", "wide"]);
    let expected =
        ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "NOMINATED NODE", "READINESS GATES"];
    assert_eq!(columns(&table), expected);
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..3], ["web", "0/1", "Pending"], "{table}");
    let web = kubectl.json(&["get", "pod", "web"]);
    assert_eq!(web["spec"]["volumes"][0]["projected"]["defaultMode"], 0o640);
    kubectl.ok(&["describe", "pod", "web"]);
    kubectl.ok(&["delete", "pod", "web", "--grace-period=0", "--force"]);
}

#[test]
fn service_account_tokens_are_issued() {
    let kubectl = Kubectl::new();
    kubectl.ok(&["create", "serviceaccount", "robot"]);
    let token = kubectl.ok(&["create", "token", "robot"]);
    assert_eq!(token.trim().split('.').count(), 3, "{token}");
}

#[test]
fn deleting_a_namespace_deletes_its_content() {
    let kubectl = Kubectl::new();
    kubectl.ok(&["create", "namespace", "short"]);
    kubectl.ok(&["create", "configmap", "inside", "-n", "short"]);
    kubectl.ok(&["create", "secret", "generic", "inside", "-n", "short"]);
    let account = ["get", "serviceaccount", "default", "-n", "short", "--ignore-not-found", "-o", "name"];
    wait_for("default service account", || !kubectl.ok(&account).is_empty());
    kubectl.ok(&["delete", "namespace", "short", "--timeout=30s"]);
    let gone = kubectl.fails(&["get", "namespace", "short"]);
    assert!(gone.contains("namespaces \"short\" not found"), "{gone}");
    for kind in ["configmaps", "secrets", "serviceaccounts"] {
        assert_eq!(kubectl.ok(&["get", kind, "-n", "short", "-o", "name"]), "", "{kind}");
    }
    let late = kubectl.fails(&["create", "configmap", "late", "-n", "short"]);
    assert!(late.contains("namespaces \"short\" not found"), "{late}");
}
