use super::*;
use crate::testing::{CertificateFixture, START};
use time::Duration as Span;
use windlass_pki::PrivateKey;

/// Returns a time this many seconds after the start.
fn time_at(seconds: i64) -> ClockReading {
    let since = Duration::from_secs(u64::try_from(seconds).unwrap());
    ClockReading { wall: START + Span::seconds(seconds), since }
}

/// Times of a certificate issued at this second, valid for an hour and renewed after half of it.
fn hour(issued: i64) -> RenewalTimes {
    let from = START + Span::seconds(issued);
    let key = PrivateKey::generate().unwrap();
    let signed = CertificateFixture { until: from + Span::HOUR, ..CertificateFixture::client(from) };
    RenewalTimes::for_pod(&signed.certificate(key.public_key()), Some(from + Span::minutes(30)))
}

fn new(found: Option<RenewalTimes>, outdated: bool) -> RenewalStateMachine {
    RenewalStateMachine::new(RetryPolicy::default(), found, outdated, 0.5)
}

fn refusal(by: RefusalKind) -> RequestRefusal {
    RequestRefusal { by, message: "no".into() }
}

fn trouble(lasting: bool) -> RenewalEvent {
    RenewalEvent::Failed { message: "trouble".into(), lasting }
}

/// The phase of a machine before an event.
#[derive(Clone, Copy, Debug, PartialEq)]
enum StartingPhase {
    Initial,
    Asking,
    Waiting,
    Pausing,
    Fresh,
    Refreshing,
    WaitingRefresh,
    PausingRefresh,
}

const ALL: [StartingPhase; 8] = [
    StartingPhase::Initial,
    StartingPhase::Asking,
    StartingPhase::Waiting,
    StartingPhase::Pausing,
    StartingPhase::Fresh,
    StartingPhase::Refreshing,
    StartingPhase::WaitingRefresh,
    StartingPhase::PausingRefresh,
];

/// When renewal of a certificate issued at the start is due: half an hour plus half of three
/// minutes.
const DUE: i64 = 1800 + 90;

impl StartingPhase {
    fn machine(self) -> (RenewalStateMachine, ClockReading) {
        let holds =
            matches!(self, Self::Fresh | Self::Refreshing | Self::WaitingRefresh | Self::PausingRefresh);
        let mut machine = new(holds.then(|| hour(0)), false);
        let now = time_at(if holds && self != Self::Fresh { DUE } else { 0 });
        if !matches!(self, Self::Initial | Self::Fresh) {
            let actions = machine.step(RenewalEvent::Tick, now, 0.5);
            assert_eq!(actions, [RenewalAction::Obtain(RenewalKey::Begun)], "{self:?}");
        }
        if !matches!(self, Self::Initial | Self::Fresh | Self::Asking | Self::Refreshing) {
            assert_eq!(machine.step(RenewalEvent::Asked, now, 0.5), []);
        }
        if matches!(self, Self::Pausing | Self::PausingRefresh) {
            let event = RenewalEvent::Refused(refusal(RefusalKind::Denied));
            assert_eq!(machine.step(event, now, 0.5).len(), 1);
        }
        (machine, now)
    }

    fn holds(self) -> bool {
        matches!(self, Self::Fresh | Self::Refreshing | Self::WaitingRefresh | Self::PausingRefresh)
    }
}

