//! Builds responses: an object, list, table or status in the negotiated format.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WARNING};
use http::{Response, StatusCode};
use serde_json::{Value, json};
use windlass_api::decode::to_yaml;
use windlass_api::status::Status;

use crate::body::ResponseBody;
use crate::error::Error;
use crate::list_body::{ItemEncoder, ListBody};
use crate::object::Object;
use crate::registry::kind::{Kind, ServedVersion};
use crate::request::negotiation::{MetaVersion, ObjectView, OutputFormat, OutputOptions};
use crate::table::RowEncoder;
use crate::verbs::RequestContext;
use crate::verbs::list::ObjectList;

/// Builds a response with one object in the negotiated format.
pub(crate) fn object(
    call: &RequestContext<'_>,
    output: OutputOptions,
    code: StatusCode,
    object: &Arc<Object>,
) -> Response<ResponseBody> {
    match output.view {
        ObjectView::Object | ObjectView::Discovery
            if output.format == OutputFormat::Json && !output.pretty =>
        {
            let bytes = object.json(call.kind, call.served);
            let is_shared = object.is_as_stored(call.kind, call.served);
            let body = if is_shared { ResponseBody::shared(bytes) } else { ResponseBody::from(bytes) };
            with_body(code, media_type(OutputFormat::Json), body)
        }
        ObjectView::Object | ObjectView::Discovery => {
            value(code, output, &object.value(call.kind, call.served))
        }
        ObjectView::Table(version) => {
            let rows = RowEncoder::new(call, version);
            let metadata = list_meta(object.revision, "", None);
            value(code, output, &rows.table(metadata, vec![rows.row(object)]))
        }
        ObjectView::Metadata(version) => {
            value(code, output, &partial(call.kind, call.served, version, object))
        }
    }
}

/// Builds a list response, which is encoded while the client reads.
pub(crate) fn list(
    call: &RequestContext<'_>,
    output: OutputOptions,
    list: ObjectList,
) -> Response<ResponseBody> {
    let metadata = list_meta(list.revision, &list.continue_, list.remaining);
    let mut form = ItemEncoder::new(output, call.kind, call.served, |version| RowEncoder::new(call, version));
    let name = call.kind.list_kind();
    let envelope = match form.spliced_envelope(&name, &metadata) {
        Some(envelope) => envelope,
        None => {
            let whole = empty_list(call, output.view, &name, metadata);
            if list.objects.is_empty() {
                return value(StatusCode::OK, output, &whole);
            }
            form.build_envelope(whole, &list.objects, list.rest.as_ref())
        }
    };
    let body = ListBody::new(envelope, form, list.objects, list.rest);
    with_body(StatusCode::OK, media_type(output.format), ResponseBody::List(Box::new(body)))
}

/// Returns a list without its items.
fn empty_list(call: &RequestContext<'_>, view: ObjectView, name: &str, metadata: Value) -> Value {
    let (kind, api_version) = match view {
        ObjectView::Table(version) => {
            return RowEncoder::new(call, version).table(metadata, Vec::new());
        }
        ObjectView::Object | ObjectView::Discovery => (name, call.served.api_version()),
        ObjectView::Metadata(version) => {
            ("PartialObjectMetadataList", format!("meta.k8s.io/{}", version.as_str()))
        }
    };
    json!({ "kind": kind, "apiVersion": api_version, "metadata": metadata, "items": [] })
}

pub(crate) fn list_meta(revision: u64, continue_: &str, remaining: Option<usize>) -> Value {
    let mut meta = json!({"resourceVersion": revision.to_string()});
    if !continue_.is_empty() {
        meta["continue"] = json!(continue_);
    }
    if let Some(remaining) = remaining {
        meta["remainingItemCount"] = json!(remaining);
    }
    meta
}

/// Returns a `PartialObjectMetadata` with the metadata of an object.
pub(crate) fn partial(kind: &Kind, served: &ServedVersion, version: MetaVersion, object: &Object) -> Value {
    metadata_only(version, &mut object.value(kind, served))
}

fn metadata_only(version: MetaVersion, value: &mut Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": format!("meta.k8s.io/{}", version.as_str()),
        "metadata": value["metadata"].take(),
    })
}

/// Builds a response with an object that is not stored: a review, or an object posted to a
/// subresource.
pub(crate) fn unstored(code: StatusCode, output: OutputOptions, mut object: Value) -> Response<ResponseBody> {
    if let ObjectView::Metadata(version) = output.view {
        object = metadata_only(version, &mut object);
    }
    value(code, output, &object)
}

/// Builds a response with a success `Status` or any other value.
pub(crate) fn value(code: StatusCode, output: OutputOptions, value: &Value) -> Response<ResponseBody> {
    let bytes = match output.format {
        OutputFormat::Yaml => to_yaml(value).into_bytes(),
        OutputFormat::Json if output.pretty => {
            let mut text = serde_json::to_vec_pretty(value).unwrap_or_default();
            text.push(b'\n'); // it is for a terminal
            text
        }
        OutputFormat::Json => serde_json::to_vec(value).unwrap_or_default(),
    };
    typed(code, media_type(output.format), bytes)
}

/// Builds a response with a `Status`, whose code becomes the HTTP status.
pub(crate) fn status(status: &Status, output: OutputOptions) -> Response<ResponseBody> {
    let code = status.code.and_then(|c| StatusCode::from_u16(c).ok()).unwrap_or(StatusCode::OK);
    let parsed = serde_json::to_value(status).unwrap_or_default();
    let mut response = value(code, output, &parsed);
    let retry = status.details.as_ref().map_or(0, |d| d.retry_after_seconds);
    if retry > 0 {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(retry));
    }
    response
}

/// Builds the response to a failed request, and logs internal errors.
pub(crate) fn error(error: &Error, output: OutputOptions) -> Response<ResponseBody> {
    if let Some(text) = error.internal() {
        tracing::error!(error = text, "internal error");
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

/// Builds a response with media type `text/plain`.
pub(crate) fn text(code: StatusCode, text: impl Into<Bytes>) -> Response<ResponseBody> {
    let mut response = typed(code, "text/plain; charset=utf-8", text.into());
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(http::header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

/// Builds a response with bytes of a media type.
pub(crate) fn typed(
    code: StatusCode,
    media: &'static str,
    bytes: impl Into<Bytes>,
) -> Response<ResponseBody> {
    with_body(code, media, ResponseBody::from(bytes))
}

/// Builds a response with a body of a media type.
pub(crate) fn with_body(code: StatusCode, media: &'static str, body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
    response
}

/// Adds `Warning` headers, up to 4 KiB of them as Kubernetes does.
pub(crate) fn warn(response: &mut Response<ResponseBody>, warnings: &[String]) {
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

fn media_type(format: OutputFormat) -> &'static str {
    match format {
        OutputFormat::Json => "application/json",
        OutputFormat::Yaml => "application/yaml",
    }
}
