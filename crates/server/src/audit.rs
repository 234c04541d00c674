//! The audit log: one `audit.k8s.io/v1` event for every request, at the level Metadata.
//!
//! Requests that were refused, failed, panicked, or whose client left are in it, and so are those of parts
//! of this process. A watch is logged when it has started. What a request or an answer
//! carries is not in an event, nor is any header but `User-Agent`, nor what an unknown query
//! parameter says ([`uri`]).
//!
//! Callers without a credential cannot fill the log, nor push others' events out of it: what they are allowed
//! to read, such as health, is logged only if [`AnonymousReads::Metadata`] is set, and everything else that
//! they can bring about is limited to a rate. The next event that fits says how many were left out.
//!
//! No event is dropped because the disk is slow: requests then wait for it. When the disk fails, events are
//! lost, counted and reported in the log; [`AuditLogMode::BlockingStrict`] rejects requests instead.

mod event;
mod file;
mod source_ips;
mod uri;
mod writer;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use http::request::Parts;
use http::{HeaderValue, Response};
use time::OffsetDateTime;
use windlass_api::status::Status;
use windlass_runtime::metrics::MetricsRegistry;

pub use file::LogRotation;

use crate::body::ResponseBody;
use crate::chain::authz::Decision;
use crate::error::Error;
use crate::limits;
use crate::peer::Peer;
use crate::rate_limit::RateLimit;
use crate::request::info::{RequestInfo, RequestTarget};
use crate::server::Clock;
use crate::user::{ANONYMOUS, UNAUTHENTICATED, User};

use writer::{AuditCounters, AuditOutput, AuditWriter};

/// Where events go; nowhere by default. When dropped, everything that was handed over is written.
pub struct AuditLog {
    writer: Option<AuditWriter>,
    counts: Arc<AuditCounters>,
    mode: AuditLogMode,
    anonymous_reads: AnonymousReads,
    /// On events that callers without a credential bring about.
    limit: RateLimit,
}

/// How requests and their events depend on each other; the names are those of kube-apiserver's
/// `--audit-log-mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditLogMode {
    /// A request is answered when its event is queued. Requests wait while the queue is full; unlike in
    /// kube-apiserver, no event is dropped for that.
    #[default]
    Batch,
    /// A request is answered when its event is written, or could not be.
    Blocking,
    /// As [`AuditLogMode::Blocking`], and an event of the stage `RequestReceived` is written before the request has
    /// any effect. If that fails, the request is rejected.
    BlockingStrict,
}

/// The level of requests without a credential that only read, and are allowed to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnonymousReads {
    /// Allowed anonymous reads produce no audit event.
    #[default]
    None,
    /// They are logged like all others.
    Metadata,
}

impl Default for AuditLog {
    fn default() -> AuditLog {
        AuditLog {
            writer: None,
            counts: Arc::default(),
            mode: AuditLogMode::default(),
            anonymous_reads: AnonymousReads::default(),
            limit: RateLimit::new(limits::AUDIT_ANONYMOUS_BURST, limits::AUDIT_ANONYMOUS_RATE),
        }
    }
}

impl AuditLog {
    /// To a file that is added to, or with the path `-` to standard output.
    pub fn to_file(path: &Path, rotation: LogRotation, clock: Clock) -> io::Result<AuditLog> {
        let output = if path == Path::new("-") {
            AuditOutput::Stdout
        } else {
            AuditOutput::File(Box::new(file::LogFile::open(path, rotation, clock.clone())?))
        };
        let counts = Arc::new(AuditCounters::default());
        let writer = AuditWriter::start(output, counts.clone(), clock)?;
        Ok(AuditLog { writer: Some(writer), counts, ..AuditLog::default() })
    }

    /// Sets how requests and their events depend on each other.
    #[must_use]
    pub fn with_mode(self, mode: AuditLogMode) -> AuditLog {
        AuditLog { mode, ..self }
    }

    /// Sets whether permitted reads without a credential are logged.
    #[must_use]
    pub fn with_anonymous_reads(self, anonymous_reads: AnonymousReads) -> AuditLog {
        AuditLog { anonymous_reads, ..self }
    }

    /// Whether requests are rejected because events cannot be written.
    pub fn rejects_requests(&self) -> bool {
        self.mode == AuditLogMode::BlockingStrict && self.counts.is_failing()
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
    ) -> AuditRecord<'a> {
        let open = self.writer.as_ref().map(|writer| {
            let received = clock();
            OpenAuditRecord {
                audit: self,
                writer,
                peer,
                parts,
                id,
                clock,
                received,
                ending: RequestOutcome::Left,
            }
        });
        AuditRecord {
            user: None,
            impersonated: None,
            info: None,
            decision: None,
            open,
            line: None,
            decided: false,
        }
    }

    /// Registers the counts of events.
    pub(crate) fn register_metrics(&self, registry: &MetricsRegistry) {
        self.counts.register(registry);
    }
}

/// What is known of a request so far; the stages fill it in.
///
/// A record that is dropped before it is complete is of a client that left, and written down as that.
pub(crate) struct AuditRecord<'a> {
    /// Parsed path and verb; `None` until the request line is parsed.
    pub info: Option<RequestInfo>,
    /// Authenticated user before impersonation; `None` until authentication succeeds.
    pub user: Option<Arc<User>>,
    /// Whom they act as, if that is somebody else.
    pub impersonated: Option<Arc<User>>,
    /// What authorization said: whether it was allowed, and why.
    pub decision: Option<Decision>,
    /// Where and how to write it down; none if nobody wants to know.
    open: Option<OpenAuditRecord<'a>>,
    /// The event, until there is room for it.
    line: Option<Vec<u8>>,
    /// Whether it was decided already if there is to be a line.
    decided: bool,
}

