//! Contents of the audit log.

use std::collections::HashMap;
use std::path::PathBuf;

use bytes::Bytes;
use futures::FutureExt;
use http::Method;
use http_body_util::{BodyExt, StreamBody};
use serde_json::{Value, json};
use windlass_server::Incoming;
use windlass_server::InflightLimits;
use windlass_server::{AccessCheck, FaultInjection};
use windlass_server::{AnonymousReads, AuditLog, AuditLogMode, LogRotation};
use windlass_server::{ServerOptions, system_clock};

use windlass_testkit::{MAPS, TestResponse, TestServer, config_map};

struct AuditedServer {
    server: TestServer,
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl AuditedServer {
    async fn start() -> AuditedServer {
        AuditedServer::with(|_| {}).await
    }

    async fn with(change: impl Fn(&mut ServerOptions) + Send + Sync + 'static) -> AuditedServer {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let log = path.clone();
        let server = TestServer::with(move |setup| {
            setup.audit = AuditLog::to_file(&log, LogRotation::default(), system_clock()).unwrap();
            change(setup);
        });
        AuditedServer { server: server.await, path, _dir: dir }
    }

    /// Returns the contents of the log after the last event.
    fn text(&self) -> String {
        self.server.server.audit.close();
        std::fs::read_to_string(&self.path).unwrap()
    }

    /// Returns the events of clients, without those of the server's startup.
    fn events(&self) -> Vec<Value> {
        let text = self.text();
        assert!(text.ends_with('\n'));
        let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.filter(|event| event["user"]["username"] != "system:apiserver").collect()
    }

    /// Returns the event of the only request.
    fn event(&self) -> Value {
        let mut events = self.events();
        assert_eq!(events.len(), 1, "{events:?}");
        events.remove(0)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_is_written_down_exactly_once() {
    let watched = AuditedServer::start().await;
    let server = &watched.server;
    let mut answers: Vec<TestResponse> = Vec::new();
    for round in 0..20 {
        let name = format!("m-{round}");
        let path = format!("{MAPS}/{name}");
        answers.extend(
            futures::future::join_all([
                server.request(Method::GET, "/healthz").send().boxed(),
                server.request(Method::GET, &path).send().boxed(),
                server.request(Method::GET, MAPS).header("authorization", "Bearer wrong").send().boxed(),
                server
                    .request(Method::GET, MAPS)
                    .header("authorization", "Bearer alice-token")
                    .send()
                    .boxed(),
                server.request(Method::GET, "/api/v1/nothing/%zz%ff").send().boxed(),
                server.request(Method::GET, &format!("{MAPS}?timeout=x")).send().boxed(),
                server.request(Method::GET, &format!("/{}", "x".repeat(65_000))).send().boxed(),
                server.request(Method::OPTIONS, "/api").anonymous().send().boxed(),
            ])
            .await,
        );
        answers.push(server.post(MAPS, &config_map(&name)).await);
        answers.push(server.post(MAPS, &config_map(&name)).await);
        answers.push(server.patch(&path, "merge", &json!({"data": {"a": "b"}})).await);
        answers.push(server.delete(&path).await);
    }
    let mut codes: HashMap<String, u16> = HashMap::new();
    for answer in &answers {
        let id = answer.headers["audit-id"].to_str().unwrap().to_owned();
        assert!(codes.insert(id, answer.status.as_u16()).is_none(), "ids are unique");
    }
    let events = watched.events();
    assert_eq!(events.len(), answers.len());
    for event in events {
        let code = codes.remove(event["auditID"].as_str().unwrap());
        assert_eq!(code.map(Value::from), Some(event["responseStatus"]["code"].clone()), "{event}");
    }
    assert!(codes.is_empty(), "not written down: {codes:?}");
}

#[tokio::test]
async fn an_event_records_user_and_action() {
    let watched = AuditedServer::start().await;
    let made = watched
        .server
        .request(Method::POST, &format!("{MAPS}?fieldManager=me"))
        .header("user-agent", "test/1 \"x\"\t")
        .header("x-forwarded-for", "10.1.2.3, 10.1.2.4")
        .header("audit-id", "my-id")
        .json(&config_map("greeting"))
        .send()
        .await;
    made.expect(201);
    let mut event = watched.event();
    for time in ["requestReceivedTimestamp", "stageTimestamp"] {
        let text = event[time].take();
        assert_eq!(text.as_str().unwrap().len(), "2026-11-15T12:00:00.000000Z".len(), "{text}");
    }
    assert_eq!(
        event,
        json!({
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": "Metadata",
            "auditID": "my-id",
            "stage": "ResponseComplete",
            "requestURI": format!("{MAPS}?fieldManager=me"),
            "verb": "create",
            "user": {
                "username": "admin",
                "uid": "admin-uid",
                "groups": ["system:masters", "system:authenticated"],
            },
            "sourceIPs": ["10.1.2.3", "10.1.2.4", "127.0.0.1"],
            "userAgent": "test/1 \"x\"\t",
            "objectRef": {
                "resource": "configmaps",
                "namespace": "default",
                "name": "greeting",
                "apiVersion": "v1",
            },
            "responseStatus": {"metadata": {}, "code": 201},
            "requestReceivedTimestamp": null,
            "stageTimestamp": null,
            "annotations": {
                "authorization.k8s.io/decision": "allow",
                "authorization.k8s.io/reason": "",
            },
        })
    );
}

#[tokio::test]
async fn refusals_and_failures_are_distinguished() {
    let gone = format!("{MAPS}/gone");
    for (token, method, path, code, reason, decision) in [
        ("", Method::GET, gone.as_str(), 403, "Forbidden", "forbid"),
        ("admin-token", Method::GET, gone.as_str(), 404, "NotFound", "allow"),
        ("nonsense", Method::GET, gone.as_str(), 401, "Unauthorized", ""),
        ("admin-token", Method::POST, MAPS, 400, "BadRequest", "allow"),
        ("admin-token", Method::GET, "/healthz", 200, "", "allow"),
    ] {
        let watched = AuditedServer::start().await;
        let ask = watched.server.request(method, path);
        let ask = ask.header("authorization", &format!("Bearer {token}"));
        let ask = ask.header("content-type", "application/json");
        let answer = ask.raw_body("{").send().await;
        assert_eq!(answer.status, code, "{token} {path}");
        let event = watched.event();
        let status = &event["responseStatus"];
        assert_eq!(status["code"], code, "{event}");
        assert_eq!(status["reason"].as_str().unwrap_or_default(), reason, "{event}");
        assert_eq!(event["requestURI"], path);
        let found = &event["annotations"]["authorization.k8s.io/decision"];
        assert_eq!(found.as_str().unwrap_or_default(), decision, "{event}");
        match code {
            401 => assert_eq!((&event["user"], &event["verb"]), (&json!({}), &json!("get"))),
            403 => {
                assert_eq!(status["message"], answer.json()["message"]);
                assert_eq!(event["user"]["username"], "system:anonymous");
            }
            _ => assert_eq!(event["user"]["username"], "admin"),
        }
    }
}

#[tokio::test]
async fn impersonation_is_audited() {
    let watched = AuditedServer::start().await;
    let ask = watched.server.request(Method::GET, MAPS).header("impersonate-user", "alice");
    let answer = ask.send().await;
    let event = watched.event();
    assert_eq!(event["user"]["username"], "admin");
    assert_eq!(event["responseStatus"]["code"], answer.status.as_u16());
    // If impersonation is rejected, no impersonated user is logged.
    let refused = String::from_utf8_lossy(&answer.body).contains("is not offered");
    let expected = if refused { Value::Null } else { json!("alice") };
    assert_eq!(event["impersonatedUser"]["username"], expected);
}

#[tokio::test]
async fn a_watch_is_written_down_while_it_runs() {
    let watched = AuditedServer::start().await;
    let mut running = watched.server.watch(&format!("{MAPS}?watch=1&timeoutSeconds=600")).await;
    assert!(running.has_no_event());
    let event = watched.event();
    assert_eq!((&event["verb"], &event["stage"]), (&json!("watch"), &json!("ResponseStarted")));
    assert_eq!(event["responseStatus"], json!({"metadata": {}, "code": 200}));
    assert!(running.has_no_event(), "it still runs");
}

#[tokio::test]
async fn a_deletion_and_a_generated_name_are_named() {
    let watched = AuditedServer::start().await;
    let object = json!({"metadata": {"generateName": "made-"}});
    let made = watched.server.post(MAPS, &object).await.expect(201);
    let name = made["metadata"]["name"].as_str().unwrap();
    watched.server.delete(&format!("{MAPS}/{name}")).await.expect(200);
    let events = watched.events();
    assert_eq!(events[0]["objectRef"]["name"], name);
    assert_eq!(events[1]["objectRef"]["name"], name);
    assert_eq!(events[1]["responseStatus"]["status"], "Success");
}

#[tokio::test]
async fn a_panic_is_written_down_once() {
    let watched = AuditedServer::with(|setup| {
        setup.faults = FaultInjection::injected(|check| match check {
            AccessCheck::TokenFile => panic!("injected"),
            _ => Ok(()),
        });
    })
    .await;
    watched.server.get(MAPS).await.fails(500, "InternalError");
    let event = watched.event();
    assert_eq!((&event["stage"], &event["verb"]), (&json!("Panic"), &json!("list")));
    assert_eq!(event["responseStatus"]["code"], 500);
}

/// Returns a body that never arrives.
fn pending_body() -> Incoming {
    let never = futures::stream::pending::<Result<http_body::Frame<Bytes>, std::io::Error>>();
    StreamBody::new(never).map_err(Into::into).boxed_unsync()
}

#[tokio::test]
async fn a_disconnecting_client_is_audited() {
    let watched = AuditedServer::start().await;
    let asked = watched.server.request(Method::POST, MAPS).header("content-type", "application/json");
    assert!(asked.open_with(pending_body()).now_or_never().is_none());
    let event = watched.event();
    assert_eq!((&event["verb"], &event["stage"]), (&json!("create"), &json!("ResponseComplete")));
    assert_eq!(event["responseStatus"]["code"], 499);
    assert_eq!(event["annotations"]["authorization.k8s.io/decision"], "allow");
}

#[tokio::test]
async fn rejected_requests_are_logged() {
    let watched = AuditedServer::with(|setup| setup.flow = InflightLimits { reads: 1, writes: 1 }).await;
    let ask = || watched.server.request(Method::POST, MAPS).header("content-type", "application/json");
    let mut held = Vec::new();
    for _ in 0..5 {
        let mut asked = Box::pin(ask().open_with(pending_body()));
        assert!(asked.as_mut().now_or_never().is_none());
        held.push(asked);
    }
    let refused = ask().json(&config_map("x")).send().now_or_never().expect("at once");
    refused.fails(429, "TooManyRequests");
    assert_eq!(refused.headers["retry-after"], "1");
    let event = watched.event();
    assert_eq!(event["responseStatus"]["code"], 429);
    assert!(event["annotations"].is_null(), "it was never asked: {event}");
    assert_eq!(event["user"]["username"], "admin");
}

#[tokio::test]
async fn secrets_are_nowhere() {
    let watched = AuditedServer::start().await;
    let server = &watched.server;
    const SECRETS: &str = "/api/v1/namespaces/default/secrets";
    // "canary" in plain text and in base64.
    let (plain, coded) = ("canary-canary", "Y2FuYXJ5LWNhbmFyeQ==");
    let secret = json!({"metadata": {"name": "s"}, "data": {"k": coded}, "stringData": {"p": plain}});
    server.post(SECRETS, &secret).await.expect(201);
    server.post(SECRETS, &secret).await.fails(409, "AlreadyExists");
    server.get(&format!("{SECRETS}/s")).await.expect(200);
    server.put(&format!("{SECRETS}/s"), &secret).await.expect(200);
    server.patch(&format!("{SECRETS}/s"), "merge", &secret).await.expect(200);
    for bad in [
        format!("{{\"data\": {{\"k\": \"{coded}\"}}, \"{plain}\": x"),
        format!("{{\"data\": \"{plain}\"}}"),
        format!("{{\"metadata\": {{\"name\": \"{plain} {coded}\"}}}}"),
        format!("{{\"metadata\": {{\"name\": \"t\"}}, \"data\": {{\"{plain}/{coded}\": \"{plain}\"}}}}"),
        format!(
            "{{\"metadata\": {{\"name\": \"t\"}}, \"type\": \"kubernetes.io/tls\", \"stringData\": {{\"tls.key\": \"{plain}\"}}}}"
        ),
    ] {
        let asked = server.request(Method::POST, SECRETS).header("content-type", "application/json");
        let answer = asked.raw_body(bad.clone()).send().await;
        assert!(matches!(answer.status.as_u16(), 400 | 422), "{bad}: {}", answer.status);
    }
    server.get(&format!("{MAPS}?access_token={plain}&token={plain}&{plain}")).await.expect(200);
    let bearer = server.request(Method::GET, MAPS).header("authorization", &format!("Bearer {plain}"));
    bearer.header("cookie", plain).header("x-remote-user", plain).send().await.fails(401, "Unauthorized");
    let account = json!({"metadata": {"name": "robot"}});
    server.post("/api/v1/namespaces/default/serviceaccounts", &account).await.expect(201);
    let ask = json!({"spec": {"audiences": ["x"]}});
    let path = "/api/v1/namespaces/default/serviceaccounts/robot/token";
    let token = server.post(path, &ask).await.expect(201)["status"]["token"].clone();
    let token = token.as_str().unwrap();

    let text = watched.text();
    assert!(text.lines().count() > 14, "{text}");
    for word in [plain, coded, "admin-token", token] {
        assert!(!text.contains(word), "{word} in\n{text}");
    }
}

#[tokio::test]
async fn events_are_counted() {
    let watched = AuditedServer::start().await;
    // Events of the startup are counted as well.
    let before = counted(&watched.server, "apiserver_audit_event_total").await;
    watched.server.get(MAPS).await.expect(200);
    // The list, and the scrape before it.
    let after = counted(&watched.server, "apiserver_audit_event_total").await;
    assert_eq!(after, before + 2);
    assert_eq!(counted(&watched.server, "apiserver_audit_error_total{plugin=\"log\"}").await, 0);
}

async fn counted(server: &TestServer, metric: &str) -> u64 {
    let metrics = server.get("/metrics").await;
    let text = String::from_utf8_lossy(&metrics.body).into_owned();
    let value = text.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {metric} in\n{text}")).parse().unwrap()
}

#[tokio::test]
async fn failed_secret_patches_are_not_logged() {
    let watched = AuditedServer::start().await;
    let path = "/api/v1/namespaces/default/secrets/s?fieldManager=m";
    for (number, part) in [
        json!({"data": {"k": {"inner": "topsecret"}}}),
        json!({"data": "topsecret"}),
        json!({"data": ["topsecret"]}),
        json!({"stringData": {"k": ["topsecret"]}}),
        json!({"type": {"k": "topsecret"}}),
        json!({"topsecret": {"k": "topsecret"}}),
        json!({"metadata": {"name": "s", "finalizers": ["topsecret", "topsecret"]}}),
    ]
    .into_iter()
    .enumerate()
    {
        let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
        for (field, value) in part.as_object().unwrap() {
            secret[field] = value.clone();
        }
        let answer = watched.server.patch(path, "apply", &secret).await;
        assert!(!answer.status.is_success(), "{number}");
    }
    assert!(!watched.text().contains("topsecret"));
}

/// Public reads are logged only if configured; everything else always is.
#[tokio::test]
async fn public_reads_have_a_separate_priority_level() {
    for (level, logged) in [(AnonymousReads::None, false), (AnonymousReads::Metadata, true)] {
        let watched = AuditedServer::with(move |setup| {
            setup.audit = std::mem::take(&mut setup.audit).with_anonymous_reads(level);
        })
        .await;
        let server = &watched.server;
        for path in ["/healthz", "/livez", "/readyz", "/version"] {
            server.request(Method::GET, path).anonymous().send().await.expect(200);
        }
        server.request(Method::GET, MAPS).anonymous().send().await.fails(403, "Forbidden");
        server.request(Method::POST, "/version").anonymous().send().await.fails(403, "Forbidden");
        let bad = server.request(Method::GET, "/version").header("authorization", "Bearer wrong");
        bad.send().await.fails(401, "Unauthorized");
        server.get("/version").await.expect(200);
        let events = watched.events();
        let paths: Vec<&str> = events.iter().map(|e| e["requestURI"].as_str().unwrap()).collect();
        let always = [MAPS, "/version", "/version", "/version"];
        let want = if logged {
            [&["/healthz", "/livez", "/readyz", "/version"][..], &always].concat()
        } else {
            always.to_vec()
        };
        assert_eq!(paths, want);
    }
}

/// However many unauthenticated requests arrive, the log grows by a bounded amount, reports how
/// many are suppressed, and contains all other requests.
#[tokio::test]
async fn strangers_cannot_fill_the_log() {
    let watched = AuditedServer::start().await;
    let server = &watched.server;
    for number in 0..1500 {
        let ask = server.request(Method::GET, MAPS);
        let (ask, code) = match number % 3 {
            0 => (ask.anonymous(), 403),
            1 => (ask.header("authorization", "Bearer wrong"), 401),
            _ => (server.request(Method::GET, "/version?timeout=x").anonymous(), 400),
        };
        assert_eq!(ask.send().await.status.as_u16(), code);
        if number % 100 == 0 {
            server.get(MAPS).await.expect(200);
        }
    }
    let left_out = counted(server, "windlass_audit_events_suppressed_total").await;
    let events = watched.events();
    let by_admin = events.iter().filter(|event| event["user"]["username"] == "admin").count();
    assert_eq!(by_admin, 16, "the lists, and the metrics");
    let strangers = (events.len() - by_admin) as u64;
    assert!((1000..1400).contains(&strangers), "{strangers}");
    assert_eq!(strangers + left_out, 1500);
    let said: u64 = events
        .iter()
        .filter_map(|e| e["annotations"]["audit.windlass.dev/suppressed-events"].as_str())
        .map(|text| text.parse::<u64>().unwrap())
        .sum();
    assert!(said <= left_out, "{said} of {left_out}");
}

/// A log on a full disk: a link to `/dev/full`, where every write fails with ENOSPC.
struct FullDisk {
    dir: tempfile::TempDir,
}

impl FullDisk {
    fn new() -> FullDisk {
        let disk = FullDisk { dir: tempfile::tempdir().unwrap() };
        disk.empty();
        disk
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("audit.log")
    }

    fn fill(&self) {
        self.link("/dev/full".as_ref());
    }

    fn empty(&self) {
        std::fs::File::create(self.dir.path().join("file")).unwrap();
        self.link(&self.dir.path().join("file"));
    }

    fn link(&self, to: &std::path::Path) {
        let new = self.dir.path().join("new");
        std::os::unix::fs::symlink(to, &new).unwrap();
        std::fs::rename(new, self.path()).unwrap();
    }

    async fn server(&self, mode: AuditLogMode) -> TestServer {
        let path = self.path();
        TestServer::with(move |setup| {
            let audit = AuditLog::to_file(&path, LogRotation::default(), system_clock()).unwrap();
            setup.audit = audit.with_mode(mode);
        })
        .await
    }
}

#[tokio::test]
async fn a_strict_log_rejects_what_it_cannot_log() {
    let disk = FullDisk::new();
    let server = disk.server(AuditLogMode::BlockingStrict).await;
    let map = format!("{MAPS}/m");
    server.post(MAPS, &config_map("m")).await.expect(201);
    disk.fill();
    let before = server.revision();
    for answer in [
        server.post(MAPS, &config_map("n")).await,
        server.put(&map, &config_map("m")).await,
        server.patch(&map, "merge", &json!({"data": {"k": "w"}})).await,
        server.delete(&map).await,
        server.delete(MAPS).await,
        server.get(&map).await,
    ] {
        let text = answer.fails(503, "ServiceUnavailable");
        assert_eq!(text, "rejected because the audit event could not be written: no storage space");
        assert_eq!(answer.headers["retry-after"], "1");
    }
    assert_eq!(server.revision(), before, "nothing was written");
    // Health requests are not logged, so they succeed and report the cause.
    let health = |path| server.request(Method::GET, path).anonymous().send();
    assert_eq!(health("/livez").await.status, 200);
    let ready = health("/readyz").await;
    assert_eq!(ready.status, 500);
    assert!(String::from_utf8_lossy(&ready.body).contains("[-]audit-log failed"));
    disk.empty();
    // The server must detect free space itself: an unready server receives no requests.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while health("/readyz").await.status != 200 {
        assert!(std::time::Instant::now() < deadline, "it is not ready again");
        tokio::task::yield_now().await;
    }
    server.post(MAPS, &config_map("n")).await.expect(201);
}

#[tokio::test]
async fn a_strict_log_has_a_request_before_it_has_an_effect() {
    let disk = FullDisk::new();
    let server = disk.server(AuditLogMode::BlockingStrict).await;
    let made = server.post(MAPS, &config_map("m")).await;
    let id = made.headers["audit-id"].to_str().unwrap().to_owned();
    // No wait: events of completed requests are in the file.
    let text = std::fs::read_to_string(disk.path()).unwrap();
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let events: Vec<Value> = events.filter(|event| event["auditID"] == id.as_str()).collect();
    let stages: Vec<&str> = events.iter().map(|event| event["stage"].as_str().unwrap()).collect();
    assert_eq!(stages, ["RequestReceived", "ResponseComplete"]);
    assert_eq!(events[0]["responseStatus"], Value::Null);
    assert_eq!((&events[0]["user"]["username"], &events[0]["verb"]), (&json!("admin"), &json!("create")));
    assert_eq!(events[1]["responseStatus"]["code"], 201);
}

#[tokio::test]
async fn other_logs_lose_events_and_say_so() {
    for mode in [AuditLogMode::Batch, AuditLogMode::Blocking] {
        let disk = FullDisk::new();
        let server = disk.server(mode).await;
        disk.fill();
        server.post(MAPS, &config_map("m")).await.expect(201);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while counted(&server, "windlass_audit_log_failing").await == 0 {
            assert!(std::time::Instant::now() < deadline, "it is not said");
        }
        assert!(counted(&server, "apiserver_audit_error_total{plugin=\"log\"}").await > 0);
        assert_eq!(server.request(Method::GET, "/readyz").anonymous().send().await.status, 200);
    }
}
