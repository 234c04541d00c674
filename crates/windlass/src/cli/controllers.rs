//! Flags of `windlass controllers`, with the names of kube-controller-manager's flags.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use windlass_controllers::csr_signer::{KubernetesSigner, SignerFiles};
use windlass_controllers::pkcs11::TokenModule;
use windlass_controllers::signers::{SIGNER_NAMESPACE, SignerSettings};
use windlass_controllers::{ControllerName, ControllerSelection, NodeMonitor};

use super::{ApiServerArgs, BundleSyncArgs, FeatureGate, values};

#[derive(Debug, Args)]
pub struct ControllersArgs {
    /// Kubeconfig of the API server.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: PathBuf,
    /// Context of the kubeconfig [default: its current context].
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// CA certificates that verify the API server (PEM), published in every namespace; reloaded on change
    /// [default: those of the kubeconfig if the server is Windlass, else none].
    #[arg(long, value_name = "FILE")]
    pub root_ca_file: Option<PathBuf>,
    /// DNS names and IP addresses of the API server, in addition to the host in the kubeconfig; requests for them are
    /// never approved by --approve-kubelet-serving.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub api_server_names: Vec<String>,
    /// Replaced in the help by `controllers_help`, which lists all controllers.
    #[arg(long, value_name = "LIST", default_value = "*", allow_hyphen_values = true)]
    #[arg(help = controllers_help())]
    pub controllers: ControllerSelection,
    /// Feature gates: ClusterTrustBundle, PodCertificateRequest.
    #[arg(long, value_name = "NAME=BOOL", value_delimiter = ',')]
    pub feature_gates: Vec<FeatureGate>,
    /// Loopback address and port to serve /metrics and /healthz on, without TLS.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = values::loopback)]
    pub metrics_listen: Option<SocketAddr>,
    #[command(flatten)]
    pub issuing: IssuingArgs,
    #[command(flatten)]
    pub signing: SigningArgs,
    #[command(flatten)]
    pub bundles: BundleSyncArgs,
    #[command(flatten)]
    pub nodes: NodeMonitorArgs,
    #[command(flatten)]
    pub election: ElectionArgs,
}

impl ControllersArgs {
    /// API server that the controllers work on.
    pub fn server(&self) -> ApiServerArgs {
        ApiServerArgs { kubeconfig: Some(self.kubeconfig.clone()), context: self.context.clone() }
    }
}

/// The help of `--controllers`, with all names.
fn controllers_help() -> String {
    let names = ControllerName::ALL.map(ControllerName::name).join(", ");
    format!("Controllers to run: * enables all, NAME enables one, -NAME disables one. Names: {names}")
}

/// Options that `controllers` and `up` share.
#[derive(Debug, Args)]
#[command(next_help_heading = "Signers")]
pub struct IssuingArgs {
    /// Custom signers file (YAML); reloaded on change [default: for `up`, signers.yaml of the data directory, if it
    /// exists].
    #[arg(long, value_name = "FILE")]
    pub signers: Option<PathBuf>,
    /// Namespace of the Secrets with the CAs of custom signers.
    #[arg(long, value_name = "NAMESPACE", default_value = SIGNER_NAMESPACE, value_parser = values::object_name)]
    pub signer_namespace: String,
    /// PKCS#11 library for CA keys of custom signers in tokens.
    #[arg(long, value_name = "FILE", requires = "pkcs11_pin_file")]
    pub pkcs11_module: Option<PathBuf>,
    /// File with the PIN of the tokens; read at every login.
    #[arg(long, value_name = "FILE", requires = "pkcs11_module")]
    pub pkcs11_pin_file: Option<PathBuf>,
    /// Approve kubelet-serving requests whose names all match the Node and are not reserved (names of the API
    /// server, loopback, link-local, wildcards).
    #[arg(long)]
    pub approve_kubelet_serving: bool,
    /// Maximum lifetime of certificates from built-in signers; requests can ask for less.
    #[arg(long, value_name = "DURATION", default_value = "8760h", value_parser = values::duration)]
    pub cluster_signing_duration: Duration,
    /// Time for which a replaced trust anchor stays published; for custom signers, after the last
    /// certificate issued under it has expired.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = values::duration)]
    pub ca_overlap: Duration,
    /// Maximum wait for the delivery of a custom signer's new trust anchor to nodes before the new CA signs;
    /// 0s disables the wait.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = values::duration)]
    pub ca_delivery_timeout: Duration,
}

