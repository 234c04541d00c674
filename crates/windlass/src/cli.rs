//! The command line. Flags that kube-apiserver and its siblings have are called as theirs.
//!
//! Everything is parsed here into the type it is used as; the commands see no text that might be
//! wrong. The comments on the fields are what `--help` says.

mod access;
mod bundles;
mod controllers;
#[cfg(test)]
mod deployment;
mod etcd;
mod external_address;
mod node;
mod requests;
mod signers;
mod store;
mod tokens;
mod trust;
mod values;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use windlass_pki::AltName;

pub use access::{
    AccessArgs, AuditArgs, AuditLevelArg, AuditModeArg, ConnectionArgs, InflightArgs,
};
pub use bundles::{BundleCommand, BundleStatusArgs, BundleSyncArgs};
pub use controllers::{ControllersArgs, ElectionArgs, IssuingArgs, NodeMonitorArgs};
pub use etcd::EtcdArgs;
pub use external_address::ExternalUrl;
pub use node::{NodeArgs, NodeCommand, NodeRunArgs, NodeStatusArgs};
pub use requests::{
    CsrCommand, CsrDecideArgs, CsrListArgs, CsrShowArgs, DocumentArgs, IssueArgs, NameArgs,
    OutputFormat,
};
pub use signers::{
    SignerCheckArgs, SignerCommand, SignerListArgs, SignerShowArgs, SignerSourceArgs,
};
pub use store::{StoreCommand, StoreLocationArgs};
pub use tokens::{TokenCommand, TokenCreateArgs, TokenDeleteArgs, TokenListArgs, TokenTtl};
pub use trust::{TrustCommand, TrustPackageArgs, TrustStatusArgs};
pub use values::{AdmissionPlugin, ExpiryTime, FeatureGate};

/// The certificate and trust plane of Kubernetes in one program.
///
/// `windlass up` starts a server that kubectl, client-go and every other Kubernetes client can
/// talk to, and keeps its data in a directory. It needs no cluster, no etcd and no configuration.
#[derive(Debug, Parser)]
#[command(name = "windlass", version, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    pub logging: LogArgs,
    #[command(subcommand)]
    pub command: CliCommand,
}

/// What there is to do.
#[derive(Debug, Subcommand)]
pub enum CliCommand {
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
    ///
    /// Several may run: the one that holds a lease works. Against a server that is not Windlass they do
    /// not do what its kube-controller-manager does.
    Controllers(Box<ControllersArgs>),
    /// Make this machine a node: get its certificates and keep them good.
    ///
    /// With a bootstrap kubeconfig it asks for a client certificate, waits until it is approved and
    /// signed, and from then on renews it by itself. Against any Kubernetes API server.
    Node(Box<NodeArgs>),
    /// Check, back up or restore the database in a data directory; move it to etcd and back.
    #[command(subcommand)]
    Store(StoreCommand),
    /// Create client credentials for users.
    #[command(subcommand)]
    User(UserCommand),
    /// Get a certificate: make a key, ask a signer, wait, and write what comes.
    ///
    /// The key never leaves this machine. Files appear all at once when everything is there, and what was
    /// there before stays until then.
    Issue(Box<IssueArgs>),
    /// List, show, approve or deny requests for certificates.
    #[command(subcommand)]
    Csr(CsrCommand),
    /// List, check or show signers: who signs what, with which CA, and what waits for them.
    #[command(subcommand)]
    Signer(SignerCommand),
    /// Ask which nodes have a trust bundle in their volumes, and which do not; or whom this machine
    /// trusts.
    #[command(subcommand)]
    Trust(TrustCommand),
    /// Ask what became of a Bundle of trust-manager.
    #[command(subcommand)]
    Bundle(BundleCommand),
    /// Print the custom resources of Windlass, for servers that are not Windlass.
    ///
    /// They are YAML: pipe them into kubectl apply -f -. The Bundle takes the place of trust-manager's own.
    Crds(CrdsArgs),
    /// Make, list or delete bootstrap tokens, with which machines join as nodes.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Ask whether you, or somebody else, may do something. Exits with 1 if not.
    CanI(CanIArgs),
    /// Print the version of this program.
    Version(VersionArgs),
}

#[derive(Debug, Args)]
pub struct VersionArgs {
    #[command(flatten)]
    pub output: DocumentArgs,
}

