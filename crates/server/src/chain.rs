//! The way of a request through the server, stage by stage. The order decides which error a
//! client sees, so it is Kubernetes' order:
//!
//! ```text
//! path and query ─ authentication ─ impersonation ─ flow control ─ authorization ─ routing ─ verb
//! (negotiation, decoding, mutating admission, preconditions, validation, validating admission, store)
//! ```

pub(crate) mod admission;
pub(crate) mod authn;
pub(crate) mod authz;
pub(crate) mod flow_control;
mod impersonation;
mod route;
pub(crate) mod watch_access;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, Request, Response};
use http_body::Body as _;

use windlass_api::selector::fields::FieldSelector;

use authz::Decision;
use authz::attributes::AuthorizationAttributes;
use flow_control::ExcessPolicy;
use flow_control::priority_level::RequestEffect;
use watch_access::WatchAccess;

use crate::audit::AuditRecord;
use crate::body::{Incoming, ResponseBody};
use crate::error::Error;
use crate::limits;
use crate::metrics::RequestDimensions;
use crate::peer::Peer;
use crate::request::info::{RequestInfo, RequestTarget};
use crate::request::negotiation::{self, ObjectView, OutputFormat, OutputOptions, SupportedViews};
use crate::request::query::QueryParameters;
use crate::response;
use crate::server::Server;
use crate::user::User;

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Whether a request was authenticated; stored as an extension of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthenticationOutcome {
    /// The caller presented a valid credential.
    Succeeded,
    /// The caller is anonymous or presented an invalid credential.
    Failed,
    /// The request ended before authentication completed.
    Unknown,
}

/// Answers one request. The response has an `AuthenticationOutcome` among its extensions.
pub async fn handle_request(
    server: &Arc<Server>,
    peer: &Arc<Peer>,
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    let started = Instant::now();
    let (parts, body) = request.into_parts();
    let query = QueryParameters::parse(parts.uri.query());
    let audit_id = audit_id(&parts.headers);
    let mutating = !matches!(parts.method.as_str(), "GET" | "HEAD" | "OPTIONS");
    let counted = server.metrics.inflight(mutating);
    let mut facts = unknown_facts(&parts);
    let mut record = server.audit.begin(peer, &parts, &audit_id, &server.clock);
    let stages = stages(server, peer, &parts, &query, body, &mut facts, &mut record);
    let outcome = match AssertUnwindSafe(stages).catch_unwind().await {
        Ok(outcome) => outcome,
        Err(_) => {
            record.panicked();
            Err(Error::Internal("request handler panicked".into()))
        }
    };
    drop(counted);
    let authentication = match (&record.user, &outcome) {
        (Some(user), _) if user.is_anonymous() => AuthenticationOutcome::Failed,
        (Some(_), _) => AuthenticationOutcome::Succeeded,
        (None, Err(Error::Unauthorized)) => AuthenticationOutcome::Failed,
        (None, _) => AuthenticationOutcome::Unknown,
    };
    let mut response = match outcome {
        Ok(response) => {
            record.answered(&response);
            response
        }
        Err(error) => {
            record.failed(&error);
            response::error(&error, error_output(&parts.headers, &query))
        }
    };
    record.complete().await;
    response.extensions_mut().insert(authentication);
    let headers = response.headers_mut();
    headers.insert(AUDIT_ID, audit_id.clone());
    // Content-addressed documents set their own header.
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    if parts.method == Method::HEAD {
        strip_body(&mut response);
    }
    let dry_run = query.first("dryRun").is_some();
    server.metrics.request(facts, dry_run, response.status().as_u16(), started.elapsed());
    tracing::debug!(
        method = %parts.method,
        path = parts.uri.path(),
        code = response.status().as_u16(),
        micros = started.elapsed().as_micros() as u64,
        "request"
    );
    response
}

