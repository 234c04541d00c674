//! The event itself, as one line of JSON.

use std::borrow::Cow;
use std::collections::BTreeMap;

use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, Method, Response};
use serde::{Deserialize, Serialize};
use windlass_api::status::{Details, Status};
use windlass_api::timestamp;

use super::{Ending, Open, Record, sources, uri};
use crate::body::Body;
use crate::chain::authz::Decision;
use crate::limits;
use crate::request::info::{ResourcePath, Target};
use crate::user::User;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Event<'a> {
    kind: &'static str,
    api_version: &'static str,
    level: &'static str,
    #[serde(rename = "auditID")]
    audit_id: Cow<'a, str>,
    stage: &'static str,
    #[serde(rename = "requestURI")]
    request_uri: String,
    verb: Cow<'static, str>,
    user: UserInfo<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    impersonated_user: Option<UserInfo<'a>>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "Vec::is_empty")]
    source_ips: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    user_agent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    object_ref: Option<ObjectReference<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_status: Option<ResponseStatus<'a>>,
    request_received_timestamp: String,
    stage_timestamp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<Annotations<'a>>,
}

#[derive(Default, Serialize)]
struct UserInfo<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    username: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    groups: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    extra: Option<&'a BTreeMap<String, Vec<String>>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectReference<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    api_group: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    api_version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    subresource: &'a str,
}

#[derive(Default, Serialize)]
struct ResponseStatus<'a> {
    metadata: Empty,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a Details>,
    code: u16,
}

#[derive(Default, Serialize)]
struct Empty {}

#[derive(Serialize)]
struct Annotations<'a> {
    #[serde(rename = "authorization.k8s.io/decision", skip_serializing_if = "Option::is_none")]
    decision: Option<&'static str>,
    #[serde(rename = "authorization.k8s.io/reason", skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    /// Events of callers without a credential that the limit left out before this one.
    #[serde(
        rename = "audit.windlass.dev/suppressed-events",
        skip_serializing_if = "Option::is_none"
    )]
    suppressed: Option<String>,
}

/// Which event of a request it is.
#[derive(Clone, Copy)]
pub(super) enum Stage {
    /// Before it had any effect.
    RequestReceived,
    /// When it is known how it ended, and how many events were left out before.
    End(u64),
}

/// What an event tells of the object in an answer: names, never content.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Answer {
    kind: String,
    metadata: AnswerMeta,
    /// Only a `Status` has one that is a word.
    #[serde(deserialize_with = "word")]
    status: Option<String>,
    details: Option<Details>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AnswerMeta {
    name: String,
}

impl Answer {
    /// Reads the answer where the event needs it: a new object may get its name from its body, and
    /// a deletion is answered with a `Status`.
    pub fn read(method: &Method, response: &Response<Body>) -> Answer {
        let json = response.headers().get(CONTENT_TYPE).is_some_and(|t| t == "application/json");
        let Body::Full(body) = response.body() else { return Answer::default() };
        let is_read = json
            && matches!(*method, Method::POST | Method::DELETE)
            && body.bytes().len() <= limits::AUDIT_ANSWER;
        if !is_read {
            return Answer::default();
        }
        serde_json::from_slice(body.bytes()).unwrap_or_default()
    }
}

/// A text; anything else is read as nothing.
fn word<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Word(String),
        Other(serde::de::IgnoredAny),
    }
    Ok(match Either::deserialize(from)? {
        Either::Word(word) => Some(word),
        Either::Other(_) => None,
    })
}

/// The event of a request as a line of JSON.
pub(super) fn line(record: &Record<'_>, open: &Open<'_>, stage: Stage) -> Vec<u8> {
    let parts = open.parts;
    let suppressed = match stage {
        Stage::RequestReceived | Stage::End(0) => None,
        Stage::End(number) => Some(number.to_string()),
    };
    let path = match record.info.as_ref().map(|info| &info.target) {
        Some(Target::Resource(path)) => Some(path),
        Some(Target::Path) | None => None,
    };
    let event = Event {
        kind: "Event",
        api_version: "audit.k8s.io/v1",
        level: "Metadata",
        audit_id: String::from_utf8_lossy(open.id.as_bytes()),
        stage: match stage {
            Stage::RequestReceived => "RequestReceived",
            Stage::End(_) => end_stage(&open.ending),
        },
        request_uri: uri::shown(&parts.uri),
        verb: match &record.info {
            Some(info) => info.verb.into(),
            None => parts.method.as_str().to_ascii_lowercase().into(),
        },
        user: record.user.as_deref().map(UserInfo::of).unwrap_or_default(),
        impersonated_user: record.impersonated.as_deref().map(UserInfo::of),
        source_ips: sources::of(open.peer, &parts.headers),
        user_agent: user_agent(&parts.headers),
        object_ref: path.map(|path| reference(path, &open.ending)),
        response_status: match stage {
            Stage::RequestReceived => None,
            Stage::End(_) => Some(response_status(path, &open.ending)),
        },
        request_received_timestamp: timestamp::format_micro(open.received),
        stage_timestamp: timestamp::format_micro((open.clock)()),
        annotations: annotations(record.decision.as_ref(), suppressed),
    };
    let mut line = Vec::with_capacity(1024);
    // Nothing in an event cannot be written, and memory does not fail.
    let _ = serde_json::to_writer(&mut line, &event);
    line.push(b'\n');
    line
}

