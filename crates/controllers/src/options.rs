//! Options of the controllers.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;
use windlass_runtime::metrics::MetricsRegistry;

use crate::bundles;
use crate::csr_signer::BuiltInSigner;
use crate::election::LeaderElection;
use crate::node_lifecycle::NodeMonitor;
use crate::publisher::RootCa;
use crate::signers::{CustomSigner, SignerSettings};

/// Returns the current time.
pub type Clock = Arc<dyn Fn() -> OffsetDateTime + Send + Sync>;

/// Options of [`run`](crate::run).
pub struct ControllerOptions {
    /// Returns the current time.
    pub clock: Clock,
    /// Whether to run the controllers that every cluster needs once: garbage collection, namespaces, default service
    /// accounts, aggregated roles, node health, events on unscheduled pods. A cluster with a kube-controller-manager
    /// has them.
    pub housekeeping: bool,
    /// Approve kubelet-serving requests whose names all match the Node.
    pub approve_kubelet_serving: bool,
    /// Names and addresses of the API server, for which no kubelet-serving certificate is approved.
    pub api_server_names: Vec<String>,
    /// Built-in signers that have a CA.
    pub built_in: Vec<BuiltInSigner>,
    /// Whether the CA of kubelet-serving certificates is published as a ClusterTrustBundle.
    pub publish_kubelet_serving: bool,
    /// Maximum lifetime of certificates of built-in signers (`--cluster-signing-duration`).
    pub cluster_signing_duration: Duration,
    /// Custom signers at the start: those of the signers file, or fixed ones without a file.
    pub custom: Vec<CustomSigner>,
    /// Signers file, which is reloaded, and the namespace of CAs.
    pub signers: SignerSettings,
    /// CA of the API server, to be published for clients; `None` publishes nothing.
    pub root_ca: Option<Arc<RootCa>>,
    /// Time for which a replaced ClusterTrustBundle stays besides the new one. A trust anchor of a custom signer stays
    /// for this long after the last certificate issued under it has expired.
    pub ca_overlap: Duration,
    /// Longest time for which a new CA of a custom signer waits until its trust anchor is published and delivered to
    /// nodes.
    pub ca_delivery_timeout: Duration,
    /// Leader election; `None` if there is only this process.
    pub election: Option<LeaderElection>,
    /// Configuration for separate connections, which end when another process becomes the leader.
    pub connection: Option<kube::Config>,
    /// Thresholds for lost nodes.
    pub node_monitor: NodeMonitor,
    /// Time without a node after which an event on a pod explains that no scheduler runs.
    pub unscheduled_after: Duration,
    /// Settings of the Bundle controller.
    pub bundles: bundles::BundleSettings,
    /// Controllers to run, as the `--controllers` flag selects them.
    pub controllers: ControllerSelection,
    /// Registry for the metrics of the controllers, which [`run`](crate::run) registers once.
    pub metrics: MetricsRegistry,
}

impl ControllerOptions {
    /// Creates options with housekeeping, without signers, publishers and election.
    pub fn new(clock: Clock) -> ControllerOptions {
        ControllerOptions {
            clock,
            housekeeping: true,
            approve_kubelet_serving: false,
            api_server_names: Vec::new(),
            built_in: Vec::new(),
            publish_kubelet_serving: false,
            cluster_signing_duration: Duration::from_secs(8760 * 60 * 60),
            custom: Vec::new(),
            signers: SignerSettings::default(),
            root_ca: None,
            ca_overlap: Duration::from_secs(60 * 60),
            ca_delivery_timeout: Duration::from_secs(5 * 60),
            election: None,
            connection: None,
            node_monitor: NodeMonitor::default(),
            unscheduled_after: Duration::from_secs(10),
            bundles: bundles::BundleSettings::default(),
            controllers: ControllerSelection::default(),
            metrics: MetricsRegistry::new(),
        }
    }
}

/// A controller that can be disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerName {
    /// Creates the `default` service account in every namespace.
    Accounts,
    /// Aggregates the rules of ClusterRoles with an aggregation rule.
    Aggregation,
    /// Deletes the content of terminating namespaces.
    Namespaces,
    /// Deletes objects whose owners are gone.
    Garbage,
    /// Marks nodes that stopped reporting.
    NodeLifecycle,
    /// Explains why pods without a node stay Pending.
    UnscheduledPods,
    /// Approves certificate signing requests that meet the approval policy.
    Approve,
    /// Signs for the built-in signers of Kubernetes.
    Sign,
    /// Deletes old CertificateSigningRequests.
    CleanRequests,
    /// Deletes old PodCertificateRequests.
    CleanPodRequests,
    /// Signs for custom signers and publishes their trust anchors.
    CustomSigners,
    /// Publishes the root CA as ConfigMaps.
    RootCa,
    /// Publishes the root CA as a ClusterTrustBundle.
    TrustBundle,
    /// Syncs trust-manager Bundles into their target namespaces.
    Bundles,
    /// Records revocations and publishes certificate revocation lists.
    Revocations,
    /// Rotates the CAs of custom signers; without it, new CAs sign after a timeout at the latest.
    CaRotation,
}

impl ControllerName {
    /// All controllers, in the order in which they are documented.
    pub const ALL: [ControllerName; 16] = [
        ControllerName::Accounts,
        ControllerName::Aggregation,
        ControllerName::Namespaces,
        ControllerName::Garbage,
        ControllerName::NodeLifecycle,
        ControllerName::UnscheduledPods,
        ControllerName::Approve,
        ControllerName::Sign,
        ControllerName::CleanRequests,
        ControllerName::CleanPodRequests,
        ControllerName::CustomSigners,
        ControllerName::RootCa,
        ControllerName::TrustBundle,
        ControllerName::Bundles,
        ControllerName::Revocations,
        ControllerName::CaRotation,
    ];

