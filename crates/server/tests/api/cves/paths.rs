//! No path or continue token leads to objects that the caller may not read.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::FutureExt as _;
use http_body_util::BodyExt as _;
use windlass_store::KeyRange;

use super::*;
use windlass_testkit::{config_map, version};

/// Returns replacements for a path segment, as sent.
fn path_tricks() -> Vec<String> {
    let mut all: Vec<String> = [
        "..",
        "%2e%2e",
        "%2E.",
        ".",
        "%2e",
        "..%2f",
        "%2f",
        "%5c..%5c",
        "..%2fsecrets",
        "..%2f..%2fother%2fsecrets",
        "team%2f..%2fother",
        "other%2fsecrets",
        "configmaps%2f..%2fsecrets",
        "%252e%252e",
        "%252fsecrets",
        "%00",
        "secrets%00",
        "team%00other",
        "%ff",
        "%zz",
        "%",
        "%C0%AE%C0%AE",
        "%E2%80%AE",
        "%EF%BC%8F",
        "s%C3%A9crets",
        "SECRETS",
        "secrets;x",
        "secrets.v1",
        "secrets%20",
        "*",
        "%2a",
        "other",
        "secrets",
        "hidden",
        "watch",
        "namespaces",
        "status",
    ]
    .map(str::to_owned)
    .into();
    all.push("a".repeat(5_000));
    all.push("%2e%2e%2f".repeat(500));
    all
}

/// Returns every path that differs from `path` in one segment: replaced, or one inserted before it.
fn altered_paths(path: &str) -> Vec<String> {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let mut all = Vec::new();
    for trick in path_tricks() {
        for at in 0..=parts.len() {
            for kept in [at, at + 1] {
                let rest = parts.get(kept..).unwrap_or_default();
                let whole = [&parts[..at], &[trick.as_str()], rest].concat();
                all.push(format!("/{}", whole.join("/")));
            }
        }
    }
    all
}

/// Reads the response; for an endless watch, the immediately available part.
async fn read_available(asked: TestRequest<'_>) -> (u16, Vec<u8>) {
    let (status, _, mut body) = asked.open().await;
    let mut read = Vec::new();
    while let Some(Some(Ok(frame))) = body.frame().now_or_never() {
        read.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
    }
    (status.as_u16(), read)
}

#[tokio::test]
async fn cve_2022_3162_a_reader_of_one_resource_in_one_namespace_reads_nothing_else() {
    let server = with_namespaces(&["team", "other"]).await;
    let maps = "/api/v1/namespaces/team/configmaps";
    server.delete(&format!("{maps}/hidden")).await.expect(200);
    server.post(maps, &config_map("mine")).await.expect(201);
    let read = rule(&["get", "list", "watch"], "", &["configmaps"], &[]);
    grant_in(&server, "team", "reader", &[read]).await;
    let before = server.revision();
    let mut reached = 0;
    for base in [maps, &format!("{maps}/mine"), "/api/v1/watch/namespaces/team/configmaps"] {
        for path in altered_paths(base) {
            for query in ["", "?watch=1", "?limit=1&resourceVersion=0"] {
                let asked = request_as(&server, "reader", Method::GET, &format!("{path}{query}"));
                let (status, body) = read_available(asked).await;
                let shown = path.chars().take(120).collect::<String>();
                assert!(!leaks_canary(&body), "{shown}{query}");
                assert!(status < 500, "{shown}{query}: {status}");
                reached += usize::from(status == 200);
            }
        }
    }
    assert!(reached > 0, "not one path was right: nothing was tried");
    assert_eq!(server.revision(), before);
}

