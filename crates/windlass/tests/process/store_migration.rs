//! Migration of a store to etcd and back, with servers before and after.

mod faults;
mod kill_during_migration;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use hyper::Method;
use serde_json::{Value, json};
use windlass_testkit::HttpClient;
use windlass_testkit::etcd::EtcdCluster;

use crate::controllers::{
    REQUESTS, kubeconfig, node_request, server, signing_flags, start_controllers, wait_for_certificate,
};
use crate::server::{ADMIN_TOKEN, PATIENCE, TestDataDir, TestServer};

const CONFIG_MAPS: &str = "/api/v1/namespaces/moving/configmaps";

/// Builds a `windlass store` command with these arguments.
fn store<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.arg("store").args(args).stdin(Stdio::null());
    command
}

fn run(mut command: Command) -> (bool, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.success(), text(stdout), text(stderr))
}

/// Returns the output of a command, which must succeed.
fn run_ok(command: Command) -> String {
    let (succeeded, said, complained) = run(command);
    assert!(succeeded, "{said}{complained}");
    said
}

/// Returns the error message of a command, which must fail.
fn fails(command: Command) -> String {
    let (succeeded, said, complained) = run(command);
    assert!(!succeeded, "{said}{complained}");
    complained
}

/// Wraps a command in strace to inject a fault into its system calls, optionally only those on one
/// file.
fn traced(command: &Command, calls: &str, fault: &str, file: Option<&Path>) -> Command {
    let strace = std::env::var_os("WINDLASS_STRACE").unwrap_or_else(|| "strace".into());
    let found = Command::new(&strace).arg("--version").output();
    assert!(found.is_ok(), "strace is needed: `cargo xtask test` fetches it, or install it");
    let mut traced = Command::new(strace);
    traced.args(["-f", "-qq", "-o", "/dev/null"]).arg(format!("--trace={calls}")).arg(fault);
    if let Some(file) = file {
        traced.arg("-P").arg(file);
    }
    traced.arg(command.get_program()).args(command.get_args());
    traced
}

fn digest(said: &str) -> String {
    said.lines().find_map(|line| line.trim().strip_prefix("digest ")).unwrap().to_owned()
}

/// `windlass store VERB` on a data directory.
fn on_directory(verb: &str, data: &Path, file: &Path) -> Command {
    let mut command = store([verb, "--data-dir"]);
    command.arg(data).arg(file);
    command
}

/// `windlass store VERB` on etcd.
fn on_etcd(verb: &str, etcd: &EtcdCluster, file: &Path) -> Command {
    let mut command = store([verb, &etcd_flag(etcd)]);
    command.arg(file);
    command
}

fn etcd_flag(etcd: &EtcdCluster) -> String {
    format!("--etcd-servers={}", etcd.urls().join(","))
}

async fn get(http: &HttpClient, path: &str) -> Value {
    let (status, answer) = http.request(Method::GET, path, Value::Null).await;
    assert_eq!(status, 200, "{path}: {answer}");
    answer
}

async fn create(http: &HttpClient, path: &str, object: Value) -> Value {
    let (status, answer) = http.request(Method::POST, path, object).await;
    assert_eq!(status, 201, "{path}: {answer}");
    answer
}

