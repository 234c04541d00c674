//! Thousands of nearly valid requests: nothing breaks, and failed requests change nothing.

use futures::FutureExt;
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use windlass_testkit::{MAPS, PODS, TestServer, config_map, pod};

const ROUNDS: usize = 2_000;

#[tokio::test]
async fn requests_that_are_almost_right() {
    let server = TestServer::start().await;
    server.post(MAPS, &config_map("a")).await.expect(201);
    server.post(PODS, &pod("p")).await.expect(201);
    let mut random = TestRng(0x5eed_1234_abcd_0001);
    let valid = valid();
    let mut refused = 0;
    for round in 0..ROUNDS {
        let base = &valid[random.below(valid.len())];
        let Some(request) = mutated(base, &mut random) else { continue };
        let before = server.revision();
        let mut asked = server.request(request.method.clone(), &request.path).raw_body(request.body.clone());
        if !request.media.is_empty() {
            asked = asked.header("content-type", request.media);
        }
        let (status, _, body) = asked.open().await;
        // A watch does not end; all other responses are complete.
        let body = body.collect().now_or_never().map(|b| b.unwrap().to_bytes()).unwrap_or_default();
        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        let shown = format!(
            "round {round}: {} {} {}\n{} -> {status} {answer}",
            request.method,
            request.path,
            request.media,
            String::from_utf8_lossy(&request.body),
        );
        // 504: a future version. 500 without a reason: an error that Kubernetes leaves
        // unclassified.
        let unclassified = status == 500 && answer["reason"] == Value::Null;
        assert!(status.as_u16() < 500 || status == 504 || unclassified, "{shown}");
        // A request that timed out may have been executed, fully or in part.
        if server.revision() != before && status != 504 {
            assert!(status.is_success() && request.method != Method::GET, "{shown}");
        }
        refused += usize::from(!status.is_success());
    }
    assert!(refused > ROUNDS / 4, "only {refused} were refused: the mutations are too tame");
    server.get(MAPS).await.expect(200);
}

struct MutatedRequest {
    method: Method,
    path: String,
    media: &'static str,
    body: Vec<u8>,
}

fn valid() -> Vec<MutatedRequest> {
    let request = |method: Method, path: &str, media, body: Value| MutatedRequest {
        method,
        path: format!("{path}{}timeout=50ms", if path.contains('?') { '&' } else { '?' }),
        media,
        body: if body.is_null() { Vec::new() } else { body.to_string().into_bytes() },
    };
    let (json_, merge, strategic, six, apply) = (
        "application/json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
        "application/json-patch+json",
        "application/apply-patch+yaml",
    );
    let a = format!("{MAPS}/a");
    let p = format!("{PODS}/p");
    let labels = json!({"metadata": {"labels": {"x": "y"}, "annotations": {"n": "1"}}});
    let applied =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"z": "1"}});
    vec![
        request(Method::GET, MAPS, "", Value::Null),
        request(Method::GET, &format!("{MAPS}?limit=1&labelSelector=x%3Dy,n+in+(a,b)"), "", Value::Null),
        request(
            Method::GET,
            &format!("{MAPS}?resourceVersion=5&resourceVersionMatch=NotOlderThan"),
            "",
            Value::Null,
        ),
        request(Method::GET, &format!("{MAPS}?watch=1&timeoutSeconds=1&resourceVersion=5"), "", Value::Null),
        request(Method::GET, &a, "", Value::Null),
        request(Method::GET, "/api/v1/pods?fieldSelector=spec.nodeName%3Dn", "", Value::Null),
        request(Method::POST, MAPS, json_, config_map("b")),
        request(Method::POST, PODS, json_, pod("q")),
        request(Method::POST, MAPS, "application/yaml", config_map("y")),
        request(
            Method::POST,
            "/api/v1/nodes?fieldValidation=Strict",
            json_,
            json!({"metadata": {"name": "n"}, "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}),
        ),
        request(
            Method::POST,
            "/api/v1/namespaces/default/services",
            json_,
            json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80, "targetPort": "http"}], "selector": {"a": "b"}}}),
        ),
        request(
            Method::POST,
            "/api/v1/namespaces/default/secrets",
            json_,
            json!({"metadata": {"generateName": "s-"}, "data": {"k": "dg=="}}),
        ),
        request(Method::PUT, &a, json_, config_map("a")),
        request(
            Method::PUT,
            "/apis/coordination.k8s.io/v1/namespaces/default/leases/l",
            json_,
            json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "h", "leaseDurationSeconds": 5, "renewTime": "2026-01-01T00:00:00.000000Z"}}),
        ),
        request(Method::PATCH, &a, merge, labels.clone()),
        request(Method::PATCH, &p, strategic, labels),
        request(
            Method::PATCH,
            &format!("{p}/status"),
            strategic,
            json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
        ),
        request(
            Method::PATCH,
            &a,
            six,
            json!([{"op": "add", "path": "/data/x", "value": "1"}, {"op": "copy", "from": "/data/x", "path": "/data/y"}]),
        ),
        request(Method::PATCH, &format!("{a}?fieldManager=m&force=true"), apply, applied),
        request(Method::DELETE, &format!("{MAPS}/b?gracePeriodSeconds=5"), "", Value::Null),
        request(
            Method::DELETE,
            &format!("{PODS}/q"),
            json_,
            json!({"propagationPolicy": "Foreground", "preconditions": {"uid": "u"}}),
        ),
    ]
}

