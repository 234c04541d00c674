//! An overloaded etcd. A real one reports overload only when it is thousands of changes behind, so
//! it is simulated.

use std::convert::Infallible;
use std::sync::atomic::AtomicUsize;

use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use tokio::net::TcpListener;

use super::super::client::CallFailure;
use super::super::wire::{ResponseHeader, STATUS, StatusResponse, TXN, TxnRequest, TxnResponse};
use super::*;

const HEADER: ResponseHeader = ResponseHeader { cluster_id: 7, member_id: 1, revision: 42 };

/// Starts a member that rejects the first transactions; also returns the number of requests.
async fn overloaded_server(refusals: usize) -> (EtcdClient, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::clone(&asked);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let count = Arc::clone(&count);
            let answer = service_fn(move |request: Request<Incoming>| {
                let path = request.uri().path().to_owned();
                let answer = match path.as_str() {
                    STATUS => {
                        let (header, version) = (Some(HEADER), "3.4.23".to_owned());
                        grpc_response(&StatusResponse { header, version }.encode_to_vec())
                    }
                    TXN if count.fetch_add(1, Ordering::SeqCst) < refusals => refused_response(),
                    TXN => {
                        let done =
                            TxnResponse { header: Some(HEADER), succeeded: true, ..TxnResponse::default() };
                        grpc_response(&done.encode_to_vec())
                    }
                    other => panic!("unexpected request {other}"),
                };
                std::future::ready(Ok::<_, Infallible>(answer))
            });
            let io = TokioIo::new(stream);
            tokio::spawn(http2::Builder::new(TokioExecutor::new()).serve_connection(io, answer));
        }
    });
    let mut options = EtcdOptions::new([url]);
    options.patience = Duration::from_millis(500);
    let name = PathBuf::from("etcd");
    (EtcdClient::open(&options, name.clone(), FatalLatch::new(name)).await.unwrap(), asked)
}

type Body = http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible>;

/// Builds a response with gRPC framing.
fn grpc_response(message: &[u8]) -> Response<Body> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let frame = [&[0], length.as_slice(), message].concat();
    let end = HeaderMap::from_iter([(GRPC_STATUS, HeaderValue::from_static("0"))]);
    let body = Full::new(Bytes::from(frame)).with_trailers(std::future::ready(Some(Ok(end))));
    answer(body.boxed_unsync())
}

/// Returns etcd's error before it has proposed anything to its peers.
fn refused_response() -> Response<Body> {
    let mut answer = answer(Full::default().boxed_unsync());
    let said = HeaderValue::from_static("etcdserver: too many requests");
    answer.headers_mut().insert(GRPC_STATUS, HeaderValue::from_static("8"));
    answer.headers_mut().insert("grpc-message", said);
    answer
}

const GRPC_STATUS: http::HeaderName = http::HeaderName::from_static("grpc-status");

fn answer(body: Body) -> Response<Body> {
    let kind = HeaderValue::from_static("application/grpc");
    let mut answer = Response::new(body);
    answer.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    answer
}

#[tokio::test]
async fn refused_calls_are_retried() {
    let (client, asked) = overloaded_server(3).await;
    assert!(client.txn(TxnRequest::default()).await.unwrap().succeeded);
    assert_eq!(asked.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn exhausted_retries_report_that_nothing_was_applied() {
    let (client, asked) = overloaded_server(usize::MAX).await;
    let refused = client.txn(TxnRequest::default()).await;
    let Err(CallFailure::NotApplied(Error::Unavailable { what, .. })) = refused else {
        panic!("{refused:?}")
    };
    assert!(what.contains("too many requests"), "{what}");
    assert!(asked.load(Ordering::SeqCst) > 1, "it was asked again");
}
