//! Stage: routing. One match handles non-resource paths, another resources.

use std::sync::Arc;

use http::request::Parts;
use http::{Method, Response, StatusCode};
use time::OffsetDateTime;
use windlass_api::names;
use windlass_runtime::metrics::METRICS_CONTENT_TYPE;

use crate::body::{self, Incoming, ResponseBody};
use crate::error::Error;
use crate::metrics::RequestDimensions;
use crate::object::Object;
use crate::registry::certificatesigningrequests::CsrParser;
use crate::registry::kind::{ReviewKind, Scope, SubresourceAction};
use crate::request::info::{RequestInfo, ResourcePath};
use crate::request::negotiation::{
    self, MetaVersion, ObjectView, OutputFormat, OutputOptions, SupportedViews,
};
use crate::request::options::ListOptions;
use crate::request::query::QueryParameters;
use crate::server::Server;
use crate::table::RowEncoder;
use crate::user::User;
use crate::verbs::write_path::{DeleteOutcome, WriteResult};
use crate::verbs::{
    RequestContext, create, delete, freshness, get, list, patch, review, subresource, update, watch,
};
use crate::watch::EventEncoding;
use crate::{documents, health, response, revocation_list};

/// Finds and runs the handler of the request.
#[allow(clippy::too_many_arguments)] // each is a different stage's result, used once
pub(super) async fn route(
    server: &Arc<Server>,
    user: &Arc<User>,
    parts: &Parts,
    query: &QueryParameters,
    info: &RequestInfo,
    body: Incoming,
    now: OffsetDateTime,
    facts: &mut RequestDimensions,
) -> Result<Response<ResponseBody>, Error> {
    let Some(path) = super::resource(info) else {
        return path_only(server, parts, query, &info.path);
    };
    let Some((kind, served)) = server.registry.by_path(&path.group, &path.version, &path.resource) else {
        return Err(no_such_resource(server, path));
    };
    *facts = RequestDimensions {
        verb: metric_verb(info.verb),
        group: served.group,
        version: served.version,
        resource: kind.plural,
        subresource: kind.subresource(&path.subresource).map_or("", |s| s.name),
        scope: scope(path),
    };
    // Authorization used the name required by a selector; the collection is still the target.
    let mut path = path.clone();
    let named_watch = info.verb == "watch" && path.watch_path;
    if matches!(info.verb, "list" | "watch" | "deletecollection") && !named_watch {
        path.name.clear();
    }
    if kind.scope == Scope::Cluster {
        // Authorization decided by that namespace, where the caller may have more permissions.
        if path.inside {
            return Err(Error::NoSuchResource);
        }
        path.namespace.clear();
    }
    if path.watch_path {
        check_watch_path(&path, &parts.method)?;
    }
    let call = RequestContext {
        server,
        kind,
        served,
        path: &path,
        query,
        headers: &parts.headers,
        user,
        csr: &CsrParser::default(),
        now,
    };
    check_path(&call)?;
    verb(&call, info.verb, &parts.method, body).await
}

/// Deprecated watch paths are authorized as watches whatever the method, so they must be watches.
fn check_watch_path(path: &ResourcePath, method: &Method) -> Result<(), Error> {
    if !path.subresource.is_empty() {
        return Err(Error::NoSuchResource);
    }
    match *method {
        Method::GET | Method::HEAD => Ok(()),
        _ => Err(Error::MethodNotAllowed),
    }
}

async fn verb(
    call: &RequestContext<'_>,
    verb: &str,
    method: &Method,
    body: Incoming,
) -> Result<Response<ResponseBody>, Error> {
    let output = negotiation::output(call.headers, call.query, views(call))?;
    let all_namespaces = call.kind.scope == Scope::Namespaced && call.path.namespace.is_empty();
    if let Some(question) = call.kind.review {
        return review(call, question, output, method, body).await;
    }
    if !call.path.subresource.is_empty() {
        return subresource(call, output, method, body).await;
    }
    match verb {
        "get" => {
            let found = get::get(call).await?;
            shown(call, output, StatusCode::OK, &found).await
        }
        "list" => {
            let options = ListOptions::parse(call.query, false)?;
            let found = list::list(call, &options).await?;
            Ok(response::list(call, output, found))
        }
        "watch" => start_watch(call, output).await,
        _ if all_namespaces => Err(Error::MethodNotAllowed),
        "create" if call.path.name.is_empty() => {
            let body = body::read(body).await?;
            let written = freshness::write_and_retry(call, || create::create(call, &body)).await?;
            answer(call, output, &written).await
        }
        "update" if !call.path.name.is_empty() => {
            let body = body::read(body).await?;
            let written = freshness::write_and_retry(call, || update::update(call, &body)).await?;
            answer(call, output, &written).await
        }
        "patch" if !call.path.name.is_empty() => {
            let body = body::read(body).await?;
            let written = freshness::write_and_retry(call, || patch::patch(call, &body)).await?;
            answer(call, output, &written).await
        }
        "delete" => {
            let body = body::read_small(body).await?;
            let deleted = freshness::write_and_retry(call, || delete::delete(call, &body)).await?;
            deletion(call, output, &deleted).await
        }
        "deletecollection" if call.kind.delete_collection => {
            // A retry would not report what the first attempt deleted.
            call.server.catch_up().await?;
            let deleted = delete::delete_collection(call, &body::read_small(body).await?).await?;
            Ok(response::list(call, output, deleted))
        }
        _ => Err(Error::MethodNotAllowed),
    }
}