/// Lists all objects of all listable kinds, without their resourceVersion.
async fn list_everything(http: &HttpClient) -> BTreeMap<String, Value> {
    let mut roots = vec!["/api/v1".to_owned()];
    for group in get(http, "/apis").await["groups"].as_array().unwrap() {
        roots.push(format!("/apis/{}", group["preferredVersion"]["groupVersion"].as_str().unwrap()));
    }
    let mut all = BTreeMap::new();
    for root in roots {
        for resource in get(http, &root).await["resources"].as_array().unwrap() {
            if !resource["verbs"].as_array().unwrap().contains(&json!("list")) {
                continue;
            }
            let path = format!("{root}/{}", resource["name"].as_str().unwrap());
            let mut list = get(http, &path).await;
            for item in list["items"].as_array_mut().unwrap() {
                let meta = item["metadata"].as_object_mut().unwrap();
                meta.remove("resourceVersion").unwrap();
                let namespace = meta.get("namespace").unwrap_or(&Value::Null);
                let name = format!("{path} {namespace} {}", meta["name"]);
                // These contain the server's address, which every start may change.
                let own = meta["name"] == "kubernetes"
                    || meta["name"].as_str().is_some_and(|name| name.starts_with("apiserver-"));
                if !own {
                    all.insert(name, item.take());
                }
            }
        }
    }
    all
}

/// Creates typical user objects besides the default ones.
async fn populate(http: &HttpClient) {
    create(http, "/api/v1/namespaces", json!({"metadata": {"name": "moving"}})).await;
    for n in 0..5 {
        let name = format!("c{n}");
        create(http, CONFIG_MAPS, json!({"metadata": {"name": name}, "data": {"text": "ü \u{1f980}\n\"\\"}}))
            .await;
    }
    let path = format!("{CONFIG_MAPS}/c1");
    let mut changed = get(http, &path).await;
    changed["data"] = json!({"changed": "yes"});
    assert_eq!(http.request(Method::PUT, &path, changed).await.0, 200);
    let path = format!("{CONFIG_MAPS}/c2");
    assert_eq!(http.request(Method::DELETE, &path, Value::Null).await.0, 200);
    create(
        http,
        "/api/v1/namespaces/moving/secrets",
        json!({"metadata": {"name": "s"}, "data": {"key": "c2VjcmV0"}}),
    )
    .await;
    create(
        http,
        "/apis/coordination.k8s.io/v1/namespaces/moving/leases",
        json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}),
    )
    .await;
    create(
        http,
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        json!({"metadata": {"name": "moving"}, "rules": [
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]}),
    )
    .await;
    certificate(http, "before").await;
}

/// Requests a certificate, and waits until the controllers have issued it.
async fn certificate(http: &HttpClient, name: &str) {
    create(http, REQUESTS, node_request(name)).await;
    wait_for_certificate(http, name, PATIENCE).await;
}

/// A watch from a revision before the migration gets 410 and must relist.
async fn assert_watch_expired(http: &HttpClient, path: &str, revision: &str) {
    let path = format!("{path}?watch=1&resourceVersion={revision}");
    match http.watch(&path).await.unwrap() {
        Err(status) => assert_eq!(status, 410, "{path}"),
        Ok(mut events) => {
            let event = events.next().await.unwrap().unwrap();
            assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
        }
    }
}

