//! Access for users as in `docs/access.md`: `windlass user add`, `windlass can-i`, and `kubectl`
//! with the created credentials.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use hyper::Method;
use serde_json::Value;

use crate::kubectl::Kubectl;

/// Runs the built binary; `path` is a flag with its file argument.
fn windlass(args: &[&str], path: Option<(&str, &Path)>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args(args);
    if let Some((flag, path)) = path {
        command.arg(flag).arg(path);
    }
    command.output().unwrap()
}

/// Creates a kubeconfig for a new user.
pub fn add_user(kubectl: &Kubectl, name: &str, groups: &[&str]) -> PathBuf {
    let place = kubectl.server.place();
    let file = place.path().join(format!("{name}.kubeconfig"));
    let mut args = vec!["user", "add", name, "--expires", "1d", "--out", file.to_str().unwrap()];
    for group in groups {
        args.extend(["--group", group]);
    }
    let made = windlass(&args, Some(("--data-dir", &place.data())));
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let reported = String::from_utf8(made.stdout).unwrap();
    assert!(reported.contains(&format!(": user {name}, expires ")), "{reported}");
    file
}

/// Returns the output, and whether the exit code means allowed.
fn can_i(kubeconfig: &Path, args: &[&str]) -> (String, bool) {
    let asked = [&["can-i"], args].concat();
    let answer = windlass(&asked, Some(("--kubeconfig", kubeconfig)));
    (String::from_utf8(answer.stdout).unwrap().trim().to_owned(), answer.status.success())
}

#[test]
fn a_user_gets_access_and_loses_it() {
    let admin = Kubectl::new();
    let alice = admin.with_kubeconfig(add_user(&admin, "alice", &["dev"]));
    let refused = alice.fails(&["get", "secrets"]);
    let text =
        "User \"alice\" cannot list resource \"secrets\" in API group \"\" in the namespace \"default\"";
    assert!(refused.contains(text), "{refused}");
    assert_eq!(
        can_i(&admin.kubeconfig, &["create", "cm", "--as", "alice", "--as-group", "dev"]),
        ("no".into(), false)
    );

    let binding = ["create", "rolebinding", "dev-edits", "--clusterrole=edit", "--group=dev"];
    admin.ok(&binding);
    alice.ok(&["create", "configmap", "mine"]);
    let (answer, yes) = can_i(&alice.kubeconfig, &["create", "configmaps"]);
    assert!(yes, "{answer}");
    assert_eq!(
        answer,
        "yes - RBAC: allowed by RoleBinding \"dev-edits/default\" of ClusterRole \"edit\" to Group \"dev\""
    );
    for denied in [
        &["delete", "nodes"][..],
        &["get", "/metrics"],
        &["create", "cm", "-n", "kube-system"],
        &["get", "cm", "-A"],
    ] {
        assert_eq!(can_i(&alice.kubeconfig, denied), ("no".into(), false), "{denied:?}");
    }
    assert!(can_i(&alice.kubeconfig, &["get", "/version"]).1);

    admin.ok(&["delete", "rolebinding", "dev-edits"]);
    alice.fails(&["get", "configmap", "mine"]);
}

#[test]
fn a_credential_is_replaced_in_place() {
    let admin = Kubectl::new();
    let place = admin.server.place();
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args(["user", "add", "bob", "--expires", "90d", "--data-dir"]).arg(place.data());
    let made = command.current_dir(place.path()).output().unwrap();
    let reported = String::from_utf8_lossy(&made.stderr).into_owned();
    assert!(made.status.success() && reported.is_empty(), "{reported}");
    admin.with_kubeconfig(place.path().join("bob.kubeconfig")).ok(&[
        "auth",
        "can-i",
        "create",
        "selfsubjectaccessreviews",
    ]);
    // The second run finds the existing file.
    assert!(!command.current_dir(place.path()).output().unwrap().status.success());
    let (answer, yes) = can_i(&admin.kubeconfig, &["approve", "signers", "example.com/x"]);
    assert!(yes && answer.starts_with("yes"), "{answer}");
}

