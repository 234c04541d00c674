//! One table per rule.

use time::Duration as Span;
use windlass_pki::PrivateKey;

use super::*;
use crate::testing::{START, Signed};

const ALL: [Cause; 16] = [
    Cause::NoCredential,
    Cause::Unauthorized,
    Cause::Forbidden,
    Cause::NotServed,
    Cause::ServerError,
    Cause::Unreachable,
    Cause::DiskFull,
    Cause::DiskFailed,
    Cause::Unwritable,
    Cause::RequestTaken,
    Cause::NotDecided,
    Cause::RequestGone,
    Cause::RequestDenied,
    Cause::RequestFailed,
    Cause::BadCertificate,
    Cause::NamesMissing,
];

fn at(seconds: u64) -> Moment {
    let since = Duration::from_secs(seconds);
    Moment { wall: START + since, since }
}

/// A certificate for 100 hours that began so many hours before the start.
fn aged(hours: i64) -> Arc<Identity> {
    let from = START - Span::hours(hours);
    let signed = Signed { until: from + Span::hours(100), ..Signed::client(from) };
    Arc::new(signed.identity(PrivateKey::generate().unwrap()))
}

fn machine(held: Option<Arc<Identity>>) -> Machine {
    Machine::new(Purpose::Client, Pace::default(), held, Vec::new(), 0.5)
}

fn specify(machine: &mut Machine, now: Moment) -> Vec<Action> {
    machine.step(Event::Template(Some(Template::client("n1"))), now, 0.5)
}

fn failure(cause: Cause) -> Event {
    Event::Failed(Trouble { cause, message: "because".into() })
}

fn asks(actions: &[Action]) -> Option<(Key, Credential)> {
    let mut asks = actions.iter().filter_map(|action| match action {
        Action::Obtain { key, credential, .. } => Some((*key, *credential)),
        _ => None,
    });
    let found = asks.next();
    assert!(asks.next().is_none(), "one at a time");
    found
}

#[test]
fn rotates_between_seven_and_nine_tenths() {
    for (random, hours) in [(0.0, 70), (0.25, 75), (0.5, 80), (1.0, 90)] {
        let held = Held::new(aged(0), random);
        assert_eq!(held.rotate_at, START + Span::hours(hours), "{random}");
    }
}

#[test]
fn asks_when_one_is_needed() {
    let table = [
        ("none", None, "n1", Some(Credential::Bootstrap)),
        ("new", Some(0), "n1", None),
        ("not yet", Some(79), "n1", None),
        ("old", Some(80), "n1", Some(Credential::Own)),
        ("almost expired", Some(100), "n1", Some(Credential::Own)),
        ("expired", Some(101), "n1", Some(Credential::Bootstrap)),
        ("of the future", Some(-50), "n1", None),
        ("another name", Some(0), "n2", Some(Credential::Own)),
    ];
    for (what, age, node, expected) in table {
        let mut machine = machine(age.map(aged));
        assert!(machine.step(Event::Tick, at(0), 0.5).is_empty(), "{what}: not specified yet");
        assert_eq!(machine.report().doing, Doing::Unspecified);
        let template = Some(Template::client(node));
        let actions = machine.step(Event::Template(template), at(0), 0.5);
        assert_eq!(asks(&actions), expected.map(|who| (Key::Kept, who)), "{what}");
        assert!(machine.step(Event::Tick, at(1), 0.5).is_empty(), "{what}: once");
    }
}

#[test]
fn wakes_up_when_it_is_due() {
    let mut machine = machine(Some(aged(79)));
    specify(&mut machine, at(0));
    assert_eq!(machine.idle_for(at(0)), LOOK, "the clock may jump");
    assert_eq!(machine.idle_for(at(3595)), Duration::from_secs(5));
    assert_eq!(asks(&machine.step(Event::Tick, at(3599), 0.5)), None);
    assert!(asks(&machine.step(Event::Tick, at(3600), 0.5)).is_some());
}

#[test]
fn a_jump_of_the_clock_is_noticed_both_ways() {
    let mut machine = machine(Some(aged(0)));
    specify(&mut machine, at(0));
    let ahead = Moment { wall: START + Span::days(365), since: Duration::from_secs(10) };
    let asked = asks(&machine.step(Event::Tick, ahead, 0.5));
    assert_eq!(asked, Some((Key::Kept, Credential::Bootstrap)), "it seems expired");
    machine.step(Event::Asked("r".into()), ahead, 0.5);
    // What comes is good by the signer's clock only.
    let actions = machine.step(Event::Issued(aged(0)), ahead, 0.5);
    assert!(!actions.iter().any(|action| matches!(action, Action::Store(_))));
    assert_eq!(machine.report().trouble.unwrap().cause, Cause::BadCertificate);
    // Back where it was: what is held is good, and nothing is asked for.
    assert!(machine.step(Event::Tick, at(20), 0.5).is_empty());
    assert_eq!((machine.report().doing, machine.report().trouble), (Doing::Holding, None));
}

