//! A history that is in order, and every way in which it can go wrong.

use super::{CONFIG_MAPS, REQUESTS, Rule, check};
use crate::history::{
    Change, Content, End, Fault, From, History, News, Object, Objects, Operation, Outcome, Request,
    Rest, Revision, Time, Told, Version, Via, Watch,
};

const A: &str = "configmaps/a";
const B: &str = "configmaps/b";
const X: &str = "certificatesigningrequests/by-hand-x";

fn change(revision: Revision, key: &str, content: Option<&str>) -> Change {
    Change { revision, key: key.to_owned(), content: content.map(Content::from) }
}

/// An operation that takes five units of time.
fn operation(start: Time, request: Request, outcome: Outcome) -> Operation {
    Operation { client: 1, via: Via::Server(0), start, end: start + 5, request, outcome }
}

fn create(key: &str, content: &str) -> Request {
    Request::Create { key: key.to_owned(), content: content.to_owned() }
}

fn update(key: &str, content: &str, expect: Revision) -> Request {
    Request::Update { key: key.to_owned(), content: content.to_owned(), expect }
}

fn delete(key: &str, expect: Option<Revision>) -> Request {
    Request::Delete { key: key.to_owned(), expect }
}

fn get(key: &str, version: Version) -> Request {
    Request::Get { key: key.to_owned(), version }
}

fn list(version: Version) -> Request {
    Request::List { resource: CONFIG_MAPS.to_owned(), version }
}

fn object(version: Revision, content: &str) -> Object {
    Object { version, content: content.to_owned() }
}

fn found(version: Revision, content: &str) -> Outcome {
    Outcome::Found(object(version, content))
}

fn unknown() -> Outcome {
    Outcome::Unknown { code: 503, retry_after: true, why: String::new() }
}

fn refused() -> Outcome {
    Outcome::Refused { code: 503, retry_after: true }
}

fn objects(all: &[(&str, Revision, &str)]) -> Objects {
    let all = all.iter();
    all.map(|(key, version, content)| ((*key).to_owned(), object(*version, content))).collect()
}

fn listed(version: Revision, all: &[(&str, Revision, &str)]) -> Outcome {
    Outcome::Listed { version, objects: objects(all) }
}

fn told(at: Time, version: Revision, news: News) -> Told {
    Told { at, version, news }
}

fn added(key: &str, content: &str) -> News {
    News::Added { key: key.to_owned(), content: content.to_owned() }
}

fn modified(key: &str, content: &str) -> News {
    News::Modified { key: key.to_owned(), content: content.to_owned() }
}

fn deleted(key: &str, content: &str) -> News {
    News::Deleted { key: key.to_owned(), content: content.to_owned() }
}

/// The operations by what is done to them below.
const UPDATED: usize = 1;
const DELETED: usize = 4;
const LOST: usize = 6;
const FRESH: usize = 7;
const LISTED: usize = 8;
const OLD: usize = 9;
const OLDER: usize = 10;
const EXACT: usize = 11;

fn good() -> History {
    let watch = Watch {
        client: 9,
        via: Via::Server(1),
        start: 12,
        resource: CONFIG_MAPS.to_owned(),
        from: From::Revision(1),
        follows: true,
        told: vec![
            told(30, 2, added(A, "one")),
            told(40, 3, modified(A, "two")),
            told(50, 4, News::Bookmark),
            told(60, 5, added(B, "three")),
            told(80, 6, deleted(A, "two")),
        ],
        end: End::Closed,
    };
    let after = Watch {
        start: 90,
        from: From::Revision(6),
        told: vec![told(91, 7, added(A, "five")), told(200, 11, News::Bookmark)],
        ..watch.clone()
    };
    let whole = Watch {
        client: 8,
        start: 85,
        from: From::State,
        follows: false,
        told: vec![
            told(86, 7, added(A, "five")),
            told(86, 5, added(B, "three")),
            told(87, 7, News::InitialEnd),
        ],
        ..watch.clone()
    };
    History {
        operations: vec![
            operation(10, create(A, "one"), Outcome::Written(2)),
            operation(20, update(A, "two", 2), Outcome::Written(3)),
            operation(30, update(A, "never", 2), Outcome::Conflict),
            operation(40, create(B, "three"), Outcome::Written(5)),
            operation(50, delete(A, Some(3)), Outcome::Deleted),
            operation(60, create(B, "four"), Outcome::Exists),
            // It was done, and nobody was told.
            operation(70, create(A, "five"), unknown()),
            operation(80, get(A, Version::Newest), found(7, "five")),
            operation(90, list(Version::Newest), listed(7, &[(A, 7, "five"), (B, 5, "three")])),
            operation(100, get(B, Version::Any), found(5, "three")),
            operation(110, list(Version::Any), listed(8, &[(A, 7, "five"), (B, 5, "three")])),
            operation(120, list(Version::Exact(3)), listed(3, &[(A, 3, "two")])),
            operation(130, update(A, "refused", 7), refused()),
            operation(140, get("configmaps/c", Version::Newest), Outcome::Absent),
            operation(150, create(X, "/"), Outcome::Written(9)),
            operation(160, update(X, "approved/", 9), Outcome::Written(10)),
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
            rest(0, CONFIG_MAPS, &[(A, 7, "five"), (B, 5, "three")]),
            rest(1, CONFIG_MAPS, &[(A, 7, "five"), (B, 5, "three")]),
            rest(0, REQUESTS, &[(X, 11, "approved/certificate")]),
        ],
        probes: Vec::new(),
        newest: 11,
    }
}

