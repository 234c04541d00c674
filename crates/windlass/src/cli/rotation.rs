//! Flags of `windlass rotate`.

use std::time::Duration;

use clap::{Args, Subcommand};
use windlass_api::ca_rotation::RESOURCE;

use super::requests::{ApiServerArgs, DocumentArgs, OutputArgs, ResultArgs};
use super::values::{self, ExpiryTime};

const PLAN_EXAMPLE: &str = "\
Examples:
  windlass rotate plan example.com/web
  windlass rotate plan example.com/web -o json";

const START_EXAMPLE: &str = "\
Examples:
  Rotate the CA of a signer, and wait until it is done:
    windlass rotate start example.com/web --wait

  Keep the old CA trusted until a date:
    windlass rotate start example.com/web --retire-not-before 2027-01-31

  Replace a CA whose key has leaked:
    windlass rotate start example.com/web --compromised";

const STATUS_EXAMPLE: &str = "\
Examples:
  windlass rotate status
  windlass rotate status example.com/web --watch
  windlass rotate status web.example.com-x7k2p -o json";

const PAUSE_EXAMPLE: &str = "\
Examples:
  windlass rotate pause example.com/web";

const RESUME_EXAMPLE: &str = "\
Examples:
  windlass rotate resume example.com/web";

const ROLLBACK_EXAMPLE: &str = "\
Examples:
  windlass rotate rollback example.com/web";

const RETIRE_EXAMPLE: &str = "\
Examples:
  Retire the old CA as soon as no certificate depends on it, even before the time that start was given:
    windlass rotate retire example.com/web

  Retire it now, although certificates that depend on it break:
    windlass rotate retire example.com/web --accept-outstanding";

const EXCLUDE_EXAMPLE: &str = "\
Examples:
  windlass rotate exclude example.com/web n7 n8";

const ACCEPT_EXAMPLE: &str = "\
Examples:
  windlass rotate accept example.com/web node/n3/host/nginx node/n4/shop/web-0/trust";

/// Longest name of a consumer, in bytes.
const MAX_CONSUMER_BYTES: usize = 1024;

/// Subcommands of `windlass rotate`.
#[derive(Debug, Subcommand)]
pub enum RotateCommand {
    /// Show what a rotation would do and what would hold it, without changing anything.
    ///
    /// Lists the consumers of the signer's trust anchors, the certificates that depend on its CA, and the
    /// time until the old CA can be retired.
    Plan(RotatePlanArgs),
    /// Start to replace the CA of a signer.
    ///
    /// Creates a CARotation. Requires permission to create carotations and the verbs `sign` and `attest` on
    /// the signer. With --wait, exits with 0 when the rotation has completed, with 1 if it failed or was
    /// rolled back, and with 2 if it was held for longer than the timeout.
    Start(Box<RotateStartArgs>),
    /// Show the phases, the progress and the laggards of rotations.
    Status(RotateStatusArgs),
    /// Pause a rotation before its next step.
    Pause(RotatePauseArgs),
    /// Resume a paused rotation.
    Resume(RotateResumeArgs),
    /// Return to the old CA; cannot be undone.
    Rollback(RotateRollbackArgs),
    /// Retire the old CA as soon as possible.
    Retire(RotateRetireArgs),
    /// Exclude nodes that are gone for good.
    Exclude(RotateExcludeArgs),
    /// Accept that consumers have not read the new trust anchors.
    Accept(RotateAcceptArgs),
}

/// Flags of `windlass rotate plan`.
#[derive(Debug, Args)]
#[command(after_help = PLAN_EXAMPLE)]
pub struct RotatePlanArgs {
    /// Signer whose CA would be replaced.
    #[arg(value_name = "SIGNER", value_parser = values::signer_name)]
    pub signer: String,
    #[command(flatten)]
    pub output: DocumentArgs,
    #[command(flatten)]
    pub server: ApiServerArgs,
}

