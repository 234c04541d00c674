//! Malformed and hostile input: rejected quickly, with Kubernetes' messages, without any change.

use http::Method;
use http_body_util::{BodyExt, StreamBody};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use windlass_testkit::{MAPS, TestRequest, TestResponse, TestServer, config_map};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// Sends input that must be rejected immediately, without side effects, while the server keeps
/// running.
async fn refused(server: &TestServer, asked: TestRequest<'_>, code: u16, what: &str) -> TestResponse {
    let before = server.revision();
    let started = Instant::now();
    let answer = asked.send().await;
    let text = String::from_utf8_lossy(&answer.body[..answer.body.len().min(500)]).into_owned();
    assert_eq!(answer.status, code, "{what}: {text}");
    assert!(started.elapsed() < Duration::from_secs(5), "{what} took {:?}", started.elapsed());
    assert_eq!(server.revision(), before, "{what} changed something");
    server.get(MAPS).await.expect(200);
    answer
}

fn post<'a>(server: &'a TestServer, media: &str, body: impl Into<bytes::Bytes>) -> TestRequest<'a> {
    server.request(Method::POST, MAPS).header("content-type", media).raw_body(body)
}

#[tokio::test]
async fn null_is_an_object_without_fields() {
    let server = TestServer::start().await;
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    for media in ["application/json", "application/yaml"] {
        for path in [MAPS, requests] {
            let ask = server.request(Method::POST, path).header("content-type", media).raw_body("null");
            let answer = refused(&server, ask, 422, path).await;
            let causes = answer.json()["details"]["causes"].to_string();
            assert!(causes.contains("name or generateName is required"), "{media} {path}: {causes}");
        }
        let review = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let ask = server.request(Method::POST, review).header("content-type", media).raw_body("null");
        ask.send().await.expect(201);
    }
}

#[tokio::test]
async fn malformed_json() {
    let server = TestServer::start().await;
    for body in [
        "",
        "{",
        "nonsense",
        "[]",
        "7",
        "\"text\"",
        "{}{}",
        "{\"metadata\":{\"name\":\"a\"}} trailing",
        "{\"metadata\":[]}",
        "{\"metadata\":{\"name\":7}}",
        "{\"kind\":7}",
        "{\"apiVersion\":[]}",
        "{\"metadata\":{\"name\":\"a\"},\"data\":[]}",
        "{\"metadata\":{\"name\":\"a\"},\"data\":{\"k\":{}}}",
        "{\"metadata\":{\"name\":\"\\ud800\"}}",
        "{'metadata':{}}",
        "\u{feff}{\"metadata\":{\"name\":\"a\"}}",
    ] {
        let answer = refused(&server, post(&server, "application/json", body), 400, body).await;
        answer.fails(400, "BadRequest");
    }
    let invalid = [b"{\"metadata\":{\"name\":\"".as_slice(), &[0xff, 0xfe], b"\"}}"].concat();
    let answer = post(&server, "application/json", invalid).send().await;
    assert!(answer.status.is_client_error());
}

#[tokio::test]
async fn malformed_yaml() {
    let server = TestServer::start().await;
    for body in [
        "a: [",
        "- a",
        "a: b: c",
        "\t",
        "%YAML 9",
        "&a *a",
        "!!binary x",
        "a: !!python/object x",
        "--- {}\n--- {}",
        "? [a]\n: b",
    ] {
        let answer = post(&server, "application/yaml", body).send().await;
        assert!(answer.status.is_client_error(), "{body}: {}", answer.json());
    }
    assert_eq!(server.get(MAPS).await.expect(200)["items"], json!([]));
}

#[tokio::test]
async fn malformed_protobuf() {
    let server = TestServer::start().await;
    let magic = [0x6b, 0x38, 0x73, 0x00];
    for (what, tail) in [
        ("nothing behind the magic", &[][..]),
        ("a length beyond the end", &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]),
        ("an endless number", &[0xff; 20]),
        ("a group", &[0x0b, 0x0b, 0x0b]),
        ("field 0", &[0x02, 0x00]),
        ("a raw part that is none", &[0x12, 0x03, 0xff, 0xff, 0xff]),
    ] {
        let body = [&magic[..], tail].concat();
        let asked = post(&server, "application/vnd.kubernetes.protobuf", body);
        let answer = asked.send().await;
        assert!(answer.status.is_client_error(), "{what}: {}", answer.json());
    }
    for body in [&b""[..], b"k8s", b"{}", &[0; 64]] {
        let asked = post(&server, "application/vnd.kubernetes.protobuf", body.to_vec());
        refused(&server, asked, 400, "no magic").await;
    }
}

