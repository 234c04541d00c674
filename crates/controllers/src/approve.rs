//! Approves what nodes ask for: client certificates of those that may have them, as
//! kube-controller-manager does, and, if told to, serving certificates for a node's own addresses.
//!
//! Nothing is ever denied here. A request that may not be approved stays for somebody else to
//! decide, and is looked at again more and more rarely.

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

const WORKERS: usize = 16;
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(120));

/// The condition that says why a request is not approved though it is of a sort that is.
pub const DELAYED: &str = "windlass.dev/ApprovalDelayed";

/// Runs the loop; does not end. With `serving`, serving certificates of nodes are approved too.
pub async fn run(client: Client, serving: bool, clock: Clock) {
    let queue = Arc::new(Queue::new(&APPROVING, BACKOFF));
    let approving = Arc::new(Approving {
        requests: Requests::default(),
        api: Api::all(client.clone()),
        reviews: Api::all(client.clone()),
        nodes: Api::all(client.clone()),
        notices: Notices::new(client.clone(), "csrapproving"),
        clock,
        serving,
    });
    let wanted = |request: &Request| {
        let signer = Signer::named(&request.spec.signer_name);
        is_undecided(request)
            && (signer == Some(Signer::KubeletClient)
                || serving && signer == Some(Signer::KubeletServing))
    };
    let watch = requests::follow(client, &APPROVING, &approving.requests, &queue, wanted);
    let reconcile = |name: String| approving.clone().reconcile(name);
    tokio::join!(watch, pool::work(queue.clone(), WORKERS, reconcile));
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
    serving: bool,
}

impl Approving {
    async fn reconcile(self: Arc<Self>, name: String) -> anyhow::Result<Next> {
        let waiting = self.requests.read(&self.api, &name).await?;
        let Some(waiting) = waiting else { return Ok(Next::Done) };
        let request = &waiting.request;
        if !is_undecided(request) {
            return Ok(Next::Done);
        }
        let asked = CertificateRequest::from_pem(&request.spec.request.0)
            .with_context(|| format!("unable to parse csr {name:?}"))?;
        if self.serving && request.spec.signer_name == Signer::KubeletServing.name() {
            return self.judge_serving(request, &asked).await;
        }
        let permissions = permissions(request, &asked);
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
        match serving::judge(asked, node.as_ref()) {
            serving::Judgement::Good => self.approve(request, serving::MESSAGE).await,
            judgement => self.put_off(request, judgement).await,
        }
    }

    /// Says on the request what keeps it from being approved, once for each reason.
    async fn put_off(
        &self,
        request: &Request,
        judgement: serving::Judgement,
    ) -> anyhow::Result<Next> {
        let Some((reason, message)) = judgement.objection() else { return Ok(Next::Done) };
        let told = condition(request, DELAYED).is_some_and(|told| {
            told.reason.as_deref() == Some(reason) && told.message.as_ref() == Some(&message)
        });
        if !told {
            let now = (self.clock)();
            let delayed = is_true(DELAYED, reason, &message, now);
            let delayed = with_condition(request, delayed, DELAYED);
            let name = request.name_any();
            let written = self.api.replace_status(&name, &PostParams::default(), &delayed).await;
            if let Some(next) = moved_on(written.map(drop))? {
                return Ok(next);
            }
            let notice = Notice { action: "Approving", reason, note: &message };
            self.notices.warn(request, notice, now).await;
        }
        Ok(Next::Wait(message))
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