fn fault(start: Time, end: Time) -> Fault {
    let name = "the leader is killed".to_owned();
    Fault { name, start, healed: end, end, leader_change: true, no_quorum: false }
}

fn rest(server: usize, resource: &str, all: &[(&str, Revision, &str)]) -> Rest {
    Rest { server, resource: resource.to_owned(), version: 11, objects: objects(all) }
}

#[test]
fn what_is_in_order_is_not_blamed() {
    let verdict = check(&good());
    assert!(verdict.violations.is_empty(), "{}", verdict.report());
}

/// What is done to the history, which promise that breaks, and how.
type Wrong = (&'static str, Rule, fn(&mut History));

const WRITES: &[Wrong] = &[
    ("an acknowledged write is not stored", Rule::AcknowledgedIsStored, |h| {
        h.changes.retain(|change| change.revision != 5);
    }),
    ("an acknowledged write is stored as something else", Rule::AcknowledgedIsStored, |h| {
        h.operations[UPDATED].request = update(A, "zwei", 2);
    }),
    ("two were told the same revision", Rule::AcknowledgedIsStored, |h| {
        let twice = h.operations[UPDATED].clone();
        h.operations.push(twice);
    }),
    ("an acknowledged deletion was not made", Rule::AcknowledgedIsStored, |h| {
        h.changes.retain(|change| change.revision != 6);
    }),
    ("a deletion was acknowledged to two", Rule::AcknowledgedIsStored, |h| {
        let twice = h.operations[DELETED].clone();
        h.operations.push(twice);
    }),
    ("a refused write is stored", Rule::RefusedIsNotStored, |h| {
        h.operations[LOST].outcome = refused();
    }),
    ("a value that nobody wrote is stored", Rule::StoredWasAskedFor, |h| {
        h.changes.push(change(12, B, Some("nobody")));
    }),
    ("a write is stored twice, and so an object comes back", Rule::StoredWasAskedFor, |h| {
        h.changes.insert(4, change(8, B, None));
        h.changes.push(change(12, B, Some("three")));
    }),
    ("a deletion that nobody asked for", Rule::StoredWasAskedFor, |h| {
        h.changes.push(change(12, B, None));
    }),
    ("an update overwrites what it did not know", Rule::ConditionsHold, |h| {
        h.operations[UPDATED].request = update(A, "two", 1);
    }),
    ("an unanswered create overwrites", Rule::ConditionsHold, |h| {
        h.changes.retain(|change| change.revision != 6);
    }),
    ("a revision goes back", Rule::RevisionsGrow, |h| {
        let operation = &mut h.operations[UPDATED];
        (operation.start, operation.end) = (85, 89);
    }),
    ("an unanswered write is stored before it was asked for", Rule::RevisionsGrow, |h| {
        let operation = &mut h.operations[LOST];
        (operation.start, operation.end) = (115, 118);
    }),
];

const READS: &[Wrong] = &[
    ("a read of a value that nobody wrote", Rule::ReadsAreTrue, |h| {
        h.operations[FRESH].outcome = found(7, "fünf");
    }),
    ("a read of a version that was not there", Rule::ReadsAreTrue, |h| {
        h.operations[FRESH].outcome = found(8, "five");
    }),
    ("a list without an object", Rule::ReadsAreTrue, |h| {
        h.operations[LISTED].outcome = listed(7, &[(A, 7, "five")]);
    }),
    ("a list with an object that was deleted", Rule::ReadsAreTrue, |h| {
        h.operations[LISTED].outcome = listed(6, &[(A, 3, "two"), (B, 5, "three")]);
    }),
    ("an exact list of another revision", Rule::ReadsAreTrue, |h| {
        h.operations[EXACT].outcome = listed(2, &[(A, 2, "one")]);
    }),
    ("a stale get, of what was changed", Rule::ReadsAreFresh, |h| {
        h.operations[FRESH].outcome = found(2, "one");
    }),
    ("a stale get, of what was not there yet", Rule::ReadsAreFresh, |h| {
        h.operations[FRESH].request = get(B, Version::Newest);
        h.operations[FRESH].outcome = Outcome::Absent;
    }),
    ("a stale list", Rule::ReadsAreFresh, |h| {
        h.operations[LISTED].outcome = listed(5, &[(A, 3, "two"), (B, 5, "three")]);
    }),
    ("a create refused because of what is long gone", Rule::ReadsAreFresh, |h| {
        h.changes.push(change(12, B, None));
        h.newest = 12;
        h.operations.push(operation(170, delete(B, None), Outcome::Deleted));
        // Everybody can know that it is gone.
        h.operations.push(operation(180, list(Version::Newest), listed(12, &[(A, 7, "five")])));
        h.operations.push(operation(190, create(B, "six"), Outcome::Exists));
    }),
    ("a read that is older than it may be", Rule::ReadsAreFresh, |h| {
        h.operations[OLD].request = list(Version::NotOlderThan(7));
        h.operations[OLD].outcome = listed(6, &[(B, 5, "three")]);
    }),
    ("a server goes back, in a list", Rule::ServersDoNotGoBack, |h| {
        h.operations[OLDER].outcome = listed(6, &[(B, 5, "three")]);
    }),
    ("a server goes back, in a get", Rule::ServersDoNotGoBack, |h| {
        h.operations[OLD].outcome = found(2, "one");
        h.operations[OLD].request = get(A, Version::Any);
    }),
    ("a read of what was asked for later", Rule::NothingFromTheFuture, |h| {
        h.operations[OLDER].outcome = listed(9, &[(A, 7, "five"), (B, 5, "three")]);
    }),
];

const WATCHES: &[Wrong] = &[
    ("a gap", Rule::WatchComplete, |h| {
        h.watches[0].told.remove(1);
        h.watches[0].told.remove(1);
    }),
    ("a deletion is left out", Rule::WatchComplete, |h| {
        h.watches[0].told.pop();
        h.watches[1].from = From::Revision(5);
    }),
    ("twice", Rule::WatchUnique, |h| {
        let twice = h.watches[0].told[1].clone();
        h.watches[0].told.insert(2, twice);
    }),
    ("again what came before", Rule::WatchUnique, |h| {
        h.watches[1].told.insert(0, told(91, 6, deleted(A, "two")));
    }),
    ("in another order", Rule::WatchOrdered, |h| h.watches[0].told.swap(3, 4)),
    ("another value", Rule::WatchTrue, |h| h.watches[0].told[1].news = modified(A, "zwei")),
    ("another object", Rule::WatchTrue, |h| h.watches[0].told[1].news = modified(B, "two")),
    ("a change called a creation", Rule::WatchTrue, |h| {
        h.watches[0].told[1].news = added(A, "two");
    }),
    ("a deletion of something else", Rule::WatchTrue, |h| {
        h.watches[0].told[4].news = deleted(A, "one");
    }),
    ("what never happened", Rule::WatchTrue, |h| {
        h.watches[0].told.insert(3, told(51, 4, added(B, "nobody")));
        h.watches[0].told.remove(2);
    }),
    ("a beginning without an object", Rule::WatchTrue, |h| {
        h.watches[2].told.remove(0);
    }),
    ("a beginning that is stale", Rule::ReadsAreFresh, |h| {
        h.watches[2].told = vec![told(86, 5, added(B, "three")), told(87, 6, News::InitialEnd)];
        h.watches[2].start = 100;
    }),
    ("a bookmark before its time", Rule::WatchBookmarks, |h| h.watches[0].told[2].version = 5),
    ("a bookmark that goes back", Rule::WatchBookmarks, |h| h.watches[0].told[2].version = 2),
    ("resumed too late", Rule::WatchResumed, |h| {
        h.watches[1].from = From::Revision(7);
        h.watches[1].told.remove(0);
    }),
    ("ended before the end", Rule::WatchResumed, |h| h.watches[1].told.clear()),
    ("never resumed after 410", Rule::WatchResumed, |h| h.watches[1].end = End::Gone),
    ("told before it was asked for", Rule::NothingFromTheFuture, |h| {
        h.watches[0].told[3].at = 39;
        h.watches[0].told[2].at = 39;
        h.watches[0].told[1].at = 39;
    }),
];

const ENDS: &[Wrong] = &[
    ("a second certificate", Rule::IssuedOnce, |h| {
        h.changes.push(change(12, X, Some("approved/another")));
    }),
    ("a certificate that is taken away", Rule::IssuedOnce, |h| {
        h.changes.push(change(12, X, Some("approved/")));
    }),
    ("a certificate without approval", Rule::IssuedIfApproved, |h| {
        h.changes.retain(|change| change.revision != 10);
        h.operations.pop();
    }),
    ("an approval of nobody", Rule::IssuedIfApproved, |h| {
        h.operations.pop();
    }),
    ("no certificate", Rule::IssuedAtLast, |h| {
        h.changes.pop();
    }),
    ("servers that differ", Rule::Converged, |h| {
        h.rest[1].objects.pop_first();
    }),
    ("a server that is behind", Rule::Converged, |h| h.rest[1].version = 10),
    ("unavailable for too long", Rule::Available, |h| h.faults[0].end = 5_100_000),
    ("unavailable for too long after etcd was", Rule::Available, |h| {
        h.faults[0].end = 9_000_000;
        h.probes = vec![3, 6_000_000, 9_000_000];
    }),
    ("an answer that tells nobody to come again", Rule::RefusedProperly, |h| {
        h.operations[12].outcome = Outcome::Refused { code: 503, retry_after: false };
    }),
    ("a failure of the server", Rule::RefusedProperly, |h| {
        h.operations[LOST].outcome =
            Outcome::Unknown { code: 500, retry_after: false, why: String::new() };
    }),
    ("written without a quorum", Rule::RefusedProperly, |h| {
        without_quorum(h);
        h.changes.push(change(12, B, Some("six")));
        let request = Request::Patch { key: B.to_owned(), content: "six".to_owned() };
        h.operations.push(operation(8_000_000, request, Outcome::Written(12)));
    }),
    ("nothing to read without a quorum", Rule::RefusedProperly, |h| {
        without_quorum(h);
        h.operations.push(operation(8_000_000, list(Version::Any), refused()));
    }),
];

fn without_quorum(history: &mut History) {
    let mut lost = fault(1_000_000, 9_000_000);
    (lost.leader_change, lost.no_quorum) = (false, true);
    history.faults.push(lost);
}

#[test]
fn whatever_goes_wrong_is_found() {
    for (what, rule, spoil) in [WRITES, READS, WATCHES, ENDS].concat() {
        let mut history = good();
        spoil(&mut history);
        let verdict = check(&history);
        let blamed: Vec<Rule> = verdict.violations.iter().map(|found| found.rule).collect();
        assert!(blamed.contains(&rule), "{what}: {rule:?} expected\n{}", verdict.report());
    }
}

#[test]
fn nobody_is_available_without_etcd() {
    let mut history = good();
    history.faults[0].end = 9_000_000;
    history.probes = vec![3, 8_000_000, 9_000_000];
    assert!(check(&history).violations.is_empty());
}

#[test]
fn an_unanswered_write_may_go_either_way() {
    let mut history = good();
    history.operations.push(operation(200, create("configmaps/d", "lost"), unknown()));
    history.operations.push(operation(200, delete(B, None), unknown()));
    assert!(check(&history).violations.is_empty());
    history.changes.push(change(12, "configmaps/d", Some("lost")));
    history.changes.push(change(13, B, None));
    history.rest.clear();
    history.watches[1].told[1].version = 13;
    history.watches[1].told.insert(1, told(300, 12, added("configmaps/d", "lost")));
    history.watches[1].told[2].version = 12;
    history.watches[1].told.push(told(301, 13, deleted(B, "three")));
    let verdict = check(&history);
    assert!(verdict.violations.is_empty(), "{}", verdict.report());
    // But once it was seen, it stays.
    let seen = operation(310, get("configmaps/d", Version::Newest), found(12, "lost"));
    let gone = operation(320, get("configmaps/d", Version::Newest), Outcome::Absent);
    history.operations.extend([seen, gone]);
    let rules: Vec<_> = check(&history).violations.iter().map(|found| found.rule).collect();
    assert_eq!(rules, [Rule::ReadsAreFresh]);
}

#[test]
fn a_history_can_be_kept_and_checked_again() {
    let file = tempfile::tempdir().unwrap().path().join("deeper/history.jsonl");
    let mut history = good();
    history.changes.pop();
    history.save(&file).unwrap();
    let again = History::load(&file).unwrap();
    assert_eq!(check(&again).report(), check(&history).report());
    assert!(!check(&again).violations.is_empty());
}
