//! Lists: selectors, pages and versions.

use http::Method;
use http_body::Body as _;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use windlass_server::limits;

use windlass_testkit::{MAPS, PODS, TestServer, config_map, names, pod, version};

async fn with_maps(count: usize) -> TestServer {
    let server = TestServer::start().await;
    for i in 0..count {
        let mut map = config_map(&format!("m{i:02}"));
        map["metadata"]["labels"] = json!({"n": i.to_string(), "odd": (i % 2 == 1).to_string()});
        server.post(MAPS, &map).await.expect(201);
    }
    server
}

#[tokio::test]
async fn a_list_has_its_own_head_and_items_without_one() {
    let server = with_maps(2).await;
    let list = server.get(MAPS).await.expect(200);
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("ConfigMapList"), &json!("v1")));
    assert_eq!(list["metadata"], json!({"resourceVersion": server.revision().to_string()}));
    assert_eq!(names(&list), ["m00", "m01"]);
    for item in list["items"].as_array().unwrap() {
        assert_eq!((&item["kind"], &item["apiVersion"]), (&Value::Null, &Value::Null));
    }
    let none = server.get("/api/v1/namespaces/kube-public/configmaps").await.expect(200);
    assert_eq!(none["items"], json!([]));
    let all = server.get("/api/v1/configmaps").await.expect(200);
    assert_eq!(names(&all).len(), 2);
}

#[tokio::test]
async fn selectors_select() {
    let server = with_maps(4).await;
    for (query, want) in [
        ("labelSelector=n%3D1", vec!["m01"]),
        ("labelSelector=n%3D%3D1", vec!["m01"]),
        ("labelSelector=n!%3D1", vec!["m00", "m02", "m03"]),
        ("labelSelector=n+in+(1,3)", vec!["m01", "m03"]),
        ("labelSelector=n+notin+(1,3)", vec!["m00", "m02"]),
        ("labelSelector=odd", vec!["m00", "m01", "m02", "m03"]),
        ("labelSelector=!odd", vec![]),
        ("labelSelector=odd%3Dtrue,n!%3D1", vec!["m03"]),
        ("labelSelector=n%3E1", vec!["m02", "m03"]),
        ("labelSelector=n%3C1", vec!["m00"]),
        ("fieldSelector=metadata.name%3Dm02", vec!["m02"]),
        ("fieldSelector=metadata.name!%3Dm02", vec!["m00", "m01", "m03"]),
        ("fieldSelector=metadata.namespace%3Ddefault,metadata.name%3Dm02", vec!["m02"]),
        ("fieldSelector=metadata.namespace%3Dother", vec![]),
        ("fieldSelector=metadata.name%3Dm02&labelSelector=odd%3Dtrue", vec![]),
        ("fieldSelector=metadata.name%3Dm02,metadata.name%3Dm01", vec![]),
        ("fieldSelector=metadata.name%3Dnone", vec![]),
    ] {
        let list = server.get(&format!("{MAPS}?{query}")).await.expect(200);
        assert_eq!(names(&list), want, "{query}");
        let list = server.get(&format!("/api/v1/configmaps?{query}")).await.expect(200);
        assert_eq!(names(&list), want, "all namespaces: {query}");
    }
}

#[tokio::test]
async fn pods_are_selected_by_node_and_phase() {
    let server = TestServer::start().await;
    let mut bound = pod("bound");
    bound["spec"]["nodeName"] = json!("n1");
    server.post(PODS, &bound).await.expect(201);
    server.post(PODS, &pod("free")).await.expect(201);
    for (query, want) in [
        ("fieldSelector=spec.nodeName%3Dn1", vec!["bound"]),
        ("fieldSelector=spec.nodeName%3D", vec!["free"]),
        ("fieldSelector=spec.nodeName!%3Dn1", vec!["free"]),
        ("fieldSelector=status.phase%3DPending,spec.nodeName%3Dn1", vec!["bound"]),
        ("fieldSelector=status.phase%3DRunning", vec![]),
    ] {
        let list = server.get(&format!("/api/v1/pods?{query}")).await.expect(200);
        assert_eq!(names(&list), want, "{query}");
    }
}

