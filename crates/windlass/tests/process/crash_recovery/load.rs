//! Clients that write and watch while the server is killed.

use hyper::Method;
use rand::Rng;
use serde_json::{Value, json};
use windlass_testkit::{HttpClient, HttpConnection};

use super::history::{ObjectChange, ObjectLifetime, ObservedChange, WatchEventType};
use super::{CONFIG_MAPS, name, step, version};
use crate::server::BoxedError;

/// Creates, changes and deletes the client's own objects until the connection breaks.
///
/// Every acknowledged version must be higher than `floor` and than the previous one.
pub async fn write(http: HttpClient, prefix: String, floor: u64) -> Vec<ObjectLifetime> {
    let mut lives = Vec::new();
    // The server may be killed before the connection is established.
    let Ok(mut connection) = http.connect().await else {
        return lives;
    };
    let mut writer = LoadWriter { newest: floor };
    for number in 0.. {
        let (changes, deleted) = (rand::rng().random_range(0..4), rand::rng().random_bool(0.5));
        let mut life = ObjectLifetime::new(format!("{prefix}-{number}"));
        let lived = writer.write_lifetime(&mut connection, &mut life, changes, deleted).await;
        lives.push(life);
        if lived.is_err() {
            break;
        }
    }
    lives
}

struct LoadWriter {
    newest: u64,
}

impl LoadWriter {
    async fn write_lifetime(
        &mut self,
        connection: &mut HttpConnection,
        life: &mut ObjectLifetime,
        changes: u32,
        deleted: bool,
    ) -> Result<(), BoxedError> {
        let object = format!("{CONFIG_MAPS}/{}", life.name);
        let mut body = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": life.name},
            "data": {"step": "0", "filling": "x".repeat(200)},
        });
        for step in 0..=changes {
            let (method, path, expected) = match step {
                0 => (Method::POST, CONFIG_MAPS, 201),
                _ => (Method::PUT, object.as_str(), 200),
            };
            body["data"]["step"] = json!(step.to_string());
            life.pending = Some(ObjectChange::Put(step));
            let (status, answer) = connection.request(method, path, &body).await?;
            assert_eq!(status, expected, "{answer}");
            let version = version(&answer);
            assert!(version > self.newest, "{version} after {} was seen", self.newest);
            self.newest = version;
            body = answer;
            life.acknowledge(ObjectChange::Put(step), Some(version));
        }
        if deleted {
            life.pending = Some(ObjectChange::Delete);
            let (status, answer) = connection.request(Method::DELETE, &object, &Value::Null).await?;
            assert_eq!(status, 200, "{answer}");
            life.acknowledge(ObjectChange::Delete, None);
        }
        Ok(())
    }
}

/// A watch that resumes after restarts of the server.
pub struct ResumingWatcher {
    /// Highest version received, from which to resume.
    at: u64,
    /// All events in the order of arrival.
    pub seen: Vec<ObservedChange>,
    /// Number of events already returned by `fresh`.
    known: usize,
}

impl ResumingWatcher {
    pub fn from(version: u64) -> Self {
        Self { at: version, seen: Vec::new(), known: 0 }
    }

    /// Returns the events since the last call.
    pub fn fresh(&mut self) -> &[ObservedChange] {
        let known = std::mem::replace(&mut self.known, self.seen.len());
        &self.seen[known..]
    }

    /// Watches until the server is gone or, if a version is given, until it is reached.
    pub async fn watch(mut self, http: HttpClient, until: Option<u64>) -> Self {
        while until.is_none_or(|until| self.at < until) {
            if self.read(&http, until).await.is_err() {
                break;
            }
        }
        self
    }

    async fn read(&mut self, http: &HttpClient, until: Option<u64>) -> Result<(), BoxedError> {
        let path = format!("{CONFIG_MAPS}?watch=1&allowWatchBookmarks=true&resourceVersion={}", self.at);
        let mut events = match http.watch(&path).await? {
            Ok(events) => events,
            Err(status) => panic!("a watch from {} was answered {status}", self.at),
        };
        while let Some(event) = events.next().await? {
            self.record_event(&event);
            if until.is_some_and(|until| self.at >= until) {
                break;
            }
        }
        Ok(())
    }

    fn record_event(&mut self, event: &Value) {
        let object = &event["object"];
        let kind = match event["type"].as_str() {
            Some("ADDED") => WatchEventType::Added,
            Some("MODIFIED") => WatchEventType::Modified,
            Some("DELETED") => WatchEventType::Deleted,
            Some("BOOKMARK") => {
                assert!(version(object) >= self.at, "a bookmark at {} after {}", version(object), self.at);
                self.at = version(object);
                return;
            }
            // History is kept for minutes and watchers resume in seconds, so even 410 is an error.
            _ => panic!("watching from {}: {event}", self.at),
        };
        let version = version(object);
        assert!(version > self.at, "{version} was sent after {}", self.at);
        self.at = version;
        if name(object).starts_with('w') {
            self.seen.push(ObservedChange { version, kind, name: name(object), step: step(object) });
        }
    }
}
