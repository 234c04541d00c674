//! Writing answers: an object, a list, a table, a status, in the form the client asked for.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WARNING};
use http::{Response, StatusCode};
use serde_json::{Value, json};
use windlass_api::decode::to_yaml;
use windlass_api::status::Status;

use crate::body::Body;
use crate::error::Error;
use crate::object::Object;
use crate::request::negotiate::{Format, MetaVersion, Output, View};
use crate::table;
use crate::verbs::Call;
use crate::verbs::list::List;

/// Answers with one object.
pub fn object(
    call: &Call<'_>,
    output: Output,
    code: StatusCode,
    object: &Arc<Object>,
) -> Response<Body> {
    match output.view {
        View::Object | View::Discovery => {
            json_bytes(code, output, object.json(call.kind, call.served))
        }
        View::Table(version) => {
            let rows = std::slice::from_ref(object);
            let table = table::table(call, version, rows, Some(object.revision), "", None);
            value(code, output, &table)
        }
        View::Metadata(version) => value(code, output, &partial(call, version, object)),
    }
}

/// Answers with a list.
pub fn list(call: &Call<'_>, output: Output, list: &List) -> Response<Body> {
    let ok = StatusCode::OK;
    match output.view {
        View::Object | View::Discovery => json_bytes(ok, output, spliced(call, list)),
        View::Table(version) => {
            let table = table::table(
                call,
                version,
                &list.objects,
                Some(list.revision),
                &list.continue_,
                list.remaining,
            );
            value(ok, output, &table)
        }
        View::Metadata(version) => {
            let items: Vec<Value> =
                list.objects.iter().map(|o| partial(call, version, o)).collect();
            let body = json!({
                "kind": "PartialObjectMetadataList",
                "apiVersion": format!("meta.k8s.io/{}", version.as_str()),
                "metadata": list_meta(list.revision, &list.continue_, list.remaining),
                "items": items,
            });
            value(ok, output, &body)
        }
    }
}

/// Joins the stored bytes of a list's items; nothing is encoded again.
fn spliced(call: &Call<'_>, list: &List) -> Bytes {
    let head = crate::object::head(&format!("{}List", call.kind.name), &call.served.api_version());
    let meta = list_meta(list.revision, &list.continue_, list.remaining).to_string();
    let items: Vec<Bytes> = list.objects.iter().map(|o| o.item(call.kind, call.served)).collect();
    let size = items.iter().map(|i| i.len() + 2).sum::<usize>() + head.len() + meta.len() + 32;
    let mut out = Vec::with_capacity(size);
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(b"\"metadata\":");
    out.extend_from_slice(meta.as_bytes());
    out.extend_from_slice(b",\"items\":[");
    for (i, item) in items.iter().enumerate() {
        out.extend_from_slice(if i == 0 { b"{" } else { b",{" });
        out.extend_from_slice(item);
    }
    out.extend_from_slice(b"]}");
    out.into()
}

/// The metadata of a list.
pub fn list_meta(revision: u64, continue_: &str, remaining: Option<usize>) -> Value {
    let mut meta = json!({"resourceVersion": revision.to_string()});
    if !continue_.is_empty() {
        meta["continue"] = json!(continue_);
    }
    if let Some(remaining) = remaining {
        meta["remainingItemCount"] = json!(remaining);
    }
    meta
}

/// An object's metadata alone.
pub fn partial(call: &Call<'_>, version: MetaVersion, object: &Object) -> Value {
    metadata_only(version, &mut object.value(call.kind, call.served))
}

fn metadata_only(version: MetaVersion, value: &mut Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": format!("meta.k8s.io/{}", version.as_str()),
        "metadata": value["metadata"].take(),
    })
}

/// Answers with an object that is not stored: a review, or what was posted to a subresource.
pub fn unstored(code: StatusCode, output: Output, mut object: Value) -> Response<Body> {
    if let View::Metadata(version) = output.view {
        object = metadata_only(version, &mut object);
    }
    value(code, output, &object)
}

/// Answers with a `Status` of success, or any other value.
pub fn value(code: StatusCode, output: Output, value: &Value) -> Response<Body> {
    let bytes = match output.format {
        Format::Yaml => to_yaml(value).into_bytes(),
        Format::Json if output.pretty => {
            let mut text = serde_json::to_vec_pretty(value).unwrap_or_default();
            text.push(b'\n'); // it is for a terminal
            text
        }
        Format::Json => serde_json::to_vec(value).unwrap_or_default(),
    };
    typed(code, media_type(output.format), bytes)
}

fn json_bytes(code: StatusCode, output: Output, bytes: Bytes) -> Response<Body> {
    if output.format == Format::Json && !output.pretty {
        return typed(code, media_type(Format::Json), bytes);
    }
    let parsed: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    value(code, output, &parsed)
}

/// Answers with a `Status`.
pub fn status(status: &Status, output: Output) -> Response<Body> {
    let code = status.code.and_then(|c| StatusCode::from_u16(c).ok()).unwrap_or(StatusCode::OK);
    let parsed = serde_json::to_value(status).unwrap_or_default();
    let mut response = value(code, output, &parsed);
    let retry = status.details.as_ref().map_or(0, |d| d.retry_after_seconds);
    if retry > 0 {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(retry));
    }
    response
}

/// Answers with a failure.
pub fn error(error: &Error, output: Output) -> Response<Body> {
    if let Some(text) = error.internal() {
        tracing::error!(text, "a request failed inside");
    }
    if matches!(error, Error::NoSuchPath) {
        return text(StatusCode::NOT_FOUND, "404 page not found\n");
    }
    let mut response = status(&error.status(), output);
    warn(&mut response, error.warnings());
    if response.status() == StatusCode::FORBIDDEN {
        let nosniff = HeaderValue::from_static("nosniff");
        response.headers_mut().insert(http::header::X_CONTENT_TYPE_OPTIONS, nosniff);
    }
    response
}

/// Answers in plain text.
pub fn text(code: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = typed(code, "text/plain; charset=utf-8", text.into());
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(http::header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

/// Answers with bytes of a media type.
pub fn typed(code: StatusCode, media: &'static str, bytes: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
    response
}

/// Adds `Warning` headers, up to 4 KiB of them as Kubernetes does.
pub fn warn(response: &mut Response<Body>, warnings: &[String]) {
    let mut room = 4 * 1024;
    for warning in warnings {
        let quoted = format!("299 - {}", windlass_api::field::quote(warning));
        let Ok(header) = HeaderValue::from_bytes(quoted.as_bytes()) else { continue };
        if quoted.len() > room {
            break;
        }
        room -= quoted.len();
        response.headers_mut().append(WARNING, header);
    }
}

fn media_type(format: Format) -> &'static str {
    match format {
        Format::Json => "application/json",
        Format::Yaml => "application/yaml",
    }
}
