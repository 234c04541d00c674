//! A client that records its requests and their outcomes.

use hyper::Method;
use serde_json::{Value, json};
use windlass_testkit::HttpConnection;

use crate::canonical::content;
use crate::check::{CONFIG_MAPS, REQUESTS};
use crate::history::{
    HistoryRecorder, ListedObject, Objects, OperationOutcome, OperationRequest, ReadVersion,
    RecordedOperation, RequestRoute, Revision,
};
use crate::http::{self, JsonResponse, RequestFailure};
use crate::test_cluster::{ChaosCluster, ServerAddresses};

pub struct RecordingClient {
    pub number: usize,
    pub via: RequestRoute,
    pub addresses: ServerAddresses,
    pub recorder: HistoryRecorder,
    connection: Option<HttpConnection>,
}

impl RecordingClient {
    pub fn new(world: &ChaosCluster, number: usize, via: RequestRoute) -> Self {
        Self {
            number,
            via,
            addresses: world.addresses.clone(),
            recorder: world.recorder.clone(),
            connection: None,
        }
    }

    /// Sends later requests to another server or to the balancer.
    pub fn switch_route(&mut self, via: RequestRoute) {
        if via != self.via {
            (self.via, self.connection) = (via, None);
        }
    }

    pub async fn get(&mut self, key: &str, version: ReadVersion) -> OperationOutcome {
        self.request(OperationRequest::Get { key: key.to_owned(), version }, &Value::Null).await
    }

    pub async fn list(&mut self, resource: &str, version: ReadVersion) -> OperationOutcome {
        self.request(OperationRequest::List { resource: resource.to_owned(), version }, &Value::Null).await
    }

    /// Requests a change of a config map.
    pub async fn write(&mut self, request: OperationRequest) -> OperationOutcome {
        let body = match &request {
            OperationRequest::Create { key, content } => json!({
                "metadata": {"name": name(key)},
                "data": {"value": content},
            }),
            OperationRequest::Update { key, content, expect } => json!({
                "metadata": {"name": name(key), "resourceVersion": expect.to_string()},
                "data": {"value": content},
            }),
            OperationRequest::Patch { content, .. } => json!({"data": {"value": content}}),
            OperationRequest::Delete { expect: Some(expect), .. } => {
                json!({"preconditions": {"resourceVersion": expect.to_string()}})
            }
            _ => Value::Null,
        };
        self.request(request, &body).await
    }

    /// Sends a request with a body, and records its outcome.
    pub async fn request(&mut self, request: OperationRequest, body: &Value) -> OperationOutcome {
        let start = self.recorder.now();
        let answer = self.exchange(&request, body).await;
        let end = self.recorder.now();
        let outcome = read(&request, answer);
        let (client, via) = (self.number, self.via);
        let operation = RecordedOperation { client, via, start, end, request, outcome: outcome.clone() };
        self.recorder.with(|history| history.operations.push(operation));
        outcome
    }

    async fn exchange(
        &mut self,
        request: &OperationRequest,
        body: &Value,
    ) -> Result<JsonResponse, RequestFailure> {
        let mut connection = match self.connection.take().filter(HttpConnection::is_open) {
            Some(connection) => connection,
            None => {
                let address = self.addresses.for_route(self.via);
                let made = http::connect(&self.addresses.http, address).await;
                made.ok_or(RequestFailure::Unsent)?
            }
        };
        let (method, path, content_type) = line(request);
        let answer = http::send(&mut connection, method, &path, content_type, body).await?;
        self.connection = Some(connection);
        Ok(answer)
    }
}

/// API path of the collection of a resource.
pub fn collection(resource: &str) -> &'static str {
    match resource {
        CONFIG_MAPS => "/api/v1/namespaces/chaos/configmaps",
        _ => "/apis/certificates.k8s.io/v1/certificatesigningrequests",
    }
}

pub fn name(key: &str) -> &str {
    key.split_once('/').unwrap().1
}

/// Returns the version of an object or a list.
pub fn version(object: &Value) -> Option<Revision> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

