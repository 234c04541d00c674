//! An API server that has pods' requests and requests of hosts, and does as it is told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::stream;
use http::{Method, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use time::Duration as Span;
use time::format_description::well_known::Rfc3339;
use tokio::sync::watch;
use tokio::time::Instant;
use windlass_pki::{CertificateRequest, PrivateKey, PublicKey};

use crate::testing::{CertificateFixture, START};

type HttpAnswer = Response<UnsyncBoxBody<Bytes, kube::Error>>;

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum IssuePolicy {
    Wait,
    /// It gets a certificate for as long as this, to be renewed after two thirds of it.
    Issue(Span),
    /// It gets one for another key.
    IssueForAnother,
    /// It gets one that is over.
    IssueExpired,
    /// It gets something that is no certificate.
    IssueNonsense,
    Refuse(&'static str),
}

#[derive(Clone)]
pub struct ScriptedRequestServer {
    state: Arc<Mutex<RequestServerState>>,
    version: watch::Sender<u64>,
    began: Instant,
}

struct RequestServerState {
    requests: BTreeMap<String, Value>,
    log: Vec<(u64, Value)>,
    uids: u64,
    policy: IssuePolicy,
    served: Option<&'static str>,
    faults: BTreeMap<&'static str, u16>,
    /// Verbs whose answers get lost when the call is done.
    lost: BTreeSet<&'static str>,
    calls: Vec<(&'static str, Instant)>,
    /// Calls under way, and the most that ever were.
    creating: (usize, usize),
    created: Vec<Value>,
    events: Vec<Value>,
    knows_stubs: bool,
    /// How often all watches were ended.
    cuts: u64,
}

impl ScriptedRequestServer {
    pub fn new(policy: IssuePolicy, began: Instant) -> Self {
        let state = RequestServerState {
            requests: BTreeMap::new(),
            log: Vec::new(),
            uids: 0,
            policy,
            served: Some("v1beta1"),
            faults: BTreeMap::new(),
            lost: BTreeSet::new(),
            calls: Vec::new(),
            creating: (0, 0),
            created: Vec::new(),
            events: Vec::new(),
            knows_stubs: true,
            cuts: 0,
        };
        Self { state: Arc::new(Mutex::new(state)), version: watch::Sender::new(1), began }
    }

    pub fn client(&self) -> Client {
        let this = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let this = this.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let (path, query) = (parts.uri.path(), parts.uri.query().unwrap_or(""));
                this.answer(&parts.method, path, query, &body).await
            }
        });
        Client::new(service, "default")
    }

    /// What becomes of requests from now on.
    pub fn policy(&self, policy: IssuePolicy) {
        self.state.lock().unwrap().policy = policy;
    }

    /// The version in which it has pods' requests.
    pub fn serve(&self, version: Option<&'static str>) {
        self.state.lock().unwrap().served = version;
    }

    /// Is as Kubernetes 1.35: there is no place for a stub.
    pub fn forget_stubs(&self) {
        self.state.lock().unwrap().knows_stubs = false;
    }

    /// Answers all calls of this verb with this status.
    pub fn fault(&self, verb: &'static str, code: u16) {
        self.state.lock().unwrap().faults.insert(verb, code);
    }

    /// Does what calls of this verb want, but does not say so.
    pub fn drop_answers(&self, verb: &'static str) {
        self.state.lock().unwrap().lost.insert(verb);
    }

    pub fn heal(&self) {
        let mut state = self.state.lock().unwrap();
        state.faults.clear();
        state.lost.clear();
    }

    /// Every request that was ever made.
    pub fn created(&self) -> Vec<Value> {
        self.state.lock().unwrap().created.clone()
    }

    pub fn events(&self) -> Vec<Value> {
        self.state.lock().unwrap().events.clone()
    }

    /// When calls of a verb were made.
    pub fn calls(&self, verb: &str) -> Vec<Instant> {
        let state = self.state.lock().unwrap();
        state.calls.iter().filter(|(called, _)| *called == verb).map(|(_, at)| *at).collect()
    }

    /// The most requests that were being made at the same time.
    pub fn most_at_once(&self) -> usize {
        self.state.lock().unwrap().creating.1
    }

    pub fn delete_all(&self) {
        let names = self.names();
        self.change(|state, version| {
            for name in names {
                let gone = state.requests.remove(&name).unwrap();
                state.log.push((version, json!({"type": "DELETED", "object": gone})));
            }
        });
    }

    pub fn cut_watches(&self) {
        self.change(|state, _| state.cuts += 1);
    }

    pub fn decide(&self, policy: IssuePolicy) {
        let (names, began) = (self.names(), self.began);
        self.change(|state, version| {
            for name in names {
                let request = state.requests.get_mut(&name).unwrap();
                apply(request, policy, began);
                request["metadata"]["resourceVersion"] = version.to_string().into();
                let event = json!({"type": "MODIFIED", "object": request});
                state.log.push((version, event));
            }
        });
    }

    pub fn names(&self) -> Vec<String> {
        self.state.lock().unwrap().requests.keys().cloned().collect()
    }

    /// Waits until something is true of the server.
    pub async fn until(&self, good: impl Fn(&Self) -> bool) {
        let mut versions = self.version.subscribe();
        let waiting = async {
            while !good(self) {
                versions.changed().await.unwrap();
            }
        };
        tokio::time::timeout(super::PATIENCE, waiting).await.expect("something");
    }

    fn change<T>(&self, change: impl FnOnce(&mut RequestServerState, u64) -> T) -> T {
        let version = *self.version.borrow() + 1;
        let changed = change(&mut self.state.lock().unwrap(), version);
        self.version.send_replace(version);
        changed
    }

    async fn answer(
        &self,
        method: &Method,
        path: &str,
        query: &str,
        body: &Bytes,
    ) -> Result<HttpAnswer, kube::Error> {
        let verb = verb(method, path, query);
        {
            let mut state = self.state.lock().unwrap();
            state.calls.push((verb, Instant::now()));
            if let Some(code) = state.faults.get(verb) {
                return Ok(failure(*code, &format!("scripted {code}")));
            }
        }
        let answer = match verb {
            "discover" => self.discover(path),
            "account" | "node" => plain(200, &json!({"metadata": {"name": "x", "uid": verb}})),
            "event" => {
                let event = serde_json::from_slice::<Value>(body).unwrap();
                let answer = plain(201, &event);
                self.change(|state, _| state.events.push(event));
                answer
            }
            "create" => self.create(path, body).await,
            "watch" if query.contains("sendInitialEvents") => failure(422, "it cannot do that"),
            "watch" => self.watch(query),
            "list" => self.list(query),
            _ => match self.state.lock().unwrap().requests.get(last(path)) {
                Some(request) => plain(200, request),
                None => failure(404, "not found"),
            },
        };
        match self.state.lock().unwrap().lost.contains(verb) {
            true => Err(kube::Error::Service("connection reset by the script".into())),
            false => Ok(answer),
        }
    }

    fn discover(&self, path: &str) -> HttpAnswer {
        let served = self.state.lock().unwrap().served;
        if served != Some(last(path)) {
            return failure(404, "not found");
        }
        let resource = json!({
            "name": "podcertificaterequests", "singularName": "", "namespaced": true,
            "kind": "PodCertificateRequest", "verbs": [],
        });
        let version = format!("certificates.k8s.io/{}", last(path));
        plain(200, &json!({"groupVersion": version, "resources": [resource]}))
    }

    async fn create(&self, path: &str, body: &Bytes) -> HttpAnswer {
        let mut request: Value = serde_json::from_slice(body).unwrap();
        let name = request["metadata"]["name"].as_str().unwrap().to_owned();
        {
            let mut state = self.state.lock().unwrap();
            let (version, plural) = (path.split('/').nth(3), last(path));
            if plural == "podcertificaterequests" && state.served != version {
                return failure(404, "the server could not find the requested resource");
            }
            if state.requests.contains_key(&name) {
                return failure(409, "AlreadyExists");
            }
            if !state.knows_stubs && request["spec"]["pkixPublicKey"].is_null() {
                let why = "spec.pkixPublicKey: Invalid value: \"\": must be valid";
                return failure(422, why);
            }
            state.creating.0 += 1;
            state.creating.1 = state.creating.1.max(state.creating.0);
        }
        // So that others are under way meanwhile.
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        let (began, version) = (self.began, path.split('/').nth(3).unwrap_or("").to_owned());
        self.change(|state, number| {
            state.creating.0 -= 1;
            state.uids += 1;
            request["apiVersion"] = format!("certificates.k8s.io/{version}").into();
            request["metadata"]["uid"] = format!("uid-{}", state.uids).into();
            request["metadata"]["resourceVersion"] = number.to_string().into();
            state.created.push(request.clone());
            let mut answered = request.clone();
            apply(&mut answered, state.policy, began);
            state.log.push((number, json!({"type": "ADDED", "object": answered})));
            state.requests.insert(name, answered);
        });
        plain(201, &request)
    }

    fn list(&self, query: &str) -> HttpAnswer {
        let state = self.state.lock().unwrap();
        let items = state.requests.iter().filter(|(name, _)| is_selected(query, name));
        let items = items.map(|(_, request)| request).collect::<Vec<_>>();
        let version = self.version.borrow().to_string();
        plain(
            200,
            &json!({
                "kind": "List", "apiVersion": "v1",
                "metadata": {"resourceVersion": version}, "items": items,
            }),
        )
    }

    fn watch(&self, query: &str) -> HttpAnswer {
        let since = parameter(query, "resourceVersion").parse::<u64>().unwrap();
        let (query, cuts) = (query.to_owned(), self.state.lock().unwrap().cuts);
        let begun = (self.clone(), self.version.subscribe(), since);
        let events = stream::unfold(begun, move |(this, mut versions, since)| {
            let query = query.clone();
            async move {
                loop {
                    versions.borrow_and_update();
                    let (lines, last) = {
                        let state = this.state.lock().unwrap();
                        if state.cuts != cuts {
                            return None;
                        }
                        let new = state.log.iter().filter(|(version, event)| {
                            let name = event["object"]["metadata"]["name"].as_str().unwrap();
                            *version > since && is_selected(&query, name)
                        });
                        let lines = new.clone().map(|(_, event)| format!("{event}\n"));
                        (lines.collect::<String>(), new.map(|(version, _)| *version).max())
                    };
                    if let Some(last) = last {
                        let frame = Ok::<_, kube::Error>(Frame::data(Bytes::from(lines)));
                        return Some((frame, (this, versions, last)));
                    }
                    versions.changed().await.ok()?;
                }
            }
        });
        Response::new(StreamBody::new(events).boxed_unsync())
    }
}

