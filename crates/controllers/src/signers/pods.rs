//! Signs pods' requests for certificates: it says who the pod is, and which services it stands
//! behind.
//!
//! A request is answered by one write of the object that the watch brought, which the server
//! refuses if it is no longer that, or has an answer. So there are no two certificates for one
//! request. One that has to wait cannot say why itself; an event does.

mod decide;
mod names;
mod request;
mod times;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{ListParams, PostParams};
use kube::core::ApiResource;
use kube::{Api, Client, Resource as _, ResourceExt as _};
use tokio::time::Instant;

use super::CustomSigner;
use super::config::PodProfile;
use super::rollout::{CaRollout, Held};
use crate::ca::{self, CaSource};
use crate::metrics::POD_SIGNING;
use crate::namespaced::Namespaced;
use crate::notices::{Notice, Notices};
use crate::options::Clock;
use crate::pool::{self, Next};
use crate::queue::{Backoff, Queue};
use crate::requests::{is_conflict, settled};
use crate::sign::counts::{self, Counts};
use crate::waiting::{self, Found, Waiting, Watched};

use decide::{Answer, Why, World, decide};
use request::{Request, Spec, is_pending, issued, refused, signer_name};

/// Requests that are answered at the same time.
const WORKERS: usize = 16;
/// A request that nobody answers is removed after a quarter of an hour, so this ends well before.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(60));

/// Runs those of these signers that sign for pods, on the version of the API that `resource` is of;
/// does not end.
pub async fn run(client: Client, resource: ApiResource, signers: Vec<CustomSigner>, clock: Clock) {
    sign(client, resource, signers, clock, BACKOFF).await;
}

async fn sign(
    client: Client,
    resource: ApiResource,
    signers: Vec<CustomSigner>,
    clock: Clock,
    backoff: Backoff,
) {
    let issuers: Vec<Issuer> = signers.into_iter().filter_map(Issuer::of).collect();
    if issuers.is_empty() {
        return std::future::pending().await;
    }
    for Issuer { name, ca, .. } in &issuers {
        ca::report(name, ca);
    }
    let queue = Arc::new(Queue::new(&POD_SIGNING, backoff));
    // Fields can be asked for one value only.
    let fields = match issuers.as_slice() {
        [only] => Some(format!("spec.signerName={}", only.name)),
        _ => None,
    };
    let api = Api::all_with(client.clone(), &resource);
    let signing = Arc::new(Signing {
        pending: Waiting::default(),
        notices: Notices::new(client.clone(), "podcertificatesigning"),
        client,
        resource,
        issuers,
        clock,
    });
    let watched = Watched {
        api,
        plural: "podcertificaterequests",
        fields: fields.as_deref(),
        counters: &POD_SIGNING,
    };
    let signer = |request: &Request| {
        let issuer = signing.issuer(request).filter(|_| is_pending(request));
        issuer.map(|issuer| issuer.name.clone())
    };
    let watch = waiting::follow(watched, &signing.pending, &queue, Namespaced::of, signer);
    let wakers = signing.issuers.iter().flat_map(|each| {
        let wake = |changes| waiting::wake(&signing.pending, &each.name, changes, &queue);
        [each.ca.changes(), each.rollout.changes()].map(wake)
    });
    let reconcile = |key: Namespaced| signing.clone().reconcile(key);
    tokio::join!(watch, join_all(wakers), pool::work(queue.clone(), WORKERS, reconcile));
}

/// A signer that signs for pods.
struct Issuer {
    name: String,
    profile: PodProfile,
    ca: Arc<CaSource>,
    rollout: Arc<CaRollout>,
    counts: Arc<Counts>,
}

impl Issuer {
    fn of(signer: CustomSigner) -> Option<Issuer> {
        let CustomSigner { custom, ca, rollout } = signer;
        let (name, profile) = (custom.name.to_string(), custom.pods?);
        let counts = counts::of(&name);
        Some(Issuer { name, profile, ca, rollout, counts })
    }
}

struct Signing {
    pending: Waiting<Namespaced, Request>,
    notices: Notices,
    client: Client,
    resource: ApiResource,
    issuers: Vec<Issuer>,
    clock: Clock,
}

impl Signing {
    fn issuer(&self, request: &Request) -> Option<&Issuer> {
        let name = signer_name(request);
        self.issuers.iter().find(|each| each.name == name)
    }

    async fn reconcile(self: Arc<Self>, key: Namespaced) -> anyhow::Result<Next> {
        let Some(Found { object, since }) = self.pending.get(&key) else { return Ok(Next::Done) };
        let request = match object {
            Some(request) => request,
            None => match self.api(&self.resource, &key).get_opt(&key.name).await? {
                Some(request) => Arc::new(request),
                None => return Ok(Next::Done),
            },
        };
        match self.answer(&key, &request, since).await {
            // Somebody was faster than the watch.
            Err(error) if is_conflict(&error) => {}
            answered => return settled(answered),
        }
        match self.api(&self.resource, &key).get_opt(&key.name).await? {
            Some(request) => settled(self.answer(&key, &request, since).await),
            None => Ok(Next::Done),
        }
    }

