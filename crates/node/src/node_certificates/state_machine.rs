//! State machine of a node certificate: a function of its state, an event, the time and a random number.
//!
//! It performs no I/O. At most one [`RotationAction::Obtain`] or [`RotationAction::Store`] is under way, so at most
//! one request is outstanding.
//!
//! It is not the state machine of volume certificates, with which it shares `renewal`. A node certificate is also the
//! credential for its own renewal, so this one chooses between the certificate and the bootstrap credential; it has a
//! template that changes with the node's addresses; storing is a separate step, because kubelet's files are the
//! only copy; and the number of requests is limited per node. Volume certificates have none of these, but follow the
//! published trust anchors and report their age to pods.

mod failure_response;
mod schedule;

use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;

use super::report::{
    CertificateFailure, FailureCause, ManagerActivity, NodeCertificateReport, RotationNotice,
};
use windlass_runtime::rate_limit::TokenBucket;

use crate::clock::{self, ClockReading};
use crate::credential_monitor::CertificateRejection;
use crate::csr::CsrStage;
use crate::key_pair::CertificateKeyPair;
use crate::renewal::{RetryPolicy, RetryState};
use crate::template::{CertificatePurpose, CertificateTemplate};

use failure_response::{failure_class, key_after, rejection_failure};
use schedule::{RotationSchedule, serial_text};

/// How often to check the wall clock, which may have jumped.
const LOOK: Duration = Duration::from_secs(10);

/// The state of one node certificate and of its rotation; performs no I/O.
pub struct RotationStateMachine {
    purpose: CertificatePurpose,
    held: Option<RotationSchedule>,
    template: Option<CertificateTemplate>,
    phase: RotationPhase,
    budget: TokenBucket,
    retries: RetryState,
    /// Whether to request with the other credential than usual.
    other_credential: bool,
    trouble: Option<CertificateFailure>,
    errors: u64,
    stored: u64,
    rejections: u64,
    /// Consecutive certificates that replaced one of a tainted authority.
    taint_renewals: u32,
    warnings: Vec<String>,
}

enum RotationPhase {
    /// Nothing needs to be done yet.
    Idle,
    /// A request is being submitted.
    Asking { template: CertificateTemplate, key: RotationKey },
    /// A submitted request is pending.
    Waiting { template: CertificateTemplate, request: String, stage: CsrStage, since: OffsetDateTime },
    /// A certificate is being stored.
    Storing { template: CertificateTemplate, identity: Arc<CertificateKeyPair> },
    /// The next attempt is delayed after a failure or by the rate limit.
    Pausing { until: Duration, announced: OffsetDateTime, next: RotationStep },
}

enum RotationStep {
    Begin(RotationKey),
    /// Continue or repeat the pending request.
    Ask(RotationKey),
    Store {
        template: CertificateTemplate,
        identity: Arc<CertificateKeyPair>,
    },
}

/// The key of the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotationKey {
    /// The pending key on disk, if there is one.
    Kept,
    /// Generate a new key, in place of a stored pending key.
    Fresh,
}

/// The credential with which a certificate request is authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequesterCredential {
    /// The node's own client certificate.
    Own,
    /// The bootstrap credential, for a node without a certificate.
    Bootstrap,
}

/// An input of the state machine: time, a template, or a result.
#[derive(Debug)]
pub enum RotationEvent {
    /// Nothing happened but the passing of time.
    Tick,
    /// The required content of the certificate changed.
    Template(Option<CertificateTemplate>),
    /// A request of this name was submitted.
    Asked(String),
    /// What the pending request waits for.
    Stage(CsrStage),
    /// A certificate for our key was issued.
    Issued(Arc<CertificateKeyPair>),
    /// The certificate is on disk and current.
    Stored,
    /// The server rejects the certificate of the node, or no longer does.
    Rejection(Option<CertificateRejection>),
    /// The certificate was issued by a tainted authority, and is to be renewed at this time; `None` if not.
    Tainted(Option<OffsetDateTime>),
    /// The current action failed, for this reason.
    Failed(CertificateFailure),
}

