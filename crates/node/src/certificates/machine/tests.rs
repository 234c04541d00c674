use super::*;
use crate::testing::{START, Signed};
use time::Duration as Span;
use windlass_pki::PrivateKey;

/// A moment this many seconds after the start.
fn at(seconds: i64) -> Moment {
    let since = Duration::from_secs(u64::try_from(seconds).unwrap());
    Moment { wall: START + Span::seconds(seconds), since }
}

/// Those of a certificate for an hour, to be renewed after half of it, issued at this second.
fn hour(issued: i64) -> Times {
    let from = START + Span::seconds(issued);
    let key = PrivateKey::generate().unwrap();
    let signed = Signed { until: from + Span::HOUR, ..Signed::client(from) };
    Times::of_pod(&signed.certificate(key.public_key()), Some(from + Span::minutes(30)))
}

fn new(found: Option<Times>, outdated: bool) -> Machine {
    Machine::new(Pace::default(), found, outdated, 0.5)
}

fn refusal(by: Refuser) -> Refusal {
    Refusal { by, message: "no".into() }
}

fn trouble(lasting: bool) -> Event {
    Event::Trouble { message: "trouble".into(), lasting }
}

/// The state a machine is brought to before something happens.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Before {
    Initial,
    Asking,
    Waiting,
    Pausing,
    Fresh,
    Refreshing,
    WaitingRefresh,
    PausingRefresh,
}

const ALL: [Before; 8] = [
    Before::Initial,
    Before::Asking,
    Before::Waiting,
    Before::Pausing,
    Before::Fresh,
    Before::Refreshing,
    Before::WaitingRefresh,
    Before::PausingRefresh,
];

/// When a refresh is due for what is issued at the start: half an hour, and half of three minutes.
const DUE: i64 = 1800 + 90;

impl Before {
    fn machine(self) -> (Machine, Moment) {
        let holds = matches!(
            self,
            Self::Fresh | Self::Refreshing | Self::WaitingRefresh | Self::PausingRefresh
        );
        let mut machine = new(holds.then(|| hour(0)), false);
        let now = at(if holds && self != Self::Fresh { DUE } else { 0 });
        if !matches!(self, Self::Initial | Self::Fresh) {
            let actions = machine.step(Event::Tick, now, 0.5);
            assert_eq!(actions, [Action::Obtain(Key::Begun)], "{self:?}");
        }
        if !matches!(self, Self::Initial | Self::Fresh | Self::Asking | Self::Refreshing) {
            assert_eq!(machine.step(Event::Asked, now, 0.5), []);
        }
        if matches!(self, Self::Pausing | Self::PausingRefresh) {
            let event = Event::Refused(refusal(Refuser::Denied));
            assert_eq!(machine.step(event, now, 0.5).len(), 1);
        }
        (machine, now)
    }

    fn holds(self) -> bool {
        matches!(self, Self::Fresh | Self::Refreshing | Self::WaitingRefresh | Self::PausingRefresh)
    }
}

