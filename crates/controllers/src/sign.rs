//! The signers, Kubernetes' own and the user's: they answer approved requests with a certificate, or
//! say why there is none.
//!
//! A request is answered by one write of the object that the watch brought, which the server
//! refuses if it is no longer that. So there are no two certificates for one request, and none
//! without an approval that was there before.

pub(crate) mod counts;
mod decide;
mod policy;
mod terms;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::ByteString;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::Instant;
use windlass_api::field::{Errors, Path as FieldPath};
use windlass_api::signer_name::SignerName;

use crate::ca::{self, CaSource};
use crate::metrics::SIGNING;
use crate::notices::{Notice, Notices};
use crate::options::Clock;
use crate::pool::{self, Next};
use crate::queue::{Backoff, Queue};
use crate::requests::{
    self, FAILED, Pending, Request, Requests, condition, is_conflict, is_true, settled,
    with_condition, without_condition,
};

use crate::signers::CustomSigner;
use crate::signers::config::{CaChoice, Custom, Publication};
use crate::signers::rollout::{CaRollout, Held};
use crate::waiting;

use counts::Counts;
use decide::{Answer, Delay, decide, is_waiting};
use terms::Terms;

pub use counts::metrics;
pub use policy::Signer;

/// Requests that are answered at the same time.
const WORKERS: usize = 16;
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(300));

/// The condition that says why an approved request has no certificate yet. It goes when there is
/// one.
pub const DELAYED: &str = "windlass.dev/SigningDelayed";

/// A signer and what it signs with.
#[derive(Clone)]
pub struct BuiltIn {
    /// Which one it is.
    pub signer: Signer,
    /// Its certificate and key; somebody else keeps them current.
    pub ca: Arc<CaSource>,
}

/// A signer and the files of its CA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignerFiles {
    /// Which one it is.
    pub signer: Signer,
    /// Its CA's certificate.
    pub certificate: PathBuf,
    /// The certificate's key.
    pub key: PathBuf,
}

/// Reads the signers' files. A signer whose files are bad is degraded until they are good; the
/// others work. Signers with the same files share what is read. Reads from disk: not for async code.
pub fn open(files: &[SignerFiles], clock: &Clock) -> Vec<BuiltIn> {
    let mut opened: Vec<(&SignerFiles, Arc<CaSource>)> = Vec::new();
    for each in files {
        let same = opened
            .iter()
            .find(|(other, _)| (&other.certificate, &other.key) == (&each.certificate, &each.key));
        let ca = match same {
            Some((_, ca)) => ca.clone(),
            None => CaSource::files(each.certificate.clone(), each.key.clone(), clock.clone()),
        };
        opened.push((each, ca));
    }
    opened.into_iter().map(|(each, ca)| BuiltIn { signer: each.signer, ca }).collect()
}

/// What the signers sign with, each once.
pub fn sources(signers: &[BuiltIn]) -> Vec<Arc<CaSource>> {
    let mut sources: Vec<Arc<CaSource>> = Vec::new();
    for BuiltIn { ca, .. } in signers {
        if !sources.iter().any(|source| Arc::ptr_eq(source, ca)) {
            sources.push(ca.clone());
        }
    }
    sources
}

/// What publishes the CA of kubelets' serving certificates, as that of a custom signer: no other
/// published bundle lets clients verify kubelets.
pub fn kubelet_serving_anchors(signers: &[BuiltIn]) -> Option<CustomSigner> {
    let BuiltIn { signer, ca } =
        signers.iter().find(|each| each.signer == Signer::KubeletServing)?;
    let name = SignerName::parse(&FieldPath::new("name"), signer.name(), &mut Errors::new())?;
    let bundle = format!("{}anchors", name.bundle_prefix());
    let custom = Custom {
        name,
        ca: CaChoice::Files { certificate: ca.certificate_file().to_owned(), key: PathBuf::new() },
        requests: None,
        pods: None,
        publish: Some(Publication { bundle, labels: BTreeMap::new() }),
    };
    Some(CustomSigner::new(custom, ca.clone()))
}

/// Says which of Kubernetes' own signers do not sign.
pub fn tell_missing(signers: &[BuiltIn]) {
    for signer in Signer::ALL {
        if !signers.iter().any(|each| each.signer == signer) {
            tracing::info!(signer = signer.name(), "no CA is given; it does not sign");
        }
    }
}

/// Runs these signers; does not end. No certificate of Kubernetes' own lasts longer than `longest`.
pub async fn run(
    client: Client,
    built_in: Vec<BuiltIn>,
    longest: Duration,
    custom: Vec<CustomSigner>,
    clock: Clock,
) {
    let own = built_in.into_iter().map(|BuiltIn { signer, ca }| {
        Issuer::new(signer.name(), ca, Terms::BuiltIn { signer, longest })
    });
    let custom = custom.into_iter().filter_map(|CustomSigner { custom, ca, rollout }| {
        let terms = Terms::Custom(Box::new(custom.requests?));
        let issuer = Issuer::new(custom.name.as_str(), ca, terms);
        Some(Issuer { rollout: Some(rollout), ..issuer })
    });
    sign(client, own.chain(custom).collect(), clock, BACKOFF).await;
}

/// Somebody who signs.
struct Issuer {
    name: String,
    ca: Arc<CaSource>,
    /// Which CA signs while it is replaced; `None` if every new one does at once.
    rollout: Option<Arc<CaRollout>>,
    terms: Terms,
    counts: Arc<Counts>,
}

