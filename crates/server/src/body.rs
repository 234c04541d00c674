//! Request bodies, read within limits, and response bodies.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;

use crate::chain::flow_control::RequestSeat;
use crate::error::Error;
use crate::limits;
use crate::list_body::ListBody;
use crate::object::UnreadableObject;
use crate::watch::WatchStream;

/// The body of a request from any transport.
pub type Incoming = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// Reads a request body of at most [`limits::BODY`] bytes. A longer one is rejected without
/// buffering it.
pub(crate) async fn read(body: Incoming) -> Result<Bytes, Error> {
    read_within(body, limits::BODY).await
}

/// Reads the body of a request that stores nothing: at most [`limits::SMALL_BODY`] bytes.
pub(crate) async fn read_small(body: Incoming) -> Result<Bytes, Error> {
    read_within(body, limits::SMALL_BODY).await
}

async fn read_within(body: Incoming, limit: usize) -> Result<Bytes, Error> {
    let too_large = || Error::TooLarge(format!("Request entity too large: limit is {limit}"));
    let mut body = body;
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large());
    }
    let mut whole = BytesMut::new();
    let mut only: Option<Bytes> = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| Error::BadRequest(format!("request body ended early: {e}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + only.as_ref().map_or(0, Bytes::len) + data.len() > limit {
            return Err(too_large());
        }
        match only.take() {
            // Most bodies arrive in one chunk, which is then not copied.
            None if whole.is_empty() => only = Some(data),
            first => {
                whole.extend_from_slice(first.as_deref().unwrap_or_default());
                whole.extend_from_slice(&data);
            }
        }
    }
    Ok(only.unwrap_or_else(|| whole.freeze()))
}

/// A request body from the network. If dropped before its end, the rest is read for a short time
/// and discarded.
///
/// Over HTTP/1, closing a connection while the client still sends resets it, and the reset would
/// overtake the response. Over HTTP/2 the stream is reset; hyper counts such resets and closes the
/// whole connection, with its watches, when there are too many.
pub(crate) struct RequestBody(Option<hyper::body::Incoming>);

impl RequestBody {
    /// Wraps a body of which nothing has been read.
    pub(crate) fn new(body: hyper::body::Incoming) -> RequestBody {
        RequestBody(Some(body))
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.0 else { return Poll::Ready(None) };
        let next = Pin::new(body).poll_frame(cx);
        if matches!(next, Poll::Ready(None | Some(Err(_)))) {
            self.0 = None;
        }
        next
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or(SizeHint::with_exact(0), HttpBody::size_hint)
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        let Some(mut body) = self.0.take().filter(|body| !body.is_end_stream()) else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(tokio::time::timeout(limits::DRAIN, async move {
            while let Some(Ok(_)) = body.frame().await {}
        }));
    }
}

/// The body of a response.
pub enum ResponseBody {
    /// All bytes are in memory before the response starts.
    Full(FullBody),
    /// A list, encoded while the client reads it.
    List(Box<ListBody>),
    /// A watch, until either side ends it.
    Watch(Box<WatchStream>),
}

/// A body that is completely in memory.
#[derive(Default)]
pub struct FullBody {
    bytes: Bytes,
    is_shared: bool,
    /// Whether frames were split off the buffer, which the last frame keeps alive.
    is_split: bool,
    seat: Option<RequestSeat>,
}