    /// Returns the name, as in kube-controller-manager where that has the controller.
    pub fn name(self) -> &'static str {
        match self {
            ControllerName::Accounts => "serviceaccount-controller",
            ControllerName::Aggregation => "clusterrole-aggregation-controller",
            ControllerName::Namespaces => "namespace-controller",
            ControllerName::Garbage => "garbage-collector-controller",
            ControllerName::NodeLifecycle => "node-lifecycle-controller",
            ControllerName::UnscheduledPods => "unscheduled-pod-controller",
            ControllerName::Approve => "certificatesigningrequest-approving-controller",
            ControllerName::Sign => "certificatesigningrequest-signing-controller",
            ControllerName::CleanRequests => "certificatesigningrequest-cleaner-controller",
            ControllerName::CleanPodRequests => "podcertificaterequest-cleaner-controller",
            ControllerName::CustomSigners => "custom-signer-controller",
            ControllerName::RootCa => "root-ca-certificate-publisher-controller",
            ControllerName::TrustBundle => "kube-apiserver-serving-clustertrustbundle-publisher-controller",
            ControllerName::Bundles => "bundle-controller",
            ControllerName::Revocations => "certificate-revocation-controller",
            ControllerName::CaRotation => "ca-rotation-controller",
        }
    }

    /// Returns the older name, which kube-controller-manager accepts as well.
    fn alias(self) -> Option<&'static str> {
        match self {
            ControllerName::Accounts => Some("serviceaccount"),
            ControllerName::Aggregation => Some("clusterrole-aggregation"),
            ControllerName::Namespaces => Some("namespace"),
            ControllerName::Garbage => Some("garbagecollector"),
            ControllerName::NodeLifecycle => Some("nodelifecycle"),
            ControllerName::UnscheduledPods => Some("unscheduled-pod"),
            ControllerName::Approve => Some("csrapproving"),
            ControllerName::Sign => Some("csrsigning"),
            ControllerName::CleanRequests => Some("csrcleaner"),
            ControllerName::RootCa => Some("root-ca-cert-publisher"),
            ControllerName::Bundles => Some("bundle"),
            ControllerName::CleanPodRequests
            | ControllerName::CustomSigners
            | ControllerName::CaRotation
            | ControllerName::TrustBundle
            | ControllerName::Revocations => None,
        }
    }

    fn from_name(name: &str) -> Option<ControllerName> {
        let mut all = ControllerName::ALL.into_iter();
        all.find(|controller| controller.name() == name || controller.alias() == Some(name))
    }
}

/// Enabled controllers, as `--controllers` selects them: `*` for all, `name` and `-name` for one. Names take precedence
/// over `*`, and earlier items over later ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerSelection {
    all: bool,
    named: Vec<(ControllerName, bool)>,
}

impl ControllerSelection {
    /// Whether the selection enables this controller.
    pub fn is_enabled(&self, controller: ControllerName) -> bool {
        let named = self.named.iter().find(|(name, _)| *name == controller);
        named.map_or(self.all, |(_, on)| *on)
    }

    /// Disables a controller, whatever the selection says.
    pub fn without(mut self, controller: ControllerName) -> ControllerSelection {
        self.named.insert(0, (controller, false));
        self
    }
}

impl Default for ControllerSelection {
    fn default() -> ControllerSelection {
        ControllerSelection { all: true, named: Vec::new() }
    }
}

impl FromStr for ControllerSelection {
    type Err = String;

    fn from_str(text: &str) -> Result<ControllerSelection, String> {
        let mut selection = ControllerSelection { all: false, named: Vec::new() };
        for item in text.split(',').map(str::trim) {
            if item == "*" {
                selection.all = true;
                continue;
            }
            let (name, on) = item.strip_prefix('-').map_or((item, true), |name| (name, false));
            let found = ControllerName::from_name(name)
                .ok_or_else(|| format!("\"{name}\" is not in the list of known controllers"))?;
            selection.named.push((found, on));
        }
        Ok(selection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_chosen_as_kube_controller_manager_does() {
        let table: [(&str, &[ControllerName], &[ControllerName]); 7] = [
            ("*", &ControllerName::ALL, &[]),
            ("*,-csrsigning", &[ControllerName::Approve], &[ControllerName::Sign]),
            ("-csrsigning,*", &[ControllerName::Approve], &[ControllerName::Sign]),
            ("csrsigning", &[ControllerName::Sign], &[ControllerName::Approve, ControllerName::Garbage]),
            (
                "certificatesigningrequest-signing-controller, namespace",
                &[ControllerName::Sign, ControllerName::Namespaces],
                &[ControllerName::Approve],
            ),
            ("namespace,-namespace", &[ControllerName::Namespaces], &[ControllerName::Sign]),
            ("-namespace", &[], &ControllerName::ALL),
        ];
        for (text, on, off) in table {
            let selection: ControllerSelection = text.parse().unwrap();
            on.iter().for_each(|c| assert!(selection.is_enabled(*c), "{text}: {c:?}"));
            off.iter().for_each(|c| assert!(!selection.is_enabled(*c), "{text}: {c:?}"));
        }
        for (text, wrong) in [("", ""), ("*,deployment", "deployment"), ("*,-x", "x"), ("--a", "-a")] {
            let error = format!("\"{wrong}\" is not in the list of known controllers");
            assert_eq!(text.parse::<ControllerSelection>(), Err(error));
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = ControllerName::ALL.iter().map(|c| c.name()).collect();
        names.extend(ControllerName::ALL.iter().filter_map(|c| c.alias()));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
