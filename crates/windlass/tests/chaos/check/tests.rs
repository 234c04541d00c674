//! A valid history, and every kind of violation.

use super::{CONFIG_MAPS, ConsistencyRule, REQUESTS, check};
use crate::history::{
    ChaosHistory, Content, FinalState, InjectedFault, ListedObject, Objects, ObservedEvent, OperationOutcome,
    OperationRequest, ReadVersion, RecordedOperation, RecordedWatch, RequestRoute, Revision, StoreChange,
    Time, WatchEnd, WatchEventKind, WatchStart,
};

const A: &str = "configmaps/a";
const B: &str = "configmaps/b";
const X: &str = "certificatesigningrequests/by-hand-x";

fn change(revision: Revision, key: &str, content: Option<&str>) -> StoreChange {
    StoreChange { revision, key: key.to_owned(), content: content.map(Content::from) }
}

/// Returns an operation that takes five units of time.
fn operation(start: Time, request: OperationRequest, outcome: OperationOutcome) -> RecordedOperation {
    RecordedOperation { client: 1, via: RequestRoute::Server(0), start, end: start + 5, request, outcome }
}

fn create(key: &str, content: &str) -> OperationRequest {
    OperationRequest::Create { key: key.to_owned(), content: content.to_owned() }
}

fn update(key: &str, content: &str, expect: Revision) -> OperationRequest {
    OperationRequest::Update { key: key.to_owned(), content: content.to_owned(), expect }
}

fn delete(key: &str, expect: Option<Revision>) -> OperationRequest {
    OperationRequest::Delete { key: key.to_owned(), expect }
}

fn get(key: &str, version: ReadVersion) -> OperationRequest {
    OperationRequest::Get { key: key.to_owned(), version }
}

fn list(version: ReadVersion) -> OperationRequest {
    OperationRequest::List { resource: CONFIG_MAPS.to_owned(), version }
}

fn object(version: Revision, content: &str) -> ListedObject {
    ListedObject { version, content: content.to_owned() }
}

fn found_outcome(version: Revision, content: &str) -> OperationOutcome {
    OperationOutcome::Found(object(version, content))
}

fn unknown() -> OperationOutcome {
    OperationOutcome::Unknown { code: 503, retry_after: true, why: String::new() }
}

fn refused() -> OperationOutcome {
    OperationOutcome::Refused { code: 503, retry_after: true }
}

fn objects(all: &[(&str, Revision, &str)]) -> Objects {
    let all = all.iter();
    all.map(|(key, version, content)| ((*key).to_owned(), object(*version, content))).collect()
}

fn listed(version: Revision, all: &[(&str, Revision, &str)]) -> OperationOutcome {
    OperationOutcome::Listed { version, objects: objects(all) }
}

fn observed_event(at: Time, version: Revision, news: WatchEventKind) -> ObservedEvent {
    ObservedEvent { at, version, news }
}

fn added(key: &str, content: &str) -> WatchEventKind {
    WatchEventKind::Added { key: key.to_owned(), content: content.to_owned() }
}

fn modified(key: &str, content: &str) -> WatchEventKind {
    WatchEventKind::Modified { key: key.to_owned(), content: content.to_owned() }
}

fn deleted(key: &str, content: &str) -> WatchEventKind {
    WatchEventKind::Deleted { key: key.to_owned(), content: content.to_owned() }
}

/// Indexes of the operations that cases below modify.
const UPDATED: usize = 1;
const DELETED: usize = 4;
const LOST: usize = 6;
const FRESH: usize = 7;
const LISTED: usize = 8;
const OLD: usize = 9;
const OLDER: usize = 10;
const EXACT: usize = 11;

