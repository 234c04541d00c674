//! Tests of the state machine, one table per rule.

use time::Duration as Span;
use windlass_pki::PrivateKey;

use super::*;
use crate::renewal::FailureClass;
use crate::testing::{CertificateFixture, IdentityFixture as _, START};

const ALL: [FailureCause; 17] = [
    FailureCause::NoCredential,
    FailureCause::Unauthorized,
    FailureCause::Forbidden,
    FailureCause::NotServed,
    FailureCause::ServerError,
    FailureCause::Unreachable,
    FailureCause::DiskFull,
    FailureCause::DiskFailed,
    FailureCause::Unwritable,
    FailureCause::RequestTaken,
    FailureCause::NotDecided,
    FailureCause::RequestGone,
    FailureCause::RequestDenied,
    FailureCause::RequestFailed,
    FailureCause::BadCertificate,
    FailureCause::NamesMissing,
    FailureCause::CertificateRejected,
];

fn time_at(seconds: u64) -> ClockReading {
    let since = Duration::from_secs(seconds);
    ClockReading { wall: START + since, since }
}

/// A certificate for 100 hours, issued so many hours before the start.
fn aged(hours: i64) -> Arc<CertificateKeyPair> {
    let from = START - Span::hours(hours);
    let signed = CertificateFixture { until: from + Span::hours(100), ..CertificateFixture::client(from) };
    Arc::new(signed.identity(PrivateKey::generate().unwrap()))
}

fn machine(held: Option<Arc<CertificateKeyPair>>) -> RotationStateMachine {
    RotationStateMachine::new(CertificatePurpose::Client, RetryPolicy::default(), held, Vec::new(), 0.5)
}

fn specify(machine: &mut RotationStateMachine, now: ClockReading) -> Vec<RotationAction> {
    machine.step(RotationEvent::Template(Some(CertificateTemplate::client("n1"))), now, 0.5)
}

fn failure(cause: FailureCause) -> RotationEvent {
    RotationEvent::Failed(CertificateFailure { cause, message: "because".into() })
}

fn requested(actions: &[RotationAction]) -> Option<(RotationKey, RequesterCredential)> {
    let mut asks = actions.iter().filter_map(|action| match action {
        RotationAction::Obtain { key, credential, .. } => Some((*key, *credential)),
        _ => None,
    });
    let found = asks.next();
    assert!(asks.next().is_none(), "one at a time");
    found
}

#[test]
fn rotates_between_seven_and_nine_tenths() {
    for (random, hours) in [(0.0, 70), (0.25, 75), (0.5, 80), (1.0, 90)] {
        let held = RotationSchedule::new(aged(0), random);
        assert_eq!(held.rotate_at, START + Span::hours(hours), "{random}");
    }
}

#[test]
fn requests_certificate_when_needed() {
    let table = [
        ("none", None, "n1", Some(RequesterCredential::Bootstrap)),
        ("new", Some(0), "n1", None),
        ("not yet", Some(79), "n1", None),
        ("old", Some(80), "n1", Some(RequesterCredential::Own)),
        ("almost expired", Some(100), "n1", Some(RequesterCredential::Own)),
        ("expired", Some(101), "n1", Some(RequesterCredential::Bootstrap)),
        ("of the future", Some(-50), "n1", None),
        ("another name", Some(0), "n2", Some(RequesterCredential::Own)),
    ];
    for (what, age, node, expected) in table {
        let mut machine = machine(age.map(aged));
        assert!(machine.step(RotationEvent::Tick, time_at(0), 0.5).is_empty(), "{what}: not specified yet");
        assert_eq!(machine.report().doing, ManagerActivity::Unspecified);
        let template = Some(CertificateTemplate::client(node));
        let actions = machine.step(RotationEvent::Template(template), time_at(0), 0.5);
        assert_eq!(requested(&actions), expected.map(|who| (RotationKey::Kept, who)), "{what}");
        assert!(machine.step(RotationEvent::Tick, time_at(1), 0.5).is_empty(), "{what}: once");
    }
}

#[test]
fn wakes_up_when_it_is_due() {
    let mut machine = machine(Some(aged(79)));
    specify(&mut machine, time_at(0));
    assert_eq!(machine.idle_for(time_at(0)), LOOK, "the clock may jump");
    assert_eq!(machine.idle_for(time_at(3595)), Duration::from_secs(5));
    assert_eq!(requested(&machine.step(RotationEvent::Tick, time_at(3599), 0.5)), None);
    assert!(requested(&machine.step(RotationEvent::Tick, time_at(3600), 0.5)).is_some());
}