impl Issuer {
    fn new(name: &str, ca: Arc<CaSource>, terms: Terms) -> Issuer {
        Issuer { name: name.to_owned(), ca, rollout: None, terms, counts: counts::of(name) }
    }

    /// What it answers now.
    fn answer(&self, request: &Request, now: OffsetDateTime) -> Answer {
        let ca = match &self.rollout {
            None => match self.ca.current() {
                Some(ca) => ca,
                None if is_waiting(request) => {
                    return Answer::Delayed(Delay::unavailable(&self.ca));
                }
                None => return Answer::Nothing,
            },
            Some(rollout) => match rollout.choose(now) {
                Ok(ca) => ca,
                Err(Held { reason, message }) if is_waiting(request) => {
                    return Answer::Delayed(Delay { reason, message });
                }
                Err(_) => return Answer::Nothing,
            },
        };
        decide(request, &self.name, &self.terms, &ca, now)
    }

    /// Count changes of what it signs with.
    fn changes(&self) -> impl Iterator<Item = watch::Receiver<u64>> {
        let of_rollout = self.rollout.as_ref().map(|rollout| rollout.changes());
        std::iter::once(self.ca.changes()).chain(of_rollout)
    }
}

async fn sign(client: Client, issuers: Vec<Issuer>, clock: Clock, backoff: Backoff) {
    for Issuer { name, ca, .. } in &issuers {
        ca::report(name, ca);
    }
    if issuers.is_empty() {
        return std::future::pending().await;
    }
    let queue = Arc::new(Queue::new(&SIGNING, backoff));
    let signing = Arc::new(Signing {
        requests: Requests::default(),
        api: Api::all(client.clone()),
        notices: Notices::new(client.clone(), "csrsigning"),
        issuers,
        clock,
    });
    let wanted = |request: &Request| is_waiting(request) && signing.issuer(request).is_some();
    let watch = requests::follow(client, &SIGNING, &signing.requests, &queue, wanted);
    let wakers = signing.issuers.iter().flat_map(|each| {
        let wake = |changes| waiting::wake(&signing.requests, &each.name, changes, &queue);
        each.changes().map(wake)
    });
    let reconcile = |name: String| signing.clone().reconcile(name);
    tokio::join!(watch, join_all(wakers), pool::work(queue.clone(), WORKERS, reconcile));
}

struct Signing {
    requests: Requests,
    api: Api<Request>,
    notices: Notices,
    issuers: Vec<Issuer>,
    clock: Clock,
}

impl Signing {
    fn issuer(&self, request: &Request) -> Option<&Issuer> {
        self.issuers.iter().find(|each| each.name == request.spec.signer_name)
    }

    async fn reconcile(self: Arc<Self>, name: String) -> anyhow::Result<Next> {
        let Some(Pending { request, since }) =
            requests::read(&self.requests, &self.api, &name).await?
        else {
            return Ok(Next::Done);
        };
        match self.answer(&request, since).await {
            // Somebody was faster than the watch.
            Err(error) if is_conflict(&error) => {}
            answered => return settled(answered),
        }
        match self.api.get_opt(&name).await? {
            Some(request) => settled(self.answer(&request, since).await),
            None => Ok(Next::Done),
        }
    }

    async fn answer(&self, request: &Request, since: Instant) -> Result<Next, kube::Error> {
        let Some(issuer) = self.issuer(request) else { return Ok(Next::Done) };
        let (counts, now) = (&issuer.counts, (self.clock)());
        let answer = issuer.answer(request, now);
        if answer != Answer::Nothing {
            counts.requests.fetch_add(1, Relaxed);
        }
        match answer {
            Answer::Nothing => {}
            Answer::Certificate(text) => {
                let mut answered = without_condition(request, DELAYED);
                let status = answered.status.get_or_insert_default();
                status.certificate = Some(ByteString(text.into_bytes()));
                self.write(&answered).await?;
                counts.issued.fetch_add(1, Relaxed);
                counts.took(since.elapsed());
            }
            Answer::Refused(message) => {
                let failed = is_true(FAILED, "SignerValidationFailure", &message, now);
                self.write(&with_condition(request, failed, DELAYED)).await?;
                counts.failed.fetch_add(1, Relaxed);
            }
            Answer::Delayed(delay) => {
                counts.delayed.fetch_add(1, Relaxed);
                self.tell(request, &delay).await?;
                return Ok(Next::Wait(delay.message));
            }
        }
        Ok(Next::Done)
    }

    /// Says on the request why it waits, once for each reason.
    async fn tell(&self, request: &Request, delay: &Delay) -> Result<(), kube::Error> {
        let Delay { reason, message } = delay;
        let told = condition(request, DELAYED).is_some_and(|told| {
            told.reason.as_deref() == Some(*reason) && told.message.as_ref() == Some(message)
        });
        if told {
            return Ok(());
        }
        let now = (self.clock)();
        let delayed = is_true(DELAYED, reason, message, now);
        self.write(&with_condition(request, delayed, DELAYED)).await?;
        let notice = Notice { action: "Signing", reason, note: message };
        self.notices.warn(request, notice, now).await;
        Ok(())
    }

    async fn write(&self, request: &Request) -> Result<(), kube::Error> {
        let name = request.name_any();
        self.api.replace_status(&name, &PostParams::default(), request).await.map(drop)
    }
}

#[cfg(test)]
mod tests;
