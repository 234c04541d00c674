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

type Answer = Response<UnsyncBoxBody<Bytes, std::convert::Infallible>>;

/// What a server answers to the next call.
enum ScriptedResponse {
    Status(u16),
    List(Vec<Value>),
    /// These events; then it goes on in silence.
    Watch(Vec<Value>),
    /// These events; then it ends.
    Ends(Vec<Value>),
}

/// A server that answers what it is told, and then nothing any more.
#[derive(Clone, Default)]
struct ScriptedWatchServer {
    answers: Arc<Mutex<VecDeque<ScriptedResponse>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl ScriptedWatchServer {
    fn new(answers: impl IntoIterator<Item = ScriptedResponse>) -> Self {
        let answers = Arc::new(Mutex::new(answers.into_iter().collect()));
        Self { answers, asked: Arc::default() }
    }

    fn watch(&self) -> ResilientWatch<ConfigMap> {
        let this = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            this.asked.lock().unwrap().push(query);
            let next = this.answers.lock().unwrap().pop_front();
            async move {
                match next {
                    Some(say) => Ok::<_, std::convert::Infallible>(answer(say)),
                    None => std::future::pending().await,
                }
            }
        });
        let api = Api::namespaced(Client::new(service, "default"), "default");
        ResilientWatch::new(api, Some("metadata.name=a"))
    }

    /// How it was asked: for a list as a watch, a watch, or a list.
    fn requests(&self) -> Vec<&'static str> {
        let kind = |query: &String| match query {
            query if query.contains("sendInitialEvents=true") => "stream",
            query if query.contains("watch=true") => "watch",
            _ => "list",
        };
        let asked = self.asked.lock().unwrap();
        assert!(asked.iter().all(|query| query.contains("fieldSelector=metadata.name%3Da")));
        asked.iter().map(kind).collect()
    }
}

fn answer(say: ScriptedResponse) -> Answer {
    let plain = |code: u16, value: Value| {
        let body = Full::new(Bytes::from(value.to_string()));
        Response::builder().status(code).body(body.boxed_unsync()).unwrap()
    };
    let lines = |events: Vec<Value>| {
        stream::iter(events.into_iter().map(|event| Ok(Frame::data(format!("{event}\n").into()))))
    };
    match say {
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
        ScriptedResponse::Ends(events) => {
            Response::new(StreamBody::new(lines(events)).boxed_unsync())
        }
    }
}

fn map(version: u64) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
           "metadata": {"name": "a", "resourceVersion": version.to_string()}})
}

fn event(kind: &str, version: u64) -> Value {
    json!({"type": kind, "object": map(version)})
}

