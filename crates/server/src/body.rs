//! Bodies of requests, read within limits, and of answers.

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

/// The body of a request, wherever it comes from.
pub type Incoming = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// Reads a request body of at most [`limits::BODY`] bytes. A longer one is refused without being
/// kept.
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
        let frame =
            frame.map_err(|e| Error::BadRequest(format!("request body ended early: {e}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + only.as_ref().map_or(0, Bytes::len) + data.len() > limit {
            return Err(too_large());
        }
        match only.take() {
            // Most bodies come in one piece, which then is not copied.
            None if whole.is_empty() => only = Some(data),
            first => {
                whole.extend_from_slice(first.as_deref().unwrap_or_default());
                whole.extend_from_slice(&data);
            }
        }
    }
    Ok(only.unwrap_or_else(|| whole.freeze()))
}

/// A body from the network. One that is dropped before its end is read on for a moment, and what is
/// read is forgotten.
///
/// Over HTTP/1 a connection that is closed while the client still sends is reset, and the reset would
/// overtake the answer. Over HTTP/2 the stream is reset; such resets are counted, and when there are
/// too many the whole connection is closed, with the watches on it.
pub(crate) struct RequestBody(Option<hyper::body::Incoming>);

impl RequestBody {
    /// All of `body` is still to come.
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

/// The body of an answer.
pub enum ResponseBody {
    /// All bytes are in memory before the response starts.
    Full(FullBody),
    /// A list, encoded as the client reads it.
    List(Box<ListBody>),
    /// A watch, until one side ends it.
    Watch(Box<WatchStream>),
}

/// A body that is known in full.
#[derive(Default)]
pub struct FullBody {
    bytes: Bytes,
    is_shared: bool,
    /// Whether frames were taken from the buffer, which the last one keeps alive.
    is_split: bool,
    seat: Option<RequestSeat>,
}

/// Why a body that was begun cannot be ended. The client sees that it is cut off.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The store does not have the rest of a past state, or is away.
    #[error("reading the remaining pages of a list failed: {0}")]
    Store(#[from] windlass_store::Error),
    /// An object of a past state is not what this program writes.
    #[error(transparent)]
    Unreadable(#[from] UnreadableObject),
    /// The store has fewer objects of a past state than it had a moment ago.
    #[error("the remaining pages of a list have been compacted")]
    Incomplete,
}

impl FullBody {
    /// What is still to be sent.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The next frame. The seat stays with the last one, if that keeps a larger buffer alive.
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

    /// Bytes that a cache holds anyway, or that other responses share.
    pub fn shared(bytes: Bytes) -> ResponseBody {
        ResponseBody::Full(FullBody { bytes, is_shared: true, ..FullBody::default() })
    }

    /// Keeps the seat of a request until its response is written; of a watch until its initial objects are.
    pub fn hold_seat(&mut self, mut seat: RequestSeat) {
        seat.shrink_to(self.objects());
        match self {
            ResponseBody::Full(full) => full.seat = Some(seat),
            ResponseBody::List(list) => list.hold_seat(seat),
            ResponseBody::Watch(watch) => watch.hold_seat(seat),
        }
    }

    /// The memory that this holds for itself until it is written, beyond a frame: what is neither in a cache nor shared
    /// with other responses.
    pub fn own_bytes(&self) -> usize {
        match self {
            ResponseBody::Full(full) if full.is_shared || full.bytes.len() <= limits::FRAME => 0,
            ResponseBody::Full(full) => full.bytes.len(),
            ResponseBody::List(list) => list.largest_copy(),
            ResponseBody::Watch(_) => 0,
        }
    }

    /// The objects that are still to be sent.
    fn objects(&self) -> usize {
        match self {
            ResponseBody::Full(_) => 0,
            ResponseBody::List(list) => list.objects_left(),
            ResponseBody::Watch(watch) => watch.initial_left(),
        }
    }
}

/// A frame that keeps a seat until it is written: HTTP/2 takes a frame and the body is dropped, long before the client
/// reads.
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

/// Below this, a frame takes less memory than the stream that it waits in.
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
            ResponseBody::Full(full) => {
                Poll::Ready(full.next_frame().map(|bytes| Ok(Frame::data(bytes))))
            }
            ResponseBody::List(list) => {
                list.poll_next(cx).map(|next| next.map(|r| r.map(Frame::data)))
            }
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
            ResponseBody::List(list) => {
                list.length().map_or_else(SizeHint::default, SizeHint::with_exact)
            }
            ResponseBody::Watch(_) => SizeHint::default(),
        }
    }
}
