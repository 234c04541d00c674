//! Flags of `windlass store`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};

use super::{DataDirArgs, DocumentArgs, EtcdArgs};

/// What can be done with a database.
#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Read everything in the database and verify it. A server may be using it.
    Check {
        #[command(flatten)]
        data: DataDirArgs,
        /// A backup to check instead of a data directory.
        #[arg(value_name = "FILE", conflicts_with = "data_dir")]
        file: Option<PathBuf>,
        #[command(flatten)]
        output: DocumentArgs,
    },
    /// Copy the database into one file. A server may be using it.
    Backup {
        #[command(flatten)]
        data: DataDirArgs,
        /// The file to write. It must not exist.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        output: DocumentArgs,
    },
    /// Make a database from a backup. The data directory must not have one.
    ///
    /// Only the database is restored. Certificates and keys are in the data directory's pki/.
    Restore {
        #[command(flatten)]
        data: DataDirArgs,
        /// Backup file to restore the database from.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        output: DocumentArgs,
    },
    /// Write all objects into a file, from which a store of any engine can be made. Servers may be using
    /// the store.
    ///
    /// The file holds Secrets in the clear. An export that is interrupted goes on when it is started
    /// again.
    Export {
        /// The file to write. It must not exist.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Do not tell how far it is.
        #[arg(long, short)]
        quiet: bool,
        #[command(flatten)]
        output: DocumentArgs,
        #[command(flatten)]
        place: StoreLocationArgs,
    },
    /// Make a store of the file of an export. There must be none yet.
    ///
    /// The file is checked first, and what was written is read back at the end; until then no server opens
    /// the store. An import that is interrupted goes on when it is started again.
    Import {
        /// Export file to import the objects from.
        #[arg(value_name = "FILE", required_unless_present = "undo")]
        file: Option<PathBuf>,
        /// Take back an import that was not finished: remove what it has written.
        #[arg(long, conflicts_with = "file")]
        undo: bool,
        /// Do not tell how far it is.
        #[arg(long, short)]
        quiet: bool,
        #[command(flatten)]
        output: DocumentArgs,
        #[command(flatten)]
        place: StoreLocationArgs,
    },
    /// Raise the revisions of a store on etcd, after etcd was restored from a snapshot.
    ///
    /// A restored etcd counts on from the snapshot. Clients would meet resourceVersions that they know, with
    /// another meaning. Do this before a server is started; one that runs stops.
    RaiseRevision {
        /// By how much. More than there can have been changes since the snapshot.
        #[arg(long, value_name = "NUMBER", default_value_t = windlass_store::RESTORE_JUMP)]
        #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
        by: u64,
        #[command(flatten)]
        output: DocumentArgs,
        #[command(flatten)]
        etcd: EtcdArgs,
    },
}

/// Where a store is: in a data directory, or on etcd.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("place").args(["data_dir", "etcd_servers"]))]
pub struct StoreLocationArgs {
    #[command(flatten)]
    pub data: DataDirArgs,
    #[command(flatten)]
    pub etcd: EtcdArgs,
}
