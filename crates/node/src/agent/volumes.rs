//! Starts the volume manager with its sources.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::AgentOptions;
use crate::node_status::NodeRegistration;
use crate::projections::{self, HostProjections, Notifier};
use crate::read_observer::ReadObserver;
use crate::sources::bundles::{self, BundleView};
use crate::sources::objects::ObjectCache;
use crate::sources::pods;
use crate::sources::revocation_lists::{self, RevocationListView};
use crate::sources::tokens::TokenManager;
use crate::trust;
use crate::volume::plan::OptionalApi;
use crate::volume_certificates::{VolumeCertificateConfig, VolumeCertificateManager};
use crate::volume_manager::VolumeManager;
use crate::volume_manager::report::VolumeReports;
use windlass_runtime::file_watch::ReloadableFile;

/// Directory below the root directory for the state of host projections.
const PROJECTIONS: &str = "projections";

/// State of volumes that exists before they are managed.
pub struct VolumeRuntime {
    /// The latest report of every volume; empty until volumes are managed.
    pub reports: watch::Sender<VolumeReports>,
    /// Host projections; none if the agent has no projections file.
    pub projections: Arc<ReloadableFile<HostProjections>>,
    bundles: watch::Sender<Arc<BundleView>>,
    revocation_lists: watch::Sender<RevocationListView>,
    certificates: watch::Sender<Option<Arc<VolumeCertificateManager>>>,
}

impl VolumeRuntime {
    /// Creates the shared state; no volume is managed before `start` is called.
    pub fn new(options: &AgentOptions) -> Arc<Self> {
        let projections = options.projections.as_ref().map(|(_, projections)| projections.clone());
        Arc::new(Self {
            reports: watch::Sender::default(),
            projections: Arc::new(ReloadableFile::new(projections.unwrap_or_default())),
            bundles: watch::Sender::new(bundles::initial_view(options.gates)),
            revocation_lists: watch::Sender::new(revocation_lists::initial_view()),
            certificates: watch::Sender::new(None),
        })
    }

    /// Starts to manage volumes with the node's client. All tasks are added to `tasks`.
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
        let counts = options.metrics.notifications.clone();
        let notifier = Notifier::new(directory, files.clone(), clock.clone(), counts);
        self.certificates.send_replace(Some(certificates.clone()));
        let reads = ReadObserver::new(&options.root_dir, files.clone(), clock.clone());
        let manager = VolumeManager {
            client: client.clone(),
            node: node.clone(),
            root_dir: options.root_dir.clone(),
            files: files.clone(),
            clock: clock.clone(),
            random: options.random.clone(),
            tmpfs: options.tmpfs,
            pods: pods.subscribe(),
            bundles: self.bundles.subscribe(),
            projections: self.projections.subscribe(),
            revocation_lists: self.revocation_lists.subscribe(),
            registration,
            objects: ObjectCache::new(client.clone(), wake.clone()),
            tokens: TokenManager::new(client.clone(), clock.clone(), options.random.clone(), wake),
            certificates: certificates.clone(),
            notifier,
            reads: reads.clone(),
            wakes,
            metrics: options.metrics.volumes.clone(),
            reports: self.reports.clone(),
        };
        if let Some((path, _)) = &options.projections {
            let watch = projections::watch_file(path.clone(), files.clone(), self.projections.clone());
            tasks.spawn(async { match watch.await {} });
        }
        tasks.spawn(pods::watch_pods(client.clone(), node.clone(), pods));
        if options.gates.cluster_trust_bundle_projection {
            let out = self.bundles.clone();
            tasks.spawn(bundles::watch_bundles(client.clone(), clock.clone(), out));
        }
        let (lists, needed) = (self.revocation_lists.clone(), self.projections.subscribe());
        tasks.spawn(revocation_lists::watch_revocation_lists(client.clone(), needed, lists));
        tasks.spawn(certificates.run());
        tasks.spawn(manager.run());
        let reports = self.reports.subscribe();
        let states = reads.states();
        tasks.spawn(reads.run());
        tasks.spawn(trust::report(client.clone(), node.clone(), clock.clone(), reports, states));
    }

    /// ClusterTrustBundles, as far as they are known; none before `start` is called.
    pub fn bundles(&self) -> watch::Receiver<Arc<BundleView>> {
        self.bundles.subscribe()
    }

    /// Bytes of all cached bundles; `None` before the first list or if the server has none.
    pub fn bundle_bytes(&self) -> Option<usize> {
        match &self.bundles.borrow().bundles {
            OptionalApi::Synced(bundles) => Some(bundles.size()),
            OptionalApi::Off | OptionalApi::Missing | OptionalApi::Unsynced => None,
        }
    }

    /// Number of certificates by signer and state; none before `start` is called.
    pub fn certificate_states(&self) -> BTreeMap<(String, &'static str), u64> {
        let certificates = self.certificates.borrow();
        certificates.as_ref().map(|certificates| certificates.states()).unwrap_or_default()
    }
}
