//! Who did what, written down: one `audit.k8s.io/v1` event a request, at the level Metadata.
//!
//! Every request is written down once, also those that were refused, failed, panicked, or whose
//! client left, and health checks and the process's own requests as well; who wants fewer filters
//! the file. A watch is written down when it has started. What a request or an answer
//! carries is not in an event, nor is any header but `User-Agent`, nor what an unknown query
//! parameter says ([`uri`]).
//!
//! No event is dropped because the disk is slow: requests then wait for it. Events are dropped
//! when it fails, as in Kubernetes: that is counted and logged, and the server goes on.

mod event;
mod file;
mod sources;
mod uri;
mod writer;

use std::io;
use std::path::Path;
use std::sync::Arc;

use http::request::Parts;
use http::{HeaderValue, Response};
use time::OffsetDateTime;
use windlass_api::status::Status;

pub use file::Rotation;

use crate::body::Body;
use crate::chain::authz::Decision;
use crate::error::Error;
use crate::metrics::Source;
use crate::peer::Peer;
use crate::request::info::Info;
use crate::server::Clock;
use crate::user::User;

use writer::{Counts, Output, Writer};

/// Where events go; nowhere by default. When dropped, everything that was handed over is written.
#[derive(Default)]
pub struct Audit {
    writer: Option<Writer>,
    counts: Arc<Counts>,
}

impl Audit {
    /// To a file that is added to, or with the path `-` to standard output.
    pub fn to_file(path: &Path, rotation: Rotation, clock: Clock) -> io::Result<Audit> {
        let output = if path == Path::new("-") {
            Output::Stdout
        } else {
            Output::File(Box::new(file::LogFile::open(path, rotation, clock.clone())?))
        };
        let counts = Arc::new(Counts::default());
        let writer = Writer::start(output, counts.clone(), clock)?;
        Ok(Audit { writer: Some(writer), counts })
    }

    /// Writes what was handed over and ends. Blocks until it is done; what comes later is lost, and
    /// counted as that.
    pub fn close(&self) {
        if let Some(writer) = &self.writer {
            writer.close();
        }
    }

    /// Begins to write a request down.
    pub(crate) fn begin<'a>(
        &'a self,
        peer: &'a Peer,
        parts: &'a Parts,
        id: &'a HeaderValue,
        clock: &'a Clock,
    ) -> Record<'a> {
        let open = self.writer.as_ref().map(|writer| {
            let received = clock();
            Open { writer, peer, parts, id, clock, received, ending: Ending::Left }
        });
        Record { user: None, impersonated: None, info: None, decision: None, open, line: None }
    }

    /// What is counted, for `/metrics`.
    pub fn source(&self) -> Source {
        let counts = self.counts.clone();
        Box::new(move |out| counts.write(out))
    }
}

/// What is known of a request so far; the stages fill it in.
///
/// A record that is dropped before it is complete is of a client that left, and written down as that.
pub struct Record<'a> {
    /// What was asked for.
    pub info: Option<Info>,
    /// Who authenticated.
    pub user: Option<Arc<User>>,
    /// Whom they act as, if that is somebody else.
    pub impersonated: Option<Arc<User>>,
    /// What authorization said: whether it was allowed, and why.
    pub decision: Option<Decision>,
    /// Where and how to write it down; none if nobody wants to know.
    open: Option<Open<'a>>,
    /// The event, until there is room for it.
    line: Option<Vec<u8>>,
}

struct Open<'a> {
    writer: &'a Writer,
    peer: &'a Peer,
    parts: &'a Parts,
    id: &'a HeaderValue,
    clock: &'a Clock,
    received: OffsetDateTime,
    ending: Ending,
}

/// How a request ended.
enum Ending {
    /// With an answer.
    Answered { code: u16, watch: bool, answer: event::Answer },
    /// With a failure.
    Failed(Status),
    /// With a panic.
    Panicked,
    /// Not at all: the client left before.
    Left,
}

impl Record<'_> {
    /// The request was answered.
    pub fn answered(&mut self, response: &Response<Body>) {
        if let Some(open) = &mut self.open {
            open.ending = Ending::Answered {
                code: response.status().as_u16(),
                watch: matches!(response.body(), Body::Watch(_)),
                answer: event::Answer::read(&open.parts.method, response),
            };
        }
    }

    /// The request failed.
    pub fn failed(&mut self, error: &Error) {
        if let Some(open) = &mut self.open
            && !matches!(open.ending, Ending::Panicked)
        {
            open.ending = Ending::Failed(error.status());
        }
    }

    /// The request ended in a panic.
    pub fn panicked(&mut self) {
        if let Some(open) = &mut self.open {
            open.ending = Ending::Panicked;
        }
    }

    /// Hands the event over, now that it is known how the request ended. Waits while the writer has
    /// too much.
    pub async fn complete(&mut self) {
        let Some(writer) = self.open.as_ref().map(|open| open.writer) else { return };
        self.write();
        let room = writer.room(self.line.as_ref().map_or(0, Vec::len)).await;
        if let Some(line) = self.line.take() {
            writer.push(line, room);
        }
    }

    /// Makes the line; the request is written down once, whatever happens from here on.
    fn write(&mut self) {
        let Some(open) = self.open.take() else { return };
        self.line = Some(event::line(self, &open));
        self.open = Some(open);
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        let Some(writer) = self.open.as_ref().map(|open| open.writer) else { return };
        let left = self.open.as_ref().is_some_and(|open| matches!(open.ending, Ending::Left));
        if self.line.is_none() && left {
            self.write();
        }
        if let Some(line) = self.line.take() {
            writer.push_late(line);
        }
    }
}

#[cfg(test)]
mod tests;
