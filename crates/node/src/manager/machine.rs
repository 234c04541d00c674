//! What a manager does next: a function of what it knows, what happens, the time and a random number.
//!
//! It does nothing itself. At most one [`Action::Obtain`] or [`Action::Store`] is under way, so at
//! most one request is outstanding.

use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;

use super::pace::{Budget, Pace};
use super::report::{Cause, Doing, HeldReport, Notice, Report, Trouble};
use crate::clock::{self, Moment};
use crate::identity::Identity;
use crate::request::Stage;
use crate::template::{Purpose, Template};

/// How often to look at the clock, which may have jumped.
const LOOK: Duration = Duration::from_secs(10);

/// What a manager knows.
pub struct Machine {
    purpose: Purpose,
    pace: Pace,
    held: Option<Held>,
    template: Option<Template>,
    phase: Phase,
    budget: Budget,
    /// Refusals one after the other.
    refusals: u32,
    /// Troubles one after the other.
    troubles: u32,
    /// Whether to ask with the other credential than one would.
    other_credential: bool,
    trouble: Option<Trouble>,
    errors: u64,
    stored: u64,
    warnings: Vec<String>,
}

struct Held {
    identity: Arc<Identity>,
    rotate_at: OffsetDateTime,
}

enum Phase {
    /// Nothing is to be done, or not yet.
    Idle,
    /// A request is being made.
    Asking { template: Template, key: Key },
    /// A request is waited for.
    Waiting { template: Template, request: String, stage: Stage, since: OffsetDateTime },
    /// A certificate is being stored.
    Storing { template: Template, identity: Arc<Identity> },
    /// Something went wrong, or is done too often.
    Pausing { until: Duration, announced: OffsetDateTime, next: Next },
}

enum Next {
    /// Begin anew: this counts.
    Begin(Key),
    /// Go on with what was begun.
    Ask(Key),
    Store {
        template: Template,
        identity: Arc<Identity>,
    },
}

/// Which key to ask with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// The one on disk, if there is one.
    Kept,
    /// A new one.
    Fresh,
}

/// Whom to ask as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Credential {
    /// The node, by the certificate it has.
    Own,
    /// Whoever may ask for a node that has none.
    Bootstrap,
}

/// What happens.
#[derive(Debug)]
pub enum Event {
    /// Time passes.
    Tick,
    /// Somebody says what has to be in the certificate.
    Template(Option<Template>),
    /// There is a request of this name.
    Asked(String),
    /// What the request waits for.
    Stage(Stage),
    /// There is a certificate, and it is for our key.
    Issued(Arc<Identity>),
    /// It is on disk.
    Stored,
    /// What was to be done was not.
    Failed(Trouble),
}

/// What is to be done.
#[derive(Debug)]
pub enum Action {
    /// Ask for a certificate and wait for it.
    Obtain {
        /// With which key.
        key: Key,
        /// As whom.
        credential: Credential,
        /// For what.
        template: Template,
    },
    /// Do not wait any more.
    Cancel,
    /// Write a certificate to disk.
    Store(Arc<Identity>),
    /// This is the certificate to use.
    Publish(Arc<Identity>),
    /// Tell whoever wants to know.
    Notify(Notice),
}

impl Machine {
    /// A manager that begins with what is on disk.
    pub fn new(
        purpose: Purpose,
        pace: Pace,
        found: Option<Arc<Identity>>,
        warnings: Vec<String>,
        random: f64,
    ) -> Self {
        Self {
            purpose,
            pace,
            held: found.map(|identity| Held::new(identity, random)),
            template: None,
            phase: Phase::Idle,
            budget: Budget::new(&pace),
            refusals: 0,
            troubles: 0,
            other_credential: false,
            trouble: None,
            errors: 0,
            stored: 0,
            warnings,
        }
    }

    /// What to do now that something happened. `random` is from 0 to 1.
    pub fn step(&mut self, event: Event, now: Moment, random: f64) -> Vec<Action> {
        match event {
            Event::Tick => self.tick(now),
            Event::Template(template) => self.respecify(template, now),
            Event::Asked(request) => self.asked(request, now),
            Event::Stage(stage) => {
                // The server answers.
                self.troubles = 0;
                if let Phase::Waiting { stage: before, .. } = &mut self.phase {
                    *before = stage;
                }
                Vec::new()
            }
            Event::Issued(identity) => self.issued(identity, now, random),
            Event::Stored => self.put_in_use(now, random),
            Event::Failed(trouble) => self.failed(trouble, now, random),
        }
    }