/// Returns the views that the endpoint supports. As in Kubernetes, reviews, objects posted to a
/// subresource, and the subresources `approval` and `finalize` have no table view.
fn views(call: &RequestContext<'_>) -> SupportedViews {
    let found = call.kind.subresource(&call.path.subresource);
    let untabled = call.kind.review.is_some()
        || found.is_some_and(|found| match found.action {
            SubresourceAction::View { .. } => found.name != "status",
            SubresourceAction::Create { .. } | SubresourceAction::Finalize => true,
        });
    if untabled { SupportedViews::Untabled } else { SupportedViews::Resource }
}

async fn review(
    call: &RequestContext<'_>,
    question: ReviewKind,
    output: OutputOptions,
    method: &Method,
    body: Incoming,
) -> Result<Response<ResponseBody>, Error> {
    let nowhere = call.kind.scope == Scope::Namespaced && call.path.namespace.is_empty();
    if !call.path.name.is_empty() || nowhere {
        return Err(Error::NoSuchResource);
    }
    if *method != Method::POST {
        return Err(Error::MethodNotAllowed);
    }
    let body = body::read_small(body).await?;
    let mut answered = review::answer(call, question, &body).await?;
    // A negative answer may be stale: another server may have granted it since.
    if call.server.store.is_shared() && !answered.is_granted() {
        call.server.catch_up().await?;
        answered = review::answer(call, question, &body).await?;
    }
    let mut response = response::unstored(review::CODE, output, answered.value);
    response::warn(&mut response, &answered.warnings);
    Ok(response)
}

async fn subresource(
    call: &RequestContext<'_>,
    output: OutputOptions,
    method: &Method,
    body: Incoming,
) -> Result<Response<ResponseBody>, Error> {
    let found = call.kind.subresource(&call.path.subresource).ok_or(Error::NoSuchResource)?;
    match (&found.action, method) {
        (SubresourceAction::View { .. }, &Method::GET) => {
            let object = get::get(call).await?;
            shown(call, output, StatusCode::OK, &object).await
        }
        (SubresourceAction::View { .. } | SubresourceAction::Finalize, &Method::PUT) => {
            let body = body::read(body).await?;
            let written = freshness::write_and_retry(call, || update::update(call, &body)).await?;
            answer(call, output, &written).await
        }
        (SubresourceAction::View { .. }, &Method::PATCH) => {
            let body = body::read(body).await?;
            let written = freshness::write_and_retry(call, || patch::patch(call, &body)).await?;
            answer(call, output, &written).await
        }
        (SubresourceAction::Create { .. }, &Method::POST) => {
            call.server.catch_up().await?;
            let bytes = body::read_small(body).await?;
            let (code, value) = subresource::create(call, &found.action, &bytes).await?;
            Ok(response::unstored(code, output, value))
        }
        _ => Err(Error::MethodNotAllowed),
    }
}

async fn start_watch(
    call: &RequestContext<'_>,
    output: OutputOptions,
) -> Result<Response<ResponseBody>, Error> {
    let options = ListOptions::parse(call.query, true)?;
    if output.format == OutputFormat::Yaml {
        return Err(Error::NotAcceptable("application/json"));
    }
    let shape = match output.view {
        ObjectView::Object | ObjectView::Discovery => EventEncoding::Objects,
        ObjectView::Table(version) => custom(call, version, true),
        ObjectView::Metadata(version) => custom(call, version, false),
    };
    let body = watch::watch(call, &options, shape).await?;
    let mut response = response::typed(StatusCode::OK, "application/json", bytes::Bytes::new());
    *response.body_mut() = body;
    Ok(response)
}