#[tokio::test]
async fn a_body_too_large_is_not_even_read() {
    let server = TestServer::start().await;
    let asked = post(&server, "application/json", vec![b' '; 3 * 1024 * 1024 + 1]);
    let answer = refused(&server, asked, 413, "3 MiB and a byte").await;
    let said = answer.fails(413, "RequestEntityTooLarge");
    assert_eq!(said, "Request entity too large: limit is 3145728");
    // Unknown length: read up to the limit and no further.
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = sent.clone();
    let chunks = futures::stream::repeat_with(move || {
        counter.fetch_add(64 * 1024, Ordering::Relaxed);
        Ok(http_body::Frame::data(bytes::Bytes::from_static(&[b' '; 64 * 1024])))
    });
    let asked = post(&server, "application/json", "");
    let (status, ..) = asked.open_with(StreamBody::new(chunks).boxed_unsync()).await;
    assert_eq!(status, 413);
    assert!(sent.load(Ordering::Relaxed) <= 3 * 1024 * 1024 + 128 * 1024);
    // Within the body limit, but beyond the limit of the kind, then beyond the object limit.
    let mut big = config_map("big");
    for (size, code) in [(400_000, 422), (1_000_000, 413)] {
        big["data"]["k"] = json!("x".repeat(1_000_000));
        big["binaryData"] = json!({"b": "A".repeat(size)});
        let body = big.to_string();
        refused(&server, post(&server, "application/json", body), code, "1 MiB of data").await;
    }
}

#[tokio::test]
async fn a_body_that_breaks_off() {
    let server = TestServer::start().await;
    let before = server.revision();
    let chunks = futures::stream::iter([
        Ok(http_body::Frame::data(bytes::Bytes::from_static(b"{\"metadata\":"))),
        Err("reset".into()),
    ]);
    let asked = post(&server, "application/json", "");
    let (status, ..) = asked.open_with(StreamBody::new(chunks).boxed_unsync()).await;
    assert_eq!(status, 400);
    assert_eq!(server.revision(), before);
}

#[tokio::test]
async fn cve_2019_11254_nesting_without_end() {
    let server = TestServer::start().await;
    let deep = |open: &str, close: &str| format!("{}1{}", open.repeat(10_000), close.repeat(10_000));
    for (media, body) in [
        ("application/json", deep("[", "]")),
        ("application/json", deep("{\"a\":", "}")),
        ("application/json", format!("{{\"metadata\":{{\"name\":\"a\"}},\"x\":{}}}", deep("[", "]"))),
        ("application/json", "[".repeat(1_000_000)),
        ("application/yaml", deep("[", "]")),
        ("application/yaml", deep("{a: ", "}")),
        ("application/yaml", "- ".repeat(10_000)),
        ("application/yaml", "? ".repeat(10_000)),
    ] {
        let what = body[..20].to_owned();
        refused(&server, post(&server, media, body), 400, &what).await;
    }
}

#[tokio::test]
async fn cve_2019_11253_yaml_aliases_that_multiply() {
    let server = TestServer::start().await;
    let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for i in 1..12 {
        let refs = vec![format!("*a{}", i - 1); 10].join(", ");
        laughs.push_str(&format!("a{i}: &a{i} [{refs}]\n"));
    }
    refused(&server, post(&server, "application/yaml", laughs.clone()), 400, "laughs").await;
    let asked = server.request(Method::PATCH, &format!("{MAPS}/a?fieldManager=m"));
    let asked = asked.header("content-type", "application/apply-patch+yaml").raw_body(laughs);
    refused(&server, asked, 400, "applied laughs").await;
    let long = format!("k: &a {}\nl: [{}]\n", "x".repeat(100_000), vec!["*a"; 20_000].join(","));
    refused(&server, post(&server, "application/yaml", long), 400, "one long alias").await;
}

#[tokio::test]
async fn cve_2022_3162_paths_that_lead_astray() {
    let server = TestServer::start().await;
    server
        .post(SECRETS, &json!({"metadata": {"name": "s"}, "stringData": {"k": "hidden"}}))
        .await
        .expect(201);
    let long = format!("{MAPS}/{}", "a".repeat(60_000));
    for path in [
        "/api/v1/namespaces/default/configmaps/..",
        "/api/v1/namespaces/default/configmaps/%2e%2e",
        "/api/v1/namespaces/default/configmaps/.",
        "/api/v1/namespaces/default/configmaps/../secrets/s",
        "/api/v1/namespaces/default/configmaps/%2e%2e/secrets/s",
        "/api/v1/namespaces/default/configmaps/..%2fsecrets%2fs",
        "/api/v1/namespaces/default%2fx/configmaps/a",
        "/api/v1/namespaces/../secrets/s",
        "/api/v1/namespaces/%2e%2e/secrets/s",
        "/api/v1/namespaces/default/configmaps/a%00b",
        "/api/v1/namespaces/default/configmaps/%ff%fe",
        "/api/v1/namespaces/default/configmaps/%",
        "/api/v1/namespaces/default/configmaps/%zz",
        "/api/v1/namespaces/default/configmaps/a%25b",
        "/api/v1/namespaces/default/configmaps/%E2%80%AE",
        "/api/v1/namespaces/default/configmaps/a/b/c/d",
        "/api/v1/namespaces/default/secrets/s/x",
        "/api/../api/v1/secrets",
        "/api/v1/configmaps/a",
        "/apis//v1/configmaps",
        "/apis/x/v1/configmaps",
        "/api/v2/configmaps",
        "/../../etc/passwd",
        "//etc/passwd",
        long.as_str(),
    ] {
        for method in [Method::GET, Method::PUT, Method::DELETE] {
            let asked = server.request(method.clone(), path).json(&config_map("a"));
            let before = server.revision();
            let answer = asked.send().await;
            let shown = path.chars().take(80).collect::<String>();
            assert!(answer.status.is_client_error(), "{method} {shown}: {}", answer.status);
            assert!(!String::from_utf8_lossy(&answer.body).contains("aGlkZGVu"), "{shown}");
            assert_eq!(server.revision(), before, "{method} {shown}");
        }
    }
    server.get(MAPS).await.expect(200);
}