    /// How long nothing will happen by itself.
    pub fn idle_for(&self, now: Moment) -> Duration {
        let due = match (&self.phase, &self.held) {
            (Phase::Pausing { until, .. }, _) => until.saturating_sub(now.since),
            (Phase::Idle, Some(held)) => {
                Duration::try_from(held.rotate_at - now.wall).unwrap_or_default()
            }
            _ => LOOK,
        };
        // A template that is missing makes what is due wait, and must not make it spin.
        if self.template.is_none() { LOOK } else { due.min(LOOK) }
    }

    /// What can be told.
    pub fn report(&self) -> Report {
        let doing = match &self.phase {
            Phase::Idle if self.template.is_none() => Doing::Unspecified,
            Phase::Idle => Doing::Holding,
            Phase::Asking { .. } => Doing::Asking,
            Phase::Waiting { request, stage, since, .. } => {
                Doing::Waiting { request: request.clone(), stage: *stage, since: *since }
            }
            Phase::Storing { .. } => Doing::Storing,
            Phase::Pausing { announced, .. } => Doing::Pausing { until: *announced },
        };
        Report {
            purpose: self.purpose,
            held: self.held.as_ref().map(|held| held.report(self.template.as_ref())),
            doing,
            trouble: self.trouble.clone(),
            errors: self.errors,
            stored: self.stored,
            warnings: self.warnings.clone(),
        }
    }

    fn tick(&mut self, now: Moment) -> Vec<Action> {
        match &self.phase {
            Phase::Idle => self.consider(Key::Kept, now),
            Phase::Pausing { next: Next::Begin(_) | Next::Ask(_), .. } if !self.is_due(now) => {
                // The clock was wrong, or the names are as before.
                self.phase = Phase::Idle;
                self.consider(Key::Kept, now)
            }
            Phase::Pausing { next: Next::Store { identity, .. }, .. }
                if !identity.is_valid_at(now.wall) =>
            {
                self.phase = Phase::Idle;
                self.consider(Key::Fresh, now)
            }
            Phase::Pausing { until, .. } if *until <= now.since => self.go_on(now),
            Phase::Pausing { .. }
            | Phase::Asking { .. }
            | Phase::Waiting { .. }
            | Phase::Storing { .. } => Vec::new(),
        }
    }

