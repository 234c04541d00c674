//! Random histories, compared step by step with a map.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;

#[derive(Debug, Clone)]
enum ModelStep {
    Put { key: u8, value: Vec<u8>, expect: ExpectedState },
    Delete { key: u8, expect: ExpectedState },
    List { prefix: usize, limit: Option<usize>, back: Option<u64> },
    Compact { back: u64 },
    Restart,
}

/// Precondition of a write, expressed without revisions.
#[derive(Debug, Clone, Copy)]
enum ExpectedState {
    Any,
    Absent,
    Current,
    Stale,
}

const KEYS: [&str; 7] = ["a", "a/", "a/b", "a/b\u{301}", "aé", "b", "\u{d7ff}x"];
const PREFIXES: [&str; 6] = ["", "a", "a/", "a/b", "\u{d7ff}", "nothing"];

fn steps() -> impl Strategy<Value = Vec<ModelStep>> {
    let key = 0..KEYS.len() as u8;
    let guess = || {
        prop_oneof![
            1 => Just(ExpectedState::Any),
            1 => Just(ExpectedState::Absent),
            3 => Just(ExpectedState::Current),
            1 => Just(ExpectedState::Stale),
        ]
    };
    let value = proptest::collection::vec(any::<u8>(), 0..40);
    let list = (0..PREFIXES.len(), proptest::option::of(0..5usize), proptest::option::of(0..9u64));
    let step = prop_oneof![
        6 => (key.clone(), value, guess())
            .prop_map(|(key, value, expect)| ModelStep::Put { key, value, expect }),
        3 => (key, guess()).prop_map(|(key, expect)| ModelStep::Delete { key, expect }),
        3 => list.prop_map(|(prefix, limit, back)| ModelStep::List { prefix, limit, back }),
        1 => (0..12u64).prop_map(|back| ModelStep::Compact { back }),
        1 => Just(ModelStep::Restart),
    ];
    proptest::collection::vec(step, 1..60)
}

pub(crate) async fn a_store_agrees_with_its_model(fixture: fn() -> StoreFixture) {
    let runtime = tokio::runtime::Handle::current();
    let test = move || {
        let config = Config { cases: 48, failure_persistence: None, ..Config::default() };
        TestRunner::new(config)
            .run(&steps(), |steps| {
                runtime.block_on(run_model(&fixture(), steps));
                Ok(())
            })
            .unwrap_or_else(|failure| panic!("{failure}"));
    };
    tokio::task::spawn_blocking(test).await.unwrap();
}

/// The model: every state since the start, and the events between them.
struct StoreModel {
    floor: Revision,
    states: BTreeMap<Revision, BTreeMap<String, StoredValue>>,
    events: Vec<ChangeEvent>,
}

impl StoreModel {
    fn newest(&self) -> (Revision, &BTreeMap<String, StoredValue>) {
        let (revision, state) = self.states.last_key_value().unwrap();
        (*revision, state)
    }

    /// Returns the expected result of a write if it gets this revision.
    fn write(&mut self, write: &WriteRequest, revision: Revision) -> Result<CommittedWrite, Error> {
        let mut state = self.newest().1.clone();
        let previous = state.get(&write.key).cloned();
        let current = previous.as_ref().map(|old| old.revision);
        let holds = match write.expect {
            WritePrecondition::Any => true,
            WritePrecondition::Absent => current.is_none(),
            WritePrecondition::Revision(expected) => current == Some(expected),
        };
        let value = match &write.change {
            KeyChange::Put(value) => Some(value.clone()),
            KeyChange::Delete => None,
        };
        if !holds || (value.is_none() && current.is_none()) {
            return Err(Error::Conflict { current });
        }
        let created = previous.as_ref().map_or(revision, |old| old.created);
        match &value {
            Some(value) => {
                state.insert(write.key.clone(), StoredValue { revision, created, value: value.clone() })
            }
            None => state.remove(&write.key),
        };
        let key = write.key.clone();
        self.states.insert(revision, state);
        self.events.push(ChangeEvent { revision, key, value, created, previous: previous.clone() });
        Ok(CommittedWrite { revision, created, previous })
    }
}

async fn run_model(fixture: &StoreFixture, steps: Vec<ModelStep>) {
    let mut store = fixture.open();
    let start = store.revision();
    let states = BTreeMap::from([(start, BTreeMap::new())]);
    let mut model = StoreModel { floor: store.floor(), states, events: Vec::new() };
    let mut live = RecordingSink::attach(&*store, start).unwrap();
    let mut delivered: Vec<ChangeEvent> = Vec::new();
    for step in steps {
        match step {
            ModelStep::Put { key, value, expect } => {
                let write = put_if(KEYS[usize::from(key)], WritePrecondition::Any, value);
                apply(&*store, &mut model, write, expect).await;
            }
            ModelStep::Delete { key, expect } => {
                apply(&*store, &mut model, delete(KEYS[usize::from(key)]), expect).await;
            }
            ModelStep::List { prefix, limit, back } => {
                list(&*store, &model, PREFIXES[prefix], limit, back).await;
            }
            ModelStep::Compact { back } => {
                let upto = model.newest().0.saturating_sub(back);
                assert_eq!(store.compact(upto).await, Ok(()));
                model.floor = model.floor.max(upto);
            }
            ModelStep::Restart => {
                delivered.extend(live.events());
                store.close().await.unwrap();
                drop(store);
                store = fixture.open();
                live = RecordingSink::attach(&*store, store.revision()).unwrap();
            }
        }
        assert_eq!((store.revision(), store.floor()), (model.newest().0, model.floor));
    }
    delivered.extend(live.events());
    assert_eq!(delivered, model.events);
    let kept: Vec<_> = model.events.iter().filter(|e| e.revision > model.floor).cloned().collect();
    assert_eq!(store.history(model.floor, usize::MAX).await, Ok(kept));
}

async fn apply(store: &dyn Store, model: &mut StoreModel, mut write: WriteRequest, expect: ExpectedState) {
    let current = model.newest().1.get(&write.key).map(|stored| stored.revision);
    write.expect = match (expect, current) {
        (ExpectedState::Any, _) => WritePrecondition::Any,
        (ExpectedState::Absent, _) | (ExpectedState::Current, None) => WritePrecondition::Absent,
        (ExpectedState::Current, Some(revision)) => WritePrecondition::Revision(revision),
        (ExpectedState::Stale, _) => WritePrecondition::Revision(current.unwrap_or(9).saturating_sub(1)),
    };
    let answer = store.commit(write.clone()).await;
    let revision = answer.as_ref().map_or(0, |committed| committed.revision);
    assert!(answer.is_err() || revision > model.newest().0);
    assert_eq!(answer, model.write(&write, revision), "{write:?}");
}

async fn list(store: &dyn Store, model: &StoreModel, prefix: &str, limit: Option<usize>, back: Option<u64>) {
    let (newest, _) = model.newest();
    let at = back.map(|back| newest.saturating_sub(back));
    let range = KeyRange { prefix: prefix.to_owned(), after: None, limit, at };
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