/// An action that the manager performs.
#[derive(Debug)]
pub enum RotationAction {
    /// Request a certificate and wait for it.
    Obtain {
        /// Whether to use the pending key on disk or a new one.
        key: RotationKey,
        /// The credential to authenticate the request with.
        credential: RequesterCredential,
        /// Subject and names that the certificate must contain.
        template: CertificateTemplate,
    },
    /// Stop waiting for the current request.
    Cancel,
    /// Write a certificate to disk.
    Store(Arc<CertificateKeyPair>),
    /// Publish the certificate to all users.
    Publish(Arc<CertificateKeyPair>),
    /// Report a notice as an event.
    Notify(RotationNotice),
}

impl RotationStateMachine {
    /// Creates a state machine that starts from the certificate on disk.
    pub fn new(
        purpose: CertificatePurpose,
        pace: RetryPolicy,
        found: Option<Arc<CertificateKeyPair>>,
        warnings: Vec<String>,
        random: f64,
    ) -> Self {
        Self {
            purpose,
            held: found.map(|identity| RotationSchedule::new(identity, random)),
            template: None,
            phase: RotationPhase::Idle,
            budget: TokenBucket::new(pace.requests),
            retries: RetryState::new(pace),
            other_credential: false,
            trouble: None,
            errors: 0,
            stored: 0,
            rejections: 0,
            taint_renewals: 0,
            warnings,
        }
    }

    /// Handles an event and returns the actions to perform. `random` is from 0 to 1.
    pub fn step(&mut self, event: RotationEvent, now: ClockReading, random: f64) -> Vec<RotationAction> {
        match event {
            RotationEvent::Tick => self.tick(now),
            RotationEvent::Template(template) => self.update_template(template, now),
            RotationEvent::Asked(request) => self.submitted(request, now),
            RotationEvent::Stage(stage) => {
                self.retries.clear_transient();
                if let RotationPhase::Waiting { stage: before, .. } = &mut self.phase {
                    *before = stage;
                }
                Vec::new()
            }
            RotationEvent::Issued(identity) => self.issued(identity, now, random),
            RotationEvent::Stored => self.activate(now, random),
            RotationEvent::Rejection(rejection) => self.update_rejection(rejection.as_ref(), now),
            RotationEvent::Tainted(at) => self.update_taint(at, now, random),
            RotationEvent::Failed(trouble) => self.failed(trouble, now, random),
        }
    }

    /// Returns the time until the next step without an event.
    pub fn idle_for(&self, now: ClockReading) -> Duration {
        let due = match (&self.phase, &self.held) {
            (RotationPhase::Pausing { until, .. }, _) => until.saturating_sub(now.since),
            (RotationPhase::Idle, Some(held)) => {
                Duration::try_from(held.renew_at() - now.wall).unwrap_or_default()
            }
            _ => LOOK,
        };
        // A missing template delays a due request, and must not cause a busy loop.
        if self.template.is_none() { LOOK } else { due.min(LOOK) }
    }

    /// Returns a snapshot for metrics, the status file and events.
    pub fn report(&self) -> NodeCertificateReport {
        let doing = match &self.phase {
            RotationPhase::Idle if self.template.is_none() => ManagerActivity::Unspecified,
            RotationPhase::Idle => ManagerActivity::Holding,
            RotationPhase::Asking { .. } => ManagerActivity::Asking,
            RotationPhase::Waiting { request, stage, since, .. } => {
                ManagerActivity::Waiting { request: request.clone(), stage: *stage, since: *since }
            }
            RotationPhase::Storing { .. } => ManagerActivity::Storing,
            RotationPhase::Pausing { announced, .. } => ManagerActivity::Pausing { until: *announced },
        };
        NodeCertificateReport {
            purpose: self.purpose,
            held: self.held.as_ref().map(|held| held.report(self.template.as_ref())),
            doing,
            trouble: self.trouble.clone(),
            errors: self.errors,
            stored: self.stored,
            rejections: self.rejections,
            warnings: self.warnings.clone(),
        }
    }

    fn tick(&mut self, now: ClockReading) -> Vec<RotationAction> {
        match &self.phase {
            RotationPhase::Idle => self.request_if_due(RotationKey::Kept, now),
            RotationPhase::Pausing { next: RotationStep::Begin(_) | RotationStep::Ask(_), .. }
                if !self.is_due(now) =>
            {
                // The clock was wrong, or the names changed back.
                self.phase = RotationPhase::Idle;
                self.request_if_due(RotationKey::Kept, now)
            }
            RotationPhase::Pausing { next: RotationStep::Store { identity, .. }, .. }
                if !identity.is_valid_at(now.wall) =>
            {
                self.phase = RotationPhase::Idle;
                self.request_if_due(RotationKey::Fresh, now)
            }
            RotationPhase::Pausing { until, .. } if *until <= now.since => self.resume(now),
            RotationPhase::Pausing { .. }
            | RotationPhase::Asking { .. }
            | RotationPhase::Waiting { .. }
            | RotationPhase::Storing { .. } => Vec::new(),
        }
    }

