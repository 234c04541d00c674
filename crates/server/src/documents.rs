//! Documents that describe the API: discovery, OpenAPI and the token issuer.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, ETAG, HeaderValue, IF_NONE_MATCH, LOCATION, VARY};
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};
use serde_json::{Value, json};

use crate::body::ResponseBody;
use crate::error::Error;
use crate::openapi::{DocumentResponse, PROTOBUF_V2, RenderedDocument};
use crate::request::negotiation::{self, ObjectView, SupportedViews};
use crate::request::query::QueryParameters;
use crate::server::Server;
use crate::tokens::openid;
use crate::{discovery, response};

/// Returns true if a document is served at the path.
pub(crate) fn exists(server: &Server, path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').filter(|p| !p.is_empty()).collect();
    match parts.as_slice() {
        ["api" | "apis" | "version" | "metrics" | "healthz" | "livez" | "readyz"]
        | ["openapi", ..]
        | ["api", "v1"] => true,
        [".well-known", "openid-configuration"] | ["openid", "v1", "jwks"] => describes(server),
        ["apis", group, ..] => discovery::api_group(&server.registry, group).is_some(),
        _ => false,
    }
}

/// Serves a discovery or OpenAPI path.
pub(crate) fn answer(
    server: &Arc<Server>,
    parts: &Parts,
    query: &QueryParameters,
    path: &str,
) -> Result<Response<ResponseBody>, Error> {
    let registry = &server.registry;
    let segments: Vec<&str> = path.split('/').filter(|p| !p.is_empty()).collect();
    match segments.as_slice() {
        [] => plain(parts, query, json!({"paths": paths(server)})),
        ["api"] => root(
            parts,
            query,
            || discovery::aggregated_core(registry),
            || discovery::api_versions(registry, &host(&parts.headers)),
        ),
        ["apis"] => root(
            parts,
            query,
            || discovery::aggregated_groups(registry),
            || discovery::api_group_list(registry),
        ),
        ["api", version] => {
            let found = discovery::api_resource_list(registry, "", version);
            plain(parts, query, found.ok_or(Error::NoSuchResource)?)
        }
        ["apis", group] => {
            let found = discovery::api_group(registry, group);
            plain(parts, query, found.ok_or(Error::NoSuchPath)?)
        }
        ["apis", group, version] => {
            let known = discovery::api_group(registry, group).ok_or(Error::NoSuchPath);
            known?;
            let found = discovery::api_resource_list(registry, group, version);
            plain(parts, query, found.ok_or(Error::NoSuchResource)?)
        }
        [".well-known", "openid-configuration"] => {
            let verifier = server.authenticator.service_accounts.as_ref();
            issuer_document(verifier.and_then(|v| v.configuration()), "application/json")
        }
        ["openid", "v1", "jwks"] => {
            let verifier = server.authenticator.service_accounts.as_ref();
            issuer_document(verifier.and_then(|v| v.key_set()), "application/jwk-set+json")
        }
        ["openapi", "v2"] => openapi_v2(server, parts),
        ["openapi", "v3"] => Ok(document(parts, server.documents.v3_root(), "application/json")),
        ["openapi", "v3", rest @ ..] => openapi_v3(server, parts, query, &rest.join("/")),
        _ => Err(Error::NoSuchPath),
    }
}

/// Returns true if the service account issuer supports OpenID discovery.
fn describes(server: &Server) -> bool {
    let verifier = server.authenticator.service_accounts.as_ref();
    verifier.is_some_and(|verifier| verifier.configuration().is_some())
}

