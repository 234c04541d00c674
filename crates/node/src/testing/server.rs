//! An API server that has requests for certificates only, and does as it is told.

use std::collections::{BTreeMap, VecDeque};
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
use tokio::sync::watch;
use windlass_pki::CertificateRequest;

use crate::csr::CsrObject;

/// What the signer makes of a request.
pub type Signer = Arc<dyn Fn(&CertificateRequest) -> String + Send + Sync>;

type Answer = Response<UnsyncBoxBody<Bytes, kube::Error>>;

#[derive(Clone)]
pub struct ScriptedApi {
    state: Arc<Mutex<ScriptedApiState>>,
    version: watch::Sender<u64>,
}

#[derive(Default)]
struct ScriptedApiState {
    requests: BTreeMap<String, Value>,
    uids: u64,
    version: u64,
    policy: SigningPolicy,
    faults: VecDeque<(&'static str, InjectedFault)>,
    always: Vec<(&'static str, InjectedFault)>,
    calls: Vec<&'static str>,
    callers: Vec<&'static str>,
    created: Vec<Vec<u8>>,
    /// Watches that began before this version end.
    cut: u64,
}

/// What becomes of a new request.
#[derive(Clone, Default)]
pub enum SigningPolicy {
    #[default]
    Wait,
    /// It is approved and waits for a signer.
    Approve,
    Sign(Signer),
    Refuse(&'static str),
}

/// What goes wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// The server answers with this status.
    Status(u16),
    /// The connection breaks before the server has seen the call.
    Cut,
    /// The connection breaks when the server has done it.
    Lost,
    Silence,
}

impl ScriptedApi {
    pub fn new(policy: SigningPolicy) -> Self {
        let state = ScriptedApiState { policy, ..ScriptedApiState::default() };
        Self { state: Arc::new(Mutex::new(state)), version: watch::Sender::new(0) }
    }

    /// A client of this server, as whom the log will call so.
    pub fn client_of(&self, caller: &'static str) -> Client {
        let this = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let this = this.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                this.state.lock().unwrap().callers.push(caller);
                this.answer(&parts.method, parts.uri.path(), parts.uri.query().unwrap_or(""), &body)
                    .await
            }
        });
        Client::new(service, "default")
    }

    pub fn client(&self) -> Client {
        self.client_of("somebody")
    }

    /// What becomes of requests from now on.
    pub fn policy(&self, policy: SigningPolicy) {
        self.state.lock().unwrap().policy = policy;
    }

    /// Breaks the next call of this verb.
    pub fn fault(&self, verb: &'static str, fault: InjectedFault) {
        self.state.lock().unwrap().faults.push_back((verb, fault));
    }

    /// Breaks every call of this verb.
    pub fn always(&self, verb: &'static str, fault: InjectedFault) {
        self.state.lock().unwrap().always.push((verb, fault));
    }

    pub fn heal(&self) {
        let mut state = self.state.lock().unwrap();
        state.always.clear();
        state.faults.clear();
    }

    pub fn cut_watches(&self) {
        self.change(|state| state.cut = state.version + 1);
    }

    pub fn delete(&self, name: &str) {
        self.change(|state| drop(state.requests.remove(name).unwrap()));
    }

    /// Puts a request in the place of one, with the same contents.
    pub fn replace(&self, name: &str) {
        self.change(|state| {
            state.uids += 1;
            let uid = format!("uid-{}", state.uids);
            state.requests.get_mut(name).unwrap()["metadata"]["uid"] = uid.into();
        });
    }

    pub fn edit(&self, name: &str, edit: impl FnOnce(&mut Value)) {
        self.change(|state| edit(state.requests.get_mut(name).unwrap()));
    }

    pub fn decide(&self, policy: &SigningPolicy) {
        self.change(|state| state.requests.values_mut().for_each(|r| apply(r, policy)));
    }

    /// The names of the requests there are.
    pub fn names(&self) -> Vec<String> {
        self.state.lock().unwrap().requests.keys().cloned().collect()
    }

    /// The public keys of the requests that were ever made.
    pub fn created(&self) -> Vec<Vec<u8>> {
        self.state.lock().unwrap().created.clone()
    }

    /// How often a verb was called.
    pub fn calls(&self, verb: &str) -> usize {
        self.state.lock().unwrap().calls.iter().filter(|call| **call == verb).count()
    }

    pub fn callers(&self) -> Vec<&'static str> {
        self.state.lock().unwrap().callers.clone()
    }

    /// Waits until something is true of the server.
    pub async fn until(&self, good: impl Fn(&Self) -> bool) {
        let mut versions = self.version.subscribe();
        while !good(self) {
            versions.changed().await.unwrap();
        }
    }

    fn change(&self, change: impl FnOnce(&mut ScriptedApiState)) {
        let version = {
            let mut state = self.state.lock().unwrap();
            state.version += 1;
            change(&mut state);
            let version = state.version;
            for request in state.requests.values_mut() {
                if request["metadata"]["resourceVersion"].is_null() {
                    request["metadata"]["resourceVersion"] = version.to_string().into();
                }
            }
            version
        };
        self.version.send_replace(version);
    }

    async fn answer(
        &self,
        method: &Method,
        path: &str,
        query: &str,
        body: &Bytes,
    ) -> Result<Answer, kube::Error> {
        let name = path.strip_prefix("/apis/certificates.k8s.io/v1/certificatesigningrequests");
        let name = name.unwrap().trim_start_matches('/');
        let verb = match (method, name) {
            (&Method::POST, _) => "create",
            (_, "") if query.contains("watch=") => "watch",
            (_, "") => "list",
            _ => "get",
        };
        let fault = self.called(verb);
        self.version.send_modify(|_| {});
        match fault {
            Some(InjectedFault::Status(code)) => return Ok(failure(code, reason(code))),
            Some(InjectedFault::Cut) => return Err(broken()),
            Some(InjectedFault::Silence) => std::future::pending().await,
            Some(InjectedFault::Lost) | None => {}
        }
        let answer = match verb {
            "create" => self.create(body),
            "watch" => self.watch(query),
            "list" => self.list(query),
            _ => match self.state.lock().unwrap().requests.get(name) {
                Some(request) => plain(200, request),
                None => failure(404, "NotFound"),
            },
        };
        if fault == Some(InjectedFault::Lost) { Err(broken()) } else { Ok(answer) }
    }

    fn called(&self, verb: &'static str) -> Option<InjectedFault> {
        let mut state = self.state.lock().unwrap();
        state.calls.push(verb);
        if let Some(at) = state.faults.iter().position(|(on, _)| *on == verb) {
            return state.faults.remove(at).map(|(_, fault)| fault);
        }
        state.always.iter().find(|(on, _)| *on == verb).map(|(_, fault)| *fault)
    }

    fn create(&self, body: &Bytes) -> Answer {
        let mut request: Value = serde_json::from_slice(body).unwrap();
        let name = request["metadata"]["name"].as_str().unwrap().to_owned();
        if self.state.lock().unwrap().requests.contains_key(&name) {
            return failure(409, "AlreadyExists");
        }
        self.change(|state| {
            state.uids += 1;
            request["metadata"]["uid"] = format!("uid-{}", state.uids).into();
            apply(&mut request, &state.policy);
            state.created.push(requested_certificate(&request).public_key().as_der().to_vec());
            state.requests.insert(name.clone(), request);
        });
        plain(201, &self.state.lock().unwrap().requests[&name])
    }

    fn list(&self, query: &str) -> Answer {
        let state = self.state.lock().unwrap();
        let items = state.requests.get(&selected(query)).into_iter().collect::<Vec<_>>();
        let list = json!({
            "kind": "CertificateSigningRequestList", "apiVersion": "certificates.k8s.io/v1",
            "metadata": {"resourceVersion": state.version.to_string()}, "items": items,
        });
        plain(200, &list)
    }

    fn watch(&self, query: &str) -> Answer {
        let name = selected(query);
        let state = self.state.lock().unwrap();
        let known = state.requests.get(&name).cloned();
        // Whoever lists and then watches has seen what is there, unless it changed between.
        let since = parameter(query, "resourceVersion").parse::<u64>().unwrap();
        let known = known.filter(|known| version_of(known) <= since);
        let begun = (self.clone(), self.version.subscribe(), name, known, state.version);
        let events = stream::unfold(begun, |(this, mut versions, name, known, begun)| async move {
            loop {
                let now = {
                    let state = this.state.lock().unwrap();
                    if state.cut > begun {
                        return None;
                    }
                    state.requests.get(&name).cloned()
                };
                let uid = |request: &Value| request["metadata"]["uid"].clone();
                let (event, now) = match (&known, now) {
                    (Some(known), Some(now)) if uid(known) != uid(&now) => (deleted(known), None),
                    (Some(known), None) => (deleted(known), None),
                    (known, Some(now)) if known.as_ref() != Some(&now) => {
                        (json!({"type": "MODIFIED", "object": now}), Some(now))
                    }
                    _ => {
                        versions.changed().await.ok()?;
                        continue;
                    }
                };
                let line = Bytes::from(format!("{event}\n"));
                let frame = Ok::<_, kube::Error>(Frame::data(line));
                return Some((frame, (this, versions, name, now, begun)));
            }
        });
        Response::new(StreamBody::new(events).boxed_unsync())
    }
}