#[derive(Debug, Args)]
pub struct CrdsArgs {
    /// Which: nodetrusts, bundles [default: all].
    #[arg(value_name = "NAME", value_enum, hide_possible_values = true)]
    pub names: Vec<CustomResource>,
}

/// Custom resource definitions that `windlass crds` can print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CustomResource {
    /// What nodes report on trust.
    #[value(name = "nodetrusts")]
    NodeTrusts,
    /// Which certificates are gathered, and where they go.
    Bundles,
}

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
    /// One human-readable line per event.
    Text,
    /// One JSON object a line.
    Json,
}

/// Minimum severity of the log events that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Failures that need attention only.
    Error,
    /// Also what may go wrong.
    Warn,
    /// Also state changes, such as issued certificates.
    Info,
    /// Also the reason for each decision.
    Debug,
    /// Everything, also from the libraries.
    Trace,
}

/// Data directory option shared by several commands.
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
    /// Address or host name, and port, to serve HTTPS on. Port 0 takes a free one. Of a name with several
    /// addresses, the lowest is used, IPv4 before IPv6.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:6443")]
    #[arg(value_parser = values::listen_address)]
    pub listen: SocketAddr,
    /// File with bearer tokens, one a line: token,user,uid,"group1,group2".
    #[arg(long, value_name = "FILE")]
    pub token_auth_file: Option<PathBuf>,
    /// More names and addresses for the serving certificate: a balancer's, for example. May be given several
    /// times. The certificate is issued anew when they change.
    #[arg(long, value_name = "NAME|ADDRESS", value_delimiter = ',', value_parser = external_address::parse_alt_name)]
    pub tls_san: Vec<AltName>,
    /// Where clients reach the server, if that is somewhere else than it listens: https://NAME:PORT of a
    /// balancer. It stands in admin.kubeconfig, and its name in the serving certificate.
    #[arg(long, value_name = "URL", value_parser = external_address::parse_external_url)]
    pub external_url: Option<ExternalUrl>,
    /// Address of this server in the endpoints of the Service default/kubernetes. Default: the listen
    /// address, or the address of the default route if that is loopback or unspecified
    #[arg(long, value_name = "ADDRESS")]
    pub advertise_address: Option<IpAddr>,
    /// How long to go on after SIGTERM as if nothing were, while /readyz says that the server leaves: as long as
    /// balancers take to notice, for example 10s.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = values::duration)]
    pub shutdown_delay_duration: Duration,
    /// How long requests may go on after that before they are cut off, for example 30s.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = values::duration)]
    pub shutdown_grace: Duration,
    /// Features to turn on or off, for example ClusterTrustBundleProjection=true,PodCertificateRequest=false.
    #[arg(long, value_name = "NAME=BOOL", value_delimiter = ',')]
    pub feature_gates: Vec<FeatureGate>,
    #[command(flatten)]
    pub access: AccessArgs,
    #[command(flatten)]
    pub inflight: InflightArgs,
    #[command(flatten)]
    pub connections: ConnectionArgs,
    #[command(flatten)]
    pub audit: AuditArgs,
    #[command(flatten)]
    pub etcd: EtcdArgs,
    /// Let the authorities of this server take the place of those that are recorded in etcd, which all servers
    /// on it must have. For their rotation.
    #[arg(long, requires = "etcd_servers", help_heading = "Store on etcd")]
    pub record_authorities: bool,
}

#[derive(Debug, Args)]
pub struct UpArgs {
    #[command(flatten)]
    pub serve: ServeArgs,
    #[command(flatten)]
    pub issuing: IssuingArgs,
    #[command(flatten)]
    pub bundles: BundleSyncArgs,
    #[command(flatten)]
    pub nodes: NodeMonitorArgs,
    /// Make this machine a node of this name as well. Its certificates are kept in the data
    /// directory.
    #[arg(long, value_name = "NAME", value_parser = values::node_name, conflicts_with = "no_node")]
    #[arg(help_heading = "Node")]
    pub node_name: Option<String>,
    /// Volumes of this machine itself: a file that says what is to be in which directory. Read again
    /// when it changes.
    #[arg(long, value_name = "FILE", requires = "node_name", help_heading = "Node")]
    pub projections: Option<PathBuf>,
    /// Do not make this machine a node.
    #[arg(long, help_heading = "Node")]
    pub no_node: bool,
}

