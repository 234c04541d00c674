//! A client that writes down everything that it asks for and what comes of it.

use hyper::Method;
use serde_json::{Value, json};

use crate::check::{CONFIG_MAPS, REQUESTS};
use crate::history::{
    Object, Objects, Operation, Outcome, Recorder, Request, Revision, Version, Via,
};
use crate::http::{Answer, Connection, Lost};
use crate::truth::content;
use crate::world::{Addresses, World};

pub struct Client {
    pub number: usize,
    pub via: Via,
    pub addresses: Addresses,
    pub recorder: Recorder,
    connection: Option<Connection>,
}

impl Client {
    pub fn new(world: &World, number: usize, via: Via) -> Self {
        Self {
            number,
            via,
            addresses: world.addresses.clone(),
            recorder: world.recorder.clone(),
            connection: None,
        }
    }

    /// Goes to another server.
    pub fn turn_to(&mut self, via: Via) {
        if via != self.via {
            (self.via, self.connection) = (via, None);
        }
    }

    pub async fn get(&mut self, key: &str, version: Version) -> Outcome {
        self.ask(Request::Get { key: key.to_owned(), version }, &Value::Null).await
    }

    pub async fn list(&mut self, resource: &str, version: Version) -> Outcome {
        self.ask(Request::List { resource: resource.to_owned(), version }, &Value::Null).await
    }

    /// Asks for a change of a config map.
    pub async fn write(&mut self, request: Request) -> Outcome {
        let body = match &request {
            Request::Create { key, content } => json!({
                "metadata": {"name": name(key)},
                "data": {"value": content},
            }),
            Request::Update { key, content, expect } => json!({
                "metadata": {"name": name(key), "resourceVersion": expect.to_string()},
                "data": {"value": content},
            }),
            Request::Patch { content, .. } => json!({"data": {"value": content}}),
            Request::Delete { expect: Some(expect), .. } => {
                json!({"preconditions": {"resourceVersion": expect.to_string()}})
            }
            _ => Value::Null,
        };
        self.ask(request, &body).await
    }

    /// Asks for anything with a body, and writes down what comes of it.
    pub async fn ask(&mut self, request: Request, body: &Value) -> Outcome {
        let start = self.recorder.now();
        let answer = self.exchange(&request, body).await;
        let end = self.recorder.now();
        let outcome = read(&request, answer);
        let (client, via) = (self.number, self.via);
        let operation = Operation { client, via, start, end, request, outcome: outcome.clone() };
        self.recorder.with(|history| history.operations.push(operation));
        outcome
    }

    async fn exchange(&mut self, request: &Request, body: &Value) -> Result<Answer, Lost> {
        let mut connection = match self.connection.take().filter(Connection::is_open) {
            Some(connection) => connection,
            None => {
                let address = self.addresses.of(self.via);
                self.addresses.http.connect(address).await.ok_or(Lost::Unsent)?
            }
        };
        let (method, path, content_type) = line(request);
        let answer = connection.ask(method, &path, content_type, body).await?;
        self.connection = Some(connection);
        Ok(answer)
    }
}

/// Where a resource is.
pub fn collection(resource: &str) -> &'static str {
    match resource {
        CONFIG_MAPS => "/api/v1/namespaces/chaos/configmaps",
        _ => "/apis/certificates.k8s.io/v1/certificatesigningrequests",
    }
}

pub fn name(key: &str) -> &str {
    key.split_once('/').unwrap().1
}

/// The version of an object or a list.
pub fn version(object: &Value) -> Option<Revision> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

/// Method, path and content type of a request.
fn line(request: &Request) -> (Method, String, &'static str) {
    let object = |key: &str| {
        let (resource, name) = key.split_once('/').unwrap();
        format!("{}/{name}", collection(resource))
    };
    let json = "application/json";
    match request {
        Request::Create { key, .. } => {
            let resource = key.split('/').next().unwrap();
            (Method::POST, collection(resource).to_owned(), json)
        }
        // All that is updated of a request is its approval.
        Request::Update { key, .. } if key.starts_with(REQUESTS) => {
            (Method::PUT, format!("{}/approval", object(key)), json)
        }
        Request::Update { key, .. } => (Method::PUT, object(key), json),
        Request::Patch { key, .. } => (Method::PATCH, object(key), "application/merge-patch+json"),
        Request::Delete { key, .. } => (Method::DELETE, object(key), json),
        Request::Get { key, version } => {
            (Method::GET, format!("{}{}", object(key), query(*version)), json)
        }
        Request::List { resource, version } => {
            (Method::GET, format!("{}{}", collection(resource), query(*version)), json)
        }
    }
}

fn query(version: Version) -> String {
    match version {
        Version::Newest => String::new(),
        Version::Any => "?resourceVersion=0".to_owned(),
        Version::NotOlderThan(least) => format!("?resourceVersion={least}"),
        Version::Exact(wanted) => {
            format!("?resourceVersion={wanted}&resourceVersionMatch=Exact")
        }
    }
}

/// What an answer means.
fn read(request: &Request, answer: Result<Answer, Lost>) -> Outcome {
    let answer = match answer {
        Ok(answer) => answer,
        Err(Lost::Unsent) => return Outcome::Refused { code: 0, retry_after: false },
        Err(Lost::Open(why)) => return Outcome::Unknown { code: 0, retry_after: false, why },
    };
    let Answer { status: code, retry_after, body } = answer;
    let object = !matches!(request, Request::List { .. });
    let text = body["message"].as_str().unwrap_or_default();
    match code {
        200 | 201 => done(request, &body).unwrap_or_else(|| Outcome::Unknown {
            code,
            retry_after,
            why: format!("an answer that cannot be read: {body}"),
        }),
        404 if object => Outcome::Absent,
        409 if body["reason"] == "AlreadyExists" => Outcome::Exists,
        409 => Outcome::Conflict,
        503 if text.contains("is not known") => {
            Outcome::Unknown { code, retry_after, why: text.to_owned() }
        }
        500 | 504 if request.writes() => {
            Outcome::Unknown { code, retry_after, why: text.to_owned() }
        }
        // Everything else says that nothing was done, and is held to it.
        _ => Outcome::Refused { code, retry_after },
    }
}

fn done(request: &Request, body: &Value) -> Option<Outcome> {
    Some(match request {
        Request::Create { .. } | Request::Update { .. } | Request::Patch { .. } => {
            Outcome::Written(version(body)?)
        }
        Request::Delete { .. } => Outcome::Deleted,
        Request::Get { key, .. } => {
            let resource = key.split('/').next()?;
            Outcome::Found(Object { version: version(body)?, content: content(resource, body) })
        }
        Request::List { resource, .. } => {
            let objects: Option<Objects> = body["items"]
                .as_array()?
                .iter()
                .map(|item| {
                    let key = format!("{resource}/{}", item["metadata"]["name"].as_str()?);
                    Some((
                        key,
                        Object { version: version(item)?, content: content(resource, item) },
                    ))
                })
                .collect();
            Outcome::Listed { version: version(body)?, objects: objects? }
        }
    })
}
