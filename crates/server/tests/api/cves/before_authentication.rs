//! Unauthenticated requests change nothing and break nothing.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderValue;
use windlass_pki::CertificateDer;

use super::*;
use crate::authentication::with_signer;
use crate::mutations::TestRng;
use windlass_testkit::{ISSUER, TestResponse};

fn random_bytes(random: &mut TestRng, length: usize) -> Vec<u8> {
    (0..length).map(|_| random.below(256) as u8).collect()
}

/// Returns every route of the server, and some that do not exist.
async fn routes(server: &TestServer) -> Vec<String> {
    let mut all: Vec<String> = server.get("/").await.expect(200)["paths"]
        .as_array()
        .unwrap()
        .iter()
        .map(|path| path.as_str().unwrap().to_owned())
        .collect();
    let groups: Vec<String> = all
        .iter()
        .filter(|path| path.split('/').count() == 4 || *path == "/api/v1")
        .filter(|path| path.starts_with("/api"))
        .cloned()
        .collect();
    for group in groups {
        let found = server.get(&group).await.expect(200);
        for resource in found["resources"].as_array().unwrap() {
            let (plural, part) = resource["name"].as_str().unwrap().split_once('/').map_or_else(
                || (resource["name"].as_str().unwrap(), String::new()),
                |(plural, part)| (plural, format!("/{part}")),
            );
            let place = if resource["namespaced"] == true { "/namespaces/default" } else { "" };
            all.push(format!("{group}{place}/{plural}/x{part}"));
            all.push(format!("{group}{place}/{plural}"));
        }
    }
    all.extend(["/metrics", "/debug/pprof", "/nothing", "/apis/nothing/v1/x"].map(str::to_owned));
    all
}

/// Ten thousand unauthenticated requests over every route and method.
#[tokio::test]
async fn cve_2025_0426_anonymous_requests_change_nothing() {
    let server = TestServer::start().await;
    let routes = routes(&server).await;
    assert!(routes.len() > 100, "{}", routes.len());
    let methods = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];
    let body = json!({"metadata": {"name": "x"}, "spec": {}});
    let before = server.revision();
    let metrics = async || server.get("/metrics").await.body.len();
    let mut known = 0;
    for number in 0..10_000 {
        let path = &routes[number % routes.len()];
        let method = &methods[number / routes.len() % methods.len()];
        // A different text each time, so that any cache of them would grow.
        let path = format!("{path}?fieldManager=m{number}&labelSelector=l{number}");
        let asked = server.request(method.clone(), &path).anonymous();
        let asked = asked.header("user-agent", &format!("agent-{number}")).json(&body);
        let status = asked.send().await.status.as_u16();
        assert!(status < 500 && status != 201, "{method} {path}: {status}");
        // Public documents are readable; nothing else is revealed.
        let public = status == 200 && *method == Method::GET;
        let denied = matches!(status, 401 | 403 | 404 | 405);
        assert!(public || denied, "{method} {path}: {status}");
        if number == 5_000 {
            known = metrics().await;
        }
    }
    assert_eq!(server.revision(), before);
    let grown = metrics().await.abs_diff(known);
    assert!(grown < known / 50, "/metrics grew by {grown} of {known} bytes");
}

/// Asserts that a rejection is not a server error.
fn assert_no_server_error(answer: &TestResponse, what: &str) {
    assert!(answer.status.as_u16() < 500, "{what}: {} {}", answer.status, answer.json());
}

