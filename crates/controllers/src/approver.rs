//! Approves CertificateSigningRequests: client certificates of kubelets that are authorized, as kube-controller-manager
//! does; serving certificates for a node's own addresses, if enabled; and requests to custom signers with automatic
//! approval.
//!
//! It never denies a request. A request that is not approved is left for an authorized approver and checked again with
//! backoff.

mod custom;
mod kubelet_serving;
mod reserved_names;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::Node;
use kube::api::PostParams;
use kube::{Api, Client, Resource as _, ResourceExt as _};
use windlass_pki::CertificateRequest;
use windlass_runtime::backoff::Backoff;
use windlass_runtime::csr::{
    APPROVED, ApprovalDecision, certificate, decision, true_condition, with_condition,
};
use windlass_runtime::events::{CONTROLLER_EVENT_LIMIT, EventRecorder, EventReporter, NewEvent};
use windlass_runtime::work_queue::WorkQueue;
use windlass_runtime::workers::{Requeue, run_workers};

use crate::csr::{self, Csr, CsrCondition, PendingCsrs, is_conflict, is_not_found, requeue_changed};
use crate::csr_signer::KubernetesSigner;
use crate::metrics::{APPROVING, MetricFamilies};
use crate::options::Clock;
use crate::signers::CustomSigner;

pub use reserved_names::ReservedNames;

const WORKERS: usize = 16;
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(120));

/// Condition that explains why a request is not approved automatically.
pub const DELAYED: &str = "windlass.dev/ApprovalDelayed";

/// Requests that are approved automatically.
#[derive(Clone, Default)]
pub struct ApprovalPolicy {
    /// Approve client certificates of kubelets.
    pub kubelet_client: bool,
    /// Approve serving certificates of kubelets.
    pub kubelet_serving: bool,
    /// Names for which no serving certificate of a kubelet is approved.
    pub reserved: ReservedNames,
    /// Custom signers with automatic approval.
    pub custom: Vec<CustomSigner>,
}

/// Approves requests that the policy allows; does not return.
pub async fn run(
    client: Client,
    approvals: ApprovalPolicy,
    clock: Clock,
    metrics: Arc<MetricFamilies>,
) -> Infallible {
    if !approvals.kubelet_client && !approvals.kubelet_serving && approvals.custom.is_empty() {
        return std::future::pending().await;
    }
    let queue = Arc::new(WorkQueue::new(metrics.queue(APPROVING), BACKOFF));
    let approving = Arc::new(CsrApprover {
        requests: PendingCsrs::default(),
        api: Api::all(client.clone()),
        reviews: Api::all(client.clone()),
        nodes: Api::all(client.clone()),
        events: EventRecorder::new(
            client.clone(),
            EventReporter::controller("csrapproving"),
            CONTROLLER_EVENT_LIMIT,
        ),
        clock,
        approvals,
    });
    let wanted = |request: &Csr| {
        is_undecided(request) && approving.approvals.classify(request) != ApprovalKind::Foreign
    };
    let watch = csr::watch_csrs(client, &approving.requests, &queue, wanted);
    let reconcile = |name: String| approving.clone().reconcile(name);
    tokio::join!(watch, run_workers(queue.clone(), WORKERS, reconcile)).0
}

/// Approval rules that apply to a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ApprovalKind<'a> {
    KubeletClient,
    KubeletServing,
    /// Request to a custom signer with automatic approval.
    Custom(custom::AutoApprovalRules<'a>),
    Foreign,
}

impl ApprovalPolicy {
    fn classify(&self, request: &Csr) -> ApprovalKind<'_> {
        let name = &request.spec.signer_name;
        match KubernetesSigner::from_name(name) {
            Some(KubernetesSigner::KubeletClient) if self.kubelet_client => ApprovalKind::KubeletClient,
            Some(KubernetesSigner::KubeletServing) if self.kubelet_serving => ApprovalKind::KubeletServing,
            Some(_) => ApprovalKind::Foreign,
            None => {
                let signer = self.custom.iter().find(|each| each.custom.name.as_str() == name);
                signer
                    .and_then(custom::AutoApprovalRules::from_signer)
                    .map_or(ApprovalKind::Foreign, ApprovalKind::Custom)
            }
        }
    }
}

