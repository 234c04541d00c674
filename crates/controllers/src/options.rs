//! What the controllers are told before they start.

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
use crate::signers::CustomSigner;

/// Says what time it is.
pub type Clock = Arc<dyn Fn() -> OffsetDateTime + Send + Sync>;

/// What the controllers do, and with what.
pub struct ControllerOptions {
    /// Says what time it is.
    pub clock: Clock,
    /// Whether to do what every cluster needs done once: garbage collection, namespaces, default
    /// accounts, aggregated roles, node health, events on pods that nobody schedules. A cluster with a
    /// kube-controller-manager has it done already.
    pub housekeeping: bool,
    /// Whether requests of nodes for serving certificates are approved if everything in them is true.
    pub approve_kubelet_serving: bool,
    /// Names and addresses of the API server, for which no serving certificate of a node is approved.
    pub api_server_names: Vec<String>,
    /// Kubernetes' own signers. One that is not here does not sign.
    pub built_in: Vec<BuiltInSigner>,
    /// Whether the CA of kubelets' serving certificates is published as a trust bundle.
    pub publish_kubelet_serving: bool,
    /// The longest that a certificate of Kubernetes' own signers lasts.
    pub longest: Duration,
    /// Signers of the user's own.
    pub custom: Vec<CustomSigner>,
    /// What clients verify the API server with, to be published; `None` publishes nothing.
    pub root_ca: Option<Arc<RootCa>>,
    /// How long a trust bundle that was replaced stays beside the new one; an anchor of a custom
    /// signer stays for so long after the last certificate issued under it has expired.
    pub ca_overlap: Duration,
    /// How long a new CA of a custom signer waits at most until its trust anchor is published and
    /// nodes have it.
    pub ca_delivery_timeout: Duration,
    /// How the process that works is chosen; `None` if there is only this one.
    pub election: Option<LeaderElection>,
    /// How to connect to the server anew, so that connections end when another process leads.
    pub connection: Option<kube::Config>,
    /// When a node counts as lost.
    pub node_monitor: NodeMonitor,
    /// How long a pod may be without a node before an event says that no scheduler runs.
    pub unscheduled_after: Duration,
    /// What is done about Bundles.
    pub bundles: bundles::BundleSettings,
    /// Controllers to run, as the `--controllers` flag selects them.
    pub controllers: ControllerSelection,
    /// Registry for the metrics of the controllers, which [`run`](crate::run) registers once.
    pub metrics: MetricsRegistry,
}

impl ControllerOptions {
    /// Housekeeping, and nothing that needs files.
    pub fn new(clock: Clock) -> ControllerOptions {
        ControllerOptions {
            clock,
            housekeeping: true,
            approve_kubelet_serving: false,
            api_server_names: Vec::new(),
            built_in: Vec::new(),
            publish_kubelet_serving: false,
            longest: Duration::from_secs(8760 * 60 * 60),
            custom: Vec::new(),
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

/// Something that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerName {
    /// Creates the `default` service account in every namespace.
    Accounts,
    /// Aggregates the rules of ClusterRoles with an aggregation rule.
    Aggregation,
    /// Namespaces that are being deleted.
    Namespaces,
    /// What has lost its owners.
    Garbage,
    /// Marks nodes that stopped reporting.
    NodeLifecycle,
    /// Explains why pods without a node stay Pending.
    UnscheduledPods,
    /// Approves certificate signing requests that meet the approval policy.
    Approve,
    /// Signs for Kubernetes' own signers.
    Sign,
    /// Removes old requests for certificates.
    CleanRequests,
    /// Removes old requests of pods for certificates.
    CleanPodRequests,
    /// Signs for the user's own signers.
    CustomSigners,
    /// Publishes the root CA as ConfigMaps.
    RootCa,
    /// Publishes the root CA as a trust bundle.
    TrustBundle,
    /// Syncs trust-manager Bundles into their target namespaces.
    Bundles,
}

impl ControllerName {
    /// All controllers, in the order of the documentation.
    pub const ALL: [ControllerName; 14] = [
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
    ];

    /// What it is called, as in kube-controller-manager if that has it.
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
            ControllerName::TrustBundle => {
                "kube-apiserver-serving-clustertrustbundle-publisher-controller"
            }
            ControllerName::Bundles => "bundle-controller",
        }
    }

    /// The older name, which kube-controller-manager takes as well.
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
            | ControllerName::TrustBundle => None,
        }
    }

    fn from_name(name: &str) -> Option<ControllerName> {
        let mut all = ControllerName::ALL.into_iter();
        all.find(|controller| controller.name() == name || controller.alias() == Some(name))
    }
}

/// Which controllers run, as `--controllers` says: `*` for all, `name` and `-name` for one. What is
/// said of one by its name counts more than `*`, and what is said first more than what comes later.
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

    /// The same without a controller, whatever was said of it.
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
            (
                "csrsigning",
                &[ControllerName::Sign],
                &[ControllerName::Approve, ControllerName::Garbage],
            ),
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
        for (text, wrong) in
            [("", ""), ("*,deployment", "deployment"), ("*,-x", "x"), ("--a", "-a")]
        {
            let error = format!("\"{wrong}\" is not in the list of known controllers");
            assert_eq!(text.parse::<ControllerSelection>(), Err(error));
        }
    }

    #[test]
    fn names_are_told_apart() {
        let mut names: Vec<&str> = ControllerName::ALL.iter().map(|c| c.name()).collect();
        names.extend(ControllerName::ALL.iter().filter_map(|c| c.alias()));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