#[test]
fn every_event_in_every_phase() {
    for before in ALL {
        // Time passes: only an idle machine requests.
        let (mut machine, now) = before.machine();
        let actions = machine.step(RenewalEvent::Tick, now, 0.5);
        let expected = match before {
            StartingPhase::Initial => vec![RenewalAction::Obtain(RenewalKey::Begun)],
            _ => Vec::new(),
        };
        assert_eq!(actions, expected, "{before:?}");

        // An issued certificate ends every phase.
        let (mut machine, now) = before.machine();
        let seconds = i64::try_from(now.since.as_secs()).unwrap();
        assert_eq!(machine.step(RenewalEvent::Issued(hour(seconds)), now, 0.5), [], "{before:?}");
        assert_eq!(machine.phase, RenewalPhase::Idle);
        assert_eq!(machine.why, None);
        assert_eq!(machine.retries, RetryState::new(RetryPolicy::default()));
        assert_eq!(machine.idle_for(time_at(seconds + DUE - 10)), Duration::from_secs(10));
        assert_eq!(machine.step(RenewalEvent::Tick, time_at(seconds + DUE - 1), 0.5), []);
        let actions = machine.step(RenewalEvent::Tick, time_at(seconds + DUE), 0.5);
        assert_eq!(actions, [RenewalAction::Obtain(RenewalKey::New)], "{before:?}");

        // Refusals are reported, and retried with another key after a minute or more.
        for by in [RefusalKind::Denied, RefusalKind::Failed] {
            let (mut machine, now) = before.machine();
            let actions = machine.step(RenewalEvent::Refused(refusal(by)), now, 0.5);
            assert_eq!(actions, [RenewalAction::Notify(RenewalNotice::Refused(refusal(by)))], "{before:?}");
            assert_eq!((machine.reason(), machine.refusal_kind()), ("no", Some(by)));
            again_after(&mut machine, now, before, RenewalKey::New);
        }

        // A deleted request and a permanent failure are retried with the existing key.
        for event in [RenewalEvent::Gone("gone".into()), trouble(true)] {
            let (mut machine, now) = before.machine();
            assert_eq!(machine.step(event, now, 0.5), [], "{before:?}");
            assert_eq!(machine.refusal_kind(), None);
            let key = match before {
                StartingPhase::Pausing | StartingPhase::PausingRefresh => RenewalKey::New,
                _ => RenewalKey::Begun,
            };
            again_after(&mut machine, now, before, key);
        }

        // Transient failures are retried soon.
        let (mut machine, now) = before.machine();
        assert_eq!(machine.step(trouble(false), now, 0.5), [], "{before:?}");
        assert_eq!(machine.reason(), "trouble");
        if before != StartingPhase::Fresh {
            assert_eq!(machine.idle_for(now), Duration::from_secs(1), "{before:?}");
        }

        // A hindrance is shown, and changes nothing else.
        let (mut machine, now) = before.machine();
        let phase = machine.phase;
        assert_eq!(machine.step(RenewalEvent::Hindered("missing".into()), now, 0.5), []);
        assert_eq!((machine.reason(), machine.phase), ("missing", phase), "{before:?}");
    }
}

/// Checks that nothing is requested until the delay is over, and then with this key.
fn again_after(machine: &mut RenewalStateMachine, now: ClockReading, before: StartingPhase, key: RenewalKey) {
    let refused_before = matches!(before, StartingPhase::Pausing | StartingPhase::PausingRefresh);
    let pause = if refused_before { 120 } else { 60 };
    let seconds = i64::try_from(now.since.as_secs()).unwrap() + pause;
    if before == StartingPhase::Fresh {
        // Renewal is not due yet, whatever happened.
        assert_eq!(machine.step(RenewalEvent::Tick, time_at(seconds), 0.5), []);
        return;
    }
    assert_eq!(machine.step(RenewalEvent::Tick, time_at(seconds - 1), 0.5), [], "{before:?}");
    let actions = machine.step(RenewalEvent::Tick, time_at(seconds), 0.5);
    assert_eq!(actions, [RenewalAction::Obtain(key)], "{before:?}");
    assert_eq!(machine.held.is_some(), before.holds());
}

#[test]
fn pauses_grow_and_are_jittered() {
    let pauses = |event: &dyn Fn() -> RenewalEvent, random: f64| {
        let (mut machine, mut now) = (new(None, false), time_at(0));
        let mut pauses = Vec::new();
        for _ in 0..9 {
            machine.step(RenewalEvent::Tick, now, random);
            machine.step(event(), now, random);
            let RenewalPhase::Pausing { until } = machine.phase else { panic!("{:?}", machine.phase) };
            pauses.push((until - now.since).as_secs_f64());
            now = ClockReading { wall: now.wall + (until - now.since), since: until };
        }
        pauses
    };
    let denied = || RenewalEvent::Refused(refusal(RefusalKind::Denied));
    let minutes = [60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0, 3600.0];
    assert_eq!(pauses(&denied, 0.5), minutes);
    assert_eq!(pauses(&denied, 0.0), minutes.map(|seconds| seconds * 0.75));
    assert_eq!(pauses(&denied, 1.0), minutes.map(|seconds| seconds * 1.25));
    assert_eq!(pauses(&|| RenewalEvent::Gone("gone".into()), 0.5), minutes);
    let seconds = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0];
    assert_eq!(pauses(&|| trouble(false), 0.5), seconds);
}

