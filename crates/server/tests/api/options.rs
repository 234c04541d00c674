//! Options of all requests: dry runs, field validation, timeouts, and formats of body and response.

use http::Method;
use serde_json::{Value, json};

use windlass_testkit::{MAPS, PODS, TestServer, config_map, pod, version};

#[tokio::test]
async fn a_dry_run_runs_every_stage_and_stores_nothing() {
    let server = TestServer::start().await;
    let made = server.post(MAPS, &config_map("a")).await.expect(201);
    server.post(PODS, &pod("p")).await.expect(201);
    let before = server.revision();
    let (map, dry) = (format!("{MAPS}/a?dryRun=All"), format!("{MAPS}?dryRun=All"));
    let seen = server.post(&dry, &config_map("b")).await.expect(201);
    assert!(seen["metadata"]["uid"].is_string());
    assert_eq!(seen["metadata"]["resourceVersion"], Value::Null);
    let seen = server.post(&dry, &json!({"metadata": {"generateName": "g-"}})).await.expect(201);
    assert!(seen["metadata"]["name"].as_str().unwrap().starts_with("g-"));
    server.post(&dry, &config_map("a")).await.fails(409, "AlreadyExists");
    server.post(&dry, &config_map("A")).await.fails(422, "Invalid");
    let mut new = config_map("a");
    new["data"]["k"] = json!("w");
    assert_eq!(server.put(&map, &new).await.expect(200)["data"]["k"], "w");
    new["metadata"]["resourceVersion"] = json!("1");
    server.put(&map, &new).await.fails(409, "Conflict");
    for (how, patch) in [
        ("merge", json!({"data": {"k": "w"}})),
        ("strategic", json!({"data": {"k": "w"}})),
        ("json", json!([{"op": "replace", "path": "/data/k", "value": "w"}])),
    ] {
        assert_eq!(server.patch(&map, how, &patch).await.expect(200)["data"]["k"], "w");
    }
    let status = format!("{PODS}/p/status?dryRun=All");
    let patch = json!({"status": {"message": "m"}});
    assert_eq!(server.patch(&status, "merge", &patch).await.expect(200)["status"]["message"], "m");
    server.delete(&map).await.expect(200);
    server
        .request(Method::DELETE, &format!("{MAPS}/a"))
        .json(&json!({"dryRun": ["All"]}))
        .send()
        .await
        .expect(200);
    server.delete(&format!("{PODS}/p?dryRun=All")).await.expect(200);
    server.delete(&dry).await.expect(200);
    let lease = json!({"metadata": {"name": "l"}, "spec": {}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l?dryRun=All";
    server.put(leases, &lease).await.expect(201);
    server.post("/api/v1/namespaces?dryRun=All", &json!({"metadata": {"name": "x"}})).await.expect(201);
    assert_eq!(server.revision(), before);
    assert_eq!(server.get(&format!("{MAPS}/a")).await.expect(200), made);
    for value in ["", "Some", "all"] {
        let answer = server.post(&format!("{MAPS}?dryRun={value}"), &config_map("b")).await;
        answer.fails(422, "Invalid");
    }
    server.post(&format!("{dry}&dryRun=All"), &config_map("b")).await.expect(201);
}

#[tokio::test]
async fn unknown_fields_are_ignored_warned_about_or_rejected() {
    let server = TestServer::start().await;
    let odd = r#"{"metadata":{"generateName":"x-","oops":1},"data":{"k":"v","k":"w"},"extra":{}}"#;
    let yaml = "metadata: {generateName: x-, oops: 1}\ndata:\n  k: v\n  k: w\nextra: {}\n";
    let said = ["duplicate field \"data.k\"", "unknown field \"extra\"", "unknown field \"metadata.oops\""];
    for (media, body) in [("application/json", odd), ("application/yaml", yaml)] {
        let post = |query: &str| {
            let asked = server.request(Method::POST, &format!("{MAPS}?{query}"));
            asked.header("content-type", media).raw_body(body).send()
        };
        for query in ["", "fieldValidation=Warn", "fieldValidation="] {
            let answer = post(query).await;
            let made = answer.expect(201);
            assert_eq!(made["data"], json!({"k": "w"}), "the last one counts");
            assert_eq!(made["extra"], Value::Null);
            let mut warnings = answer.warnings();
            warnings.sort();
            let want: Vec<String> =
                said.iter().map(|t| format!("299 - \"{}\"", t.replace('"', "\\\""))).collect();
            assert_eq!(warnings, want, "{media} {query}");
        }
        let answer = post("fieldValidation=Ignore").await;
        answer.expect(201);
        assert_eq!(answer.warnings(), Vec::<String>::new());
        let before = server.revision();
        let text = post("fieldValidation=Strict").await.fails(400, "BadRequest");
        assert!(text.contains("strict decoding error: "), "{text}");
        for part in said {
            assert!(text.contains(part), "{media}: {text}");
        }
        post("fieldValidation=Maybe").await.fails(422, "Invalid");
        assert_eq!(server.revision(), before);
    }
    // Names are case-sensitive.
    let body = json!({"metadata": {"name": "c"}, "Data": {"k": "v"}});
    let answer = server.post(&format!("{MAPS}?fieldValidation=Strict"), &body).await;
    assert!(answer.fails(400, "BadRequest").contains("unknown field \"Data\""));
}

#[tokio::test]
async fn people_get_indented_answers() {
    let server = TestServer::start().await;
    server.post(MAPS, &config_map("a")).await.expect(201);
    let path = format!("{MAPS}/a");
    for (query, agent, indented) in [
        ("", "kubectl/v1", false),
        ("", "curl/8.0", true),
        ("", "Wget/1.0", true),
        ("", "Mozilla/5.0 (X11)", true),
        ("?pretty=true", "kubectl/v1", true),
        ("?pretty=1", "kubectl/v1", true),
        ("?pretty=false", "curl/8.0", false),
        ("?pretty=0", "curl/8.0", false),
    ] {
        let path = format!("{path}{query}");
        let answer = server.request(Method::GET, &path).header("user-agent", agent).send().await;
        assert_eq!(answer.body.starts_with(b"{\n"), indented, "{query} {agent}");
        answer.expect(200);
    }
}

#[tokio::test]
async fn timeouts_are_durations() {
    let server = TestServer::start().await;
    for (value, good) in [
        ("10s", true),
        ("1h", true),
        ("1.5m", true),
        ("0", true),
        ("0s", true),
        ("", true),
        ("10", false),
        ("x", false),
        ("-1s", false),
        ("99999999999999h", false),
    ] {
        let answer = server.get(&format!("{MAPS}?timeout={value}")).await;
        assert_eq!(answer.status, if good { 200 } else { 400 }, "{value}: {}", answer.json());
    }
    let far = server.revision() + 100;
    let answer = server.get(&format!("{MAPS}?timeout=100ms&resourceVersion={far}")).await;
    answer.fails(504, "Timeout");
}

#[tokio::test]
async fn answers_come_in_the_form_that_is_accepted() {
    let server = TestServer::start().await;
    server.post(MAPS, &config_map("a")).await.expect(201);
    let (json_, yaml) = ("application/json", "application/yaml");
    for (accept, want) in [
        ("*/*", Some(json_)),
        ("application/*", Some(json_)),
        ("application/json", Some(json_)),
        ("application/json;charset=utf-8", Some(json_)),
        ("application/json, text/plain", Some(json_)),
        ("text/plain, application/json;q=0.5", Some(json_)),
        ("application/vnd.kubernetes.protobuf,application/json", Some(json_)),
        ("application/vnd.kubernetes.protobuf, */*", Some(json_)),
        ("application/yaml", Some(yaml)),
        ("application/json;q=0.5, application/yaml;q=0.9", Some(yaml)),
        ("", Some(json_)),
        ("text/html", None),
        ("application/xml", None),
        ("application/vnd.kubernetes.protobuf", None),
        ("application/cbor", None),
        ("nonsense", None),
        ("application/json;as=Table;v=v2;g=meta.k8s.io", None),
        ("application/json;as=Nonsense;v=v1;g=meta.k8s.io", None),
    ] {
        for path in [format!("{MAPS}/a"), MAPS.to_owned()] {
            let answer = server.request(Method::GET, &path).header("accept", accept).send().await;
            match want {
                Some(media) => {
                    assert_eq!(answer.status, 200, "{accept}");
                    assert_eq!(answer.headers["content-type"], media, "{accept}");
                }
                None => {
                    let said = answer.fails(406, "NotAcceptable");
                    assert!(
                        said.starts_with(
                            "only the following media types are accepted: application/json, application/yaml"
                        ),
                        "{said}"
                    );
                }
            }
        }
    }
    // A write whose response format is not acceptable is not executed.
    let before = server.revision();
    let asked = server.request(Method::POST, MAPS).header("accept", "text/html").json(&config_map("b"));
    asked.send().await.fails(406, "NotAcceptable");
    assert_eq!(server.revision(), before);
}

#[tokio::test]
async fn bodies_come_in_three_forms() {
    let server = TestServer::start().await;
    for (media, body, code) in [
        ("application/json", "{\"metadata\":{\"name\":\"j\"}}", 201),
        ("application/json; charset=utf-8", "{\"metadata\":{\"name\":\"jc\"}}", 201),
        ("application/yaml", "metadata:\n  name: yml\n", 201),
        ("application/yaml", "{\"metadata\":{\"name\":\"yj\"}}", 201),
        ("text/plain", "{}", 415),
        ("application/x-www-form-urlencoded", "a=b", 415),
        ("application/merge-patch+json", "{}", 415),
        ("application/vnd.kubernetes.protobuf", "{}", 400),
    ] {
        let asked = server.request(Method::POST, MAPS).header("content-type", media).raw_body(body);
        let answer = asked.send().await;
        assert_eq!(answer.status, code, "{media}: {}", answer.json());
        if code == 415 {
            let said = answer.fails(415, "UnsupportedMediaType");
            assert_eq!(
                said,
                "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf"
            );
        }
    }
    let asked = server.request(Method::POST, MAPS).raw_body("{\"metadata\":{\"name\":\"untyped\"}}");
    asked.send().await.expect(201);
}

#[tokio::test]
async fn yaml_is_accepted_and_returned() {
    let server = TestServer::start().await;
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yml\ndata:\n  text: |\n    one\n    two\n  number: \"7\"\n  word: \"yes\"\n";
    let asked = server.request(Method::POST, MAPS).header("content-type", "application/yaml");
    let answer = asked.header("accept", "application/yaml").raw_body(yaml).send().await;
    assert_eq!(answer.status, 201);
    assert_eq!(answer.headers["content-type"], "application/yaml");
    // Sending the response back changes nothing.
    let asked = server.request(Method::PUT, &format!("{MAPS}/yml"));
    let again = asked.header("content-type", "application/yaml").raw_body(answer.body.clone());
    let seen = again.send().await.expect(200);
    assert_eq!(seen["data"], json!({"text": "one\ntwo\n", "number": "7", "word": "yes"}));
    assert_eq!(version(&seen), server.revision());
    // Errors as well.
    let path = format!("{MAPS}/none");
    let answer = server.request(Method::GET, &path).header("accept", "application/yaml").send().await;
    assert_eq!(
        (answer.status.as_u16(), &answer.headers["content-type"]),
        (404, &"application/yaml".parse().unwrap())
    );
    assert!(String::from_utf8_lossy(&answer.body).contains("reason: NotFound"));
}

#[tokio::test]
async fn every_answer_has_an_audit_id_and_is_not_to_be_cached() {
    let server = TestServer::start().await;
    for path in [MAPS, "/none", "/healthz", "/api/v1/namespaces/default/configmaps/x"] {
        let answer = server.get(path).await;
        assert!(!answer.headers["audit-id"].is_empty(), "{path}");
        assert_eq!(answer.headers["cache-control"], "no-cache, private", "{path}");
        let own = server.request(Method::GET, path).header("audit-id", "mine").send().await;
        assert_eq!(own.headers["audit-id"], "mine", "{path}");
    }
}

/// Kubernetes has no HEAD for resources; handling it as GET does no harm.
#[tokio::test]
async fn a_head_is_answered_as_a_get() {
    let server = TestServer::start().await;
    for (path, code) in [(MAPS, 200), ("/healthz", 200), ("/api/v1/nodes/none", 404)] {
        let answer = server.request(Method::HEAD, path).send().await;
        assert_eq!(answer.status, code, "{path}");
        let watch = server.request(Method::HEAD, &format!("{path}?pretty=true")).send().await;
        assert_eq!(watch.status, code, "{path}");
        assert!(answer.body.is_empty() && watch.body.is_empty(), "{path}");
    }
}

#[tokio::test]
async fn rejected_requests_reveal_nothing() {
    let server = TestServer::start().await;
    let answer = server.request(Method::GET, MAPS).anonymous().send().await;
    answer.fails(403, "Forbidden");
    let answer = server.request(Method::GET, MAPS).header("authorization", "Bearer wrong").send().await;
    assert_eq!(answer.fails(401, "Unauthorized"), "Unauthorized");
    let answer = server.request(Method::GET, "/api/v1/nothing").anonymous().send().await;
    answer.fails(403, "Forbidden");
    server.request(Method::GET, "/healthz").anonymous().send().await.expect(200);
}