const KEYS_HEADING: &str = "Certificates and keys";

#[derive(Debug, Args)]
pub struct ServerArgs {
    #[command(flatten)]
    pub serve: ServeArgs,
    /// Certificate to serve with, followed by the certificates between it and its authority (PEM).
    /// Read again when it changes.
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_private_key_file",
        conflicts_with = "tls_san",
        help_heading = KEYS_HEADING
    )]
    pub tls_cert_file: Option<PathBuf>,
    /// Private key of --tls-cert-file (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert_file", help_heading = KEYS_HEADING)]
    pub tls_private_key_file: Option<PathBuf>,
    /// Authorities that client certificates are verified with (PEM). A certificate's common name is
    /// the user, its organizations are the groups. Read again when it changes.
    #[arg(long, value_name = "FILE", help_heading = KEYS_HEADING)]
    pub client_ca_file: Option<PathBuf>,
    /// Key to verify service-account tokens with: public, private or in a certificate (PEM). May be
    /// given several times [default: that of --service-account-signing-key-file].
    #[arg(long, value_name = "FILE", requires = "service_account_signing_key_file")]
    #[arg(help_heading = KEYS_HEADING)]
    pub service_account_key_file: Vec<PathBuf>,
    /// Private key to sign service-account tokens with (PEM).
    #[arg(long, value_name = "FILE", help_heading = KEYS_HEADING)]
    pub service_account_signing_key_file: Option<PathBuf>,
}

/// What can be done with users.
#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// Write a kubeconfig with a client certificate for somebody.
    ///
    /// The certificate is signed with the client authority in the data directory, so it works with the
    /// server of that directory, which may be running. What its owner may do is decided by roles: bind
    /// one to the name or to a group. A certificate cannot be taken back before it expires.
    Add(UserAddArgs),
}

/// Flags of `windlass user add`.
#[derive(Debug, Args)]
pub struct UserAddArgs {
    /// The name: the common name of the certificate.
    #[arg(value_name = "NAME", value_parser = values::user_name)]
    pub name: String,
    /// A group: an organization of the certificate. May be given several times.
    #[arg(long, value_name = "GROUP", value_parser = values::user_name)]
    pub group: Vec<String>,
    /// When the certificate ends: after 90d, 12h or 1d12h, or at a date such as 2027-01-31.
    #[arg(long, value_name = "WHEN", default_value = "365d", value_parser = values::expiry)]
    pub expires: ExpiryTime,
    /// Kubeconfig to write. It must not exist; - is standard output [default: NAME.kubeconfig].
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// URL of the server [default: as in the data directory's admin.kubeconfig].
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,
    /// CA certificate to verify the server with (PEM), for a server with --tls-cert-file [default: pki/ca.crt of the
    /// data directory].
    #[arg(long, value_name = "FILE")]
    pub certificate_authority: Option<PathBuf>,
    #[command(flatten)]
    pub output: DocumentArgs,
    #[command(flatten)]
    pub data: DataDirArgs,
}

#[derive(Debug, Args)]
pub struct CanIArgs {
    /// What to do: get, list, watch, create, update, patch, delete, approve, sign, …
    #[arg(value_name = "VERB")]
    pub verb: String,
    /// With what: pods, pods/status, csr, clustertrustbundles.certificates.k8s.io, or a path such as /metrics.
    #[arg(value_name = "RESOURCE")]
    pub resource: String,
    /// Which one; all of them if not given.
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// In which namespace [default: that of the kubeconfig].
    #[arg(long, short, value_name = "NAMESPACE", conflicts_with = "all_namespaces")]
    pub namespace: Option<String>,
    /// Check access in all namespaces.
    #[arg(long, short = 'A')]
    pub all_namespaces: bool,
    /// Ask about this user instead of yourself. You need to be allowed to create subjectaccessreviews.
    #[arg(long = "as", value_name = "USER")]
    pub user: Option<String>,
    /// Groups of that user. May be given several times.
    #[arg(long = "as-group", value_name = "GROUP", requires = "user")]
    pub groups: Vec<String>,
    #[command(flatten)]
    pub output: DocumentArgs,
    /// The server to ask, and who to be there [default: as kubectl].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

#[cfg(test)]
mod tests;
