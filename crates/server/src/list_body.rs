//! List bodies, encoded while the client reads.
//!
//! A waiting list holds references to cached objects and at most one frame, in every format: a
//! client that opens many lists and reads none must not make the server hold a copy of the
//! collection for each.

mod encoding;
mod history;

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use crate::body::{BodyError, KEEPS_SEAT, attach_seat};
use crate::chain::flow_control::RequestSeat;
use crate::limits;
use crate::object::Object;
pub(crate) use encoding::{ItemEncoder, ListEnvelope};
pub(crate) use history::{HistoricalObjects, HistoricalPage, object, objects_in, range};

/// Items of this size are sent without copying; smaller ones are joined.
const SENT_AS_IS: usize = 16 * 1024;

/// The stream of frames of a list.
pub struct ListBody {
    envelope: ListEnvelope,
    form: ItemEncoder,
    objects: std::vec::IntoIter<Arc<Object>>,
    /// Objects of a past revision still to be read from the store.
    past: Option<HistoricalPage>,
    /// Number of objects not encoded yet, cached or not.
    left: usize,
    /// Remaining bytes, if known before encoding.
    length: Option<u64>,
    /// A large item, sent after the previous frame.
    large: Option<Bytes>,
    progress: ListProgress,
    seat: Option<RequestSeat>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ListProgress {
    Head,
    /// The first item follows, without a separator.
    First,
    Items,
    Ended,
}

impl ListBody {
    /// Creates a list of `objects`, followed by those that `past` reads.
    pub fn new(
        envelope: ListEnvelope,
        form: ItemEncoder,
        objects: Vec<Arc<Object>>,
        past: Option<HistoricalObjects>,
    ) -> ListBody {
        let left = objects.len() + past.as_ref().map_or(0, |past| past.count);
        let length = form.length(&objects, past.as_ref()).map(|items| {
            let between = envelope.between.len() * left.saturating_sub(1);
            (envelope.head.len() + items + between + envelope.tail.len()) as u64
        });
        ListBody {
            envelope,
            form,
            objects: objects.into_iter(),
            past: past.map(HistoricalPage::new),
            left,
            length,
            large: None,
            progress: ListProgress::Head,
            seat: None,
        }
    }

    /// Holds `seat` until the last frame is written.
    pub fn hold_seat(&mut self, seat: RequestSeat) {
        self.seat = Some(seat);
    }

    /// Returns the number of objects not encoded yet.
    pub fn objects_left(&self) -> usize {
        self.left
    }

    /// Returns the maximum bytes of a frame beyond an ordinary one: a large object in another
    /// format than the cached one.
    pub fn largest_copy(&self) -> usize {
        let sizes = self.objects.as_slice().iter().map(|object| self.form.copied_size(object));
        let past = self.past.as_ref().map_or(0, |_| limits::PAST_BYTES);
        sizes.max().unwrap_or_default().saturating_sub(limits::FRAME) + past
    }

    /// Returns the remaining bytes, if known.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// Returns whether the last frame has been produced.
    pub fn is_finished(&self) -> bool {
        self.progress == ListProgress::Ended && self.large.is_none()
    }

    /// Polls the next frame. An error means that the store no longer has the past revision.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        if self.objects.as_slice().is_empty()
            && self.large.is_none()
            && let Some(past) = &mut self.past
        {
            match ready!(past.poll_page(cx)) {
                Ok(Some(page)) => self.objects = page.into_iter(),
                Ok(None) => self.past = None,
                Err(error) => {
                    (self.progress, self.past) = (ListProgress::Ended, None);
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
        let Some(mut frame) = self.next_frame() else { return Poll::Ready(None) };
        if let Some(length) = &mut self.length {
            *length = length.saturating_sub(frame.len() as u64);
        }
        if self.is_finished()
            && let Some(seat) = self.seat.take()
            && frame.len() >= KEEPS_SEAT
        {
            frame = attach_seat(frame, seat);
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn next_frame(&mut self) -> Option<Bytes> {
        if let Some(large) = self.large.take() {
            return Some(large);
        }
        if self.progress == ListProgress::Ended {
            return None;
        }
        let mut frame = Vec::with_capacity(self.frame_capacity());
        if self.progress == ListProgress::Head {
            frame.extend_from_slice(&self.envelope.head);
            self.progress = ListProgress::First;
        }
        while frame.len() < limits::FRAME {
            let Some(object) = self.objects.next() else { break };
            if std::mem::replace(&mut self.progress, ListProgress::Items) == ListProgress::Items {
                frame.extend_from_slice(self.envelope.between);
            }
            self.left -= 1;
            if let Some(item) = self.form.cached_bytes(&object, SENT_AS_IS) {
                frame.push(b'{');
                self.large = Some(item);
                return Some(frame.into());
            }
            self.form.write(&object, &mut frame);
        }
        if self.objects.as_slice().is_empty() && self.past.is_none() {
            frame.extend_from_slice(&self.envelope.tail);
            self.progress = ListProgress::Ended;
        }
        Some(frame.into())
    }

    /// Returns the capacity of a frame: exact for a short list, somewhat more than a full frame for
    /// a long one, because the last item exceeds it.
    fn frame_capacity(&self) -> usize {
        let full = limits::FRAME + limits::FRAME / 4;
        self.length.map_or(full, |length| full.min(usize::try_from(length).unwrap_or(full)))
    }
}
