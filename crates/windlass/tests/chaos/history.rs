//! Recorded operations and observations of all clients, stored in a file.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// Microseconds since the start of the history.
pub type Time = u64;

/// Revision of the store; a resourceVersion.
pub type Revision = u64;

/// Compared content of an object: opaque text.
pub type Content = String;

/// An object as returned by a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedObject {
    pub version: Revision,
    pub content: Content,
}

/// Objects by key: the resource, a slash and the name.
pub type Objects = BTreeMap<String, ListedObject>;

/// Server through which a request was sent; unknown behind the balancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum RequestRoute {
    Server(usize),
    Balancer,
}

/// A request and its outcome.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RecordedOperation {
    pub client: usize,
    pub via: RequestRoute,
    pub start: Time,
    /// Time of the response, or of the certainty that there is none.
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
    /// Returns whether success changes an object.
    pub fn writes(&self) -> bool {
        !matches!(self, Self::Get { .. } | Self::List { .. })
    }

    /// Returns the written content; `None` for a deletion.
    pub fn written_content(&self) -> Option<(&str, &Content)> {
        match self {
            Self::Create { key, content }
            | Self::Update { key, content, .. }
            | Self::Patch { key, content } => Some((key, content)),
            Self::Delete { .. } | Self::Get { .. } | Self::List { .. } => None,
        }
    }
}

/// Required freshness of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadVersion {
    /// No resourceVersion: at least as new as any earlier response to any client.
    Newest,
    /// `resourceVersion=0`: any version the server has.
    Any,
    NotOlderThan(Revision),
    Exact(Revision),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperationOutcome {
    /// The write succeeded at this revision.
    Written(Revision),
    /// The object was deleted, at an unknown revision.
    Deleted,
    Found(ListedObject),
    /// The object does not exist.
    Absent,
    /// A create found an existing object.
    Exists,
    /// An update or a delete found another version.
    Conflict,
    Listed {
        version: Revision,
        objects: Objects,
    },
    /// Nothing was changed, for any reason.
    Refused {
        code: u16,
        retry_after: bool,
    },
    /// The change may have happened, or may still happen. The code is 0 if there was no response.
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
    /// Whether it resumes where the client's previous watch or list ended.
    pub follows: bool,
    pub received: Vec<ObservedEvent>,
    pub end: WatchEnd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WatchStart {
    /// Only changes after this revision.
    Revision(Revision),
    /// All objects, followed by a bookmark that marks their end.
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
    /// With the last content of the object.
    Deleted {
        key: String,
        content: Content,
    },
    Bookmark,
    /// The bookmark after the initial objects of a watch.
    InitialEnd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WatchEnd {
    /// The client or the server ended it, or the connection broke.
    Closed,
    /// 410: the following changes are no longer available.
    Gone,
}

/// One change of the store, as reported by etcd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreChange {
    pub revision: Revision,
    pub key: String,
    /// State after the change; `None` for a deletion.
    pub content: Option<Content>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct InjectedFault {
    pub name: String,
    pub start: Time,
    /// Time at which the fault was removed.
    pub healed: Time,
    /// Time at which both servers accepted writes again.
    pub end: Time,
    /// Whether etcd had to elect another leader.
    pub leader_change: bool,
    /// Whether no member could accept writes: then the outage is unbounded.
    pub no_quorum: bool,
}

/// State of a server at the end, after all writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinalState {
    pub server: usize,
    pub resource: String,
    pub version: Revision,
    pub objects: Objects,
}

/// Complete record of a run.
#[derive(Debug, Clone, Default)]
pub struct ChaosHistory {
    pub operations: Vec<RecordedOperation>,
    pub watches: Vec<RecordedWatch>,
    /// In order of revision, from the start of the store.
    pub changes: Vec<StoreChange>,
    pub faults: Vec<InjectedFault>,
    pub rest: Vec<FinalState>,
    /// Times at which etcd accepted a write that was sent without a server.
    pub probes: Vec<Time>,
    /// Revision of etcd after all writes.
    pub newest: Revision,
}

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
    /// Writes the history to a file, one entry per line.
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

/// Shared recorder of all clients.
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

    /// Accesses the history under its lock.
    pub fn with<T>(&self, act: impl FnOnce(&mut ChaosHistory) -> T) -> T {
        act(&mut self.history.lock().unwrap())
    }
}
