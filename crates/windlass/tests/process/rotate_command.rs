//! `windlass rotate` on a server without controllers: the tests write the status of rotations themselves, so that
//! every state can be shown.

mod on_terminal;

use std::process::{Child, Output, Stdio};
use std::sync::mpsc::Receiver;

use serde_json::{Value, json};

use crate::access::add_user;
use crate::cert_command::ledger_seed::{LedgerSeed, node_record, record};
use crate::controllers::server;
use crate::issue::{windlass, windlass_fails, windlass_ok};
use crate::kubectl::Kubectl;
use crate::server::{PATIENCE, TestDataDir, lines, wait};

const SIGNER: &str = "example.com/web";
const OLD: &str = "3f6c2e0d8a51b7940c1e5d2f6a7b8c9d0e1f2a3b";
const ROTATIONS: &str = "/apis/windlass.dev/v1alpha1/carotations";

/// Starts a server with the Signer `web` and its active CA.
fn signer_server() -> Kubectl {
    let admin = Kubectl::with_server(server(TestDataDir::new(), [""; 0]));
    let signer = json!({
        "apiVersion": "windlass.dev/v1alpha1", "kind": "Signer", "metadata": {"name": "web"},
        "spec": {"signerName": SIGNER, "ca": {"selfSigned": {}}, "pods": {"serviceNames": true}, "publish": {}},
    });
    admin.ok_with(&signer.to_string(), &["create", "-f", "-"]);
    let condition = json!({"type": "Ready", "status": "True", "reason": "Ready", "message": "",
                           "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let authority = json!({"id": OLD, "state": "Active", "subject": "CN=web"});
    let status = json!({"conditions": [condition], "authorities": [authority]});
    set_status(&admin, "/apis/windlass.dev/v1alpha1/signers/web", status);
    admin
}

fn set_status(admin: &Kubectl, path: &str, status: Value) {
    let mut object: Value = serde_json::from_str(&admin.ok(&["get", "--raw", path])).unwrap();
    object["status"] = status;
    admin.ok_with(&object.to_string(), &["replace", "--raw", &format!("{path}/status"), "-f", "-"]);
}

fn set_rotation(admin: &Kubectl, name: &str, status: Value) {
    set_status(admin, &format!("{ROTATIONS}/{name}"), status);
}

fn spec(admin: &Kubectl, name: &str) -> Value {
    let object: Value =
        serde_json::from_str(&admin.ok(&["get", "--raw", &format!("{ROTATIONS}/{name}")])).unwrap();
    object["spec"].clone()
}

/// Starts a rotation; returns its name.
fn start(admin: &Kubectl, flags: &[&str]) -> String {
    let args: Vec<&str> = [&["rotate", "start", SIGNER, "-o", "name"], flags].concat();
    let said = windlass_ok(admin, &args);
    let name = said.trim().strip_prefix("carotation.windlass.dev/").unwrap().to_owned();
    assert!(name.starts_with("web.example.com-"), "{name}");
    name
}

/// A status that is held by two consumers.
fn held_status() -> Value {
    let condition = json!({"type": "Held", "status": "True", "reason": "ConsumersNotRead",
        "message": "2 consumers have not read the file", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let laggard = |name: &str, reason: &str| json!({"kind": "Node", "name": name, "reason": reason});
    json!({
        "phase": "WaitingForTrust", "conditions": [condition],
        "oldAuthority": {"id": OLD}, "consumers": {"total": 4, "written": 4, "read": 2, "notRead": 2},
        "leaves": {"outstanding": 3, "renewed": 1, "latestExpiry": "2999-01-01T00:00:00Z"},
        "laggards": [laggard("node/n1/host/nginx", "NotRead"), laggard("node/n2/shop/web-0/trust", "NotReporting")],
        "steps": [{"phase": "Preparing", "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:01Z"},
                  {"phase": "WaitingForTrust", "startTime": "2026-01-01T00:00:01Z"}],
        "earliestRetirementTime": "2999-01-01T00:00:00Z",
    })
}

/// Runs a command that exits with this code; returns standard output and error.
fn run(admin: &Kubectl, code: i32, args: &[&str]) -> (String, String) {
    let Output { status, stdout, stderr } = windlass(admin, args).output().unwrap();
    let [out, err] = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
    assert_eq!(status.code(), Some(code), "{args:?}: {out}\n{err}");
    (out, err)
}

/// A command that runs until the rotation changes.
struct RunningCommand {
    child: Child,
    lines: Receiver<String>,
}

impl RunningCommand {
    /// Reads standard error if `errors`, else standard output.
    fn start(admin: &Kubectl, args: &[&str], errors: bool) -> Self {
        let mut command = windlass(admin, args);
        command.stdout(if errors { Stdio::null() } else { Stdio::piped() });
        let mut child = command.stderr(if errors { Stdio::piped() } else { Stdio::null() }).spawn().unwrap();
        let lines = match errors {
            true => lines(child.stderr.take().unwrap()),
            false => lines(child.stdout.take().unwrap()),
        };
        Self { child, lines }
    }

    fn wait_for_line(&self, words: &str) -> String {
        let mut heard = Vec::new();
        loop {
            let Ok(line) = self.lines.recv_timeout(PATIENCE) else { panic!("no {words:?} in {heard:#?}") };
            if line.contains(words) {
                return line;
            }
            heard.push(line);
        }
    }

    fn exit_code(mut self) -> Option<i32> {
        wait(&mut self.child, PATIENCE).expect("it ends").code()
    }
}

#[test]
fn a_rotation_is_started_shown_and_changed() {
    let admin = signer_server();
    let (out, err) = run(&admin, 0, &["rotate", "status"]);
    assert_eq!((out.as_str(), err.as_str()), ("", "windlass: no rotations found\n"));
    let none = windlass_fails(&admin, &["rotate", "pause", SIGNER]);
    assert!(none.contains("example.com/web has no rotation; start one with windlass rotate start"), "{none}");

    let name =
        start(&admin, &["--no-require-read", "--renewal-window", "5m", "--retire-not-before", "2999-01-31"]);
    let wanted = json!({"signerName": SIGNER, "requireRead": false, "renewalWindow": "5m",
                        "retirement": {"notBefore": "2999-01-31T00:00:00Z"}});
    assert_eq!(spec(&admin, &name), wanted);
    let again = windlass_fails(&admin, &["rotate", "start", SIGNER]);
    let wanted = format!(
        "rotation {name} of {SIGNER} is running, not started yet; follow it with windlass rotate status"
    );
    assert!(again.contains(&wanted), "{again}");
    let again = windlass_fails(&admin, &["rotate", "start", SIGNER, "--compromised", "--yes"]);
    let wanted = format!(
        "kubectl patch carotation {name} --type merge -p '{{\"spec\":{{\"compromised\":true}}}}'; if"
    );
    assert!(again.contains(&wanted), "{again}");
    let unknown = windlass_fails(&admin, &["rotate", "start", "example.com/wbe"]);
    assert!(
        unknown.contains("signer example.com/wbe does not exist; the server has example.com/web"),
        "{unknown}"
    );

    set_rotation(&admin, &name, held_status());
    let shown = windlass_ok(&admin, &["rotate", "status", SIGNER]);
    for words in [
        "[>] WaitingForTrust",
        "Consumers read     [##############--------------] 2 of 4, 2 not read",
        "Leaves renewed     [#######---------------------] 1 of 4, 3 outstanding",
        ": ConsumersNotRead: 2 consumers have not read the file",
        "node/n1/host/nginx         NotRead",
        &format!("windlass rotate exclude {name} NODE"),
        "Earliest retirement: 2999-01-31T00:00:00Z",
    ] {
        assert!(shown.contains(words), "{words} in\n{shown}");
    }
    let all = windlass_ok(&admin, &["rotate", "status"]);
    assert!(all.starts_with("NAME ") && all.ends_with(&shown), "{all}");
    let full = format!("carotation.windlass.dev/{name}");
    assert_eq!(windlass_ok(&admin, &["rotate", "status", "-o", "name"]), format!("{full}\n"));
    let json: Value =
        serde_json::from_str(&windlass_ok(&admin, &["rotate", "status", &full, "-o", "json"])).unwrap();
    let yaml: Value =
        serde_saphyr::from_str(&windlass_ok(&admin, &["rotate", "status", &name, "-o", "yaml"])).unwrap();
    assert_eq!((&json["status"]["phase"], &json), (&json!("WaitingForTrust"), &yaml));

    assert_eq!(windlass_ok(&admin, &["rotate", "pause", SIGNER]), format!("{full} paused\n"));
    assert_eq!(windlass_ok(&admin, &["rotate", "pause", &full]), format!("{full} already paused\n"));
    assert_eq!(windlass_ok(&admin, &["rotate", "resume", &name]), format!("{full} resumed\n"));
    let said = windlass_ok(&admin, &["rotate", "exclude", SIGNER, "n2", "node/n7"]);
    assert_eq!(said, format!("{full} does not wait for n2, n7\n"));
    let (_, warned) = run(&admin, 0, &["rotate", "accept", SIGNER, "node/n1/host/nginx", "bundle/roots"]);
    assert_eq!(warned, "windlass: bundle/roots is not among the laggards of the rotation\n");
    let said = windlass_ok(&admin, &["rotate", "retire", SIGNER]);
    assert!(
        said.contains("outstanding: 3 certificates, the last until 2999-01-01T00:00:00Z; list them with"),
        "{said}"
    );
    let refused = windlass_fails(&admin, &["rotate", "retire", SIGNER, "--accept-outstanding"]);
    assert!(refused.contains("confirmation needs a terminal; add --yes"), "{refused}");
    windlass_ok(&admin, &["rotate", "retire", SIGNER, "--accept-outstanding", "--yes"]);
    assert_eq!(windlass_ok(&admin, &["rotate", "rollback", SIGNER]), format!("{full} rolling back\n"));
    let wanted = json!({
        "signerName": SIGNER, "requireRead": false, "renewalWindow": "5m",
        "retirement": {"acceptOutstandingLeaves": true}, "rollback": true,
        "excludedNodes": ["n2", "n7"], "acceptedConsumers": ["node/n1/host/nginx", "bundle/roots"],
    });
    assert_eq!(spec(&admin, &name), wanted);

    set_rotation(&admin, &name, json!({"phase": "RolledBack"}));
    let ended = windlass_fails(&admin, &["rotate", "pause", SIGNER]);
    assert!(ended.contains(&format!("rotation {name} has ended (RolledBack); start another one")), "{ended}");
    assert_ne!(start(&admin, &[]), name);
}

#[test]
fn concurrent_changes_are_all_kept() {
    let admin = signer_server();
    let name = start(&admin, &[]);
    let nodes: Vec<String> = (0..8).map(|number| format!("n{number}")).collect();
    let children: Vec<Child> = nodes
        .iter()
        .map(|node| {
            let mut command = windlass(&admin, &["rotate", "exclude", SIGNER, node]);
            command.stdout(Stdio::null()).spawn().unwrap()
        })
        .collect();
    for mut child in children {
        assert!(wait(&mut child, PATIENCE).expect("it ends").success());
    }
    let spec = spec(&admin, &name);
    let mut found: Vec<&str> =
        spec["excludedNodes"].as_array().unwrap().iter().map(|node| node.as_str().unwrap()).collect();
    found.sort_unstable();
    assert_eq!(found, nodes);
}

#[test]
fn waiting_ends_with_the_rotation() {
    let admin = signer_server();
    for (status, code) in [
        (json!({"phase": "Completed"}), 0),
        (json!({"phase": "RolledBack"}), 1),
        (json!({"phase": "Failed", "message": "another rotation runs"}), 1),
    ] {
        let command =
            RunningCommand::start(&admin, &["rotate", "start", SIGNER, "--wait", "--timeout", "0"], true);
        let line = command.wait_for_line(" started");
        let name = line.rsplit('/').next().unwrap().trim_end_matches(" started").to_owned();
        set_rotation(&admin, &name, held_status());
        let line = command.wait_for_line("held: ConsumersNotRead");
        assert!(line.contains("waits for node/n1/host/nginx, node/n2/shop/web-0/trust"), "{line}");
        set_rotation(&admin, &name, status.clone());
        assert_eq!(command.exit_code(), Some(code), "{status}");
    }
    // Nobody takes it up.
    let (out, err) = run(&admin, 2, &["rotate", "start", SIGNER, "--wait", "--timeout", "1s"]);
    assert!(err.contains("held for longer than 1s; the rotation continues by itself"), "{err}");
    assert!(out.contains("not started; no controller has reported yet"), "{out}");
}

#[test]
fn changes_are_printed_while_watching() {
    let admin = signer_server();
    let name = start(&admin, &[]);
    let command = RunningCommand::start(&admin, &["rotate", "status", SIGNER, "--watch"], false);
    command.wait_for_line(&format!(" {name} -"));
    set_rotation(&admin, &name, held_status());
    let line = command.wait_for_line("WaitingForTrust, held: ConsumersNotRead, written 4/4, read 2/4");
    assert!(!line.contains('\u{1b}'), "{line}");
    set_rotation(&admin, &name, json!({"phase": "Completed"}));
    command.wait_for_line("Completed");
    assert_eq!(command.exit_code(), Some(0));
}

#[test]
fn a_plan_names_consumers_and_certificates() {
    let admin = signer_server();
    let bundle = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "ClusterTrustBundle",
        "metadata": {"name": "example.com:web:anchors"},
        "spec": {"signerName": SIGNER, "trustBundle": crate::signing::authority("web", -60, 3600).certificate().to_pem()},
    });
    admin.ok_with(&bundle.to_string(), &["create", "-f", "-"]);
    let trust = json!({
        "apiVersion": "windlass.dev/v1alpha1", "kind": "NodeTrust", "metadata": {"name": "n1"},
        "status": {"volumes": 1, "blocked": 1, "bundles": 0, "sources": [{
            "signerName": SIGNER, "labelSelector": {}, "volumes": ["host/nginx"], "message": "disk full",
        }]},
    });
    admin.ok_with(&trust.to_string(), &["create", "-f", "-"]);
    let mut seed = LedgerSeed::new();
    seed.issue(record("0c01", OLD, SIGNER, 90));
    seed.issue(node_record("0a01", OLD, "n1", 0));
    seed.store(&admin);

    let plan: Value =
        serde_json::from_str(&windlass_ok(&admin, &["rotate", "plan", SIGNER, "-o", "json"])).unwrap();
    assert_eq!(plan["oldAuthority"]["id"], OLD);
    assert_eq!(plan["nodes"][0]["volumes"], json!(["host/nginx"]));
    assert_eq!(
        (&plan["leaves"]["outstanding"], &plan["leaves"]["notRenewable"][0]["serialNumber"]),
        (&json!(1), &json!("0c01"))
    );
    let holds: Vec<&str> =
        plan["holds"].as_array().unwrap().iter().map(|hold| hold["name"].as_str().unwrap()).collect();
    assert_eq!(holds, ["node/n1/host/nginx", "node/n1", "CN=web"]);
    let text = windlass_ok(&admin, &["rotate", "plan", SIGNER]);
    for words in
        ["Consumers: 1 volume on 1 node, 0 Bundles", "disk full", "held in files; nobody can be told"]
    {
        assert!(text.contains(words), "{words} in\n{text}");
    }
    // A plan changes nothing.
    assert_eq!(windlass_ok(&admin, &["rotate", "status", "-o", "name"]), "");

    let (_, asked) = run(&admin, 1, &["rotate", "start", SIGNER, "--compromised"]);
    for words in ["Certificates that will be revoked: 1;", "CN=web", "node/n1/host/nginx", "add --yes"] {
        assert!(asked.contains(words), "{words} in\n{asked}");
    }
    let name = start(&admin, &["--compromised", "--yes"]);
    assert_eq!(spec(&admin, &name), json!({"signerName": SIGNER, "compromised": true}));
}

#[test]
fn rotating_takes_rights_on_the_signer() {
    let admin = signer_server();
    let alice = admin.with_kubeconfig(add_user(&admin, "alice", &[]));
    let refused = windlass_fails(&alice, &["rotate", "status"]);
    assert!(refused.contains("forbidden"), "{refused}");
    let rules = json!([{"apiGroups": ["windlass.dev"], "resources": ["*"], "verbs": ["*"]}]);
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                      "metadata": {"name": "rotator"}, "rules": rules});
    admin.ok_with(&role.to_string(), &["create", "-f", "-"]);
    admin.ok(&["create", "clusterrolebinding", "rotator", "--clusterrole=rotator", "--user=alice"]);
    let refused = windlass_fails(&alice, &["rotate", "start", SIGNER]);
    let wanted = "user not permitted to sign for signerName \"example.com/web\"; rotating takes write access to \
                  carotations.windlass.dev, and sign and attest on example.com/web";
    assert!(refused.contains(wanted), "{refused}");
    let name = start(&admin, &[]);
    let refused = windlass_fails(&alice, &["rotate", "rollback", &name]);
    assert!(refused.contains("sign and attest on example.com/web"), "{refused}");
    assert_eq!(spec(&admin, &name), json!({"signerName": SIGNER}));
}