fn is_undecided(request: &Csr) -> bool {
    certificate(request).is_none() && decision(request) == ApprovalDecision::Undecided
}

/// Permission that lets a kubelet client certificate be approved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CsrPermission {
    /// A node renews its own certificate.
    SelfNodeClient,
    /// A bootstrap credential requests the certificate of a node.
    NodeClient,
}

impl CsrPermission {
    const fn subresource(self) -> &'static str {
        match self {
            CsrPermission::SelfNodeClient => "selfnodeclient",
            CsrPermission::NodeClient => "nodeclient",
        }
    }

    const fn message(self) -> &'static str {
        match self {
            CsrPermission::SelfNodeClient => {
                "Auto approving self kubelet client certificate after SubjectAccessReview."
            }
            CsrPermission::NodeClient => {
                "Auto approving kubelet client certificate after SubjectAccessReview."
            }
        }
    }
}

/// Lists the permissions of which one suffices, in the order of the reviews. Empty if the request is not for a kubelet
/// client certificate.
fn required_permissions(request: &Csr, asked: &CertificateRequest) -> Vec<CsrPermission> {
    let usages = request.spec.usages.as_deref().unwrap_or_default();
    if request.spec.signer_name != KubernetesSigner::KubeletClient.name()
        || KubernetesSigner::KubeletClient.check(asked, usages).is_err()
    {
        return Vec::new();
    }
    let own = request.spec.username.as_deref() == Some(asked.subject().common_name());
    let own = own.then_some(CsrPermission::SelfNodeClient);
    own.into_iter().chain([CsrPermission::NodeClient]).collect()
}

struct CsrApprover {
    requests: PendingCsrs,
    api: Api<Csr>,
    reviews: Api<SubjectAccessReview>,
    nodes: Api<Node>,
    events: EventRecorder,
    clock: Clock,
    approvals: ApprovalPolicy,
}

impl CsrApprover {
    async fn reconcile(self: Arc<Self>, name: String) -> anyhow::Result<Requeue> {
        let Some(pending) = csr::get_pending(&self.requests, &self.api, &name).await? else {
            return Ok(Requeue::Done);
        };
        let request = &pending.request;
        if !is_undecided(request) {
            return Ok(Requeue::Done);
        }
        let asked = CertificateRequest::from_pem(&request.spec.request.0)
            .with_context(|| format!("unable to parse csr {name:?}"))?;
        match self.approvals.classify(request) {
            ApprovalKind::KubeletClient => self.evaluate_client(request, &asked).await,
            ApprovalKind::KubeletServing => self.evaluate_serving(request, &asked).await,
            ApprovalKind::Custom(rules) => match custom::evaluate(request, &asked, rules) {
                custom::ProfileVerdict::Good => self.approve(request, custom::MESSAGE).await,
                custom::ProfileVerdict::Stranger => Ok(Requeue::Done),
                // The spec of a request is immutable.
                custom::ProfileVerdict::Bad(offence) => {
                    self.report_objection(request, custom::REASON, offence.to_string(), Requeue::Done).await
                }
            },
            ApprovalKind::Foreign => Ok(Requeue::Done),
        }
    }

    async fn evaluate_client(&self, request: &Csr, asked: &CertificateRequest) -> anyhow::Result<Requeue> {
        let permissions = required_permissions(request, asked);
        for permission in &permissions {
            if self.is_allowed(request, *permission).await? {
                return self.approve(request, permission.message()).await;
            }
        }
        Ok(match permissions.as_slice() {
            [] => Requeue::Done,
            _ => Requeue::WithBackoff("recognized csr but subject access review was not approved".into()),
        })
    }

