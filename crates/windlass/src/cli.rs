//! The command line. Flags that exist in kube-apiserver, kube-controller-manager or kubelet keep their names.
//!
//! Values are parsed and validated here, so that commands receive typed arguments. Doc comments of fields are the text of
//! `--help`.

mod access;
mod bundles;
mod certificates;
mod controllers;
#[cfg(test)]
mod deployment;
mod etcd;
mod examples;
mod external_address;
mod node;
mod requests;
mod rotation;
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

pub use access::{AccessArgs, AuditArgs, AuditLevelArg, AuditModeArg, ConnectionArgs, InflightArgs};
pub use bundles::{BundleCommand, BundleStatusArgs, BundleSyncArgs};
pub use certificates::{
    CertCommand, CertIssuerArgs, CertListArgs, CertRevokeArgs, CertShowArgs, CertVerifyArgs, ExpectedHead,
    NamespacedName,
};
pub use controllers::{ControllersArgs, ElectionArgs, IssuingArgs, NodeMonitorArgs};
pub use etcd::EtcdArgs;
pub use external_address::ExternalUrl;
pub use node::{NodeArgs, NodeCommand, NodeRunArgs, NodeStatusArgs};
pub use requests::{
    ApiServerArgs, CsrCommand, CsrDecideArgs, CsrListArgs, CsrShowArgs, DocumentArgs, IssueArgs, NameArgs,
    OutputFormat,
};
pub use rotation::{
    RotateCommand, RotatePlanArgs, RotateRetireArgs, RotateStartArgs, RotateStatusArgs, RotationChangeArgs,
    RotationTarget,
};
pub use signers::{SignerCheckArgs, SignerCommand, SignerListArgs, SignerShowArgs, SignerSourceArgs};
pub use store::{StoreCommand, StoreLocationArgs};
pub use tokens::{TokenCommand, TokenCreateArgs, TokenDeleteArgs, TokenListArgs, TokenTtl};
pub use trust::{TrustCommand, TrustPackageArgs, TrustStatusArgs};
pub use values::{AdmissionPlugin, ExpiryTime, FeatureGate};

/// Run the certificate and trust plane of Kubernetes.
///
/// `windlass up` starts a server for kubectl, client-go and other Kubernetes clients, and stores its
/// data in a directory. It needs no cluster, no etcd and no configuration.
#[derive(Debug, Parser)]
#[command(name = "windlass", version, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    pub logging: LogArgs,
    #[command(subcommand)]
    pub command: CliCommand,
}

/// Commands of the program.
#[derive(Debug, Subcommand)]
pub enum CliCommand {
    /// Run the API server and its controllers in one process.
    ///
    /// The first start creates what is missing in the data directory: certificate authorities, a
    /// serving certificate, a key for service-account tokens, and `admin.kubeconfig` for kubectl.
    /// Later starts reuse them.
    #[command(after_help = examples::UP)]
    Up(Box<UpArgs>),
    /// Run the API server only.
    ///
    /// Certificates and keys that no flag names are created in the data directory, as by
    /// `windlass up`.
    #[command(after_help = examples::SERVER)]
    Server(Box<ServerArgs>),
    /// Run the controllers only, against the API server of a kubeconfig.
    ///
    /// Several processes can run; leader election selects the active one. Against a server that is
    /// not Windlass, controllers that kube-controller-manager already runs are disabled.
    #[command(after_help = examples::CONTROLLERS)]
    Controllers(Box<ControllersArgs>),
    /// Run the node agent: obtain and renew the certificates of this machine.
    ///
    /// With a bootstrap kubeconfig, the agent requests a client certificate, waits until it is
    /// approved and signed, and renews it before it expires. Works with any Kubernetes API server.
    Node(Box<NodeArgs>),
    /// Check, back up, restore or migrate the database.
    #[command(subcommand)]
    Store(StoreCommand),
    /// Create client credentials for users.
    #[command(subcommand)]
    User(UserCommand),
    /// Request a certificate and write it to a directory.
    ///
    /// Generates a key, creates a certificate signing request and waits for the certificate. The key
    /// never leaves this machine. Existing files are replaced atomically, and only after the
    /// certificate was issued.
    Issue(Box<IssueArgs>),
    /// List, show, approve or deny certificate signing requests.
    #[command(subcommand)]
    Csr(CsrCommand),
    /// List, show or revoke issued certificates, or verify the ledger that records them.
    #[command(subcommand)]
    Cert(CertCommand),
    /// List, check or show signers, their CAs and their pending requests.
    #[command(subcommand)]
    Signer(SignerCommand),
    /// Rotate the CA of a signer, step by step, with proof that consumers trust the new one.
    #[command(subcommand)]
    Rotate(RotateCommand),
    /// Show the delivery of trust bundles to nodes, or package trusted certificates.
    #[command(subcommand)]
    Trust(TrustCommand),
    /// Show the status of trust-manager Bundles.
    #[command(subcommand)]
    Bundle(BundleCommand),
    /// Print custom resource definitions for servers that are not Windlass.
    ///
    /// The output is YAML for `kubectl apply -f -`. The Bundle definition replaces trust-manager's.
    #[command(after_help = examples::CRDS)]
    Crds(CrdsArgs),
    /// Create, list or delete bootstrap tokens.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Check whether a user is allowed to perform an action.
    ///
    /// Exits with 1 if the action is not allowed.
    #[command(after_help = examples::CAN_I)]
    CanI(CanIArgs),
    /// Print the version.
    #[command(after_help = examples::VERSION)]
    Version(VersionArgs),
}

