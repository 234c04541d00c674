//! Common behavior of all commands: names, formats, addresses, interrupts, and readable errors.

use std::fs;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use windlass_testkit::{ChildProcess, wait_for};

use crate::controllers::{kubeconfig, server, start_controllers};
use crate::issue::{windlass, windlass_fails, windlass_ok};
use crate::kubectl::Kubectl;
use crate::server::{PATIENCE, TestDataDir, TestServer, lines, wait};

fn json(admin: &Kubectl, args: &[&str]) -> Value {
    serde_json::from_str(&windlass_ok(admin, args)).unwrap()
}

/// Starts `windlass issue` for a request of this name that nobody approves, and waits until the request exists.
fn pending(admin: &Kubectl, name: &str) -> std::process::Child {
    let args =
        ["issue", "--signer", "example.com/a", "--cn", "a", "--out", name, "--name", name, "--timeout", "0"];
    let mut command = windlass(admin, &args);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the request exists", || {
        windlass(admin, &["csr", "show", name]).output().unwrap().status.success()
    });
    child
}

#[test]
fn commands_take_the_names_and_print_the_formats() {
    let admin = Kubectl::new();
    let mut issue = pending(&admin, "first");
    let name = windlass_ok(&admin, &["csr", "list", "-o", "name"]);
    assert_eq!(name, "certificatesigningrequest.certificates.k8s.io/first\n");
    assert!(windlass_ok(&admin, &["csr", "show", name.trim()]).contains("example.com/a"));
    let denied = json(&admin, &["csr", "deny", name.trim(), "-o", "json"]);
    assert_eq!(denied["items"][0]["decision"], "denied", "{denied}");
    assert_eq!(windlass_ok(&admin, &["csr", "deny", name.trim(), "-o", "name"]), name);
    assert_eq!(wait(&mut issue, PATIENCE).unwrap().code(), Some(1));

    let made = json(&admin, &["token", "create", "-o", "json"]);
    let token = windlass_ok(&admin, &["token", "list", "-o", "name"]);
    let deleted = json(&admin, &["token", "delete", token.trim(), "-o", "json"]);
    assert_eq!(deleted["items"][0]["id"], made["id"], "{deleted}");

    let place = admin.server.place();
    let data = place.data();
    let data = data.to_str().unwrap();
    let added = json(&admin, &["user", "add", "alice", "-o", "json", "--data-dir", data]);
    assert_eq!((&added["name"], &added["kubeconfig"]), (&"alice".into(), &"alice.kubeconfig".into()));
    assert!(!place.path().join("json").exists() && place.path().join("alice.kubeconfig").exists());
    assert_eq!(json(&admin, &["can-i", "get", "pods", "-o", "json"])["allowed"], true);
    assert_eq!(json(&admin, &["version", "-o", "json"])["version"], env!("CARGO_PKG_VERSION"));
    let checked = json(&admin, &["store", "check", "--data-dir", data, "-o", "json"]);
    assert!(checked["objects"].as_u64().unwrap() > 0, "{checked}");
    assert!(windlass_ok(&admin, &["help", "issue"]).contains("--renew"));
}

/// Returns a kubeconfig with the contexts `first`, which is current, and `second`.
fn two_contexts(first: &Kubectl, second: &Kubectl) -> Value {
    let mut merged = serde_json::json!({ "apiVersion": "v1", "kind": "Config", "current-context": "first" });
    for (name, admin) in [("first", first), ("second", second)] {
        let text = fs::read_to_string(admin.server.place().data().join("admin.kubeconfig")).unwrap();
        let read: Value = serde_saphyr::from_str(&text).unwrap();
        let context = serde_json::json!({
            "name": name, "context": { "cluster": name, "user": name, "namespace": name },
        });
        let mut add = |list: &str, mut entry: Value| {
            entry["name"] = name.into();
            let entries = merged[list].as_array().cloned().unwrap_or_default();
            merged[list] = entries.into_iter().chain([entry]).collect();
        };
        add("clusters", read["clusters"][0].clone());
        add("users", read["users"][0].clone());
        add("contexts", context);
    }
    merged
}

#[test]
fn context_selects_the_server() {
    let (first, second) = (Kubectl::new(), Kubectl::new());
    let file = first.server.place().path().join("two.kubeconfig");
    fs::write(&file, two_contexts(&first, &second).to_string()).unwrap();
    let file = file.to_str().unwrap();
    let tokens = |flags: &[&str]| {
        let args = [&["token", "list", "-o", "name"], flags].concat();
        windlass_ok(&first, &args)
    };
    let created = ["token", "create", "-o", "name", "--kubeconfig", file, "--context", "second"];
    let created = windlass_ok(&first, &created);
    assert_eq!(tokens(&["--kubeconfig", file, "--context", "second"]), created);
    assert_eq!(tokens(&["--kubeconfig", file, "--context", "first"]), "");
    assert_eq!(tokens(&["--kubeconfig", file]), "", "the current context");
    // Without --kubeconfig, the context is looked up in $KUBECONFIG.
    let run = |context: &str| {
        let mut command = windlass(&first, &["token", "list", "-o", "name", "--context", context]);
        command.env("KUBECONFIG", file).output().unwrap()
    };
    assert_eq!(String::from_utf8(run("second").stdout).unwrap(), created);
    let absent = run("third");
    assert_eq!(absent.status.code(), Some(1));
    let absent = String::from_utf8(absent.stderr).unwrap();
    assert!(absent.contains("third"), "{absent}");
}

