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
    /// A data directory of the embedded engine.
    Directory(PathBuf),
    /// A prefix of an etcd cluster, given by its connection options.
    Etcd(EtcdOptions),
}

/// Summary of a finished export or import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationSummary {
    /// Number of objects exported or imported, earlier runs included.
    pub objects: u64,
    /// SHA-256 of all keys and values, in hexadecimal. Equal for the same objects, whatever the
    /// engine and the revisions.
    pub digest: String,
    /// For an export, the exported revision; for an import, the store's current revision.
    pub revision: Revision,
    /// Number of objects moved by an earlier, interrupted run.
    pub earlier: u64,
}

/// Event during an export or import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MigrationEvent {
    /// Progress of the current migration step.
    Progress {
        /// Step that is in progress; it determines the unit of the counts.
        step: MigrationStep,
        /// Amount completed so far, in the unit of the step.
        done: u64,
        /// Total amount, as far as it is known.
        total: u64,
    },
    /// A message for the user.
    Note(String),
}

/// A migration step, with the unit of its progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigrationStep {
    /// Writing objects to a file; counted in objects.
    Exporting,
    /// Verifying a file against its checksums; counted in bytes.
    CheckingFile,
    /// Writing objects to a store; counted in objects.
    Importing,
    /// Reading back a store's objects; counted in objects.
    CheckingStore,
}

/// Callback that receives progress and notes during an export or import.
pub type MigrationListener<'a> = &'a mut dyn FnMut(MigrationEvent);

/// A store that can be exported.
pub(crate) trait MigrationSource {
    /// Returns the engine, and an ID that is unique among its stores.
    fn origin(&self) -> (&'static str, String);

    /// Newest revision of the store, whose state is exported.
    fn revision(&self) -> Revision;

    /// Returns the approximate number of objects.
    fn count(&self) -> u64;

    /// Returns the first objects after a key, at a revision.
    fn page(&mut self, at: Revision, after: Option<&str>) -> Result<RangePage, Error>;
}

/// A store being created from a file. It cannot be opened until it is published.
pub(crate) trait MigrationTarget: MigrationSource {
    /// Writes the next object, in key order; returns whether it already existed.
    fn put(&mut self, key: String, value: Bytes) -> Result<bool, Error>;

    /// Returns when every object is durable.
    fn flush(&mut self) -> Result<(), Error>;

    /// Publishes the store so that it can be opened; returns its revision.
    fn publish(self: Box<Self>) -> Result<Revision, Error>;
}

/// The objects that an import will write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImportPlan {
    pub(crate) objects: u64,
    pub(crate) digest: String,
    /// Revision that all revisions of the new store exceed.
    pub(crate) above: Revision,
}

/// Initial state of an import.
pub(crate) enum ImportStart<T> {
    /// The target is empty, or contains a part written by an earlier run.
    Ready(T),
    /// The target already contains a store.
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