    async fn is_allowed(&self, request: &Csr, permission: CsrPermission) -> anyhow::Result<bool> {
        let review = access_review(request, permission);
        let answer = self.reviews.create(&PostParams::default(), &review).await;
        let answer = answer.context("cannot create SubjectAccessReview")?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }

    async fn evaluate_serving(&self, request: &Csr, asked: &CertificateRequest) -> anyhow::Result<Requeue> {
        let node = match kubelet_serving::node_name(request, asked) {
            Ok(name) => self.nodes.get_opt(name).await.context("cannot read Node")?,
            Err(kubelet_serving::ServingVerdict::Foreign) => return Ok(Requeue::Done),
            Err(judgement) => return self.requeue_with_objection(request, judgement).await,
        };
        match kubelet_serving::evaluate(asked, node.as_ref(), &self.approvals.reserved) {
            kubelet_serving::ServingVerdict::Good => self.approve(request, kubelet_serving::MESSAGE).await,
            judgement @ kubelet_serving::ServingVerdict::Reserved(_) => {
                let Some((reason, message)) = judgement.objection() else {
                    return Ok(Requeue::Done);
                };
                // Neither the spec of a request nor the reserved names change.
                self.report_objection(request, reason, message, Requeue::Done).await
            }
            judgement => self.requeue_with_objection(request, judgement).await,
        }
    }

    async fn requeue_with_objection(
        &self,
        request: &Csr,
        judgement: kubelet_serving::ServingVerdict,
    ) -> anyhow::Result<Requeue> {
        let Some((reason, message)) = judgement.objection() else {
            return Ok(Requeue::Done);
        };
        let next = Requeue::WithBackoff(message.clone());
        self.report_objection(request, reason, message, next).await
    }

    /// Writes condition and event with the objection, once for each reason.
    async fn report_objection(
        &self,
        request: &Csr,
        reason: &str,
        message: String,
        next: Requeue,
    ) -> anyhow::Result<Requeue> {
        if !csr::has_reported(request, DELAYED, reason, &message) {
            let (name, requester) = (request.name_any(), request.spec.username.as_deref());
            tracing::warn!(name, requester, reason, message, "request not approved automatically");
            let now = (self.clock)();
            let delayed = true_condition(DELAYED, reason, &message, now);
            let delayed = with_condition(request, delayed, DELAYED);
            let written = self.api.replace_status(&name, &PostParams::default(), &delayed).await;
            if let Some(next) = outcome_if_changed(written.map(drop))? {
                return Ok(next);
            }
            let event = NewEvent::warning("Approving", reason, message);
            self.events.warn(request.object_ref(&()), event, now).await;
        }
        Ok(next)
    }

    async fn approve(&self, request: &Csr, message: &str) -> anyhow::Result<Requeue> {
        // Without a time, which the server sets, as for kube-controller-manager.
        let approved = CsrCondition {
            type_: APPROVED.into(),
            status: "True".into(),
            reason: Some("AutoApproved".into()),
            message: Some(message.into()),
            ..CsrCondition::default()
        };
        let (name, approved) = (request.name_any(), with_condition(request, approved, DELAYED));
        let params = PostParams::default();
        let written = self.api.replace_subresource("approval", &name, &params, &approved).await;
        Ok(outcome_if_changed(written.map(drop))?.unwrap_or(Requeue::Done))
    }
}

/// Maps a failed write of a request that was deleted or changed; the watch delivers its current state.
fn outcome_if_changed(written: Result<(), kube::Error>) -> anyhow::Result<Option<Requeue>> {
    match written {
        Ok(()) => Ok(None),
        Err(error) if is_not_found(&error) => Ok(Some(Requeue::Done)),
        Err(error) if is_conflict(&error) => Ok(Some(requeue_changed())),
        Err(error) => Err(error.into()),
    }
}

/// Builds the review of whether the requester has a permission.
fn access_review(request: &Csr, permission: CsrPermission) -> SubjectAccessReview {
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