struct OpenAuditRecord<'a> {
    audit: &'a AuditLog,
    writer: &'a AuditWriter,
    peer: &'a Peer,
    parts: &'a Parts,
    id: &'a HeaderValue,
    clock: &'a Clock,
    received: OffsetDateTime,
    ending: RequestOutcome,
}

enum RequestOutcome {
    Answered {
        code: u16,
        watch: bool,
        answer: event::ResponseSummary,
    },
    Failed(Status),
    Panicked,
    /// Not at all: the client left before.
    Left,
}

impl AuditRecord<'_> {
    /// Records the status code and the audited parts of `response`.
    pub(crate) fn answered(&mut self, response: &Response<ResponseBody>) {
        if let Some(open) = &mut self.open {
            open.ending = RequestOutcome::Answered {
                code: response.status().as_u16(),
                watch: matches!(response.body(), ResponseBody::Watch(_)),
                answer: event::ResponseSummary::from_response(&open.parts.method, response),
            };
        }
    }

    /// Records the `Status` that `error` is reported to the client as.
    pub(crate) fn failed(&mut self, error: &Error) {
        if let Some(open) = &mut self.open
            && !matches!(open.ending, RequestOutcome::Panicked)
        {
            open.ending = RequestOutcome::Failed(error.status());
        }
    }

    /// The request ended in a panic.
    pub(crate) fn panicked(&mut self) {
        if let Some(open) = &mut self.open {
            open.ending = RequestOutcome::Panicked;
        }
    }

    /// In strict mode, writes that the request was received, before it has any effect. Fails if that could
    /// not be written.
    pub(crate) async fn received(&self) -> Result<(), Error> {
        let Some(open) = &self.open else { return Ok(()) };
        if open.audit.mode != AuditLogMode::BlockingStrict
            || self.logging(open) != LoggingDecision::Always
        {
            return Ok(());
        }
        let line = event::line(self, open, event::AuditStage::RequestReceived);
        let room = open.writer.reserve(line.len()).await;
        open.writer.write(line, room).await.map_err(|kind| {
            let text = format!("rejected because the audit event could not be written: {kind}");
            Error::Unavailable(text)
        })
    }

    /// Hands the event over, now that it is known how the request ended. Waits while the writer has
    /// too much.
    pub(crate) async fn complete(&mut self) {
        let Some((writer, mode)) = self.open.as_ref().map(|open| (open.writer, open.audit.mode))
        else {
            return;
        };
        self.write();
        let Some(length) = self.line.as_ref().map(Vec::len) else { return };
        let room = writer.reserve(length).await;
        let Some(line) = self.line.take() else { return };
        if mode == AuditLogMode::Batch {
            writer.push(line, room);
        } else {
            // The request has been done: a failure is counted and reported, and the answer stands.
            let _ = writer.write(line, room).await;
        }
    }

    /// Makes the line, if there is to be one, once.
    fn write(&mut self) {
        let Some(open) = &self.open else { return };
        if self.decided {
            return;
        }
        self.decided = true;
        let audit = open.audit;
        match self.logging(open) {
            LoggingDecision::Never => {}
            LoggingDecision::Always => {
                self.line = Some(event::line(self, open, event::AuditStage::End(0)))
            }
            LoggingDecision::Limited => {
                let line =
                    event::line(self, open, event::AuditStage::End(audit.limit.suppressed()));
                match audit.limit.admit(writer::permits_for(line.len()), Instant::now()) {
                    Some(_) => self.line = Some(line),
                    None => audit.counts.suppressed(),
                }
            }
        }
    }

    fn logging(&self, open: &OpenAuditRecord<'_>) -> LoggingDecision {
        let reads = matches!(open.parts.method.as_str(), "GET" | "HEAD" | "OPTIONS");
        let allowed = self.decision.as_ref().is_some_and(Decision::is_allowed);
        let path =
            self.info.as_ref().is_some_and(|info| matches!(info.target, RequestTarget::Path));
        match &self.user {
            Some(user) if !user.has_group(UNAUTHENTICATED) && user.name != ANONYMOUS => {
                LoggingDecision::Always
            }
            Some(_) if allowed && !reads => LoggingDecision::Always,
            Some(_) if allowed && path && open.audit.anonymous_reads == AnonymousReads::None => {
                LoggingDecision::Never
            }
            Some(_) | None => LoggingDecision::Limited,
        }
    }
}

/// Whether a request is logged.
#[derive(PartialEq, Eq)]
enum LoggingDecision {
    Never,
    /// Within the limit on requests without a credential.
    Limited,
    Always,
}

impl Drop for AuditRecord<'_> {
    fn drop(&mut self) {
        let Some(writer) = self.open.as_ref().map(|open| open.writer) else { return };
        let left =
            self.open.as_ref().is_some_and(|open| matches!(open.ending, RequestOutcome::Left));
        if left {
            self.write();
        }
        if let Some(line) = self.line.take() {
            writer.push_late(line);
        }
    }
}

#[cfg(test)]
mod tests;