#[test]
fn a_jump_of_the_clock_is_noticed_both_ways() {
    let mut machine = machine(Some(aged(0)));
    specify(&mut machine, time_at(0));
    let ahead = ClockReading { wall: START + Span::days(365), since: Duration::from_secs(10) };
    let asked = requested(&machine.step(RotationEvent::Tick, ahead, 0.5));
    assert_eq!(asked, Some((RotationKey::Kept, RequesterCredential::Bootstrap)), "it seems expired");
    machine.step(RotationEvent::Asked("r".into()), ahead, 0.5);
    // The issued certificate is valid only by the signer's clock.
    let actions = machine.step(RotationEvent::Issued(aged(0)), ahead, 0.5);
    assert!(!actions.iter().any(|action| matches!(action, RotationAction::Store(_))));
    assert_eq!(machine.report().trouble.unwrap().cause, FailureCause::BadCertificate);
    // The clock is right again: the held certificate is valid, and nothing is requested.
    assert!(machine.step(RotationEvent::Tick, time_at(20), 0.5).is_empty());
    assert_eq!((machine.report().doing, machine.report().trouble), (ManagerActivity::Holding, None));
}

#[test]
fn pauses_by_what_went_wrong() {
    use FailureCause::*;
    let kept = Some((RotationKey::Kept, RequesterCredential::Own));
    let fresh = Some((RotationKey::Fresh, RequesterCredential::Own));
    let other = Some((RotationKey::Kept, RequesterCredential::Bootstrap));
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
        (CertificateRejected, 1, kept),
    ];
    assert_eq!(table.map(|(cause, ..)| cause), ALL);
    for (cause, pause, expected) in table {
        let mut machine = machine(Some(aged(85)));
        specify(&mut machine, time_at(0));
        let told = machine.step(failure(cause), time_at(0), 0.5);
        assert!(matches!(told[..], [RotationAction::Notify(RotationNotice::Failed(_))]), "{cause:?}");
        let report = machine.report();
        let until = START + Span::seconds(pause);
        assert_eq!(report.doing, ManagerActivity::Pausing { until }, "{cause:?}");
        assert_eq!((report.trouble.unwrap().cause, report.errors), (cause, 1));
        let pause = u64::try_from(pause).unwrap();
        assert_eq!(machine.idle_for(time_at(0)), Duration::from_secs(pause).min(LOOK), "{cause:?}");
        assert!(machine.step(RotationEvent::Tick, time_at(pause - 1), 0.5).is_empty(), "{cause:?}");
        assert_eq!(requested(&machine.step(RotationEvent::Tick, time_at(pause), 0.5)), expected, "{cause:?}");
        // The same failure is not reported again.
        assert!(machine.step(failure(cause), time_at(pause), 0.5).is_empty(), "{cause:?}");
    }
}

/// Counts the requests of a day, and those with a new key, if every attempt fails at once in the
/// same way.
fn requests_in_a_day(mut wrong: impl FnMut() -> RotationEvent) -> (usize, usize) {
    let mut machine = machine(None);
    let mut actions = specify(&mut machine, time_at(0));
    let (mut all, mut fresh) = (0, 0);
    for second in 0..86_400 {
        while let Some((key, _)) = requested(&actions) {
            all += 1;
            fresh += usize::from(key == RotationKey::Fresh);
            machine.step(RotationEvent::Asked("r".into()), time_at(second), 0.5);
            actions = machine.step(wrong(), time_at(second), 0.5);
            while let Some(RotationAction::Store(_)) = actions.first() {
                actions = machine.step(RotationEvent::Stored, time_at(second), 0.5);
            }
        }
        actions = machine.step(RotationEvent::Tick, time_at(second), 0.5);
    }
    (all, fresh)
}

