//! `windlass token`: machines join with a token while it exists, and in no other way.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use hyper::Method;
use serde_json::{Value, json};
use windlass_testkit::wait_for_async;

use crate::access::add_user;
use crate::issue::{windlass, windlass_fails, windlass_ok};
use crate::kubectl::Kubectl;

const GROUP: &str = "system:bootstrappers:windlass:default-node-token";

/// Creates a token; returns its description and the messages.
fn create(who: &Kubectl, args: &[&str]) -> (Value, String) {
    let args = [&["token", "create", "-o", "json"], args].concat();
    let output = windlass(who, &args).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    (serde_json::from_slice(&output.stdout).unwrap(), said)
}

fn tokens(who: &Kubectl) -> Vec<Value> {
    let listed: Value = serde_json::from_str(&windlass_ok(who, &["token", "list", "-o", "json"])).unwrap();
    listed["items"].as_array().unwrap().clone()
}

/// Returns the status of a request that needs any credential, sent with a token.
async fn self_review_status(who: &Kubectl, token: &str) -> u16 {
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let (status, answer) = who.server.http_as(token).request(Method::POST, path, review).await;
    if status == 201 {
        let groups = answer["status"]["userInfo"]["groups"].as_array().unwrap();
        assert!(groups.contains(&json!("system:bootstrappers")), "{answer}");
    }
    status
}

fn issue_node_certificate(who: &Kubectl, node: &str, out: &str) -> PathBuf {
    let file = format!("{out}.kubeconfig");
    let args = [
        "issue",
        "--signer",
        "kubernetes.io/kube-apiserver-client-kubelet",
        "--cn",
        &format!("system:node:{node}"),
        "--org",
        "system:nodes",
        "--out",
        out,
        "--write-kubeconfig",
        &file,
    ];
    windlass_ok(who, &args);
    who.server.place().path().join(file)
}

#[test]
fn a_machine_joins_by_the_printed_command() {
    let admin = Kubectl::new();
    let (made, said) = create(&admin, &[]);
    for role in ["system:node-bootstrapper", ":nodeclient", ":selfnodeclient"] {
        assert!(said.lines().any(|line| line.contains("made ") && line.contains(role)), "{said}");
    }
    assert!(said.contains("--server"), "other machines cannot reach this address: {said}");
    assert_eq!(made["groups"], json!([GROUP]));
    // The part before the start of the agent writes the kubeconfig.
    let command = made["command"].as_str().unwrap();
    let (prepare, join) = command.rsplit_once(" && ").unwrap();
    assert!(join.starts_with("windlass node --bootstrap-kubeconfig windlass-node/"), "{join}");
    let place = admin.server.place().path();
    let prepared = Command::new("sh").args(["-c", prepare]).current_dir(place).status().unwrap();
    assert!(prepared.success());
    let bootstrap = admin.with_kubeconfig(place.join("windlass-node/bootstrap.kubeconfig"));

    let node = admin.with_kubeconfig(issue_node_certificate(&bootstrap, "n1", "first"));
    assert!(node.ok(&["auth", "whoami"]).contains("system:node:n1"));
    let renewed = admin.with_kubeconfig(issue_node_certificate(&node, "n1", "second"));
    assert!(renewed.ok(&["auth", "whoami"]).contains("system:nodes"));
    let requests = admin.ok(&["get", "csr"]);
    assert_eq!(requests.matches("Approved,Issued").count(), 2, "{requests}");
    // The token only permits requesting certificates.
    bootstrap.fails(&["get", "nodes"]);
    bootstrap.fails(&["get", "secrets", "-n", "kube-system"]);

    let (_, said) = create(&admin, &["--server", "https://192.0.2.1:6443"]);
    assert_eq!(said, "", "everything is there");
}