    /// Resumes the step that was delayed.
    fn resume(&mut self, now: ClockReading) -> Vec<RotationAction> {
        match std::mem::replace(&mut self.phase, RotationPhase::Idle) {
            RotationPhase::Pausing { next: RotationStep::Begin(key), .. } => self.request_if_due(key, now),
            RotationPhase::Pausing { next: RotationStep::Ask(key), .. } => self.obtain(key, now),
            RotationPhase::Pausing { next: RotationStep::Store { template, identity }, .. } => {
                self.store(template, identity)
            }
            phase => {
                self.phase = phase;
                Vec::new()
            }
        }
    }

    /// Returns whether another certificate is needed.
    fn is_due(&self, now: ClockReading) -> bool {
        let Some(template) = &self.template else { return false };
        self.held.as_ref().is_none_or(|held| {
            now.wall >= held.renew_at()
                || !held.is_usable(now)
                || template.lacking(held.identity.leaf()).is_some()
        })
    }

    /// Requests a certificate if one is needed, within the rate limit.
    fn request_if_due(&mut self, key: RotationKey, now: ClockReading) -> Vec<RotationAction> {
        if !self.is_due(now) {
            // A certificate that is not needed cannot have failed.
            self.trouble = None;
            return Vec::new();
        }
        match self.budget.take(now.since) {
            Ok(()) => self.obtain(key, now),
            Err(wait) => {
                self.pause(wait, RotationStep::Begin(key), now);
                Vec::new()
            }
        }
    }

    fn obtain(&mut self, key: RotationKey, now: ClockReading) -> Vec<RotationAction> {
        let Some(template) = self.template.clone() else { return Vec::new() };
        let credential = self.credential(now);
        self.phase = RotationPhase::Asking { template: template.clone(), key };
        vec![RotationAction::Obtain { key, credential, template }]
    }

    fn credential(&self, now: ClockReading) -> RequesterCredential {
        if self.purpose == CertificatePurpose::Serving {
            return RequesterCredential::Own;
        }
        let Some(held) = &self.held else { return RequesterCredential::Bootstrap };
        if held.rejected_since.is_some() {
            return RequesterCredential::Bootstrap;
        }
        match held.identity.is_valid_at(now.wall) != self.other_credential {
            true => RequesterCredential::Own,
            false => RequesterCredential::Bootstrap,
        }
    }

    /// Replaces a certificate that the server rejects, with a new key, because the old one may be known to others.
    fn update_rejection(
        &mut self,
        rejection: Option<&CertificateRejection>,
        now: ClockReading,
    ) -> Vec<RotationAction> {
        let Some(held) = &mut self.held else { return Vec::new() };
        let rejection = rejection.filter(|one| Arc::ptr_eq(&one.identity, &held.identity));
        let was_rejected = held.rejected_since.is_some();
        held.rejected_since = rejection.map(|one| one.since);
        let Some(since) = held.rejected_since.filter(|_| !was_rejected) else {
            return self.tick(now);
        };
        self.rejections = self.rejections.saturating_add(1);
        let trouble = rejection_failure(&serial_text(&held.identity), since, held.identity.expires());
        let mut actions = vec![RotationAction::Notify(RotationNotice::Failed(trouble.clone()))];
        self.trouble = Some(trouble);
        match &self.phase {
            // A certificate has been issued already.
            RotationPhase::Storing { .. }
            | RotationPhase::Pausing { next: RotationStep::Store { .. }, .. } => return actions,
            // This ends soon, and then the bootstrap credential is used.
            RotationPhase::Asking { .. } => return actions,
            // The rejected certificate authenticates it, so that it cannot complete.
            RotationPhase::Waiting { .. } => actions.push(RotationAction::Cancel),
            RotationPhase::Idle | RotationPhase::Pausing { .. } => {}
        }
        self.retries.clear_transient();
        self.phase = RotationPhase::Idle;
        actions.extend(self.request_if_due(RotationKey::Fresh, now));
        actions
    }

