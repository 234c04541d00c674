//! Requests that contain secrets, most of them invalid in some way.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hyper::Method;
use serde_json::{Value, json};

use super::CanaryTokens;
use super::needles::CanaryStrings;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SYSTEM_SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";

/// A request that carries canary strings.
pub struct CanaryRequest {
    pub says: String,
    pub method: Method,
    pub path: String,
    pub content_type: &'static str,
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
    /// Expected status, which proves that the request took the intended path.
    pub status: Option<u16>,
}

impl CanaryRequest {
    fn new(method: Method, path: &str, content_type: &'static str, body: &str) -> CanaryRequest {
        CanaryRequest {
            says: format!("{method} {}", path.split('?').next().unwrap()),
            method,
            path: path.to_owned(),
            content_type,
            headers: Vec::new(),
            body: body.to_owned(),
            status: None,
        }
    }

    pub fn get(path: &str) -> CanaryRequest {
        CanaryRequest::new(Method::GET, path, "", "")
    }

    pub fn post(path: &str, body: &str) -> CanaryRequest {
        CanaryRequest::new(Method::POST, path, "application/json", body)
    }

    fn yaml(path: &str, body: &str) -> CanaryRequest {
        CanaryRequest::new(Method::POST, path, "application/yaml", body)
    }

    fn patch(path: &str, how: &str, body: &Value) -> CanaryRequest {
        let content_type = match how {
            "json" => "application/json-patch+json",
            "merge" => "application/merge-patch+json",
            "strategic" => "application/strategic-merge-patch+json",
            "apply" => "application/apply-patch+yaml",
            other => panic!("no patch is called {other}"),
        };
        let asked = CanaryRequest::new(Method::PATCH, path, content_type, &body.to_string());
        asked.described_as(&format!("a patch ({how})"))
    }

    pub fn bearer(self, token: &str) -> CanaryRequest {
        self.header("authorization", format!("Bearer {token}"))
    }

    fn header(mut self, name: &'static str, value: String) -> CanaryRequest {
        self.headers.push((name, value));
        self
    }

    fn described_as(mut self, what: &str) -> CanaryRequest {
        what.clone_into(&mut self.says);
        self
    }

    fn expect_status(mut self, status: u16) -> CanaryRequest {
        self.status = Some(status);
        self
    }
}

pub fn token_review(token: &str) -> CanaryRequest {
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token},
    });
    CanaryRequest::post("/apis/authentication.k8s.io/v1/tokenreviews", &review.to_string())
}

/// Returns all requests, each with separate canaries.
pub fn all_requests(tokens: &CanaryTokens, needles: &mut CanaryStrings) -> Vec<CanaryRequest> {
    let mut all = credentials(tokens, needles);
    for asked in [secrets(needles), keys(needles), patches(needles), reviews(needles)] {
        all.extend(asked.into_iter().map(|asked| asked.bearer(&tokens.admin)));
    }
    all
}

fn credentials(tokens: &CanaryTokens, needles: &mut CanaryStrings) -> Vec<CanaryRequest> {
    let bad = needles.add_canary("bad token");
    let basic = STANDARD.encode(format!("user:{}", needles.add_canary("password")));
    let socket = URL_SAFE_NO_PAD.encode(needles.add_canary("token of a web socket"));
    let protocol = format!("base64url.bearer.authorization.k8s.io.{socket}");
    let query = needles.add_canary("token in a query");
    let extra = needles.add_canary("extra of an impersonated user");
    let cookie = needles.add_canary("cookie");
    let impersonating = |asked: CanaryRequest| {
        let asked = asked.header("impersonate-user", "carol".into());
        asked.header("impersonate-extra-acme.io%2fkey", extra.clone())
    };
    vec![
        CanaryRequest::get(MAPS).bearer(&tokens.alice),
        CanaryRequest::get(MAPS).bearer(&bad).expect_status(401),
        CanaryRequest::get(MAPS).bearer(&format!("{bad}.{bad}.{bad}")).expect_status(401),
        CanaryRequest::get(MAPS).bearer(&tokens.admin[..tokens.admin.len() - 1]).expect_status(401),
        CanaryRequest::get(MAPS).header("authorization", format!("Basic {basic}")),
        CanaryRequest::get(MAPS).header("sec-websocket-protocol", protocol),
        CanaryRequest::get(MAPS).header("cookie", format!("session={cookie}")),
        CanaryRequest::get(&format!("{MAPS}?token={query}&access_token={query}")).bearer(&tokens.admin),
        CanaryRequest::get(&format!("{MAPS}?token={query}")),
        CanaryRequest::get(&format!("/nowhere/at/all?token={query}"))
            .bearer(&tokens.admin)
            .expect_status(404),
        CanaryRequest::get(&format!("{MAPS}?limit=x&token={query}")).bearer(&tokens.admin).expect_status(400),
        impersonating(CanaryRequest::get(MAPS).bearer(&tokens.admin)),
        impersonating(CanaryRequest::get(MAPS).bearer(&tokens.alice)),
        impersonating(CanaryRequest::get(MAPS)).expect_status(403),
    ]
}

