//! Secrets must not leak: not in the trace log, the audit log, metrics, or responses to failed
//! requests.
//!
//! Every secret that is sent is a canary: a random text that nothing else can contain. Afterwards
//! all output of the server is searched for them.

mod needles;
mod requests;

use std::fs;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request};

use crate::server::{PATIENCE, TestDataDir, TestServer};
use needles::CanaryStrings;
use requests::CanaryRequest;
use rustix::process::Signal;
use windlass_testkit::HttpClient;

const AUDIT: &str = "audit.log";

/// Bearer tokens of the tests, which are secrets too.
struct CanaryTokens {
    admin: String,
    alice: String,
}

#[tokio::test(flavor = "multi_thread")]
async fn cve_2019_11250_no_secret_is_ever_written_down() {
    let mut needles = CanaryStrings::default();
    let tokens =
        CanaryTokens { admin: needles.add_canary("admin token"), alice: needles.add_canary("alice token") };
    let mut server = start(&tokens);
    let mut client = CanaryClient { http: server.http_as("unused"), needles, findings: Vec::new() };
    for http2 in [false, true] {
        client.issue_and_use_token(http2, &tokens).await;
        for asked in requests::all_requests(&tokens, &mut client.needles) {
            client.send(http2, &asked).await;
        }
    }
    for path in ["/metrics", "/readyz?verbose", "/livez?verbose", "/openapi/v2"] {
        let asked = CanaryRequest::get(path).bearer(&tokens.admin);
        let (status, text) = client.send(true, &asked).await;
        assert_eq!(status, 200, "{path}: {text}");
        client.search(path, &text);
    }
    server.signal(Signal::TERM);
    assert!(server.wait(PATIENCE).is_some(), "the server does not end");
    client.search("standard output", &server.output());
    for (name, text) in output_files(server.place()) {
        client.search(name, &text);
    }
    // Drop the server first: a failing test would print its log, which is long and already in the
    // findings.
    drop(server);
    assert!(client.findings.is_empty(), "{}", client.findings.join("\n"));
}

/// Starts a server with maximum logging.
fn start(tokens: &CanaryTokens) -> TestServer {
    let place = TestDataDir::new();
    let file = format!(
        "{},admin,admin-uid,\"system:masters\"\n{},alice,alice-uid,\"dev\"\n",
        tokens.admin, tokens.alice
    );
    fs::write(place.path().join("tokens.csv"), file).unwrap();
    let mut command = place.restart_command();
    command.args(["--log-level", "trace"]);
    command.arg("--audit-log-path").arg(place.path().join(AUDIT));
    place.launch(command)
}

/// Returns the readable files that the server writes. Each must contain a text that proves that it
/// was enabled.
fn output_files(place: &TestDataDir) -> Vec<(&'static str, String)> {
    let files = [("server.log", "TRACE"), (AUDIT, "ResponseComplete")];
    files
        .into_iter()
        .map(|(name, sign)| {
            let text = fs::read_to_string(place.path().join(name)).unwrap();
            assert!(text.contains(sign), "{name} has no {sign}");
            (name, if name == AUDIT { without_extra(&text) } else { text })
        })
        .collect()
}

/// Removes the extra fields of impersonated users from events: the audit log contains them on
/// purpose, as in Kubernetes.
fn without_extra(events: &str) -> String {
    let without = |line: &str| {
        let mut event: serde_json::Value = serde_json::from_str(line).unwrap();
        if let Some(user) = event["impersonatedUser"].as_object_mut() {
            user.remove("extra");
        }
        format!("{event}\n")
    };
    events.lines().map(without).collect()
}

struct CanaryClient {
    http: HttpClient,
    needles: CanaryStrings,
    /// Leaked canaries, and requests with an unexpected status.
    findings: Vec<String>,
}

impl CanaryClient {
    fn search(&mut self, place: &str, text: &str) {
        self.findings.extend(self.needles.find_leak(place, text));
    }

    /// Sends a request and searches its response, unless it succeeded: then it may return what was
    /// sent.
    async fn send(&mut self, http2: bool, asked: &CanaryRequest) -> (u16, String) {
        let response = if http2 {
            let mut sender = self.http.connect_http2().await.unwrap();
            sender.send_request(request(asked, "https://localhost")).await.unwrap()
        } else {
            let mut connection = self.http.connect().await.unwrap();
            connection.exchange(request(asked, "")).await.unwrap()
        };
        let status = response.status().as_u16();
        let headers = format!("{:?}", response.headers());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&body).into_owned();
        let shown = format!("the answer {status} to {}", asked.says);
        self.search(&shown, &headers);
        if status >= 400 {
            self.search(&shown, &text);
        }
        if asked.status.is_some_and(|wanted| wanted != status) {
            let start: String = text.chars().take(300).collect();
            self.findings.push(format!("{shown} should have been {:?}: {start}", asked.status));
        }
        (status, text)
    }

    /// Uses a token that the server issued: unchanged, and with a modified signature.
    async fn issue_and_use_token(&mut self, http2: bool, tokens: &CanaryTokens) {
        let accounts = "/api/v1/namespaces/default/serviceaccounts";
        let account = r#"{"metadata": {"name": "canary"}}"#;
        self.send(http2, &CanaryRequest::post(accounts, account).bearer(&tokens.admin)).await;
        let request = r#"{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}"#;
        let asked = CanaryRequest::post(&format!("{accounts}/canary/token"), request).bearer(&tokens.admin);
        let (status, text) = self.send(http2, &asked).await;
        assert_eq!(status, 201, "{text}");
        let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
        let token = answer["status"]["token"].as_str().unwrap().to_owned();
        // The first part is the same for all tokens.
        for part in token.split('.').skip(1) {
            self.needles.add("issued token", part);
        }
        let (kept, signature) = token.rsplit_once('.').unwrap();
        let forged: String = signature.chars().rev().collect();
        for token in [token.clone(), format!("{kept}.{forged}"), kept.to_owned()] {
            self.send(http2, &CanaryRequest::get(accounts).bearer(&token)).await;
            let review = requests::token_review(&token);
            self.send(http2, &review.bearer(&tokens.admin)).await;
        }
    }
}

fn request(asked: &CanaryRequest, authority: &str) -> Request<Full<Bytes>> {
    let mut request =
        Request::builder().method(asked.method.clone()).uri(format!("{authority}{}", asked.path));
    if authority.is_empty() {
        request = request.header("host", "localhost");
    }
    if asked.method != Method::GET {
        request = request.header("content-type", asked.content_type);
    }
    for (name, value) in &asked.headers {
        request = request.header(*name, value);
    }
    request.body(Full::from(asked.body.clone())).unwrap()
}
