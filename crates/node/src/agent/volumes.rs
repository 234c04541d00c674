//! Joins everything that keeps volumes.

use std::sync::Arc;

use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::AgentOptions;
use crate::metrics::volumes::VolumeMetrics;
use crate::node_status::NodeRegistration;
use crate::projections::{self, HostProjections, Notifier};
use crate::sources::bundles::{self, BundleView};
use crate::sources::objects::ObjectCache;
use crate::sources::pods;
use crate::sources::tokens::TokenManager;
use crate::trust;
use crate::volume::plan::OptionalApi;
use crate::volume_certificates::{VolumeCertificateConfig, VolumeCertificateManager};
use crate::volume_manager::VolumeManager;
use crate::volume_manager::report::VolumeReports;

/// Where what is to be remembered of the machine's own volumes is, in the root directory.
const PROJECTIONS: &str = "projections";

/// What is known of volumes, from the beginning on, whether or not they are kept yet.
pub struct VolumeRuntime {
    /// The latest report of every volume; empty until volumes are managed.
    pub reports: watch::Sender<VolumeReports>,
    /// Counters and histograms of volume refreshes and bundle deliveries.
    pub metrics: Arc<VolumeMetrics>,
    /// What is wrong with the file of the machine's own.
    pub file_problem: watch::Sender<Option<String>>,
    bundles: watch::Sender<Arc<BundleView>>,
    /// As soon as there are any to keep.
    running: watch::Sender<Option<RunningVolumes>>,
}

/// What knows more, once volumes are kept.
#[derive(Clone)]
struct RunningVolumes {
    certificates: Arc<VolumeCertificateManager>,
    notifier: Arc<Notifier>,
}

impl VolumeRuntime {
    /// Creates the shared state; no volume is managed before `start` is called.
    pub fn new(options: &AgentOptions) -> Arc<Self> {
        Arc::new(Self {
            reports: watch::Sender::default(),
            metrics: Arc::default(),
            file_problem: watch::Sender::new(None),
            bundles: watch::Sender::new(bundles::initial_view(options.gates)),
            running: watch::Sender::new(None),
        })
    }

    /// Keeps them, as the node. Everything ends with `tasks`.
    pub fn start(
        self: &Arc<Self>,
        options: &AgentOptions,
        client: &Client,
        registration: watch::Receiver<NodeRegistration>,
        tasks: &mut JoinSet<()>,
    ) {
        let (clock, files, node) = (&options.clock, &options.files, &options.node_name);
        let (wake, wakes) = mpsc::unbounded_channel();
        let pods = watch::Sender::default();
        let certificates = VolumeCertificateManager::new(VolumeCertificateConfig {
            client: client.clone(),
            node: node.clone(),
            files: files.clone(),
            clock: clock.clone(),
            random: options.random.clone(),
            gates: options.gates,
            wakes: wake.clone(),
            look: options.look,
            bundles: self.bundles.subscribe(),
        });
        let directory = options.root_dir.join(PROJECTIONS);
        let notifier = Notifier::new(directory, files.clone(), clock.clone());
        let kept =
            RunningVolumes { certificates: certificates.clone(), notifier: notifier.clone() };
        self.running.send_replace(Some(kept));
        let keeper = VolumeManager {
            client: client.clone(),
            node: node.clone(),
            root_dir: options.root_dir.clone(),
            files: files.clone(),
            clock: clock.clone(),
            random: options.random.clone(),
            tmpfs: options.tmpfs,
            pods: pods.subscribe(),
            bundles: self.bundles.subscribe(),
            projections: self.projections(options, tasks),
            registration,
            objects: ObjectCache::new(client.clone(), wake.clone()),
            tokens: TokenManager::new(client.clone(), clock.clone(), options.random.clone(), wake),
            certificates: certificates.clone(),
            notifier,
            wakes,
            metrics: self.metrics.clone(),
            reports: self.reports.clone(),
        };
        tasks.spawn(pods::watch_pods(client.clone(), node.clone(), pods));
        if options.gates.cluster_trust_bundle_projection {
            let out = self.bundles.clone();
            tasks.spawn(bundles::watch_bundles(client.clone(), clock.clone(), out));
        }
        tasks.spawn(certificates.run());
        tasks.spawn(keeper.run());
        let reports = self.reports.subscribe();
        tasks.spawn(trust::report(client.clone(), node.clone(), clock.clone(), reports));
    }

    /// Writes what is known, for programs.
    pub fn write_metrics(&self, out: &mut String) {
        let bundles = match &self.bundles.borrow().bundles {
            OptionalApi::Synced(bundles) => Some(bundles.size()),
            OptionalApi::Off | OptionalApi::Missing | OptionalApi::Unsynced => None,
        };
        let kept = self.running.borrow().clone();
        let states = kept.as_ref().map(|kept| kept.certificates.states());
        let reports = self.reports.borrow().clone();
        let volumes = reports.values().map(|report| &**report);
        self.metrics.write(out, volumes, bundles, &states.unwrap_or_default());
        if let Some(kept) = kept {
            kept.notifier.write_metrics(out);
        }
    }

    fn projections(
        &self,
        options: &AgentOptions,
        tasks: &mut JoinSet<()>,
    ) -> watch::Receiver<HostProjections> {
        let Some((path, projections)) = &options.projections else {
            return watch::Sender::default().subscribe();
        };
        let out = watch::Sender::new(projections.clone());
        let projections = out.subscribe();
        let wrong = self.file_problem.clone();
        tasks.spawn(projections::watch_file(path.clone(), options.files.clone(), out, wrong));
        projections
    }
}
