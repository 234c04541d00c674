//! Flags of `windlass trust`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use windlass_controllers::bundles::package::SYSTEM_STORE;

use super::requests::{ApiServerArgs, OutputArgs};
use super::values;

const STATUS_EXAMPLE: &str = "\
Examples:
  All bundles:
    windlass trust status

  Which nodes do not have a bundle yet, and why:
    windlass trust status example.com:web:v2

  Go on when all nodes have it, for example to begin to sign with its CA:
    windlass trust status example.com:web:v2 --wait --timeout 10m && ...

  Go on when no node has it any more:
    windlass trust status example.com:web:v1 --gone --wait";

const PACKAGE_EXAMPLE: &str = "\
Examples:
  windlass trust package > package.json
  windlass up --default-package-location package.json";

/// What can be asked about trust.
#[derive(Debug, Subcommand)]
pub enum TrustCommand {
    /// Show how many nodes have each trust bundle in their volumes, or which do not have one of them.
    /// Exits with 1 if a node does not have what it should have.
    ///
    /// Nodes report what is in their volumes, by digest. A node should have a bundle if one of its volumes
    /// selects it, and has it if all of those do. A node that is blocked, stale or silent does not have it.
    Status(TrustStatusArgs),
    /// Print whom this machine trusts, as the default package of Bundles.
    ///
    /// It is JSON, as trust-manager's: see --default-package-location of up and controllers.
    Package(TrustPackageArgs),
}

/// Flags of `windlass trust package`.
#[derive(Debug, Args)]
#[command(after_help = PACKAGE_EXAMPLE)]
pub struct TrustPackageArgs {
    /// PEM file with the certificates to package.
    #[arg(long, value_name = "FILE", default_value = SYSTEM_STORE)]
    pub from: PathBuf,
    /// What the package is called.
    #[arg(long, value_name = "NAME", default_value = "system")]
    pub name: String,
    /// Which edition it is [default: the day on which the file was last changed].
    #[arg(long, value_name = "VERSION")]
    pub edition: Option<String>,
}

/// Flags of `windlass trust status`.
#[derive(Debug, Args)]
#[command(after_help = STATUS_EXAMPLE)]
pub struct TrustStatusArgs {
    /// The bundle: a ClusterTrustBundle [default: all].
    #[arg(value_name = "BUNDLE", value_parser = values::trust_bundle_name)]
    pub bundle: Option<String>,
    /// Only bundles of this signer.
    #[arg(long, value_name = "SIGNER", value_parser = values::signer_name)]
    #[arg(conflicts_with = "bundle")]
    pub signer: Option<String>,
    /// Ask whether no node has the bundle any more, whether or not it is still there.
    #[arg(long, requires = "bundle")]
    pub gone: bool,
    /// Wait until it is so; for a bundle by name, until at least one node asks for it, too.
    #[arg(long)]
    pub wait: bool,
    /// How long to wait; 0 for as long as it takes.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = values::duration)]
    #[arg(requires = "wait")]
    pub timeout: Duration,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub server: ApiServerArgs,
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, CliCommand};

    #[test]
    fn flags_are_read() {
        let parse = |line: &str| {
            let words = ["windlass", "trust"].into_iter().chain(line.split_whitespace());
            match Cli::try_parse_from(words)?.command {
                CliCommand::Trust(TrustCommand::Status(status)) => Ok(status),
                _ => panic!("{line}"),
            }
        };
        let status = parse("status a:b:c --wait --timeout 10m -o json").unwrap();
        assert_eq!(status.bundle.as_deref(), Some("a:b:c"));
        assert_eq!((status.wait, status.timeout), (true, Duration::from_secs(600)));
        let status = parse("status --signer example.com/a").unwrap();
        assert_eq!((status.wait, status.timeout), (false, Duration::from_secs(300)));
        assert!(parse("status a --gone").unwrap().gone);
        for line in
            ["", "status a b", "status a --signer b.c/d", "status --gone", "status --timeout 5m"]
        {
            let error: clap::Error = parse(line).expect_err(line);
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }
}
