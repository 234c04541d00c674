//! Flags of `windlass trust`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use windlass_controllers::bundles::package::SYSTEM_STORE;

use super::requests::{ApiServerArgs, OutputArgs};
use super::values;

const STATUS_EXAMPLE: &str = "Examples:
  Show all bundles:
    windlass trust status

  Show the nodes that a bundle has not reached, and the reasons:
    windlass trust status example.com:web:v2

  Wait until all nodes have a bundle, for example before signing with its CA:
    windlass trust status example.com:web:v2 --wait --timeout 10m && ...

  Wait until no node has a bundle any more:
    windlass trust status example.com:web:v1 --gone --wait";

const PACKAGE_EXAMPLE: &str = "Examples:
  windlass trust package > package.json
  windlass up --default-package-location package.json";

/// Subcommands of `windlass trust`.
#[derive(Debug, Subcommand)]
pub enum TrustCommand {
    /// Show the delivery of trust bundles to the volumes of nodes.
    ///
    /// Nodes report the contents of their volumes by digest. A node should have a bundle if one of its
    /// volumes selects it, and has it if all of these contain it. Blocked, stale and silent nodes
    /// count as not having it. Exits with 1 if a node lacks a bundle that it should have.
    Status(TrustStatusArgs),
    /// Print the CAs that this machine trusts as the default package of Bundles.
    ///
    /// The output is JSON in trust-manager's format, for --default-package-location of `windlass up`
    /// and `windlass controllers`.
    Package(TrustPackageArgs),
}

/// Flags of `windlass trust package`.
#[derive(Debug, Args)]
#[command(after_help = PACKAGE_EXAMPLE)]
pub struct TrustPackageArgs {
    /// PEM file with the certificates to package.
    #[arg(long, value_name = "FILE", default_value = SYSTEM_STORE)]
    pub from: PathBuf,
    /// Name of the package.
    #[arg(long, value_name = "NAME", default_value = "system")]
    pub name: String,
    /// Version of the package [default: the date of the file's last change].
    #[arg(long, value_name = "VERSION")]
    pub edition: Option<String>,
}

/// Flags of `windlass trust status`.
#[derive(Debug, Args)]
#[command(after_help = STATUS_EXAMPLE)]
pub struct TrustStatusArgs {
    /// Name of a ClusterTrustBundle [default: all].
    #[arg(value_name = "BUNDLE", value_parser = values::trust_bundle_name)]
    pub bundle: Option<String>,
    /// Signer whose bundles are shown [default: all].
    #[arg(long, value_name = "SIGNER", value_parser = values::signer_name)]
    #[arg(conflicts_with = "bundle")]
    pub signer: Option<String>,
    /// Check that no node has the bundle any more, whether or not the object exists.
    #[arg(long, requires = "bundle")]
    pub gone: bool,
    /// Wait until all nodes have the bundles that they should have; with a name, at least one node must select
    /// the bundle.
    #[arg(long)]
    pub wait: bool,
    /// Timeout of --wait; 0 disables it.
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
        for line in ["", "status a b", "status a --signer b.c/d", "status --gone", "status --timeout 5m"] {
            let error: clap::Error = parse(line).expect_err(line);
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }
}
