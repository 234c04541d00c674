//! The paths that describe the API itself: discovery and OpenAPI.

use std::sync::Arc;

use http::Response;
use http::request::Parts;

use crate::body::Body;
use crate::error::Error;
use crate::request::query::Query;
use crate::server::Server;

/// Whether something is served under a path.
pub fn exists(_server: &Server, path: &str) -> bool {
    path.starts_with("/api")
}

/// Answers a discovery or OpenAPI path.
pub fn answer(
    _server: &Arc<Server>,
    _parts: &Parts,
    _query: &Query,
    _path: &str,
) -> Result<Response<Body>, Error> {
    Err(Error::NoSuchPath)
}
