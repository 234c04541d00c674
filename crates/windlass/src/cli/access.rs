//! Flags for authentication, admission, limits and the audit log, with kube-apiserver's names and meanings.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};

use super::values::{self, AdmissionPlugin};

/// Authentication and admission.
#[derive(Debug, Args)]
#[command(next_help_heading = "Authentication and admission")]
pub struct AccessArgs {
    /// Anonymous access: requests without credentials run as system:anonymous, which may read health and
    /// version. If false, they are rejected.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    #[arg(num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub anonymous_auth: bool,
    /// Authentication with bootstrap tokens, which are Secrets in kube-system.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    #[arg(num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub enable_bootstrap_token_auth: bool,
    /// Issuer of service-account tokens; may be repeated: the first one issues, tokens of the others are
    /// accepted.
    #[arg(long, value_name = "URL", value_parser = values::issuer)]
    #[arg(default_value = "https://kubernetes.default.svc.cluster.local")]
    pub service_account_issuer: Vec<String>,
    /// Audiences of this server, one of which a service-account token must have [default: the issuers].
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub api_audiences: Vec<String>,
    /// URL of the service-account keys in the discovery document [default: derived from the issuer].
    #[arg(long, value_name = "URL")]
    pub service_account_jwks_uri: Option<String>,
    /// CA certificates that verify authenticating proxies, which pass the user in headers (PEM); reloaded on
    /// change. Without it such headers are ignored.
    #[arg(long, value_name = "FILE")]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// Allowed common names of proxy certificates [default: any].
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    #[arg(requires = "requestheader_client_ca_file")]
    pub requestheader_allowed_names: Vec<String>,
    /// Headers with the user name; the first one present is used.
    #[arg(long, value_name = "HEADER", value_delimiter = ',', default_value = "X-Remote-User")]
    pub requestheader_username_headers: Vec<String>,
    /// Headers with the user's UID; the first one present is used.
    #[arg(long, value_name = "HEADER", value_delimiter = ',', default_value = "X-Remote-Uid")]
    pub requestheader_uid_headers: Vec<String>,
    /// Headers with the user's groups.
    #[arg(long, value_name = "HEADER", value_delimiter = ',', default_value = "X-Remote-Group")]
    pub requestheader_group_headers: Vec<String>,
    /// Prefixes of headers with extra attributes of the user.
    #[arg(long, value_name = "PREFIX", value_delimiter = ',', default_value = "X-Remote-Extra-")]
    pub requestheader_extra_headers_prefix: Vec<String>,
    /// Admission plugins to disable: NodeRestriction, ServiceAccount.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub disable_admission_plugins: Vec<AdmissionPlugin>,
    /// Admission plugins to enable. All are enabled by default; accepted for compatibility.
    #[arg(long, value_name = "NAME", value_delimiter = ',', conflicts_with = "disable_admission_plugins")]
    pub enable_admission_plugins: Vec<AdmissionPlugin>,
}

/// Limits on concurrent requests.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Limits")]
pub struct InflightArgs {
    /// Maximum number of concurrent read requests. Further ones wait in a queue per user or are rejected with
    /// 429. Nodes and leader election have separate seats.
    #[arg(long, value_name = "NUMBER", default_value = "400")]
    pub max_requests_inflight: NonZeroUsize,
    /// Maximum number of concurrent write requests.
    #[arg(long, value_name = "NUMBER", default_value = "200")]
    pub max_mutating_requests_inflight: NonZeroUsize,
    /// Minimum duration of a watch in seconds, unless its timeoutSeconds is lower. The server ends a watch within
    /// twice this time.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 1800,
        value_parser = clap::value_parser!(u32).range(1..=86_400)
    )]
    pub min_request_timeout: u32,
}

/// Limits on connections.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Limits")]
pub struct ConnectionArgs {
    /// Maximum number of open connections. At the limit, a new connection evicts the oldest idle one that never
    /// authenticated [default: 32768, or fewer if the limit on open files requires it].
    #[arg(long, value_name = "NUMBER")]
    pub max_connections: Option<NonZeroUsize>,
    /// Maximum number of open connections per IPv4 address or IPv6 /64; a proxy counts as one address
    /// [default: three quarters of --max-connections].
    #[arg(long, value_name = "NUMBER")]
    pub max_connections_per_address: Option<NonZeroUsize>,
}

/// Audit log.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Audit")]
pub struct AuditArgs {
    /// Audit log file with one audit.k8s.io/v1 event per request; - is standard output
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
    /// Mode of audit logging.
    #[arg(long, value_enum, value_name = "MODE", default_value = "batch", requires = "audit_log_path")]
    pub audit_log_mode: AuditModeArg,
    /// Audit level of anonymous reads of health and version.
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "none", requires = "audit_log_path")]
    pub audit_anonymous_reads: AuditLevelArg,
}

/// Mode of audit logging.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AuditModeArg {
    /// Respond when the event is queued; wait if the queue is full.
    Batch,
    /// Respond after the attempt to write the event.
    Blocking,
    /// As blocking, and write an event before the request takes effect; reject the request if that fails.
    BlockingStrict,
}

/// Audit level of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AuditLevelArg {
    /// No audit event is written.
    None,
    /// All metadata, without request and response bodies.
    Metadata,
}
