//! Joins everything that keeps volumes.

use std::sync::Arc;

use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::Options;
use crate::certificates::{Certificates, Setup};
use crate::keeper::Keeper;
use crate::keeper::report::Reports;
use crate::metrics::volumes::VolumeMetrics;
use crate::projections::{self, Notifier, Projections};
use crate::register::Registration;
use crate::sources::bundles::{self, View};
use crate::sources::objects::Objects;
use crate::sources::pods;
use crate::sources::tokens::Tokens;
use crate::trust;
use crate::volume::plan::Served;

/// Where what is to be remembered of the machine's own volumes is, in the root directory.
const PROJECTIONS: &str = "projections";

/// What is known of volumes, from the beginning on, whether or not they are kept yet.
pub struct Volumes {
    /// Each of them.
    pub reports: watch::Sender<Reports>,
    /// What is counted.
    pub metrics: Arc<VolumeMetrics>,
    /// What is wrong with the file of the machine's own.
    pub wrong: watch::Sender<Option<String>>,
    /// The bundles.
    bundles: watch::Sender<Arc<View>>,
    /// As soon as there are any to keep.
    kept: watch::Sender<Option<Kept>>,
}

/// What knows more, once volumes are kept.
#[derive(Clone)]
struct Kept {
    certificates: Arc<Certificates>,
    notifier: Arc<Notifier>,
}

impl Volumes {
    /// Nothing is known yet.
    pub fn new(options: &Options) -> Arc<Self> {
        Arc::new(Self {
            reports: watch::Sender::default(),
            metrics: Arc::default(),
            wrong: watch::Sender::new(None),
            bundles: watch::Sender::new(bundles::unknown(options.gates)),
            kept: watch::Sender::new(None),
        })
    }

    /// Keeps them, as the node. Everything ends with `tasks`.
    pub fn keep(
        self: &Arc<Self>,
        options: &Options,
        client: &Client,
        registration: watch::Receiver<Registration>,
        tasks: &mut JoinSet<()>,
    ) {
        let (clock, files, node) = (&options.clock, &options.files, &options.node_name);
        let (wake, wakes) = mpsc::unbounded_channel();
        let pods = watch::Sender::default();
        let certificates = Certificates::new(Setup {
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
        let kept = Kept { certificates: certificates.clone(), notifier: notifier.clone() };
        self.kept.send_replace(Some(kept));
        let keeper = Keeper {
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
            objects: Objects::new(client.clone(), wake.clone()),
            tokens: Tokens::new(client.clone(), clock.clone(), options.random.clone(), wake),
            certificates: certificates.clone(),
            notifier,
            wakes,
            metrics: self.metrics.clone(),
            reports: self.reports.clone(),
        };
        tasks.spawn(pods::follow(client.clone(), node.clone(), pods));
        if options.gates.cluster_trust_bundle_projection {
            let out = self.bundles.clone();
            tasks.spawn(bundles::follow(client.clone(), clock.clone(), out));
        }
        tasks.spawn(certificates.run());
        tasks.spawn(keeper.run());
        let reports = self.reports.subscribe();
        tasks.spawn(trust::report(client.clone(), node.clone(), clock.clone(), reports));
    }

    /// Writes what is known, for programs.
    pub fn write_metrics(&self, out: &mut String) {
        let bundles = match &self.bundles.borrow().bundles {
            Served::Synced(bundles) => Some(bundles.size()),
            Served::Off | Served::Missing | Served::Unsynced => None,
        };
        let kept = self.kept.borrow().clone();
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
        options: &Options,
        tasks: &mut JoinSet<()>,
    ) -> watch::Receiver<Projections> {
        let Some((path, projections)) = &options.projections else {
            return watch::Sender::default().subscribe();
        };
        let out = watch::Sender::new(projections.clone());
        let projections = out.subscribe();
        let wrong = self.wrong.clone();
        tasks.spawn(projections::follow(path.clone(), options.files.clone(), out, wrong));
        projections
    }
}