/// Invalid names are rejected before any lookup.
#[tokio::test]
async fn cve_2022_3162_no_key_is_made_of_what_is_no_name() {
    let server = TestServer::start().await;
    for (part, code) in [
        ("%2e%2e", 400),
        ("..", 400),
        ("%2e", 400),
        ("a%25b", 400),
        ("a%2fb", 404),
        ("%2f", 404),
        ("a%00b", 404),
        ("%ff", 404),
    ] {
        for path in [
            format!("/api/v1/namespaces/default/configmaps/{part}"),
            format!("/api/v1/namespaces/{part}/configmaps"),
            format!("/api/v1/namespaces/{part}/configmaps/a"),
            format!("/api/v1/nodes/{part}"),
            format!("/api/v1/watch/namespaces/default/configmaps/{part}"),
        ] {
            for method in [Method::GET, Method::PUT, Method::DELETE] {
                let asked = server.request(method.clone(), &path).json(&json!({}));
                let (status, body) = read_available(asked).await;
                // Deprecated watch paths support one method and do not lead to objects.
                let wanted = match path.contains("/watch/") && method != Method::GET {
                    true if code == 400 => 405,
                    _ => code,
                };
                let text = String::from_utf8_lossy(&body);
                assert_eq!(status, wanted, "{method} {path}: {text}");
            }
        }
    }
}

/// The administrator may write anywhere, yet every key has its kind, namespace and name.
#[tokio::test]
async fn cve_2022_3162_keys_stay_under_their_prefix() {
    let server = with_namespaces(&["team"]).await;
    let maps = "/api/v1/namespaces/team/configmaps";
    let lease = "/apis/coordination.k8s.io/v1/namespaces/team/leases/new";
    let apply = format!("{maps}/new");
    for path in altered_paths(lease) {
        server.request(Method::PUT, &path).json(&json!({})).send().await;
    }
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    for path in altered_paths(&apply) {
        let asked = server.request(Method::PATCH, &format!("{path}?fieldManager=m"));
        asked.header("content-type", "application/apply-patch+yaml").json(&object).send().await;
        let asked = server.request(Method::POST, &path).json(&json!({"metadata": {"name": "x"}}));
        asked.send().await;
    }
    let names = ["..", ".", "a/b", "../secrets/x", "a\0b", "a%2fb", "/", "é", "\u{202e}", "A"];
    for name in names {
        for body in [
            json!({"metadata": {"name": name}}),
            json!({"metadata": {"generateName": name}}),
            json!({"metadata": {"name": "x", "namespace": name}}),
        ] {
            for path in [maps, "/api/v1/namespaces", "/api/v1/nodes"] {
                server.post(path, &body).await;
            }
        }
    }
    let all = KeyRange { prefix: String::new(), after: None, limit: None, at: None };
    let page = server.store.range(all).await.unwrap();
    let plain = |part: &str| {
        let legal = |c: char| c.is_ascii_alphanumeric() || ".-:".contains(c);
        !matches!(part, "" | "." | "..") && part.len() <= 253 && part.chars().all(legal)
    };
    for (key, stored) in &page.items {
        let parts: Vec<&str> = key.split('/').collect();
        assert!(parts.iter().all(|part| plain(part)), "{key}");
        let object: Value = serde_json::from_slice(&stored.value).unwrap();
        let metadata = &object["metadata"];
        let reported = match metadata["namespace"].as_str() {
            Some(namespace) => vec![namespace, metadata["name"].as_str().unwrap()],
            None => vec![metadata["name"].as_str().unwrap()],
        };
        assert_eq!(parts[2..], reported, "{key}");
    }
    assert!(page.items.iter().any(|(key, _)| key == "core/configmaps/team/hidden"));
}

