//! Requests that carry secrets, most of them broken in some way.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hyper::Method;
use serde_json::{Value, json};

use super::Tokens;
use super::needles::Needles;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SYSTEM_SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";

/// One request.
pub struct Asked {
    pub says: String,
    pub method: Method,
    pub path: String,
    pub content_type: &'static str,
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
    /// The only status that shows that the request was what it was meant to be.
    pub status: Option<u16>,
}

impl Asked {
    fn new(method: Method, path: &str, content_type: &'static str, body: &str) -> Asked {
        Asked {
            says: format!("{method} {}", path.split('?').next().unwrap()),
            method,
            path: path.to_owned(),
            content_type,
            headers: Vec::new(),
            body: body.to_owned(),
            status: None,
        }
    }

    pub fn get(path: &str) -> Asked {
        Asked::new(Method::GET, path, "", "")
    }

    pub fn post(path: &str, body: &str) -> Asked {
        Asked::new(Method::POST, path, "application/json", body)
    }

    fn yaml(path: &str, body: &str) -> Asked {
        Asked::new(Method::POST, path, "application/yaml", body)
    }

    fn patch(path: &str, how: &str, body: &Value) -> Asked {
        let content_type = match how {
            "json" => "application/json-patch+json",
            "merge" => "application/merge-patch+json",
            "strategic" => "application/strategic-merge-patch+json",
            "apply" => "application/apply-patch+yaml",
            other => panic!("no patch is called {other}"),
        };
        let asked = Asked::new(Method::PATCH, path, content_type, &body.to_string());
        asked.says(&format!("a patch ({how})"))
    }

    pub fn bearer(self, token: &str) -> Asked {
        self.header("authorization", format!("Bearer {token}"))
    }

    fn header(mut self, name: &'static str, value: String) -> Asked {
        self.headers.push((name, value));
        self
    }

    fn says(mut self, what: &str) -> Asked {
        what.clone_into(&mut self.says);
        self
    }

    fn answered(mut self, status: u16) -> Asked {
        self.status = Some(status);
        self
    }
}

/// The question whose token this is.
pub fn token_review(token: &str) -> Asked {
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token},
    });
    Asked::post("/apis/authentication.k8s.io/v1/tokenreviews", &review.to_string())
}

/// All of them, with canaries of their own.
pub fn all(tokens: &Tokens, needles: &mut Needles) -> Vec<Asked> {
    let mut all = credentials(tokens, needles);
    for asked in [secrets(needles), keys(needles), patches(needles), reviews(needles)] {
        all.extend(asked.into_iter().map(|asked| asked.bearer(&tokens.admin)));
    }
    all
}

fn credentials(tokens: &Tokens, needles: &mut Needles) -> Vec<Asked> {
    let bad = needles.plant("bad token");
    let basic = STANDARD.encode(format!("user:{}", needles.plant("password")));
    let socket = URL_SAFE_NO_PAD.encode(needles.plant("token of a web socket"));
    let protocol = format!("base64url.bearer.authorization.k8s.io.{socket}");
    let query = needles.plant("token in a query");
    let extra = needles.plant("extra of an impersonated user");
    let cookie = needles.plant("cookie");
    let impersonating = |asked: Asked| {
        let asked = asked.header("impersonate-user", "carol".into());
        asked.header("impersonate-extra-acme.io%2fkey", extra.clone())
    };
    vec![
        Asked::get(MAPS).bearer(&tokens.alice),
        Asked::get(MAPS).bearer(&bad).answered(401),
        Asked::get(MAPS).bearer(&format!("{bad}.{bad}.{bad}")).answered(401),
        Asked::get(MAPS).bearer(&tokens.admin[..tokens.admin.len() - 1]).answered(401),
        Asked::get(MAPS).header("authorization", format!("Basic {basic}")),
        Asked::get(MAPS).header("sec-websocket-protocol", protocol),
        Asked::get(MAPS).header("cookie", format!("session={cookie}")),
        Asked::get(&format!("{MAPS}?token={query}&access_token={query}")).bearer(&tokens.admin),
        Asked::get(&format!("{MAPS}?token={query}")),
        Asked::get(&format!("/nowhere/at/all?token={query}")).bearer(&tokens.admin).answered(404),
        Asked::get(&format!("{MAPS}?limit=x&token={query}")).bearer(&tokens.admin).answered(400),
        impersonating(Asked::get(MAPS).bearer(&tokens.admin)),
        impersonating(Asked::get(MAPS).bearer(&tokens.alice)),
        impersonating(Asked::get(MAPS)).answered(403),
    ]
}