impl IssuingArgs {
    /// Settings of custom signers. Without `--signers`, an existing or later `default_file` is used, if there is one.
    pub fn signer_settings(&self, default_file: Option<PathBuf>) -> anyhow::Result<SignerSettings> {
        let tokens = match (&self.pkcs11_module, &self.pkcs11_pin_file) {
            (Some(module), Some(pin_file)) => {
                let module = TokenModule::load(module, pin_file).map_err(anyhow::Error::msg);
                Some(Arc::new(module.context("--pkcs11-module")?))
            }
            _ => None,
        };
        Ok(SignerSettings {
            is_file_optional: self.signers.is_none(),
            file: self.signers.clone().or(default_file),
            namespace: self.signer_namespace.clone(),
            tokens,
        })
    }
}

/// Health checks of nodes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Node health")]
pub struct NodeMonitorArgs {
    /// Time without a renewal of its lease or status after which a node's Ready condition becomes
    /// Unknown.
    #[arg(long, value_name = "DURATION", default_value = "50s", value_parser = values::duration)]
    pub node_monitor_grace_period: Duration,
    /// Interval between checks of all nodes.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = values::duration)]
    pub node_monitor_period: Duration,
    /// Grace period of a node that has never reported.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = values::duration)]
    pub node_startup_grace_period: Duration,
}

impl NodeMonitorArgs {
    /// Settings of the node monitor; an error if they contradict each other.
    pub fn monitor(&self) -> Result<NodeMonitor, String> {
        let (period, grace) = (self.node_monitor_period, self.node_monitor_grace_period);
        if period.is_zero() || grace <= period {
            return Err(format!(
                "--node-monitor-grace-period {grace:?} must be greater than \
                 --node-monitor-period {period:?}, which must be greater than 0"
            ));
        }
        Ok(NodeMonitor { period, grace, startup_grace: self.node_startup_grace_period })
    }
}

/// Leader election among several processes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Leader election")]
pub struct ElectionArgs {
    /// Leader election: controllers run only while the process holds a lease.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    #[arg(num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub leader_elect: bool,
    /// Unique identity of this process in the lease [default: HOSTNAME_UUID].
    #[arg(long, value_name = "IDENTITY", value_parser = values::user_name)]
    pub leader_elect_identity: Option<String>,
    /// Time after the last observed renewal until another process can acquire the lease.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = values::duration)]
    pub leader_elect_lease_duration: Duration,
    /// Time after its last renewal until the leader stops.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = values::duration)]
    pub leader_elect_renew_deadline: Duration,
    /// Interval between attempts to acquire or renew the lease.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = values::duration)]
    pub leader_elect_retry_period: Duration,
    /// Name of the leader election lease.
    #[arg(long, value_name = "NAME", default_value = "windlass-controllers")]
    #[arg(value_parser = values::object_name)]
    pub leader_elect_resource_name: String,
    /// Namespace of the leader election lease.
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    #[arg(value_parser = values::object_name)]
    pub leader_elect_resource_namespace: String,
}