#[test]
fn requests_are_rate_limited_in_every_case() {
    for cause in ALL {
        let (all, fresh) = requests_in_a_day(|| failure(cause));
        // Polling a pending request is cheap; a new request is not.
        let (most, most_fresh) = match (failure_class(cause), key_after(cause)) {
            (FailureClass::Refused, RotationKey::Fresh) => (31, 31),
            (FailureClass::Refused, RotationKey::Kept) => (31, 0),
            (FailureClass::Collision, _) => (32, 32),
            // In practice this takes a quarter of an hour.
            (FailureClass::Undecided, _) => (86_400, 0),
            (FailureClass::Transient, _) => (1447, 0),
        };
        assert!(all <= most && fresh <= most_fresh && all > 20, "{cause:?}: {all}, {fresh} new");
    }
    let lacking = CertificateFixture { organizations: &[], ..CertificateFixture::client(START) };
    let (all, _) = requests_in_a_day(|| {
        let until = START + Span::days(30);
        let signed = CertificateFixture { until, names: lacking.names.clone(), ..lacking };
        RotationEvent::Issued(Arc::new(signed.identity(PrivateKey::generate().unwrap())))
    });
    assert!((20..=31).contains(&all), "a signer that drops names: {all}");
    let (all, _) = requests_in_a_day(|| RotationEvent::Issued(aged(95)));
    assert!((20..=31).contains(&all), "a signer that issues old certificates: {all}");
}

#[test]
fn frequently_changing_names_do_not_cause_frequent_requests() {
    let mut machine = machine(None);
    let (mut asked, mut open) = (0, 0);
    for second in 0..3600 {
        let template = CertificateTemplate::client(if second % 2 == 0 { "n1" } else { "n2" });
        for event in [RotationEvent::Template(Some(template)), RotationEvent::Tick] {
            for action in machine.step(event, time_at(second), 0.5) {
                match action {
                    RotationAction::Obtain { .. } => (asked, open) = (asked + 1, open + 1),
                    RotationAction::Cancel => open -= 1,
                    _ => {}
                }
            }
            assert!(open <= 1, "one at a time");
        }
        let cancelled = machine.step(RotationEvent::Asked("r".into()), time_at(second), 0.5);
        open -= i32::from(matches!(cancelled[..], [RotationAction::Cancel, ..]));
        asked += cancelled.iter().filter(|a| matches!(a, RotationAction::Obtain { .. })).count();
    }
    assert!((60..=66).contains(&asked), "{asked}");
}

#[test]
fn changed_names_are_requested_with_a_new_key_at_once() {
    let other = || RotationEvent::Template(Some(CertificateTemplate::client("n2")));
    let same = || RotationEvent::Template(Some(CertificateTemplate::client("n1")));
    let fresh = Some((RotationKey::Fresh, RequesterCredential::Bootstrap));
    // While a request is pending.
    let mut waiting = machine(None);
    specify(&mut waiting, time_at(0));
    waiting.step(RotationEvent::Asked("r".into()), time_at(0), 0.5);
    assert!(waiting.step(RotationEvent::Template(None), time_at(1), 0.5).is_empty());
    assert!(waiting.step(same(), time_at(1), 0.5).is_empty(), "they are as they were");
    let actions = waiting.step(other(), time_at(1), 0.5);
    assert!(matches!(actions[0], RotationAction::Cancel));
    assert_eq!(requested(&actions), fresh);
    // During the backoff after a refusal, which may have been for the names.
    let mut pausing = machine(None);
    specify(&mut pausing, time_at(0));
    pausing.step(failure(FailureCause::RequestDenied), time_at(0), 0.5);
    assert_eq!(requested(&pausing.step(other(), time_at(1), 0.5)), fresh);
    // During a submission, its result is handled first.
    let mut asking = machine(None);
    specify(&mut asking, time_at(0));
    assert!(asking.step(other(), time_at(0), 0.5).is_empty());
    assert_eq!(requested(&asking.step(RotationEvent::Asked("r".into()), time_at(0), 0.5)), fresh);
    // With a valid certificate.
    let mut holding = machine(Some(aged(0)));
    specify(&mut holding, time_at(0));
    let kept = Some((RotationKey::Kept, RequesterCredential::Own));
    assert_eq!(requested(&holding.step(other(), time_at(1), 0.5)), kept);
}

fn rejection(identity: &Arc<CertificateKeyPair>) -> CertificateRejection {
    CertificateRejection { identity: identity.clone(), since: START }
}

