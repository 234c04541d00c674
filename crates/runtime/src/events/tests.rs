use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response};
use http_body_util::{BodyExt as _, Full};
use kube::client::Body;
use serde_json::Value;

use super::*;

/// Records requests, and responds with what was sent or with a status.
#[derive(Clone, Default)]
struct EventServer {
    requests: Arc<Mutex<Vec<(Method, String, Value)>>>,
    failure: Arc<Mutex<Option<u16>>>,
}

impl EventServer {
    fn recorder(&self, limit: RateLimit) -> EventRecorder {
        let server = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let body = serde_json::from_slice(&body).unwrap();
                let request = (parts.method, parts.uri.path().to_owned(), body);
                Ok::<_, Infallible>(server.respond(request))
            }
        });
        let client = Client::new(service, "default");
        EventRecorder::new(client, EventReporter::controller("csrsigning"), limit)
    }

    fn respond(&self, request: (Method, String, Value)) -> Response<Full<Bytes>> {
        let mut requests = self.requests.lock().unwrap();
        let mut object = request.2.clone();
        let name = format!("event-{}", requests.len());
        requests.push(request);
        let response = |code: u16, body: Value| {
            Response::builder().status(code).body(Full::from(body.to_string())).unwrap()
        };
        if let Some(code) = self.failure.lock().unwrap().take() {
            let reason = if code == 409 { "AlreadyExists" } else { "Scripted" };
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                                "code": code, "reason": reason, "message": "scripted", "metadata": {}});
            return response(code, status);
        }
        object["metadata"]["name"] = name.into();
        object["eventTime"] = "2027-01-01T00:00:00.000000Z".into();
        response(200, object)
    }

    fn fail_next(&self, code: u16) {
        *self.failure.lock().unwrap() = Some(code);
    }

    /// Methods and the last segments of the paths so far.
    fn requests(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        let last = |path: &str| path.rsplit('/').next().unwrap().to_owned();
        requests.iter().map(|(method, path, _)| format!("{method} {}", last(path))).collect()
    }
}

const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

fn csr() -> ObjectReference {
    ObjectReference {
        kind: Some("CertificateSigningRequest".into()),
        name: Some("node-csr-A_b".into()),
        ..ObjectReference::default()
    }
}

#[test]
fn an_event_is_valid_whatever_the_object_is_called() {
    let reporter = EventReporter::controller("csrsigning");
    let note = "ü".repeat(MAX_NOTE_BYTES);
    let event = NewEvent::warning("Signing", "Odd", &note).build(&reporter, csr(), NOW);
    assert_eq!(event.metadata.name, None);
    assert_eq!(event.metadata.generate_name.as_deref(), Some("csrsigning-"));
    assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
    assert_eq!(event.note.unwrap().len(), MAX_NOTE_BYTES);
    assert_eq!(event.regarding.unwrap().name.as_deref(), Some("node-csr-A_b"));
    assert_eq!(event.reporting_controller.as_deref(), Some("windlass.dev/csrsigning"));
    assert_eq!(event.reporting_instance.as_deref(), Some("csrsigning"));
    let odd = NewEvent::normal("Signing", "Odd", format!("x{note}")).named("once");
    let event = odd.build(&EventReporter::node("n1"), pod_reference("ns", "p", "u"), NOW);
    assert_eq!(event.note.unwrap().len(), MAX_NOTE_BYTES - 1);
    assert_eq!((event.metadata.name.as_deref(), event.metadata.generate_name), (Some("once"), None));
    assert_eq!(event.metadata.namespace.as_deref(), Some("ns"));
    assert_eq!(event.type_.as_deref(), Some("Normal"));
}

#[tokio::test(start_paused = true)]
async fn repeats_are_counted_in_a_series() {
    let server = EventServer::default();
    let recorder = server.recorder(CONTROLLER_EVENT_LIMIT);
    let record = async |note: &str| {
        let event = NewEvent::warning("Signing", "Failed", note);
        recorder.try_record(csr(), event, NOW).await.unwrap()
    };
    assert_eq!(record("a").await, RecordOutcome::Created);
    assert_eq!(record("b").await, RecordOutcome::Created);
    assert_eq!(record("a").await, RecordOutcome::Repeated);
    assert_eq!(record("a").await, RecordOutcome::Repeated);
    // The server has deleted it.
    server.fail_next(404);
    assert_eq!(record("a").await, RecordOutcome::Created);
    tokio::time::advance(REPEAT_WINDOW).await;
    assert_eq!(record("b").await, RecordOutcome::Created);
    let expected = [
        "POST events",
        "POST events",
        "PATCH event-0",
        "PATCH event-0",
        "PATCH event-0",
        "POST events",
        "POST events",
    ];
    assert_eq!(server.requests(), expected);
    let requests = server.requests.lock().unwrap();
    assert_eq!(requests[0].1, "/apis/events.k8s.io/v1/namespaces/default/events");
    assert_eq!(requests[3].2["series"]["count"], 3);
    assert_eq!(requests[3].2["series"]["lastObservedTime"], "1970-01-01T00:00:00.000000Z");
}

#[tokio::test(start_paused = true)]
async fn the_rate_is_limited() {
    let server = EventServer::default();
    let recorder = server.recorder(AGENT_EVENT_LIMIT);
    for n in 0..100 {
        recorder.warn(csr(), NewEvent::warning("A", "B", n.to_string()), NOW).await;
    }
    assert_eq!(server.requests().len(), 10);
    let event = NewEvent::warning("A", "B", "c");
    let outcome = recorder.try_record(csr(), event.clone(), NOW).await.unwrap();
    assert_eq!(outcome, RecordOutcome::RateLimited);
    tokio::time::advance(AGENT_EVENT_LIMIT.refill).await;
    recorder.record(csr(), event, NOW).await;
    assert_eq!(server.requests().len(), 11);
}

#[tokio::test(start_paused = true)]
async fn named_events_exist_once_and_errors_are_returned() {
    let server = EventServer::default();
    let recorder = server.recorder(CONTROLLER_EVENT_LIMIT);
    let event = NewEvent::warning("Scheduling", "NotScheduled", "x").named("unscheduled-pod-u");
    server.fail_next(409);
    let outcome = recorder.try_record(csr(), event.clone(), NOW).await.unwrap();
    assert_eq!(outcome, RecordOutcome::Exists);
    server.fail_next(500);
    let error = recorder.try_record(csr(), event.clone(), NOW).await.unwrap_err();
    assert!(matches!(error, RecordError::Api(kube::Error::Api(status)) if status.code == 500));
    recorder.try_record(csr(), event.clone(), NOW).await.unwrap();
    assert_eq!(recorder.recorded().len(), 1);
    recorder.forget("another");
    assert_eq!(recorder.recorded().len(), 1);
}
