//! What is done next about one certificate: a function of what is known, what happens, the time and a
//! random number.
//!
//! It does nothing itself. At most one [`Action::Obtain`] is under way. Nothing is final: what is
//! refused is asked for again, later and later, and what there is goes on being served.

#[cfg(test)]
mod tests;

use std::time::Duration;

use time::OffsetDateTime;

use super::times::{Age, Times};
use crate::clock::Moment;
use crate::manager::Pace;

/// How often to look at the clock, which may have jumped.
const LOOK: Duration = Duration::from_secs(60);
/// Whoever is this late was asleep, and others with it.
const LATE: Duration = Duration::from_secs(90);
/// Over how long those are spread that are late together.
const SPREAD: Duration = Duration::from_secs(10);

/// What kubelet says before there is anything.
pub const NOT_YET: &str = "credential bundle is not issued yet";

/// What is known of one certificate.
pub struct Machine {
    pace: Pace,
    held: Option<Held>,
    /// Whether what is held is not what is wanted any more.
    outdated: bool,
    phase: Phase,
    /// With which key to ask the next time.
    next: Key,
    /// Refusals one after the other.
    refusals: u32,
    /// Troubles one after the other.
    troubles: u32,
    /// Certificates one after the other whose trust anchor was not published.
    orphans: u32,
    why: Option<Why>,
}

struct Held {
    times: Times,
    refresh_at: OffsetDateTime,
    /// When to renew it although it is not old, since its trust anchor is gone.
    orphaned: Option<OffsetDateTime>,
    told_overdue: bool,
    told_expired: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// Nothing is to be done yet.
    Idle,
    /// A request is being made.
    Asking,
    /// A request is waited for.
    Waiting,
    /// It is to be made later.
    Pausing { until: Duration },
}

#[derive(Clone, Debug, PartialEq)]
enum Why {
    /// Something that may be better in a moment.
    Trouble(String),
    Refused(Refusal),
}

/// With which key to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// That of the request which was begun, or a new one if none was.
    Begun,
    /// A new one.
    New,
}

/// Who did not want it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refuser {
    /// The request was denied.
    Denied,
    /// The request failed, or what was issued is of no use.
    Failed,
}

/// Why there is no certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// By whom.
    pub by: Refuser,
    /// Which request, and why.
    pub message: String,
}

/// What happens.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Time passes.
    Tick,
    /// It cannot be asked for as long as this is so, and somebody waits for it to change.
    Hindered(String),
    /// There is a request.
    Asked,
    /// There is a certificate, and it is good.
    Issued(Times),
    /// What is held was issued under none of the trust anchors that its signer publishes now.
    Orphaned,
    /// It was issued under one of them, or there are none.
    Anchored,
    /// There will be none.
    Refused(Refusal),
    /// The request is gone, for this reason.
    Gone(String),
    /// It could not be asked for.
    Trouble {
        /// Why.
        message: String,
        /// Whether it is for good, as far as can be told.
        lasting: bool,
    },
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask for a certificate and wait for it.
    Obtain(Key),
    /// Tell whoever wants to know.
    Tell(Notice),
}

/// What is worth telling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// It was refused.
    Refused(Refusal),
    /// It is not renewed in time.
    Overdue,
    /// It was not renewed at all.
    Expired,
}

impl Machine {
    /// Begins with what was found. `outdated` is whether that is not quite what is wanted.
    pub fn new(pace: Pace, found: Option<Times>, outdated: bool, random: f64) -> Self {
        Self {
            pace,
            held: found.map(|times| Held::new(times, random)),
            outdated,
            phase: Phase::Idle,
            next: Key::Begun,
            refusals: 0,
            troubles: 0,
            orphans: 0,
            why: None,
        }
    }

    /// What to do now that something happened. `random` is from 0 to 1.
    pub fn step(&mut self, event: Event, now: Moment, random: f64) -> Vec<Action> {
        let mut actions = self.tell_age(now);
        match event {
            Event::Tick => actions.extend(self.tick(now, random)),
            Event::Hindered(why) => self.why = Some(Why::Trouble(why)),
            Event::Asked => {
                self.phase = Phase::Waiting;
                self.troubles = 0;
                if matches!(self.why, Some(Why::Trouble(_))) {
                    self.why = None;
                }
            }
            Event::Issued(times) => self.issued(times, now, random),
            Event::Orphaned => self.orphaned(now, random),
            Event::Anchored => self.anchored(),
            Event::Refused(refusal) => {
                self.next = Key::New;
                actions.push(Action::Tell(Notice::Refused(refusal.clone())));
                self.refused(Why::Refused(refusal), now, random);
            }
            Event::Gone(why) => self.refused(Why::Trouble(why), now, random),
            Event::Trouble { message, lasting: true } => {
                self.refused(Why::Trouble(message), now, random);
            }
            Event::Trouble { message, lasting: false } => {
                let pause = self.pace.trouble.after(self.troubles, random);
                self.troubles = self.troubles.saturating_add(1);
                self.why = Some(Why::Trouble(message));
                self.pause(pause, now);
            }
        }
        actions
    }

