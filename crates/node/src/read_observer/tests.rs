//! The observer with files that the tests open themselves.

use std::fs;

use tempfile::TempDir;

use super::*;
use crate::clock::ClockReading;
use crate::limits::MAX_READ_WATCHES;
use crate::testing::START;
use crate::volume::id::VolumeOwner;

struct ObservedDirectory {
    dir: TempDir,
    observer: Arc<ReadObserver>,
}

impl ObservedDirectory {
    fn new() -> Self {
        let clock = || ClockReading { wall: START, since: Duration::ZERO };
        let dir = tempfile::tempdir().unwrap();
        let observer = ReadObserver::new(dir.path(), FileSystem::default(), Arc::new(clock));
        Self { dir, observer }
    }

    /// Replaces the files of a volume.
    fn write(&self, generation: u8, digest: u8) -> PathBuf {
        let directory = self.dir.path().join(generation.to_string());
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("ca.pem"), "anchors").unwrap();
        self.observer.prepare(&volume("v"), &directory, &[anchors(digest)]);
        directory.join("ca.pem")
    }

    fn state(&self) -> Option<ReadState> {
        self.observer.update(|_, _| {});
        let states = self.observer.states().borrow().clone();
        states.values().next().map(|reads| reads.state)
    }
}

fn volume(name: &str) -> VolumeId {
    VolumeId { owner: VolumeOwner::Host, name: name.into() }
}

fn anchors(digest: u8) -> AnchorFiles {
    AnchorFiles { path: "ca.pem".into(), stores: Vec::new(), digest: [digest; 32] }
}

const NOT_READ: Option<ReadState> = Some(ReadState::NotRead { since: START });

#[test]
fn one_open_is_attributed_to_the_agent_while_it_reads() {
    for (opens, expected) in [(0, NOT_READ), (1, NOT_READ), (2, Some(ReadState::Read))] {
        let place = ObservedDirectory::new();
        let file = place.write(1, 1);
        place.observer.switch(&volume("v"));
        let own = place.observer.own_reads(&volume("v"));
        for _ in 0..opens {
            drop(fs::File::open(&file).unwrap());
        }
        drop(own);
        assert_eq!(place.state(), expected, "{opens} opens while the agent reads");
        drop(fs::File::open(&file).unwrap());
        assert_eq!(place.state(), Some(ReadState::Read), "{opens} opens, then another");
    }
    // Opens before and after do not lend anything to each other.
    let place = ObservedDirectory::new();
    let file = place.write(1, 1);
    place.observer.switch(&volume("v"));
    for _ in 0..3 {
        let own = place.observer.own_reads(&volume("v"));
        drop(fs::File::open(&file).unwrap());
        drop(own);
    }
    assert_eq!(place.state(), NOT_READ);
}

#[test]
fn an_open_before_the_observer_knows_of_the_switch_counts() {
    let place = ObservedDirectory::new();
    let file = place.write(1, 1);
    let own = place.observer.own_reads(&volume("v"));
    assert_eq!(place.state(), None, "not visible yet");
    drop(fs::File::open(&file).unwrap());
    place.observer.switch(&volume("v"));
    drop(own);
    assert_eq!(place.state(), Some(ReadState::Read));
}

#[test]
fn only_the_files_that_became_visible_count() {
    let place = ObservedDirectory::new();
    let first = place.write(1, 1);
    place.observer.switch(&volume("v"));
    // The write fails: the first files stay.
    let second = place.write(2, 2);
    place.observer.discard(&volume("v"));
    drop(fs::File::open(&second).unwrap());
    assert_eq!(place.state(), NOT_READ);
    // The old files are opened after the switch, through an old path.
    place.write(3, 3);
    place.observer.switch(&volume("v"));
    drop(fs::File::open(&first).unwrap());
    assert_eq!(place.state(), NOT_READ);
    // Files that were removed by somebody else are not read, and are watched again when they are back.
    let third = place.dir.path().join("3/ca.pem");
    fs::remove_file(&third).unwrap();
    assert_eq!(place.state(), NOT_READ);
    fs::write(&third, "anchors").unwrap();
    place.observer.confirm(&volume("v"), third.parent().unwrap(), &[anchors(3)], START);
    drop(fs::File::open(&third).unwrap());
    assert_eq!(place.state(), Some(ReadState::Read));
}

#[test]
fn files_beyond_the_limit_are_not_observable() {
    let place = ObservedDirectory::new();
    let directory = place.dir.path();
    let names = (0..=MAX_READ_WATCHES).map(|number| format!("{number:05}"));
    let all: Vec<_> = names.map(|path| AnchorFiles { path, ..anchors(1) }).collect();
    all.iter().for_each(|files| fs::write(directory.join(&files.path), "anchors").unwrap());
    place.observer.prepare(&volume("v"), directory, &all);
    place.observer.switch(&volume("v"));
    let blind = |place: &ObservedDirectory| {
        let states = place.observer.states().borrow().clone();
        let blind = states.iter().filter(|(_, reads)| reads.state == ReadState::NotObservable);
        blind.map(|((_, path), _)| path.clone()).collect::<Vec<_>>()
    };
    let last = &all[MAX_READ_WATCHES].path;
    assert_eq!(blind(&place), [last.as_str()]);
    // A read releases a watch, and the next check uses it.
    drop(fs::File::open(directory.join(&all[0].path)).unwrap());
    place.observer.confirm(&volume("v"), directory, &all, START);
    assert_eq!(blind(&place), [""; 0]);
    drop(fs::File::open(directory.join(last)).unwrap());
    place.observer.update(|_, _| {});
    let states = place.observer.states().borrow().clone();
    assert_eq!(states.values().filter(|reads| reads.state == ReadState::Read).count(), 2);
}

#[test]
fn a_file_that_cannot_be_watched_is_not_observable() {
    let place = ObservedDirectory::new();
    place.observer.prepare(&volume("v"), &place.dir.path().join("missing"), &[anchors(1)]);
    place.observer.switch(&volume("v"));
    assert_eq!(place.state(), Some(ReadState::NotObservable));
}