#[test]
fn pauses_by_what_went_wrong() {
    use Cause::*;
    let kept = Some((Key::Kept, Credential::Own));
    let fresh = Some((Key::Fresh, Credential::Own));
    let other = Some((Key::Kept, Credential::Bootstrap));
    let table = [
        (NoCredential, 1, other),
        (Unauthorized, 1, other),
        (Forbidden, 1, kept),
        (NotServed, 1, kept),
        (ServerError, 1, kept),
        (Unreachable, 1, kept),
        (DiskFull, 1, kept),
        (DiskFailed, 1, kept),
        (Unwritable, 60, kept),
        (RequestTaken, 1, fresh),
        (NotDecided, 1, kept),
        (RequestGone, 60, kept),
        (RequestDenied, 60, fresh),
        (RequestFailed, 60, fresh),
        (BadCertificate, 60, fresh),
        (NamesMissing, 60, fresh),
    ];
    assert_eq!(table.map(|(cause, ..)| cause), ALL);
    for (cause, pause, expected) in table {
        let mut machine = machine(Some(aged(85)));
        specify(&mut machine, at(0));
        let told = machine.step(failure(cause), at(0), 0.5);
        assert!(matches!(told[..], [Action::Notify(Notice::Trouble(_))]), "{cause:?}");
        let report = machine.report();
        let until = START + Span::seconds(pause);
        assert_eq!(report.doing, Doing::Pausing { until }, "{cause:?}");
        assert_eq!((report.trouble.unwrap().cause, report.errors), (cause, 1));
        let pause = u64::try_from(pause).unwrap();
        assert_eq!(machine.idle_for(at(0)), Duration::from_secs(pause).min(LOOK), "{cause:?}");
        assert!(machine.step(Event::Tick, at(pause - 1), 0.5).is_empty(), "{cause:?}");
        assert_eq!(asks(&machine.step(Event::Tick, at(pause), 0.5)), expected, "{cause:?}");
        // The same again is not news.
        assert!(machine.step(failure(cause), at(pause), 0.5).is_empty(), "{cause:?}");
    }
}

/// How often a certificate is asked for in a day, and how often with a new key, if the same thing
/// goes wrong every time at once.
fn asked_in_a_day(mut wrong: impl FnMut() -> Event) -> (usize, usize) {
    let mut machine = machine(None);
    let mut actions = specify(&mut machine, at(0));
    let (mut all, mut fresh) = (0, 0);
    for second in 0..86_400 {
        while let Some((key, _)) = asks(&actions) {
            all += 1;
            fresh += usize::from(key == Key::Fresh);
            machine.step(Event::Asked("r".into()), at(second), 0.5);
            actions = machine.step(wrong(), at(second), 0.5);
            while let Some(Action::Store(_)) = actions.first() {
                actions = machine.step(Event::Stored, at(second), 0.5);
            }
        }
        actions = machine.step(Event::Tick, at(second), 0.5);
    }
    (all, fresh)
}

#[test]
fn nothing_makes_it_ask_too_often() {
    for cause in ALL {
        let (all, fresh) = asked_in_a_day(|| failure(cause));
        // Looking again at what was asked for is cheap; asking anew is not.
        let (most, most_fresh) = match (weight(cause), key_after(cause)) {
            (Weight::Refusal, Key::Fresh) => (31, 31),
            (Weight::Refusal, Key::Kept) => (31, 0),
            (Weight::Once, _) => (32, 32),
            // In life it takes a quarter of an hour until this happens.
            (Weight::Nothing, _) => (86_400, 0),
            (Weight::Trouble, _) => (1447, 0),
        };
        assert!(all <= most && fresh <= most_fresh && all > 20, "{cause:?}: {all}, {fresh} new");
    }
    let lacking = Signed { organizations: &[], ..Signed::client(START) };
    let (all, _) = asked_in_a_day(|| {
        let until = START + Span::days(30);
        let signed = Signed { until, names: lacking.names.clone(), ..lacking };
        Event::Issued(Arc::new(signed.identity(PrivateKey::generate().unwrap())))
    });
    assert!((20..=31).contains(&all), "a signer that drops names: {all}");
    let (all, _) = asked_in_a_day(|| Event::Issued(aged(95)));
    assert!((20..=31).contains(&all), "a signer that issues old certificates: {all}");
}

