//! Flags of `windlass node`, with the names of kubelet's flags.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::requests::OutputArgs;
use super::values::{self, FeatureGate};

const EXAMPLE: &str = "Examples:
  Join this machine as a node with a bootstrap kubeconfig from `windlass token create`:
    windlass node --bootstrap-kubeconfig bootstrap.kubeconfig --kubeconfig node/kubeconfig --cert-dir node/pki

  Also obtain a serving certificate and serve health and metrics with it:
    windlass node --kubeconfig node/kubeconfig --cert-dir node/pki --rotate-server-certificates --listen 0.0.0.0:10250

  Deliver trust anchors and certificates to services of this machine, which runs no pods:
    windlass node --kubeconfig node/kubeconfig --cert-dir node/pki --projections projections.yaml

  Show the state of the agent:
    windlass node status --cert-dir node/pki";

const STATUS_EXAMPLE: &str = "Examples:
  windlass node status --cert-dir windlass-node/pki
  windlass node status --cert-dir windlass-node/pki -o json";

/// Flags of `windlass node`, or one of its subcommands.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = EXAMPLE)]
pub struct NodeArgs {
    #[command(subcommand)]
    pub command: Option<NodeCommand>,
    #[command(flatten)]
    pub run: Option<NodeRunArgs>,
}

/// Subcommands of `windlass node`.
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// Show the certificates, pending requests and volumes of this machine's node agent.
    ///
    /// Exits with 1 if the agent is not running, or if the node has no valid client certificate.
    Status(NodeStatusArgs),
}

/// Flags of `windlass node` itself.
#[derive(Debug, Args)]
pub struct NodeRunArgs {
    /// Kubeconfig of the API server; created from --bootstrap-kubeconfig if it is missing or its certificate
    /// has expired.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: PathBuf,
    /// Kubeconfig with bootstrap credentials, for example a bootstrap token.
    #[arg(long, value_name = "FILE")]
    pub bootstrap_kubeconfig: Option<PathBuf>,
    /// Directory for certificates and keys; created if missing.
    #[arg(long, value_name = "DIR")]
    pub cert_dir: PathBuf,
    /// Directory for all other state [default: the parent of --cert-dir].
    #[arg(long, value_name = "DIR")]
    pub root_dir: Option<PathBuf>,
    /// Name of the node [default: the host name].
    #[arg(long, value_name = "NAME", value_parser = node_name)]
    pub node_name: Option<String>,
    /// IP address of the node; may be repeated [default: the source address of the connection to the server].
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', value_parser = parse_node_address)]
    pub node_ip: Vec<IpAddr>,
    /// Request and renew a serving certificate. An approver must approve each request, unless the controllers
    /// run with --approve-kubelet-serving.
    #[arg(long)]
    pub rotate_server_certificates: bool,
    /// Address and port to serve /healthz, /readyz and /metrics on with the serving certificate.
    #[arg(long, value_name = "ADDRESS:PORT", requires = "rotate_server_certificates")]
    #[arg(value_parser = values::listen_address)]
    pub listen: Option<SocketAddr>,
    /// Loopback address and port to serve /healthz, /readyz and /metrics on, without TLS.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = values::loopback)]
    pub metrics_listen: Option<SocketAddr>,
    /// Host projections file; reloaded on change.
    #[arg(long, value_name = "FILE")]
    pub projections: Option<PathBuf>,
    /// Feature gates: ClusterTrustBundleProjection, PodCertificateRequest.
    #[arg(long, value_name = "NAME=BOOL", value_delimiter = ',')]
    pub feature_gates: Vec<FeatureGate>,
}

/// Flags of `windlass node status`.
#[derive(Debug, Args)]
#[command(after_help = STATUS_EXAMPLE)]
pub struct NodeStatusArgs {
    /// Certificate directory of the agent (its --cert-dir).
    #[arg(long, value_name = "DIR")]
    pub cert_dir: PathBuf,
    /// State directory of the agent (its --root-dir), if set.
    #[arg(long, value_name = "DIR")]
    pub root_dir: Option<PathBuf>,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// A machine may have capitals in its name; a node may not.
fn node_name(text: &str) -> Result<String, &'static str> {
    values::node_name(&text.trim().to_lowercase())
}

fn parse_node_address(text: &str) -> Result<IpAddr, &'static str> {
    match text.parse::<IpAddr>() {
        Ok(address) if address.is_unspecified() || address.is_multicast() => Err("must be a unicast address"),
        Ok(address) => Ok(address),
        Err(_) => Err("must be an IP address such as 192.0.2.7 or 2001:db8::7"),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, CliCommand};

    fn parse(flags: &str) -> Result<NodeArgs, clap::Error> {
        let line = format!("windlass node {flags}");
        match Cli::try_parse_from(line.split_whitespace())?.command {
            CliCommand::Node(arguments) => Ok(*arguments),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn node_runs_the_agent_or_a_subcommand() {
        let node =
            parse("--kubeconfig k --cert-dir d --node-name N1.Example --node-ip 192.0.2.7,2001:db8::7");
        let node = node.unwrap();
        assert!(node.command.is_none());
        let run = node.run.unwrap();
        assert_eq!(run.node_name.as_deref(), Some("n1.example"));
        assert_eq!(run.node_ip.len(), 2);
        assert!(run.bootstrap_kubeconfig.is_none() && !run.rotate_server_certificates);
        let status = parse("status --cert-dir d -o json").unwrap();
        assert!(matches!(status.command, Some(NodeCommand::Status(_))) && status.run.is_none());
    }

    #[test]
    fn invalid_flag_combinations_are_rejected() {
        for flags in [
            "",
            "--kubeconfig k",
            "--cert-dir d",
            "status",
            "--kubeconfig k --cert-dir d status --cert-dir d",
            "--kubeconfig k --cert-dir d --node-name a_b",
            "--kubeconfig k --cert-dir d --node-ip 0.0.0.0",
            "--kubeconfig k --cert-dir d --node-ip here",
            "--kubeconfig k --cert-dir d --listen 0.0.0.0:10250",
            "--kubeconfig k --cert-dir d --metrics-listen 0.0.0.0:10255",
        ] {
            assert!(parse(flags).is_err(), "{flags}");
        }
    }
}