/// Thousands of nearly valid tokens: each is a 401.
#[tokio::test]
async fn cve_2022_23635_tokens_that_are_almost_right() {
    let (server, signer) = with_signer().await;
    let path = "/api/v1/namespaces/default/serviceaccounts";
    let made = server.post(path, &json!({"metadata": {"name": "s"}})).await.expect(201);
    let claims = json!({
        "sub": "system:serviceaccount:default:s", "aud": [ISSUER], "exp": 4_000_000_000_i64,
        "kubernetes.io": {"namespace": "default",
            "serviceaccount": {"name": "s", "uid": made["metadata"]["uid"]}},
    });
    let good = signer.sign(claims.clone()).unwrap();
    let ask = |token: Vec<u8>| {
        let value = HeaderValue::from_bytes(&[b"Bearer ", token.as_slice()].concat()).unwrap();
        server.request(Method::GET, "/api").header_value("authorization", value).send()
    };
    ask(good.clone().into_bytes()).await.expect(200);
    let before = server.revision();
    let mut random = TestRng(0x5eed_0028);
    for round in 0..2_000 {
        let mut token = good.clone().into_bytes();
        let at = random.below(token.len());
        match random.below(5) {
            0 => token.truncate(at.max(1)),
            1 => drop(token.remove(at)),
            2 => token.insert(at, b'.'),
            3 => token[at] = b'!' + random.below(94) as u8,
            _ => token[at] = 0x80 + random.below(128) as u8,
        }
        // The last character of a signature may contain unused bits.
        let said_nothing = at + 1 >= good.len() || token == good.as_bytes();
        let answer = ask(token.clone()).await;
        assert_no_server_error(&answer, &format!("round {round}"));
        if !said_nothing {
            let shown = String::from_utf8_lossy(&token).into_owned();
            assert_eq!(answer.status, 401, "round {round}: {shown}");
        }
    }
    let (header, rest) = good.split_once('.').unwrap();
    let signature = rest.split_once('.').unwrap().1;
    let deep = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
    for part in [
        "",
        "null",
        "[]",
        "7",
        "{",
        "\"x\"",
        "{\"alg\":[]}",
        "{\"alg\":null,\"kid\":{}}",
        "{\"alg\":\"ES256\",\"crit\":[\"x\"]}",
        "{\"alg\":\"ES256\",\"kid\":\"../../etc/passwd\"}",
        "{\"exp\":1e999}",
        "{\"exp\":-9223372036854775808}",
        "{\"aud\":{}}",
        "{\"sub\":[[]]}",
        deep.as_str(),
    ] {
        let odd = URL_SAFE_NO_PAD.encode(part);
        for token in [
            format!("{odd}.{}", &rest),
            format!("{header}.{odd}.{signature}"),
            format!("{header}.{odd}."),
            format!("{odd}.{odd}.{odd}"),
        ] {
            ask(token.into_bytes()).await.fails(401, "Unauthorized");
        }
        // Correctly signed, so that the claims are evaluated.
        if let Ok(claims @ Value::Object(_)) = serde_json::from_str(part)
            && let Ok(token) = signer.sign(claims)
        {
            ask(token.into_bytes()).await.fails(401, "Unauthorized");
        }
    }
    assert_eq!(server.revision(), before);
    ask(good.into_bytes()).await.expect(200);
}

/// Headers and certificates with random bytes.
#[tokio::test]
async fn cve_2022_24726_headers_and_certificates_of_any_bytes() {
    let server = TestServer::start().await;
    let before = server.revision();
    let mut random = TestRng(0x5eed_0029);
    let names = [
        "authorization",
        "impersonate-user",
        "impersonate-group",
        "impersonate-uid",
        "impersonate-extra-x",
        "x-remote-user",
        "x-remote-group",
        "accept",
        "accept-encoding",
        "content-type",
        "audit-id",
        "user-agent",
        "if-none-match",
        "sec-websocket-protocol",
        "x-forwarded-for",
    ];
    for round in 0..2_000 {
        let length = random.below(200);
        let mut value = random_bytes(&mut random, length);
        // Bytes that HTTP does not allow.
        value.retain(|byte| *byte >= b' ' && *byte != 0x7f);
        let prefix: &[u8] = match random.below(3) {
            0 => b"Bearer ",
            1 => b"system:serviceaccount:",
            _ => b"",
        };
        let value = HeaderValue::from_bytes(&[prefix, value.as_slice()].concat()).unwrap();
        let mut asked = server.request(Method::GET, "/api/v1/namespaces/default/secrets").anonymous();
        for _ in 0..=random.below(3) {
            asked = asked.header_value(names[random.below(names.len())], value.clone());
        }
        let length = random.below(600);
        let garbage = random_bytes(&mut random, length);
        if random.below(2) == 0 {
            asked = asked.presenting(&[CertificateDer::from(garbage)]);
        }
        let answer = asked.send().await;
        assert_no_server_error(&answer, &format!("round {round}"));
        assert!(answer.status.is_client_error(), "round {round}: {}", answer.status);
    }
    // Certificates with a valid start.
    for length in [0_usize, 1, 127, 128, 255, 65_535, 1 << 24] {
        for tag in [0x30_u8, 0x31, 0x02, 0xa0] {
            let mut der = vec![tag, 0x84];
            der.extend_from_slice(&(length as u32).to_be_bytes());
            der.extend(std::iter::repeat_n(tag, 600));
            let asked = server.request(Method::GET, "/api").anonymous();
            let answer = asked.presenting(&[CertificateDer::from(der)]).send().await;
            assert_eq!(answer.status, 401, "{tag:#x} {length}");
        }
    }
    assert_eq!(server.revision(), before);
    server.get("/readyz").await;
}
