//! Memory held by responses whose clients do not read. Measures the resident memory of the process,
//! so it is the only test of its process.

#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use serde_json::json;
use windlass_server::InflightLimits;
use windlass_server::ResponseBody;
use windlass_testkit::{MAPS, TestServer};

/// Unread responses of each format.
const RESPONSES: usize = 50;
const OBJECTS: usize = 100;
const OBJECT_BYTES: usize = 20 * 1024;
/// Maximum memory held by all of them. Assembled, each list is 2 MiB, and each of the other
/// documents between 0.5 and 10 MiB.
const MOST: usize = 16 * 1024 * 1024;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

/// Query and `Accept` header of the lists.
const LISTS: &[(&str, &str)] = &[
    ("", "application/json"),
    ("?pretty=true", "application/json"),
    ("", "application/yaml"),
    ("", TABLE),
    ("?includeObject=Object", TABLE),
    ("?includeObject=Object&pretty=true", TABLE),
    ("", METADATA),
    ("", "application/yaml;as=Table;v=v1;g=meta.k8s.io"),
    ("?labelSelector=!none&limit=90", "application/json"),
];

#[tokio::test]
async fn unread_responses_hold_little_memory() {
    // Nothing is dropped before the end, so that no memory is reused.
    let mut held = Vec::new();
    let seats = InflightLimits { reads: 100_000, writes: 10 };
    let server = TestServer::with(|setup| setup.flow = seats).await;
    for number in 0..OBJECTS {
        let map = json!({
            "metadata": {
                "name": format!("m{number:03}"),
                "annotations": {"note": "n".repeat(OBJECT_BYTES / 2)},
            },
            "data": {"text": "t".repeat(OBJECT_BYTES / 2)},
        });
        server.post(MAPS, &map).await.expect(201);
    }
    let mut wrong = Vec::new();
    for (query, accept) in LISTS {
        check(&server, &format!("{MAPS}{query}"), accept, &mut held, &mut wrong).await;
    }
    for (path, accept) in [
        ("/openapi/v2", "application/json"),
        ("/openapi/v2", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"),
        ("/openapi/v3/api/v1", "application/json"),
        ("/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"),
        ("/metrics", "*/*"),
    ] {
        check(&server, path, accept, &mut held, &mut wrong).await;
    }
    assert!(wrong.is_empty(), "more than {} KiB:\n{}", MOST / 1024, wrong.join("\n"));
}

/// Holds unread responses, then responses of which only the first frame was taken.
async fn check(
    server: &TestServer,
    path: &str,
    accept: &str,
    held: &mut Vec<(ResponseBody, Option<Bytes>)>,
    wrong: &mut Vec<String>,
) {
    // Warms up everything that is computed once.
    drop(open(server, path, accept).await.collect().await);
    for takes_first_frame in [false, true] {
        let before = resident();
        for _ in 0..RESPONSES {
            let mut body = open(server, path, accept).await;
            let first = if takes_first_frame { body.frame().await } else { None };
            let first = first.map(|frame| frame.unwrap().into_data().unwrap());
            held.push((body, first));
        }
        let grown = resident().saturating_sub(before);
        if grown > MOST {
            let what = if takes_first_frame { "after a first frame" } else { "unread" };
            wrong.push(format!("{} KiB for {path} as {accept}, {what}", grown / 1024));
        }
    }
}

async fn open(server: &TestServer, path: &str, accept: &str) -> ResponseBody {
    let (status, _, body) = server.request(Method::GET, path).header("accept", accept).open().await;
    assert_eq!(status.as_u16(), 200, "{path} as {accept}");
    body
}

/// Returns the resident memory of this process in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<usize>().unwrap() * 1024
}
