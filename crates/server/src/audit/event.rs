//! Audit events, encoded as one line of JSON.

use std::borrow::Cow;
use std::collections::BTreeMap;

use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, Method, Response};
use serde::{Deserialize, Serialize};
use windlass_api::status::{Status, StatusDetails};
use windlass_api::timestamp;

use super::{AuditRecord, OpenAuditRecord, RequestOutcome, source_ips, uri};
use crate::body::ResponseBody;
use crate::chain::authz::Decision;
use crate::limits;
use crate::request::info::{RequestTarget, ResourcePath};
use crate::user::User;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AuditEvent<'a> {
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
    annotations: Option<AuditAnnotations<'a>>,
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
    metadata: EmptyMetadata,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a StatusDetails>,
    code: u16,
}

#[derive(Default, Serialize)]
struct EmptyMetadata {}

#[derive(Serialize)]
struct AuditAnnotations<'a> {
    #[serde(rename = "authorization.k8s.io/decision", skip_serializing_if = "Option::is_none")]
    decision: Option<&'static str>,
    #[serde(rename = "authorization.k8s.io/reason", skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    /// Number of unauthenticated callers' events that the rate limit suppressed before this one.
    #[serde(rename = "audit.windlass.dev/suppressed-events", skip_serializing_if = "Option::is_none")]
    suppressed: Option<String>,
}

/// Stage of a request that the event records.
#[derive(Clone, Copy)]
pub(super) enum AuditStage {
    /// Before the request had any effect.
    RequestReceived,
    /// After the request; carries the number of events suppressed before it.
    End(u64),
}

/// Audited parts of the object in a response: names, never content.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ResponseSummary {
    kind: String,
    metadata: ResponseSummaryMeta,
    /// Only a `Status` object has a string here.
    #[serde(deserialize_with = "word")]
    status: Option<String>,
    details: Option<StatusDetails>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResponseSummaryMeta {
    name: String,
}

impl ResponseSummary {
    /// Decodes the response where the event needs it: the body may contain a generated name, and a
    /// deletion may return a `Status`.
    pub(super) fn from_response(method: &Method, response: &Response<ResponseBody>) -> ResponseSummary {
        let json = response.headers().get(CONTENT_TYPE).is_some_and(|t| t == "application/json");
        let ResponseBody::Full(body) = response.body() else { return ResponseSummary::default() };
        let is_read = json
            && matches!(*method, Method::POST | Method::DELETE)
            && body.bytes().len() <= limits::AUDIT_ANSWER;
        if !is_read {
            return ResponseSummary::default();
        }
        serde_json::from_slice(body.bytes()).unwrap_or_default()
    }
}

/// Deserializes a string; any other type becomes `None`.
fn word<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum StringOrOther {
        Word(String),
        Other(serde::de::IgnoredAny),
    }
    Ok(match StringOrOther::deserialize(from)? {
        StringOrOther::Word(word) => Some(word),
        StringOrOther::Other(_) => None,
    })
}

/// Encodes the event of a request as a line of JSON.
pub(super) fn line(record: &AuditRecord<'_>, open: &OpenAuditRecord<'_>, stage: AuditStage) -> Vec<u8> {
    let parts = open.parts;
    let suppressed = match stage {
        AuditStage::RequestReceived | AuditStage::End(0) => None,
        AuditStage::End(number) => Some(number.to_string()),
    };
    let path = match record.info.as_ref().map(|info| &info.target) {
        Some(RequestTarget::Resource(path)) => Some(path),
        Some(RequestTarget::Path) | None => None,
    };
    let event = AuditEvent {
        kind: "Event",
        api_version: "audit.k8s.io/v1",
        level: "Metadata",
        audit_id: String::from_utf8_lossy(open.id.as_bytes()),
        stage: match stage {
            AuditStage::RequestReceived => "RequestReceived",
            AuditStage::End(_) => end_stage(&open.ending),
        },
        request_uri: uri::redacted_uri(&parts.uri),
        verb: match &record.info {
            Some(info) => info.verb.into(),
            None => parts.method.as_str().to_ascii_lowercase().into(),
        },
        user: record.user.as_deref().map(UserInfo::from_user).unwrap_or_default(),
        impersonated_user: record.impersonated.as_deref().map(UserInfo::from_user),
        source_ips: source_ips::collect(open.peer, &parts.headers),
        user_agent: user_agent(&parts.headers),
        object_ref: path.map(|path| reference(path, &open.ending)),
        response_status: match stage {
            AuditStage::RequestReceived => None,
            AuditStage::End(_) => Some(response_status(path, &open.ending)),
        },
        request_received_timestamp: timestamp::format_micro(open.received),
        stage_timestamp: timestamp::format_micro((open.clock)()),
        annotations: annotations(record.decision.as_ref(), suppressed),
    };
    let mut line = Vec::with_capacity(1024);
    // Every event is serializable, and writing to memory does not fail.
    let _ = serde_json::to_writer(&mut line, &event);
    line.push(b'\n');
    line
}

