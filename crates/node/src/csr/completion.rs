//! Waits for the completion of a CertificateSigningRequest.

use std::time::Duration;

use kube::{Api, Client, ResourceExt};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, timeout};
use windlass_runtime::client_error::describe;
use windlass_runtime::csr::{self, CsrState};
use windlass_runtime::watch::{ListTracker, ObjectWatch, TrackedEvent};

use super::{CsrObject, PATIENCE, SubmittedCsr};

/// Interval of polls beside the watch, whose connection may be cut without notice.
const POLL_INTERVAL: Duration = Duration::from_secs(60);
/// Interval of polls for clients that may not watch.
const POLL_ONLY_INTERVAL: Duration = Duration::from_secs(5);

/// How waiting for a CertificateSigningRequest ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CsrOutcome {
    /// The issued certificate chain as PEM.
    Issued(Vec<u8>),
    /// An approver denied the request, with this message.
    Denied(String),
    /// The signer failed the request, with this message.
    Failed(String),
    /// The request was deleted or replaced by a namesake.
    Gone(&'static str),
    /// The server no longer accepts our credential.
    Unauthorized(String),
    /// Not decided in time; this is what it waited for.
    TimedOut(CsrStage),
}

/// What a pending request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CsrStage {
    /// An approver has to approve it.
    Approval,
    /// The signer has to issue the certificate.
    Signature,
}

impl CsrStage {
    /// Returns what it waits for, for people.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Approval => "to be approved",
            Self::Signature => "to be signed",
        }
    }
}

/// Waits for the completion of a request, through errors and restarts of the server.
pub async fn wait_for_completion(
    client: &Client,
    submitted: &SubmittedCsr,
    patience: Duration,
    mut on_stage: impl FnMut(CsrStage),
) -> CsrOutcome {
    let mut stage = CsrStage::Approval;
    let follow = watch_until_complete(client, submitted, |now| {
        stage = now;
        on_stage(now);
    });
    match timeout(patience, follow).await {
        Ok(outcome) => outcome,
        Err(_) => CsrOutcome::TimedOut(stage),
    }
}

async fn watch_until_complete(
    client: &Client,
    submitted: &SubmittedCsr,
    mut on_stage: impl FnMut(CsrStage),
) -> CsrOutcome {
    let api: Api<CsrObject> = Api::all(client.clone());
    let name = submitted.name.as_str();
    let mut watch = ObjectWatch::with_fields(api.clone(), Some(&format!("metadata.name={name}")));
    let mut list = ListTracker::default();
    let (mut polls, mut may_watch) = (every(POLL_INTERVAL), true);
    loop {
        let found = tokio::select! {
            event = watch.next(), if may_watch => match event {
                Ok(event) => match list.track(event, ResourceExt::name_any) {
                    Some(TrackedEvent::Applied(_, found)) => Some(found),
                    Some(TrackedEvent::Listed(names)) if names.is_empty() => None,
                    // A namesake may have been deleted; the UID identifies the request.
                    Some(TrackedEvent::Deleted(_, gone)) if is_same_request(&gone, submitted) => None,
                    Some(TrackedEvent::Listed(_) | TrackedEvent::Deleted(..)) | None => continue,
                },
                Err(error) if error.status == Some(401) && !error.was_established => {
                    return CsrOutcome::Unauthorized(error.message);
                }
                Err(error) => {
                    if error.status == Some(403) && !error.was_established {
                        (may_watch, polls) = (false, every(POLL_ONLY_INTERVAL));
                    }
                    tracing::debug!(request = name, %error, "watch ended");
                    continue;
                }
            },
            _ = polls.tick() => match timeout(PATIENCE, api.get_opt(name)).await {
                Ok(Ok(found)) => found,
                Ok(Err(error @ kube::Error::Api(_))) if is_unauthorized(&error) => {
                    return CsrOutcome::Unauthorized(describe(&error));
                }
                Ok(Err(_)) | Err(_) => continue,
            },
        };
        match evaluate(found.as_ref(), submitted) {
            Ok(outcome) => return outcome,
            Err(stage) => on_stage(stage),
        }
    }
}

fn is_unauthorized(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 401)
}

/// Returns the outcome of a request, or what it waits for.
fn evaluate(found: Option<&CsrObject>, submitted: &SubmittedCsr) -> Result<CsrOutcome, CsrStage> {
    let Some(found) = found else { return Ok(CsrOutcome::Gone("it was deleted")) };
    if !is_same_request(found, submitted) {
        return Ok(CsrOutcome::Gone("it was replaced by another one"));
    }
    match csr::state(found) {
        CsrState::Pending => Err(CsrStage::Approval),
        CsrState::Approved => Err(CsrStage::Signature),
        CsrState::Denied(condition) => Ok(CsrOutcome::Denied(csr::describe_condition(condition))),
        CsrState::Failed(condition) => Ok(CsrOutcome::Failed(csr::describe_condition(condition))),
        CsrState::Issued(chain) => Ok(CsrOutcome::Issued(chain.to_owned())),
    }
}

fn is_same_request(found: &CsrObject, submitted: &SubmittedCsr) -> bool {
    found.metadata.uid.as_deref().unwrap_or_default() == submitted.uid
}

/// Ticks after each period, without catching up on missed ticks.
fn every(period: Duration) -> Interval {
    let mut interval = interval_at(Instant::now() + period, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}
