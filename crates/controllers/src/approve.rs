//! Approves what nodes ask for: client certificates of those that may have them, as
//! kube-controller-manager does, and, if told to, serving certificates for a node's own addresses.
//! And what is asked of the user's own signers, if their file says so.
//!
//! Nothing is ever denied here. A request that may not be approved stays for somebody else to
//! decide, and is looked at again more and more rarely.

mod custom;
mod reserved;
mod serving;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::Node;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};
use windlass_pki::CertificateRequest;

use crate::metrics::APPROVING;
use crate::notices::{Notice, Notices};
use crate::options::Clock;
use crate::pool::{self, Next};
use crate::queue::{Backoff, Queue};
use crate::requests::{
    self, APPROVED, Condition, DENIED, Request, Requests, condition, has_certificate, is_conflict,
    is_gone, is_true, with_condition,
};
use crate::sign::Signer;
use crate::signers::CustomSigner;

pub use reserved::Reserved;

const WORKERS: usize = 16;
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(120));

/// The condition that says why a request is not approved though it is of a sort that is.
pub const DELAYED: &str = "windlass.dev/ApprovalDelayed";

/// Whose requests are looked at.
#[derive(Clone, Default)]
pub struct Approvals {
    /// Those of nodes for client certificates.
    pub kubelet_client: bool,
    /// Those of nodes for serving certificates.
    pub kubelet_serving: bool,
    /// Names that no serving certificate of a node is approved for.
    pub reserved: Reserved,
    /// Those of the user's own signers that approve by themselves.
    pub custom: Vec<CustomSigner>,
}

/// Runs the loop; does not end.
pub async fn run(client: Client, approvals: Approvals, clock: Clock) {
    let queue = Arc::new(Queue::new(&APPROVING, BACKOFF));
    let approving = Arc::new(Approving {
        requests: Requests::default(),
        api: Api::all(client.clone()),
        reviews: Api::all(client.clone()),
        nodes: Api::all(client.clone()),
        notices: Notices::new(client.clone(), "csrapproving"),
        clock,
        approvals,
    });
    let wanted = |request: &Request| {
        is_undecided(request) && approving.approvals.kind(request) != Kind::Foreign
    };
    let watch = requests::follow(client, &APPROVING, &approving.requests, &queue, wanted);
    let reconcile = |name: String| approving.clone().reconcile(name);
    tokio::join!(watch, pool::work(queue.clone(), WORKERS, reconcile));
}

/// Whose request it is, as far as it is looked at here.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind<'a> {
    KubeletClient,
    KubeletServing,
    /// Of a signer of the user's own that approves by itself.
    Custom(custom::Rules<'a>),
    /// Somebody else decides.
    Foreign,
}

impl Approvals {
    fn kind(&self, request: &Request) -> Kind<'_> {
        let name = &request.spec.signer_name;
        match Signer::named(name) {
            Some(Signer::KubeletClient) if self.kubelet_client => Kind::KubeletClient,
            Some(Signer::KubeletServing) if self.kubelet_serving => Kind::KubeletServing,
            Some(_) => Kind::Foreign,
            None => {
                let signer = self.custom.iter().find(|each| each.custom.name.as_str() == name);
                signer.and_then(custom::Rules::of).map_or(Kind::Foreign, Kind::Custom)
            }
        }
    }
}

fn is_undecided(request: &Request) -> bool {
    !has_certificate(request)
        && condition(request, APPROVED).is_none()
        && condition(request, DENIED).is_none()
}

/// What somebody must be allowed to do for a request of theirs to be approved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Permission {
    /// A node asks in its own name.
    SelfNodeClient,
    /// Somebody asks in a node's name.
    NodeClient,
}

impl Permission {
    const fn subresource(self) -> &'static str {
        match self {
            Permission::SelfNodeClient => "selfnodeclient",
            Permission::NodeClient => "nodeclient",
        }
    }

    const fn message(self) -> &'static str {
        match self {
            Permission::SelfNodeClient => {
                "Auto approving self kubelet client certificate after SubjectAccessReview."
            }
            Permission::NodeClient => {
                "Auto approving kubelet client certificate after SubjectAccessReview."
            }
        }
    }
}

/// Which permissions would do, in the order in which they are asked about. None if this is not a
/// request that is approved here.
fn permissions(request: &Request, asked: &CertificateRequest) -> Vec<Permission> {
    let usages = request.spec.usages.as_deref().unwrap_or_default();
    if request.spec.signer_name != Signer::KubeletClient.name()
        || Signer::KubeletClient.check(asked, usages).is_err()
    {
        return Vec::new();
    }
    let own = request.spec.username.as_deref() == Some(asked.subject().common_name());
    let own = own.then_some(Permission::SelfNodeClient);
    own.into_iter().chain([Permission::NodeClient]).collect()
}

struct Approving {
    requests: Requests,
    api: Api<Request>,
    reviews: Api<SubjectAccessReview>,
    nodes: Api<Node>,
    notices: Notices,
    clock: Clock,
    approvals: Approvals,
}