#[test]
fn an_interrupt_ends_with_130() {
    let admin = Kubectl::new();
    let mut issue = pending(&admin, "waits");
    let said = lines(issue.stderr.take().unwrap());
    // The signal handler is installed before this message.
    let mut heard = vec![said.recv_timeout(PATIENCE).unwrap()];
    let pid = Pid::from_raw(i32::try_from(issue.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(wait(&mut issue, PATIENCE).expect("it ends").code(), Some(130));
    heard.extend(said.iter());
    let last = heard.last().unwrap();
    assert_eq!(last, "windlass: interrupted: the key is discarded, waits remains");
    assert!(!admin.server.place().path().join("waits").exists());
}

#[test]
fn an_occupied_address_is_named() {
    let first = TestServer::start();
    let address = first.address.to_string();
    let place = TestDataDir::new();
    for (flag, mut command) in [
        ("--listen", place.up_command(&address)),
        ("--metrics-listen", {
            let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
            command.args(["controllers", "--leader-elect=false", "--metrics-listen", &address]);
            command.arg("--kubeconfig").arg(first.kubeconfig());
            command
        }),
        ("--metrics-listen", {
            let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
            command.args(["node", "--node-name", "n", "--metrics-listen", &address, "--cert-dir"]);
            command.arg(place.path().join("pki")).arg("--kubeconfig").arg(first.kubeconfig());
            command
        }),
    ] {
        let output = command.output().unwrap();
        let reported = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{reported}");
        let wanted =
            format!("windlass: cannot listen on {address}: the address is in use by another process; ");
        let last = reported.lines().last().unwrap();
        assert!(last.starts_with(&wanted) && last.ends_with(&format!("with {flag}")), "{reported}");
    }
}

#[test]
fn a_host_name_is_resolved() {
    let place = TestDataDir::new();
    let command = place.up_command("localhost:0");
    let server = place.launch(command);
    assert!(server.address.ip().is_loopback());
}

#[test]
fn the_wrong_server_is_named_with_the_cause() {
    let (admin, other) = (Kubectl::new(), TestServer::start());
    let path = admin.server.place().path();
    let text = fs::read_to_string(&admin.kubeconfig).unwrap();
    let wrong = text.replace(&admin.server.address.to_string(), &other.address.to_string());
    fs::write(path.join("wrong"), wrong).unwrap();
    for command in [
        &["csr", "list"][..],
        &["can-i", "get", "pods"],
        &["token", "list"],
        &["trust", "status"],
        &["bundle", "status", "a"],
        &["controllers", "--leader-elect=false"],
        &["issue", "--signer", "example.com/a", "--cn", "a", "--out", "a"],
    ] {
        let reported = windlass_fails(&admin, &[command, &["--kubeconfig", "wrong"]].concat());
        let words =
            format!("https://{}: the server's certificate is signed by an unknown authority", other.address);
        let last = reported.lines().last().unwrap();
        assert!(last.contains(&words), "{command:?}: {reported}");
    }
}

#[test]
fn a_missing_permission_is_logged_once() {
    let place = TestDataDir::new();
    let tokens = fs::read_to_string(place.path().join("tokens.csv")).unwrap();
    fs::write(place.path().join("tokens.csv"), tokens + "weak-token,weak,weak-uid,\"nobodies\"\n").unwrap();
    let server = server(place, [""; 0]);
    let weak = kubeconfig(&server, "weak", "weak-token");
    let flags = ["--leader-elect=false", "-v", "--controllers=csrcleaner"];
    let controllers = start_controllers(&server, &weak, "weak", flags);
    wait_for("the watch is retried", || controllers.log().matches("still cannot watch").count() >= 3);
    let log = controllers.log();
    let warned = log.lines().filter(|line| line.contains("cannot watch; retrying")).collect::<Vec<_>>();
    let [warned] = warned.as_slice() else { panic!("{log}") };
    // The text format quotes values.
    let warned = warned.replace('\\', "");
    assert!(warned.contains("is forbidden: User \"weak\" cannot "), "{warned}");
    for dump in ["Status {", "ApiError", "Some("] {
        assert!(!log.contains(dump), "{dump} in {log}");
    }
}

#[test]
fn a_kubeconfig_that_is_not_written_is_not_announced() {
    let other = TestServer::start();
    let pki = |name: &str| other.place().data().join("pki").join(name);
    let place = TestDataDir::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args(["server", "--listen", "127.0.0.1:0", "--data-dir"]).arg(place.data());
    command.arg("--tls-cert-file").arg(pki("server.crt"));
    command.arg("--tls-private-key-file").arg(pki("server.key"));
    let process = ChildProcess::spawn(&mut command, &place.path().join("server.log"));
    let ready = process.line(PATIENCE);
    let url = ready.strip_prefix("windlass is ready at ").unwrap();
    assert!(!url.contains("kubeconfig"), "{ready}");
    assert!(place.log().contains("run: windlass user add NAME"), "{}", place.log());
    let user = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command.args(["user", "add", "alice", "--data-dir"]).arg(place.data()).args(args);
        command.current_dir(place.path()).output().unwrap()
    };
    let reported = String::from_utf8(user(&[]).stderr).unwrap();
    assert!(reported.contains("set its URL with --server"), "{reported}");
    let ca = pki("ca.crt");
    let added = user(&["--server", url, "--certificate-authority", ca.to_str().unwrap()]);
    assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
    let mut asked = Command::new(env!("CARGO_BIN_EXE_windlass"));
    asked.args(["can-i", "create", "selfsubjectaccessreviews", "--kubeconfig"]);
    let asked = asked.arg(place.path().join("alice.kubeconfig")).output().unwrap();
    assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
}