impl UserInfo<'_> {
    fn of(user: &User) -> UserInfo<'_> {
        UserInfo {
            username: &user.name,
            uid: &user.uid,
            groups: &user.groups,
            extra: Some(&user.extra).filter(|extra| !extra.is_empty()),
        }
    }
}

fn annotations(decision: Option<&Decision>, suppressed: Option<String>) -> Option<Annotations<'_>> {
    if decision.is_none() && suppressed.is_none() {
        return None;
    }
    Some(Annotations {
        decision: decision.map(|it| if it.is_allow() { "allow" } else { "forbid" }),
        reason: decision.map(Decision::reason),
        suppressed,
    })
}

fn end_stage(ending: &Ending) -> &'static str {
    match ending {
        Ending::Answered { watch: true, .. } => "ResponseStarted",
        Ending::Answered { .. } | Ending::Failed(_) | Ending::Left => "ResponseComplete",
        Ending::Panicked => "Panic",
    }
}

fn reference<'a>(path: &'a ResourcePath, ending: &'a Ending) -> ObjectReference<'a> {
    let from_answer = match ending {
        Ending::Answered { answer, .. } if answer.kind != "Status" => answer.metadata.name.as_str(),
        Ending::Failed(status) if repeats_secrets(path, status) => "",
        Ending::Failed(Status { details: Some(details), .. }) => details.name.as_str(),
        Ending::Answered { .. } | Ending::Failed(_) | Ending::Panicked | Ending::Left => "",
    };
    ObjectReference {
        resource: &path.resource,
        namespace: &path.namespace,
        name: if path.name.is_empty() { from_answer } else { &path.name },
        api_group: &path.group,
        api_version: &path.version,
        subresource: &path.subresource,
    }
}

/// Who closed the connection is told nothing; nginx's code for it is the one that people know.
const CLIENT_LEFT: u16 = 499;

fn response_status<'a>(path: Option<&ResourcePath>, ending: &'a Ending) -> ResponseStatus<'a> {
    let none = ResponseStatus::default();
    match ending {
        Ending::Answered { code, answer, .. } if answer.kind == "Status" => ResponseStatus {
            status: answer.status.as_deref(),
            details: answer.details.as_ref(),
            code: *code,
            ..none
        },
        Ending::Answered { code, .. } => ResponseStatus { code: *code, ..none },
        Ending::Failed(status) => failure(path, status),
        Ending::Panicked => ResponseStatus {
            status: Some("Failure"),
            message: "APIServer panic'd",
            reason: "InternalError",
            code: 500,
            ..none
        },
        Ending::Left => ResponseStatus {
            status: Some("Failure"),
            message: "Connection closed early",
            code: CLIENT_LEFT,
            ..none
        },
    }
}

fn failure<'a>(path: Option<&ResourcePath>, status: &'a Status) -> ResponseStatus<'a> {
    let hidden = path.is_some_and(|path| repeats_secrets(path, status));
    ResponseStatus {
        metadata: Empty {},
        status: status.status.as_deref(),
        message: if hidden { "" } else { &status.message },
        reason: &status.reason,
        details: status.details.as_ref().filter(|_| !hidden),
        code: status.code.unwrap_or_default(),
    }
}

/// Whether a failure may repeat what only its client should know: what is said of a body that is
/// wrong quotes it.
fn repeats_secrets(path: &ResourcePath, status: &Status) -> bool {
    let secret = matches!(
        (path.resource.as_str(), path.subresource.as_str()),
        ("secrets" | "tokenreviews", _) | (_, "token")
    );
    secret && matches!(status.code, Some(400 | 413 | 422 | 500))
}

fn user_agent(headers: &HeaderMap) -> String {
    let Some(given) = headers.get(USER_AGENT).map(|value| value.as_bytes()) else {
        return String::new();
    };
    let kept = given.get(..limits::AUDIT_USER_AGENT).unwrap_or(given);
    let mut text = String::from_utf8_lossy(kept).into_owned();
    if kept.len() < given.len() {
        text.push_str("...TRUNCATED");
    }
    text
}
