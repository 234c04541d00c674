//! Clients switch between servers, and nothing is lost or stale.

use std::process::Command;

use hyper::Method;
use serde_json::{Value, json};
use windlass_testkit::{HttpClient, WatchStream, wait_for_async};

use super::shared_etcd::{CONFIG_MAPS, config_map, etcd, pair, version};
use crate::kubectl::Kubectl;
use crate::server::PATIENCE;

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_are_visible_on_the_other_server() {
    let etcd = etcd();
    let [a, b] = pair(&etcd);
    let (mut one, mut two) = (a.http().connect().await.unwrap(), b.http().connect().await.unwrap());
    for round in 0..100 {
        let name = format!("object-{round}");
        let path = format!("{CONFIG_MAPS}/{name}");
        let (status, made) = one.request(Method::POST, CONFIG_MAPS, &config_map(&name)).await.unwrap();
        assert_eq!(status, 201, "{made}");
        let (status, mut found) = two.request(Method::GET, &path, &Value::Null).await.unwrap();
        assert_eq!((status, &found), (200, &made));
        found["data"]["a"] = json!(round.to_string());
        let (status, changed) = two.request(Method::PUT, &path, &found).await.unwrap();
        assert_eq!(status, 200, "{changed}");
        let list = format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3D{name}");
        let (_, list) = one.request(Method::GET, &list, &Value::Null).await.unwrap();
        assert_eq!(list["items"][0]["data"]["a"], json!(round.to_string()));
        assert!(version(&list) >= version(&changed), "{list}");
        // A stale version is refused, whichever server returned it.
        let (status, refused) = one.request(Method::PUT, &path, &made).await.unwrap();
        assert_eq!((status, &refused["reason"]), (409, &json!("Conflict")), "{refused}");
        (one, two) = (two, one);
    }
}

#[test]
fn kubectl_writes_here_and_reads_there() {
    let etcd = etcd();
    let [a, b] = pair(&etcd);
    let here = Kubectl::with_server(a);
    let there = here.with_kubeconfig(b.kubeconfig());
    for round in 0..5 {
        let name = format!("note-{round}");
        here.ok(&["create", "configmap", &name, "--from-literal=text=hello"]);
        let text = there.ok(&["get", "configmap", &name, "-o", "jsonpath={.data.text}"]);
        assert_eq!(text, "hello");
        there.ok(&["annotate", "configmap", &name, "seen=yes"]);
        let seen = here.json(&["get", "configmap", &name]);
        assert_eq!(seen["metadata"]["annotations"]["seen"], "yes", "{seen}");
        here.ok(&["delete", "configmap", &name]);
        let gone = there.fails(&["get", "configmap", &name]);
        assert!(gone.contains("NotFound"), "{gone}");
    }
    // A role binding created on one server applies on the other at once.
    there.ok(&["create", "clusterrolebinding", "v", "--clusterrole=view", "--user=vera"]);
    assert_eq!(here.ok(&["auth", "can-i", "get", "pods", "--as=vera"]), "yes\n");
}

/// Returns the name and version of the next object of a watch.
async fn next(events: &mut WatchStream) -> (String, u64) {
    loop {
        let event = tokio::time::timeout(PATIENCE, events.next()).await;
        let event = event.expect("an event").unwrap().expect("the watch continues");
        assert_ne!(event["type"], "ERROR", "{event}");
        if event["type"] == "ADDED" {
            let name = event["object"]["metadata"]["name"].as_str().unwrap().to_owned();
            return (name, version(&event["object"]));
        }
    }
}

