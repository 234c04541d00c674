//! What everybody did and saw, written down as it happened, and kept in a file.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// Microseconds since the history began.
pub type Time = u64;

/// A revision of the store; a resourceVersion.
pub type Revision = u64;

/// What an object holds, as far as anybody cares: texts are compared and nothing else.
pub type Content = String;

/// An object as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedObject {
    pub version: Revision,
    pub content: Content,
}

/// Objects by key: the resource, a slash and the name.
pub type Objects = BTreeMap<String, ListedObject>;

/// Through which server somebody asked; those behind the balancer do not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum RequestRoute {
    Server(usize),
    Balancer,
}

/// One request and what came of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RecordedOperation {
    pub client: usize,
    pub via: RequestRoute,
    pub start: Time,
    /// When the answer, or the certainty that none comes, was there.
    pub end: Time,
    pub request: OperationRequest,
    pub outcome: OperationOutcome,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperationRequest {
    Create { key: String, content: Content },
    Update { key: String, content: Content, expect: Revision },
    Patch { key: String, content: Content },
    Delete { key: String, expect: Option<Revision> },
    Get { key: String, version: ReadVersion },
    List { resource: String, version: ReadVersion },
}

impl OperationRequest {
    /// Whether it changes something if it succeeds.
    pub fn writes(&self) -> bool {
        !matches!(self, Self::Get { .. } | Self::List { .. })
    }

    /// What it writes, unless it only removes.
    pub fn written_content(&self) -> Option<(&str, &Content)> {
        match self {
            Self::Create { key, content }
            | Self::Update { key, content, .. }
            | Self::Patch { key, content } => Some((key, content)),
            Self::Delete { .. } | Self::Get { .. } | Self::List { .. } => None,
        }
    }
}

/// How new a read has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadVersion {
    /// No resourceVersion: as new as anything that anybody was told before.
    Newest,
    /// `resourceVersion=0`: any version the server has.
    Any,
    NotOlderThan(Revision),
    Exact(Revision),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperationOutcome {
    /// The write was made, at this revision.
    Written(Revision),
    /// The object was deleted; nobody says at which revision.
    Deleted,
    Found(ListedObject),
    /// There is no such object.
    Absent,
    /// A create found the object there.
    Exists,
    /// An update or a delete found another version there.
    Conflict,
    Listed {
        version: Revision,
        objects: Objects,
    },
    /// Nothing was done, whatever the reason.
    Refused {
        code: u16,
        retry_after: bool,
    },
    /// It may have been done, or may yet be. The code is 0 when there was no answer.
    Unknown {
        code: u16,
        retry_after: bool,
        why: String,
    },
}

/// One watch from its request to its end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RecordedWatch {
    pub client: usize,
    pub via: RequestRoute,
    pub start: Time,
    pub resource: String,
    pub from: WatchStart,
    /// Whether it goes on where the last watch of this client ended, or where its list did.
    pub follows: bool,
    pub told: Vec<ObservedEvent>,
    pub end: WatchEnd,
}

/// What a watch began with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WatchStart {
    /// What came after a revision.
    Revision(Revision),
    /// All objects, up to a bookmark that says so.
    State,
}

/// An event as a watch client received it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedEvent {
    pub at: Time,
    pub version: Revision,
    pub news: WatchEventKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WatchEventKind {
    Added {
        key: String,
        content: Content,
    },
    Modified {
        key: String,
        content: Content,
    },
    /// With what it held at last.
    Deleted {
        key: String,
        content: Content,
    },
    Bookmark,
    /// The bookmark after the objects that a watch began with.
    InitialEnd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WatchEnd {
    /// The client had enough, the server ended it, or the connection broke.
    Closed,
    /// 410: what comes next is not known any more.
    Gone,
}

/// One change of the store, as etcd itself tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreChange {
    pub revision: Revision,
    pub key: String,
    /// State after the change; `None` for a deletion.
    pub content: Option<Content>,
}

/// Something that was done to the world.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct InjectedFault {
    pub name: String,
    pub start: Time,
    /// When it was taken back.
    pub healed: Time,
    /// When both servers took writes again.
    pub end: Time,
    /// Whether etcd needed another leader.
    pub leader_change: bool,
    /// Whether there was nobody who could take writes: then there is no bound to how long.
    pub no_quorum: bool,
}

/// What was there at the end, when nobody wrote any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinalState {
    pub server: usize,
    pub resource: String,
    pub version: Revision,
    pub objects: Objects,
}

/// Everything that is known about a run.
#[derive(Debug, Clone, Default)]
pub struct ChaosHistory {
    pub operations: Vec<RecordedOperation>,
    pub watches: Vec<RecordedWatch>,
    /// In order of revision, from the beginning of the store.
    pub changes: Vec<StoreChange>,
    pub faults: Vec<InjectedFault>,
    pub rest: Vec<FinalState>,
    /// When etcd took a write that came to it without a server.
    pub probes: Vec<Time>,
    /// etcd's own revision when everything was at rest.
    pub newest: Revision,
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
enum HistoryLine {
    Operation(RecordedOperation),
    Watch(RecordedWatch),
    Change(StoreChange),
    Fault(InjectedFault),
    Rest(FinalState),
    Probe(Time),
    Newest(Revision),
}

impl ChaosHistory {
    /// Writes it to a file, one thing a line.
    pub fn save(&self, path: &Path) -> std::io::Result<()> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut file = BufWriter::new(File::create(path)?);
        let lines = (self.operations.iter().cloned().map(HistoryLine::Operation))
            .chain(self.watches.iter().cloned().map(HistoryLine::Watch))
            .chain(self.changes.iter().cloned().map(HistoryLine::Change))
            .chain(self.faults.iter().cloned().map(HistoryLine::Fault))
            .chain(self.rest.iter().cloned().map(HistoryLine::Rest))
            .chain(self.probes.iter().copied().map(HistoryLine::Probe))
            .chain([HistoryLine::Newest(self.newest)]);
        for line in lines {
            serde_json::to_writer(&mut file, &line)?;
            file.write_all(b"\n")?;
        }
        file.flush()
    }

    /// Loads a history that a failed run has saved.
    pub fn load(path: &Path) -> std::io::Result<Self> {
        let mut history = Self::default();
        for line in BufReader::new(File::open(path)?).lines() {
            match serde_json::from_str(&line?)? {
                HistoryLine::Operation(operation) => history.operations.push(operation),
                HistoryLine::Watch(watch) => history.watches.push(watch),
                HistoryLine::Change(change) => history.changes.push(change),
                HistoryLine::Fault(fault) => history.faults.push(fault),
                HistoryLine::Rest(rest) => history.rest.push(rest),
                HistoryLine::Probe(time) => history.probes.push(time),
                HistoryLine::Newest(newest) => history.newest = newest,
            }
        }
        Ok(history)
    }
}

/// Where everybody writes down what they do.
#[derive(Clone)]
pub struct HistoryRecorder {
    begun: Instant,
    history: Arc<Mutex<ChaosHistory>>,
}

impl HistoryRecorder {
    pub fn new() -> Self {
        Self { begun: Instant::now(), history: Arc::default() }
    }

    pub fn now(&self) -> Time {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap()
    }

    /// Writes something down, or looks something up.
    pub fn with<T>(&self, act: impl FnOnce(&mut ChaosHistory) -> T) -> T {
        act(&mut self.history.lock().unwrap())
    }
}