/// CAs of the built-in signers.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Signer CAs")]
pub struct SigningArgs {
    /// CA certificate of all built-in signers (PEM). Files of CAs are reloaded on change.
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_cert_file: Option<PathBuf>,
    /// Private key of --cluster-signing-cert-file (PEM).
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_key_file: Option<PathBuf>,
    /// CA certificate for the signer kubernetes.io/kubelet-serving (PEM).
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_kubelet_serving_cert_file: Option<PathBuf>,
    /// Private key of the CA for the signer kubernetes.io/kubelet-serving (PEM).
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_kubelet_serving_key_file: Option<PathBuf>,
    /// CA certificate for the signer kubernetes.io/kube-apiserver-client-kubelet (PEM).
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_kubelet_client_cert_file: Option<PathBuf>,
    /// Private key of the CA for the signer kubernetes.io/kube-apiserver-client-kubelet (PEM).
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_kubelet_client_key_file: Option<PathBuf>,
    /// CA certificate for the signer kubernetes.io/kube-apiserver-client (PEM).
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_kube_apiserver_client_cert_file: Option<PathBuf>,
    /// Private key of the CA for the signer kubernetes.io/kube-apiserver-client (PEM).
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_kube_apiserver_client_key_file: Option<PathBuf>,
    /// CA certificate for the signer kubernetes.io/legacy-unknown (PEM).
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_legacy_unknown_cert_file: Option<PathBuf>,
    /// Private key of the CA for the signer kubernetes.io/legacy-unknown (PEM).
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_legacy_unknown_key_file: Option<PathBuf>,
}

impl SigningArgs {
    /// Files of the signers that have a CA, by kube-controller-manager's rules.
    pub fn files(&self) -> Result<Vec<SignerFiles>, String> {
        let specific = self.specific();
        if specific.iter().all(|(_, _, certificate, key)| certificate.is_none() && key.is_none()) {
            return Ok(self.shared());
        }
        if self.cluster_signing_cert_file.is_some() || self.cluster_signing_key_file.is_some() {
            return Err("cannot specify --cluster-signing-{cert,key}-file and other \
                        --cluster-signing-*-file flags at the same time"
                .into());
        }
        let mut files = Vec::new();
        for (signer, flag, certificate, key) in specific {
            match (certificate, key) {
                (Some(certificate), Some(key)) => {
                    files.push(SignerFiles { signer, certificate: certificate.clone(), key: key.clone() })
                }
                (None, None) => tracing::info!(
                    signer = signer.name(),
                    "signer has no CA; its requests will not be signed"
                ),
                (None, Some(_)) => {
                    return Err(format!("--{flag}: cannot specify key without cert"));
                }
                (Some(_), None) => {
                    return Err(format!("--{flag}: cannot specify cert without key"));
                }
            }
        }
        Ok(files)
    }

    /// The CA that all signers share, if there is one. A certificate without its key, or the reverse, counts as none,
    /// as in kube-controller-manager.
    fn shared(&self) -> Vec<SignerFiles> {
        let (Some(certificate), Some(key)) =
            (&self.cluster_signing_cert_file, &self.cluster_signing_key_file)
        else {
            tracing::info!("built-in signers have no CA; their requests will not be signed");
            return Vec::new();
        };
        let with_shared_files =
            |signer| SignerFiles { signer, certificate: certificate.clone(), key: key.clone() };
        KubernetesSigner::ALL.map(with_shared_files).to_vec()
    }

