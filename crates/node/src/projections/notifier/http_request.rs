//! Tells an application by a request.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Uri};
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// Sends a request, which has to be answered with 2xx. Nothing is followed elsewhere.
pub async fn send(url: &Uri, method: &Method, headers: &HeaderMap) -> Result<(), String> {
    // There is one request now and then: a connection is not worth keeping.
    let client = Client::builder(TokioExecutor::new())
        .pool_max_idle_per_host(0)
        .build::<_, Empty<Bytes>>(HttpConnector::new());
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = url.clone();
    *request.method_mut() = method.clone();
    *request.headers_mut() = headers.clone();
    let response = client.request(request).await.map_err(|error| explain(&error))?;
    match response.status() {
        status if status.is_success() => Ok(()),
        status => Err(format!("the server answered {status}")),
    }
}

/// An error with what it comes from.
fn explain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", explain(source)),
        None => error.to_string(),
    }
}