fn all_listed() -> Value {
    json!({"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}}})
}

fn expired_event() -> Value {
    json!({"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "status": "Failure",
           "code": 410, "reason": "Expired", "message": "too old", "metadata": {}}})
}

/// What comes, in short words, until it is this.
async fn until(feed: &mut ResilientWatch<ConfigMap>, last: &str) -> Vec<String> {
    let mut seen = Vec::new();
    while seen.last().is_none_or(|seen| seen != last) {
        let next = tokio::time::timeout(Duration::from_secs(3600), feed.next()).await;
        seen.push(match next.unwrap_or_else(|_| panic!("only {seen:?}")) {
            WatchItem::Event(Event::Init) => "init".to_owned(),
            WatchItem::Event(Event::InitDone) => "done".to_owned(),
            WatchItem::Event(Event::InitApply(map) | Event::Apply(map)) => {
                format!("is {}", map.metadata.resource_version.unwrap())
            }
            WatchItem::Event(Event::Delete(_)) => "deleted".to_owned(),
            WatchItem::Trouble(WatchFailure::Refused(why)) => format!("refused: {why}"),
            WatchItem::Trouble(WatchFailure::Unserved(why)) => format!("unserved: {why}"),
            WatchItem::Trouble(WatchFailure::Broken(why)) => format!("broken: {why}"),
        });
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn lists_come_as_a_watch_where_the_server_can() {
    let script = ScriptedWatchServer::new([ScriptedResponse::Watch(vec![
        event("ADDED", 1),
        all_listed(),
        event("MODIFIED", 10),
        event("DELETED", 11),
    ])]);
    let seen = until(&mut script.watch(), "deleted").await;
    assert_eq!(seen, ["init", "is 1", "done", "is 10", "deleted"]);
    assert_eq!(script.requests(), ["stream"]);
}

#[tokio::test(start_paused = true)]
async fn lists_come_first_where_it_cannot() {
    for code in [400, 422] {
        let then = [
            ScriptedResponse::Status(code),
            ScriptedResponse::List(vec![map(1)]),
            ScriptedResponse::Watch(vec![event("MODIFIED", 10)]),
        ];
        let script = ScriptedWatchServer::new(then);
        let seen = until(&mut script.watch(), "is 10").await;
        assert_eq!(seen, ["init", "is 1", "done", "is 10"], "{code}");
        assert_eq!(script.requests(), ["stream", "list", "watch"], "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_says_that_these_were_all_is_asked_for_a_list() {
    let script = ScriptedWatchServer::new([
        ScriptedResponse::Watch(vec![event("ADDED", 1)]),
        ScriptedResponse::List(vec![map(1)]),
        ScriptedResponse::Watch(vec![]),
    ]);
    let began = Instant::now();
    let seen = until(&mut script.watch(), "done").await;
    assert_eq!(seen, ["init", "is 1", "init", "is 1", "done"]);
    assert!(began.elapsed() < SILENCE * 2);
}

#[tokio::test(start_paused = true)]
async fn silence_after_the_list_is_no_trouble() {
    let script = ScriptedWatchServer::new([
        ScriptedResponse::Watch(vec![all_listed()]),
        // The first ends in time; the next begins where it was.
        ScriptedResponse::Watch(vec![event("MODIFIED", 10)]),
    ]);
    let mut feed = script.watch();
    assert_eq!(until(&mut feed, "done").await, ["init", "done"]);
    let began = Instant::now();
    assert_eq!(until(&mut feed, "is 10").await, ["is 10"]);
    assert!(began.elapsed() >= Duration::from_secs(LASTS.0.into()));
    assert_eq!(script.requests(), ["stream", "watch"]);
}

#[tokio::test(start_paused = true)]
async fn trouble_is_told_and_slows_it_down() {
    let refusals = (0..6).map(|_| ScriptedResponse::Status(403));
    let then = [
        ScriptedResponse::Status(404),
        ScriptedResponse::Status(503),
        ScriptedResponse::Watch(vec![all_listed()]),
    ];
    let script = ScriptedWatchServer::new(refusals.chain(then));
    let began = Instant::now();
    let seen = until(&mut script.watch(), "done").await;
    let mut expected = vec!["refused: scripted 403"; 6];
    expected.extend(["unserved: scripted 404", "broken: scripted 503", "init", "done"]);
    assert_eq!(seen, expected);
    // 0.2 s, 0.4 s, … 25.6 s, each a little more or less.
    let took = began.elapsed().as_secs_f64();
    assert!((51.0 * 0.75..=51.0 * 1.25).contains(&took), "{took}");
}

#[tokio::test(start_paused = true)]
async fn expired_resource_version_is_relisted() {
    // Said in the watch, and instead of it.
    let said = [
        vec![ScriptedResponse::Watch(vec![all_listed(), expired_event()])],
        vec![ScriptedResponse::Ends(vec![all_listed()]), ScriptedResponse::Status(410)],
    ];
    for mut answers in said {
        answers.push(ScriptedResponse::Watch(vec![event("ADDED", 12), all_listed()]));
        let script = ScriptedWatchServer::new(answers);
        let mut feed = script.watch();
        assert_eq!(until(&mut feed, "done").await, ["init", "done"]);
        let seen = until(&mut feed, "done").await;
        assert_eq!(seen[1..], ["init", "is 12", "done"]);
        assert!(seen[0].starts_with("broken: "), "{seen:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn lists_that_end_too_early_are_not_asked_for_all_the_time() {
    let early = (0..5).map(|_| ScriptedResponse::Ends(vec![]));
    let script =
        ScriptedWatchServer::new(early.chain([ScriptedResponse::Watch(vec![all_listed()])]));
    let began = Instant::now();
    assert_eq!(until(&mut script.watch(), "done").await.len(), 7);
    assert!(began.elapsed() > Duration::from_secs(2), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn buffered_events_are_batched() {
    let events = (10..60).map(|version| event("MODIFIED", version));
    let script = ScriptedWatchServer::new([ScriptedResponse::Watch(
        [all_listed()].into_iter().chain(events).collect(),
    )]);
    let mut feed = script.watch();
    let mut taken = vec![0];
    while taken.iter().sum::<usize>() < 52 {
        let mut count = 0;
        feed.next_batch(|_| count += 1).await;
        taken.push(count);
    }
    assert!(taken.len() < 6, "{taken:?}");
}
