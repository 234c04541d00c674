//! Random histories, compared step by step with a map.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Put { key: u8, value: Vec<u8>, expect: Guess },
    Delete { key: u8, expect: Guess },
    List { prefix: usize, limit: Option<usize>, back: Option<u64> },
    Compact { back: u64 },
    Restart,
}

/// What a write expects, said without knowing revisions.
#[derive(Debug, Clone, Copy)]
enum Guess {
    Any,
    Absent,
    Current,
    Stale,
}

const KEYS: [&str; 7] = ["a", "a/", "a/b", "a/b\u{301}", "aé", "b", "\u{d7ff}x"];
const PREFIXES: [&str; 6] = ["", "a", "a/", "a/b", "\u{d7ff}", "nothing"];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0..KEYS.len() as u8;
    let guess = || {
        prop_oneof![
            1 => Just(Guess::Any),
            1 => Just(Guess::Absent),
            3 => Just(Guess::Current),
            1 => Just(Guess::Stale),
        ]
    };
    let value = proptest::collection::vec(any::<u8>(), 0..40);
    let list = (0..PREFIXES.len(), proptest::option::of(0..5usize), proptest::option::of(0..9u64));
    let step = prop_oneof![
        6 => (key.clone(), value, guess())
            .prop_map(|(key, value, expect)| Step::Put { key, value, expect }),
        3 => (key, guess()).prop_map(|(key, expect)| Step::Delete { key, expect }),
        3 => list.prop_map(|(prefix, limit, back)| Step::List { prefix, limit, back }),
        1 => (0..12u64).prop_map(|back| Step::Compact { back }),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(step, 1..60)
}

pub(crate) async fn a_store_agrees_with_its_model(fixture: fn() -> Fixture) {
    let runtime = tokio::runtime::Handle::current();
    let test = move || {
        let config = Config { cases: 48, failure_persistence: None, ..Config::default() };
        TestRunner::new(config)
            .run(&steps(), |steps| {
                runtime.block_on(follow_model(&fixture(), steps));
                Ok(())
            })
            .unwrap_or_else(|failure| panic!("{failure}"));
    };
    tokio::task::spawn_blocking(test).await.unwrap();
}

/// The model: every state since the start, and the events between them.
struct Model {
    floor: Revision,
    states: BTreeMap<Revision, BTreeMap<String, Stored>>,
    events: Vec<Event>,
}

impl Model {
    fn newest(&self) -> (Revision, &BTreeMap<String, Stored>) {
        let (revision, state) = self.states.last_key_value().unwrap();
        (*revision, state)
    }

    /// What a write must answer if it gets this revision.
    fn write(&mut self, write: &Write, revision: Revision) -> Result<Committed, Error> {
        let mut state = self.newest().1.clone();
        let previous = state.get(&write.key).cloned();
        let current = previous.as_ref().map(|old| old.revision);
        let holds = match write.expect {
            Expect::Any => true,
            Expect::Absent => current.is_none(),
            Expect::Revision(expected) => current == Some(expected),
        };
        let value = match &write.change {
            Change::Put(value) => Some(value.clone()),
            Change::Delete => None,
        };
        if !holds || (value.is_none() && current.is_none()) {
            return Err(Error::Conflict { current });
        }
        let created = previous.as_ref().map_or(revision, |old| old.created);
        match &value {
            Some(value) => {
                state.insert(write.key.clone(), Stored { revision, created, value: value.clone() })
            }
            None => state.remove(&write.key),
        };
        let key = write.key.clone();
        self.states.insert(revision, state);
        self.events.push(Event { revision, key, value, created, previous: previous.clone() });
        Ok(Committed { revision, created, previous })
    }
}

async fn follow_model(fixture: &Fixture, steps: Vec<Step>) {
    let mut store = fixture.open();
    let start = store.revision();
    let states = BTreeMap::from([(start, BTreeMap::new())]);
    let mut model = Model { floor: store.floor(), states, events: Vec::new() };
    let mut live = Seen::follow(&*store, start).unwrap();
    let mut told: Vec<Event> = Vec::new();
    for step in steps {
        match step {
            Step::Put { key, value, expect } => {
                let write = put_if(KEYS[usize::from(key)], Expect::Any, value);
                apply(&*store, &mut model, write, expect).await;
            }
            Step::Delete { key, expect } => {
                apply(&*store, &mut model, delete(KEYS[usize::from(key)]), expect).await;
            }
            Step::List { prefix, limit, back } => {
                list(&*store, &model, PREFIXES[prefix], limit, back).await;
            }
            Step::Compact { back } => {
                let upto = model.newest().0.saturating_sub(back);
                assert_eq!(store.compact(upto).await, Ok(()));
                model.floor = model.floor.max(upto);
            }
            Step::Restart => {
                told.extend(live.events());
                store.close().await.unwrap();
                drop(store);
                store = fixture.open();
                live = Seen::follow(&*store, store.revision()).unwrap();
            }
        }
        assert_eq!((store.revision(), store.floor()), (model.newest().0, model.floor));
    }
    told.extend(live.events());
    assert_eq!(told, model.events);
    let kept: Vec<_> = model.events.iter().filter(|e| e.revision > model.floor).cloned().collect();
    assert_eq!(store.history(model.floor, usize::MAX).await, Ok(kept));
}

async fn apply(store: &dyn Store, model: &mut Model, mut write: Write, expect: Guess) {
    let current = model.newest().1.get(&write.key).map(|stored| stored.revision);
    write.expect = match (expect, current) {
        (Guess::Any, _) => Expect::Any,
        (Guess::Absent, _) | (Guess::Current, None) => Expect::Absent,
        (Guess::Current, Some(revision)) => Expect::Revision(revision),
        (Guess::Stale, _) => Expect::Revision(current.unwrap_or(9).saturating_sub(1)),
    };
    let answer = store.commit(write.clone()).await;
    let revision = answer.as_ref().map_or(0, |committed| committed.revision);
    assert!(answer.is_err() || revision > model.newest().0);
    assert_eq!(answer, model.write(&write, revision), "{write:?}");
}

async fn list(
    store: &dyn Store,
    model: &Model,
    prefix: &str,
    limit: Option<usize>,
    back: Option<u64>,
) {
    let (newest, _) = model.newest();
    let at = back.map(|back| newest.saturating_sub(back));
    let range = Range { prefix: prefix.to_owned(), after: None, limit, at };
    let answer = store.range(range).await;
    if at.is_some_and(|at| at < model.floor) {
        assert_eq!(answer, Err(Error::Compacted { floor: model.floor }));
        return;
    }
    let revision = at.unwrap_or(newest);
    let state = model.states.range(..=revision).next_back().unwrap().1;
    let all: Vec<_> = state
        .iter()
        .filter(|(key, _)| key.starts_with(prefix))
        .map(|(key, stored)| (key.clone(), stored.clone()))
        .collect();
    let limit = limit.unwrap_or(usize::MAX);
    let page = answer.unwrap();
    assert_eq!((page.revision, page.more), (revision, all.len() > limit));
    assert_eq!(page.items, all[..all.len().min(limit)]);
}