#[test]
fn loaded_certificate_is_used_until_renewal() {
    let mut machine = new(Some(hour(0)), false);
    assert_eq!(machine.step(RenewalEvent::Tick, time_at(0), 0.5), []);
    assert_eq!(machine.idle_for(time_at(0)), LOOK, "the clock may jump");
    // An outdated certificate is renewed at once.
    let mut machine = new(Some(hour(0)), true);
    assert_eq!(machine.idle_for(time_at(0)), Duration::ZERO);
    assert_eq!(machine.step(RenewalEvent::Tick, time_at(0), 0.5), [RenewalAction::Obtain(RenewalKey::Begun)]);
    assert_eq!(machine.step(RenewalEvent::Issued(hour(0)), time_at(0), 0.5), []);
    assert_eq!(machine.step(RenewalEvent::Tick, time_at(0), 0.5), []);
    // Long overdue, so others probably are, too.
    for random in [0.0, 0.3, 1.0] {
        let mut machine = new(Some(hour(0)), false);
        let late = time_at(DUE + 3600);
        let told = machine.step(RenewalEvent::Tick, late, random);
        assert_eq!(told, [RenewalAction::Notify(RenewalNotice::Expired)]);
        assert_eq!(machine.idle_for(late), SPREAD.mul_f64(random));
        let then = ClockReading { since: late.since + SPREAD.mul_f64(random), ..late };
        assert_eq!(machine.step(RenewalEvent::Tick, then, 0.5), [RenewalAction::Obtain(RenewalKey::Begun)]);
    }
}

#[test]
fn overdue_and_expired_are_reported_once() {
    let mut machine = new(Some(hour(0)), false);
    let mut tell = |seconds| {
        let actions = machine.step(RenewalEvent::Tick, time_at(seconds), 0.5).into_iter();
        actions.filter(|action| matches!(action, RenewalAction::Notify(_))).collect::<Vec<_>>()
    };
    assert_eq!(tell(1800 + 600), []);
    assert_eq!(tell(1800 + 601), [RenewalAction::Notify(RenewalNotice::Overdue)]);
    assert_eq!(tell(1800 + 700), []);
    assert_eq!(tell(3600), []);
    assert_eq!(tell(3601), [RenewalAction::Notify(RenewalNotice::Expired)]);
    assert_eq!(tell(7200), []);
    machine.step(RenewalEvent::Issued(hour(7200)), time_at(7200), 0.5);
    let told = machine.step(RenewalEvent::Tick, time_at(7200 + 1800 + 601), 0.5);
    assert_eq!(
        told.first(),
        Some(&RenewalAction::Notify(RenewalNotice::Overdue)),
        "of another, it is reported again"
    );
}

#[test]
fn one_that_is_old_when_it_comes_is_not_asked_for_in_a_loop() {
    let (mut machine, now) = StartingPhase::Waiting.machine();
    let old = time_at(DUE);
    assert_eq!(machine.step(RenewalEvent::Issued(hour(0)), old, 0.5), []);
    assert_eq!(machine.idle_for(old), Duration::from_secs(60));
    assert!(machine.held.is_some() && now.since.is_zero());
    machine.step(RenewalEvent::Tick, time_at(DUE + 60), 0.5);
    machine.step(RenewalEvent::Issued(hour(0)), time_at(DUE + 60), 0.5);
    assert_eq!(machine.phase, RenewalPhase::Pausing { until: time_at(DUE + 60 + 120).since });
}

#[test]
fn a_clock_that_was_wrong_is_forgiven() {
    let mut machine = new(Some(hour(0)), false);
    machine.step(RenewalEvent::Tick, time_at(DUE + 3600), 0.5);
    assert!(matches!(machine.phase, RenewalPhase::Pausing { .. }));
    let back = ClockReading { wall: START, since: time_at(DUE + 3700).since };
    assert_eq!(machine.step(RenewalEvent::Tick, back, 0.5), []);
    assert_eq!(machine.phase, RenewalPhase::Idle);
}

