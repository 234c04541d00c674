//! Notifies an application with an HTTP request.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Uri};
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// Sends a request, which must be answered with 2xx. Redirects are not followed.
pub async fn send(url: &Uri, method: &Method, headers: &HeaderMap) -> Result<(), String> {
    // Requests are rare, so connections are not kept.
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

/// Formats an error with its causes.
fn explain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", explain(source)),
        None => error.to_string(),
    }
}