impl UserInfo<'_> {
    fn from_user(user: &User) -> UserInfo<'_> {
        UserInfo {
            username: &user.name,
            uid: &user.uid,
            groups: &user.groups,
            extra: Some(&user.extra).filter(|extra| !extra.is_empty()),
        }
    }
}

fn annotations(decision: Option<&Decision>, suppressed: Option<String>) -> Option<AuditAnnotations<'_>> {
    if decision.is_none() && suppressed.is_none() {
        return None;
    }
    Some(AuditAnnotations {
        decision: decision.map(|it| if it.is_allowed() { "allow" } else { "forbid" }),
        reason: decision.map(Decision::reason),
        suppressed,
    })
}

fn end_stage(ending: &RequestOutcome) -> &'static str {
    match ending {
        RequestOutcome::Answered { watch: true, .. } => "ResponseStarted",
        RequestOutcome::Answered { .. } | RequestOutcome::Failed(_) | RequestOutcome::Left => {
            "ResponseComplete"
        }
        RequestOutcome::Panicked => "Panic",
    }
}

fn reference<'a>(path: &'a ResourcePath, ending: &'a RequestOutcome) -> ObjectReference<'a> {
    let from_answer = match ending {
        RequestOutcome::Answered { answer, .. } if answer.kind != "Status" => answer.metadata.name.as_str(),
        RequestOutcome::Failed(status) if repeats_secrets(path, status) => "",
        RequestOutcome::Failed(Status { details: Some(details), .. }) => details.name.as_str(),
        RequestOutcome::Answered { .. }
        | RequestOutcome::Failed(_)
        | RequestOutcome::Panicked
        | RequestOutcome::Left => "",
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

/// A client that closed the connection receives no status; nginx's well-known code for that is
/// logged.
const CLIENT_LEFT: u16 = 499;

fn response_status<'a>(path: Option<&ResourcePath>, ending: &'a RequestOutcome) -> ResponseStatus<'a> {
    let none = ResponseStatus::default();
    match ending {
        RequestOutcome::Answered { code, answer, .. } if answer.kind == "Status" => ResponseStatus {
            status: answer.status.as_deref(),
            details: answer.details.as_ref(),
            code: *code,
            ..none
        },
        RequestOutcome::Answered { code, .. } => ResponseStatus { code: *code, ..none },
        RequestOutcome::Failed(status) => failure(path, status),
        RequestOutcome::Panicked => ResponseStatus {
            status: Some("Failure"),
            message: "APIServer panic'd",
            reason: "InternalError",
            code: 500,
            ..none
        },
        RequestOutcome::Left => ResponseStatus {
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
        metadata: EmptyMetadata {},
        status: status.status.as_deref(),
        message: if hidden { "" } else { &status.message },
        reason: &status.reason,
        details: status.details.as_ref().filter(|_| !hidden),
        code: status.code.unwrap_or_default(),
    }
}

/// Returns true if the error may contain secrets of its client: errors about an invalid body quote
/// the body.
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