/// Does what a policy says to a request.
fn apply(request: &mut Value, policy: IssuePolicy, began: Instant) {
    let is_pod = request["spec"]["request"].is_null();
    let condition = |kind: &str| {
        let reason = if kind == "Issued" { "" } else { "Because" };
        json!({"type": kind, "status": "True", "reason": reason, "message": "of the script"})
    };
    let now = START + began.elapsed();
    let (life, key) = match policy {
        IssuePolicy::Wait => return,
        IssuePolicy::Refuse(kind) => {
            request["status"] = json!({"conditions": [condition(kind)]});
            return;
        }
        IssuePolicy::Issue(life) => (life, requested_key(request)),
        IssuePolicy::IssueForAnother => {
            (Span::DAY, PrivateKey::generate().unwrap().public_key().clone())
        }
        IssuePolicy::IssueExpired => (-Span::MINUTE, requested_key(request)),
        IssuePolicy::IssueNonsense => (Span::DAY, requested_key(request)),
    };
    let from = if life.is_negative() { now - Span::HOUR } else { now };
    let signed = CertificateFixture { from, until: now + life, ..CertificateFixture::client(from) };
    let mut chain = format!("a note\n{}", signed.pem(&key));
    if policy == IssuePolicy::IssueNonsense {
        chain = "nonsense".into();
    }
    let text = |time: time::OffsetDateTime| time.format(&Rfc3339).unwrap();
    request["status"] = match is_pod {
        true => json!({
            "conditions": [condition("Issued")], "certificateChain": chain,
            "notBefore": text(from), "notAfter": text(now + life),
            "beginRefreshAt": text(now + life * 2 / 3),
        }),
        false => json!({
            "conditions": [condition("Approved")],
            "certificate": k8s_openapi::ByteString(chain.into_bytes()),
        }),
    };
}