#[derive(Debug, Args)]
pub struct VersionArgs {
    #[command(flatten)]
    pub output: DocumentArgs,
}

#[derive(Debug, Args)]
pub struct CrdsArgs {
    /// Definitions to print: nodetrusts, bundles, signers, carotations, ledgersegments,
    /// certificaterevocations, certificaterevocationlists [default: all].
    #[arg(value_name = "NAME", value_enum, hide_possible_values = true)]
    pub names: Vec<CustomResource>,
}

/// Custom resource definitions that `windlass crds` can print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CustomResource {
    /// Trust reports of nodes.
    #[value(name = "nodetrusts")]
    NodeTrusts,
    /// Bundles, compatible with trust-manager.
    Bundles,
    /// Signers, with the policy that guards them.
    Signers,
    /// Rotations of the CAs of signers, with the policy that guards them.
    #[value(name = "carotations")]
    CaRotations,
    /// Segments of the ledger of issued certificates.
    #[value(name = "ledgersegments")]
    LedgerSegments,
    /// Revocations of certificates, with the policy that guards them.
    #[value(name = "certificaterevocations")]
    CertificateRevocations,
    /// Published certificate revocation lists.
    #[value(name = "certificaterevocationlists")]
    CertificateRevocationLists,
}

#[derive(Debug, Args)]
pub struct LogArgs {
    /// Format of the log on standard error: text or json.
    #[arg(long, global = true, help_heading = "Logging", hide_possible_values = true)]
    #[arg(value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    pub log_format: LogFormat,
    /// Minimum level of log events: error, warn, info, debug or trace.
    #[arg(long, global = true, help_heading = "Logging", hide_possible_values = true)]
    #[arg(value_enum, default_value_t = LogLevel::Info, value_name = "LEVEL")]
    pub log_level: LogLevel,
    /// Verbose log: -v for debug, -vv for trace.
    #[arg(short, global = true, help_heading = "Logging", action = ArgAction::Count)]
    #[arg(conflicts_with = "log_level")]
    pub verbose: u8,
}

/// Format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One human-readable line per event.
    Text,
    /// One JSON object per line.
    Json,
}

/// Minimum severity of the log events that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Failures that need attention only.
    Error,
    /// Also problems that may need attention.
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
    /// Data directory; created if missing [default: $XDG_DATA_HOME/windlass, or ~/.local/share/windlass].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

/// Options that `up` and `server` share.
#[derive(Debug, Args)]
pub struct ServeArgs {
    #[command(flatten)]
    pub data: DataDirArgs,
    /// Address or host name, and port, to serve HTTPS on; port 0 selects a free port. If a name has several
    /// addresses, the lowest is used, IPv4 before IPv6.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:6443")]
    #[arg(value_parser = values::listen_address)]
    pub listen: SocketAddr,
    /// CSV file of static bearer tokens, one per line: token,user,uid,"group1,group2"; reloaded on change.
    #[arg(long, value_name = "FILE")]
    pub token_auth_file: Option<PathBuf>,
    /// Additional DNS names and IP addresses for the serving certificate, for example of a load balancer; may
    /// be repeated. The certificate is reissued when they change.
    #[arg(long, value_name = "NAME|ADDRESS", value_delimiter = ',', value_parser = external_address::parse_alt_name)]
    pub tls_san: Vec<AltName>,
    /// URL of the server for clients if it differs from the listen address, for example https://NAME:PORT of a
    /// load balancer. It is written to admin.kubeconfig, and its name is added to the serving certificate.
    #[arg(long, value_name = "URL", value_parser = external_address::parse_external_url)]
    pub external_url: Option<ExternalUrl>,
    /// Address of this server in the endpoints of the Service default/kubernetes [default: the listen
    /// address, or the address of the default route if that is loopback or unspecified].
    #[arg(long, value_name = "ADDRESS")]
    pub advertise_address: Option<IpAddr>,
    /// Keep serving this long after SIGTERM while /readyz fails, so that load balancers stop sending requests; for
    /// example 10s.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = values::duration)]
    pub shutdown_delay_duration: Duration,
    /// Time that running requests have to complete after that.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = values::duration)]
    pub shutdown_grace: Duration,
    /// Feature gates, for example ClusterTrustBundleProjection=true,PodCertificateRequest=false.
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
    /// Replace the certificate authorities recorded in etcd, which all servers on it must share, by those of this
    /// server; for CA rotation.
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
    /// Name of this machine as a node; runs the node agent in this process, with its certificates in the data
    /// directory.
    #[arg(long, value_name = "NAME", value_parser = values::node_name, conflicts_with = "no_node")]
    #[arg(help_heading = "Node")]
    pub node_name: Option<String>,
    /// Host projections file; reloaded on change.
    #[arg(long, value_name = "FILE", requires = "node_name", help_heading = "Node")]
    pub projections: Option<PathBuf>,
    /// Disable the node agent.
    #[arg(long, help_heading = "Node")]
    pub no_node: bool,
}