async fn watch(http: &HttpClient, from: u64) -> WatchStream {
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}");
    http.watch(&path).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_continues_at_another_server() {
    let etcd = etcd();
    let [a, b] = pair(&etcd);
    let (one, two) = (a.http(), b.http());
    let make = async |http: &HttpClient, name: &str| {
        let (status, made) = http.request(Method::POST, CONFIG_MAPS, config_map(name)).await;
        assert_eq!(status, 201, "{made}");
    };
    make(&one, "before").await;
    let (_, list) = two.request(Method::GET, CONFIG_MAPS, Value::Null).await;
    // From a revision that the other server returned.
    let mut events = watch(&one, version(&list)).await;
    for (index, http) in [&one, &two, &one, &two].into_iter().enumerate() {
        make(http, &format!("first-{index}")).await;
    }
    let mut last = 0;
    for index in 0..3 {
        let (name, version) = next(&mut events).await;
        assert_eq!(name, format!("first-{index}"));
        last = version;
    }
    drop(a.kill());
    for index in 0..3 {
        make(&two, &format!("second-{index}")).await;
    }
    let mut events = watch(&two, last).await;
    for wanted in ["first-3", "second-0", "second-1", "second-2"] {
        assert_eq!(next(&mut events).await.0, wanted);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revision_that_a_server_has_not_seen_is_awaited() {
    let etcd = etcd();
    let [a, b] = pair(&etcd);
    for round in 0..20 {
        let name = format!("object-{round}");
        let (_, made) = a.http().request(Method::POST, CONFIG_MAPS, config_map(&name)).await;
        let version = version(&made);
        for query in ["", "&resourceVersionMatch=NotOlderThan"] {
            let path = format!("{CONFIG_MAPS}?resourceVersion={version}{query}");
            let (status, list) = b.http().request(Method::GET, &path, Value::Null).await;
            assert_eq!(status, 200, "{list}");
            let items = list["items"].as_array().unwrap();
            assert!(items.iter().any(|item| item["metadata"]["name"] == name), "{list}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_continues_at_another_server() {
    let etcd = etcd();
    let [a, b] = pair(&etcd);
    let servers = [a.http(), b.http()];
    for index in 0..25 {
        let name = format!("object-{index:02}");
        let (status, _) = servers[0].request(Method::POST, CONFIG_MAPS, config_map(&name)).await;
        assert_eq!(status, 201);
    }
    let (mut found, mut token, mut at) = (Vec::new(), String::new(), None);
    for http in servers.iter().cycle() {
        let path = format!("{CONFIG_MAPS}?limit=4&continue={token}");
        let (status, page) = http.request(Method::GET, &path, Value::Null).await;
        assert_eq!(status, 200, "{page}");
        assert_eq!(*at.get_or_insert(version(&page)), version(&page), "one state in all pages");
        for item in page["items"].as_array().unwrap() {
            found.push(item["metadata"]["name"].as_str().unwrap().to_owned());
        }
        // Later changes are not included.
        servers[1].request(Method::POST, CONFIG_MAPS, config_map(&format!("zz-{token:.8}"))).await;
        match page["metadata"]["continue"].as_str() {
            Some(next) if !next.is_empty() => token = next.to_owned(),
            _ => break,
        }
    }
    let wanted: Vec<_> = (0..25).map(|index| format!("object-{index:02}")).collect();
    assert_eq!(found, wanted);
}

/// Returns the user that a server authenticates from a token.
async fn authenticated_user(http: &HttpClient) -> (u16, Value) {
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let (status, answer) = http.request(Method::POST, path, json!({})).await;
    (status, answer["status"]["userInfo"]["username"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_valid_at_every_server() {
    let etcd = etcd();
    let [a, b] = pair(&etcd);
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    a.http().request(Method::POST, accounts, json!({"metadata": {"name": "robot"}})).await;
    let (status, token) =
        a.http().request(Method::POST, &format!("{accounts}/robot/token"), json!({"spec": {}})).await;
    assert_eq!(status, 201, "{token}");
    let robot = b.http_as(token["status"]["token"].as_str().unwrap());
    assert_eq!(authenticated_user(&robot).await, (201, json!("system:serviceaccount:default:robot")));

    let made = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["token", "create", "-o", "json", "--kubeconfig"])
        .arg(a.kubeconfig())
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    let token = made["token"].as_str().unwrap();
    let (id, _) = token.split_once('.').unwrap();
    let joiner = b.http_as(token);
    assert_eq!(authenticated_user(&joiner).await, (201, json!(format!("system:bootstrap:{id}"))));

    // A revocation on one server soon applies on the other.
    let secret = format!("/api/v1/namespaces/kube-system/secrets/bootstrap-token-{id}");
    assert_eq!(a.http().request(Method::DELETE, &secret, Value::Null).await.0, 200);
    let account = format!("{accounts}/robot");
    assert_eq!(a.http().request(Method::DELETE, &account, Value::Null).await.0, 200);
    for http in [&joiner, &robot] {
        wait_for_async("it is good for ever", async || authenticated_user(http).await.0 == 401).await;
    }

    // A certificate that one server issued, presented to the other.
    let url = format!("https://{}", b.address);
    let admin = Kubectl::with_server(a);
    admin.ok(&["get", "namespaces", "--server", &url]);
    let user = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["user", "add", "alice", "--out"])
        .arg(b.place().path().join("alice.kubeconfig"))
        .arg("--data-dir")
        .arg(b.place().data())
        .output()
        .unwrap();
    assert!(user.status.success(), "{}", String::from_utf8_lossy(&user.stderr));
    let alice = admin.with_kubeconfig(b.place().path().join("alice.kubeconfig"));
    let url = format!("https://{}", admin.server.address);
    let said = alice.fails(&["get", "namespaces", "--server", &url]);
    assert!(said.contains("\"alice\" cannot list"), "{said}");
}