    /// Renews a certificate of a tainted authority at this time, or with backoff if the signer issued one of a tainted
    /// authority again.
    fn update_taint(
        &mut self,
        at: Option<OffsetDateTime>,
        now: ClockReading,
        random: f64,
    ) -> Vec<RotationAction> {
        if at.is_none() {
            self.taint_renewals = 0;
        }
        let delay =
            self.taint_renewals.checked_sub(1).map(|earlier| self.retries.refusal_delay(earlier, random));
        let Some(held) = &mut self.held else { return Vec::new() };
        held.taint_at = at.map(|at| delay.map_or(at, |delay| now.wall + delay));
        self.tick(now)
    }

    fn update_template(
        &mut self,
        template: Option<CertificateTemplate>,
        now: ClockReading,
    ) -> Vec<RotationAction> {
        let changed = template.is_some() && template != self.template;
        self.template = template;
        if !changed {
            return Vec::new();
        }
        match &self.phase {
            RotationPhase::Idle => self.request_if_due(RotationKey::Kept, now),
            // The refused request was for another template.
            RotationPhase::Pausing { next: RotationStep::Begin(_) | RotationStep::Ask(_), .. } => {
                self.retries.clear_transient();
                self.retries.clear_refused();
                self.phase = RotationPhase::Idle;
                self.request_if_due(RotationKey::Fresh, now)
            }
            RotationPhase::Waiting { template, .. } if Some(template) != self.template.as_ref() => {
                self.phase = RotationPhase::Idle;
                let mut actions = vec![RotationAction::Cancel];
                actions.extend(self.request_if_due(RotationKey::Fresh, now));
                actions
            }
            // These phases end soon, and then the template is checked.
            RotationPhase::Pausing { .. }
            | RotationPhase::Waiting { .. }
            | RotationPhase::Asking { .. }
            | RotationPhase::Storing { .. } => Vec::new(),
        }
    }

    fn submitted(&mut self, request: String, now: ClockReading) -> Vec<RotationAction> {
        let RotationPhase::Asking { template, .. } = &self.phase else { return Vec::new() };
        let template = template.clone();
        let is_wanted = self.template.as_ref().is_none_or(|wanted| *wanted == template);
        let stage = CsrStage::Approval;
        self.phase = RotationPhase::Waiting { template, request, stage, since: now.wall };
        if is_wanted {
            return Vec::new();
        }
        // The template changed while the request was being submitted.
        self.phase = RotationPhase::Idle;
        let mut actions = vec![RotationAction::Cancel];
        actions.extend(self.request_if_due(RotationKey::Fresh, now));
        actions
    }

    fn issued(
        &mut self,
        identity: Arc<CertificateKeyPair>,
        now: ClockReading,
        random: f64,
    ) -> Vec<RotationAction> {
        let template = match &self.phase {
            RotationPhase::Asking { template, .. } | RotationPhase::Waiting { template, .. } => {
                template.clone()
            }
            RotationPhase::Idle | RotationPhase::Storing { .. } | RotationPhase::Pausing { .. } => {
                return Vec::new();
            }
        };
        let expires = identity.expires();
        if !identity.is_valid_at(now.wall) {
            // Without the present time: a message that always changes would always be reported.
            let message = format!(
                "the issued certificate expired at {}, according to the local clock",
                clock::text(expires)
            );
            return self.failed(
                CertificateFailure { cause: FailureCause::BadCertificate, message },
                now,
                random,
            );
        }
        // A certificate with missing names is better than none, but does not replace a complete
        // one.
        if let Some(lacking) = template.lacking(identity.leaf())
            && self
                .held
                .as_ref()
                .is_some_and(|held| held.is_usable(now) && template.lacking(held.identity.leaf()).is_none())
        {
            let message = format!("the issued certificate lacks {lacking}; not using it");
            return self.failed(
                CertificateFailure { cause: FailureCause::NamesMissing, message },
                now,
                random,
            );
        }
        self.store(template, identity)
    }

    fn store(
        &mut self,
        template: CertificateTemplate,
        identity: Arc<CertificateKeyPair>,
    ) -> Vec<RotationAction> {
        self.phase = RotationPhase::Storing { template, identity: identity.clone() };
        vec![RotationAction::Store(identity)]
    }

