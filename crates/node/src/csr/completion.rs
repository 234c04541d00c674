//! Waiting for a certificate.

use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::certificates::v1::CertificateSigningRequestCondition as Condition;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, timeout};
use windlass_client_error::describe;

use super::{CsrObject, PATIENCE, SubmittedCsr, explain};

/// How often to look beside the watch, which may be cut off without anybody saying so.
const LOOK: Duration = Duration::from_secs(60);
/// How often to look for those who may not watch.
const LOOK_ONLY: Duration = Duration::from_secs(5);

/// How waiting for a CertificateSigningRequest ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CsrOutcome {
    /// There is a certificate: this text.
    Issued(Vec<u8>),
    /// Somebody does not want it to have one.
    Denied(String),
    /// The signer does not want it to have one.
    Failed(String),
    /// It was deleted, or another one has its name.
    Gone(&'static str),
    /// The server does not know us any more.
    Unauthorized(String),
    /// It was not decided in time; this is what it waited for.
    TimedOut(CsrStage),
}

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CsrStage {
    /// Somebody has to approve it.
    Approval,
    /// The signer has to sign it.
    Signature,
}

impl CsrStage {
    /// What it waits for, in words.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Approval => "to be approved",
            Self::Signature => "to be signed",
        }
    }
}

/// Waits until a request has ended, through everything that may happen to a server.
pub async fn wait_for_completion(
    client: &Client,
    asked: &SubmittedCsr,
    patience: Duration,
    mut on: impl FnMut(CsrStage),
) -> CsrOutcome {
    let mut stage = CsrStage::Approval;
    let follow = watch_until_complete(client, asked, |now| {
        stage = now;
        on(now);
    });
    match timeout(patience, follow).await {
        Ok(outcome) => outcome,
        Err(_) => CsrOutcome::TimedOut(stage),
    }
}

async fn watch_until_complete(
    client: &Client,
    asked: &SubmittedCsr,
    mut on: impl FnMut(CsrStage),
) -> CsrOutcome {
    let api: Api<CsrObject> = Api::all(client.clone());
    let only = watcher::Config::default().fields(&format!("metadata.name={}", asked.name));
    let mut events = watcher(api.clone(), only).default_backoff().boxed();
    let (mut looks, mut may_watch, mut seen) = (every(LOOK), true, false);
    loop {
        let found = tokio::select! {
            event = events.next(), if may_watch => match event {
                Some(Ok(Event::Init)) => {
                    seen = false;
                    continue;
                }
                Some(Ok(Event::InitApply(request) | Event::Apply(request))) => {
                    seen = true;
                    Some(request)
                }
                Some(Ok(Event::InitDone)) if seen => continue,
                Some(Ok(Event::InitDone)) => None,
                // Whether it was ours that was deleted is known by its uid.
                Some(Ok(Event::Delete(gone))) if is_same_request(&gone, asked) => None,
                Some(Ok(Event::Delete(_))) => continue,
                Some(Err(error)) => match refusal(&error) {
                    Some(WatchRefusal::Unauthorized(why)) => return CsrOutcome::Unauthorized(why),
                    Some(WatchRefusal::Forbidden) => {
                        (may_watch, looks) = (false, every(LOOK_ONLY));
                        continue;
                    }
                    None => {
                        let error = describe(&error);
                        tracing::debug!(request = asked.name, error, "watch ended; resuming");
                        continue;
                    }
                },
                None => {
                    (may_watch, looks) = (false, every(LOOK_ONLY));
                    continue;
                }
            },
            _ = looks.tick() => match timeout(PATIENCE, api.get_opt(&asked.name)).await {
                Ok(Ok(found)) => found,
                Ok(Err(kube::Error::Api(status))) if status.code == 401 => {
                    return CsrOutcome::Unauthorized(explain(&kube::Error::Api(status)));
                }
                Ok(Err(_)) | Err(_) => continue,
            },
        };
        match evaluate(found.as_ref(), asked) {
            Ok(outcome) => return outcome,
            Err(stage) => on(stage),
        }
    }
}

/// How a request has ended, or what it waits for. As for Kubernetes, conditions count by being
/// there, and a certificate without approval is none.
fn evaluate(found: Option<&CsrObject>, asked: &SubmittedCsr) -> Result<CsrOutcome, CsrStage> {
    let Some(found) = found else { return Ok(CsrOutcome::Gone("it was deleted")) };
    if !is_same_request(found, asked) {
        return Ok(CsrOutcome::Gone("it was replaced by another one"));
    }
    let status = found.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let said = |kind: &str| conditions.iter().find(|condition| condition.type_ == kind);
    if let Some(denied) = said("Denied") {
        return Ok(CsrOutcome::Denied(condition_message(denied)));
    }
    if let Some(failed) = said("Failed") {
        return Ok(CsrOutcome::Failed(condition_message(failed)));
    }
    if said("Approved").is_none() {
        return Err(CsrStage::Approval);
    }
    match status.and_then(|status| status.certificate.as_ref()) {
        Some(text) if !text.0.is_empty() => Ok(CsrOutcome::Issued(text.0.clone())),
        _ => Err(CsrStage::Signature),
    }
}

fn is_same_request(found: &CsrObject, asked: &SubmittedCsr) -> bool {
    found.metadata.uid.as_deref().unwrap_or_default() == asked.uid
}

fn condition_message(condition: &Condition) -> String {
    let parts = [&condition.reason, &condition.message];
    let parts = parts.into_iter().flatten().map(|part| part.lines().next().unwrap_or_default());
    let parts = parts.filter(|part| !part.is_empty()).collect::<Vec<_>>();
    if parts.is_empty() { "no reason is given".to_owned() } else { parts.join(": ") }
}

/// Why a watch cannot begin, where trying again does not help.
enum WatchRefusal {
    Unauthorized(String),
    Forbidden,
}

fn refusal(error: &watcher::Error) -> Option<WatchRefusal> {
    let (watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) =
        error
    else {
        return None;
    };
    match error {
        kube::Error::Api(status) if status.code == 401 => {
            Some(WatchRefusal::Unauthorized(explain(error)))
        }
        kube::Error::Api(status) if status.code == 403 => Some(WatchRefusal::Forbidden),
        _ => None,
    }
}

/// Not at once, and not more often after a pause.
fn every(period: Duration) -> Interval {
    let mut interval = interval_at(Instant::now() + period, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}