/// Removes the body: HTTP/2 clients treat a body after HEAD as a broken connection.
fn strip_body(response: &mut Response<ResponseBody>) {
    let length = response.body().size_hint().exact();
    *response.body_mut() = ResponseBody::empty();
    if let Some(length) = length {
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
}

async fn stages(
    server: &Arc<Server>,
    peer: &Arc<Peer>,
    parts: &Parts,
    query: &QueryParameters,
    body: Incoming,
    facts: &mut RequestDimensions,
    record: &mut AuditRecord<'_>,
) -> Result<Response<ResponseBody>, Error> {
    if parts.uri.path_and_query().map_or(0, |p| p.as_str().len()) > limits::URL {
        return Err(Error::BadRequest("URL too long".into()));
    }
    let deadline = timeout(query)?;
    let watch = query.flag("watch").unwrap_or(false);
    let fields = query.first("fieldSelector").and_then(|text| FieldSelector::parse(text).ok());
    // The object name that the field selector requires.
    let selected = fields.as_ref().and_then(|fields| fields.requires_exact("metadata.name"));
    let info = RequestInfo::parse(&parts.method, parts.uri.path(), watch, selected)
        .map_err(|_| Error::NoSuchPath)?;
    record.info = Some(info);
    let info = record.info.as_ref().ok_or_else(|| Error::Internal("no request info".into()))?;
    let now = (server.clock)();
    let caller =
        retry_when_stale(server, || server.authenticator.authenticate(server, peer, &parts.headers, now));
    let caller = caller.await?;
    record.user = Some(caller.clone());
    let impersonate = || impersonation::impersonate(server, &caller, &parts.headers, info);
    record.impersonated = retry_when_stale(server, impersonate).await?;
    let user = record.impersonated.clone().unwrap_or_else(|| caller.clone());
    // Time spent waiting counts against the request's deadline.
    let until = tokio::time::Instant::now() + deadline;
    let weight = flow_control::work_estimator::estimate(server, info, query);
    let seat = server.flow.enter(peer, &user, info, weight, deadline).await?;
    let asked = AuthorizationAttributes::from_request(&user, info, fields.as_ref());
    let decide = || match &*record.decision.insert(server.authorizer.decide(&asked)) {
        Decision::Allow(_) => Ok(()),
        Decision::Deny(why) | Decision::NoOpinion(why) => Err(authz::denied(&asked, why)),
    };
    retry_when_stale(server, decide).await?;
    let work = route::route(server, &user, parts, query, info, body, now, facts);
    // Before the request has any effect; requests rejected above had none.
    let work = async {
        record.received().await?;
        work.await
    };
    let mut response = match tokio::time::timeout_at(until, work).await {
        Ok(result) => result?,
        Err(_) => return Err(Error::Timeout),
    };
    if let ResponseBody::Watch(stream) = response.body_mut() {
        let (requested, users) = ((info, fields.as_ref()), (&*caller, &user));
        stream.guard(WatchAccess::new(server, peer, &parts.headers, requested, users));
    }
    hand_over_seat(server, seat, &user, info, response)
}

/// Moves the seat to the response, which takes memory until it is written.
fn hand_over_seat(
    server: &Server,
    mut seat: flow_control::RequestSeat,
    user: &User,
    info: &RequestInfo,
    mut response: Response<ResponseBody>,
) -> Result<Response<ResponseBody>, Error> {
    let bytes = response.body().own_bytes();
    if bytes > 0 {
        let excess =
            if changes_nothing(server, info) { ExcessPolicy::Reject } else { ExcessPolicy::SendAnyway };
        server.flow.charge(&mut seat, user, bytes, excess)?;
    }
    response.body_mut().hold_seat(seat);
    Ok(response)
}

/// Returns true for reads and for reviews, which are created but never stored.
fn changes_nothing(server: &Server, info: &RequestInfo) -> bool {
    let is_review = resource(info)
        .and_then(|path| server.registry.by_path(&path.group, &path.version, &path.resource))
        .is_some_and(|(kind, _)| kind.review.is_some());
    is_review || RequestEffect::for_request(info) == RequestEffect::Read
}

/// Repeats a check that refuses after syncing with the store: another server may have granted
/// something that this one has not received yet, and a new credential or role must work at any
/// server. One store query serves all waiting requests, so permanently refused callers are no
/// burden; nobody waits for an unavailable store.
async fn retry_when_stale<T>(
    server: &Server,
    mut check: impl FnMut() -> Result<T, Error>,
) -> Result<T, Error> {
    let refused = match check() {
        Err(refused @ (Error::Unauthorized | Error::Forbidden(..) | Error::ForbiddenPath(_))) => refused,
        outcome => return outcome,
    };
    if !server.store.is_shared() || server.store.lost_since().is_some() {
        return Err(refused);
    }
    match server.catch_up().await {
        Ok(()) => check(),
        Err(_) => Err(refused),
    }
}

/// Parses `?timeout=` in Go's duration format, capped at the server's limit.
fn timeout(query: &QueryParameters) -> Result<std::time::Duration, Error> {
    let Some(text) = query.first("timeout").filter(|t| !t.is_empty()) else {
        return Ok(limits::REQUEST);
    };
    let bad = |_| {
        let shown = windlass_api::field::quote(text);
        Error::BadRequest(format!("invalid timeout specified in the request URL: {shown}"))
    };
    let asked = windlass_api::duration::parse(text).map_err(bad)?;
    Ok(if asked.is_zero() { limits::REQUEST } else { asked.min(limits::REQUEST) })
}

fn audit_id(headers: &HeaderMap) -> HeaderValue {
    match headers.get(AUDIT_ID) {
        Some(given) if !given.is_empty() && given.len() <= 64 => given.clone(),
        _ => {
            let id = uuid::Uuid::new_v4().to_string();
            HeaderValue::from_str(&id).unwrap_or_else(|_| HeaderValue::from_static("none"))
        }
    }
}

/// Errors are encoded as YAML for clients that request YAML, otherwise as JSON.
fn error_output(headers: &HeaderMap, query: &QueryParameters) -> OutputOptions {
    let fallback = OutputOptions { format: OutputFormat::Json, view: ObjectView::Object, pretty: false };
    let chosen = negotiation::output(headers, query, SupportedViews::Resource).unwrap_or(fallback);
    OutputOptions { view: ObjectView::Object, ..chosen }
}

fn unknown_facts(parts: &Parts) -> RequestDimensions {
    RequestDimensions {
        verb: match parts.method.as_str() {
            "GET" => "GET",
            "POST" => "POST",
            "PUT" => "PUT",
            "PATCH" => "PATCH",
            "DELETE" => "DELETE",
            _ => "other",
        },
        group: "",
        version: "",
        resource: "",
        subresource: "",
        scope: "",
    }
}

/// Returns the resource path, if the request is for a resource.
fn resource(info: &RequestInfo) -> Option<&crate::request::info::ResourcePath> {
    match &info.target {
        RequestTarget::Resource(path) => Some(path),
        RequestTarget::Path => None,
    }
}
