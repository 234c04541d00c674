//! One request and its response, from the request header until the last byte is handed to the
//! socket.
//!
//! Responses are split into chunks, and each chunk notifies its exchange when the HTTP library has
//! released it. This shows whether a client reads: a response is blocked while a chunk is not taken
//! or not written, and idle while it has no output, as a watch is most of the time.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::{AbortHandle, Abortable};
use http_body::{Frame, SizeHint};
use tokio::sync::mpsc;

use super::connection::ConnectionState;
use crate::body::{BodyError, ResponseBody};
use crate::limits;

tokio::task_local! {
    /// Aborts the task of an HTTP/2 stream, which resets the stream.
    static STREAM: Arc<AbortHandle>;
}

/// Spawns the task of every HTTP/2 stream so that its exchange can abort it.
#[derive(Clone, Debug)]
pub(super) struct StreamExecutor;

impl<F> hyper::rt::Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        let (handle, registration) = AbortHandle::new_pair();
        tokio::spawn(STREAM.scope(Arc::new(handle), Abortable::new(future, registration)));
    }
}

/// A request whose response is not completely written.
pub(super) struct HttpExchange {
    pub(super) connection: Arc<ConnectionState>,
    number: u64,
    /// The HTTP/2 stream, while its task runs.
    stream: OnceLock<Weak<AbortHandle>>,
    /// Whether the HTTP library holds a chunk and has not polled for the next one.
    waiting: AtomicBool,
    /// Number of chunks not yet written.
    unwritten: AtomicUsize,
    /// When a chunk was last taken or written.
    progress: AtomicU64,
    /// Number among the unwritten responses to unauthenticated requests; 0 if not among them.
    unauthenticated: AtomicU64,
}

/// Held by an open request; graceful shutdown waits for it.
pub(super) type Open = mpsc::Sender<Infallible>;

impl HttpExchange {
    /// Registers a request that has arrived on `connection`.
    pub(super) fn begin(connection: &Arc<ConnectionState>) -> Arc<HttpExchange> {
        let number = connection.connections.number();
        let exchange = Arc::new(HttpExchange {
            connection: connection.clone(),
            number,
            stream: OnceLock::new(),
            waiting: AtomicBool::new(false),
            unwritten: AtomicUsize::new(0),
            progress: AtomicU64::new(0),
            unauthenticated: AtomicU64::new(0),
        });
        connection.insert(number, &exchange);
        exchange
    }

    /// Attaches the HTTP/2 stream of the current task.
    pub(super) fn attach(&self) {
        if let Ok(stream) = STREAM.try_with(Arc::downgrade) {
            let _ = self.stream.set(stream);
        }
    }

    /// Counts the response among those to unauthenticated requests.
    pub(super) fn set_unauthenticated(self: &Arc<Self>) {
        let number = self.connection.connections.add_answer(self);
        self.unauthenticated.store(number, Relaxed);
    }

    /// Returns since when the client has read nothing although output is pending.
    pub(super) fn blocked_since(&self) -> Option<u64> {
        let blocked = self.waiting.load(Relaxed) || self.unwritten.load(Relaxed) > 0;
        blocked.then(|| self.progress.load(Relaxed))
    }

    /// Resets the stream; false if it cannot be reset alone.
    pub(super) fn reset(&self) -> bool {
        let stream = self.stream.get().and_then(Weak::upgrade);
        match stream.filter(|stream| !stream.is_aborted()) {
            Some(stream) => {
                stream.abort();
                true
            }
            None => false,
        }
    }

    fn progress(&self) {
        self.progress.store(self.connection.connections.now(), Relaxed);
    }
}

impl Drop for HttpExchange {
    fn drop(&mut self) {
        self.connection.remove(self.number);
        let number = self.unauthenticated.load(Relaxed);
        if number != 0 {
            self.connection.connections.remove_answer(number);
        }
    }
}

/// A response body that reports its progress to the exchange.
pub(super) struct TrackedBody {
    body: ResponseBody,
    /// Remainder of the last frame.
    rest: Bytes,
    exchange: Arc<HttpExchange>,
    _open: Option<Open>,
}

impl TrackedBody {
    pub(super) fn new(body: ResponseBody, exchange: Arc<HttpExchange>, open: Option<Open>) -> TrackedBody {
        // Watches end by themselves at shutdown. One whose client does not read cannot, so shutdown
        // does not wait for it.
        let open = open.filter(|_| !matches!(body, ResponseBody::Watch(_)));
        TrackedBody { body, rest: Bytes::new(), exchange, _open: open }
    }

    /// Returns the next part of the body, at most [`limits::FRAME`] bytes.
    fn chunk(&mut self) -> Frame<Bytes> {
        let bytes = self.rest.split_to(self.rest.len().min(limits::FRAME));
        self.exchange.unwritten.fetch_add(1, Relaxed);
        Frame::data(Bytes::from_owner(TrackedChunk { bytes, exchange: self.exchange.clone() }))
    }
}

impl http_body::Body for TrackedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let answer = &mut *self;
        while answer.rest.is_empty() {
            match Pin::new(&mut answer.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => answer.rest = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                other => {
                    answer.exchange.waiting.store(false, Relaxed);
                    return other;
                }
            }
        }
        answer.exchange.progress();
        answer.exchange.waiting.store(true, Relaxed);
        Poll::Ready(Some(Ok(answer.chunk())))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let body = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower() + rest);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

impl Drop for TrackedBody {
    fn drop(&mut self) {
        self.exchange.waiting.store(false, Relaxed);
    }
}

/// A part of a response until it is written.
struct TrackedChunk {
    bytes: Bytes,
    exchange: Arc<HttpExchange>,
}

impl AsRef<[u8]> for TrackedChunk {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for TrackedChunk {
    fn drop(&mut self) {
        self.exchange.progress();
        self.exchange.unwritten.fetch_sub(1, Relaxed);
    }
}
