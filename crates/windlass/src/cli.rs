//! The command line. Flags that kube-apiserver and its siblings have are called as theirs.
//!
//! Everything is parsed here into the type it is used as; the commands see no text that might be
//! wrong. The comments on the fields are what `--help` says.

mod values;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

pub use values::FeatureGate;

/// The certificate and trust plane of Kubernetes in one program.
///
/// `windlass up` starts a server that kubectl, client-go and every other Kubernetes client can
/// talk to, and keeps its data in a directory. It needs no cluster, no etcd and no configuration.
#[derive(Debug, Parser)]
#[command(name = "windlass", version, max_term_width = 100, disable_help_subcommand = true)]
pub struct Cli {
    #[command(flatten)]
    pub logging: LogArgs,
    #[command(subcommand)]
    pub command: Command,
}

/// What there is to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start everything in one process: the API server and its controllers.
    ///
    /// On the first start this makes what is missing in the data directory: certificate
    /// authorities, a serving certificate, a key for service-account tokens, and `admin.kubeconfig`
    /// for kubectl. Later starts find everything still there.
    Up(UpArgs),
    /// Start only the API server.
    ///
    /// What no flag names is made and kept in the data directory, as `windlass up` does.
    Server(ServerArgs),
    /// Start only the controllers, against the API server of a kubeconfig.
    Controllers(ControllersArgs),
    /// Check, back up or restore the database in a data directory.
    #[command(subcommand)]
    Store(StoreCommand),
    /// Print the version.
    Version,
}

/// Flags of every command.
#[derive(Debug, Args)]
pub struct LogArgs {
    /// How to write the log, which goes to standard error: text or json.
    #[arg(long, global = true, help_heading = "Log", hide_possible_values = true)]
    #[arg(value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    pub log_format: LogFormat,
    /// How much to log: error, warn, info, debug or trace.
    #[arg(long, global = true, help_heading = "Log", hide_possible_values = true)]
    #[arg(value_enum, default_value_t = LogLevel::Info, value_name = "LEVEL")]
    pub log_level: LogLevel,
    /// Log more: once for debug, twice for trace.
    #[arg(short, global = true, help_heading = "Log", action = ArgAction::Count)]
    #[arg(conflicts_with = "log_level")]
    pub verbose: u8,
}

/// How the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Only what went wrong.
    Error,
    /// Also what may go wrong.
    Warn,
    /// Also what happens.
    Info,
    /// Also why.
    Debug,
    /// Everything, also from the libraries.
    Trace,
}

/// Where the data is.
#[derive(Debug, Args)]
pub struct DataDirArgs {
    /// Directory for everything that is kept. Made if it is not there [default:
    /// $XDG_DATA_HOME/windlass, or ~/.local/share/windlass].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

/// What `up` and `server` have in common.
#[derive(Debug, Args)]
pub struct ServeArgs {
    #[command(flatten)]
    pub data: DataDirArgs,
    /// Address and port to serve HTTPS on. Port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:6443")]
    pub listen: SocketAddr,
    /// File with bearer tokens, one a line: token,user,uid,"group1,group2".
    #[arg(long, value_name = "FILE")]
    pub token_auth_file: Option<PathBuf>,
    /// How long requests may go on after SIGTERM before they are cut off, for example 30s.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = values::duration)]
    pub shutdown_grace: Duration,
    #[command(flatten)]
    pub inflight: InflightArgs,
    #[command(flatten)]
    pub audit: AuditArgs,
}

/// How much is worked on at a time.
#[derive(Clone, Copy, Debug, Args)]
pub struct InflightArgs {
    /// How many requests that read are worked on at a time; more wait, each user's in a queue of
    /// their own, or are told to come again. Nodes and leader leases have room besides.
    #[arg(long, value_name = "NUMBER", default_value = "400")]
    pub max_requests_inflight: NonZeroUsize,
    /// The same for requests that write.
    #[arg(long, value_name = "NUMBER", default_value = "200")]
    pub max_mutating_requests_inflight: NonZeroUsize,
}

/// Where requests are written down.
#[derive(Clone, Debug, Args)]
pub struct AuditArgs {
    /// File to write one audit.k8s.io/v1 event to for every request; - is standard output
    /// [default: none is written].
    #[arg(long, value_name = "FILE")]
    pub audit_log_path: Option<PathBuf>,
    /// Size of that file in megabytes at which it is put aside for a new one.
    #[arg(long, value_name = "MEGABYTES", default_value_t = 100, requires = "audit_log_path")]
    pub audit_log_maxsize: u64,
    /// How many files that were put aside are kept; 0 keeps all.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, requires = "audit_log_path")]
    pub audit_log_maxbackup: usize,
    /// How many days files that were put aside are kept; 0 keeps them for ever.
    #[arg(long, value_name = "DAYS", default_value_t = 0, requires = "audit_log_path")]
    pub audit_log_maxage: u32,
}

/// Flags of `windlass up`.
#[derive(Debug, Args)]
pub struct UpArgs {
    #[command(flatten)]
    pub serve: ServeArgs,
    /// Name of this machine as a node. This version has no node agent: a name is checked, and a
    /// warning says that nothing else is done with it.
    #[arg(long, value_name = "NAME", value_parser = values::node_name, conflicts_with = "no_node")]
    pub node_name: Option<String>,
    /// Do not make this machine a node.
    #[arg(long)]
    pub no_node: bool,
}

/// Flags of `windlass server`.
#[derive(Debug, Args)]
pub struct ServerArgs {
    #[command(flatten)]
    pub serve: ServeArgs,
    /// Certificate to serve with, followed by the certificates between it and its authority (PEM).
    /// Read again when it changes.
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// Private key of --tls-cert-file (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Authorities that client certificates are verified with (PEM). A certificate's common name is
    /// the user, its organizations are the groups. Read again when it changes.
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// Key to verify service-account tokens with: public, private or in a certificate (PEM). May be
    /// given several times [default: that of --service-account-signing-key-file].
    #[arg(long, value_name = "FILE", requires = "service_account_signing_key_file")]
    pub service_account_key_file: Vec<PathBuf>,
    /// Private key to sign service-account tokens with (PEM).
    #[arg(long, value_name = "FILE")]
    pub service_account_signing_key_file: Option<PathBuf>,
    /// Features to turn on or off, for example ClusterTrustBundleProjection=true,PodCertificateRequest=false.
    #[arg(long, value_name = "NAME=BOOL", value_delimiter = ',')]
    pub feature_gates: Vec<FeatureGate>,
}

/// Flags of `windlass controllers`.
#[derive(Debug, Args)]
pub struct ControllersArgs {
    /// The API server to work for, and who to be there.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: PathBuf,
}

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
    },
    /// Copy the database into one file. A server may be using it.
    Backup {
        #[command(flatten)]
        data: DataDirArgs,
        /// The file to write. It must not exist.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Make a database from a backup. The data directory must not have one.
    ///
    /// Only the database is restored. Certificates and keys are in the data directory's pki/.
    Restore {
        #[command(flatten)]
        data: DataDirArgs,
        /// The backup.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

#[cfg(test)]
mod tests;