fn secrets(needles: &mut CanaryStrings) -> Vec<CanaryRequest> {
    let plain = needles.add_canary("value of a secret");
    let encoded = STANDARD.encode(&plain);
    let (id, secret) = ("abcdef", needles.add_canary_of_length("bootstrap token", 16));
    let bootstrap = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": format!("bootstrap-token-{id}")},
        "stringData": {
            "token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true",
        },
    });
    let named = |name: &str, rest: Value| {
        let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
        for (field, value) in rest.as_object().unwrap() {
            secret[field] = value.clone();
        }
        secret.to_string()
    };
    let whole = named("whole", json!({"data": {"key": encoded}, "stringData": {"other": plain}}));
    let cut = &whole[..whole.len() - 3];
    let docker = json!({"auths": {"registry": {"auth": encoded}}}).to_string();
    let pull = |text: &str| {
        let data = json!({".dockerconfigjson": STANDARD.encode(text)});
        named("pull", json!({"type": "kubernetes.io/dockerconfigjson", "data": data}))
    };
    let yaml = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: y}}\nstringData:\n  key: {plain}\n  - {plain}\n"
    );
    let strict = format!("{SECRETS}?fieldValidation=Strict");
    vec![
        CanaryRequest::post(SYSTEM_SECRETS, &bootstrap.to_string()),
        CanaryRequest::get(MAPS).bearer(&format!("{id}.{secret}")),
        CanaryRequest::post(SECRETS, &whole),
        CanaryRequest::post(SECRETS, &whole).expect_status(409),
        CanaryRequest::post(SECRETS, cut).described_as("a secret cut short").expect_status(400),
        CanaryRequest::post(SECRETS, &format!("{plain}{whole}"))
            .described_as("text before")
            .expect_status(400),
        CanaryRequest::post(SECRETS, &format!("{whole}{plain}"))
            .described_as("text after")
            .expect_status(400),
        CanaryRequest::post(SECRETS, &whole.replace("\"key\":", "key:"))
            .described_as("no quotes")
            .expect_status(400),
        CanaryRequest::post(SECRETS, &plain).described_as("nothing but the value").expect_status(400),
        CanaryRequest::post(SECRETS, &format!("\"{plain}\"")).described_as("a string").expect_status(400),
        CanaryRequest::post(SECRETS, &whole.replace("Secret", "ConfigMap"))
            .described_as("another kind")
            .expect_status(400),
        CanaryRequest::yaml(SECRETS, &yaml).described_as("broken YAML").expect_status(400),
        CanaryRequest::yaml(SECRETS, &format!("{{{plain}: [")).described_as("cut YAML").expect_status(400),
        CanaryRequest::yaml(SECRETS, &format!("key: !!int {plain}"))
            .described_as("YAML of a type")
            .expect_status(400),
        CanaryRequest::post(SECRETS, &named("a", json!({"data": {"key": plain}}))).described_as("not base64"),
        CanaryRequest::post(SECRETS, &named("b", json!({"data": plain})))
            .described_as("no map")
            .expect_status(400),
        CanaryRequest::post(SECRETS, &named("c", json!({"data": {"key": [plain]}}))).expect_status(400),
        CanaryRequest::post(SECRETS, &named("d", json!({"stringData": {"key": {"a": plain}}})))
            .expect_status(400),
        CanaryRequest::post(SECRETS, &named("e", json!({"metadata": plain, "data": {}}))).expect_status(400),
        CanaryRequest::post(SECRETS, &named("f", json!({"data": {"not a key": encoded}}))).expect_status(422),
        CanaryRequest::post(SECRETS, &named("Not A Name", json!({"data": {"k": encoded}})))
            .expect_status(422),
        CanaryRequest::post(&strict, &named("g", json!({"password": plain}))).expect_status(400),
        CanaryRequest::post(SECRETS, &pull(&docker[..docker.len() - 2]))
            .described_as("half JSON")
            .expect_status(422),
        CanaryRequest::post(SECRETS, &pull(&plain)).described_as("no JSON").expect_status(422),
        CanaryRequest::post("/api/v1/namespaces/nowhere/secrets", &whole).expect_status(404),
        CanaryRequest::post(&format!("{SECRETS}?dryRun=maybe"), &whole).expect_status(422),
        CanaryRequest::new(Method::PUT, &format!("{SECRETS}/absent"), "application/json", &whole),
        CanaryRequest::new(Method::POST, SECRETS, "text/plain", &whole).expect_status(415),
        CanaryRequest::new(Method::POST, SECRETS, "application/vnd.kubernetes.protobuf", &whole)
            .expect_status(400),
        CanaryRequest::new(Method::POST, SECRETS, "application/cbor", &whole).expect_status(415),
    ]
}

