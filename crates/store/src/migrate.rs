//! Moving a store from one engine to another, through a file.
//!
//! [`export()`] writes every object at one revision into a file ([`mod@format`]), [`import()`] creates
//! a store from such a file. Both resume where they were interrupted. An engine takes part as a
//! [`MigrationSource`] and as a [`MigrationTarget`].
//!
//! An imported store continues [`crate::RESTORE_JUMP`] above the exported revision, without history:
//! every object gets a new revision, and none that anyone may remember is given out again.

mod export;
mod format;
mod import;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use bytes::Bytes;

use crate::{Error, EtcdOptions, RangePage, Revision};

pub use export::export;
pub(crate) use format::ObjectDigest;
pub use import::{import, undo_import};

/// Location of a store to export from or import into.
#[derive(Debug, Clone)]
pub enum StoreLocation {
    /// In a directory, in the embedded engine.
    Directory(PathBuf),
    /// A prefix of an etcd cluster, given by its connection options.
    Etcd(EtcdOptions),
}

/// Summary of a finished export or import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationSummary {
    /// Number of objects exported or imported, earlier runs included.
    pub objects: u64,
    /// The SHA-256 of all keys and values, in hexadecimal. It is the same for the same objects,
    /// whatever the engine and the revisions.
    pub digest: String,
    /// An export: the revision whose state it is. An import: the revision of the store now.
    pub revision: Revision,
    /// How many of the objects an earlier, interrupted run had moved.
    pub earlier: u64,
}

/// What happens while a store is moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MigrationEvent {
    /// So much of a step is done.
    Progress {
        /// Step that is in progress; it determines the unit of the counts.
        step: MigrationStep,
        /// Amount completed so far, in the unit of the step.
        done: u64,
        /// How much there is to do, as far as it is known.
        total: u64,
    },
    /// Something that whoever waits should know.
    Note(String),
}

/// A step, and what it is measured in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigrationStep {
    /// Writing objects into a file; in objects.
    Exporting,
    /// Reading a file and comparing it with its checksums; in bytes.
    CheckingFile,
    /// Writing objects into a store; in objects.
    Importing,
    /// Reading the objects of a store back; in objects.
    CheckingStore,
}

/// Callback that receives progress and notes during an export or import.
pub type MigrationListener<'a> = &'a mut dyn FnMut(MigrationEvent);

/// A store whose objects can be read.
pub(crate) trait MigrationSource {
    /// The engine and a name that no other store of it has.
    fn origin(&self) -> (&'static str, String);

    /// Newest revision of the store, whose state is exported.
    fn revision(&self) -> Revision;

    /// How many objects there are, about.
    fn count(&self) -> u64;

    /// The first objects after a key, as they were at a revision.
    fn page(&mut self, at: Revision, after: Option<&str>) -> Result<RangePage, Error>;
}

/// A store that is being made of a file. Until it is published nobody can open it.
pub(crate) trait MigrationTarget: MigrationSource {
    /// Puts the next object, in the order of keys; says whether it was there already.
    fn put(&mut self, key: String, value: Bytes) -> Result<bool, Error>;

    /// Returns when every object is durable.
    fn flush(&mut self) -> Result<(), Error>;

    /// Makes it a store like any other; returns its revision.
    fn publish(self: Box<Self>) -> Result<Revision, Error>;
}

/// What an import is about to put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImportPlan {
    pub(crate) objects: u64,
    pub(crate) digest: String,
    /// All revisions of the new store are above this one.
    pub(crate) above: Revision,
}

/// How an import can begin.
pub(crate) enum ImportStart<T> {
    /// There is nothing yet, or a part that an earlier run has put.
    Ready(T),
    /// There is a store already.
    Occupied,
}

impl StoreLocation {
    fn source(&self) -> Result<Box<dyn MigrationSource>, Error> {
        Ok(match self {
            Self::Directory(dir) => Box::new(crate::embedded::EmbeddedSource::open(dir)?),
            Self::Etcd(options) => Box::new(crate::etcd::EtcdSource::open(options)?),
        })
    }

    fn target(&self, plan: &ImportPlan) -> Result<ImportStart<Box<dyn MigrationTarget>>, Error> {
        fn boxed<T: MigrationTarget + 'static>(
            start: ImportStart<T>,
        ) -> ImportStart<Box<dyn MigrationTarget>> {
            match start {
                ImportStart::Ready(target) => ImportStart::Ready(Box::new(target)),
                ImportStart::Occupied => ImportStart::Occupied,
            }
        }
        Ok(match self {
            Self::Directory(dir) => boxed(crate::embedded::EmbeddedTarget::begin(dir, plan)?),
            Self::Etcd(options) => boxed(crate::etcd::EtcdTarget::begin(options, plan)?),
        })
    }

    fn undo(&self) -> Result<(), Error> {
        match self {
            Self::Directory(dir) => crate::embedded::EmbeddedTarget::undo(dir),
            Self::Etcd(options) => crate::etcd::EtcdTarget::undo(options),
        }
    }

    fn path(&self) -> PathBuf {
        match self {
            Self::Directory(dir) => dir.clone(),
            Self::Etcd(options) => options.name().into(),
        }
    }
}