#[test]
fn a_rejected_certificate_is_replaced_with_the_bootstrap_credential_and_a_new_key() {
    let fresh = Some((RotationKey::Fresh, RequesterCredential::Bootstrap));
    let held = aged(0);
    let mut machine = machine(Some(held.clone()));
    specify(&mut machine, time_at(0));
    // Another certificate was rejected, before this one.
    let other = RotationEvent::Rejection(Some(rejection(&aged(0))));
    assert!(machine.step(other, time_at(1), 0.5).is_empty());
    let actions = machine.step(RotationEvent::Rejection(Some(rejection(&held))), time_at(10), 0.5);
    assert!(matches!(actions[0], RotationAction::Notify(RotationNotice::Failed(_))));
    assert_eq!(requested(&actions), fresh);
    let report = machine.report();
    assert_eq!((report.rejections, report.held.unwrap().rejected_since), (1, Some(START)));
    assert_eq!(report.trouble.unwrap().cause, FailureCause::CertificateRejected);
    // Without a bootstrap credential, the rejected certificate is not tried instead, and the error stays the same.
    for (second, told) in [(10, 1), (11, 0), (13, 0)] {
        assert_eq!(machine.step(failure(FailureCause::NoCredential), time_at(second), 0.5).len(), told);
        let pause = machine.idle_for(time_at(second));
        let again = machine.step(RotationEvent::Tick, time_at(second + pause.as_secs()), 0.5);
        assert_eq!(requested(&again), Some((RotationKey::Kept, RequesterCredential::Bootstrap)));
    }
    machine.step(RotationEvent::Asked("r".into()), time_at(30), 0.5);
    machine.step(RotationEvent::Issued(aged(0)), time_at(30), 0.5);
    let actions = machine.step(RotationEvent::Stored, time_at(30), 0.5);
    let [RotationAction::Publish(_), RotationAction::Notify(RotationNotice::Stored { .. }), replaced] =
        &actions[..]
    else {
        panic!("{actions:?}")
    };
    let serial = serial_text(&held);
    assert!(
        matches!(replaced, RotationAction::Notify(RotationNotice::Replaced { serial: one }) if *one == serial)
    );
    let report = machine.report();
    assert_eq!((report.doing, report.trouble, report.rejections), (ManagerActivity::Holding, None, 1));
    // What is said about the old certificate does not concern the new one.
    assert!(machine.step(RotationEvent::Rejection(Some(rejection(&held))), time_at(31), 0.5).is_empty());
}

#[test]
fn a_certificate_that_is_accepted_again_is_kept() {
    let held = aged(0);
    let mut machine = machine(Some(held.clone()));
    specify(&mut machine, time_at(0));
    machine.step(RotationEvent::Rejection(Some(rejection(&held))), time_at(10), 0.5);
    machine.step(failure(FailureCause::Unauthorized), time_at(10), 0.5);
    assert!(machine.step(RotationEvent::Rejection(None), time_at(11), 0.5).is_empty());
    let report = machine.report();
    assert_eq!((report.doing, report.trouble), (ManagerActivity::Holding, None));
    assert_eq!(report.held.unwrap().rejected_since, None);
}

#[test]
fn rejections_are_answered_within_the_request_limit() {
    let mut machine = machine(Some(aged(0)));
    specify(&mut machine, time_at(0));
    let mut asked = 0;
    for second in 0..600 {
        // Every new certificate is rejected at once.
        let held = machine.held.as_ref().unwrap().identity.clone();
        let mut actions =
            machine.step(RotationEvent::Rejection(Some(rejection(&held))), time_at(second), 0.5);
        actions.extend(machine.step(RotationEvent::Tick, time_at(second), 0.5));
        if requested(&actions).is_some() {
            asked += 1;
            machine.step(RotationEvent::Issued(aged(0)), time_at(second), 0.5);
            machine.step(RotationEvent::Stored, time_at(second), 0.5);
        }
    }
    assert!((14..=15).contains(&asked), "five at once and one a minute: {asked}");
}

#[test]
fn incomplete_certificate_is_better_than_none() {
    let lacking = || {
        let signed = CertificateFixture { organizations: &[], ..CertificateFixture::client(START) };
        RotationEvent::Issued(Arc::new(signed.identity(PrivateKey::generate().unwrap())))
    };
    for (what, held, taken) in [
        ("nothing", None, true),
        ("an expired one", Some(aged(101)), true),
        ("one that is good", Some(aged(85)), false),
    ] {
        let mut machine = machine(held);
        specify(&mut machine, time_at(0));
        machine.step(RotationEvent::Asked("r".into()), time_at(0), 0.5);
        let mut actions = machine.step(lacking(), time_at(0), 0.5);
        assert_eq!(matches!(actions[0], RotationAction::Store(_)), taken, "{what}");
        if taken {
            actions = machine.step(RotationEvent::Stored, time_at(0), 0.5);
            assert!(matches!(actions[0], RotationAction::Publish(_)), "{what}");
            assert!(machine.report().held.unwrap().lacking.is_some());
        }
        let report = machine.report();
        assert_eq!(report.trouble.unwrap().cause, FailureCause::NamesMissing, "{what}");
        assert_eq!(report.doing, ManagerActivity::Pausing { until: START + Span::MINUTE }, "{what}");
    }
}