fn good() -> ChaosHistory {
    let watch = RecordedWatch {
        client: 9,
        via: RequestRoute::Server(1),
        start: 12,
        resource: CONFIG_MAPS.to_owned(),
        from: WatchStart::Revision(1),
        follows: true,
        received: vec![
            observed_event(30, 2, added(A, "one")),
            observed_event(40, 3, modified(A, "two")),
            observed_event(50, 4, WatchEventKind::Bookmark),
            observed_event(60, 5, added(B, "three")),
            observed_event(80, 6, deleted(A, "two")),
        ],
        end: WatchEnd::Closed,
    };
    let after = RecordedWatch {
        start: 90,
        from: WatchStart::Revision(6),
        received: vec![
            observed_event(91, 7, added(A, "five")),
            observed_event(200, 11, WatchEventKind::Bookmark),
        ],
        ..watch.clone()
    };
    let whole = RecordedWatch {
        client: 8,
        start: 85,
        from: WatchStart::State,
        follows: false,
        received: vec![
            observed_event(86, 7, added(A, "five")),
            observed_event(86, 5, added(B, "three")),
            observed_event(87, 7, WatchEventKind::InitialEnd),
        ],
        ..watch.clone()
    };
    ChaosHistory {
        operations: vec![
            operation(10, create(A, "one"), OperationOutcome::Written(2)),
            operation(20, update(A, "two", 2), OperationOutcome::Written(3)),
            operation(30, update(A, "never", 2), OperationOutcome::Conflict),
            operation(40, create(B, "three"), OperationOutcome::Written(5)),
            operation(50, delete(A, Some(3)), OperationOutcome::Deleted),
            operation(60, create(B, "four"), OperationOutcome::Exists),
            // The write succeeded, but the response was lost.
            operation(70, create(A, "five"), unknown()),
            operation(80, get(A, ReadVersion::Newest), found_outcome(7, "five")),
            operation(90, list(ReadVersion::Newest), listed(7, &[(A, 7, "five"), (B, 5, "three")])),
            operation(100, get(B, ReadVersion::Any), found_outcome(5, "three")),
            operation(110, list(ReadVersion::Any), listed(8, &[(A, 7, "five"), (B, 5, "three")])),
            operation(120, list(ReadVersion::Exact(3)), listed(3, &[(A, 3, "two")])),
            operation(130, update(A, "refused", 7), refused()),
            operation(140, get("configmaps/c", ReadVersion::Newest), OperationOutcome::Absent),
            operation(150, create(X, "/"), OperationOutcome::Written(9)),
            operation(160, update(X, "approved/", 9), OperationOutcome::Written(10)),
        ],
        watches: vec![watch, after, whole],
        changes: vec![
            change(2, A, Some("one")),
            change(3, A, Some("two")),
            change(5, B, Some("three")),
            change(6, A, None),
            change(7, A, Some("five")),
            change(9, X, Some("/")),
            change(10, X, Some("approved/")),
            change(11, X, Some("approved/certificate")),
        ],
        faults: vec![fault(5, 170)],
        rest: vec![
            final_state(0, CONFIG_MAPS, &[(A, 7, "five"), (B, 5, "three")]),
            final_state(1, CONFIG_MAPS, &[(A, 7, "five"), (B, 5, "three")]),
            final_state(0, REQUESTS, &[(X, 11, "approved/certificate")]),
        ],
        probes: Vec::new(),
        newest: 11,
    }
}

fn fault(start: Time, end: Time) -> InjectedFault {
    let name = "the leader is killed".to_owned();
    InjectedFault { name, start, healed: end, end, leader_change: true, no_quorum: false }
}

fn final_state(server: usize, resource: &str, all: &[(&str, Revision, &str)]) -> FinalState {
    FinalState { server, resource: resource.to_owned(), version: 11, objects: objects(all) }
}

#[test]
fn a_correct_history_has_no_violations() {
    let verdict = check(&good());
    assert!(verdict.violations.is_empty(), "{}", verdict.report());
}