/// Returns all non-resource paths of the server.
fn paths(server: &Server) -> Vec<String> {
    let own = ["/api", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3"];
    let mut paths: Vec<String> = own.iter().map(|p| (*p).to_owned()).collect();
    paths.extend(["/readyz".to_owned(), "/version".to_owned()]);
    if describes(server) {
        paths.extend([openid::CONFIGURATION_PATH.to_owned(), openid::KEYS_PATH.to_owned()]);
    }
    for (group, versions) in server.registry.groups() {
        let base = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") };
        paths.extend(versions.iter().map(|version| format!("{base}/{version}")));
        paths.push(base);
    }
    paths.sort();
    paths.dedup();
    paths
}

/// Serves a discovery root, aggregated if the client accepts that.
fn root(
    parts: &Parts,
    query: &QueryParameters,
    aggregated: impl FnOnce() -> Value,
    legacy: impl FnOnce() -> Value,
) -> Result<Response<ResponseBody>, Error> {
    let output = negotiation::output(&parts.headers, query, SupportedViews::Discovery)?;
    let mut response = if output.view == ObjectView::Discovery {
        let body = Bytes::from(aggregated().to_string());
        let etag = discovery::etag(&body);
        document(parts, RenderedDocument { body, etag }, discovery::AGGREGATED)
    } else {
        response::value(StatusCode::OK, output, &legacy())
    };
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
    Ok(response)
}

fn plain(parts: &Parts, query: &QueryParameters, value: Value) -> Result<Response<ResponseBody>, Error> {
    let output = negotiation::output(&parts.headers, query, SupportedViews::None)?;
    Ok(response::value(StatusCode::OK, output, &value))
}

/// Serves the OpenID discovery documents of the service account issuer.
fn issuer_document(found: Option<Value>, media: &'static str) -> Result<Response<ResponseBody>, Error> {
    let body = found.ok_or(Error::NoSuchPath)?.to_string();
    let mut response = response::typed(StatusCode::OK, media, body);
    let an_hour = HeaderValue::from_static("public, max-age=3600");
    response.headers_mut().insert(CACHE_CONTROL, an_hour);
    Ok(response)
}

fn openapi_v2(server: &Server, parts: &Parts) -> Result<Response<ResponseBody>, Error> {
    let accept = parts.headers.get(ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or("");
    // kubectl accepts only protobuf; other clients read JSON.
    if accept.contains("proto-openapi.spec.v2") {
        return Ok(document(parts, server.documents.v2_protobuf(), PROTOBUF_V2));
    }
    Ok(document(parts, server.documents.v2_document(), "application/json"))
}

fn openapi_v3(
    server: &Server,
    parts: &Parts,
    query: &QueryParameters,
    path: &str,
) -> Result<Response<ResponseBody>, Error> {
    match server.documents.v3_document(path, query.first("hash")) {
        DocumentResponse::NotFound => Err(Error::NoSuchPath),
        DocumentResponse::Moved(location) => {
            let mut response = response::text(StatusCode::MOVED_PERMANENTLY, Bytes::new());
            if let Ok(location) = HeaderValue::from_str(&location) {
                response.headers_mut().insert(LOCATION, location);
            }
            Ok(response)
        }
        DocumentResponse::Found { document: rendered, immutable } => {
            let mut response = document(parts, rendered, "application/json");
            if immutable {
                // The URL contains the content hash, so the document can be cached for ever.
                let forever = HeaderValue::from_static("public, immutable");
                response.headers_mut().insert(CACHE_CONTROL, forever);
            }
            Ok(response)
        }
    }
}

/// Returns a document with its entity tag, or 304 if the client has it.
fn document(parts: &Parts, rendered: RenderedDocument, media: &'static str) -> Response<ResponseBody> {
    let known = parts.headers.get(IF_NONE_MATCH).and_then(|v| v.to_str().ok());
    let mut response = if known == Some(rendered.etag.as_str()) {
        response::typed(StatusCode::NOT_MODIFIED, media, Bytes::new())
    } else {
        response::with_body(StatusCode::OK, media, ResponseBody::shared(rendered.body))
    };
    if let Ok(etag) = HeaderValue::from_str(&rendered.etag) {
        response.headers_mut().insert(ETAG, etag);
    }
    response
}

fn host(headers: &HeaderMap) -> String {
    let host = headers.get(http::header::HOST).and_then(|v| v.to_str().ok());
    host.unwrap_or("127.0.0.1:6443").to_owned()
}