#[test]
fn what_happens_in_every_state() {
    for before in ALL {
        // Time passes: only who has nothing to wait for asks.
        let (mut machine, now) = before.machine();
        let actions = machine.step(Event::Tick, now, 0.5);
        let expected = match before {
            Before::Initial => vec![Action::Obtain(Key::Begun)],
            _ => Vec::new(),
        };
        assert_eq!(actions, expected, "{before:?}");

        // A certificate ends all of it.
        let (mut machine, now) = before.machine();
        let seconds = i64::try_from(now.since.as_secs()).unwrap();
        assert_eq!(machine.step(Event::Issued(hour(seconds)), now, 0.5), [], "{before:?}");
        assert_eq!(machine.phase, Phase::Idle);
        assert_eq!((machine.why.clone(), machine.refusals, machine.troubles), (None, 0, 0));
        assert_eq!(machine.idle_for(at(seconds + DUE - 10)), Duration::from_secs(10));
        assert_eq!(machine.step(Event::Tick, at(seconds + DUE - 1), 0.5), []);
        let actions = machine.step(Event::Tick, at(seconds + DUE), 0.5);
        assert_eq!(actions, [Action::Obtain(Key::New)], "{before:?}");

        // Refusals are told, and asked again about with another key after a minute or more.
        for by in [Refuser::Denied, Refuser::Failed] {
            let (mut machine, now) = before.machine();
            let actions = machine.step(Event::Refused(refusal(by)), now, 0.5);
            assert_eq!(actions, [Action::Tell(Notice::Refused(refusal(by)))], "{before:?}");
            assert_eq!((machine.why(), machine.refuser()), ("no", Some(by)));
            again_after(&mut machine, now, before, Key::New);
        }

        // What is gone is asked for with the key that there is, and so is what is no good to ask.
        for event in [Event::Gone("gone".into()), trouble(true)] {
            let (mut machine, now) = before.machine();
            assert_eq!(machine.step(event, now, 0.5), [], "{before:?}");
            assert_eq!(machine.refuser(), None);
            let key = match before {
                Before::Pausing | Before::PausingRefresh => Key::New,
                _ => Key::Begun,
            };
            again_after(&mut machine, now, before, key);
        }

        // Trouble is over soon.
        let (mut machine, now) = before.machine();
        assert_eq!(machine.step(trouble(false), now, 0.5), [], "{before:?}");
        assert_eq!(machine.why(), "trouble");
        if before != Before::Fresh {
            assert_eq!(machine.idle_for(now), Duration::from_secs(1), "{before:?}");
        }

        // What hinders is shown, and changes nothing else.
        let (mut machine, now) = before.machine();
        let phase = machine.phase;
        assert_eq!(machine.step(Event::Hindered("missing".into()), now, 0.5), []);
        assert_eq!((machine.why(), machine.phase), ("missing", phase), "{before:?}");
    }
}

/// That nothing is asked for until the pause is over, and then with this key.
fn again_after(machine: &mut Machine, now: Moment, before: Before, key: Key) {
    let refused_before = matches!(before, Before::Pausing | Before::PausingRefresh);
    let pause = if refused_before { 120 } else { 60 };
    let seconds = i64::try_from(now.since.as_secs()).unwrap() + pause;
    if before == Before::Fresh {
        // It need not be asked for yet, whatever was said.
        assert_eq!(machine.step(Event::Tick, at(seconds), 0.5), []);
        return;
    }
    assert_eq!(machine.step(Event::Tick, at(seconds - 1), 0.5), [], "{before:?}");
    let actions = machine.step(Event::Tick, at(seconds), 0.5);
    assert_eq!(actions, [Action::Obtain(key)], "{before:?}");
    assert_eq!(machine.held.is_some(), before.holds());
}

#[test]
fn pauses_grow_and_are_jittered() {
    let pauses = |event: &dyn Fn() -> Event, random: f64| {
        let (mut machine, mut now) = (new(None, false), at(0));
        let mut pauses = Vec::new();
        for _ in 0..9 {
            machine.step(Event::Tick, now, random);
            machine.step(event(), now, random);
            let Phase::Pausing { until } = machine.phase else { panic!("{:?}", machine.phase) };
            pauses.push((until - now.since).as_secs_f64());
            now = Moment { wall: now.wall + (until - now.since), since: until };
        }
        pauses
    };
    let denied = || Event::Refused(refusal(Refuser::Denied));
    let minutes = [60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0, 3600.0];
    assert_eq!(pauses(&denied, 0.5), minutes);
    assert_eq!(pauses(&denied, 0.0), minutes.map(|seconds| seconds * 0.75));
    assert_eq!(pauses(&denied, 1.0), minutes.map(|seconds| seconds * 1.25));
    assert_eq!(pauses(&|| Event::Gone("gone".into()), 0.5), minutes);
    let seconds = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0];
    assert_eq!(pauses(&|| trouble(false), 0.5), seconds);
}

#[test]
fn what_is_found_is_used_until_it_is_old() {
    let mut machine = new(Some(hour(0)), false);
    assert_eq!(machine.step(Event::Tick, at(0), 0.5), []);
    assert_eq!(machine.idle_for(at(0)), LOOK, "the clock may jump");
    // Not quite what is wanted: asked for at once.
    let mut machine = new(Some(hour(0)), true);
    assert_eq!(machine.idle_for(at(0)), Duration::ZERO);
    assert_eq!(machine.step(Event::Tick, at(0), 0.5), [Action::Obtain(Key::Begun)]);
    assert_eq!(machine.step(Event::Issued(hour(0)), at(0), 0.5), []);
    assert_eq!(machine.step(Event::Tick, at(0), 0.5), []);
    // Old for long: others are, too.
    for random in [0.0, 0.3, 1.0] {
        let mut machine = new(Some(hour(0)), false);
        let late = at(DUE + 3600);
        let told = machine.step(Event::Tick, late, random);
        assert_eq!(told, [Action::Tell(Notice::Expired)]);
        assert_eq!(machine.idle_for(late), SPREAD.mul_f64(random));
        let then = Moment { since: late.since + SPREAD.mul_f64(random), ..late };
        assert_eq!(machine.step(Event::Tick, then, 0.5), [Action::Obtain(Key::Begun)]);
    }
}

