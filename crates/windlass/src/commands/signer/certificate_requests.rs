//! What was asked of a signer and what became of it, whether by a CertificateSigningRequest or by a
//! PodCertificateRequest.

use std::collections::BTreeMap;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde::Serialize;
use time::OffsetDateTime;
use windlass_api::timestamp;
use windlass_controllers::{approver, csr_signer};

use crate::commands::csr::view;

/// A request of either kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignerRequest {
    pub signer: String,
    /// Its name, for pods' with the namespace.
    pub name: String,
    pub api: RequestApi,
    pub state: RequestState,
    /// Since when it is in that state, if that can be told.
    pub since: Option<OffsetDateTime>,
    /// Why it is in it, if somebody said so.
    pub why: Option<String>,
    /// The certificate that was issued and those that came with it, as PEM.
    pub chain: Option<String>,
}

/// Of which kind a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestApi {
    Request,
    Pod,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestState {
    /// Nobody has decided on it.
    ToApprove,
    /// The signer has to answer.
    ToSign,
    /// An approver denied the request.
    Denied,
    /// The signer does not sign it.
    Failed,
    /// The status holds a certificate.
    Issued,
}

impl SignerRequest {
    /// Reads the state of a CertificateSigningRequest from its conditions and certificate.
    pub fn from_csr(request: &CertificateSigningRequest) -> Self {
        let conditions = view::conditions(request);
        let said = |kind: &str| conditions.iter().find(|condition| condition.type_ == kind);
        let certificate = request.status.as_ref().and_then(|status| status.certificate.as_ref());
        let (approved, waits) = (said("Approved"), said(csr_signer::DELAYED));
        let state = if certificate.is_some_and(|text| !text.0.is_empty()) {
            RequestState::Issued
        } else if said("Denied").is_some() {
            RequestState::Denied
        } else if said("Failed").is_some() {
            RequestState::Failed
        } else if approved.is_some() {
            RequestState::ToSign
        } else {
            RequestState::ToApprove
        };
        let created = request.metadata.creation_timestamp.as_ref();
        let changed = approved.and_then(|approved| {
            approved.last_transition_time.as_ref().or(approved.last_update_time.as_ref())
        });
        let (since, why) = match state {
            RequestState::ToSign => (changed.or(created), waits),
            RequestState::ToApprove => (created, said(approver::DELAYED)),
            RequestState::Denied | RequestState::Failed | RequestState::Issued => (created, None),
        };
        let words = |reason: &Option<String>, message: &Option<String>| {
            let (reason, message) = (reason.as_deref(), message.as_deref());
            format!("{}: {}", reason.unwrap_or_default(), message.unwrap_or_default())
        };
        Self {
            signer: request.spec.signer_name.clone(),
            name: request.name_any(),
            api: RequestApi::Request,
            state,
            since: since.and_then(view::to_offset_date_time),
            why: why.map(|said| format!("{} {}", said.type_, words(&said.reason, &said.message))),
            chain: certificate.map(|text| String::from_utf8_lossy(&text.0).into_owned()),
        }
    }

    /// A PodCertificateRequest of any version. Nobody approves these: the signer decides.
    pub fn from_pod_request(request: &DynamicObject) -> Self {
        let conditions = request.data["status"]["conditions"].as_array();
        let said = |kind: &str| {
            conditions.into_iter().flatten().any(|condition| condition["type"] == kind)
        };
        let state = match () {
            () if said("Issued") => RequestState::Issued,
            () if said("Denied") => RequestState::Denied,
            () if said("Failed") => RequestState::Failed,
            () => RequestState::ToSign,
        };
        let created = request.metadata.creation_timestamp.as_ref();
        let namespace = request.namespace().unwrap_or_default();
        let signer = &request.data["spec"]["signerName"];
        Self {
            signer: signer.as_str().unwrap_or_default().to_owned(),
            name: format!("{namespace}/{}", request.name_any()),
            api: RequestApi::Pod,
            state,
            since: created.and_then(view::to_offset_date_time),
            why: None,
            chain: request.data["status"]["certificateChain"].as_str().map(str::to_owned),
        }
    }
}

/// How many requests of a kind there are, by what became of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestCounts {
    pub awaiting_approval: usize,
    pub awaiting_signature: usize,
    /// Since when the oldest of those that wait for a signature does.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "serialize_time")]
    pub oldest_awaiting_signature: Option<OffsetDateTime>,
    pub denied: usize,
    pub failed: usize,
    pub issued: usize,
}

fn serialize_time<S: serde::Serializer>(
    time: &Option<OffsetDateTime>,
    to: S,
) -> Result<S::Ok, S::Error> {
    time.map(timestamp::format).serialize(to)
}

impl RequestCounts {
    fn add(&mut self, asked: &SignerRequest) {
        match asked.state {
            RequestState::ToApprove => self.awaiting_approval += 1,
            RequestState::ToSign => {
                self.awaiting_signature += 1;
                let oldest = [self.oldest_awaiting_signature, asked.since];
                self.oldest_awaiting_signature = oldest.into_iter().flatten().min();
            }
            RequestState::Denied => self.denied += 1,
            RequestState::Failed => self.failed += 1,
            RequestState::Issued => self.issued += 1,
        }
    }

    /// Adds the counts and keeps the older waiting time.
    pub fn merge(&self, other: &Self) -> Self {
        let oldest = [self.oldest_awaiting_signature, other.oldest_awaiting_signature];
        Self {
            awaiting_approval: self.awaiting_approval + other.awaiting_approval,
            awaiting_signature: self.awaiting_signature + other.awaiting_signature,
            oldest_awaiting_signature: oldest.into_iter().flatten().min(),
            denied: self.denied + other.denied,
            failed: self.failed + other.failed,
            issued: self.issued + other.issued,
        }
    }
}

/// Counts requests by signer: CertificateSigningRequests first, then pods'.
pub fn tallies(asked: &[SignerRequest]) -> BTreeMap<&str, (RequestCounts, RequestCounts)> {
    let mut tallies: BTreeMap<&str, (RequestCounts, RequestCounts)> = BTreeMap::new();
    for each in asked {
        let (requests, pods) = tallies.entry(&each.signer).or_default();
        match each.api {
            RequestApi::Request => requests.add(each),
            RequestApi::Pod => pods.add(each),
        }
    }
    tallies
}

#[cfg(test)]
mod tests;