/// Method, path and content type of a request.
fn line(request: &OperationRequest) -> (Method, String, &'static str) {
    let object = |key: &str| {
        let (resource, name) = key.split_once('/').unwrap();
        format!("{}/{name}", collection(resource))
    };
    let json = "application/json";
    match request {
        OperationRequest::Create { key, .. } => {
            let resource = key.split('/').next().unwrap();
            (Method::POST, collection(resource).to_owned(), json)
        }
        // The only update of a certificate signing request is its approval.
        OperationRequest::Update { key, .. } if key.starts_with(REQUESTS) => {
            (Method::PUT, format!("{}/approval", object(key)), json)
        }
        OperationRequest::Update { key, .. } => (Method::PUT, object(key), json),
        OperationRequest::Patch { key, .. } => (Method::PATCH, object(key), "application/merge-patch+json"),
        OperationRequest::Delete { key, .. } => (Method::DELETE, object(key), json),
        OperationRequest::Get { key, version } => {
            (Method::GET, format!("{}{}", object(key), query(*version)), json)
        }
        OperationRequest::List { resource, version } => {
            (Method::GET, format!("{}{}", collection(resource), query(*version)), json)
        }
    }
}

fn query(version: ReadVersion) -> String {
    match version {
        ReadVersion::Newest => String::new(),
        ReadVersion::Any => "?resourceVersion=0".to_owned(),
        ReadVersion::NotOlderThan(least) => format!("?resourceVersion={least}"),
        ReadVersion::Exact(wanted) => {
            format!("?resourceVersion={wanted}&resourceVersionMatch=Exact")
        }
    }
}

/// Classifies a response; one lost after sending may have taken effect.
fn read(request: &OperationRequest, answer: Result<JsonResponse, RequestFailure>) -> OperationOutcome {
    let answer = match answer {
        Ok(answer) => answer,
        Err(RequestFailure::Unsent) => {
            return OperationOutcome::Refused { code: 0, retry_after: false };
        }
        Err(RequestFailure::Open(why)) => {
            return OperationOutcome::Unknown { code: 0, retry_after: false, why };
        }
    };
    let JsonResponse { status: code, retry_after, body } = answer;
    let object = !matches!(request, OperationRequest::List { .. });
    let text = body["message"].as_str().unwrap_or_default();
    match code {
        200 | 201 => done(request, &body).unwrap_or_else(|| OperationOutcome::Unknown {
            code,
            retry_after,
            why: format!("an answer that cannot be read: {body}"),
        }),
        404 if object => OperationOutcome::Absent,
        409 if body["reason"] == "AlreadyExists" => OperationOutcome::Exists,
        409 => OperationOutcome::Conflict,
        503 if text.contains("may or may not have been applied") => {
            OperationOutcome::Unknown { code, retry_after, why: text.to_owned() }
        }
        500 | 504 if request.writes() => {
            OperationOutcome::Unknown { code, retry_after, why: text.to_owned() }
        }
        // All other statuses mean that nothing was changed, which the checker verifies.
        _ => OperationOutcome::Refused { code, retry_after },
    }
}

fn done(request: &OperationRequest, body: &Value) -> Option<OperationOutcome> {
    Some(match request {
        OperationRequest::Create { .. }
        | OperationRequest::Update { .. }
        | OperationRequest::Patch { .. } => OperationOutcome::Written(version(body)?),
        OperationRequest::Delete { .. } => OperationOutcome::Deleted,
        OperationRequest::Get { key, .. } => {
            let resource = key.split('/').next()?;
            OperationOutcome::Found(ListedObject {
                version: version(body)?,
                content: content(resource, body),
            })
        }
        OperationRequest::List { resource, .. } => {
            let objects: Option<Objects> = body["items"]
                .as_array()?
                .iter()
                .map(|item| {
                    let key = format!("{resource}/{}", item["metadata"]["name"].as_str()?);
                    Some((key, ListedObject { version: version(item)?, content: content(resource, item) }))
                })
                .collect();
            OperationOutcome::Listed { version: version(body)?, objects: objects? }
        }
    })
}