#[tokio::test]
async fn cve_2022_3162_continue_tokens_stay_in_their_list() {
    let server = with_namespaces(&["team", "other"]).await;
    let maps = "/api/v1/namespaces/team/configmaps";
    server.delete(&format!("{maps}/hidden")).await.expect(200);
    let list = rule(&["list"], "", &["configmaps"], &[]);
    grant_in(&server, "team", "lister", &[list]).await;
    for name in ["a", "b", "c"] {
        server.post(maps, &config_map(name)).await.expect(201);
    }
    let past = version(&server.get(maps).await.expect(200));
    server.post(maps, &config_map("d")).await.expect(201);
    let now = server.revision();
    let long = "x".repeat(20_000);
    let starts = [
        "..",
        "../secrets/team",
        "team/../other",
        "team/../../secrets",
        "/",
        "",
        "\0",
        "team/\0",
        "team/a\0",
        "other/a",
        "other",
        "a",
        "core/secrets/team/a",
        "./team",
        "team//a",
        "é",
        "\u{202e}",
        "team/a",
        long.as_str(),
    ];
    let mut pages = 0;
    for start in starts {
        for rv in [-1, 1, past as i64, now as i64, now as i64 + 1_000, i64::MAX, i64::MIN] {
            let token = json!({"v": "meta.k8s.io/v1", "rv": rv, "start": start}).to_string();
            let token = URL_SAFE_NO_PAD.encode(token);
            let path = format!("{maps}?limit=2&continue={token}");
            let answer = request_as(&server, "lister", Method::GET, &path).send().await;
            let shown = start.chars().take(40).collect::<String>();
            assert!(!leaks_canary(&answer.body), "{shown:?} {rv}");
            assert!(answer.status.as_u16() < 500, "{shown:?} {rv}: {}", answer.json());
            if answer.status.is_success() {
                pages += 1;
                for item in answer.json()["items"].as_array().unwrap() {
                    assert_eq!(item["metadata"]["namespace"], "team", "{shown:?} {rv}");
                }
            }
        }
    }
    assert!(pages > 0, "no token was right: nothing was tried");
    // A continue token of one list does not give access to another.
    let first = request_as(&server, "lister", Method::GET, &format!("{maps}?limit=1")).send().await;
    let token = first.expect(200)["metadata"]["continue"].as_str().unwrap().to_owned();
    for other in ["/api/v1/configmaps", "/api/v1/namespaces/team/secrets"] {
        let path = format!("{other}?continue={token}");
        request_as(&server, "lister", Method::GET, &path).send().await.fails(403, "Forbidden");
    }
}

/// All permissions in a namespace grant nothing outside: a namespaced path to a cluster-scoped kind
/// does not exist.
#[tokio::test]
async fn cve_2022_3162_namespace_permissions_do_not_cover_cluster_scoped_objects() {
    let server = with_namespaces(&["team"]).await;
    let node = json!({"metadata": {"name": "hidden", "labels": {"k": CANARY}}});
    server.post("/api/v1/nodes", &node).await.expect(201);
    grant_in(&server, "team", "owner", &[everything()]).await;
    let mut tried = 0;
    for (group, plural) in cluster_kinds(&server).await {
        let before = server.revision();
        let path = format!("{group}/namespaces/team/{plural}");
        let watched = format!("{group}/watch/namespaces/team/{plural}");
        let named = |path: &str| format!("{path}/hidden");
        let selected = format!("{path}?fieldSelector=metadata.name%3Dteam");
        for path in [&path, &named(&path), &watched, &named(&watched), &selected] {
            for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
                let body = json!({"metadata": {"name": "hidden"}});
                let asked = request_as(&server, "owner", method.clone(), path).json(&body);
                let (status, body) = read_available(asked).await;
                let text = String::from_utf8_lossy(&body);
                assert!(matches!(status, 404 | 405), "{method} {path}: {status} {text}");
                assert!(!leaks_canary(&body), "{method} {path}");
                tried += 1;
            }
        }
        assert_eq!(server.revision(), before, "{plural}");
        let outside = format!("{group}/{plural}");
        let asked = request_as(&server, "owner", Method::GET, &outside).send().await;
        assert_eq!(asked.status, 403, "{outside}");
    }
    assert!(tried > 100, "only {tried} requests");
    // As in Kubernetes, a namespace is inside itself, and it alone.
    request_as(&server, "owner", Method::GET, "/api/v1/namespaces/team").send().await.expect(200);
    request_as(&server, "owner", Method::GET, "/api/v1/namespaces/other")
        .send()
        .await
        .fails(403, "Forbidden");
}

/// Returns the cluster-scoped kinds as (path of the group, plural).
async fn cluster_kinds(server: &TestServer) -> Vec<(String, String)> {
    let groups = server.get("/apis").await.expect(200);
    let mut places = vec!["/api/v1".to_owned()];
    for group in groups["groups"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            places.push(format!("/apis/{}", version["groupVersion"].as_str().unwrap()));
        }
    }
    let mut all = Vec::new();
    for place in places {
        let found = server.get(&place).await.expect(200);
        for resource in found["resources"].as_array().unwrap() {
            let name = resource["name"].as_str().unwrap();
            if resource["namespaced"] == false && !name.contains('/') {
                all.push((place.clone(), name.to_owned()));
            }
        }
    }
    all
}
