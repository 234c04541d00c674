//! State machine of a volume certificate: a function of its state, an event, the time and a random number.
//!
//! It performs no I/O. At most one [`RenewalAction::Obtain`] is under way. Nothing is final: refused requests are
//! retried with backoff, and the certificate that exists stays in use.
//!
//! It is not the state machine of node certificates, with which it shares `renewal`: see there. This one renews early
//! when the trust anchor of the certificate is not published any more, spreads renewals that are late together, and
//! reports overdue and expired certificates; it needs no credential, no template and no step to store.

#[cfg(test)]
mod tests;

use std::time::Duration;

use time::OffsetDateTime;

use crate::clock::ClockReading;
use crate::renewal::{CertificateAge, FailureClass, RenewalTimes, RetryPolicy, RetryState};

/// How often to check the wall clock, which may have jumped.
const LOOK: Duration = Duration::from_secs(60);
/// A renewal this late means that the host was suspended, probably together with others.
const LATE: Duration = Duration::from_secs(90);
/// Period over which late renewals are spread.
const SPREAD: Duration = Duration::from_secs(10);

/// Kubelet's message before the first issuance.
pub const NOT_YET: &str = "credential bundle is not issued yet";

/// State of one certificate and its renewal; performs no I/O.
pub struct RenewalStateMachine {
    pace: RetryPolicy,
    held: Option<RenewalSchedule>,
    /// Whether the held certificate no longer matches the definition.
    outdated: bool,
    phase: RenewalPhase,
    /// The key of the next request.
    next: RenewalKey,
    retries: RetryState,
    /// Consecutive certificates whose trust anchor was not published.
    orphans: u32,
    /// Consecutive certificates that replaced one of a tainted authority.
    taint_renewals: u32,
    why: Option<RenewalFailure>,
}

struct RenewalSchedule {
    times: RenewalTimes,
    refresh_at: OffsetDateTime,
    /// When to renew early, because the trust anchor was withdrawn.
    orphaned: Option<OffsetDateTime>,
    /// When to renew early, because the authority is tainted.
    tainted: Option<OffsetDateTime>,
    overdue_reported: bool,
    expired_reported: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum RenewalPhase {
    /// No renewal is due yet.
    Idle,
    /// A request is being submitted.
    Asking,
    /// A submitted request is pending.
    Waiting,
    /// The next attempt is delayed.
    Pausing { until: Duration },
}

#[derive(Clone, Debug, PartialEq)]
enum RenewalFailure {
    /// A transient failure, with its message.
    Transient(String),
    Refused(RequestRefusal),
}

/// The key of the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewalKey {
    /// The key of the pending request, or a new one if there is none.
    Begun,
    /// Generate a new key, whatever was used before.
    New,
}

/// The request failed, or the issued certificate is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// An approver denied the request with a `Denied` condition.
    Denied,
    /// The request failed, or what was issued is of no use.
    Failed,
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRefusal {
    /// Whether the request was denied or failed.
    pub by: RefusalKind,
    /// Name of the request and the reason that the signer gave.
    pub message: String,
}

/// An input of the state machine: time, a result, or an error.
#[derive(Clone, Debug, PartialEq)]
pub enum RenewalEvent {
    /// Nothing happened but the passing of time.
    Tick,
    /// Requests are impossible in this state; a task waits for it to change.
    Hindered(String),
    /// The request was created, or an earlier one was adopted.
    Asked,
    /// A valid certificate was issued.
    Issued(RenewalTimes),
    /// The held certificate was issued under none of the trust anchors that its signer publishes
    /// now.
    Orphaned,
    /// The held certificate was issued by a tainted authority, and is to be renewed at this time.
    Tainted(OffsetDateTime),
    /// The held certificate was issued under a published anchor, or none are published, and its authority is not
    /// tainted.
    Anchored,
    /// The request was denied, failed, or yielded an unusable certificate.
    Refused(RequestRefusal),
    /// The request was deleted, for this reason.
    Gone(String),
    /// The request could not be submitted.
    Failed {
        /// The error message, shown to the pod and logged.
        message: String,
        /// Whether the failure is permanent, as far as is known.
        lasting: bool,
    },
}

/// An action that the driver performs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RenewalAction {
    /// Request a certificate and wait for it.
    Obtain(RenewalKey),
    /// Report a notice as an event.
    Notify(RenewalNotice),
}