fn keys(needles: &mut CanaryStrings) -> Vec<CanaryRequest> {
    let key = needles.add_canary_of_length("private key", 64);
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{key}\n-----END PRIVATE KEY-----\n");
    let tls = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tls"}, "type": "kubernetes.io/tls",
        "stringData": {"tls.key": pem},
    });
    let map = |field: &str, data: Value| {
        let mut map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "k"}});
        map[field] = data;
        map.to_string()
    };
    vec![
        CanaryRequest::post(SECRETS, &tls.to_string())
            .described_as("a key without a certificate")
            .expect_status(422),
        CanaryRequest::post(MAPS, &map("data", json!({"not a key!": pem}))).expect_status(422),
        CanaryRequest::post(MAPS, &map("binaryData", json!({"key": pem}))).expect_status(400),
        CanaryRequest::post(MAPS, &map("data", json!({"key": [pem]}))).expect_status(400),
        CanaryRequest::post(MAPS, &format!("{}{pem}", map("data", json!({"key": pem})))).expect_status(400),
    ]
}

fn patches(needles: &mut CanaryStrings) -> Vec<CanaryRequest> {
    let plain = needles.add_canary("value in a patch");
    let encoded = STANDARD.encode(&plain);
    let at = format!("{SECRETS}/patched");
    let by = |manager: &str| format!("{at}?fieldManager={manager}");
    let applied = |data: Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "patched"}, "data": data});
    let fixed = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "fixed"},
        "immutable": true, "stringData": {"key": plain},
    });
    let op = |op: &str, path: &str, value: &str| json!([{"op": op, "path": path, "value": value}]);
    vec![
        CanaryRequest::post(MAPS, r#"{"metadata": {"name": "patched"}}"#),
        CanaryRequest::patch(&by("one"), "apply", &applied(json!({"key": encoded}))),
        CanaryRequest::patch(
            &by("two"),
            "apply",
            &applied(json!({"key": STANDARD.encode(format!("{plain}2"))})),
        )
        .expect_status(409),
        CanaryRequest::patch(&by("one"), "apply", &applied(json!({"key": [encoded]}))),
        CanaryRequest::patch(&by("one"), "apply", &applied(json!(plain))),
        CanaryRequest::patch(&by("one"), "apply", &applied(json!({"key": plain}))),
        CanaryRequest::patch(&at, "merge", &json!({"data": {"more": encoded}})),
        CanaryRequest::patch(&at, "merge", &json!({"stringData": {"more": plain}})),
        CanaryRequest::patch(&at, "merge", &json!({"data": {"more": plain}})),
        CanaryRequest::patch(&at, "merge", &json!({"data": plain})),
        CanaryRequest::patch(&at, "merge", &json!({"data": {"not a key": encoded}})).expect_status(422),
        CanaryRequest::patch(&at, "strategic", &json!({"data": {"more": [plain]}})),
        CanaryRequest::patch(&at, "strategic", &json!({"data": plain})),
        CanaryRequest::patch(&at, "strategic", &json!({"data": {"$patch": plain}})),
        CanaryRequest::patch(&at, "strategic", &json!({"type": 7, "stringData": {"key": plain}})),
        CanaryRequest::patch(&at, "json", &op("test", "/data/key", &plain)).expect_status(422),
        CanaryRequest::patch(&at, "json", &op("replace", "/data/absent", &plain)),
        CanaryRequest::patch(&at, "json", &op("replace", "/data", &plain)),
        CanaryRequest::patch(&at, "json", &op("invent", "/data/key", &plain)),
        CanaryRequest::patch(&at, "json", &json!([{"op": "add", "value": plain}])).expect_status(422),
        CanaryRequest::patch(&format!("{MAPS}/patched"), "json", &json!([{"op": "add", "value": plain}])),
        CanaryRequest::patch(&at, "json", &json!({"key": plain})),
        CanaryRequest::patch(&at, "json", &json!(plain)),
        CanaryRequest::new(Method::PATCH, &at, "application/merge-patch+json", &format!("{{\"a\":{plain}")),
        CanaryRequest::new(Method::PATCH, &at, "application/json-patch+json", &format!("[{plain}")),
        CanaryRequest::new(Method::PATCH, &at, "application/apply-patch+yaml", &format!("a: [{plain}")),
        CanaryRequest::post(SECRETS, &fixed.to_string()),
        CanaryRequest::patch(&format!("{SECRETS}/fixed"), "merge", &json!({"data": {"key": encoded + "="}})),
        CanaryRequest::patch(&format!("{SECRETS}/fixed"), "merge", &json!({"stringData": {"x": plain}}))
            .expect_status(422),
    ]
}

fn reviews(needles: &mut CanaryStrings) -> Vec<CanaryRequest> {
    let token = needles.add_canary("token to review");
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    vec![
        token_review(&token),
        CanaryRequest::post(reviews, &json!({"spec": {"token": [token]}}).to_string()).expect_status(400),
        CanaryRequest::post(reviews, &json!({"spec": token}).to_string()).expect_status(400),
        CanaryRequest::post(reviews, &format!("{{\"spec\":{{\"token\":\"{token}\"")).expect_status(400),
    ]
}
