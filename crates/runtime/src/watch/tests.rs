use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::Response;
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

type HttpResponse = Response<UnsyncBoxBody<Bytes, std::convert::Infallible>>;

/// Response to the next request.
enum ScriptedResponse {
    Status(u16),
    List(Vec<Value>),
    /// These events, and then an open connection without any.
    Watch(Vec<Value>),
    /// These events, and then the end of the response.
    Ends(Vec<Value>),
}

/// A server that sends scripted responses, and does not respond once they are used up.
#[derive(Clone, Default)]
struct ScriptedServer {
    answers: Arc<Mutex<VecDeque<ScriptedResponse>>>,
    queries: Arc<Mutex<Vec<String>>>,
}

impl ScriptedServer {
    fn new(answers: impl IntoIterator<Item = ScriptedResponse>) -> Self {
        let answers = Arc::new(Mutex::new(answers.into_iter().collect()));
        Self { answers, queries: Arc::default() }
    }

    fn watch(&self) -> ObjectWatch<ConfigMap> {
        ObjectWatch::with_fields(self.api(), Some("metadata.name=a"))
    }

    fn api(&self) -> Api<ConfigMap> {
        let this = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            this.queries.lock().unwrap().push(query);
            let next = this.answers.lock().unwrap().pop_front();
            async move {
                match next {
                    Some(response) => Ok::<_, std::convert::Infallible>(respond(response)),
                    None => std::future::pending().await,
                }
            }
        });
        Api::namespaced(Client::new(service, "default"), "default")
    }

    /// Kinds of the requests so far: streaming list, watch, or list.
    fn requests(&self) -> Vec<&'static str> {
        let kind = |query: &String| match query {
            query if query.contains("sendInitialEvents=true") => "stream",
            query if query.contains("watch=true") => "watch",
            _ => "list",
        };
        let queries = self.queries.lock().unwrap();
        assert!(queries.iter().all(|query| query.contains("fieldSelector=metadata.name%3Da")));
        queries.iter().map(kind).collect()
    }
}

fn respond(response: ScriptedResponse) -> HttpResponse {
    let plain = |code: u16, value: Value| {
        let body = Full::new(Bytes::from(value.to_string()));
        Response::builder().status(code).body(body.boxed_unsync()).unwrap()
    };
    let lines = |events: Vec<Value>| {
        stream::iter(events.into_iter().map(|event| Ok(Frame::data(format!("{event}\n").into()))))
    };
    match response {
        ScriptedResponse::Status(code) => plain(
            code,
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                   "reason": "X", "message": format!("scripted {code}"), "metadata": {}}),
        ),
        ScriptedResponse::List(items) => plain(
            200,
            json!({"kind": "ConfigMapList", "apiVersion": "v1", "items": items,
                   "metadata": {"resourceVersion": "9"}}),
        ),
        ScriptedResponse::Watch(events) => {
            Response::new(StreamBody::new(lines(events).chain(stream::pending())).boxed_unsync())
        }
        ScriptedResponse::Ends(events) => Response::new(StreamBody::new(lines(events)).boxed_unsync()),
    }
}

fn map(version: u64) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
           "metadata": {"name": "a", "resourceVersion": version.to_string()}})
}

fn event(kind: &str, version: u64) -> Value {
    json!({"type": kind, "object": map(version)})
}