const KEYS_HEADING: &str = "Certificates and keys";

#[derive(Debug, Args)]
pub struct ServerArgs {
    #[command(flatten)]
    pub serve: ServeArgs,
    /// Serving certificate followed by its intermediates (PEM); reloaded on change.
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_private_key_file",
        conflicts_with = "tls_san",
        help_heading = KEYS_HEADING
    )]
    pub tls_cert_file: Option<PathBuf>,
    /// Private key of --tls-cert-file (PEM); reloaded on change.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file", help_heading = KEYS_HEADING)]
    pub tls_private_key_file: Option<PathBuf>,
    /// CA certificates that verify client certificates (PEM); reloaded on change. The common name of a client
    /// certificate is the user, its organizations are the groups.
    #[arg(long, value_name = "FILE", help_heading = KEYS_HEADING)]
    pub client_ca_file: Option<PathBuf>,
    /// Key that verifies service-account tokens: public, private or in a certificate (PEM); may be repeated;
    /// reloaded on change [default: the key of --service-account-signing-key-file].
    #[arg(long, value_name = "FILE", requires = "service_account_signing_key_file")]
    #[arg(help_heading = KEYS_HEADING)]
    pub service_account_key_file: Vec<PathBuf>,
    /// Private key that signs service-account tokens (PEM).
    #[arg(long, value_name = "FILE", help_heading = KEYS_HEADING)]
    pub service_account_signing_key_file: Option<PathBuf>,
}

/// Subcommands of `windlass user`.
#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// Create a kubeconfig with a client certificate for a user.
    ///
    /// The certificate is signed by the client CA in the data directory, for the server of that
    /// directory, which may be running. Grant permissions by binding roles to the user or to a
    /// group. A certificate cannot be revoked before it expires.
    #[command(after_help = examples::USER_ADD)]
    Add(UserAddArgs),
}

/// Flags of `windlass user add`.
#[derive(Debug, Args)]
pub struct UserAddArgs {
    /// Name of the user: the common name of the certificate.
    #[arg(value_name = "NAME", value_parser = values::user_name)]
    pub name: String,
    /// Group of the user: an organization of the certificate; may be repeated.
    #[arg(long, value_name = "GROUP", value_parser = values::user_name)]
    pub group: Vec<String>,
    /// Lifetime such as 90d, 12h or 1d12h, or expiry date such as 2027-01-31.
    #[arg(long, value_name = "WHEN", default_value = "365d", value_parser = values::expiry)]
    pub expires: ExpiryTime,
    /// Kubeconfig to create; - is standard output. The file must not exist [default: NAME.kubeconfig].
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// URL of the server [default: as in the data directory's admin.kubeconfig].
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,
    /// CA certificate that verifies the server (PEM), for a server with --tls-cert-file [default: pki/ca.crt of the
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
    /// Verb: get, list, watch, create, update, patch, delete, approve, sign, …
    #[arg(value_name = "VERB")]
    pub verb: String,
    /// Resource such as pods, pods/status, csr or clustertrustbundles.certificates.k8s.io, or a path such as /metrics.
    #[arg(value_name = "RESOURCE")]
    pub resource: String,
    /// Name of the object [default: all objects].
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Namespace of the object [default: the namespace of the context].
    #[arg(long, short, value_name = "NAMESPACE", conflicts_with = "all_namespaces")]
    pub namespace: Option<String>,
    /// All namespaces.
    #[arg(long, short = 'A')]
    pub all_namespaces: bool,
    /// User to check, instead of the current one; requires permission to create subjectaccessreviews.
    #[arg(long = "as", value_name = "USER")]
    pub user: Option<String>,
    /// Group of that user; may be repeated.
    #[arg(long = "as-group", value_name = "GROUP", requires = "user")]
    pub groups: Vec<String>,
    #[command(flatten)]
    pub output: DocumentArgs,
    #[command(flatten)]
    pub server: ApiServerArgs,
}

#[cfg(test)]
mod tests;
