//! Flags about who may call, what is checked, how much at a time, and what is written down; kube-apiserver's
//! names and meanings.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};

use super::values::{self, AdmissionPlugin};

/// Who may call, and what is checked before anything is written.
#[derive(Debug, Args)]
#[command(next_help_heading = "Access")]
pub struct AccessArgs {
    /// Whether requests without a credential are those of the user system:anonymous, who may read health
    /// and version; else they are refused.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    #[arg(num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub anonymous_auth: bool,
    /// Whether bootstrap tokens, which are secrets in kube-system, may be used to log in.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    #[arg(num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub enable_bootstrap_token_auth: bool,
    /// Who the service-account tokens say issued them. May be given several times: the first issues,
    /// tokens of the others are accepted too.
    #[arg(long, value_name = "URL", value_parser = values::issuer)]
    #[arg(default_value = "https://kubernetes.default.svc.cluster.local")]
    pub service_account_issuer: Vec<String>,
    /// Audiences of this server: service-account tokens must be for one of them [default: the issuers].
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub api_audiences: Vec<String>,
    /// Where the discovery document says the keys of service-account tokens are [default: under the issuer].
    #[arg(long, value_name = "URL")]
    pub service_account_jwks_uri: Option<String>,
    /// Authorities of proxies that say in headers who calls (PEM). Without it such headers mean nothing.
    /// Read again when it changes.
    #[arg(long, value_name = "FILE")]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// Common names that a proxy's certificate may have [default: any].
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    #[arg(requires = "requestheader_client_ca_file")]
    pub requestheader_allowed_names: Vec<String>,
    /// Headers with the user's name; the first that is there counts.
    #[arg(long, value_name = "HEADER", value_delimiter = ',', default_value = "X-Remote-User")]
    pub requestheader_username_headers: Vec<String>,
    /// Headers with the user's uid; the first that is there counts.
    #[arg(long, value_name = "HEADER", value_delimiter = ',', default_value = "X-Remote-Uid")]
    pub requestheader_uid_headers: Vec<String>,
    /// Headers with the user's groups.
    #[arg(long, value_name = "HEADER", value_delimiter = ',', default_value = "X-Remote-Group")]
    pub requestheader_group_headers: Vec<String>,
    /// What headers with more about the user begin with.
    #[arg(long, value_name = "PREFIX", value_delimiter = ',', default_value = "X-Remote-Extra-")]
    pub requestheader_extra_headers_prefix: Vec<String>,
    /// Checks on writes to leave out: NodeRestriction, ServiceAccount.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub disable_admission_plugins: Vec<AdmissionPlugin>,
    /// Checks on writes to make. All there are are made anyway, unless they are left out.
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        conflicts_with = "disable_admission_plugins"
    )]
    pub enable_admission_plugins: Vec<AdmissionPlugin>,
}

/// How much is worked on at a time.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Limits")]
pub struct InflightArgs {
    /// How many requests that read are worked on at a time; more wait, each user's in a queue of
    /// their own, or are told to come again. Nodes and leader leases have room besides.
    #[arg(long, value_name = "NUMBER", default_value = "400")]
    pub max_requests_inflight: NonZeroUsize,
    /// The same for requests that write.
    #[arg(long, value_name = "NUMBER", default_value = "200")]
    pub max_mutating_requests_inflight: NonZeroUsize,
    /// Least time in seconds before the server ends a watch, unless its timeoutSeconds is less. Every watch
    /// ends within twice this time.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 1800,
        value_parser = clap::value_parser!(u32).range(1..=86_400)
    )]
    pub min_request_timeout: u32,
}

/// How many connections are open at a time.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Limits")]
pub struct ConnectionArgs {
    /// Connections open at a time. At the limit, the oldest idle connection that was never authenticated
    /// makes room for a new one [default: 32768, or what the limit on open files allows].
    #[arg(long, value_name = "NUMBER")]
    pub max_connections: Option<NonZeroUsize>,
    /// Connections open at a time from one address, or one /64 of IPv6. A proxy is one address
    /// [default: three quarters of --max-connections].
    #[arg(long, value_name = "NUMBER")]
    pub max_connections_per_address: Option<NonZeroUsize>,
}

/// Where requests are written down.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Audit")]
pub struct AuditArgs {
    /// Audit log: a file with one audit.k8s.io/v1 event for every request; - is standard output
    /// [default: no audit log].
    #[arg(long, value_name = "FILE")]
    pub audit_log_path: Option<PathBuf>,
    /// Size in megabytes at which the audit log is rotated.
    #[arg(long, value_name = "MEGABYTES", default_value_t = 100, requires = "audit_log_path")]
    pub audit_log_maxsize: u64,
    /// Number of rotated files to keep; 0 keeps all, which lets the audit log fill the disk.
    #[arg(long, value_name = "NUMBER", default_value_t = 10, requires = "audit_log_path")]
    pub audit_log_maxbackup: usize,
    /// Days to keep rotated files; 0 sets no limit.
    #[arg(long, value_name = "DAYS", default_value_t = 0, requires = "audit_log_path")]
    pub audit_log_maxage: u32,
    /// How requests depend on their audit events.
    #[arg(
        long,
        value_enum,
        value_name = "MODE",
        default_value = "batch",
        requires = "audit_log_path"
    )]
    pub audit_log_mode: AuditModeArg,
    /// Audit level of permitted reads of health and version without a credential.
    #[arg(
        long,
        value_enum,
        value_name = "LEVEL",
        default_value = "none",
        requires = "audit_log_path"
    )]
    pub audit_anonymous_reads: AuditLevelArg,
}

/// How requests depend on their audit events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AuditModeArg {
    /// Answer when the event is queued; wait if the queue is full.
    Batch,
    /// Answer when the event is written, or could not be.
    Blocking,
    /// Also write an event before the request has any effect, and reject the request if that fails.
    BlockingStrict,
}

/// What is logged of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AuditLevelArg {
    /// No audit event is written.
    None,
    /// All metadata, without request and response bodies.
    Metadata,
}