fn secrets(needles: &mut Needles) -> Vec<Asked> {
    let plain = needles.plant("value of a secret");
    let encoded = STANDARD.encode(&plain);
    let (id, secret) = ("abcdef", needles.plant_of_length("bootstrap token", 16));
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
        Asked::post(SYSTEM_SECRETS, &bootstrap.to_string()),
        Asked::get(MAPS).bearer(&format!("{id}.{secret}")),
        Asked::post(SECRETS, &whole),
        Asked::post(SECRETS, &whole).answered(409),
        Asked::post(SECRETS, cut).says("a secret cut short").answered(400),
        Asked::post(SECRETS, &format!("{plain}{whole}")).says("text before").answered(400),
        Asked::post(SECRETS, &format!("{whole}{plain}")).says("text after").answered(400),
        Asked::post(SECRETS, &whole.replace("\"key\":", "key:")).says("no quotes").answered(400),
        Asked::post(SECRETS, &plain).says("nothing but the value").answered(400),
        Asked::post(SECRETS, &format!("\"{plain}\"")).says("a string").answered(400),
        Asked::post(SECRETS, &whole.replace("Secret", "ConfigMap"))
            .says("another kind")
            .answered(400),
        Asked::yaml(SECRETS, &yaml).says("broken YAML").answered(400),
        Asked::yaml(SECRETS, &format!("{{{plain}: [")).says("cut YAML").answered(400),
        Asked::yaml(SECRETS, &format!("key: !!int {plain}")).says("YAML of a type").answered(400),
        Asked::post(SECRETS, &named("a", json!({"data": {"key": plain}}))).says("not base64"),
        Asked::post(SECRETS, &named("b", json!({"data": plain}))).says("no map").answered(400),
        Asked::post(SECRETS, &named("c", json!({"data": {"key": [plain]}}))).answered(400),
        Asked::post(SECRETS, &named("d", json!({"stringData": {"key": {"a": plain}}})))
            .answered(400),
        Asked::post(SECRETS, &named("e", json!({"metadata": plain, "data": {}}))).answered(400),
        Asked::post(SECRETS, &named("f", json!({"data": {"not a key": encoded}}))).answered(422),
        Asked::post(SECRETS, &named("Not A Name", json!({"data": {"k": encoded}}))).answered(422),
        Asked::post(&strict, &named("g", json!({"password": plain}))).answered(400),
        Asked::post(SECRETS, &pull(&docker[..docker.len() - 2])).says("half JSON").answered(422),
        Asked::post(SECRETS, &pull(&plain)).says("no JSON").answered(422),
        Asked::post("/api/v1/namespaces/nowhere/secrets", &whole).answered(404),
        Asked::post(&format!("{SECRETS}?dryRun=maybe"), &whole).answered(422),
        Asked::new(Method::PUT, &format!("{SECRETS}/absent"), "application/json", &whole),
        Asked::new(Method::POST, SECRETS, "text/plain", &whole).answered(415),
        Asked::new(Method::POST, SECRETS, "application/vnd.kubernetes.protobuf", &whole)
            .answered(400),
        Asked::new(Method::POST, SECRETS, "application/cbor", &whole).answered(415),
    ]
}