/// Description of a modification of the history, the rule that it violates, and the modification.
type ViolationCase = (&'static str, ConsistencyRule, fn(&mut ChaosHistory));

const WRITES: &[ViolationCase] = &[
    ("an acknowledged write is not stored", ConsistencyRule::AcknowledgedIsStored, |h| {
        h.changes.retain(|change| change.revision != 5);
    }),
    ("an acknowledged write is stored as something else", ConsistencyRule::AcknowledgedIsStored, |h| {
        h.operations[UPDATED].request = update(A, "zwei", 2);
    }),
    ("two writes got the same revision", ConsistencyRule::AcknowledgedIsStored, |h| {
        let twice = h.operations[UPDATED].clone();
        h.operations.push(twice);
    }),
    ("an acknowledged deletion was not made", ConsistencyRule::AcknowledgedIsStored, |h| {
        h.changes.retain(|change| change.revision != 6);
    }),
    ("a deletion was acknowledged to two", ConsistencyRule::AcknowledgedIsStored, |h| {
        let twice = h.operations[DELETED].clone();
        h.operations.push(twice);
    }),
    ("a refused write is stored", ConsistencyRule::RefusedIsNotStored, |h| {
        h.operations[LOST].outcome = refused();
    }),
    ("a value that was never written is stored", ConsistencyRule::StoredWasAskedFor, |h| {
        h.changes.push(change(12, B, Some("nobody")));
    }),
    ("a write is stored twice, and so an object comes back", ConsistencyRule::StoredWasAskedFor, |h| {
        h.changes.insert(4, change(8, B, None));
        h.changes.push(change(12, B, Some("three")));
    }),
    ("a deletion that was never requested", ConsistencyRule::StoredWasAskedFor, |h| {
        h.changes.push(change(12, B, None));
    }),
    ("an update overwrites what it did not know", ConsistencyRule::ConditionsHold, |h| {
        h.operations[UPDATED].request = update(A, "two", 1);
    }),
    ("an unanswered create overwrites", ConsistencyRule::ConditionsHold, |h| {
        h.changes.retain(|change| change.revision != 6);
    }),
    ("a revision goes back", ConsistencyRule::RevisionsGrow, |h| {
        let operation = &mut h.operations[UPDATED];
        (operation.start, operation.end) = (85, 89);
    }),
    ("an unanswered write is stored before it was asked for", ConsistencyRule::RevisionsGrow, |h| {
        let operation = &mut h.operations[LOST];
        (operation.start, operation.end) = (115, 118);
    }),
];

const READS: &[ViolationCase] = &[
    ("a read of a value that was never written", ConsistencyRule::ReadsAreTrue, |h| {
        h.operations[FRESH].outcome = found_outcome(7, "fünf");
    }),
    ("a read of a version that was not there", ConsistencyRule::ReadsAreTrue, |h| {
        h.operations[FRESH].outcome = found_outcome(8, "five");
    }),
    ("a list without an object", ConsistencyRule::ReadsAreTrue, |h| {
        h.operations[LISTED].outcome = listed(7, &[(A, 7, "five")]);
    }),
    ("a list with an object that was deleted", ConsistencyRule::ReadsAreTrue, |h| {
        h.operations[LISTED].outcome = listed(6, &[(A, 3, "two"), (B, 5, "three")]);
    }),
    ("an exact list of another revision", ConsistencyRule::ReadsAreTrue, |h| {
        h.operations[EXACT].outcome = listed(2, &[(A, 2, "one")]);
    }),
    ("a stale get, of what was changed", ConsistencyRule::ReadsAreFresh, |h| {
        h.operations[FRESH].outcome = found_outcome(2, "one");
    }),
    ("a stale get, of what was not there yet", ConsistencyRule::ReadsAreFresh, |h| {
        h.operations[FRESH].request = get(B, ReadVersion::Newest);
        h.operations[FRESH].outcome = OperationOutcome::Absent;
    }),
    ("a stale list", ConsistencyRule::ReadsAreFresh, |h| {
        h.operations[LISTED].outcome = listed(5, &[(A, 3, "two"), (B, 5, "three")]);
    }),
    ("a create refused because of what is long gone", ConsistencyRule::ReadsAreFresh, |h| {
        h.changes.push(change(12, B, None));
        h.newest = 12;
        h.operations.push(operation(170, delete(B, None), OperationOutcome::Deleted));
        // Every client can know that it was deleted.
        h.operations.push(operation(180, list(ReadVersion::Newest), listed(12, &[(A, 7, "five")])));
        h.operations.push(operation(190, create(B, "six"), OperationOutcome::Exists));
    }),
    ("a read that is older than it may be", ConsistencyRule::ReadsAreFresh, |h| {
        h.operations[OLD].request = list(ReadVersion::NotOlderThan(7));
        h.operations[OLD].outcome = listed(6, &[(B, 5, "three")]);
    }),
    ("a server goes back, in a list", ConsistencyRule::ServersDoNotGoBack, |h| {
        h.operations[OLDER].outcome = listed(6, &[(B, 5, "three")]);
    }),
    ("a server goes back, in a get", ConsistencyRule::ServersDoNotGoBack, |h| {
        h.operations[OLD].outcome = found_outcome(2, "one");
        h.operations[OLD].request = get(A, ReadVersion::Any);
    }),
    ("a read of what was asked for later", ConsistencyRule::NothingFromTheFuture, |h| {
        h.operations[OLDER].outcome = listed(9, &[(A, 7, "five"), (B, 5, "three")]);
    }),
];

const WATCHES: &[ViolationCase] = &[
    ("a gap", ConsistencyRule::WatchComplete, |h| {
        h.watches[0].received.remove(1);
        h.watches[0].received.remove(1);
    }),
    ("a deletion is left out", ConsistencyRule::WatchComplete, |h| {
        h.watches[0].received.pop();
        h.watches[1].from = WatchStart::Revision(5);
    }),
    ("twice", ConsistencyRule::WatchUnique, |h| {
        let twice = h.watches[0].received[1].clone();
        h.watches[0].received.insert(2, twice);
    }),
    ("again what came before", ConsistencyRule::WatchUnique, |h| {
        h.watches[1].received.insert(0, observed_event(91, 6, deleted(A, "two")));
    }),
    ("in another order", ConsistencyRule::WatchOrdered, |h| h.watches[0].received.swap(3, 4)),
    ("another value", ConsistencyRule::WatchTrue, |h| h.watches[0].received[1].news = modified(A, "zwei")),
    ("another object", ConsistencyRule::WatchTrue, |h| h.watches[0].received[1].news = modified(B, "two")),
    ("a change called a creation", ConsistencyRule::WatchTrue, |h| {
        h.watches[0].received[1].news = added(A, "two");
    }),
    ("a deletion of something else", ConsistencyRule::WatchTrue, |h| {
        h.watches[0].received[4].news = deleted(A, "one");
    }),
    ("what never happened", ConsistencyRule::WatchTrue, |h| {
        h.watches[0].received.insert(3, observed_event(51, 4, added(B, "nobody")));
        h.watches[0].received.remove(2);
    }),
    ("a beginning without an object", ConsistencyRule::WatchTrue, |h| {
        h.watches[2].received.remove(0);
    }),
    ("a beginning that is stale", ConsistencyRule::ReadsAreFresh, |h| {
        h.watches[2].received =
            vec![observed_event(86, 5, added(B, "three")), observed_event(87, 6, WatchEventKind::InitialEnd)];
        h.watches[2].start = 100;
    }),
    ("a bookmark before its time", ConsistencyRule::WatchBookmarks, |h| h.watches[0].received[2].version = 5),
    ("a bookmark that goes back", ConsistencyRule::WatchBookmarks, |h| h.watches[0].received[2].version = 2),
    ("resumed too late", ConsistencyRule::WatchResumed, |h| {
        h.watches[1].from = WatchStart::Revision(7);
        h.watches[1].received.remove(0);
    }),
    ("ended before the end", ConsistencyRule::WatchResumed, |h| h.watches[1].received.clear()),
    ("never resumed after 410", ConsistencyRule::WatchResumed, |h| h.watches[1].end = WatchEnd::Gone),
    ("delivered before it was requested", ConsistencyRule::NothingFromTheFuture, |h| {
        h.watches[0].received[3].at = 39;
        h.watches[0].received[2].at = 39;
        h.watches[0].received[1].at = 39;
    }),
];

const ENDS: &[ViolationCase] = &[
    ("a second certificate", ConsistencyRule::IssuedOnce, |h| {
        h.changes.push(change(12, X, Some("approved/another")));
    }),
    ("a certificate that is taken away", ConsistencyRule::IssuedOnce, |h| {
        h.changes.push(change(12, X, Some("approved/")));
    }),
    ("a certificate without approval", ConsistencyRule::IssuedIfApproved, |h| {
        h.changes.retain(|change| change.revision != 10);
        h.operations.pop();
    }),
    ("an approval without an approver", ConsistencyRule::IssuedIfApproved, |h| {
        h.operations.pop();
    }),
    ("no certificate", ConsistencyRule::IssuedAtLast, |h| {
        h.changes.pop();
    }),
    ("servers that differ", ConsistencyRule::Converged, |h| {
        h.rest[1].objects.pop_first();
    }),
    ("a server that is behind", ConsistencyRule::Converged, |h| h.rest[1].version = 10),
    ("unavailable for too long", ConsistencyRule::Available, |h| h.faults[0].end = 5_100_000),
    ("unavailable for too long after etcd was", ConsistencyRule::Available, |h| {
        h.faults[0].end = 9_000_000;
        h.probes = vec![3, 6_000_000, 9_000_000];
    }),
    ("a rejection without Retry-After", ConsistencyRule::RefusedProperly, |h| {
        h.operations[12].outcome = OperationOutcome::Refused { code: 503, retry_after: false };
    }),
    ("a failure of the server", ConsistencyRule::RefusedProperly, |h| {
        h.operations[LOST].outcome =
            OperationOutcome::Unknown { code: 500, retry_after: false, why: String::new() };
    }),
    ("written without a quorum", ConsistencyRule::RefusedProperly, |h| {
        without_quorum(h);
        h.changes.push(change(12, B, Some("six")));
        let request = OperationRequest::Patch { key: B.to_owned(), content: "six".to_owned() };
        h.operations.push(operation(8_000_000, request, OperationOutcome::Written(12)));
    }),
    ("nothing to read without a quorum", ConsistencyRule::RefusedProperly, |h| {
        without_quorum(h);
        h.operations.push(operation(8_000_000, list(ReadVersion::Any), refused()));
    }),
];

fn without_quorum(history: &mut ChaosHistory) {
    let mut lost = fault(1_000_000, 9_000_000);
    (lost.leader_change, lost.no_quorum) = (false, true);
    history.faults.push(lost);
}

#[test]
fn every_violation_is_found() {
    for (what, rule, spoil) in [WRITES, READS, WATCHES, ENDS].concat() {
        let mut history = good();
        spoil(&mut history);
        let verdict = check(&history);
        let blamed: Vec<ConsistencyRule> = verdict.violations.iter().map(|found| found.rule).collect();
        assert!(blamed.contains(&rule), "{what}: {rule:?} expected\n{}", verdict.report());
    }
}

#[test]
fn an_etcd_outage_is_no_violation() {
    let mut history = good();
    history.faults[0].end = 9_000_000;
    history.probes = vec![3, 8_000_000, 9_000_000];
    assert!(check(&history).violations.is_empty());
}

#[test]
fn an_unanswered_write_may_have_taken_effect() {
    let mut history = good();
    history.operations.push(operation(200, create("configmaps/d", "lost"), unknown()));
    history.operations.push(operation(200, delete(B, None), unknown()));
    assert!(check(&history).violations.is_empty());
    history.changes.push(change(12, "configmaps/d", Some("lost")));
    history.changes.push(change(13, B, None));
    history.rest.clear();
    history.watches[1].received[1].version = 13;
    history.watches[1].received.insert(1, observed_event(300, 12, added("configmaps/d", "lost")));
    history.watches[1].received[2].version = 12;
    history.watches[1].received.push(observed_event(301, 13, deleted(B, "three")));
    let verdict = check(&history);
    assert!(verdict.violations.is_empty(), "{}", verdict.report());
    // Once observed, it must stay.
    let seen = operation(310, get("configmaps/d", ReadVersion::Newest), found_outcome(12, "lost"));
    let gone = operation(320, get("configmaps/d", ReadVersion::Newest), OperationOutcome::Absent);
    history.operations.extend([seen, gone]);
    let rules: Vec<_> = check(&history).violations.iter().map(|found| found.rule).collect();
    assert_eq!(rules, [ConsistencyRule::ReadsAreFresh]);
}

#[test]
fn a_history_can_be_kept_and_checked_again() {
    let file = tempfile::tempdir().unwrap().path().join("deeper/history.jsonl");
    let mut history = good();
    history.changes.pop();
    history.save(&file).unwrap();
    let again = ChaosHistory::load(&file).unwrap();
    assert_eq!(check(&again).report(), check(&history).report());
    assert!(!check(&again).violations.is_empty());
}