    fn specific(&self) -> [(KubernetesSigner, &'static str, &Option<PathBuf>, &Option<PathBuf>); 4] {
        [
            (
                KubernetesSigner::KubeletServing,
                "cluster-signing-kubelet-serving",
                &self.cluster_signing_kubelet_serving_cert_file,
                &self.cluster_signing_kubelet_serving_key_file,
            ),
            (
                KubernetesSigner::KubeletClient,
                "cluster-signing-kubelet-client",
                &self.cluster_signing_kubelet_client_cert_file,
                &self.cluster_signing_kubelet_client_key_file,
            ),
            (
                KubernetesSigner::Client,
                "cluster-signing-kube-apiserver-client",
                &self.cluster_signing_kube_apiserver_client_cert_file,
                &self.cluster_signing_kube_apiserver_client_key_file,
            ),
            (
                KubernetesSigner::LegacyUnknown,
                "cluster-signing-legacy-unknown",
                &self.cluster_signing_legacy_unknown_cert_file,
                &self.cluster_signing_legacy_unknown_key_file,
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::cli::{Cli, CliCommand};

    use super::*;

    fn parse(flags: &str) -> Result<ControllersArgs, clap::Error> {
        let line = format!("windlass controllers --kubeconfig k {flags}");
        match Cli::try_parse_from(line.split_whitespace())?.command {
            CliCommand::Controllers(arguments) => Ok(*arguments),
            _ => panic!(),
        }
    }

    #[test]
    fn signers_have_one_ca_or_each_its_own() {
        const SERVING: &str = "--cluster-signing-kubelet-serving-";
        const SHARED: &str = "--cluster-signing-cert-file c --cluster-signing-key-file k";
        let specific = format!("{SERVING}cert-file sc {SERVING}key-file sk");
        let together = "cannot specify --cluster-signing-{cert,key}-file and other \
                        --cluster-signing-*-file flags at the same time";
        let flag = "--cluster-signing-kubelet-serving";
        let all = KubernetesSigner::ALL.as_slice();
        for (flags, wanted) in [
            (String::new(), Ok([].as_slice())),
            ("--cluster-signing-cert-file c".into(), Ok([].as_slice())),
            ("--cluster-signing-key-file k".into(), Ok([].as_slice())),
            (SHARED.into(), Ok(all)),
            (specific.clone(), Ok([KubernetesSigner::KubeletServing].as_slice())),
            (format!("{SHARED} {specific}"), Err(together.to_owned())),
            (format!("--cluster-signing-cert-file c {specific}"), Err(together.to_owned())),
            (format!("{SERVING}cert-file c"), Err(format!("{flag}: cannot specify cert without key"))),
            (format!("{SERVING}key-file k"), Err(format!("{flag}: cannot specify key without cert"))),
        ] {
            let found = parse(&flags).unwrap().signing.files();
            let found = found.map(|files| files.iter().map(|f| f.signer).collect::<Vec<_>>());
            assert_eq!(found, wanted.map(<[_]>::to_vec), "{flags}");
        }
        let found = parse(&specific).unwrap().signing.files().unwrap();
        assert_eq!((found[0].certificate.to_str(), found[0].key.to_str()), (Some("sc"), Some("sk")));
    }

    #[test]
    fn flags_are_read_as_kube_controller_manager_reads_them() {
        let defaults = parse("").unwrap();
        assert!(defaults.election.leader_elect && !defaults.issuing.approve_kubelet_serving);
        assert_eq!(defaults.election.leader_elect_lease_duration, Duration::from_secs(15));
        assert_eq!(defaults.issuing.cluster_signing_duration, Duration::from_secs(8760 * 3600));
        assert_eq!(defaults.issuing.ca_overlap, Duration::from_secs(3600));
        assert_eq!(defaults.nodes.monitor(), Ok(NodeMonitor::default()));
        for period in ["0s", "50s"] {
            let flags = format!("--node-monitor-period {period}");
            assert!(parse(&flags).unwrap().nodes.monitor().is_err(), "{flags}");
        }
        assert_eq!(defaults.issuing.ca_delivery_timeout, Duration::from_secs(300));
        let named = parse("--leader-elect-identity one").unwrap().election.leader_elect_identity;
        assert_eq!((defaults.election.leader_elect_identity, named), (None, Some("one".into())));
        for (flags, elect) in [("--leader-elect", true), ("--leader-elect=false", false)] {
            assert_eq!(parse(flags).unwrap().election.leader_elect, elect, "{flags}");
        }
        for flags in ["--controllers=*,-csrsigning", "--controllers -csrsigning,*"] {
            assert!(parse(flags).is_ok(), "{flags}");
        }
        for flags in [
            "--controllers=deployment",
            "--leader-elect=perhaps",
            "--leader-elect-resource-name A_B",
            "--leader-elect-identity=",
            "--metrics-listen 0.0.0.0:10257",
            "--ca-overlap soon",
            "--ca-delivery-timeout soon",
        ] {
            assert!(parse(flags).is_err(), "{flags}");
        }
    }
}
