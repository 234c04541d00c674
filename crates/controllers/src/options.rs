//! What the controllers are told before they start.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;

use crate::bundles;
use crate::election::Election;
use crate::node_lifecycle::NodeMonitor;
use crate::publish::RootCa;
use crate::sign::BuiltIn;
use crate::signers::CustomSigner;

/// Says what time it is.
pub type Clock = Arc<dyn Fn() -> OffsetDateTime + Send + Sync>;

/// What the controllers do, and with what.
pub struct Options {
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
    pub built_in: Vec<BuiltIn>,
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
    pub election: Option<Election>,
    /// How to connect to the server anew, so that connections end when another process leads.
    pub connection: Option<kube::Config>,
    /// When a node counts as lost.
    pub node_monitor: NodeMonitor,
    /// How long a pod may be without a node before an event says that no scheduler runs.
    pub unscheduled_after: Duration,
    /// What is done about Bundles.
    pub bundles: bundles::Settings,
    /// Which controllers run.
    pub controllers: Selection,
}

impl Options {
    /// Housekeeping, and nothing that needs files.
    pub fn new(clock: Clock) -> Options {
        Options {
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
            bundles: bundles::Settings::default(),
            controllers: Selection::default(),
        }
    }
}

/// Something that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// Default service accounts.
    Accounts,
    /// Aggregated cluster roles.
    Aggregation,
    /// Namespaces that are being deleted.
    Namespaces,
    /// What has lost its owners.
    Garbage,
    /// Marks nodes that stopped reporting.
    NodeLifecycle,
    /// Explains why pods without a node stay Pending.
    UnscheduledPods,
    /// Approves requests for certificates.
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
    /// Keeps Bundles in namespaces.
    Bundles,
}

impl Controller {
    /// All controllers, in the order of the documentation.
    pub const ALL: [Controller; 14] = [
        Controller::Accounts,
        Controller::Aggregation,
        Controller::Namespaces,
        Controller::Garbage,
        Controller::NodeLifecycle,
        Controller::UnscheduledPods,
        Controller::Approve,
        Controller::Sign,
        Controller::CleanRequests,
        Controller::CleanPodRequests,
        Controller::CustomSigners,
        Controller::RootCa,
        Controller::TrustBundle,
        Controller::Bundles,
    ];

    /// What it is called, as in kube-controller-manager if that has it.
    pub fn name(self) -> &'static str {
        match self {
            Controller::Accounts => "serviceaccount-controller",
            Controller::Aggregation => "clusterrole-aggregation-controller",
            Controller::Namespaces => "namespace-controller",
            Controller::Garbage => "garbage-collector-controller",
            Controller::NodeLifecycle => "node-lifecycle-controller",
            Controller::UnscheduledPods => "unscheduled-pod-controller",
            Controller::Approve => "certificatesigningrequest-approving-controller",
            Controller::Sign => "certificatesigningrequest-signing-controller",
            Controller::CleanRequests => "certificatesigningrequest-cleaner-controller",
            Controller::CleanPodRequests => "podcertificaterequest-cleaner-controller",
            Controller::CustomSigners => "custom-signer-controller",
            Controller::RootCa => "root-ca-certificate-publisher-controller",
            Controller::TrustBundle => {
                "kube-apiserver-serving-clustertrustbundle-publisher-controller"
            }
            Controller::Bundles => "bundle-controller",
        }
    }

    /// The older name, which kube-controller-manager takes as well.
    fn alias(self) -> Option<&'static str> {
        match self {
            Controller::Accounts => Some("serviceaccount"),
            Controller::Aggregation => Some("clusterrole-aggregation"),
            Controller::Namespaces => Some("namespace"),
            Controller::Garbage => Some("garbagecollector"),
            Controller::NodeLifecycle => Some("nodelifecycle"),
            Controller::UnscheduledPods => Some("unscheduled-pod"),
            Controller::Approve => Some("csrapproving"),
            Controller::Sign => Some("csrsigning"),
            Controller::CleanRequests => Some("csrcleaner"),
            Controller::RootCa => Some("root-ca-cert-publisher"),
            Controller::Bundles => Some("bundle"),
            Controller::CleanPodRequests | Controller::CustomSigners | Controller::TrustBundle => {
                None
            }
        }
    }

    fn named(name: &str) -> Option<Controller> {
        let mut all = Controller::ALL.into_iter();
        all.find(|controller| controller.name() == name || controller.alias() == Some(name))
    }
}

/// Which controllers run, as `--controllers` says: `*` for all, `name` and `-name` for one. What is
/// said of one by its name counts more than `*`, and what is said first more than what comes later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    all: bool,
    named: Vec<(Controller, bool)>,
}

impl Selection {
    /// Whether a controller runs.
    pub fn has(&self, controller: Controller) -> bool {
        let named = self.named.iter().find(|(name, _)| *name == controller);
        named.map_or(self.all, |(_, on)| *on)
    }

    /// The same without a controller, whatever was said of it.
    pub fn without(mut self, controller: Controller) -> Selection {
        self.named.insert(0, (controller, false));
        self
    }
}

impl Default for Selection {
    fn default() -> Selection {
        Selection { all: true, named: Vec::new() }
    }
}

impl FromStr for Selection {
    type Err = String;

    fn from_str(text: &str) -> Result<Selection, String> {
        let mut selection = Selection { all: false, named: Vec::new() };
        for item in text.split(',').map(str::trim) {
            if item == "*" {
                selection.all = true;
                continue;
            }
            let (name, on) = item.strip_prefix('-').map_or((item, true), |name| (name, false));
            let found = Controller::named(name)
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
        let table: [(&str, &[Controller], &[Controller]); 7] = [
            ("*", &Controller::ALL, &[]),
            ("*,-csrsigning", &[Controller::Approve], &[Controller::Sign]),
            ("-csrsigning,*", &[Controller::Approve], &[Controller::Sign]),
            ("csrsigning", &[Controller::Sign], &[Controller::Approve, Controller::Garbage]),
            (
                "certificatesigningrequest-signing-controller, namespace",
                &[Controller::Sign, Controller::Namespaces],
                &[Controller::Approve],
            ),
            ("namespace,-namespace", &[Controller::Namespaces], &[Controller::Sign]),
            ("-namespace", &[], &Controller::ALL),
        ];
        for (text, on, off) in table {
            let selection: Selection = text.parse().unwrap();
            on.iter().for_each(|c| assert!(selection.has(*c), "{text}: {c:?}"));
            off.iter().for_each(|c| assert!(!selection.has(*c), "{text}: {c:?}"));
        }
        for (text, wrong) in
            [("", ""), ("*,deployment", "deployment"), ("*,-x", "x"), ("--a", "-a")]
        {
            let error = format!("\"{wrong}\" is not in the list of known controllers");
            assert_eq!(text.parse::<Selection>(), Err(error));
        }
    }

    #[test]
    fn names_are_told_apart() {
        let mut names: Vec<&str> = Controller::ALL.iter().map(|c| c.name()).collect();
        names.extend(Controller::ALL.iter().filter_map(|c| c.alias()));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
