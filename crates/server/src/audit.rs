//! The audit log: one `audit.k8s.io/v1` event per request, at level Metadata.
//!
//! Includes requests that were rejected, failed, panicked or were abandoned by the client, and
//! requests from components of this process. A watch is logged when it has started. Events contain
//! no request or response bodies, no header except `User-Agent`, and no values of unknown query
//! parameters ([`uri`]).
//!
//! Unauthenticated callers cannot fill the log or push other events out of it: reads that they are
//! allowed, such as health, are logged only if [`AnonymousReads::Metadata`] is set, and all their
//! other events are rate-limited. The next event within the limit reports how many were suppressed.
//!
//! No event is dropped because the disk is slow: requests wait instead. When the disk fails, events
//! are lost, counted and reported in the log; [`AuditLogMode::BlockingStrict`] rejects requests
//! instead.

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

/// Destination of audit events; disabled by default. Dropping it flushes all queued events.
pub struct AuditLog {
    writer: Option<AuditWriter>,
    counts: Arc<AuditCounters>,
    mode: AuditLogMode,
    anonymous_reads: AnonymousReads,
    /// Rate limit on events caused by unauthenticated callers.
    limit: RateLimit,
}

/// Whether requests wait for their events; the names are those of kube-apiserver's
/// `--audit-log-mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditLogMode {
    /// Responds once the event is queued. Requests wait while the queue is full; unlike
    /// kube-apiserver, no event is dropped then.
    #[default]
    Batch,
    /// Responds once the event is written or its write has failed.
    Blocking,
    /// Like [`AuditLogMode::Blocking`], but also writes a `RequestReceived` event before the
    /// request has any effect, and rejects the request if that write fails.
    BlockingStrict,
}

/// Audit level of allowed, read-only, unauthenticated requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnonymousReads {
    /// Allowed anonymous reads produce no audit event.
    #[default]
    None,
    /// Allowed anonymous reads are logged like all other requests.
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
    /// Appends to a file, or writes to standard output if the path is `-`.
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

    /// Sets whether requests wait for their events.
    #[must_use]
    pub fn with_mode(self, mode: AuditLogMode) -> AuditLog {
        AuditLog { mode, ..self }
    }

    /// Sets whether allowed unauthenticated reads are logged.
    #[must_use]
    pub fn with_anonymous_reads(self, anonymous_reads: AnonymousReads) -> AuditLog {
        AuditLog { anonymous_reads, ..self }
    }

    /// Returns true if requests are rejected because events cannot be written.
    pub fn rejects_requests(&self) -> bool {
        self.mode == AuditLogMode::BlockingStrict && self.counts.is_failing()
    }

    /// Flushes queued events and stops the writer; blocks until done. Later events are lost and
    /// counted as lost.
    pub fn close(&self) {
        if let Some(writer) = &self.writer {
            writer.close();
        }
    }

    /// Starts the audit record of a request.
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

/// The audit record of a request; the handler chain fills it in.
///
/// A record dropped before completion means that the client disconnected, and is logged as such.
pub(crate) struct AuditRecord<'a> {
    /// Parsed path and verb; `None` until the request line is parsed.
    pub info: Option<RequestInfo>,
    /// Authenticated user before impersonation; `None` until authentication succeeds.
    pub user: Option<Arc<User>>,
    /// Impersonated user; `None` without impersonation.
    pub impersonated: Option<Arc<User>>,
    /// Authorization decision and its reason.
    pub decision: Option<Decision>,
    /// Destination of the event; `None` if the request is not audited.
    open: Option<OpenAuditRecord<'a>>,
    /// The encoded event, until the queue has room for it.
    line: Option<Vec<u8>>,
    /// Whether the logging decision has been made.
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
    /// No response: the client disconnected first.
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

    /// Records that the request handler panicked.
    pub(crate) fn panicked(&mut self) {
        if let Some(open) = &mut self.open {
            open.ending = RequestOutcome::Panicked;
        }
    }

    /// In strict mode, writes the `RequestReceived` event before the request has any effect. Fails
    /// if it cannot be written.
    pub(crate) async fn received(&self) -> Result<(), Error> {
        let Some(open) = &self.open else { return Ok(()) };
        if open.audit.mode != AuditLogMode::BlockingStrict || self.logging(open) != LoggingDecision::Always {
            return Ok(());
        }
        let line = event::line(self, open, event::AuditStage::RequestReceived);
        let room = open.writer.reserve(line.len()).await;
        open.writer.write(line, room).await.map_err(|kind| {
            let text = format!("rejected because the audit event could not be written: {kind}");
            Error::Unavailable(text)
        })
    }

    /// Queues the final event of the request. Waits while the writer's queue is full.
    pub(crate) async fn complete(&mut self) {
        let Some((writer, mode)) = self.open.as_ref().map(|open| (open.writer, open.audit.mode)) else {
            return;
        };
        self.write();
        let Some(length) = self.line.as_ref().map(Vec::len) else { return };
        let room = writer.reserve(length).await;
        let Some(line) = self.line.take() else { return };
        if mode == AuditLogMode::Batch {
            writer.push(line, room);
        } else {
            // The request has already taken effect: a failure is counted and reported, and the
            // response stands.
            let _ = writer.write(line, room).await;
        }
    }

    /// Encodes the event once, if it is to be logged.
    fn write(&mut self) {
        let Some(open) = &self.open else { return };
        if self.decided {
            return;
        }
        self.decided = true;
        let audit = open.audit;
        match self.logging(open) {
            LoggingDecision::Never => {}
            LoggingDecision::Always => self.line = Some(event::line(self, open, event::AuditStage::End(0))),
            LoggingDecision::Limited => {
                let line = event::line(self, open, event::AuditStage::End(audit.limit.suppressed()));
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
        let path = self.info.as_ref().is_some_and(|info| matches!(info.target, RequestTarget::Path));
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

#[derive(PartialEq, Eq)]
enum LoggingDecision {
    Never,
    /// Logged within the rate limit on unauthenticated requests.
    Limited,
    Always,
}

impl Drop for AuditRecord<'_> {
    fn drop(&mut self) {
        let Some(writer) = self.open.as_ref().map(|open| open.writer) else { return };
        let left = self.open.as_ref().is_some_and(|open| matches!(open.ending, RequestOutcome::Left));
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