/// The key that a request is for.
fn requested_key(request: &Value) -> PublicKey {
    let bytes = |field: &str| {
        let value = request["spec"][field].clone();
        let bytes = serde_json::from_value::<k8s_openapi::ByteString>(value).unwrap_or_default();
        Some(bytes.0).filter(|bytes| !bytes.is_empty())
    };
    if let Some(key) = bytes("pkixPublicKey") {
        return PublicKey::from_der(&key).unwrap();
    }
    let read = match bytes("stubPKCS10Request") {
        Some(stub) => CertificateRequest::from_der(&stub),
        None => CertificateRequest::from_pem(&bytes("request").unwrap()),
    };
    read.unwrap().public_key().to_public_key().unwrap()
}

fn verb(method: &Method, path: &str, query: &str) -> &'static str {
    let parts = path.split('/').collect::<Vec<_>>();
    let is_collection = path.ends_with("requests");
    match (method, is_collection) {
        (&Method::POST, _) if path.ends_with("/events") => "event",
        (&Method::POST, _) => "create",
        _ if parts.contains(&"serviceaccounts") => "account",
        _ if parts.contains(&"nodes") => "node",
        _ if parts.len() == 4 => "discover",
        (_, true) if query.contains("watch=") => "watch",
        (_, true) => "list",
        _ => "get",
    }
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// Whether a request is meant: all of the node's, or one by its name.
fn is_selected(query: &str, name: &str) -> bool {
    let selector = parameter(query, "fieldSelector").replace("%3D", "=");
    match selector.strip_prefix("metadata.name=") {
        Some(wanted) => wanted == name,
        None => {
            assert_eq!(selector, "spec.nodeName=n1");
            true
        }
    }
}

fn parameter(query: &str, name: &str) -> String {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned()).unwrap_or_default()
}

fn plain(code: u16, value: &Value) -> HttpAnswer {
    let body = Full::new(Bytes::from(value.to_string())).map_err(|never| match never {});
    Response::builder().status(code).body(body.boxed_unsync()).unwrap()
}

fn failure(code: u16, message: &str) -> HttpAnswer {
    let reason = if code == 409 { "AlreadyExists" } else { "Scripted" };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "code": code, "reason": reason, "message": message,
    });
    plain(code, &status)
}