    fn activate(&mut self, now: ClockReading, random: f64) -> Vec<RotationAction> {
        let phase = std::mem::replace(&mut self.phase, RotationPhase::Idle);
        let RotationPhase::Storing { template, identity } = phase else {
            self.phase = phase;
            return Vec::new();
        };
        let lacking = template.lacking(identity.leaf());
        let before = self.held.replace(RotationSchedule::new(identity.clone(), random));
        // It may be in use already, if the disk was slow.
        let before = before.filter(|before| !Arc::ptr_eq(&before.identity, &identity));
        let was_tainted = before.as_ref().is_some_and(|before| before.taint_at.is_some());
        self.taint_renewals = if was_tainted { self.taint_renewals.saturating_add(1) } else { 0 };
        let rejected = before.as_ref().filter(|before| before.rejected_since.is_some());
        let rejected = rejected.map(|before| serial_text(&before.identity));
        let age = before.map(|before| now.wall - before.identity.leaf().not_before());
        self.stored = self.stored.saturating_add(1);
        self.retries.clear_transient();
        self.other_credential = false;
        self.trouble = None;
        let stored = RotationNotice::Stored { expires: identity.expires(), age };
        let mut actions = vec![RotationAction::Publish(identity), RotationAction::Notify(stored)];
        let replaced = rejected.map(|serial| RotationNotice::Replaced { serial });
        actions.extend(replaced.map(RotationAction::Notify));
        let due = self.held.as_ref().is_some_and(|held| now.wall >= held.rotate_at);
        if let Some(lacking) = lacking {
            let message = format!("the issued certificate lacks {lacking}");
            let trouble = CertificateFailure { cause: FailureCause::NamesMissing, message };
            actions.extend(self.failed(trouble, now, random));
        } else if due {
            let message = "the issued certificate is already due for renewal".to_owned();
            let trouble = CertificateFailure { cause: FailureCause::BadCertificate, message };
            actions.extend(self.failed(trouble, now, random));
        } else {
            self.retries.clear_refused();
            actions.extend(self.request_if_due(RotationKey::Fresh, now));
        }
        actions
    }

    fn failed(&mut self, trouble: CertificateFailure, now: ClockReading, random: f64) -> Vec<RotationAction> {
        self.errors = self.errors.saturating_add(1);
        let mut actions = Vec::new();
        let next = match (std::mem::replace(&mut self.phase, RotationPhase::Idle), trouble.cause) {
            (RotationPhase::Storing { template, identity }, _) => {
                actions.extend(self.use_unstored(&identity, now, random));
                RotationStep::Store { template, identity }
            }
            // The key could not be generated.
            (RotationPhase::Asking { key, .. }, FailureCause::DiskFull | FailureCause::DiskFailed) => {
                RotationStep::Ask(key)
            }
            (_, cause) => match key_after(cause) {
                RotationKey::Fresh => RotationStep::Begin(RotationKey::Fresh),
                RotationKey::Kept => RotationStep::Ask(RotationKey::Kept),
            },
        };
        if matches!(trouble.cause, FailureCause::Unauthorized | FailureCause::NoCredential) {
            self.other_credential = !self.other_credential;
        }
        let pause = self.retries.fail(failure_class(trouble.cause), random);
        self.pause(pause, next, now);
        if self.trouble.as_ref() != Some(&trouble) {
            actions.push(RotationAction::Notify(RotationNotice::Failed(trouble.clone())));
        }
        self.trouble = Some(trouble);
        actions
    }

    /// Uses a certificate that cannot be stored, if there is no other.
    fn use_unstored(
        &mut self,
        identity: &Arc<CertificateKeyPair>,
        now: ClockReading,
        random: f64,
    ) -> Option<RotationAction> {
        if self.held.as_ref().is_some_and(|held| held.is_usable(now)) {
            return None;
        }
        self.held = Some(RotationSchedule::new(identity.clone(), random));
        Some(RotationAction::Publish(identity.clone()))
    }

    fn pause(&mut self, pause: Duration, next: RotationStep, now: ClockReading) {
        let announced = time::Duration::try_from(pause).unwrap_or(time::Duration::HOUR);
        let announced = now.wall.checked_add(announced).unwrap_or(now.wall);
        self.phase = RotationPhase::Pausing { until: now.since.saturating_add(pause), announced, next };
    }
}

#[cfg(test)]
mod tests;