/// Flags of `windlass rotate start`.
#[derive(Debug, Args)]
#[command(after_help = START_EXAMPLE)]
pub struct RotateStartArgs {
    /// Signer whose CA is replaced.
    #[arg(value_name = "SIGNER", value_parser = values::signer_name)]
    pub signer: String,
    /// Emergency: the old CA is not to be trusted. Its certificates are renewed at once and revoked, and
    /// it is retired without waiting for them.
    #[arg(long)]
    pub compromised: bool,
    /// No wait for consumers that have not read the new trust anchors.
    #[arg(long)]
    pub no_require_read: bool,
    /// How long the canary runs without a failure [default: 10m].
    #[arg(long, value_name = "DURATION", value_parser = go_duration)]
    pub canary_soak: Option<String>,
    /// Time over which agents spread the renewal of certificates [default: 10m].
    #[arg(long, value_name = "DURATION", value_parser = go_duration)]
    pub renewal_window: Option<String>,
    /// Earliest time at which the old CA is retired: a time, a date or a duration such as 30d
    /// [default: when no certificate depends on it].
    #[arg(long, value_name = "TIME", value_parser = values::expiry)]
    pub retire_not_before: Option<ExpiryTime>,
    /// Wait until the rotation has ended.
    #[arg(long)]
    pub wait: bool,
    /// With --wait, time for which the rotation may be held; 0 disables it.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = values::duration)]
    #[arg(requires = "wait")]
    pub timeout: Duration,
    /// No confirmation of --compromised; required where standard input is not a terminal.
    #[arg(long, short)]
    pub yes: bool,
    #[command(flatten)]
    pub output: ResultArgs,
    #[command(flatten)]
    pub server: ApiServerArgs,
}

/// Flags of `windlass rotate status`.
#[derive(Debug, Args)]
#[command(after_help = STATUS_EXAMPLE)]
pub struct RotateStatusArgs {
    /// Signer or name of the rotation [default: all].
    #[arg(value_name = "SIGNER|NAME", value_parser = rotation_target)]
    pub target: Option<RotationTarget>,
    /// Show changes until the rotation has ended, or forever if none is named.
    #[arg(long, short)]
    pub watch: bool,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub server: ApiServerArgs,
}

/// Rotation that a command changes.
#[derive(Debug, Args)]
pub struct RotationChangeArgs {
    /// Signer or name of the running rotation.
    #[arg(value_name = "SIGNER|NAME", value_parser = rotation_target)]
    pub target: RotationTarget,
    #[command(flatten)]
    pub output: ResultArgs,
    #[command(flatten)]
    pub server: ApiServerArgs,
}

/// Flags of `windlass rotate pause`.
#[derive(Debug, Args)]
#[command(after_help = PAUSE_EXAMPLE)]
pub struct RotatePauseArgs {
    #[command(flatten)]
    pub change: RotationChangeArgs,
}

/// Flags of `windlass rotate resume`.
#[derive(Debug, Args)]
#[command(after_help = RESUME_EXAMPLE)]
pub struct RotateResumeArgs {
    #[command(flatten)]
    pub change: RotationChangeArgs,
}

/// Flags of `windlass rotate rollback`.
#[derive(Debug, Args)]
#[command(after_help = ROLLBACK_EXAMPLE)]
pub struct RotateRollbackArgs {
    #[command(flatten)]
    pub change: RotationChangeArgs,
}

/// Flags of `windlass rotate retire`.
#[derive(Debug, Args)]
#[command(after_help = RETIRE_EXAMPLE)]
pub struct RotateRetireArgs {
    #[command(flatten)]
    pub change: RotationChangeArgs,
    /// Retirement although certificates depend on the old CA; they stop working.
    #[arg(long)]
    pub accept_outstanding: bool,
    /// No confirmation of --accept-outstanding; required where standard input is not a terminal.
    #[arg(long, short, requires = "accept_outstanding")]
    pub yes: bool,
}

/// Flags of `windlass rotate exclude`.
#[derive(Debug, Args)]
#[command(after_help = EXCLUDE_EXAMPLE)]
pub struct RotateExcludeArgs {
    #[command(flatten)]
    pub change: RotationChangeArgs,
    /// Nodes that the rotation no longer waits for.
    #[arg(value_name = "NODE", value_parser = node, required = true)]
    pub nodes: Vec<String>,
}

/// Flags of `windlass rotate accept`.
#[derive(Debug, Args)]
#[command(after_help = ACCEPT_EXAMPLE)]
pub struct RotateAcceptArgs {
    #[command(flatten)]
    pub change: RotationChangeArgs,
    /// Consumers that the rotation no longer waits for to read, as `windlass rotate status` names them.
    #[arg(value_name = "CONSUMER", value_parser = consumer, required = true)]
    pub consumers: Vec<String>,
}

/// A rotation as a user names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RotationTarget {
    /// Name of the CARotation.
    Name(String),
    /// Name of the signer; one of its rotations is meant.
    Signer(String),
}

/// Reads `NAME` or `carotation.windlass.dev/NAME`, and everything else with a slash as a signer.
fn rotation_target(text: &str) -> Result<RotationTarget, String> {
    let kinds: Vec<&str> = [RESOURCE.singular, RESOURCE.plural]
        .into_iter()
        .chain(RESOURCE.short_names.iter().copied())
        .collect();
    if let Ok(name) = values::reference(text, &kinds, RESOURCE.group) {
        let name = values::object_name(&name)?;
        return Ok(RotationTarget::Name(name));
    }
    match values::signer_name(text) {
        Ok(signer) => Ok(RotationTarget::Signer(signer)),
        Err(_) => Err("must be a signer such as example.com/web, or the name of a rotation".into()),
    }
}