/// Returns the encoding of events for a single watcher.
fn custom(call: &RequestContext<'_>, version: MetaVersion, as_table: bool) -> EventEncoding {
    let (kind, served) = (call.kind, call.served);
    if !as_table {
        return EventEncoding::Custom(Box::new(move |object: &Object| {
            let value = response::partial(kind, served, version, object);
            serde_json::to_vec(&value).unwrap_or_default()
        }));
    }
    let (rows, clock) = (RowEncoder::new(call, version), call.server.clock.clone());
    let mut first = true;
    EventEncoding::Custom(Box::new(move |object: &Object| {
        let is_first = std::mem::replace(&mut first, false);
        let value = rows.with_now(clock()).watch_event(object, is_first);
        serde_json::to_vec(&value).unwrap_or_default()
    }))
}

async fn answer(
    call: &RequestContext<'_>,
    output: OutputOptions,
    written: &WriteResult,
) -> Result<Response<ResponseBody>, Error> {
    let code = if written.created { StatusCode::CREATED } else { StatusCode::OK };
    let mut response = shown(call, output, code, &written.object).await?;
    response::warn(&mut response, &written.warnings);
    Ok(response)
}

async fn shown(
    call: &RequestContext<'_>,
    output: OutputOptions,
    code: StatusCode,
    object: &Arc<Object>,
) -> Result<Response<ResponseBody>, Error> {
    call.run_offloaded(object.size(), || Ok(response::object(call, output, code, object))).await
}

async fn deletion(
    call: &RequestContext<'_>,
    output: OutputOptions,
    deleted: &DeleteOutcome,
) -> Result<Response<ResponseBody>, Error> {
    match deleted {
        DeleteOutcome::Removed(object) if !call.kind.returns_deleted => {
            let uid = object.stored_value()["metadata"]["uid"].as_str().unwrap_or_default().into();
            let status = windlass_api::status::Status::success(windlass_api::status::StatusDetails {
                name: object.name().into(),
                group: call.served.group.into(),
                kind: call.kind.plural.into(),
                uid,
                ..Default::default()
            });
            Ok(response::status(&status, output))
        }
        DeleteOutcome::Removed(object) | DeleteOutcome::Terminating(object) => {
            shown(call, output, StatusCode::OK, object).await
        }
    }
}

/// Validates the names in the path, which become store keys.
fn check_path(call: &RequestContext<'_>) -> Result<(), Error> {
    let path = call.path;
    if path.surplus {
        return Err(Error::NoSuchResource);
    }
    for (what, text) in [("Name", &path.name), ("Namespace", &path.namespace)] {
        let wrong = names::path_segment_rule(text, false);
        if !text.is_empty() && !wrong.is_empty() {
            let shown = windlass_api::field::quote(text);
            let why = wrong.join("; ");
            return Err(Error::BadRequest(format!("{what} parameter invalid: {shown}: {why}")));
        }
    }
    if call.kind.scope == Scope::Namespaced && path.namespace.is_empty() && !path.name.is_empty() {
        return Err(Error::NoSuchResource);
    }
    Ok(())
}

fn path_only(
    server: &Arc<Server>,
    parts: &Parts,
    query: &QueryParameters,
    path: &str,
) -> Result<Response<ResponseBody>, Error> {
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return Err(if documents::exists(server, path) || revocation_list::is_below(path) {
            Error::MethodNotAllowed
        } else {
            Error::NoSuchPath
        });
    }
    if let Some(response) = health::health(server, path, query) {
        return Ok(response);
    }
    match path {
        "/version" | "/version/" => {
            let output = negotiation::output(&parts.headers, query, SupportedViews::None)?;
            Ok(response::value(StatusCode::OK, output, &health::version()))
        }
        "/metrics" => {
            let text = server.metrics.encode();
            Ok(response::typed(StatusCode::OK, METRICS_CONTENT_TYPE, text))
        }
        _ if revocation_list::is_below(path) => revocation_list::answer(server, parts, path),
        _ => documents::answer(server, parts, query, path),
    }
}

/// Returns a JSON error for paths below a served group, plain text otherwise.
fn no_such_resource(server: &Server, path: &ResourcePath) -> Error {
    let known = server.registry.groups().iter().any(|(group, _)| *group == path.group);
    if known { Error::NoSuchResource } else { Error::NoSuchPath }
}

fn metric_verb(verb: &str) -> &'static str {
    match verb {
        "get" => "GET",
        "list" => "LIST",
        "watch" => "WATCH",
        "create" => "POST",
        "update" => "PUT",
        "patch" => "PATCH",
        "delete" => "DELETE",
        "deletecollection" => "DELETECOLLECTION",
        _ => "other",
    }
}

fn scope(path: &ResourcePath) -> &'static str {
    if !path.name.is_empty() {
        "resource"
    } else if !path.namespace.is_empty() {
        "namespace"
    } else {
        "cluster"
    }
}