fn keys(needles: &mut Needles) -> Vec<Asked> {
    let key = needles.plant_of_length("private key", 64);
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
        Asked::post(SECRETS, &tls.to_string()).says("a key without a certificate").answered(422),
        Asked::post(MAPS, &map("data", json!({"not a key!": pem}))).answered(422),
        Asked::post(MAPS, &map("binaryData", json!({"key": pem}))).answered(400),
        Asked::post(MAPS, &map("data", json!({"key": [pem]}))).answered(400),
        Asked::post(MAPS, &format!("{}{pem}", map("data", json!({"key": pem})))).answered(400),
    ]
}

fn patches(needles: &mut Needles) -> Vec<Asked> {
    let plain = needles.plant("value in a patch");
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
        Asked::post(MAPS, r#"{"metadata": {"name": "patched"}}"#),
        Asked::patch(&by("one"), "apply", &applied(json!({"key": encoded}))),
        Asked::patch(
            &by("two"),
            "apply",
            &applied(json!({"key": STANDARD.encode(format!("{plain}2"))})),
        )
        .answered(409),
        Asked::patch(&by("one"), "apply", &applied(json!({"key": [encoded]}))),
        Asked::patch(&by("one"), "apply", &applied(json!(plain))),
        Asked::patch(&by("one"), "apply", &applied(json!({"key": plain}))),
        Asked::patch(&at, "merge", &json!({"data": {"more": encoded}})),
        Asked::patch(&at, "merge", &json!({"stringData": {"more": plain}})),
        Asked::patch(&at, "merge", &json!({"data": {"more": plain}})),
        Asked::patch(&at, "merge", &json!({"data": plain})),
        Asked::patch(&at, "merge", &json!({"data": {"not a key": encoded}})).answered(422),
        Asked::patch(&at, "strategic", &json!({"data": {"more": [plain]}})),
        Asked::patch(&at, "strategic", &json!({"data": plain})),
        Asked::patch(&at, "strategic", &json!({"data": {"$patch": plain}})),
        Asked::patch(&at, "strategic", &json!({"type": 7, "stringData": {"key": plain}})),
        Asked::patch(&at, "json", &op("test", "/data/key", &plain)).answered(422),
        Asked::patch(&at, "json", &op("replace", "/data/absent", &plain)),
        Asked::patch(&at, "json", &op("replace", "/data", &plain)),
        Asked::patch(&at, "json", &op("invent", "/data/key", &plain)),
        Asked::patch(&at, "json", &json!([{"op": "add", "value": plain}])).answered(422),
        Asked::patch(&format!("{MAPS}/patched"), "json", &json!([{"op": "add", "value": plain}])),
        Asked::patch(&at, "json", &json!({"key": plain})),
        Asked::patch(&at, "json", &json!(plain)),
        Asked::new(Method::PATCH, &at, "application/merge-patch+json", &format!("{{\"a\":{plain}")),
        Asked::new(Method::PATCH, &at, "application/json-patch+json", &format!("[{plain}")),
        Asked::new(Method::PATCH, &at, "application/apply-patch+yaml", &format!("a: [{plain}")),
        Asked::post(SECRETS, &fixed.to_string()),
        Asked::patch(
            &format!("{SECRETS}/fixed"),
            "merge",
            &json!({"data": {"key": encoded + "="}}),
        ),
        Asked::patch(&format!("{SECRETS}/fixed"), "merge", &json!({"stringData": {"x": plain}}))
            .answered(422),
    ]
}

fn reviews(needles: &mut Needles) -> Vec<Asked> {
    let token = needles.plant("token to review");
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    vec![
        token_review(&token),
        Asked::post(reviews, &json!({"spec": {"token": [token]}}).to_string()).answered(400),
        Asked::post(reviews, &json!({"spec": token}).to_string()).answered(400),
        Asked::post(reviews, &format!("{{\"spec\":{{\"token\":\"{token}\"")).answered(400),
    ]
}
