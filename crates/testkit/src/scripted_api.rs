//! An API server of CertificateSigningRequests and PodCertificateRequests that decides, answers and fails as a test
//! tells it to, in virtual time.

mod issuance;

use std::borrow::Borrow;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::{Method, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

pub use issuance::{Signer, SigningPolicy};

type HttpAnswer = Response<UnsyncBoxBody<Bytes, kube::Error>>;

/// A request to a scripted server.
#[derive(Debug, Clone)]
pub struct ApiCall {
    /// The HTTP method of the call.
    pub method: Method,
    /// The path without its query.
    pub path: String,
    /// The query, empty if there is none.
    pub query: String,
    /// The body as JSON, null if there is none.
    pub body: Value,
}

/// A client whose server is a function: it returns a status code and the JSON of the response.
pub fn scripted_client<F, R>(answer: F) -> Client
where
    F: Fn(ApiCall) -> R + Send + Sync + 'static,
    R: Future<Output = (u16, Value)> + Send,
{
    let answer = Arc::new(answer);
    client_of_service(move |call| {
        let answer = answer.clone();
        async move {
            let (code, value) = answer(call).await;
            Ok(respond(code, &value))
        }
    })
}

fn client_of_service<F, R>(answer: F) -> Client
where
    F: Fn(ApiCall) -> R + Clone + Send + 'static,
    R: Future<Output = Result<HttpAnswer, kube::Error>> + Send,
{
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let answer = answer.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            let query = parts.uri.query().unwrap_or_default().to_owned();
            let path = parts.uri.path().to_owned();
            answer(ApiCall { method: parts.method, path, query, body }).await
        }
    });
    Client::new(service, "default")
}

/// What goes wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// The server responds with this status.
    Status(u16),
    /// The connection breaks before the server has seen the call.
    Cut,
    /// The connection breaks when the server has done it.
    Lost,
    /// The server never responds.
    Silence,
}

/// The server. Its verbs are `create`, `get`, `list`, `watch`, `discover`, `event`, `account` and `node`.
#[derive(Clone)]
pub struct ScriptedApi {
    state: Arc<Mutex<ScriptedApiState>>,
    /// The newest resource version, sent also when a call arrives.
    version: watch::Sender<u64>,
    began: Instant,
}