#[test]
fn old_age_is_told_once() {
    let mut machine = new(Some(hour(0)), false);
    let mut tell = |seconds| {
        let actions = machine.step(Event::Tick, at(seconds), 0.5).into_iter();
        actions.filter(|action| matches!(action, Action::Tell(_))).collect::<Vec<_>>()
    };
    assert_eq!(tell(1800 + 600), []);
    assert_eq!(tell(1800 + 601), [Action::Tell(Notice::Overdue)]);
    assert_eq!(tell(1800 + 700), []);
    assert_eq!(tell(3600), []);
    assert_eq!(tell(3601), [Action::Tell(Notice::Expired)]);
    assert_eq!(tell(7200), []);
    machine.step(Event::Issued(hour(7200)), at(7200), 0.5);
    let told = machine.step(Event::Tick, at(7200 + 1800 + 601), 0.5);
    assert_eq!(told.first(), Some(&Action::Tell(Notice::Overdue)), "of another, it is told again");
}

#[test]
fn one_that_is_old_when_it_comes_is_not_asked_for_in_a_loop() {
    let (mut machine, now) = Before::Waiting.machine();
    let old = at(DUE);
    assert_eq!(machine.step(Event::Issued(hour(0)), old, 0.5), []);
    assert_eq!(machine.idle_for(old), Duration::from_secs(60));
    assert!(machine.held.is_some() && now.since.is_zero());
    machine.step(Event::Tick, at(DUE + 60), 0.5);
    machine.step(Event::Issued(hour(0)), at(DUE + 60), 0.5);
    assert_eq!(machine.phase, Phase::Pausing { until: at(DUE + 60 + 120).since });
}

#[test]
fn a_clock_that_was_wrong_is_forgiven() {
    let mut machine = new(Some(hour(0)), false);
    machine.step(Event::Tick, at(DUE + 3600), 0.5);
    assert!(matches!(machine.phase, Phase::Pausing { .. }));
    let back = Moment { wall: START, since: at(DUE + 3700).since };
    assert_eq!(machine.step(Event::Tick, back, 0.5), []);
    assert_eq!(machine.phase, Phase::Idle);
}

#[test]
fn what_lost_its_anchor_is_due_unless_that_comes_back() {
    let mut machine = new(Some(hour(0)), false);
    assert_eq!(machine.step(Event::Orphaned, at(10), 0.5), []);
    assert_eq!(machine.idle_for(at(10)), Duration::from_secs(30));
    assert_eq!(machine.step(Event::Tick, at(39), 0.5), []);
    assert_eq!(machine.step(Event::Anchored, at(39), 0.5), []);
    assert_eq!(machine.step(Event::Tick, at(41), 0.5), []);
    assert_eq!(machine.step(Event::Orphaned, at(50), 0.5), []);
    assert_eq!(machine.step(Event::Tick, at(80), 0.5), [Action::Obtain(Key::Begun)]);
    // The next is no better: a minute, two minutes, and so on.
    let mut now = 80;
    for pause in [60, 120, 240] {
        assert_eq!(machine.step(Event::Issued(hour(now)), at(now), 0.5), []);
        assert_eq!(machine.step(Event::Orphaned, at(now), 0.5), []);
        assert_eq!(machine.step(Event::Tick, at(now + pause - 1), 0.5), []);
        assert_eq!(machine.step(Event::Tick, at(now + pause), 0.5), [Action::Obtain(Key::New)]);
        now += pause;
    }
    // There is nothing to renew where there is nothing.
    let mut machine = new(None, false);
    assert_eq!(machine.step(Event::Orphaned, at(0), 0.5), []);
    assert_eq!(machine.step(Event::Tick, at(0), 0.5), [Action::Obtain(Key::Begun)]);
}