fn deleted(request: &Value) -> Value {
    json!({"type": "DELETED", "object": request})
}

fn version_of(request: &Value) -> u64 {
    request["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

fn requested_certificate(request: &Value) -> CertificateRequest {
    let typed: CsrObject = serde_json::from_value(request.clone()).unwrap();
    CertificateRequest::from_pem(&typed.spec.request.0).unwrap()
}

/// Does what a policy says to a request. Its version is given anew.
fn apply(request: &mut Value, policy: &SigningPolicy) {
    let condition = |kind: &str| json!([{"type": kind, "status": "True", "reason": "Because", "message": "of the script"}]);
    match policy {
        SigningPolicy::Wait => return,
        SigningPolicy::Approve => request["status"] = json!({"conditions": condition("Approved")}),
        SigningPolicy::Refuse(kind) => request["status"] = json!({"conditions": condition(kind)}),
        SigningPolicy::Sign(signer) => {
            let certificate =
                k8s_openapi::ByteString(signer(&requested_certificate(request)).into_bytes());
            request["status"] =
                json!({"conditions": condition("Approved"), "certificate": certificate});
        }
    }
    request["metadata"]["resourceVersion"] = Value::Null;
}

fn plain(code: u16, value: &Value) -> Answer {
    let body = Full::new(Bytes::from(value.to_string())).map_err(|never| match never {});
    Response::builder().status(code).body(body.boxed_unsync()).unwrap()
}

fn failure(code: u16, reason: &str) -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "code": code, "reason": reason, "message": format!("scripted {code}"),
    });
    plain(code, &status)
}

fn reason(code: u16) -> &'static str {
    match code {
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        410 => "Expired",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        _ => "InternalError",
    }
}

fn broken() -> kube::Error {
    kube::Error::Service("connection reset by the script".into())
}

fn selected(query: &str) -> String {
    let selector = parameter(query, "fieldSelector").replace("%3D", "=");
    selector.strip_prefix("metadata.name=").unwrap().to_owned()
}

fn parameter(query: &str, name: &str) -> String {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned()).unwrap_or_default()
}
