//! Lists are encoded in frames while the client reads; joined, they equal a list encoded at once.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use http_body::Body as _;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use windlass_api::decode::to_yaml;
use windlass_server::limits;

use windlass_testkit::{MAPS, PODS, TestServer, pod};

const OLD_EVENTS: &str = "/api/v1/namespaces/default/events";
const NEW_EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
const NOWHERE: &str = "/api/v1/namespaces/nowhere/configmaps";
const VIEWS: [&str; 5] = [
    "",
    ";as=Table;v=v1;g=meta.k8s.io",
    ";as=Table;v=v1beta1;g=meta.k8s.io",
    ";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    ";as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io",
];

async fn populated() -> TestServer {
    // Ages in rows must not change between requests.
    let now = time::OffsetDateTime::now_utc();
    let server = TestServer::with(|setup| setup.clock = Arc::new(move || now)).await;
    // Strings that YAML must quote or write as blocks, many small objects, and some larger than a
    // frame.
    let texts = ["", "yes", "0644", "two\nlines\n", "  indented\nlines", "\u{e9}\u{2028}: #", "a\tb"];
    for number in 0..60 {
        let size = if number % 20 == 7 { limits::FRAME + 5 } else { 20 * number };
        let map = json!({
            "metadata": {"name": format!("m{number:02}"), "labels": {"odd": (number % 2).to_string()}},
            "data": {"text": texts[number % texts.len()], "fill": "f".repeat(size)},
        });
        server.post(MAPS, &map).await.expect(201);
    }
    for name in ["a", "b"] {
        server.post(PODS, &pod(name)).await.expect(201);
        let event = json!({
            "metadata": {"name": name},
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
            "reason": "Because", "message": "text", "type": "Normal", "count": 3,
            "source": {"component": "c"},
        });
        server.post(OLD_EVENTS, &event).await.expect(201);
    }
    server
}

/// Returns the whole body after checking its frames and announced length.
async fn read(server: &TestServer, path: &str, accept: &str) -> Bytes {
    let request = server.request(Method::GET, path).header("accept", accept);
    let (status, _, mut body) = request.open().await;
    assert_eq!(status.as_u16(), 200, "{path} as {accept}");
    let announced = body.size_hint().exact();
    let mut whole = Vec::new();
    while let Some(frame) = body.frame().await {
        let data = frame.unwrap().into_data().unwrap();
        assert!(!data.is_empty(), "{path} as {accept}");
        whole.extend_from_slice(&data);
        let left = announced.map(|announced| announced - whole.len() as u64);
        assert_eq!(body.size_hint().exact(), left.or(body.size_hint().exact()), "{path}");
    }
    assert!(body.is_end_stream());
    if let Some(announced) = announced {
        assert_eq!(announced, whole.len() as u64, "{path} as {accept}");
    }
    whole.into()
}

fn parse(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(body)))
}

#[tokio::test]
async fn frames_join_to_what_one_encoding_gives() {
    let server = populated().await;
    for tabbed in [false, true] {
        if tabbed {
            // Changes the style of a whole YAML document.
            let map = json!({"metadata": {"name": "tabbed"}, "data": {"text": "\tfirst\nsecond"}});
            server.post(MAPS, &map).await.expect(201);
        }
        for (base, count) in [
            (NOWHERE.to_owned(), 0),
            (format!("{MAPS}?limit=1"), 1),
            (format!("{MAPS}?limit=50"), 50),
            (format!("{MAPS}?limit=4&labelSelector=odd%3D1"), 4),
            (format!("{MAPS}?includeObject=Object"), 60 + usize::from(tabbed)),
            (format!("{MAPS}?includeObject=None"), 60 + usize::from(tabbed)),
            (PODS.to_owned(), 2),
            (OLD_EVENTS.to_owned(), 2),
            (NEW_EVENTS.to_owned(), 2),
        ] {
            for view in VIEWS {
                check(&server, &base, view, count).await;
            }
        }
    }
}

async fn check(server: &TestServer, path: &str, view: &str, count: usize) {
    let compact = read(server, path, &format!("application/json{view}")).await;
    let value = parse(&compact);
    let items = value.get("items").or(value.get("rows")).and_then(Value::as_array).unwrap();
    assert_eq!(items.len(), count, "{path}{view}");
    let limited = path.contains("limit=");
    assert_eq!(value["metadata"]["continue"].is_string(), limited, "{path}{view}");
    let counted = limited && !path.contains("Selector");
    assert_eq!(value["metadata"]["remainingItemCount"].is_number(), counted, "{path}{view}");
    if view.is_empty() {
        let metadata = &value["metadata"];
        let head = format!(
            "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{metadata},\"items\":[",
            value["kind"], value["apiVersion"]
        );
        assert!(compact.starts_with(head.as_bytes()), "{path}");
    } else {
        assert_eq!(compact, value.to_string(), "{path}{view}");
    }
    let question = if path.contains('?') { "&" } else { "?" };
    let path = format!("{path}{question}pretty=true");
    let pretty = read(server, &path, &format!("application/json{view}")).await;
    assert_eq!(pretty, format!("{value:#}\n"), "{path}{view}");
    let yaml = read(server, &path, &format!("application/yaml{view}")).await;
    assert_eq!(yaml, to_yaml(&value), "{path}{view}");
}

#[tokio::test]
async fn items_are_the_objects_and_the_length_is_known() {
    let server = populated().await;
    for base in [MAPS, PODS, OLD_EVENTS, NEW_EVENTS] {
        let list = read(&server, base, "application/json").await;
        let mut wanted = list[..list.windows(10).position(|w| w == b"\"items\":[{").unwrap() + 9].to_vec();
        for (number, item) in parse(&list)["items"].as_array().unwrap().iter().enumerate() {
            let name = item["metadata"]["name"].as_str().unwrap();
            let object = read(&server, &format!("{base}/{name}"), "application/json").await;
            let at = object.windows(11).position(|w| w == b"\"metadata\":").unwrap();
            wanted.extend_from_slice(if number == 0 { b"{" } else { b",{" });
            wanted.extend_from_slice(&object[at..]);
        }
        wanted.extend_from_slice(b"]}");
        assert_eq!(list, wanted, "{base}");
        let (_, headers, body) = server.request(Method::HEAD, base).open().await;
        assert!(body.is_end_stream());
        let length = headers.get("content-length").map(|v| v.to_str().unwrap().to_owned());
        // The length of items in the other version is only known after conversion.
        let wanted = (base != NEW_EVENTS).then(|| list.len().to_string());
        assert_eq!(length, wanted, "{base}");
    }
}

#[tokio::test]
async fn a_frame_has_a_bound() {
    let server = populated().await;
    for accept in VIEWS.map(|view| format!("application/json{view}")) {
        let (_, _, mut body) = server.request(Method::GET, MAPS).header("accept", &accept).open().await;
        let mut frames = 0;
        while let Some(frame) = body.frame().await {
            let data = frame.unwrap().into_data().unwrap();
            // An item may start before a frame is full and end beyond it.
            assert!(data.len() < 3 * limits::FRAME, "{accept}: {}", data.len());
            frames += 1;
        }
        assert!(frames > 1 || accept.contains("as="), "{accept}: {frames}");
    }
}