    async fn answer(
        &self,
        key: &Namespaced,
        request: &Request,
        since: Instant,
    ) -> Result<Next, kube::Error> {
        let Some(issuer) = self.issuer(request) else { return Ok(Next::Done) };
        let (counts, now) = (&issuer.counts, (self.clock)());
        let answer = self.decide(key, request, issuer).await?;
        if answer != Answer::Nothing {
            counts.requests.fetch_add(1, Relaxed);
        }
        let (write, refusal) = match &answer {
            Answer::Nothing => return Ok(Next::Done),
            Answer::Issued { chain, times } => (issued(request, chain, times, now), false),
            Answer::Denied(why) => (refused(request, "Denied", why, now), true),
            Answer::Failed(why) => (refused(request, "Failed", why, now), true),
            Answer::Delayed(why) => return Ok(self.put_off(key, request, issuer, why).await),
        };
        match self.write(key, &write).await {
            Ok(()) if refusal => {
                counts.failed.fetch_add(1, Relaxed);
                Ok(Next::Done)
            }
            Ok(()) => {
                counts.issued.fetch_add(1, Relaxed);
                counts.took(since.elapsed());
                Ok(Next::Done)
            }
            // Clocks differ, or nobody allowed this signer to sign: that has to be known.
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 422) => {
                let why = Why { reason: "AnswerRefused", message: status.message.clone() };
                Ok(self.put_off(key, request, issuer, &why).await)
            }
            Err(error) => Err(error),
        }
    }

    async fn decide(
        &self,
        key: &Namespaced,
        request: &Request,
        issuer: &Issuer,
    ) -> Result<Answer, kube::Error> {
        if !is_pending(request) {
            return Ok(Answer::Nothing);
        }
        let whole = self.whole(key, request).await?;
        let world = match self.world(key, request, &issuer.profile).await {
            Ok(world) => world,
            Err(kube::Error::Api(status)) => {
                let why = Why { reason: "PodUnreadable", message: status.message.clone() };
                return Ok(Answer::Delayed(why));
            }
            Err(error) => return Err(error),
        };
        let now = (self.clock)();
        Ok(match issuer.rollout.choose(now) {
            Ok(ca) => decide(&whole, &issuer.profile, &world, &ca, now),
            Err(Held { reason, message }) => Answer::Delayed(Why { reason, message }),
        })
    }

    /// The request with its key. Version 1 does not show the older form of proof, the one before
    /// it does.
    async fn whole<'a>(
        &self,
        key: &Namespaced,
        request: &'a Request,
    ) -> Result<Cow<'a, Request>, kube::Error> {
        let has_key = Spec::of(request).map_or(true, |spec| spec.has_key());
        if has_key || self.resource.version != "v1" {
            return Ok(Cow::Borrowed(request));
        }
        let mut older = self.resource.clone();
        older.version = "v1beta1".into();
        older.api_version = format!("{}/{}", older.group, older.version);
        let found = self.api(&older, key).get_opt(&key.name).await?;
        let same = found.filter(|found| found.metadata.uid == request.metadata.uid);
        Ok(same.map_or(Cow::Borrowed(request), Cow::Owned))
    }

    /// The pod of a request and, if they are to name it, the services of its namespace.
    async fn world(
        &self,
        key: &Namespaced,
        request: &Request,
        profile: &PodProfile,
    ) -> Result<World, kube::Error> {
        let Ok(Spec { pod_name, .. }) = Spec::of(request) else { return Ok(World::default()) };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let pod = pods.get_opt(&pod_name).await?;
        if profile.service_names.is_none() || pod.is_none() {
            return Ok(World { pod, services: Vec::new() });
        }
        let services: Api<Service> = Api::namespaced(self.client.clone(), &key.namespace);
        let services = services.list(&ListParams::default()).await?.items;
        Ok(World { pod, services })
    }

    /// Says why a request waits, once for each reason.
    async fn put_off(
        &self,
        key: &Namespaced,
        request: &Request,
        issuer: &Issuer,
        why: &Why,
    ) -> Next {
        issuer.counts.delayed.fetch_add(1, Relaxed);
        let Why { reason, message } = why;
        if self.pending.tell(key, &format!("{reason}: {message}")) {
            tracing::warn!(request = %key, reason, message, "cannot sign a request; trying again");
            let notice = Notice { action: "Signing", reason, note: message };
            let regarding = request.object_ref(&self.resource);
            self.notices.warn_about(regarding, notice, (self.clock)()).await;
        }
        Next::Wait(message.clone())
    }

    async fn write(&self, key: &Namespaced, request: &Request) -> Result<(), kube::Error> {
        let (api, params) = (self.api(&self.resource, key), PostParams::default());
        api.replace_status(&request.name_any(), &params, request).await.map(drop)
    }

    fn api(&self, resource: &ApiResource, key: &Namespaced) -> Api<Request> {
        Api::namespaced_with(self.client.clone(), &key.namespace, resource)
    }
}

#[cfg(test)]
mod tests;