/// Why a started body cannot be completed. The client sees a truncated response.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The rest of a past revision is compacted or the store is unavailable.
    #[error("reading the remaining pages of a list failed: {0}")]
    Store(#[from] windlass_store::Error),
    /// An object of a past revision cannot be decoded.
    #[error(transparent)]
    Unreadable(#[from] UnreadableObject),
    /// The store returned fewer objects of a past revision than before.
    #[error("the remaining pages of a list have been compacted")]
    Incomplete,
}

impl FullBody {
    /// Returns the bytes still to be sent.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns the next frame. The last frame holds the seat if it keeps a larger buffer alive.
    fn next_frame(&mut self) -> Option<Bytes> {
        if self.bytes.is_empty() {
            self.seat = None;
            return None;
        }
        if self.bytes.len() > limits::FRAME {
            self.is_split = true;
            return Some(self.bytes.split_to(limits::FRAME));
        }
        let last = std::mem::take(&mut self.bytes);
        Some(match self.seat.take() {
            Some(seat) if self.is_split || last.len() >= KEEPS_SEAT => attach_seat(last, seat),
            _ => last,
        })
    }
}

impl ResponseBody {
    /// Returns a body without bytes, as in responses to HEAD requests.
    pub fn empty() -> ResponseBody {
        ResponseBody::Full(FullBody::default())
    }

    /// Wraps bytes that a cache holds anyway or that other responses share.
    pub fn shared(bytes: Bytes) -> ResponseBody {
        ResponseBody::Full(FullBody { bytes, is_shared: true, ..FullBody::default() })
    }

    /// Holds the seat of a request until its response is written; for a watch, until its initial
    /// objects are.
    pub fn hold_seat(&mut self, mut seat: RequestSeat) {
        seat.shrink_to(self.objects());
        match self {
            ResponseBody::Full(full) => full.seat = Some(seat),
            ResponseBody::List(list) => list.hold_seat(seat),
            ResponseBody::Watch(watch) => watch.hold_seat(seat),
        }
    }

    /// Returns the memory that the body holds until it is written, beyond one frame: bytes that are
    /// neither cached nor shared with other responses.
    pub fn own_bytes(&self) -> usize {
        match self {
            ResponseBody::Full(full) if full.is_shared || full.bytes.len() <= limits::FRAME => 0,
            ResponseBody::Full(full) => full.bytes.len(),
            ResponseBody::List(list) => list.largest_copy(),
            ResponseBody::Watch(_) => 0,
        }
    }

    /// Returns the number of objects still to be sent.
    fn objects(&self) -> usize {
        match self {
            ResponseBody::Full(_) => 0,
            ResponseBody::List(list) => list.objects_left(),
            ResponseBody::Watch(watch) => watch.initial_left(),
        }
    }
}

/// Returns a frame that holds a seat until it is written: HTTP/2 takes the frame and drops the body
/// long before the client reads.
pub(crate) fn attach_seat(frame: Bytes, seat: RequestSeat) -> Bytes {
    struct SeatedFrame {
        frame: Bytes,
        _seat: RequestSeat,
    }
    impl AsRef<[u8]> for SeatedFrame {
        fn as_ref(&self) -> &[u8] {
            &self.frame
        }
    }
    Bytes::from_owner(SeatedFrame { frame, _seat: seat })
}

/// Below this size, a frame takes less memory than the stream that queues it.
pub(crate) const KEEPS_SEAT: usize = 4 * 1024;

impl<T: Into<Bytes>> From<T> for ResponseBody {
    fn from(bytes: T) -> ResponseBody {
        ResponseBody::Full(FullBody { bytes: bytes.into(), ..FullBody::default() })
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            ResponseBody::Full(full) => Poll::Ready(full.next_frame().map(|bytes| Ok(Frame::data(bytes)))),
            ResponseBody::List(list) => list.poll_next(cx).map(|next| next.map(|r| r.map(Frame::data))),
            ResponseBody::Watch(stream) => {
                stream.poll_next(cx).map(|next| next.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            ResponseBody::Full(full) => full.bytes.is_empty(),
            ResponseBody::List(list) => list.is_finished(),
            ResponseBody::Watch(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ResponseBody::Full(full) => SizeHint::with_exact(full.bytes.len() as u64),
            ResponseBody::List(list) => list.length().map_or_else(SizeHint::default, SizeHint::with_exact),
            ResponseBody::Watch(_) => SizeHint::default(),
        }
    }
}