/// A condition of the certificate to report as a Kubernetes event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RenewalNotice {
    /// The request was denied, or the signer failed it.
    Refused(RequestRefusal),
    /// The certificate was not renewed in time.
    Overdue,
    /// The certificate expired before it was renewed.
    Expired,
}

impl RenewalStateMachine {
    /// Starts from the loaded state. `outdated` is whether it does not match the definition.
    pub fn new(pace: RetryPolicy, found: Option<RenewalTimes>, outdated: bool, random: f64) -> Self {
        Self {
            pace,
            held: found.map(|times| RenewalSchedule::new(times, random)),
            outdated,
            phase: RenewalPhase::Idle,
            next: RenewalKey::Begun,
            retries: RetryState::new(pace),
            orphans: 0,
            taint_renewals: 0,
            why: None,
        }
    }

    /// Handles an event and returns the actions to perform. `random` is from 0 to 1.
    pub fn step(&mut self, event: RenewalEvent, now: ClockReading, random: f64) -> Vec<RenewalAction> {
        let mut actions = self.report_age(now);
        match event {
            RenewalEvent::Tick => actions.extend(self.tick(now, random)),
            RenewalEvent::Hindered(why) => self.why = Some(RenewalFailure::Transient(why)),
            RenewalEvent::Asked => {
                self.phase = RenewalPhase::Waiting;
                self.retries.clear_transient();
                if matches!(self.why, Some(RenewalFailure::Transient(_))) {
                    self.why = None;
                }
            }
            RenewalEvent::Issued(times) => self.issued(times, now, random),
            RenewalEvent::Orphaned => self.orphaned(now, random),
            RenewalEvent::Tainted(at) => self.tainted(at, now, random),
            RenewalEvent::Anchored => self.anchored(),
            RenewalEvent::Refused(refusal) => {
                self.next = RenewalKey::New;
                actions.push(RenewalAction::Notify(RenewalNotice::Refused(refusal.clone())));
                self.refused(RenewalFailure::Refused(refusal), now, random);
            }
            RenewalEvent::Gone(why) => self.refused(RenewalFailure::Transient(why), now, random),
            RenewalEvent::Failed { message, lasting: true } => {
                self.refused(RenewalFailure::Transient(message), now, random);
            }
            RenewalEvent::Failed { message, lasting: false } => {
                let pause = self.retries.fail(FailureClass::Transient, random);
                self.why = Some(RenewalFailure::Transient(message));
                self.pause(pause, now);
            }
        }
        actions
    }

    /// Returns the time until the next step without an event.
    pub fn idle_for(&self, now: ClockReading) -> Duration {
        let due = match (self.phase, &self.held) {
            (RenewalPhase::Idle, Some(held)) if !self.outdated => {
                Duration::try_from(held.renew_at() - now.wall).unwrap_or_default()
            }
            (RenewalPhase::Idle, _) => Duration::ZERO,
            (RenewalPhase::Pausing { until }, _) => until.saturating_sub(now.since),
            (RenewalPhase::Asking | RenewalPhase::Waiting, _) => LOOK,
        };
        due.min(LOOK)
    }

    /// Returns why there is no certificate, for the pod.
    pub fn reason(&self) -> &str {
        match &self.why {
            None => NOT_YET,
            Some(
                RenewalFailure::Transient(message) | RenewalFailure::Refused(RequestRefusal { message, .. }),
            ) => message,
        }
    }

    /// Returns who refused it, if that is the reason.
    pub fn refusal_kind(&self) -> Option<RefusalKind> {
        match &self.why {
            Some(RenewalFailure::Refused(refusal)) => Some(refusal.by),
            Some(RenewalFailure::Transient(_)) | None => None,
        }
    }

    fn tick(&mut self, now: ClockReading, random: f64) -> Option<RenewalAction> {
        match self.phase {
            RenewalPhase::Asking | RenewalPhase::Waiting => None,
            RenewalPhase::Idle | RenewalPhase::Pausing { .. } if !self.is_due(now) => {
                // The clock was wrong, so renewal is not due.
                self.phase = RenewalPhase::Idle;
                None
            }
            RenewalPhase::Idle if self.is_late(now) => {
                self.pause(SPREAD.mul_f64(random.clamp(0.0, 1.0)), now);
                None
            }
            RenewalPhase::Pausing { until } if now.since < until => None,
            RenewalPhase::Idle | RenewalPhase::Pausing { .. } => {
                self.phase = RenewalPhase::Asking;
                Some(RenewalAction::Obtain(std::mem::replace(&mut self.next, RenewalKey::Begun)))
            }
        }
    }