#[test]
fn a_failing_disk_only_causes_delay() {
    for (held, used) in [(None, true), (Some(aged(101)), true), (Some(aged(85)), false)] {
        let mut machine = machine(held);
        specify(&mut machine, time_at(0));
        machine.step(RotationEvent::Asked("r".into()), time_at(0), 0.5);
        assert!(matches!(
            machine.step(RotationEvent::Issued(aged(0)), time_at(0), 0.5)[..],
            [RotationAction::Store(_)]
        ));
        let actions = machine.step(failure(FailureCause::DiskFull), time_at(0), 0.5);
        assert_eq!(actions.iter().any(|a| matches!(a, RotationAction::Publish(_))), used);
        assert_eq!(machine.report().trouble.unwrap().cause, FailureCause::DiskFull);
        for second in [1, 3, 7] {
            let actions = machine.step(RotationEvent::Tick, time_at(second), 0.5);
            assert!(matches!(actions[..], [RotationAction::Store(_)]), "stored, not asked for again");
            machine.step(failure(FailureCause::DiskFull), time_at(second), 0.5);
        }
        assert!(matches!(
            machine.step(RotationEvent::Tick, time_at(15), 0.5)[..],
            [RotationAction::Store(_)]
        ));
        let actions = machine.step(RotationEvent::Stored, time_at(15), 0.5);
        assert!(matches!(actions[0], RotationAction::Publish(_)));
        let report = machine.report();
        assert_eq!((report.doing, report.trouble, report.stored), (ManagerActivity::Holding, None, 1));
    }
}

#[test]
fn a_key_that_could_not_be_made_is_still_to_be_made() {
    let mut machine = machine(None);
    specify(&mut machine, time_at(0));
    machine.step(failure(FailureCause::RequestDenied), time_at(0), 0.5);
    assert!(requested(&machine.step(RotationEvent::Tick, time_at(60), 0.5)).is_some());
    machine.step(failure(FailureCause::DiskFull), time_at(60), 0.5);
    let asked = requested(&machine.step(RotationEvent::Tick, time_at(61), 0.5));
    assert_eq!(asked, Some((RotationKey::Fresh, RequesterCredential::Bootstrap)));
    // Once generated, the key is kept.
    machine.step(failure(FailureCause::Unreachable), time_at(61), 0.5);
    let asked = requested(&machine.step(RotationEvent::Tick, time_at(64), 0.5));
    assert_eq!(asked, Some((RotationKey::Kept, RequesterCredential::Bootstrap)));
}

#[test]
fn a_serving_certificate_is_requested_by_the_node_only() {
    for held in [None, Some(aged(85)), Some(aged(101))] {
        let pace = RetryPolicy::default();
        let mut machine = RotationStateMachine::new(CertificatePurpose::Serving, pace, held, Vec::new(), 0.5);
        assert_eq!(
            requested(&specify(&mut machine, time_at(0))),
            Some((RotationKey::Kept, RequesterCredential::Own))
        );
        machine.step(failure(FailureCause::Unauthorized), time_at(0), 0.5);
        let again = requested(&machine.step(RotationEvent::Tick, time_at(1), 0.5));
        assert_eq!(again, Some((RotationKey::Kept, RequesterCredential::Own)));
    }
}

/// The running job and its possible results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PendingJob {
    None,
    Asking,
    Waiting,
    Storing,
}

fn apply_actions(job: &mut PendingJob, actions: &[RotationAction], what: &str) {
    for action in actions {
        let next = match action {
            RotationAction::Obtain { .. } => PendingJob::Asking,
            RotationAction::Store(_) => PendingJob::Storing,
            RotationAction::Cancel => {
                assert_eq!(*job, PendingJob::Waiting, "{what}: only waiting is given up");
                *job = PendingJob::None;
                continue;
            }
            RotationAction::Publish(_) | RotationAction::Notify(_) => continue,
        };
        assert_eq!(*job, PendingJob::None, "{what}: one at a time");
        *job = next;
    }
}

