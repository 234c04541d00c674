//! Keeps one certificate valid: performs the actions that [`state_machine`](super::state_machine)
//! decides.

use std::pin::Pin;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use time::OffsetDateTime;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::watch;
use windlass_pki::{ForeignCertificate, leads_to_anchor, parse_certificate_blocks};

use super::VolumeCertificateManager;
use super::event_writer;
use super::issuance::{CertificateIssuance, IssuanceOutcome, IssuanceProgress, save};
use super::managed_certificate::{ManagedCertificate, PublishedCertificate};
use super::state_file::{CertificateState, IssuedCertificate, LoadedState};
use super::state_machine::{RenewalAction, RenewalEvent, RenewalNotice, RenewalStateMachine};
use crate::clock;
use crate::renewal::RetryPolicy;
use crate::sources::SourceChange;
use crate::sources::bundles::BundleView;
use crate::volume::tainted_authority::{TaintedAuthorities, renewal_of};
use crate::volume::trust_anchors::{Digest, TrustAnchors};

/// Keeps one certificate valid, starting from the loaded state. Never returns.
pub async fn run(
    certificates: Arc<VolumeCertificateManager>,
    source: Arc<ManagedCertificate>,
    loaded: LoadedState,
) {
    let (progress, mut progress_events) = mpsc::unbounded_channel();
    let random = (certificates.setup.random)();
    let times = loaded.kept.current.as_ref().map(|current| current.times);
    let machine = RenewalStateMachine::new(RetryPolicy::default(), times, loaded.outdated, random);
    let mut keeping = VolumeCertificateDriver {
        certificates,
        source,
        machine,
        kept: loaded.kept,
        unsaved: false,
        job: None,
        progress,
        judged: None,
    };
    let mut bundles = keeping.certificates.setup.bundles.clone();
    let look = keeping.certificates.setup.look;
    let mut event = RenewalEvent::Tick;
    loop {
        keeping.step(event);
        if let Some(event) = keeping.check_anchors() {
            keeping.step(event);
        }
        let pause = keeping.machine.idle_for((keeping.certificates.setup.clock)());
        event = tokio::select! {
            // Progress of a job is handled before its result.
            biased;
            Some(progress) = progress_events.recv() => match progress {
                IssuanceProgress::Event(event) => event,
                IssuanceProgress::Begun(begun) => {
                    keeping.kept.begun = Some(begun);
                    RenewalEvent::Tick
                }
            },
            obtained = await_job(&mut keeping.job) => {
                keeping.job = None;
                keeping.finish_job(obtained)
            }
            () = changed(&mut bundles) => RenewalEvent::Tick,
            () = tokio::time::sleep(pause.min(look)) => {
                keeping.save_late().await;
                RenewalEvent::Tick
            }
        };
    }
}

struct VolumeCertificateDriver {
    certificates: Arc<VolumeCertificateManager>,
    source: Arc<ManagedCertificate>,
    machine: RenewalStateMachine,
    kept: CertificateState,
    /// Whether the state has not been saved to disk yet.
    unsaved: bool,
    job: Option<BoxFuture<'static, IssuanceOutcome>>,
    progress: UnboundedSender<IssuanceProgress>,
    /// The certificate, trust anchors and tainted authorities that were checked last; the same are not checked again.
    judged: Option<(Arc<IssuedCertificate>, Option<Digest>, TaintedAuthorities)>,
}

impl VolumeCertificateDriver {
    fn step(&mut self, event: RenewalEvent) {
        let setup = &self.certificates.setup;
        let actions = self.machine.step(event, (setup.clock)(), (setup.random)());
        for action in actions {
            match action {
                RenewalAction::Obtain(key) => {
                    let obtaining = CertificateIssuance {
                        certificates: self.certificates.clone(),
                        source: self.source.clone(),
                        kept: self.kept.clone(),
                        key,
                        progress: self.progress.clone(),
                    };
                    self.job = Some(obtaining.run().boxed());
                }
                RenewalAction::Notify(notice) => self.report_notice(&notice),
            }
        }
        self.publish();
    }