struct ScriptedApiState {
    requests: BTreeMap<String, Value>,
    /// All events of all watches, with the resource version of each.
    log: Vec<(u64, Value)>,
    uids: u64,
    policy: SigningPolicy,
    served: Option<&'static str>,
    knows_stubs: bool,
    latency: Duration,
    faults: VecDeque<(&'static str, InjectedFault)>,
    always: Vec<(&'static str, InjectedFault)>,
    calls: Vec<(&'static str, Instant)>,
    callers: Vec<&'static str>,
    /// Creations under way, and the most that ever were.
    creating: (usize, usize),
    created: Vec<Value>,
    events: Vec<Value>,
    /// How often all watches were ended.
    cuts: u64,
}

impl ScriptedApi {
    /// A server that decides new requests by a policy. PodCertificateRequests are served as v1beta1.
    pub fn new(policy: SigningPolicy) -> Self {
        let state = ScriptedApiState {
            requests: BTreeMap::new(),
            log: Vec::new(),
            uids: 0,
            policy,
            served: Some("v1beta1"),
            knows_stubs: true,
            latency: Duration::ZERO,
            faults: VecDeque::new(),
            always: Vec::new(),
            calls: Vec::new(),
            callers: Vec::new(),
            creating: (0, 0),
            created: Vec::new(),
            events: Vec::new(),
            cuts: 0,
        };
        let (state, version) = (Arc::new(Mutex::new(state)), watch::Sender::new(1));
        Self { state, version, began: Instant::now() }
    }

    /// Delays the response to every creation, so that several are under way at once.
    pub fn with_latency(self, latency: Duration) -> Self {
        self.state.lock().unwrap().latency = latency;
        self
    }

    /// When the server's time began: it is then [`crate::START`].
    pub fn began(&self) -> Instant {
        self.began
    }

    /// A client whose calls are recorded under a name.
    pub fn client_of(&self, caller: &'static str) -> Client {
        let this = self.clone();
        client_of_service(move |call| {
            let this = this.clone();
            async move {
                this.state.lock().unwrap().callers.push(caller);
                this.answer(&call).await
            }
        })
    }

    /// A client whose name does not matter.
    pub fn client(&self) -> Client {
        self.client_of("somebody")
    }

    /// Decides requests that are created from now on.
    pub fn policy(&self, policy: SigningPolicy) {
        self.state.lock().unwrap().policy = policy;
    }

    /// Sets the version in which PodCertificateRequests are served, if they are.
    pub fn serve(&self, version: Option<&'static str>) {
        self.state.lock().unwrap().served = version;
    }

    /// Behaves as Kubernetes 1.35, which has no field for a stub CSR.
    pub fn forget_stubs(&self) {
        self.state.lock().unwrap().knows_stubs = false;
    }

    /// Breaks the next call of a verb.
    pub fn fault(&self, verb: &'static str, fault: InjectedFault) {
        self.state.lock().unwrap().faults.push_back((verb, fault));
    }

    /// Breaks every call of a verb until [`ScriptedApi::heal`].
    pub fn always(&self, verb: &'static str, fault: InjectedFault) {
        self.state.lock().unwrap().always.push((verb, fault));
    }

    /// Ends all injected faults.
    pub fn heal(&self) {
        let mut state = self.state.lock().unwrap();
        state.always.clear();
        state.faults.clear();
    }

    /// Ends all open watches.
    pub fn cut_watches(&self) {
        self.change(|state, _| state.cuts += 1);
    }

    /// Deletes a request that exists.
    pub fn delete(&self, name: &str) {
        self.change(|state, version| {
            let gone = state.requests.remove(name).unwrap();
            state.log.push((version, json!({"type": "DELETED", "object": gone})));
        });
    }

    /// Deletes all requests, one after the other.
    pub fn delete_all(&self) {
        self.names().iter().for_each(|name| self.delete(name));
    }

    /// Replaces a request by another one of the same name and contents.
    pub fn replace(&self, name: &str) {
        let mut request = self.state.lock().unwrap().requests[name].clone();
        self.delete(name);
        self.change(|state, version| {
            state.stamp(&mut request, version);
            state.insert(request, version);
        });
    }

    /// Changes a request that exists, and its resource version.
    pub fn edit(&self, name: &str, edit: impl FnOnce(&mut Value)) {
        self.change(|state, version| {
            let request = state.requests.get_mut(name).unwrap();
            edit(request);
            request["metadata"]["resourceVersion"] = version.to_string().into();
            state.log.push((version, json!({"type": "MODIFIED", "object": request})));
        });
    }

    /// Decides all existing requests.
    pub fn decide(&self, policy: impl Borrow<SigningPolicy>) {
        for name in self.names() {
            self.edit(&name, |request| policy.borrow().apply(request, self.began));
        }
    }

    /// Names of the existing requests.
    pub fn names(&self) -> Vec<String> {
        self.state.lock().unwrap().requests.keys().cloned().collect()
    }

    /// Every request that was ever created, before it was decided.
    pub fn created(&self) -> Vec<Value> {
        self.state.lock().unwrap().created.clone()
    }

    /// Public keys of every request that was ever created, in DER.
    pub fn created_keys(&self) -> Vec<Vec<u8>> {
        let created = self.created();
        created.iter().map(|request| issuance::requested_key(request).as_der().to_vec()).collect()
    }

    /// Every Event object that was created.
    pub fn events(&self) -> Vec<Value> {
        self.state.lock().unwrap().events.clone()
    }

    /// How often a verb was called.
    pub fn calls(&self, verb: &str) -> usize {
        self.call_times(verb).len()
    }

    /// When calls of a verb arrived.
    pub fn call_times(&self, verb: &str) -> Vec<Instant> {
        let state = self.state.lock().unwrap();
        state.calls.iter().filter(|(called, _)| *called == verb).map(|(_, at)| *at).collect()
    }

    /// The client of every call, in the order of their arrival.
    pub fn callers(&self) -> Vec<&'static str> {
        self.state.lock().unwrap().callers.clone()
    }

    /// The most creations that were under way at the same time.
    pub fn most_at_once(&self) -> usize {
        self.state.lock().unwrap().creating.1
    }

    /// Waits until something is true of the server; panics after forty days of virtual time.
    pub async fn until(&self, good: impl Fn(&Self) -> bool) {
        let mut versions = self.version.subscribe();
        let waiting = async {
            while !good(self) {
                versions.changed().await.unwrap();
            }
        };
        let patience = Duration::from_secs(40 * 86_400);
        tokio::time::timeout(patience, waiting).await.expect("the server to be as expected");
    }

    fn change(&self, change: impl FnOnce(&mut ScriptedApiState, u64)) {
        let mut state = self.state.lock().unwrap();
        let version = *self.version.borrow() + 1;
        change(&mut state, version);
        drop(state);
        self.version.send_replace(version);
    }

    async fn answer(&self, call: &ApiCall) -> Result<HttpAnswer, kube::Error> {
        let verb = verb(call);
        let fault = self.state.lock().unwrap().record_call(verb);
        self.version.send_modify(|_| {});
        match fault {
            Some(InjectedFault::Status(code)) => {
                return Ok(failure(code, &format!("scripted {code}")));
            }
            Some(InjectedFault::Cut) => return Err(connection_reset()),
            Some(InjectedFault::Silence) => std::future::pending().await,
            Some(InjectedFault::Lost) | None => {}
        }
        let answer = match verb {
            "discover" => self.discover(&call.path),
            "account" | "node" => respond(200, &json!({"metadata": {"name": "x", "uid": verb}})),
            "event" => {
                self.change(|state, _| state.events.push(call.body.clone()));
                respond(201, &call.body)
            }
            "create" => self.create(call).await,
            "watch" if call.query.contains("sendInitialEvents") => {
                failure(422, "streaming lists are not supported")
            }
            "watch" => self.watch(&call.query),
            "list" => self.list(&call.query),
            _ => match self.state.lock().unwrap().requests.get(last_segment(&call.path)) {
                Some(request) => respond(200, request),
                None => failure(404, "not found"),
            },
        };
        if fault == Some(InjectedFault::Lost) { Err(connection_reset()) } else { Ok(answer) }
    }

    fn discover(&self, path: &str) -> HttpAnswer {
        if self.state.lock().unwrap().served != Some(last_segment(path)) {
            return failure(404, "not found");
        }
        let resource = json!({
            "name": "podcertificaterequests", "singularName": "", "namespaced": true,
            "kind": "PodCertificateRequest", "verbs": [],
        });
        let version = format!("certificates.k8s.io/{}", last_segment(path));
        respond(200, &json!({"groupVersion": version, "resources": [resource]}))
    }

    async fn create(&self, call: &ApiCall) -> HttpAnswer {
        let (mut request, version) = (call.body.clone(), call.path.split('/').nth(3));
        let latency = {
            let mut state = self.state.lock().unwrap();
            if let Some(refused) = state.reject_new(&request, version, last_segment(&call.path)) {
                return refused;
            }
            state.creating.0 += 1;
            state.creating.1 = state.creating.1.max(state.creating.0);
            state.latency
        };
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        request["apiVersion"] = format!("certificates.k8s.io/{}", version.unwrap_or("")).into();
        self.change(|state, number| {
            state.creating.0 -= 1;
            state.stamp(&mut request, number);
            state.created.push(request.clone());
            let mut decided = request.clone();
            state.policy.clone().apply(&mut decided, self.began);
            state.insert(decided, number);
        });
        respond(201, &request)
    }

    fn list(&self, query: &str) -> HttpAnswer {
        let state = self.state.lock().unwrap();
        let items = state.requests.iter().filter(|(name, _)| is_selected(query, name));
        let items = items.map(|(_, request)| request).collect::<Vec<_>>();
        let version = self.version.borrow().to_string();
        let list = json!({
            "kind": "List", "apiVersion": "v1",
            "metadata": {"resourceVersion": version}, "items": items,
        });
        respond(200, &list)
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

impl ScriptedApiState {
    fn record_call(&mut self, verb: &'static str) -> Option<InjectedFault> {
        self.calls.push((verb, Instant::now()));
        if let Some(at) = self.faults.iter().position(|(on, _)| *on == verb) {
            return self.faults.remove(at).map(|(_, fault)| fault);
        }
        self.always.iter().find(|(on, _)| *on == verb).map(|(_, fault)| *fault)
    }

    /// Returns the answer that rejects a new object, if it is rejected.
    fn reject_new(&self, request: &Value, version: Option<&str>, plural: &str) -> Option<HttpAnswer> {
        let is_pod = plural == "podcertificaterequests";
        if is_pod && self.served != version {
            return Some(failure(404, "the server could not find the requested resource"));
        }
        if self.requests.contains_key(request["metadata"]["name"].as_str().unwrap()) {
            return Some(failure(409, "AlreadyExists"));
        }
        if is_pod && !self.knows_stubs && request["spec"]["pkixPublicKey"].is_null() {
            let why = "spec.pkixPublicKey: Invalid value: \"\": must be valid";
            return Some(failure(422, why));
        }
        None
    }

    /// Gives a new object its UID and resource version.
    fn stamp(&mut self, request: &mut Value, version: u64) {
        self.uids += 1;
        request["metadata"]["uid"] = format!("uid-{}", self.uids).into();
        request["metadata"]["resourceVersion"] = version.to_string().into();
    }

    fn insert(&mut self, request: Value, version: u64) {
        self.log.push((version, json!({"type": "ADDED", "object": request})));
        let name = request["metadata"]["name"].as_str().unwrap().to_owned();
        self.requests.insert(name, request);
    }
}

fn verb(call: &ApiCall) -> &'static str {
    let parts = call.path.split('/').collect::<Vec<_>>();
    let is_collection = call.path.ends_with("requests");
    match (&call.method, is_collection) {
        (&Method::POST, _) if call.path.ends_with("/events") => "event",
        (&Method::POST, _) => "create",
        _ if parts.contains(&"serviceaccounts") => "account",
        _ if parts.contains(&"nodes") => "node",
        _ if parts.len() == 4 => "discover",
        (_, true) if call.query.contains("watch=") => "watch",
        (_, true) => "list",
        _ => "get",
    }
}

fn last_segment(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// Whether a request is selected: all of the node's, or one by its name.
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

fn respond(code: u16, value: &Value) -> HttpAnswer {
    let body = Full::new(Bytes::from(value.to_string())).map_err(|never| match never {});
    Response::builder().status(code).body(body.boxed_unsync()).unwrap()
}

fn failure(code: u16, message: &str) -> HttpAnswer {
    let reason = match code {
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "AlreadyExists",
        410 => "Expired",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        _ => "InternalError",
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "code": code, "reason": reason, "message": message,
    });
    respond(code, &status)
}

fn connection_reset() -> kube::Error {
    kube::Error::Service("connection reset by the script".into())
}