fn end_of_list() -> Value {
    json!({"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}}})
}

fn expired() -> Value {
    json!({"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "status": "Failure",
           "code": 410, "reason": "Expired", "message": "too old", "metadata": {}}})
}

/// Summaries of the events up to and including `last`.
async fn until(watch: &mut ObjectWatch<ConfigMap>, last: &str) -> Vec<String> {
    let mut seen = Vec::new();
    while seen.last().is_none_or(|seen| seen != last) {
        let next = tokio::time::timeout(Duration::from_secs(3600), watch.next()).await;
        seen.push(match next.unwrap_or_else(|_| panic!("only {seen:?}")) {
            Ok(Event::Init) => "init".to_owned(),
            Ok(Event::InitDone) => "done".to_owned(),
            Ok(Event::InitApply(map) | Event::Apply(map)) => {
                format!("is {}", map.metadata.resource_version.unwrap())
            }
            Ok(Event::Delete(_)) => "deleted".to_owned(),
            Err(error) => {
                let kind = match error.kind {
                    WatchErrorKind::Refused => "refused",
                    WatchErrorKind::NotServed => "not served",
                    WatchErrorKind::Broken => "broken",
                };
                format!("{kind}: {error}")
            }
        });
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn lists_are_streamed_where_the_server_can() {
    let script = ScriptedServer::new([ScriptedResponse::Watch(vec![
        event("ADDED", 1),
        end_of_list(),
        event("MODIFIED", 10),
        event("DELETED", 11),
    ])]);
    let seen = until(&mut script.watch(), "deleted").await;
    assert_eq!(seen, ["init", "is 1", "done", "is 10", "deleted"]);
    assert_eq!(script.requests(), ["stream"]);
}

#[tokio::test(start_paused = true)]
async fn lists_are_requested_where_it_cannot() {
    for code in [400, 422] {
        let rest = [
            ScriptedResponse::Status(code),
            ScriptedResponse::List(vec![map(1)]),
            ScriptedResponse::Watch(vec![event("MODIFIED", 10)]),
        ];
        let script = ScriptedServer::new(rest);
        let seen = until(&mut script.watch(), "is 10").await;
        assert_eq!(seen, ["init", "is 1", "done", "is 10"], "{code}");
        assert_eq!(script.requests(), ["stream", "list", "watch"], "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_that_never_ends_falls_back_to_a_list() {
    let script = ScriptedServer::new([
        ScriptedResponse::Watch(vec![event("ADDED", 1)]),
        ScriptedResponse::List(vec![map(1)]),
        ScriptedResponse::Watch(vec![]),
    ]);
    let start = Instant::now();
    let seen = until(&mut script.watch(), "done").await;
    assert_eq!(seen, ["init", "is 1", "init", "is 1", "done"]);
    assert!(start.elapsed() < LIST_SILENCE * 2);
}

#[tokio::test(start_paused = true)]
async fn silence_after_the_list_is_no_error() {
    let script = ScriptedServer::new([
        ScriptedResponse::Watch(vec![end_of_list()]),
        // The first times out; the next one resumes.
        ScriptedResponse::Watch(vec![event("MODIFIED", 10)]),
    ]);
    let mut watch = script.watch();
    assert_eq!(until(&mut watch, "done").await, ["init", "done"]);
    let start = Instant::now();
    assert_eq!(until(&mut watch, "is 10").await, ["is 10"]);
    assert!(start.elapsed() >= Duration::from_secs(WATCH_SECONDS.0.into()));
    assert_eq!(script.requests(), ["stream", "watch"]);
}

#[tokio::test(start_paused = true)]
async fn errors_are_classified_and_back_off() {
    let refusals = (0..6).map(|_| ScriptedResponse::Status(403));
    let rest = [
        ScriptedResponse::Status(404),
        ScriptedResponse::Status(503),
        ScriptedResponse::Watch(vec![end_of_list()]),
    ];
    let script = ScriptedServer::new(refusals.chain(rest));
    let start = Instant::now();
    let seen = until(&mut script.watch(), "done").await;
    let mut expected = vec!["refused: scripted 403"; 6];
    expected.extend(["not served: scripted 404", "broken: scripted 503", "init", "done"]);
    assert_eq!(seen, expected);
    // 0.2 s, 0.4 s, … 25.6 s, each a little more or less.
    let took = start.elapsed().as_secs_f64();
    assert!((51.0 * 0.75..=51.0 * 1.25).contains(&took), "{took}");
}

#[tokio::test(start_paused = true)]
async fn an_expired_resource_version_is_relisted() {
    // Within the watch, and instead of it.
    let variants = [
        vec![ScriptedResponse::Watch(vec![end_of_list(), expired()])],
        vec![ScriptedResponse::Ends(vec![end_of_list()]), ScriptedResponse::Status(410)],
    ];
    for mut answers in variants {
        answers.push(ScriptedResponse::Watch(vec![event("ADDED", 12), end_of_list()]));
        let script = ScriptedServer::new(answers);
        let mut watch = script.watch();
        assert_eq!(until(&mut watch, "done").await, ["init", "done"]);
        let seen = until(&mut watch, "done").await;
        assert_eq!(seen[1..], ["init", "is 12", "done"]);
        assert!(seen[0].starts_with("broken: "), "{seen:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn incomplete_lists_back_off() {
    let early = (0..5).map(|_| ScriptedResponse::Ends(vec![]));
    let script = ScriptedServer::new(early.chain([ScriptedResponse::Watch(vec![end_of_list()])]));
    let start = Instant::now();
    assert_eq!(until(&mut script.watch(), "done").await.len(), 7);
    assert!(start.elapsed() > Duration::from_secs(2), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn events_that_have_arrived_are_one_batch() {
    let events = (10..60).map(|version| event("MODIFIED", version));
    let script =
        ScriptedServer::new([ScriptedResponse::Watch([end_of_list()].into_iter().chain(events).collect())]);
    let mut watch = script.watch();
    let mut batches = vec![0];
    while batches.iter().sum::<usize>() < 52 {
        let mut count = 0;
        watch.next_batch(|_| count += 1).await;
        batches.push(count);
    }
    assert!(batches.len() < 6, "{batches:?}");
}

#[tokio::test(start_paused = true)]
async fn controllers_get_errors_and_count_them() {
    use crate::metrics::ControllerMetrics;

    let script = ScriptedServer::new([
        ScriptedResponse::Status(404),
        ScriptedResponse::Status(503),
        ScriptedResponse::Watch(vec![end_of_list(), event("ADDED", 10)]),
    ]);
    let metrics = ControllerMetrics::unregistered("test");
    let config = Config::default().fields("metadata.name=a");
    let mut seen = Vec::new();
    let watching = watch_objects(script.api(), "configmaps", config, &metrics, |event| {
        seen.push(match event {
            Ok(Event::Apply(_)) => "applied".to_owned(),
            Ok(_) => "list".to_owned(),
            Err(error) => format!("{:?} {:?}", error.kind, error.status),
        });
    });
    let never = tokio::time::timeout(Duration::from_secs(60), watching).await;
    assert!(never.is_err());
    let expected = ["NotServed Some(404)", "Broken Some(503)", "list", "list", "applied"];
    assert_eq!(seen, expected);
    assert_eq!(metrics.watch_errors.get(), 2);
}
