//! The custom signers that run now. They change with their configuration, without a restart: approver, signers and
//! publisher follow the set, and signers that stay the same keep their CAs and the state of their rollouts.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use super::config::SignerConfig;
use super::rollout::{PublicationState, RolloutGovernance};
use super::{CustomSigner, SignerSettings, open_ca};
use crate::ca::{CaContext, CaSource};
use crate::metrics::MetricFamilies;
use crate::options::Clock;
use crate::supervise;

/// The signers at one time.
pub type SignerList = Arc<Vec<CustomSigner>>;

/// The signers that run now, for the life of the process.
pub(crate) struct SignerSet {
    list: watch::Sender<SignerList>,
    settings: SignerSettings,
    clock: Clock,
    /// Longest time for which a new CA waits for the publication of its anchor; `None` if no publisher runs.
    delivery_timeout: Option<Duration>,
    /// Whether the server has no ClusterTrustBundles, so that no CA waits for them.
    is_unpublishable: AtomicBool,
    /// Whether rotations decide when a new CA signs, or may do so.
    is_governed: AtomicBool,
}

impl SignerSet {
    pub(crate) fn new(
        signers: Vec<CustomSigner>,
        settings: &SignerSettings,
        delivery_timeout: Option<Duration>,
        clock: Clock,
    ) -> Arc<SignerSet> {
        let set = SignerSet {
            list: watch::Sender::default(),
            settings: settings.clone(),
            clock,
            delivery_timeout,
            is_unpublishable: AtomicBool::new(false),
            is_governed: AtomicBool::new(false),
        };
        let mut signers = signers;
        // As the sources order them, so that the first update changes nothing.
        signers.sort_by(|a, b| a.custom.name.as_str().cmp(b.custom.name.as_str()));
        signers.iter().for_each(|signer| set.configure_publication(signer));
        set.list.send_replace(Arc::new(signers));
        Arc::new(set)
    }

    /// Returns a receiver of the signers, which notifies of every change.
    pub(crate) fn subscribe(&self) -> watch::Receiver<SignerList> {
        self.list.subscribe()
    }

    /// Replaces the configurations; returns whether anything changed. Blocks on disk reads and writes.
    pub(crate) fn update(&self, configs: Vec<SignerConfig>) -> bool {
        let before = self.list.borrow().clone();
        let signers: Vec<CustomSigner> =
            configs.into_iter().map(|config| self.reconfigure(config, &before)).collect();
        let is_same =
            |(a, b): (&CustomSigner, &CustomSigner)| a.custom == b.custom && Arc::ptr_eq(&a.ca, &b.ca);
        if signers.len() == before.len() && signers.iter().zip(before.iter()).all(is_same) {
            return false;
        }
        signers.iter().for_each(|signer| self.configure_publication(signer));
        let names = signers.iter().map(|signer| signer.custom.name.as_str()).collect::<Vec<_>>().join(", ");
        tracing::info!(signers = names, "configuration of signers changed");
        self.list.send_replace(Arc::new(signers));
        true
    }

    /// Keeps the CA of a signer if that is configured as before, and the state of its rollout in any case.
    fn reconfigure(&self, custom: SignerConfig, before: &[CustomSigner]) -> CustomSigner {
        let known = before.iter().find(|each| each.custom.name == custom.name);
        let kept = known.filter(|known| known.custom.ca == custom.ca).map(|known| known.ca.clone());
        let ca = kept.unwrap_or_else(|| open_ca(&custom, &self.settings, &self.clock));
        match known {
            Some(known) => {
                let signer = CustomSigner { custom, ca, ..known.clone() };
                signer.rollout.reconfigure(signer.ca.clone(), signer.max_duration());
                signer
            }
            None => {
                let signer = CustomSigner::new(custom, ca);
                if self.is_governed.load(Ordering::Relaxed) {
                    signer.rollout.set_governance(RolloutGovernance::Undecided, (self.clock)());
                }
                signer
            }
        }
    }

    /// Sets whether rotations decide when a new CA signs. The controller of rotations says for each signer then whether
    /// one runs.
    pub(crate) fn set_governed(&self, governed: bool) {
        self.is_governed.store(governed, Ordering::Relaxed);
        let governance = if governed { RolloutGovernance::Undecided } else { RolloutGovernance::Timed };
        for signer in self.list.borrow().clone().iter() {
            signer.rollout.set_governance(governance, (self.clock)());
        }
    }

    fn configure_publication(&self, signer: &CustomSigner) {
        let unpublishable = self.is_unpublishable.load(Ordering::Relaxed);
        match (self.delivery_timeout, &signer.custom.publish) {
            (Some(timeout), Some(_)) if !unpublishable => signer.rollout.require_publication(timeout),
            _ => signer.rollout.set_publication(PublicationState::None, (self.clock)()),
        }
    }

    /// Sets whether the server has ClusterTrustBundles. Where anchors cannot be published, no CA waits for that.
    pub(crate) fn set_publishable(&self, publishable: bool) {
        self.is_unpublishable.store(!publishable, Ordering::Relaxed);
        let signers = self.list.borrow().clone();
        signers.iter().for_each(|signer| self.configure_publication(signer));
    }
}

/// Runs the future that `start` returns for the signers, and starts another one whenever they change.
pub(crate) async fn restart_on_change<F, L>(mut signers: watch::Receiver<SignerList>, start: F) -> Infallible
where
    F: Fn(SignerList) -> L,
    L: Future<Output = Infallible>,
{
    loop {
        let list = signers.borrow_and_update().clone();
        tokio::select! {
            never = start(list) => match never {},
            Ok(()) = signers.changed() => {}
        }
    }
}

/// Keeps the CAs of all signers current, for as long as the signers are in the set.
pub(crate) async fn watch_authorities(
    client: Client,
    signers: watch::Receiver<SignerList>,
    metrics: Arc<MetricFamilies>,
) -> Infallible {
    let context = CaContext { client, signers: signers.clone() };
    let mut changes = signers;
    let mut tasks = JoinSet::new();
    let mut running: Vec<(Arc<CaSource>, AbortHandle)> = Vec::new();
    loop {
        let list = changes.borrow_and_update().clone();
        running.retain(|(ca, task)| {
            let stays = list.iter().any(|signer| Arc::ptr_eq(&signer.ca, ca));
            if !stays {
                task.abort();
            }
            stays
        });
        for CustomSigner { custom, ca, rollout, .. } in list.iter() {
            metrics.authorities.add_source(custom.name.as_str(), ca);
            if custom.publish.is_some() {
                metrics.authorities.add_rollout(custom.name.as_str(), rollout);
            }
            if !running.iter().any(|(known, _)| Arc::ptr_eq(known, ca)) {
                let (source, context) = (ca.clone(), context.clone());
                let run = move || source.clone().run(context.clone());
                running.push((ca.clone(), tasks.spawn(supervise("signer-ca", run))));
            }
        }
        tokio::select! {
            Ok(()) = changes.changed() => {}
            Some(_) = tasks.join_next() => {}
            else => return std::future::pending().await,
        }
    }
}