fn go_duration(text: &str) -> Result<String, String> {
    match values::duration(text) {
        Ok(duration) if duration.is_zero() => Err("must be greater than 0".into()),
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn node(text: &str) -> Result<String, String> {
    let name = values::reference(text, &["node", "nodes"], "")?;
    values::node_name(&name).map_err(str::to_owned)
}

fn consumer(text: &str) -> Result<String, &'static str> {
    const FORM: &str = "must be node/NODE/VOLUME or bundle/NAME, as windlass rotate status prints it";
    let is_complete = match text.split_once('/') {
        Some(("node", rest)) => rest.split_once('/').is_some_and(|(node, volume)| {
            values::node_name(node).is_ok() && !volume.is_empty() && !volume.starts_with('/')
        }),
        Some(("bundle", name)) => !name.is_empty() && !name.contains('/'),
        _ => false,
    };
    let is_clean = text.len() <= MAX_CONSUMER_BYTES && !text.chars().any(char::is_control);
    if is_complete && is_clean { Ok(text.to_owned()) } else { Err(FORM) }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, CliCommand};

    fn parse(line: &str) -> Result<RotateCommand, clap::Error> {
        let words = ["windlass", "rotate"].into_iter().chain(line.split_whitespace());
        match Cli::try_parse_from(words)?.command {
            CliCommand::Rotate(command) => Ok(command),
            _ => panic!("{line}"),
        }
    }

    #[test]
    fn rotations_are_named_by_signer_or_by_object() {
        let name = |name: &str| Some(RotationTarget::Name(name.to_owned()));
        for (text, wanted) in [
            ("example.com/web", Some(RotationTarget::Signer("example.com/web".into()))),
            ("web.example.com-x7k2p", name("web.example.com-x7k2p")),
            ("carotation.windlass.dev/a", name("a")),
            ("carotations/a", name("a")),
            ("car/a", name("a")),
            ("carotation.example.com/a", Some(RotationTarget::Signer("carotation.example.com/a".into()))),
            ("A", None),
            ("secret/a", None),
            ("", None),
        ] {
            assert_eq!(rotation_target(text).ok(), wanted, "{text}");
        }
    }

    #[test]
    fn flags_are_read() {
        let line = "start example.com/web --no-require-read --canary-soak 5m --renewal-window 1h30m \
                    --retire-not-before 30d --wait --timeout 10s -o name";
        let Ok(RotateCommand::Start(start)) = parse(line) else { panic!() };
        assert_eq!(
            (start.canary_soak.as_deref(), start.renewal_window.as_deref()),
            (Some("5m"), Some("1h30m"))
        );
        let days = ExpiryTime::After(Duration::from_secs(30 * 24 * 60 * 60));
        assert_eq!((start.retire_not_before, start.timeout), (Some(days), Duration::from_secs(10)));
        let Ok(RotateCommand::Exclude(exclude)) = parse("exclude a.b/c node/n1 n2") else { panic!() };
        assert_eq!(exclude.nodes, ["n1", "n2"]);
        let line = "accept x node/n3/host/nginx node/n4/shop/web-0/trust bundle/roots";
        let Ok(RotateCommand::Accept(accept)) = parse(line) else { panic!() };
        assert_eq!(accept.consumers.len(), 3);
        assert!(matches!(parse("status"), Ok(RotateCommand::Status(status)) if status.target.is_none()));
        assert!(matches!(parse("retire x --accept-outstanding -y"), Ok(RotateCommand::Retire(_))));
    }

    #[test]
    fn refuses_flags_without_meaning() {
        for line in [
            "",
            "plan",
            "plan web",
            "start",
            "start web",
            "start a.b/c --timeout 5m",
            "start a.b/c --canary-soak 0s",
            "start a.b/c --renewal-window 5d",
            "start a.b/c -o wide",
            "pause",
            "pause a.b/c b",
            "retire a.b/c --yes",
            "exclude a.b/c",
            "exclude a.b/c pod/x",
            "exclude a.b/c N1",
            "accept a.b/c",
            "accept a.b/c host/nginx",
            "accept a.b/c node/n1",
            "accept a.b/c node/n1/",
            "accept a.b/c bundle/",
            "accept a.b/c bundle/a/b",
        ] {
            assert_eq!(parse(line).expect_err(line).exit_code(), 2, "{line}");
        }
    }
}