#[test]
fn names_that_change_all_the_time_do_not_make_it_ask_all_the_time() {
    let mut machine = machine(None);
    let (mut asked, mut open) = (0, 0);
    for second in 0..3600 {
        let template = Template::client(if second % 2 == 0 { "n1" } else { "n2" });
        for event in [Event::Template(Some(template)), Event::Tick] {
            for action in machine.step(event, at(second), 0.5) {
                match action {
                    Action::Obtain { .. } => (asked, open) = (asked + 1, open + 1),
                    Action::Cancel => open -= 1,
                    _ => {}
                }
            }
            assert!(open <= 1, "one at a time");
        }
        let cancelled = machine.step(Event::Asked("r".into()), at(second), 0.5);
        open -= i32::from(matches!(cancelled[..], [Action::Cancel, ..]));
        asked += cancelled.iter().filter(|a| matches!(a, Action::Obtain { .. })).count();
    }
    assert!((60..=66).contains(&asked), "{asked}");
}

#[test]
fn other_names_are_asked_for_with_another_key_at_once() {
    let other = || Event::Template(Some(Template::client("n2")));
    let same = || Event::Template(Some(Template::client("n1")));
    let fresh = Some((Key::Fresh, Credential::Bootstrap));
    // While it waits.
    let mut waiting = machine(None);
    specify(&mut waiting, at(0));
    waiting.step(Event::Asked("r".into()), at(0), 0.5);
    assert!(waiting.step(Event::Template(None), at(1), 0.5).is_empty());
    assert!(waiting.step(same(), at(1), 0.5).is_empty(), "they are as they were");
    let actions = waiting.step(other(), at(1), 0.5);
    assert!(matches!(actions[0], Action::Cancel));
    assert_eq!(asks(&actions), fresh);
    // While it pauses after a refusal, which may have been for the names.
    let mut pausing = machine(None);
    specify(&mut pausing, at(0));
    pausing.step(failure(Cause::RequestDenied), at(0), 0.5);
    assert_eq!(asks(&pausing.step(other(), at(1), 0.5)), fresh);
    // While it asks, it first hears how that ended.
    let mut asking = machine(None);
    specify(&mut asking, at(0));
    assert!(asking.step(other(), at(0), 0.5).is_empty());
    assert_eq!(asks(&asking.step(Event::Asked("r".into()), at(0), 0.5)), fresh);
    // While it holds one that is good.
    let mut holding = machine(Some(aged(0)));
    specify(&mut holding, at(0));
    let kept = Some((Key::Kept, Credential::Own));
    assert_eq!(asks(&holding.step(other(), at(1), 0.5)), kept);
}

#[test]
fn what_lacks_something_is_better_than_nothing() {
    let lacking = || {
        let signed = Signed { organizations: &[], ..Signed::client(START) };
        Event::Issued(Arc::new(signed.identity(PrivateKey::generate().unwrap())))
    };
    for (what, held, taken) in [
        ("nothing", None, true),
        ("an expired one", Some(aged(101)), true),
        ("one that is good", Some(aged(85)), false),
    ] {
        let mut machine = machine(held);
        specify(&mut machine, at(0));
        machine.step(Event::Asked("r".into()), at(0), 0.5);
        let mut actions = machine.step(lacking(), at(0), 0.5);
        assert_eq!(matches!(actions[0], Action::Store(_)), taken, "{what}");
        if taken {
            actions = machine.step(Event::Stored, at(0), 0.5);
            assert!(matches!(actions[0], Action::Publish(_)), "{what}");
            assert!(machine.report().held.unwrap().lacking.is_some());
        }
        let report = machine.report();
        assert_eq!(report.trouble.unwrap().cause, Cause::NamesMissing, "{what}");
        assert_eq!(report.doing, Doing::Pausing { until: START + Span::MINUTE }, "{what}");
    }
}

#[test]
fn a_disk_that_does_not_take_it_costs_nothing_but_time() {
    for (held, used) in [(None, true), (Some(aged(101)), true), (Some(aged(85)), false)] {
        let mut machine = machine(held);
        specify(&mut machine, at(0));
        machine.step(Event::Asked("r".into()), at(0), 0.5);
        assert!(matches!(machine.step(Event::Issued(aged(0)), at(0), 0.5)[..], [Action::Store(_)]));
        let actions = machine.step(failure(Cause::DiskFull), at(0), 0.5);
        assert_eq!(actions.iter().any(|a| matches!(a, Action::Publish(_))), used);
        assert_eq!(machine.report().trouble.unwrap().cause, Cause::DiskFull);
        for second in [1, 3, 7] {
            let actions = machine.step(Event::Tick, at(second), 0.5);
            assert!(matches!(actions[..], [Action::Store(_)]), "stored, not asked for again");
            machine.step(failure(Cause::DiskFull), at(second), 0.5);
        }
        assert!(matches!(machine.step(Event::Tick, at(15), 0.5)[..], [Action::Store(_)]));
        let actions = machine.step(Event::Stored, at(15), 0.5);
        assert!(matches!(actions[0], Action::Publish(_)));
        let report = machine.report();
        assert_eq!((report.doing, report.trouble, report.stored), (Doing::Holding, None, 1));
    }
}

