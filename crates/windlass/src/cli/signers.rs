//! Flags of `windlass signer`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::requests::{ApiServerArgs, DocumentArgs, OutputArgs};
use super::values;

const LIST_EXAMPLE: &str = "Examples:
  windlass signer list
  windlass signer list -n shop
  windlass signer list -o wide --signers /etc/windlass/signers.yaml";

const SHOW_EXAMPLE: &str = "Examples:
  windlass signer show kubernetes.io/kubelet-serving
  windlass signer show example.com/server-tls --signers signers.yaml -o yaml";

const CHECK_EXAMPLE: &str = "Examples:
  Check files and the API server of the current context:
    windlass signer check

  Check a file without contacting a server:
    windlass signer check --files-only --signers signers.yaml";

/// Subcommands of `windlass signer`.
#[derive(Debug, Subcommand)]
pub enum SignerCommand {
    /// List built-in signers, custom signers and other signers with requests on the server.
    List(SignerListArgs),
    /// Check signers, their CAs and their pending requests.
    ///
    /// Writes nothing. Exits with 1 if there are errors; warnings do not count.
    Check(SignerCheckArgs),
    /// Show the signing policy of a signer.
    ///
    /// Shows permitted subjects, extensions, usages and lifetime, the CA bit, and the distribution of
    /// the trust anchor. Queries the server if the signer is neither built in nor in the file.
    Show(SignerShowArgs),
}

#[derive(Debug, Args)]
pub struct SignerSourceArgs {
    /// Custom signers file (YAML) [default: signers.yaml of the data directory, if it exists].
    #[arg(long, value_name = "FILE")]
    pub signers: Option<PathBuf>,
    /// Data directory of `windlass up` with the CAs of the built-in signers; only read [default: the default of
    /// `windlass up`, if it exists].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

/// Flags of `windlass signer list`.
#[derive(Debug, Args)]
#[command(after_help = LIST_EXAMPLE)]
pub struct SignerListArgs {
    #[command(flatten)]
    pub places: SignerSourceArgs,
    /// Namespace of the PodCertificateRequests [default: all].
    #[arg(long, short, value_name = "NAMESPACE", value_parser = values::object_name)]
    pub namespace: Option<String>,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub server: ApiServerArgs,
}

/// Flags of `windlass signer check`.
#[derive(Debug, Args)]
#[command(after_help = CHECK_EXAMPLE)]
pub struct SignerCheckArgs {
    #[command(flatten)]
    pub places: SignerSourceArgs,
    /// Check of files only, without contacting a server.
    #[arg(long, conflicts_with_all = ["kubeconfig", "context", "namespace"])]
    pub files_only: bool,
    /// Namespace of the PodCertificateRequests [default: all].
    #[arg(long, short, value_name = "NAMESPACE", value_parser = values::object_name)]
    pub namespace: Option<String>,
    #[command(flatten)]
    pub output: DocumentArgs,
    #[command(flatten)]
    pub server: ApiServerArgs,
}

/// Flags of `windlass signer show`.
#[derive(Debug, Args)]
#[command(after_help = SHOW_EXAMPLE)]
pub struct SignerShowArgs {
    /// Name of the signer, for example example.com/web.
    #[arg(value_name = "NAME")]
    pub name: String,
    #[command(flatten)]
    pub places: SignerSourceArgs,
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
            let words = ["windlass", "signer"].into_iter().chain(line.split_whitespace());
            match Cli::try_parse_from(words)?.command {
                CliCommand::Signer(command) => Ok(command),
                _ => panic!("{line}"),
            }
        };
        let Ok(SignerCommand::Show(show)) = parse("show a.b/c --signers f --data-dir d") else { panic!() };
        assert_eq!((show.name.as_str(), show.places.signers), ("a.b/c", Some("f".into())));
        assert!(matches!(parse("list -o wide -n shop --kubeconfig k"), Ok(SignerCommand::List(_))));
        assert!(matches!(parse("check"), Ok(SignerCommand::Check(_))));
        for line in ["", "show", "show a b", "check x", "list -o xml", "check -o name", "show a.b/c -n x"] {
            let error: clap::Error = parse(line).expect_err(line);
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }
}
