//! Flags of `windlass store`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};

use super::{DataDirArgs, DocumentArgs, EtcdArgs, examples};

/// Subcommands of `windlass store`.
#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Verify the integrity of the database.
    ///
    /// Reads all data. The server can be running.
    #[command(after_help = examples::STORE_CHECK)]
    Check {
        #[command(flatten)]
        data: DataDirArgs,
        /// Backup file to check instead of a data directory.
        #[arg(value_name = "FILE", conflicts_with = "data_dir")]
        file: Option<PathBuf>,
        #[command(flatten)]
        output: DocumentArgs,
    },
    /// Back up the database to one file.
    ///
    /// The server can be running.
    #[command(after_help = examples::STORE_BACKUP)]
    Backup {
        #[command(flatten)]
        data: DataDirArgs,
        /// Backup file to create. It must not exist.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        output: DocumentArgs,
    },
    /// Restore the database from a backup.
    ///
    /// The data directory must not contain a database. Certificates and keys in pki/ of the data
    /// directory are not part of a backup.
    #[command(after_help = examples::STORE_RESTORE)]
    Restore {
        #[command(flatten)]
        data: DataDirArgs,
        /// Backup file to restore the database from.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        output: DocumentArgs,
    },
    /// Export all objects to a file that both storage engines can import.
    ///
    /// Servers can be running. The file contains Secrets in clear text. An interrupted export resumes
    /// when it is started again.
    #[command(after_help = examples::STORE_EXPORT)]
    Export {
        /// Export file to create. It must not exist.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Suppress progress output.
        #[arg(long, short)]
        quiet: bool,
        #[command(flatten)]
        output: DocumentArgs,
        #[command(flatten)]
        place: StoreLocationArgs,
    },
    /// Import all objects from an export file into an empty store.
    ///
    /// The file is verified first, and the written objects are verified at the end; until then no
    /// server opens the store. An interrupted import resumes when it is started again.
    #[command(after_help = examples::STORE_IMPORT)]
    Import {
        /// Export file to import the objects from.
        #[arg(value_name = "FILE", required_unless_present = "undo")]
        file: Option<PathBuf>,
        /// Undo an unfinished import: remove the objects that it has written.
        #[arg(long, conflicts_with = "file")]
        undo: bool,
        /// Suppress progress output.
        #[arg(long, short)]
        quiet: bool,
        #[command(flatten)]
        output: DocumentArgs,
        #[command(flatten)]
        place: StoreLocationArgs,
    },
    /// Raise the revision of a store on etcd after etcd was restored from a snapshot.
    ///
    /// A restored etcd continues to count at the revision of the snapshot, so clients would see
    /// resourceVersions that they know with different contents. Run this before starting a server;
    /// running servers stop.
    #[command(after_help = examples::STORE_RAISE_REVISION)]
    RaiseRevision {
        /// Increment of the revision; must exceed the number of changes since the snapshot.
        #[arg(long, value_name = "NUMBER", default_value_t = windlass_store::RESTORE_JUMP)]
        #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
        by: u64,
        #[command(flatten)]
        output: DocumentArgs,
        #[command(flatten)]
        etcd: EtcdArgs,
    },
}

/// Location of a store: a data directory or etcd.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("place").args(["data_dir", "etcd_servers"]))]
pub struct StoreLocationArgs {
    #[command(flatten)]
    pub data: DataDirArgs,
    #[command(flatten)]
    pub etcd: EtcdArgs,
}