    /// Does what was put off.
    fn go_on(&mut self, now: Moment) -> Vec<Action> {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Pausing { next: Next::Begin(key), .. } => self.consider(key, now),
            Phase::Pausing { next: Next::Ask(key), .. } => self.obtain(key, now),
            Phase::Pausing { next: Next::Store { template, identity }, .. } => {
                self.store(template, identity)
            }
            phase => {
                self.phase = phase;
                Vec::new()
            }
        }
    }

    /// Whether another certificate is needed.
    fn is_due(&self, now: Moment) -> bool {
        let Some(template) = &self.template else { return false };
        self.held.as_ref().is_none_or(|held| {
            now.wall >= held.rotate_at
                || !held.identity.is_valid_at(now.wall)
                || template.lacking(held.identity.leaf()).is_some()
        })
    }

    /// Asks for a certificate if one is needed, and not too often.
    fn consider(&mut self, key: Key, now: Moment) -> Vec<Action> {
        if !self.is_due(now) {
            // What is not needed any more cannot be in trouble.
            self.trouble = None;
            return Vec::new();
        }
        match self.budget.take(&self.pace, now.since) {
            Ok(()) => self.obtain(key, now),
            Err(wait) => {
                self.pause(wait, Next::Begin(key), now);
                Vec::new()
            }
        }
    }

    fn obtain(&mut self, key: Key, now: Moment) -> Vec<Action> {
        let Some(template) = self.template.clone() else { return Vec::new() };
        let credential = self.credential(now);
        self.phase = Phase::Asking { template: template.clone(), key };
        vec![Action::Obtain { key, credential, template }]
    }

    fn credential(&self, now: Moment) -> Credential {
        if self.purpose == Purpose::Serving {
            return Credential::Own;
        }
        let Some(held) = &self.held else { return Credential::Bootstrap };
        match held.identity.is_valid_at(now.wall) != self.other_credential {
            true => Credential::Own,
            false => Credential::Bootstrap,
        }
    }

    fn respecify(&mut self, template: Option<Template>, now: Moment) -> Vec<Action> {
        let changed = template.is_some() && template != self.template;
        self.template = template;
        if !changed {
            return Vec::new();
        }
        match &self.phase {
            Phase::Idle => self.consider(Key::Kept, now),
            // What was refused was something else.
            Phase::Pausing { next: Next::Begin(_) | Next::Ask(_), .. } => {
                (self.refusals, self.troubles) = (0, 0);
                self.phase = Phase::Idle;
                self.consider(Key::Fresh, now)
            }
            Phase::Waiting { template, .. } if Some(template) != self.template.as_ref() => {
                self.phase = Phase::Idle;
                let mut actions = vec![Action::Cancel];
                actions.extend(self.consider(Key::Fresh, now));
                actions
            }
            // These end soon, and then it is looked at.
            Phase::Pausing { .. }
            | Phase::Waiting { .. }
            | Phase::Asking { .. }
            | Phase::Storing { .. } => Vec::new(),
        }
    }

    fn asked(&mut self, request: String, now: Moment) -> Vec<Action> {
        let Phase::Asking { template, .. } = &self.phase else { return Vec::new() };
        let template = template.clone();
        let is_wanted = self.template.as_ref().is_none_or(|wanted| *wanted == template);
        let stage = Stage::Approval;
        self.phase = Phase::Waiting { template, request, stage, since: now.wall };
        if is_wanted {
            return Vec::new();
        }
        // It was respecified while the request was being made.
        self.phase = Phase::Idle;
        let mut actions = vec![Action::Cancel];
        actions.extend(self.consider(Key::Fresh, now));
        actions
    }

    fn issued(&mut self, identity: Arc<Identity>, now: Moment, random: f64) -> Vec<Action> {
        let template = match &self.phase {
            Phase::Asking { template, .. } | Phase::Waiting { template, .. } => template.clone(),
            Phase::Idle | Phase::Storing { .. } | Phase::Pausing { .. } => return Vec::new(),
        };
        let expires = identity.expires();
        if !identity.is_valid_at(now.wall) {
            // Not the present time: a message that changes all the time is news all the time.
            let message = format!(
                "the certificate that was issued expired at {}, by the clock of this machine",
                clock::text(expires)
            );
            return self.failed(Trouble { cause: Cause::BadCertificate, message }, now, random);
        }
        // What lacks something is better than nothing, but not better than what does not.
        if let Some(lacking) = template.lacking(identity.leaf())
            && self.held.as_ref().is_some_and(|held| {
                held.identity.is_valid_at(now.wall)
                    && template.lacking(held.identity.leaf()).is_none()
            })
        {
            let message =
                format!("the certificate that was issued lacks {lacking}; it is not used");
            return self.failed(Trouble { cause: Cause::NamesMissing, message }, now, random);
        }
        self.store(template, identity)
    }

    fn store(&mut self, template: Template, identity: Arc<Identity>) -> Vec<Action> {
        self.phase = Phase::Storing { template, identity: identity.clone() };
        vec![Action::Store(identity)]
    }

    fn put_in_use(&mut self, now: Moment, random: f64) -> Vec<Action> {
        let phase = std::mem::replace(&mut self.phase, Phase::Idle);
        let Phase::Storing { template, identity } = phase else {
            self.phase = phase;
            return Vec::new();
        };
        let lacking = template.lacking(identity.leaf());
        let before = self.held.replace(Held::new(identity.clone(), random));
        // It may be in use already, if the disk was late.
        let before = before.filter(|before| !Arc::ptr_eq(&before.identity, &identity));
        let age = before.map(|before| now.wall - before.identity.leaf().not_before());
        self.stored = self.stored.saturating_add(1);
        self.troubles = 0;
        self.other_credential = false;
        self.trouble = None;
        let stored = Notice::Stored { expires: identity.expires(), age };
        let mut actions = vec![Action::Publish(identity), Action::Notify(stored)];
        let due = self.held.as_ref().is_some_and(|held| now.wall >= held.rotate_at);
        if let Some(lacking) = lacking {
            let message = format!("the certificate that was issued lacks {lacking}");
            let trouble = Trouble { cause: Cause::NamesMissing, message };
            actions.extend(self.failed(trouble, now, random));
        } else if due {
            let message = "the certificate that was issued is old already".to_owned();
            let trouble = Trouble { cause: Cause::BadCertificate, message };
            actions.extend(self.failed(trouble, now, random));
        } else {
            self.refusals = 0;
            actions.extend(self.consider(Key::Fresh, now));
        }
        actions
    }

    fn failed(&mut self, trouble: Trouble, now: Moment, random: f64) -> Vec<Action> {
        self.errors = self.errors.saturating_add(1);
        let mut actions = Vec::new();
        let next = match (std::mem::replace(&mut self.phase, Phase::Idle), trouble.cause) {
            (Phase::Storing { template, identity }, _) => {
                actions.extend(self.use_unstored(&identity, now, random));
                Next::Store { template, identity }
            }
            // The key could not be made.
            (Phase::Asking { key, .. }, Cause::DiskFull | Cause::DiskFailed) => Next::Ask(key),
            (_, cause) => match key_after(cause) {
                Key::Fresh => Next::Begin(Key::Fresh),
                Key::Kept => Next::Ask(Key::Kept),
            },
        };
        if matches!(trouble.cause, Cause::Unauthorized | Cause::NoCredential) {
            self.other_credential = !self.other_credential;
        }
        let pause = match weight(trouble.cause) {
            Weight::Trouble => {
                self.troubles = self.troubles.saturating_add(1);
                self.pace.trouble.after(self.troubles.saturating_sub(1), random)
            }
            Weight::Refusal => {
                self.refusals = self.refusals.saturating_add(1);
                self.pace.refusal.after(self.refusals.saturating_sub(1), random)
            }
            Weight::Nothing => self.pace.trouble.after(0, random),
            Weight::Once => {
                self.refusals = self.refusals.saturating_add(1);
                match self.refusals.checked_sub(2) {
                    None => self.pace.trouble.after(0, random),
                    Some(earlier) => self.pace.refusal.after(earlier, random),
                }
            }
        };
        self.pause(pause, next, now);
        if self.trouble.as_ref() != Some(&trouble) {
            actions.push(Action::Notify(Notice::Trouble(trouble.clone())));
        }
        self.trouble = Some(trouble);
        actions
    }

    /// Uses a certificate that the disk does not take, if there is no other.
    fn use_unstored(
        &mut self,
        identity: &Arc<Identity>,
        now: Moment,
        random: f64,
    ) -> Option<Action> {
        if self.held.as_ref().is_some_and(|held| held.identity.is_valid_at(now.wall)) {
            return None;
        }
        self.held = Some(Held::new(identity.clone(), random));
        Some(Action::Publish(identity.clone()))
    }

    fn pause(&mut self, pause: Duration, next: Next, now: Moment) {
        let announced = time::Duration::try_from(pause).unwrap_or(time::Duration::HOUR);
        let announced = now.wall.checked_add(announced).unwrap_or(now.wall);
        self.phase = Phase::Pausing { until: now.since.saturating_add(pause), announced, next };
    }
}