    /// Returns whether another certificate is needed.
    fn is_due(&self, now: ClockReading) -> bool {
        self.outdated || self.held.as_ref().is_none_or(|held| held.renew_at() <= now.wall)
    }

    /// Returns whether it was due long ago, so that others probably are as well.
    fn is_late(&self, now: ClockReading) -> bool {
        self.held.as_ref().is_some_and(|held| held.renew_at() + LATE < now.wall)
    }

    fn issued(&mut self, times: RenewalTimes, now: ClockReading, random: f64) {
        let was_tainted = self.held.as_ref().is_some_and(|held| held.tainted.is_some());
        self.taint_renewals = if was_tainted { self.taint_renewals.saturating_add(1) } else { 0 };
        self.held = Some(RenewalSchedule::new(times, random));
        self.outdated = false;
        self.next = RenewalKey::New;
        (self.phase, self.why) = (RenewalPhase::Idle, None);
        self.retries.clear_transient();
        if self.is_due(now) {
            // It is due for renewal already, and so may be the next.
            let pause = self.retries.fail(FailureClass::Refused, random);
            self.pause(pause, now);
        } else {
            self.retries.clear_refused();
        }
    }

    /// Schedules an early renewal, because verifiers no longer accept the certificate: with jitter,
    /// and with backoff if the next one is not under a published anchor either.
    fn orphaned(&mut self, now: ClockReading, random: f64) {
        let Some(held) = &mut self.held else { return };
        let pause = match self.orphans.checked_sub(1) {
            None => self.pace.orphan_spread.mul_f64(random.clamp(0.0, 1.0)),
            Some(earlier) => self.pace.refusal.delay(earlier, random),
        };
        self.orphans = self.orphans.saturating_add(1);
        held.orphaned = Some(now.wall + pause);
    }

    /// Schedules an early renewal at this time, or with backoff if the signer issued a certificate of a tainted
    /// authority again.
    fn tainted(&mut self, at: OffsetDateTime, now: ClockReading, random: f64) {
        self.orphans = 0;
        let Some(held) = &mut self.held else { return };
        held.orphaned = None;
        held.tainted = Some(match self.taint_renewals.checked_sub(1) {
            None => at,
            Some(earlier) => now.wall + self.retries.refusal_delay(earlier, random),
        });
    }

    fn anchored(&mut self) {
        (self.orphans, self.taint_renewals) = (0, 0);
        if let Some(held) = &mut self.held {
            (held.orphaned, held.tainted) = (None, None);
        }
    }

    fn refused(&mut self, why: RenewalFailure, now: ClockReading, random: f64) {
        let pause = self.retries.fail(FailureClass::Refused, random);
        self.why = Some(why);
        self.pause(pause, now);
    }

    fn pause(&mut self, pause: Duration, now: ClockReading) {
        self.phase = RenewalPhase::Pausing { until: now.since.saturating_add(pause) };
    }

    /// Reports an overdue or expired certificate, once for each age.
    fn report_age(&mut self, now: ClockReading) -> Vec<RenewalAction> {
        let Some(held) = &mut self.held else { return Vec::new() };
        let (reported, notice) = match held.times.age(now.wall) {
            CertificateAge::Fresh => return Vec::new(),
            CertificateAge::Overdue => (&mut held.overdue_reported, RenewalNotice::Overdue),
            CertificateAge::Expired => (&mut held.expired_reported, RenewalNotice::Expired),
        };
        if std::mem::replace(reported, true) { Vec::new() } else { vec![RenewalAction::Notify(notice)] }
    }
}

impl RenewalSchedule {
    fn new(times: RenewalTimes, random: f64) -> Self {
        let refresh_at = times.refresh_at(random);
        Self {
            times,
            refresh_at,
            orphaned: None,
            tainted: None,
            overdue_reported: false,
            expired_reported: false,
        }
    }

    /// Returns when to renew the certificate.
    fn renew_at(&self) -> OffsetDateTime {
        self.orphaned.into_iter().chain(self.tainted).fold(self.refresh_at, OffsetDateTime::min)
    }
}