#[test]
fn a_key_that_could_not_be_made_is_still_to_be_made() {
    let mut machine = machine(None);
    specify(&mut machine, at(0));
    machine.step(failure(Cause::RequestDenied), at(0), 0.5);
    assert!(asks(&machine.step(Event::Tick, at(60), 0.5)).is_some());
    machine.step(failure(Cause::DiskFull), at(60), 0.5);
    let asked = asks(&machine.step(Event::Tick, at(61), 0.5));
    assert_eq!(asked, Some((Key::Fresh, Credential::Bootstrap)));
    // Once it is made, it is kept.
    machine.step(failure(Cause::Unreachable), at(61), 0.5);
    let asked = asks(&machine.step(Event::Tick, at(64), 0.5));
    assert_eq!(asked, Some((Key::Kept, Credential::Bootstrap)));
}

#[test]
fn a_serving_certificate_is_asked_for_by_the_node_only() {
    for held in [None, Some(aged(85)), Some(aged(101))] {
        let pace = Pace::default();
        let mut machine = Machine::new(Purpose::Serving, pace, held, Vec::new(), 0.5);
        assert_eq!(asks(&specify(&mut machine, at(0))), Some((Key::Kept, Credential::Own)));
        machine.step(failure(Cause::Unauthorized), at(0), 0.5);
        let again = asks(&machine.step(Event::Tick, at(1), 0.5));
        assert_eq!(again, Some((Key::Kept, Credential::Own)));
    }
}

/// What is under way, and what may come of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Job {
    None,
    Asking,
    Waiting,
    Storing,
}

fn follow(job: &mut Job, actions: &[Action], what: &str) {
    for action in actions {
        let next = match action {
            Action::Obtain { .. } => Job::Asking,
            Action::Store(_) => Job::Storing,
            Action::Cancel => {
                assert_eq!(*job, Job::Waiting, "{what}: only waiting is given up");
                *job = Job::None;
                continue;
            }
            Action::Publish(_) | Action::Notify(_) => continue,
        };
        assert_eq!(*job, Job::None, "{what}: one at a time");
        *job = next;
    }
}

#[test]
fn whatever_happens_one_thing_is_under_way_and_it_ends_well() {
    let certificates = [aged(0), aged(0), aged(85), aged(101)];
    let templates = ["n1", "n2"].map(Template::client);
    for seed in 1..=3000u64 {
        let mut state = seed;
        let mut dice = |sides: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040);
            usize::try_from((state >> 33) % sides).unwrap()
        };
        let held = certificates.get(dice(5)).cloned();
        let (mut machine, mut job, mut second) = (machine(held), Job::None, 0);
        for _ in 0..60 {
            second += [0, 1, 20, 100, 4000][dice(5)];
            let event = match (dice(4), job) {
                (0, _) | (1, Job::None) => Event::Tick,
                (1, _) | (_, Job::None) => Event::Template(templates.get(dice(3)).cloned()),
                (2, Job::Asking) => {
                    job = Job::Waiting;
                    Event::Asked("r".into())
                }
                (2, Job::Waiting) => {
                    job = Job::None;
                    Event::Issued(certificates[dice(4)].clone())
                }
                (2, Job::Storing) => {
                    job = Job::None;
                    Event::Stored
                }
                (_, _) => {
                    job = Job::None;
                    failure(ALL[dice(16)])
                }
            };
            let what = format!("seed {seed}, {event:?}");
            let actions = machine.step(event, at(second), 0.5);
            follow(&mut job, &actions, &what);
        }
        // From now on everything works.
        let actions = machine.step(Event::Template(Some(templates[0].clone())), at(second), 0.5);
        follow(&mut job, &actions, "at last");
        for _ in 0..600 {
            second += 10;
            let event = match job {
                Job::None => Event::Tick,
                Job::Asking => Event::Asked("r".into()),
                Job::Waiting => {
                    let from = at(second).wall;
                    let signed = Signed { until: from + Span::days(9), ..Signed::client(from) };
                    Event::Issued(Arc::new(signed.identity(PrivateKey::generate().unwrap())))
                }
                Job::Storing => Event::Stored,
            };
            job = if job == Job::Asking { Job::Waiting } else { Job::None };
            let actions = machine.step(event, at(second), 0.5);
            follow(&mut job, &actions, "at last");
        }
        let report = machine.report();
        assert_eq!((&report.doing, &report.trouble), (&Doing::Holding, &None), "seed {seed}");
        assert!(report.held.unwrap().expires > at(second).wall, "seed {seed}");
    }
}
