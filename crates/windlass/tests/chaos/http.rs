//! HTTPS for clients that must know whether a request may have reached a server.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::Method;
use serde_json::Value;
use tokio::time::timeout;
use windlass_testkit::{HttpClient, HttpConnection, WatchStream};

/// Bearer token of a member of `system:masters`.
pub const TOKEN: &str = "chaos-token";

/// Timeout for establishing a connection.
const CONNECT: Duration = Duration::from_secs(2);
/// Timeout for a response; longer than any timeout of the server.
const ANSWER: Duration = Duration::from_secs(20);

/// Reason why there is no response.
pub enum RequestFailure {
    /// The request was not sent.
    Unsent,
    /// The request may have arrived.
    Open(String),
}

/// A response decoded as JSON.
pub struct JsonResponse {
    pub status: u16,
    pub retry_after: bool,
    pub body: Value,
}

/// Connects to one of the servers or to the balancer.
pub async fn connect(http: &HttpClient, address: SocketAddr) -> Option<HttpConnection> {
    timeout(CONNECT, http.at(address).connect()).await.ok()?.ok()
}

/// Sends one request on a new connection.
pub async fn request(
    http: &HttpClient,
    address: SocketAddr,
    method: Method,
    path: &str,
    body: &Value,
) -> Result<JsonResponse, RequestFailure> {
    let mut connection = connect(http, address).await.ok_or(RequestFailure::Unsent)?;
    send(&mut connection, method, path, "application/json", body).await
}

/// Sends a request with a JSON body, or without one if it is null.
pub async fn send(
    connection: &mut HttpConnection,
    method: Method,
    path: &str,
    content_type: &str,
    body: &Value,
) -> Result<JsonResponse, RequestFailure> {
    let asking = async {
        let (content_type, body) = match body {
            Value::Null => ("", Bytes::new()),
            body => (content_type, body.to_string().into()),
        };
        connection.ready().await.map_err(|_| RequestFailure::Unsent)?;
        let response = connection.start_typed(method, path, content_type, body).await;
        let response = response.map_err(|error| RequestFailure::Open(error.to_string()))?;
        let status = response.status().as_u16();
        let retry_after = response.headers().contains_key("retry-after");
        let body = response.into_body().collect().await;
        let body = body.map_err(|error| RequestFailure::Open(error.to_string()))?.to_bytes();
        let body = serde_json::from_slice(&body)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&body).into_owned()));
        Ok(JsonResponse { status, retry_after, body })
    };
    let no_answer = |_| Err(RequestFailure::Open("no answer".to_owned()));
    timeout(ANSWER, asking).await.unwrap_or_else(no_answer)
}

/// Starts a watch; `Err` holds the status of a refusal, 0 if there is no response.
pub async fn watch(connection: &mut HttpConnection, path: &str) -> Result<WatchStream, u16> {
    let asking = connection.start(Method::GET, path, Bytes::new());
    let response = timeout(ANSWER, asking).await.map_err(|_| 0_u16)?.map_err(|_| 0_u16)?;
    WatchStream::new(response)
}