/// Returns a request that differs from a valid one in one to three places; `None` if no HTTP
/// library would accept it.
fn mutated(base: &MutatedRequest, random: &mut TestRng) -> Option<MutatedRequest> {
    let (mut path, mut body) = (base.path.clone().into_bytes(), base.body.clone());
    let mut method = base.method.clone();
    let mut media = base.media;
    for _ in 0..=random.below(3) {
        match random.below(10) {
            0 => {
                let all = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
                method = all[random.below(all.len())].clone();
            }
            1 => {
                let all = [
                    "",
                    "application/json",
                    "application/yaml",
                    "application/vnd.kubernetes.protobuf",
                    "application/apply-patch+yaml",
                    "application/json-patch+json",
                ];
                media = all[random.below(all.len())];
            }
            2 | 3 => scramble(&mut path, random),
            4 => swap_value(&mut body, random),
            _ => scramble(&mut body, random),
        }
    }
    let path = String::from_utf8(path).ok()?;
    path.starts_with('/').then_some(())?;
    path.parse::<http::Uri>().ok().filter(|u| u.host().is_none())?;
    Some(MutatedRequest { method, path, media, body })
}

/// Words with a meaning somewhere in the API.
const WORDS: &[&str] = &[
    "..",
    "%2e%2e",
    "%2f",
    "%00",
    "0",
    "-1",
    "9223372036854775808",
    "1e999",
    "null",
    "{}",
    "[]",
    "\"",
    "\\u0000",
    "true",
    "status",
    "watch",
    "default",
    "kube-system",
    "metadata",
    "finalizers",
    "$patch",
    "delete",
    "resourceVersion",
    "&",
    "=",
    "%",
    "*a",
    "&a",
    "!!",
    "~1",
    "é",
    "\u{202e}",
    "\n",
];

pub fn scramble(bytes: &mut Vec<u8>, random: &mut TestRng) {
    let at = random.below(bytes.len() + 1);
    let len = random.below(6).min(bytes.len() - at);
    match random.below(5) {
        0 => drop(bytes.drain(at..at + len)),
        1 => bytes.truncate(at),
        2 => {
            let copied = bytes[at..at + len].to_vec();
            bytes.splice(at..at, copied);
        }
        3 => {
            let word = WORDS[random.below(WORDS.len())].bytes();
            bytes.splice(at..at + len, word);
        }
        _ => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = random.below(256) as u8;
            }
        }
    }
}

/// Replaces one value of a JSON body with one of another type.
pub fn swap_value(body: &mut Vec<u8>, random: &mut TestRng) {
    let Ok(mut value) = serde_json::from_slice::<Value>(body) else { return };
    let odd = [
        json!(null),
        json!(true),
        json!(-1),
        json!(1e300),
        json!(""),
        json!("x".repeat(300)),
        json!([]),
        json!({}),
        json!([[[]]]),
        json!({"name": "x"}),
        json!("2026-13-45T99:00:00Z"),
        json!(i64::MAX),
        json!("\u{0}"),
    ];
    replace_one(&mut value, &odd[random.below(odd.len())], random);
    *body = value.to_string().into_bytes();
}

fn replace_one(at: &mut Value, with: &Value, random: &mut TestRng) {
    let stop = random.below(4) == 0;
    let inner = match at {
        Value::Object(map) if !map.is_empty() && !stop => {
            let i = random.below(map.len());
            map.values_mut().nth(i)
        }
        Value::Array(list) if !list.is_empty() && !stop => {
            let i = random.below(list.len());
            list.get_mut(i)
        }
        _ => None,
    };
    match inner {
        Some(inner) => replace_one(inner, with, random),
        None => *at = with.clone(),
    }
}

/// A small seeded generator, so that failures are reproducible.
pub struct TestRng(pub u64);

impl TestRng {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }
}

#[tokio::test]
async fn a_token_is_issued_for_the_account_of_the_path() {
    let server = TestServer::start().await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let made = server.post(accounts, &json!({"metadata": {"name": "build"}})).await.expect(201);
    let path = format!("{accounts}/build/token");
    let secret = json!({"metadata": {"name": "s"}});
    server.post("/api/v1/namespaces/default/secrets", &secret).await.expect(201);
    let bound = |kind: &str, uid: &str| json!({"apiVersion": "v1", "kind": kind, "name": "s", "uid": uid});
    for (body, code, reason, message) in [
        (
            json!({"metadata": {"name": "other"}, "spec": {}}),
            422,
            "Invalid",
            "TokenRequest.authentication.k8s.io \"build\" is invalid: metadata.name: \
             Invalid value: \"other\": must match the service account name if specified",
        ),
        (
            json!({"spec": {"boundObjectRef": bound("Foo", "")}}),
            400,
            "BadRequest",
            "cannot bind token to object of type /v1, Kind=Foo",
        ),
        (
            json!({"spec": {"boundObjectRef": bound("Secret", "u")}}),
            409,
            "Conflict",
            "Operation cannot be fulfilled on Secret \"s\": the UID in the bound object reference \
             (u) does not match the UID in record. The object might have been deleted and then \
             recreated",
        ),
    ] {
        assert_eq!(server.post(&path, &body).await.fails(code, reason), message);
    }
    let stale = json!({"metadata": {"uid": "u"}, "spec": {}});
    let uid = made["metadata"]["uid"].as_str().unwrap();
    assert_eq!(
        server.post(&path, &stale).await.fails(409, "Conflict"),
        format!(
            "Operation cannot be fulfilled on TokenRequest.authentication.k8s.io \"build\": the \
             UID in the token request (u) does not match the UID of the service account ({uid})"
        )
    );
    let token = server.post(&path, &json!({"spec": {}})).await.expect(201);
    assert_eq!(token["metadata"]["uid"], uid);
}
