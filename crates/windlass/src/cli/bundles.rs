//! Flags about Bundles, with the names of trust-manager's flags.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use windlass_controllers::bundles::certificate_set::CertificateFilter;
use windlass_controllers::bundles::{BundleSettings, PackageFile, TRUST_NAMESPACE};

use super::requests::{ApiServerArgs, OutputArgs};
use super::values;

const STATUS_EXAMPLE: &str = "Examples:
  Show the sources, targets and problems of a Bundle:
    windlass bundle status my-org.com

  Show the target in one namespace, without permission to list all:
    windlass bundle status my-org.com -n shop

  Print all details as JSON:
    windlass bundle status my-org.com -o json";

/// Subcommands of `windlass bundle`.
#[derive(Debug, Subcommand)]
pub enum BundleCommand {
    /// Show the sources, certificates, targets and problems of a Bundle.
    ///
    /// The certificates are those in the targets. Each target is compared with the specification of
    /// the Bundle. Exits with 1 if there are problems.
    Status(BundleStatusArgs),
}

/// Flags of `windlass bundle status`.
#[derive(Debug, Args)]
#[command(after_help = STATUS_EXAMPLE)]
pub struct BundleStatusArgs {
    /// Name of the trust-manager Bundle to show.
    #[arg(value_name = "NAME", value_parser = values::bundle_name)]
    pub name: String,
    /// Namespace of the targets to check, besides the ClusterTrustBundle [default: all].
    #[arg(long, short, value_name = "NAMESPACE", value_parser = values::object_name)]
    pub namespace: Option<String>,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub server: ApiServerArgs,
}

/// Options of the Bundle controller.
#[derive(Debug, Args)]
#[command(next_help_heading = "Bundles")]
pub struct BundleSyncArgs {
    /// Namespace of the sources of Bundles.
    #[arg(long, value_name = "NAMESPACE", default_value = TRUST_NAMESPACE)]
    #[arg(value_parser = values::object_name)]
    pub trust_namespace: String,
    /// Default CA package (JSON, in trust-manager's format; see `windlass trust package`); reloaded on change
    /// [default: none].
    #[arg(long, value_name = "FILE")]
    pub default_package_location: Option<PathBuf>,
    /// Secrets as targets of Bundles.
    #[arg(long, value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set)]
    #[arg(num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub secret_targets_enabled: bool,
    /// Removal of expired certificates from Bundles.
    #[arg(long, value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set)]
    #[arg(num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub filter_expired_certificates: bool,
    /// Removal of non-CA certificates from Bundles.
    #[arg(long, value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set)]
    #[arg(num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub filter_non_ca_certs: bool,
    /// Target namespaces of Bundles [default: all].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = values::object_name)]
    pub target_namespaces: Vec<String>,
}

impl BundleSyncArgs {
    /// Settings of the controller. An invalid package is an error.
    pub fn settings(&self) -> Result<BundleSettings> {
        let package = self.default_package_location.clone().map(PackageFile::open).transpose();
        Ok(BundleSettings {
            trust_namespace: self.trust_namespace.clone(),
            package: package.context("--default-package-location")?,
            secret_targets: self.secret_targets_enabled,
            filters: CertificateFilter {
                expired: self.filter_expired_certificates,
                non_authorities: self.filter_non_ca_certs,
            },
            target_namespaces: self.target_namespaces.iter().cloned().collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, CliCommand};

    fn parse(flags: &str) -> Result<BundleSyncArgs, clap::Error> {
        let line = format!("windlass controllers --kubeconfig k {flags}");
        match Cli::try_parse_from(line.split_whitespace())?.command {
            CliCommand::Controllers(arguments) => Ok(arguments.bundles),
            _ => panic!("{flags}"),
        }
    }

    #[test]
    fn flags_are_read_as_trust_manager_reads_them() {
        let settings = parse("").unwrap().settings().unwrap();
        assert_eq!(settings.trust_namespace, "cert-manager");
        assert!(!settings.secret_targets && settings.package.is_none());
        assert_eq!(settings.filters, CertificateFilter::default());
        let flags = "--trust-namespace trust --secret-targets-enabled \
                     --filter-expired-certificates=true --filter-non-ca-certs=false \
                     --target-namespaces a,b";
        let settings = parse(flags).unwrap().settings().unwrap();
        assert_eq!(settings.trust_namespace, "trust");
        assert!(settings.secret_targets);
        assert_eq!(settings.filters, CertificateFilter { expired: true, non_authorities: false });
        assert_eq!(settings.target_namespaces.into_iter().collect::<Vec<_>>(), ["a", "b"]);
        let missing = parse("--default-package-location /nonexistent/p.json").unwrap();
        let error = missing.settings().map(drop).unwrap_err();
        assert!(format!("{error:#}").starts_with("--default-package-location: "), "{error:#}");
        assert!(parse("--target-namespaces A_B").is_err());
        let line = ["windlass", "bundle", "status", "roots", "-o", "wide"];
        let CliCommand::Bundle(BundleCommand::Status(status)) = Cli::try_parse_from(line).unwrap().command
        else {
            panic!("{line:?}");
        };
        assert_eq!(status.name, "roots");
        assert!(parse("--secret-targets-enabled=perhaps").is_err());
    }
}
