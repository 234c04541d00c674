//! Bodies of requests, read within limits, and of answers.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;

use crate::error::Error;
use crate::limits;
use crate::watch::WatchStream;

/// The body of a request, wherever it comes from.
pub type Incoming = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// Reads a request body of at most [`limits::BODY`] bytes. A longer one is refused without being
/// kept.
pub async fn read(body: Incoming) -> Result<Bytes, Error> {
    read_within(body, limits::BODY).await
}

/// Reads the body of a request that stores nothing: at most [`limits::SMALL_BODY`] bytes.
pub async fn read_small(body: Incoming) -> Result<Bytes, Error> {
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
        let frame = frame.map_err(|e| Error::BadRequest(format!("the body ended early: {e}")))?;
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
pub struct Received(Option<hyper::body::Incoming>);

impl Received {
    /// All of `body` is still to come.
    pub fn new(body: hyper::body::Incoming) -> Received {
        Received(Some(body))
    }
}

impl HttpBody for Received {
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

impl Drop for Received {
    fn drop(&mut self) {
        let Some(mut body) = self.0.take().filter(|body| !body.is_end_stream()) else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(tokio::time::timeout(limits::DRAIN, async move {
            while let Some(Ok(_)) = body.frame().await {}
        }));
    }
}

/// The body of an answer.
pub enum Body {
    /// Known in full.
    Full(VecDeque<Bytes>),
    /// A watch, until one side ends it.
    Watch(Box<WatchStream>),
}

impl Body {
    /// No bytes.
    pub fn empty() -> Body {
        Body::Full(VecDeque::new())
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Body {
        let bytes = bytes.into();
        Body::Full(if bytes.is_empty() { VecDeque::new() } else { VecDeque::from([bytes]) })
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            Body::Full(parts) => Poll::Ready(parts.pop_front().map(|p| Ok(Frame::data(p)))),
            Body::Watch(stream) => {
                stream.poll_next(cx).map(|next| next.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Body::Full(parts) if parts.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Full(parts) => SizeHint::with_exact(parts.iter().map(|p| p.len() as u64).sum()),
            Body::Watch(_) => SizeHint::default(),
        }
    }
}