    /// Checks whether the served certificate was issued under a published trust anchor of its
    /// signer, and by which authority. `None` if the same was checked before.
    fn check_anchors(&mut self) -> Option<RenewalEvent> {
        let current = self.kept.current.as_ref()?;
        let signer = &self.source.wanted.source.signer;
        let anchors = self.certificates.anchors(signer);
        let digest = anchors.as_ref().map(TrustAnchors::digest);
        let taints = self.certificates.setup.bundles.borrow().taints(signer);
        if let Some((certificate, against, tainted)) = &self.judged
            && Arc::ptr_eq(certificate, current)
            && (against, tainted) == (&digest, &taints)
        {
            return None;
        }
        let volume = self.source.id.volume.to_string();
        let is_anchored = anchors.is_none_or(|anchors| is_issued_under(&current.chain, &anchors));
        let renewal = if is_anchored { taint_renewal(&current.chain, &taints) } else { None };
        self.judged = Some((current.clone(), digest, taints));
        if let Some(at) = renewal {
            let at_text = clock::text(at);
            tracing::info!(
                volume,
                signer,
                at = at_text,
                "certificate was issued by a tainted authority; renewing it"
            );
            return Some(RenewalEvent::Tainted(at));
        }
        if is_anchored {
            return Some(RenewalEvent::Anchored);
        }
        tracing::warn!(
            volume,
            signer,
            "certificate was issued under no published trust anchor of its signer; renewing it"
        );
        Some(RenewalEvent::Orphaned)
    }

    fn finish_job(&mut self, obtained: IssuanceOutcome) -> RenewalEvent {
        match obtained {
            IssuanceOutcome::Issued { current, saved } => {
                self.kept = CertificateState { current: Some(current.clone()), begun: None };
                self.unsaved = !saved;
                RenewalEvent::Issued(current.times)
            }
            IssuanceOutcome::Failed(event) => event,
            IssuanceOutcome::Taken(event) => {
                self.kept.begun = None;
                event
            }
        }
    }

    /// Publishes the served certificate, and notifies the volume manager if it changed.
    fn publish(&self) {
        let current = self.kept.current.clone();
        let shown = PublishedCertificate {
            reason: self.machine.reason().to_owned(),
            refuser: self.machine.refusal_kind(),
            current,
            off: false,
        };
        if self.source.publish(shown) {
            // A dropped receiver needs no notification.
            let wake = SourceChange::Volume(self.source.id.volume.clone());
            let _ = self.certificates.setup.wakes.send(wake);
        }
    }

    fn report_notice(&self, notice: &RenewalNotice) {
        let all = &self.certificates;
        let (regarding, event) = event_writer::event_from_notice(&self.source, &all.setup.node, notice);
        let (volume, reason) = (self.source.id.volume.to_string(), &event.reason);
        tracing::warn!(volume, reason, "{}", event.note);
        // Events beyond the capacity of the queue are dropped.
        let _ = all.notices.try_send((regarding, event));
    }

    /// Retries a failed save of the state.
    async fn save_late(&mut self) {
        if self.unsaved && self.job.is_none() {
            let saved = save(&self.certificates, &self.source, self.kept.clone()).await;
            self.unsaved = saved.is_err();
        }
    }
}

/// Returns whether the signatures of a chain lead to one of these anchors. Unreadable certificates
/// are ignored.
fn is_issued_under(chain: &str, anchors: &TrustAnchors) -> bool {
    let Ok(chain) = parse_certificate_blocks(chain.as_bytes()) else { return true };
    let anchors = anchors.der().filter_map(|der| ForeignCertificate::from_der(der).ok());
    leads_to_anchor(&chain, &anchors.collect::<Vec<_>>())
}

/// Returns when to renew a certificate because of its authority; `None` if that is not tainted.
fn taint_renewal(chain: &str, taints: &TaintedAuthorities) -> Option<OffsetDateTime> {
    if taints.is_empty() {
        return None;
    }
    let chain = parse_certificate_blocks(chain.as_bytes()).ok()?;
    renewal_of(chain.first()?, taints)
}

/// Waits until the published bundles change.
async fn changed(bundles: &mut watch::Receiver<Arc<BundleView>>) {
    if bundles.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Waits for the result of the job; pending if there is none.
async fn await_job(job: &mut Option<BoxFuture<'static, IssuanceOutcome>>) -> IssuanceOutcome {
    match job {
        Some(job) => Pin::new(job).await,
        None => std::future::pending().await,
    }
}