#[test]
fn a_file_can_be_copied_instead() {
    let admin = Kubectl::new();
    let flags = ["--write-bootstrap-kubeconfig", "b.kubeconfig", "--description", "rack 7"];
    let text = windlass_ok(&admin, &[&["token", "create"][..], &flags].concat());
    assert!(text.contains("copy b.kubeconfig to it"), "{text}");
    assert!(text.contains("\nwindlass node --bootstrap-kubeconfig b.kubeconfig "), "{text}");
    let file = admin.server.place().path().join("b.kubeconfig");
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let before = fs::read(&file).unwrap();
    let whoami = admin.with_kubeconfig(file.clone()).ok(&["auth", "whoami"]);
    assert!(whoami.contains("system:bootstrap:") && whoami.contains(GROUP), "{whoami}");
    assert_eq!(tokens(&admin)[0]["description"], "rack 7");

    let refused = windlass_fails(&admin, &[&["token", "create"][..], &flags].concat());
    assert!(refused.contains("b.kubeconfig already exists"), "{refused}");
    let nowhere = ["token", "create", "--write-bootstrap-kubeconfig", "no/such/dir/b.kubeconfig"];
    windlass_fails(&admin, &nowhere);
    assert_eq!(fs::read(&file).unwrap(), before);
    assert_eq!(tokens(&admin).len(), 1, "a token that was not printed is deleted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_ends_by_itself_or_by_hand() {
    let admin = Kubectl::new();
    let token = |made: &Value| made["token"].as_str().unwrap().to_owned();
    let (kept, (short, _)) = (create(&admin, &["--ttl", "0"]), create(&admin, &["--ttl", "2s"]));
    assert!(kept.1.contains("never expires"), "{}", kept.1);
    let (kept, short) = (token(&kept.0), token(&short));
    let expired = async || self_review_status(&admin, &short).await == 401;
    wait_for_async("the token does not expire", expired).await;
    assert_eq!(self_review_status(&admin, &kept).await, 201);
    let (id, secret) = kept.split_once('.').unwrap();
    let (expired, _) = short.split_once('.').unwrap();

    for args in [&["token", "list"][..], &["token", "list", "-o", "json"]] {
        let text = windlass_ok(&admin, args);
        assert!(text.contains(id) && text.contains(expired) && !text.contains(secret), "{text}");
    }
    let text = windlass_ok(&admin, &["token", "list"]);
    let row = |id: &str| text.lines().find(|line| line.starts_with(id)).unwrap();
    assert!(row(id).contains("<forever>") && row(expired).contains("<expired>"), "{text}");
    assert!(windlass_ok(&admin, &["token", "list", "--show-secrets"]).contains(&kept));

    let deleted = windlass_ok(&admin, &["token", "delete", id]);
    assert_eq!(deleted, format!("secret/bootstrap-token-{id} deleted\n"));
    assert_eq!(self_review_status(&admin, &kept).await, 401);
    let refused = windlass_fails(&admin, &["token", "delete", id]);
    assert!(refused.contains(&format!("token \"{id}\" not found")), "{refused}");
    let refused = windlass_fails(&admin, &["token", "delete", id, expired]);
    assert!(refused.contains("1 of 2 not deleted"), "{refused}");
    assert_eq!(tokens(&admin), [] as [Value; 0]);
}

#[test]
fn roles_are_bound_to_the_groups_of_tokens_and_to_no_others() {
    let admin = Kubectl::new();
    let (web, mine) = ("system:bootstrappers:web", "system:bootstrappers:mine");
    let (made, _) = create(&admin, &["--groups", web, "--no-bindings"]);
    assert_eq!(made["bindings"], json!([]));
    let bearer = admin.with_token(made["token"].as_str().unwrap());
    bearer.fails(&["get", "csr"]);
    create(&admin, &["--groups", mine]);
    bearer.fails(&["get", "csr"]);
    let (_, said) = create(&admin, &["--groups", web]);
    assert!(said.contains("added groups to clusterrolebinding windlass:node-bootstrapper"), "{said}");
    bearer.ok(&["get", "csr"]);
    let path = "jsonpath={.subjects[*].name}";
    let get = ["get", "clusterrolebinding", "windlass:node-bootstrapper", "-o", path];
    assert_eq!(admin.ok(&get), format!("{mine} {web}"));

    // A binding of that name with another role belongs to somebody else, and no token is created.
    let (name, before) = ("windlass:node-autoapprove-bootstrap", tokens(&admin).len());
    admin.ok(&["delete", "clusterrolebinding", name]);
    admin.ok(&["create", "clusterrolebinding", name, "--clusterrole=view", "--group=x"]);
    let refused = windlass_fails(&admin, &["token", "create"]);
    assert!(refused.contains(name) && refused.contains("--no-bindings"), "{refused}");
    assert_eq!(tokens(&admin).len(), before);
}

#[test]
fn unauthorized_users_get_an_error() {
    let admin = Kubectl::new();
    let alice = admin.with_kubeconfig(add_user(&admin, "alice", &[]));
    for args in [
        &["token", "create"][..],
        &["token", "create", "--no-bindings"],
        &["token", "list"],
        &["token", "delete", "abcdef"],
    ] {
        let refused = windlass_fails(&alice, args);
        assert!(refused.contains("User \"alice\" cannot "), "{args:?}: {refused}");
    }
    assert_eq!(tokens(&admin), [] as [Value; 0], "`up` makes none either");
    let kubeconfig = admin.kubeconfig.to_str().unwrap();
    let invitation = format!("run: windlass token create --kubeconfig {kubeconfig}");
    assert!(admin.server.place().log().contains(&invitation));
}