fn revision(list: &Value) -> String {
    list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn to_etcd_and_back() {
    let etcd = EtcdCluster::start(1, &[]).unwrap();
    let up = TestServer::start();
    populate(&up.http()).await;
    // Stopped controllers make no further changes.
    let embedded = server(up.stop(), [""; 0]);
    let before = list_everything(&embedded.http()).await;
    let old = get(&embedded.http(), CONFIG_MAPS).await;
    let known = get(&embedded.http(), &format!("{CONFIG_MAPS}/c1")).await;
    let place = embedded.place();
    let (there, back) = (place.path().join("there"), place.path().join("back"));
    let locked = fails(on_directory("import", &place.data(), &there));
    assert!(locked.contains("there: No such file"), "{locked}");
    // A running server does not interfere.
    let exported = run_ok(on_directory("export", &place.data(), &there));
    let locked = fails(on_directory("import", &place.data(), &there));
    assert!(locked.contains("is in use by another process"), "{locked}");
    let place = embedded.stop();
    let imported = run_ok(on_etcd("import", &etcd, &there));
    assert_eq!(digest(&imported), digest(&exported));

    let replica = server(place, [etcd_flag(&etcd)]);
    let http = replica.http();
    assert_eq!(list_everything(&http).await, before);
    assert_watch_expired(&http, CONFIG_MAPS, &revision(&old)).await;
    assert_watch_expired(&http, "/api/v1/secrets", &revision(&known)).await;
    assert_resumes_after_migration(&http, &known).await;
    let refused = fails(on_etcd("import", &etcd, &there));
    assert!(refused.contains("is not empty"), "{refused}");
    let admin = kubeconfig(&replica, "mover", ADMIN_TOKEN);
    let controllers = start_controllers(&replica, &admin, "moved", signing_flags(&replica));
    certificate(&http, "after").await;
    drop(controllers);

    let later = list_everything(&http).await;
    let old = get(&http, CONFIG_MAPS).await;
    let place = replica.stop();
    let exported = run_ok(on_etcd("export", &etcd, &back));
    std::fs::rename(place.data().join("store"), place.path().join("old store")).unwrap();
    let imported = run_ok(on_directory("import", &place.data(), &back));
    assert_eq!(digest(&imported), digest(&exported));
    let once_more = place.path().join("once more");
    assert_eq!(digest(&run_ok(on_directory("export", &place.data(), &once_more))), digest(&exported));
    run_ok(store([OsStr::new("check"), OsStr::new("--data-dir"), place.data().as_os_str()]));

    let embedded = server(place, [""; 0]);
    assert_eq!(list_everything(&embedded.http()).await, later);
    assert_watch_expired(&embedded.http(), CONFIG_MAPS, &revision(&old)).await;
    let up = embedded.stop().start();
    certificate(&up.http(), "home").await;
}

/// Versions from before the migration are refused like outdated ones, and changes after it can be
/// watched.
async fn assert_resumes_after_migration(http: &HttpClient, known: &Value) {
    let path = format!("{CONFIG_MAPS}/c1");
    let (status, answer) = http.request(Method::PUT, &path, known.clone()).await;
    assert_eq!(status, 409, "{answer}");
    let list = get(http, CONFIG_MAPS).await;
    let watch = format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", revision(&list));
    let mut events = http.watch(&watch).await.unwrap().unwrap();
    let mut fresh = get(http, &path).await;
    fresh["data"] = json!({"changed": "again"});
    assert_eq!(http.request(Method::PUT, &path, fresh).await.0, 200);
    let event = events.next().await.unwrap().unwrap();
    assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("MODIFIED"), &json!("c1")));
    assert_eq!(event["object"]["metadata"]["uid"], known["metadata"]["uid"]);
}

/// The revisions of a restored etcd continue above all that clients may know.
#[tokio::test(flavor = "multi_thread")]
async fn raised_revisions_stop_a_server_and_are_kept() {
    let etcd = EtcdCluster::start(1, &[]).unwrap();
    let mut replica = server(TestDataDir::new(), [etcd_flag(&etcd)]);
    let path = "/api/v1/namespaces";
    let old = get(&replica.http(), path).await;
    let said = run_ok(store(["raise-revision", &etcd_flag(&etcd), "--by", "5000"]));
    let number = |text: &str| text.parse::<u64>().unwrap();
    let words: Vec<&str> = said.split_whitespace().collect();
    let from = words.iter().position(|word| *word == "from").unwrap();
    assert_eq!(number(words[from + 3]), number(words[from + 1]) + 5000, "{said}");
    let status = replica.wait(PATIENCE).expect("it ends");
    assert!(!status.success());
    let log = replica.place().log();
    assert!(log.contains("was changed; restart"), "{log}");

    let replica = server(replica.kill(), [etcd_flag(&etcd)]);
    let new = get(&replica.http(), path).await;
    assert!(number(&revision(&new)) >= number(&revision(&old)) + 5000);
    assert_watch_expired(&replica.http(), path, &revision(&old)).await;
    assert!(fails(store(["raise-revision"])).contains("--etcd-servers"));
}