#[tokio::test]
async fn selectors_that_cannot_be_read() {
    let server = TestServer::start().await;
    for (query, words) in [
        ("labelSelector=a%3D%3D%3Db", "unable to parse requirement"),
        ("labelSelector=a+in+b", "unable to parse requirement"),
        ("labelSelector=,,", "found ',', expected: !, identifier, or 'end of string'"),
        ("labelSelector=a%3Db+c", "found 'c', expected: ',' or 'end of string'"),
        ("fieldSelector=metadata.name", "invalid selector"),
        ("fieldSelector=spec.x%3D1", "field label not supported: spec.x"),
        ("fieldSelector=data.k%3Dv", "field label not supported: data.k"),
    ] {
        let said = server.get(&format!("{MAPS}?{query}")).await.fails(400, "BadRequest");
        assert!(said.contains(words), "{query}: {said}");
        let said = server.get(&format!("{MAPS}?watch=1&{query}")).await.fails(400, "BadRequest");
        assert!(said.contains(words), "watch {query}: {said}");
    }
}

/// Reads every page; calls `between` after each.
async fn pages(server: &TestServer, query: &str, between: impl AsyncFn(usize)) -> Vec<Value> {
    let mut pages: Vec<Value> = Vec::new();
    let mut token = String::new();
    loop {
        let list = server.get(&format!("{MAPS}?{query}&continue={token}")).await.expect(200);
        token = list["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        pages.push(list);
        if token.is_empty() {
            return pages;
        }
        between(pages.len()).await;
    }
}

#[tokio::test]
async fn pages_show_one_revision_whatever_happens_meanwhile() {
    let server = with_maps(7).await;
    let before = server.revision();
    let all = pages(&server, "limit=2", async |page| {
        let changed = json!({"data": {"changed": page.to_string()}});
        server.patch(&format!("{MAPS}/m06"), "merge", &changed).await.expect(200);
        server.delete(&format!("{MAPS}/m0{}", 6 - page)).await.expect(200);
        server.post(MAPS, &config_map(&format!("m02-new{page}"))).await.expect(201);
    })
    .await;
    let found: Vec<&str> = all.iter().flat_map(|page| names(page)).collect();
    assert_eq!(found, ["m00", "m01", "m02", "m03", "m04", "m05", "m06"]);
    for page in &all {
        assert_eq!(version(page), before);
    }
    let last = &all.last().unwrap()["items"][0];
    assert_eq!(last["data"], json!({"k": "v"}), "m06 as it was");
    assert!(version(last) <= before);
}

#[tokio::test]
async fn pages_taken_while_others_write_show_one_revision() {
    let server = with_maps(20).await;
    let stop = std::sync::atomic::AtomicBool::new(false);
    let write = async {
        let mut round = 0;
        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
            round += 1;
            let name = format!("{MAPS}/m{:02}", round % 20);
            let body = json!({"data": {"round": round.to_string()}});
            server.patch(&name, "merge", &body).await.expect(200);
            tokio::task::yield_now().await;
        }
    };
    let read = async {
        for _ in 0..20 {
            let all = pages(&server, "limit=3", async |_| tokio::task::yield_now().await).await;
            let at = version(&all[0]);
            let items = all.iter().flat_map(|p| p["items"].as_array().unwrap());
            let newest = items.clone().map(version).max().unwrap();
            assert!(all.iter().all(|p| version(p) == at) && newest <= at);
            assert_eq!(items.count(), 20);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    };
    futures::join!(write, read);
}

#[tokio::test]
async fn remaining_items_are_counted_only_without_selectors() {
    let server = with_maps(5).await;
    for (query, remaining, goes_on) in [
        ("limit=2", json!(3), true),
        ("limit=5", Value::Null, false),
        ("limit=9", Value::Null, false),
        ("limit=2&labelSelector=odd", Value::Null, true),
        ("limit=2&fieldSelector=metadata.name!%3Dx", Value::Null, true),
        // An unselected object follows that was not examined yet.
        ("limit=2&labelSelector=odd%3Dtrue", Value::Null, true),
        ("limit=3&labelSelector=odd%3Dtrue", Value::Null, true),
        ("limit=3&labelSelector=odd%3Dfalse", Value::Null, false),
        ("limit=3&labelSelector=none", Value::Null, false),
    ] {
        let list = server.get(&format!("{MAPS}?{query}")).await.expect(200);
        assert_eq!(list["metadata"]["remainingItemCount"], remaining, "{query}");
        assert_eq!(list["metadata"]["continue"].is_string(), goes_on, "{query}");
    }
}

#[tokio::test]
async fn the_version_and_its_match_choose_the_state() {
    let server = with_maps(1).await;
    let first = server.revision();
    server.post(MAPS, &config_map("late")).await.expect(201);
    let last = server.revision();
    for (query, want, at) in [
        (String::new(), 2, last),
        ("resourceVersion=".into(), 2, last),
        ("resourceVersion=0".into(), 2, last),
        ("resourceVersion=0&limit=10".into(), 2, last),
        ("resourceVersion=0&resourceVersionMatch=NotOlderThan".into(), 2, last),
        (format!("resourceVersion={first}"), 2, last),
        (format!("resourceVersion={first}&resourceVersionMatch=NotOlderThan"), 2, last),
        (format!("resourceVersion={first}&limit=10&resourceVersionMatch=NotOlderThan"), 2, last),
        // Legacy rule without a match: a page of a given version is exact.
        (format!("resourceVersion={first}&limit=10"), 1, first),
        (format!("resourceVersion={first}&resourceVersionMatch=Exact"), 1, first),
        (format!("resourceVersion={last}&resourceVersionMatch=Exact"), 2, last),
        (
            format!("resourceVersion={first}&resourceVersionMatch=Exact&fieldSelector=metadata.name%3Dlate"),
            0,
            first,
        ),
    ] {
        let list = server.get(&format!("{MAPS}?{query}")).await.expect(200);
        assert_eq!((names(&list).len(), version(&list)), (want, at), "{query}");
    }
    for (query, code) in [
        ("resourceVersionMatch=Exact".to_owned(), 422),
        ("resourceVersionMatch=NotOlderThan".to_owned(), 422),
        ("resourceVersion=0&resourceVersionMatch=Exact".to_owned(), 422),
        ("resourceVersion=1&resourceVersionMatch=Sideways".to_owned(), 422),
        ("resourceVersion=x".to_owned(), 400),
        ("resourceVersion=-1".to_owned(), 400),
        ("resourceVersion=99999999999999999999999".to_owned(), 400),
        ("sendInitialEvents=true".to_owned(), 422),
    ] {
        assert_eq!(server.get(&format!("{MAPS}?{query}")).await.status, code, "{query}");
    }
}

#[tokio::test]
async fn an_exact_version_is_continued_in_pages() {
    let server = with_maps(5).await;
    let at = server.revision();
    server.delete(&format!("{MAPS}/m04")).await.expect(200);
    let query = format!("limit=2&resourceVersion={at}&resourceVersionMatch=Exact");
    let first = server.get(&format!("{MAPS}?{query}")).await.expect(200);
    let token = first["metadata"]["continue"].as_str().unwrap();
    let rest = server.get(&format!("{MAPS}?continue={token}")).await.expect(200);
    assert_eq!(names(&rest), ["m02", "m03", "m04"]);
}

#[tokio::test]
async fn a_version_still_to_come_is_awaited() {
    let server = with_maps(1).await;
    let next = server.revision() + 1;
    let path = format!("{MAPS}?resourceVersion={next}");
    let (list, _) = futures::join!(server.get(&path), async {
        tokio::task::yield_now().await;
        server.post(MAPS, &config_map("late")).await.expect(201)
    });
    assert_eq!(names(&list.expect(200)), ["late", "m00"]);
}

#[tokio::test]
async fn a_version_that_does_not_come_is_a_504_with_a_cause() {
    let server = with_maps(1).await;
    let far = server.revision() + 1000;
    for path in [format!("{MAPS}?resourceVersion={far}"), format!("{MAPS}/m00?resourceVersion={far}")] {
        let started = Instant::now();
        let answer = server.get(&path).await;
        let status = answer.expect(504);
        assert!(started.elapsed() >= Duration::from_secs(3));
        assert_eq!(status["reason"], "Timeout");
        assert_eq!(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
        assert_eq!(status["details"]["retryAfterSeconds"], 1);
        assert_eq!(answer.headers["retry-after"], "1");
    }
}

#[tokio::test]
async fn compacted_revisions_are_410_with_a_new_token() {
    let server = with_maps(4).await;
    let old = server.revision();
    let first = server.get(&format!("{MAPS}?limit=2")).await.expect(200);
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    server.post(MAPS, &config_map("m03-late")).await.expect(201);
    server.store.compact(server.revision()).await.unwrap();
    let exact = format!("{MAPS}?resourceVersion={old}&resourceVersionMatch=Exact");
    let said = server.get(&exact).await.fails(410, "Expired");
    assert_eq!(said, "The resourceVersion for the provided list is too old.");
    let answer = server.get(&format!("{MAPS}?limit=2&continue={token}")).await;
    let said = answer.fails(410, "Expired");
    assert!(said.starts_with("The provided continue parameter is too old"), "{said}");
    let fresh = answer.json()["metadata"]["continue"].as_str().unwrap().to_owned();
    let rest = server.get(&format!("{MAPS}?continue={fresh}")).await.expect(200);
    assert_eq!(names(&rest), ["m02", "m03", "m03-late"]);
    assert_eq!(version(&rest), server.revision());
}

#[tokio::test]
async fn tokens_that_were_not_given_out_here() {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let server = with_maps(4).await;
    let token = |text: &str| URL_SAFE_NO_PAD.encode(text);
    for bad in [
        "bogus".to_owned(),
        "%20".to_owned(),
        token("[]"),
        token("{}"),
        token("null"),
        token(r#"{"v":"meta.k8s.io/v2","rv":1,"start":"default/m00"}"#),
        token(r#"{"v":"meta.k8s.io/v1","rv":0,"start":"default/m00"}"#),
        token(r#"{"v":"meta.k8s.io/v1","rv":1,"start":""}"#),
        token(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"../secrets/s"}"#),
        token(r#"{"v":"meta.k8s.io/v1","rv":1e99,"start":"default/m00"}"#),
    ] {
        let said = server.get(&format!("{MAPS}?limit=1&continue={bad}")).await;
        assert!(said.fails(400, "BadRequest").contains("continue"), "{bad}");
    }
    let good = server.get(&format!("{MAPS}?limit=1")).await.expect(200);
    let good = good["metadata"]["continue"].as_str().unwrap();
    let both = server.get(&format!("{MAPS}?limit=1&continue={good}&resourceVersion=3")).await;
    assert_eq!(
        both.fails(400, "BadRequest"),
        "specifying resource version is not allowed when using continue"
    );
    let matched = format!("{MAPS}?continue={good}&resourceVersionMatch=Exact&resourceVersion=3");
    server.get(&matched).await.fails(422, "Invalid");
    // A future version was not issued by this server: the list must restart.
    let far = token(r#"{"v":"meta.k8s.io/v1","rv":9000000000,"start":"default/m02"}"#);
    let answer = server.get(&format!("{MAPS}?continue={far}")).await;
    answer.fails(410, "Expired");
}

#[tokio::test]
async fn a_token_stays_in_its_collection() {
    let server = with_maps(2).await;
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"k": "hidden"}});
    server.post("/api/v1/namespaces/default/secrets", &secret).await.expect(201);
    let public = "/api/v1/namespaces/kube-public/configmaps";
    server.post(public, &config_map("p")).await.expect(201);
    let list = server.get(&format!("{MAPS}?limit=1")).await.expect(200);
    let token = list["metadata"]["continue"].as_str().unwrap();
    // A token of another namespace is useless, and must not lead out of the namespace in the path.
    for namespace in ["a", "kube-node-lease", "kube-public", "zzz"] {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps?continue={token}");
        let list = server.get(&path).await.expect(200);
        assert!(names(&list).iter().all(|n| *n == "p"), "{namespace}: {list}");
    }
}

/// Starts a server with 40 ConfigMaps of 100 KiB, whose state at the returned revision is no longer
/// cached.
async fn with_past_state() -> (TestServer, u64) {
    let server = TestServer::start().await;
    for number in 0..40 {
        let mut map = config_map(&format!("m{number:02}"));
        map["metadata"]["labels"] = json!({"odd": (number % 2 == 1).to_string()});
        map["data"]["k"] = json!("v".repeat(100 * 1024));
        server.post(MAPS, &map).await.expect(201);
    }
    let revision = server.revision();
    // More than the caches keep.
    for number in 0..36 {
        let mut large = config_map("large");
        large["data"]["k"] = json!(format!("{number}{}", "v".repeat(1_000_000)));
        let path = format!("{MAPS}/large");
        let answer = match number {
            0 => server.post(MAPS, &large).await,
            _ => server.put(&path, &large).await,
        };
        assert!(answer.status.is_success(), "{}", answer.status);
    }
    for number in 0..40 {
        server.delete(&format!("{MAPS}/m{number:02}")).await.expect(200);
    }
    (server, revision)
}

#[tokio::test]
async fn a_past_state_is_read_from_the_store_as_the_client_reads() {
    let (server, revision) = with_past_state().await;
    let exact = format!("{MAPS}?resourceVersion={revision}&resourceVersionMatch=Exact");
    let (_, _, mut body) = server.request(Method::GET, &exact).open().await;
    assert!(body.own_bytes() <= limits::PAST_BYTES, "{}", body.own_bytes());
    let announced = body.size_hint().exact().unwrap();
    let mut whole = Vec::new();
    while let Some(frame) = body.frame().await {
        whole.extend_from_slice(&frame.unwrap().into_data().unwrap());
    }
    assert_eq!(announced, whole.len() as u64);
    let list: Value = serde_json::from_slice(&whole).unwrap();
    assert_eq!(version(&list), revision);
    let all: Vec<String> = (0..40).map(|number| format!("m{number:02}")).collect();
    assert_eq!(names(&list), all);
    for (query, count, has_more) in [
        ("&limit=39", 39, true),
        ("&limit=40", 40, false),
        ("&labelSelector=odd%3Dtrue", 20, false),
        ("&labelSelector=odd%3Dtrue&limit=15", 15, true),
    ] {
        let page = server.get(&format!("{exact}{query}")).await.expect(200);
        assert_eq!(names(&page).len(), count, "{query}");
        assert_eq!(page["metadata"]["continue"].is_string(), has_more, "{query}");
    }
    let yaml = server.request(Method::GET, &exact).header("accept", "application/yaml").send().await;
    assert_eq!(yaml.body, windlass_api::decode::to_yaml(&list));
}

#[tokio::test]
async fn a_past_state_that_is_forgotten_meanwhile_cuts_the_list_off() {
    let (server, revision) = with_past_state().await;
    let exact = format!("{MAPS}?resourceVersion={revision}&resourceVersionMatch=Exact");
    let (_, _, mut body) = server.request(Method::GET, &exact).open().await;
    body.frame().await.unwrap().unwrap();
    server.store.compact(server.revision()).await.unwrap();
    let error = loop {
        match body.frame().await.expect("an error comes before the end") {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("compacted"), "{error}");
    assert!(body.frame().await.is_none());
    assert_eq!(server.get(&exact).await.status, 410);
}

#[tokio::test]
async fn a_collection_is_deleted_as_of_a_past_state() {
    let (server, revision) = with_past_state().await;
    for name in ["m00", "m39", "new"] {
        server.post(MAPS, &config_map(name)).await.expect(201);
    }
    let exact = format!("{MAPS}?resourceVersion={revision}&resourceVersionMatch=Exact");
    let deleted = server.delete(&exact).await.expect(200);
    assert_eq!(names(&deleted).len(), 40);
    assert_eq!(names(&server.get(MAPS).await.expect(200)), ["large", "new"]);
}