impl Held {
    fn new(identity: Arc<Identity>, random: f64) -> Self {
        let leaf = identity.leaf();
        let lifetime = identity.expires() - leaf.not_before();
        let age = lifetime * (0.7 + 0.2 * random.clamp(0.0, 1.0));
        let rotate_at = leaf.not_before().checked_add(age).unwrap_or(identity.expires());
        Self { identity, rotate_at }
    }

    fn report(&self, template: Option<&Template>) -> HeldReport {
        let leaf = self.identity.leaf();
        let organizations = leaf.subject().organizations().into_iter().map(str::to_owned);
        HeldReport {
            common_name: leaf.subject().common_name().to_owned(),
            organizations: organizations.collect(),
            names: leaf.alt_names().clone(),
            serial: leaf.serial().iter().map(|octet| format!("{octet:02x}")).collect(),
            not_before: leaf.not_before(),
            expires: self.identity.expires(),
            rotate_at: self.rotate_at,
            lacking: template.and_then(|template| template.lacking(leaf)),
        }
    }
}

/// How long to pause for something.
enum Weight {
    Nothing,
    Once,
    Trouble,
    Refusal,
}

fn weight(cause: Cause) -> Weight {
    match cause {
        // It has been waited for long enough, and it is not asked for again but looked at.
        Cause::NotDecided => Weight::Nothing,
        // Another key helps, unless it does not.
        Cause::RequestTaken => Weight::Once,
        Cause::NoCredential
        | Cause::Unauthorized
        | Cause::Forbidden
        | Cause::NotServed
        | Cause::ServerError
        | Cause::Unreachable
        | Cause::DiskFull
        | Cause::DiskFailed => Weight::Trouble,
        Cause::Unwritable
        | Cause::RequestGone
        | Cause::RequestDenied
        | Cause::RequestFailed
        | Cause::BadCertificate
        | Cause::NamesMissing => Weight::Refusal,
    }
}

/// A request that was decided stays so; another key makes another one. It is made when it is used,
/// so that whoever is restarted in between asks no more often.
fn key_after(cause: Cause) -> Key {
    match cause {
        Cause::RequestTaken
        | Cause::RequestDenied
        | Cause::RequestFailed
        | Cause::BadCertificate
        | Cause::NamesMissing => Key::Fresh,
        Cause::NoCredential
        | Cause::Unauthorized
        | Cause::Forbidden
        | Cause::NotServed
        | Cause::ServerError
        | Cause::Unreachable
        | Cause::DiskFull
        | Cause::DiskFailed
        | Cause::Unwritable
        | Cause::NotDecided
        | Cause::RequestGone => Key::Kept,
    }
}

#[cfg(test)]
mod tests;