#[test]
fn orphaned_certificate_is_due_unless_anchor_returns() {
    let mut machine = new(Some(hour(0)), false);
    assert_eq!(machine.step(RenewalEvent::Orphaned, time_at(10), 0.5), []);
    assert_eq!(machine.idle_for(time_at(10)), Duration::from_secs(30));
    assert_eq!(machine.step(RenewalEvent::Tick, time_at(39), 0.5), []);
    assert_eq!(machine.step(RenewalEvent::Anchored, time_at(39), 0.5), []);
    assert_eq!(machine.step(RenewalEvent::Tick, time_at(41), 0.5), []);
    assert_eq!(machine.step(RenewalEvent::Orphaned, time_at(50), 0.5), []);
    assert_eq!(
        machine.step(RenewalEvent::Tick, time_at(80), 0.5),
        [RenewalAction::Obtain(RenewalKey::Begun)]
    );
    // The next is no better: a minute, two minutes, and so on.
    let mut now = 80;
    for pause in [60, 120, 240] {
        assert_eq!(machine.step(RenewalEvent::Issued(hour(now)), time_at(now), 0.5), []);
        assert_eq!(machine.step(RenewalEvent::Orphaned, time_at(now), 0.5), []);
        assert_eq!(machine.step(RenewalEvent::Tick, time_at(now + pause - 1), 0.5), []);
        assert_eq!(
            machine.step(RenewalEvent::Tick, time_at(now + pause), 0.5),
            [RenewalAction::Obtain(RenewalKey::New)]
        );
        now += pause;
    }
    // Without a certificate there is nothing to renew.
    let mut machine = new(None, false);
    assert_eq!(machine.step(RenewalEvent::Orphaned, time_at(0), 0.5), []);
    assert_eq!(machine.step(RenewalEvent::Tick, time_at(0), 0.5), [RenewalAction::Obtain(RenewalKey::Begun)]);
}

#[test]
fn a_tainted_certificate_is_renewed_at_its_moment_and_then_with_backoff() {
    let at = |seconds: i64| START + Span::seconds(seconds);
    let mut machine = new(Some(hour(0)), false);
    machine.step(RenewalEvent::Tainted(at(100)), time_at(10), 0.5);
    assert_eq!(machine.idle_for(time_at(50)), Duration::from_secs(50));
    assert_eq!(machine.step(RenewalEvent::Tick, time_at(99), 0.5), []);
    // The moment moves with the taint, without backoff.
    machine.step(RenewalEvent::Tainted(at(120)), time_at(99), 0.5);
    assert_eq!(machine.step(RenewalEvent::Tick, time_at(119), 0.5), []);
    let asked = machine.step(RenewalEvent::Tick, time_at(120), 0.5);
    assert_eq!(asked, [RenewalAction::Obtain(RenewalKey::Begun)]);
    // Certificates of the tainted authority again: after one, two and four minutes.
    let mut now = 120;
    for pause in [60, 120, 240] {
        machine.step(RenewalEvent::Issued(hour(now)), time_at(now), 0.5);
        machine.step(RenewalEvent::Tainted(at(120)), time_at(now), 0.5);
        assert_eq!(machine.step(RenewalEvent::Tick, time_at(now + pause - 1), 0.5), [], "{pause}");
        now += pause;
        let asked = machine.step(RenewalEvent::Tick, time_at(now), 0.5);
        assert_eq!(asked, [RenewalAction::Obtain(RenewalKey::New)], "{pause}");
    }
    // One of another authority ends this, and a renewal that is due before the moment is not delayed.
    machine.step(RenewalEvent::Issued(hour(now)), time_at(now), 0.5);
    machine.step(RenewalEvent::Anchored, time_at(now), 0.5);
    assert_eq!(machine.step(RenewalEvent::Tick, time_at(now + DUE - 1), 0.5), []);
    machine.step(RenewalEvent::Tainted(at(now + DUE + 600)), time_at(now + DUE - 1), 0.5);
    assert_eq!(machine.step(RenewalEvent::Tick, time_at(now + DUE), 0.5).len(), 1);
}