#[test]
fn kubectl_auth_commands() {
    let admin = Kubectl::new();
    let alice = admin.with_kubeconfig(add_user(&admin, "alice", &["dev"]));
    assert_eq!(admin.ok(&["auth", "can-i", "delete", "nodes"]).trim(), "yes");
    alice.fails(&["auth", "can-i", "delete", "nodes"]);
    assert_eq!(alice.ok(&["auth", "can-i", "create", "selfsubjectaccessreviews"]).trim(), "yes");
    let list = alice.ok(&["auth", "can-i", "--list"]);
    for line in ["selfsubjectreviews.authentication.k8s.io", "[/openapi/*]"] {
        assert!(list.contains(line), "{line} in\n{list}");
    }
    assert!(admin.ok(&["auth", "can-i", "--list"]).contains("*.*"));

    // Impersonation: forbidden actions are refused, and so is impersonation by users without the
    // permission.
    let refused = admin.fails(&["get", "secrets", "--as", "carol", "--as-group", "ops"]);
    assert!(refused.contains("User \"carol\" cannot list resource \"secrets\""), "{refused}");
    admin.ok(&["create", "clusterrolebinding", "ops-view", "--clusterrole=view", "--group=ops"]);
    admin.ok(&["get", "configmaps", "--as", "carol", "--as-group", "ops"]);
    let refused = alice.fails(&["get", "configmaps", "--as", "carol"]);
    assert!(refused.contains("cannot impersonate"), "{refused}");

    if admin.minor() >= 28 {
        let reported = alice.ok(&["auth", "whoami"]);
        assert!(reported.contains("alice") && reported.contains("[dev system:authenticated]"), "{reported}");
        assert!(reported.contains("X509SHA256="), "{reported}");
        let reported = admin.json(&["auth", "whoami", "--as", "carol", "--as-group", "ops"]);
        assert_eq!(reported["status"]["userInfo"]["username"], "carol");
    }
}

#[test]
fn a_service_account_uses_its_token() {
    let admin = Kubectl::new();
    if admin.minor() < 24 {
        eprintln!("this kubectl cannot create tokens");
        return;
    }
    admin.ok(&["create", "serviceaccount", "robot"]);
    let token = admin.ok(&["create", "token", "robot", "--duration=10m"]);
    let robot = admin.with_token(token.trim());
    let refused = robot.fails(&["get", "configmaps"]);
    assert!(refused.contains("User \"system:serviceaccount:default:robot\" cannot list"), "{refused}");
    admin.ok(&["create", "rolebinding", "robot", "--clusterrole=view", "--serviceaccount=default:robot"]);
    robot.ok(&["get", "configmaps"]);

    let elsewhere = admin.ok(&["create", "token", "robot", "--audience=https://elsewhere.example"]);
    unknown(&admin.with_token(elsewhere.trim()));

    admin.ok(&["delete", "serviceaccount", "robot"]);
    admin.ok(&["create", "serviceaccount", "robot"]);
    // The present object of that name is a different one.
    unknown(&robot);
}

/// Asserts that the server does not know the user, according to kubectl's message.
fn unknown(caller: &Kubectl) {
    let reported = caller.fails(&["get", "configmaps"]);
    assert!(reported.contains("Unauthorized") || reported.contains("provide credentials"), "{reported}");
}

#[test]
fn reconciling_roles_with_kubectl() {
    let admin = Kubectl::new();
    let manifest = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: reader\nrules:\n\
                    - apiGroups: [\"\"]\n  resources: [configmaps]\n  verbs: [get, list, watch]\n";
    let reported = admin.ok_with(manifest, &["auth", "reconcile", "-f", "-"]);
    assert!(reported.contains("reader reconciled"), "{reported}");
    let described = admin.ok(&["describe", "clusterrole", "reader"]);
    assert!(described.contains("configmaps"), "{described}");
    // The administrator's role is aggregated from others.
    let rules = admin.json(&["get", "clusterrole", "admin"]);
    assert!(rules["aggregationRule"]["clusterRoleSelectors"].is_array(), "{rules}");
    assert!(rules["rules"].as_array().is_some_and(|rules| rules.len() > 5), "{rules}");
    let table = admin.ok(&["get", "rolebindings", "-A", "-o", "wide"]);
    assert!(table.contains("ROLE") && table.contains("bootstrap-signer"), "{table}");
}

#[tokio::test]
async fn anonymous_requests_are_rejected_if_disabled() {
    let place = crate::server::TestDataDir::new();
    let server = place.start_with(["--anonymous-auth=false"]);
    let version = |http: windlass_testkit::HttpClient| async move {
        http.request(Method::GET, "/version", Value::Null).await.0
    };
    assert_eq!(version(server.http_as("")).await, 401);
    assert_eq!(version(server.http()).await, 200);
}

#[test]
fn clients_are_not_mistaken_for_proxies() {
    let place = crate::server::TestDataDir::new();
    let place = place.start().stop();
    let clients = place.data().join("pki/client-ca.crt");
    let mut command = place.up_command("127.0.0.1:0");
    let output = command.arg("--requestheader-client-ca-file").arg(&clients).output().unwrap();
    let reported = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && reported.contains("--requestheader-allowed-names"), "{reported}");
}