    /// How long nothing will happen by itself.
    pub fn idle_for(&self, now: Moment) -> Duration {
        let due = match (self.phase, &self.held) {
            (Phase::Idle, Some(held)) if !self.outdated => {
                Duration::try_from(held.due() - now.wall).unwrap_or_default()
            }
            (Phase::Idle, _) => Duration::ZERO,
            (Phase::Pausing { until }, _) => until.saturating_sub(now.since),
            (Phase::Asking | Phase::Waiting, _) => LOOK,
        };
        due.min(LOOK)
    }

    /// Why there is none, for the pod that needs it.
    pub fn why(&self) -> &str {
        match &self.why {
            None => NOT_YET,
            Some(Why::Trouble(message) | Why::Refused(Refusal { message, .. })) => message,
        }
    }

    /// Who refused it, if that is why there is none.
    pub fn refuser(&self) -> Option<Refuser> {
        match &self.why {
            Some(Why::Refused(refusal)) => Some(refusal.by),
            Some(Why::Trouble(_)) | None => None,
        }
    }

    fn tick(&mut self, now: Moment, random: f64) -> Option<Action> {
        match self.phase {
            Phase::Asking | Phase::Waiting => None,
            Phase::Idle | Phase::Pausing { .. } if !self.is_due(now) => {
                // The clock was wrong.
                self.phase = Phase::Idle;
                None
            }
            Phase::Idle if self.is_late(now) => {
                self.pause(SPREAD.mul_f64(random.clamp(0.0, 1.0)), now);
                None
            }
            Phase::Pausing { until } if now.since < until => None,
            Phase::Idle | Phase::Pausing { .. } => {
                self.phase = Phase::Asking;
                Some(Action::Obtain(std::mem::replace(&mut self.next, Key::Begun)))
            }
        }
    }

    /// Whether another certificate is needed.
    fn is_due(&self, now: Moment) -> bool {
        self.outdated || self.held.as_ref().is_none_or(|held| held.due() <= now.wall)
    }

    /// Whether it was due long ago, so that others will be, too.
    fn is_late(&self, now: Moment) -> bool {
        self.held.as_ref().is_some_and(|held| held.due() + LATE < now.wall)
    }

    fn issued(&mut self, times: Times, now: Moment, random: f64) {
        self.held = Some(Held::new(times, random));
        self.outdated = false;
        self.next = Key::New;
        (self.phase, self.why, self.troubles) = (Phase::Idle, None, 0);
        if self.is_due(now) {
            // It is old already, and so may be the next.
            let pause = self.pace.refusal.after(self.refusals, random);
            self.refusals = self.refusals.saturating_add(1);
            self.pause(pause, now);
        } else {
            self.refusals = 0;
        }
    }

    /// Verifiers do not accept it any more, so it is renewed now: a little later for some than for
    /// others, and later and later if the next is not under a published anchor either.
    fn orphaned(&mut self, now: Moment, random: f64) {
        let Some(held) = &mut self.held else { return };
        let pause = match self.orphans.checked_sub(1) {
            None => self.pace.orphan_spread.mul_f64(random.clamp(0.0, 1.0)),
            Some(earlier) => self.pace.refusal.after(earlier, random),
        };
        self.orphans = self.orphans.saturating_add(1);
        held.orphaned = Some(now.wall + pause);
    }

    fn anchored(&mut self) {
        self.orphans = 0;
        if let Some(held) = &mut self.held {
            held.orphaned = None;
        }
    }

    fn refused(&mut self, why: Why, now: Moment, random: f64) {
        let pause = self.pace.refusal.after(self.refusals, random);
        self.refusals = self.refusals.saturating_add(1);
        self.why = Some(why);
        self.pause(pause, now);
    }

    fn pause(&mut self, pause: Duration, now: Moment) {
        self.phase = Phase::Pausing { until: now.since.saturating_add(pause) };
    }

    /// Tells of a certificate that grows old, once of each age.
    fn tell_age(&mut self, now: Moment) -> Vec<Action> {
        let Some(held) = &mut self.held else { return Vec::new() };
        let (told, notice) = match held.times.age(now.wall) {
            Age::Fresh => return Vec::new(),
            Age::Overdue => (&mut held.told_overdue, Notice::Overdue),
            Age::Expired => (&mut held.told_expired, Notice::Expired),
        };
        if std::mem::replace(told, true) { Vec::new() } else { vec![Action::Tell(notice)] }
    }
}

impl Held {
    fn new(times: Times, random: f64) -> Self {
        let refresh_at = times.refresh_at(random);
        Self { times, refresh_at, orphaned: None, told_overdue: false, told_expired: false }
    }

    /// When it is to be renewed.
    fn due(&self) -> OffsetDateTime {
        self.orphaned.map_or(self.refresh_at, |orphaned| orphaned.min(self.refresh_at))
    }
}