#[test]
fn any_event_sequence_runs_one_job_and_recovers() {
    let certificates = [aged(0), aged(0), aged(85), aged(101)];
    let templates = ["n1", "n2"].map(CertificateTemplate::client);
    for seed in 1..=3000u64 {
        let mut state = seed;
        let mut dice = |sides: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040);
            usize::try_from((state >> 33) % sides).unwrap()
        };
        let held = certificates.get(dice(5)).cloned();
        let (mut machine, mut job, mut second) = (machine(held), PendingJob::None, 0);
        for _ in 0..60 {
            second += [0, 1, 20, 100, 4000][dice(5)];
            let rejection =
                machine.held.as_ref().filter(|_| dice(2) == 0).map(|held| rejection(&held.identity));
            let event = match (dice(5), job) {
                (4, _) => RotationEvent::Rejection(rejection),
                (0, _) | (1, PendingJob::None) => RotationEvent::Tick,
                (1, _) | (_, PendingJob::None) => RotationEvent::Template(templates.get(dice(3)).cloned()),
                (2, PendingJob::Asking) => {
                    job = PendingJob::Waiting;
                    RotationEvent::Asked("r".into())
                }
                (2, PendingJob::Waiting) => {
                    job = PendingJob::None;
                    RotationEvent::Issued(certificates[dice(4)].clone())
                }
                (2, PendingJob::Storing) => {
                    job = PendingJob::None;
                    RotationEvent::Stored
                }
                (_, _) => {
                    job = PendingJob::None;
                    failure(ALL[dice(17)])
                }
            };
            let what = format!("seed {seed}, {event:?}");
            let actions = machine.step(event, time_at(second), 0.5);
            apply_actions(&mut job, &actions, &what);
        }
        // Everything succeeds from now on.
        let actions = machine.step(RotationEvent::Template(Some(templates[0].clone())), time_at(second), 0.5);
        apply_actions(&mut job, &actions, "at last");
        for _ in 0..600 {
            second += 10;
            let event = match job {
                PendingJob::None => RotationEvent::Tick,
                PendingJob::Asking => RotationEvent::Asked("r".into()),
                PendingJob::Waiting => {
                    let from = time_at(second).wall;
                    let signed = CertificateFixture {
                        until: from + Span::days(9),
                        ..CertificateFixture::client(from)
                    };
                    RotationEvent::Issued(Arc::new(signed.identity(PrivateKey::generate().unwrap())))
                }
                PendingJob::Storing => RotationEvent::Stored,
            };
            job = if job == PendingJob::Asking { PendingJob::Waiting } else { PendingJob::None };
            let actions = machine.step(event, time_at(second), 0.5);
            apply_actions(&mut job, &actions, "at last");
        }
        let report = machine.report();
        assert_eq!((&report.doing, &report.trouble), (&ManagerActivity::Holding, &None), "seed {seed}");
        assert!(report.held.unwrap().expires > time_at(second).wall, "seed {seed}");
    }
}

#[test]
fn a_certificate_of_a_tainted_authority_is_renewed_at_its_moment_and_then_with_backoff() {
    let at = |seconds: i64| START + Span::seconds(seconds);
    let mut machine = machine(Some(aged(0)));
    specify(&mut machine, time_at(0));
    assert!(machine.step(RotationEvent::Tainted(Some(at(100))), time_at(10), 0.5).is_empty());
    assert_eq!(machine.report().held.unwrap().rotate_at, at(100));
    assert_eq!(machine.idle_for(time_at(95)), Duration::from_secs(5));
    assert!(machine.step(RotationEvent::Tick, time_at(99), 0.5).is_empty());
    let asked = requested(&machine.step(RotationEvent::Tick, time_at(100), 0.5));
    assert_eq!(asked, Some((RotationKey::Kept, RequesterCredential::Own)));
    let mut now = 100;
    for pause in [60, 120, 240] {
        machine.step(RotationEvent::Issued(aged(0)), time_at(now), 0.5);
        machine.step(RotationEvent::Stored, time_at(now), 0.5);
        assert!(machine.step(RotationEvent::Tainted(Some(at(100))), time_at(now), 0.5).is_empty(), "{pause}");
        assert!(machine.step(RotationEvent::Tick, time_at(now + pause - 1), 0.5).is_empty(), "{pause}");
        now += pause;
        assert!(requested(&machine.step(RotationEvent::Tick, time_at(now), 0.5)).is_some(), "{pause}");
    }
    machine.step(RotationEvent::Issued(aged(0)), time_at(now), 0.5);
    machine.step(RotationEvent::Stored, time_at(now), 0.5);
    assert!(machine.step(RotationEvent::Tainted(None), time_at(now), 0.5).is_empty());
    assert_eq!(machine.report().held.unwrap().rotate_at, START + Span::hours(80));
}