impl Approving {
    async fn reconcile(self: Arc<Self>, name: String) -> anyhow::Result<Next> {
        let Some(pending) = requests::read(&self.requests, &self.api, &name).await? else {
            return Ok(Next::Done);
        };
        let request = &pending.request;
        if !is_undecided(request) {
            return Ok(Next::Done);
        }
        let asked = CertificateRequest::from_pem(&request.spec.request.0)
            .with_context(|| format!("unable to parse csr {name:?}"))?;
        match self.approvals.kind(request) {
            Kind::KubeletClient => self.judge_client(request, &asked).await,
            Kind::KubeletServing => self.judge_serving(request, &asked).await,
            Kind::Custom(rules) => match custom::judge(request, &asked, rules) {
                custom::Judgement::Good => self.approve(request, custom::MESSAGE).await,
                custom::Judgement::Stranger => Ok(Next::Done),
                // What a request asks for never changes.
                custom::Judgement::Bad(offence) => {
                    self.object(request, custom::REASON, offence.to_string(), Next::Done).await
                }
            },
            Kind::Foreign => Ok(Next::Done),
        }
    }

    async fn judge_client(
        &self,
        request: &Request,
        asked: &CertificateRequest,
    ) -> anyhow::Result<Next> {
        let permissions = permissions(request, asked);
        for permission in &permissions {
            if self.is_allowed(request, *permission).await? {
                return self.approve(request, permission.message()).await;
            }
        }
        Ok(match permissions.as_slice() {
            [] => Next::Done,
            _ => Next::Wait("recognized csr but subject access review was not approved".into()),
        })
    }

    async fn is_allowed(&self, request: &Request, permission: Permission) -> anyhow::Result<bool> {
        let review = review(request, permission);
        let answer = self.reviews.create(&PostParams::default(), &review).await;
        let answer = answer.context("cannot review whether it may be approved")?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }

    async fn judge_serving(
        &self,
        request: &Request,
        asked: &CertificateRequest,
    ) -> anyhow::Result<Next> {
        let node = match serving::node_name(request, asked) {
            Ok(name) => self.nodes.get_opt(name).await.context("cannot read the node")?,
            Err(serving::Judgement::Foreign) => return Ok(Next::Done),
            Err(judgement) => return self.put_off(request, judgement).await,
        };
        match serving::judge(asked, node.as_ref(), &self.approvals.reserved) {
            serving::Judgement::Good => self.approve(request, serving::MESSAGE).await,
            judgement @ serving::Judgement::Reserved(_) => {
                let Some((reason, message)) = judgement.objection() else { return Ok(Next::Done) };
                // Neither what a request asks for nor the reserved names ever change.
                self.object(request, reason, message, Next::Done).await
            }
            judgement => self.put_off(request, judgement).await,
        }
    }

    async fn put_off(
        &self,
        request: &Request,
        judgement: serving::Judgement,
    ) -> anyhow::Result<Next> {
        let Some((reason, message)) = judgement.objection() else { return Ok(Next::Done) };
        let next = Next::Wait(message.clone());
        self.object(request, reason, message, next).await
    }

    /// Says on the request what keeps it from being approved, once for each reason.
    async fn object(
        &self,
        request: &Request,
        reason: &str,
        message: String,
        next: Next,
    ) -> anyhow::Result<Next> {
        let told = condition(request, DELAYED).is_some_and(|told| {
            told.reason.as_deref() == Some(reason) && told.message.as_ref() == Some(&message)
        });
        if !told {
            let (name, requester) = (request.name_any(), request.spec.username.as_deref());
            tracing::warn!(name, requester, reason, message, "request not approved automatically");
            let now = (self.clock)();
            let delayed = is_true(DELAYED, reason, &message, now);
            let delayed = with_condition(request, delayed, DELAYED);
            let written = self.api.replace_status(&name, &PostParams::default(), &delayed).await;
            if let Some(next) = moved_on(written.map(drop))? {
                return Ok(next);
            }
            let notice = Notice { action: "Approving", reason, note: &message };
            self.notices.warn(request, notice, now).await;
        }
        Ok(next)
    }

    async fn approve(&self, request: &Request, message: &str) -> anyhow::Result<Next> {
        // The server says when, as it does for kube-controller-manager.
        let approved = Condition {
            type_: APPROVED.into(),
            status: "True".into(),
            reason: Some("AutoApproved".into()),
            message: Some(message.into()),
            ..Condition::default()
        };
        let (name, approved) = (request.name_any(), with_condition(request, approved, DELAYED));
        let params = PostParams::default();
        let written = self.api.replace_subresource("approval", &name, &params, &approved).await;
        Ok(moved_on(written.map(drop))?.unwrap_or(Next::Done))
    }
}

/// What to do if the request is no longer what was judged: the watch brings what it is now.
fn moved_on(written: Result<(), kube::Error>) -> anyhow::Result<Option<Next>> {
    match written {
        Ok(()) => Ok(None),
        Err(error) if is_gone(&error) => Ok(Some(Next::Done)),
        Err(error) if is_conflict(&error) => {
            Ok(Some(Next::Wait("it was changed meanwhile".into())))
        }
        Err(error) => Err(error.into()),
    }
}

/// The question whether the requester, with all that is known of them, has a permission.
fn review(request: &Request, permission: Permission) -> SubjectAccessReview {
    let spec = &request.spec;
    let attributes = ResourceAttributes {
        group: Some("certificates.k8s.io".into()),
        resource: Some("certificatesigningrequests".into()),
        subresource: Some(permission.subresource().into()),
        verb: Some("create".into()),
        version: Some("*".into()),
        ..ResourceAttributes::default()
    };
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: spec.username.clone(),
            uid: spec.uid.clone(),
            groups: spec.groups.clone(),
            extra: spec.extra.clone(),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

#[cfg(test)]
mod tests;