#[tokio::test]
async fn queries_that_mean_nothing() {
    let server = TestServer::start().await;
    for (query, code) in [
        ("limit=x", 400),
        ("limit=-1", 200),
        ("limit=9223372036854775807", 200),
        ("limit=9223372036854775808", 400),
        ("timeoutSeconds=x", 400),
        ("watch=maybe&timeoutSeconds=1&resourceVersion=x", 400),
        ("%zz=%zz", 200),
        ("=&&=&a", 200),
        // NUL ends a selector, as in Kubernetes' lexer.
        ("labelSelector=%00", 200),
        ("fieldSelector=%00%3D1", 400),
        ("labelSelector=a%3Db&labelSelector=c", 200),
        ("unknown=option", 200),
    ] {
        let answer = server.get(&format!("{MAPS}?{query}")).await;
        assert_eq!(answer.status, code, "{query}: {}", answer.json());
    }
    let selector = format!("{MAPS}?labelSelector={}", vec!["a"; 15_000].join(","));
    let started = Instant::now();
    server.get(&selector).await.fails(400, "BadRequest");
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn headers_that_mean_nothing() {
    let server = TestServer::start().await;
    let accept = vec!["application/json;q=0.1;as=Table;v=v1;g=meta.k8s.io"; 1000].join(",");
    let latin: http::HeaderValue = http::HeaderValue::from_bytes(b"\xff\xfe").unwrap();
    let answer = server.request(Method::GET, MAPS).header("accept", &accept).send().await;
    answer.expect(200);
    for name in ["accept", "content-type", "user-agent", "audit-id"] {
        let asked = server.request(Method::POST, MAPS).json(&config_map(&format!("h-{name}")));
        let answer = asked.header_value(name, latin.clone()).send().await;
        assert!(answer.status.as_u16() < 500, "{name}: {}", answer.json());
    }
}

/// An error about an invalid secret must not reveal its contents.
#[tokio::test]
async fn cve_2020_8565_failures_do_not_repeat_secrets() {
    let server = TestServer::start().await;
    let path = format!("{SECRETS}/s");
    let made = json!({"metadata": {"name": "s"}, "immutable": true, "stringData": {"k": "swordfish"}});
    server.post(SECRETS, &made).await.expect(201);
    let (plain, coded) = ("swordfish", "c3dvcmRmaXNo");
    let with = |extra: Value| {
        let mut body = json!({"metadata": {"name": "t"}});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        body
    };
    let mut answers = Vec::new();
    for body in [
        with(json!({"data": {"bad key": coded}})),
        with(json!({"data": {"k": format!("{coded}*")}})),
        with(json!({"stringData": {"bad key": plain}})),
        with(json!({"stringData": {"k": [plain]}})),
        with(json!({"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": plain}})),
        with(json!({"type": "kubernetes.io/dockercfg", "stringData": {".dockercfg": plain}})),
        with(json!({"type": "kubernetes.io/tls", "stringData": {"tls.crt": plain}})),
        with(json!({"type": "kubernetes.io/basic-auth", "stringData": {"x": plain}})),
        with(json!({"type": "kubernetes.io/service-account-token", "stringData": {"token": plain}})),
        with(json!({"metadata": {"name": "Bad"}, "stringData": {"k": plain}})),
        with(json!({"stringData": {"k": plain.repeat(200_000)}})),
    ] {
        answers.push(server.post(SECRETS, &body).await);
    }
    let change = json!({"metadata": {"name": "s"}, "stringData": {"k": "herring"}});
    answers.push(server.put(&path, &change).await);
    answers.push(server.patch(&path, "merge", &json!({"data": {"k": null}})).await);
    answers
        .push(server.patch(&path, "json", &json!([{"op": "test", "path": "/data/k", "value": "x"}])).await);
    answers.push(server.patch(&path, "json", &json!([{"op": "remove", "path": "/data/k/x"}])).await);
    let applied =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "eA=="}});
    answers.push(server.patch(&format!("{path}?fieldManager=m"), "apply", &applied).await);
    answers.push(server.post(SECRETS, &made).await);
    for answer in answers {
        let text = String::from_utf8_lossy(&answer.body);
        assert!(answer.status.is_client_error(), "{text}");
        for hidden in [plain, coded] {
            assert!(!text.contains(hidden), "{text}");
        }
    }
}
