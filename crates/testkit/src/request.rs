//! Requests to a server in this process, and its responses.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;
use windlass_pki::CertificateDer;
use windlass_server::{Incoming, Peer, ResponseBody, Server, handle_request};

use crate::PATIENCE;

/// A response whose body was read to its end.
pub struct TestResponse {
    /// The HTTP status code.
    pub status: StatusCode,
    /// All headers of the response.
    pub headers: HeaderMap,
    /// The body, whatever its type is.
    pub body: Bytes,
}

/// A request still to be sent.
pub struct TestRequest<'a> {
    server: &'a Arc<Server>,
    method: Method,
    path: String,
    headers: HeaderMap,
    chain: Vec<CertificateDer<'static>>,
    connection: Option<Arc<Peer>>,
    body: Bytes,
}

impl<'a> TestRequest<'a> {
    pub(crate) fn new(server: &'a Arc<Server>, method: Method, path: &str) -> Self {
        let (headers, chain, body) = (HeaderMap::new(), Vec::new(), Bytes::new());
        Self { server, method, path: path.to_owned(), headers, chain, connection: None, body }
    }

    /// Sets a header to a text.
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, value.parse().unwrap());
        self
    }

    /// Sets a header to any bytes.
    pub fn header_value(mut self, name: &'static str, value: http::HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Sends it over a connection with this client certificate chain.
    pub fn presenting(mut self, chain: &[CertificateDer<'static>]) -> Self {
        self.chain = chain.to_vec();
        self
    }

    /// Sends it over a connection that other requests use, too.
    pub fn over(mut self, connection: &Arc<Peer>) -> Self {
        self.connection = Some(connection.clone());
        self
    }

    /// Sends it without credentials of any kind.
    pub fn anonymous(mut self) -> Self {
        self.headers.remove("authorization");
        self
    }

    /// Sets a JSON body, and its content type unless one is set.
    pub fn json(self, body: &Value) -> Self {
        let typed = self.headers.contains_key("content-type");
        let asked = if typed { self } else { self.header("content-type", "application/json") };
        asked.raw_body(body.to_string())
    }

    /// Sets the bytes of the body.
    pub fn raw_body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Sends it and returns the response with its body unread.
    pub async fn open(self) -> (StatusCode, HeaderMap, ResponseBody) {
        let body = Full::from(self.body.clone()).map_err(Into::into).boxed_unsync();
        self.open_with(body).await
    }

    /// As [`TestRequest::open`], with a streaming body.
    pub async fn open_with(self, body: Incoming) -> (StatusCode, HeaderMap, ResponseBody) {
        let mut request = Request::new(body);
        *request.method_mut() = self.method;
        *request.uri_mut() = self.path.parse().unwrap();
        *request.headers_mut() = self.headers;
        let new_peer = || Arc::new(Peer::from_tls("127.0.0.1:1".parse().unwrap(), self.chain));
        let peer = self.connection.unwrap_or_else(new_peer);
        let response = handle_request(self.server, &peer, request).await;
        let (parts, body) = response.into_parts();
        (parts.status, parts.headers, body)
    }

    /// Sends it and reads the response as a stream of events.
    pub async fn watch(self) -> TestWatch {
        let path = self.path.clone();
        let (status, _, body) = self.open().await;
        if status != StatusCode::OK {
            let body = body.collect().await.unwrap().to_bytes();
            panic!("{path}: {status}: {}", String::from_utf8_lossy(&body));
        }
        TestWatch { body, pending: Vec::new() }
    }

    /// Sends it and reads the whole response.
    pub async fn send(self) -> TestResponse {
        let (status, headers, body) = self.open().await;
        let body = body.collect().await.unwrap().to_bytes();
        TestResponse { status, headers, body }
    }
}

impl TestResponse {
    /// The body as JSON, after checking the status code.
    #[track_caller]
    pub fn expect(&self, code: u16) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        assert_eq!(self.status.as_u16(), code, "{text}");
        self.json()
    }

    /// The message of a failure, after checking code and reason.
    #[track_caller]
    pub fn fails(&self, code: u16, reason: &str) -> String {
        let status = self.expect(code);
        assert_eq!(status["kind"], "Status", "{status}");
        assert_eq!(status["status"], "Failure", "{status}");
        assert_eq!(status["code"], code, "{status}");
        assert_eq!(status["reason"].as_str().unwrap_or_default(), reason, "{status}");
        status["message"].as_str().unwrap_or_default().to_owned()
    }

    /// The values of all `Warning` headers.
    pub fn warnings(&self) -> Vec<String> {
        let all = self.headers.get_all("warning").iter();
        all.map(|v| v.to_str().unwrap().to_owned()).collect()
    }

    /// The body as JSON; any other text as a string.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&self.body).into_owned()))
    }
}

/// The events of a watch, one JSON object per line.
pub struct TestWatch {
    body: ResponseBody,
    pending: Vec<u8>,
}

impl TestWatch {
    /// The next event; `None` at the end of the watch.
    pub async fn try_next(&mut self) -> Option<Value> {
        self.next_within(PATIENCE).await
    }

    /// As [`TestWatch::try_next`], for events that may take longer.
    pub async fn next_within(&mut self, patience: Duration) -> Option<Value> {
        loop {
            if let Some(end) = self.pending.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = tokio::time::timeout(patience, self.body.frame()).await;
            let frame = frame.expect("no event came")?;
            self.pending.extend_from_slice(&frame.unwrap().into_data().unwrap());
        }
    }

    /// The next event, which there must be.
    pub async fn next(&mut self) -> Value {
        self.try_next().await.expect("the watch ended")
    }

    /// The next event as `TYPE name`.
    pub async fn brief(&mut self) -> String {
        brief(&self.next().await)
    }

    /// Whether no event is ready; events of finished writes come without a wait.
    pub fn has_no_event(&mut self) -> bool {
        self.pending.is_empty() && self.body.frame().now_or_never().is_none()
    }

    /// All events up to the end of the watch.
    pub async fn rest(&mut self) -> Vec<Value> {
        let mut all = Vec::new();
        while let Some(event) = self.try_next().await {
            all.push(event);
        }
        all
    }
}

/// An event as `TYPE name`.
pub fn brief(event: &Value) -> String {
    let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
    format!("{} {name}", event["type"].as_str().unwrap_or_default()).trim_end().to_owned()
}
