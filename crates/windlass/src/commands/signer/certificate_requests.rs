//! State of the requests to a signer: CertificateSigningRequests and PodCertificateRequests.

use std::collections::BTreeMap;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde::Serialize;
use time::OffsetDateTime;
use windlass_api::timestamp;
use windlass_controllers::{approver, csr_signer};
use windlass_runtime::csr::{self, CsrState};

use crate::commands::csr::view;

/// A request of either kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignerRequest {
    pub signer: String,
    pub name: String,
    pub api: RequestApi,
    pub state: RequestState,
    /// Start of the state, if known.
    pub since: Option<OffsetDateTime>,
    /// Reason of the state, if a controller reports one.
    pub why: Option<String>,
    /// Issued chain in PEM, leaf first.
    pub chain: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestApi {
    Request,
    Pod,
}

/// State of a request of either kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestState {
    ToApprove,
    /// Approved and not yet signed.
    ToSign,
    Denied,
    /// The signer rejected the request.
    Failed,
    /// The status holds a certificate.
    Issued,
}

impl SignerRequest {
    /// Reads the state of a CertificateSigningRequest from its conditions and certificate.
    pub fn from_csr(request: &CertificateSigningRequest) -> Self {
        let created = request.metadata.creation_timestamp.as_ref();
        let approved = csr::condition(request, csr::APPROVED).and_then(|approved| {
            approved.last_transition_time.as_ref().or(approved.last_update_time.as_ref())
        });
        let (state, since, why) = match csr::state(request) {
            CsrState::Pending => (RequestState::ToApprove, created, Some(approver::DELAYED)),
            CsrState::Approved => (RequestState::ToSign, approved.or(created), Some(csr_signer::DELAYED)),
            CsrState::Denied(_) => (RequestState::Denied, created, None),
            CsrState::Failed(_) => (RequestState::Failed, created, None),
            CsrState::Issued(_) => (RequestState::Issued, created, None),
        };
        let why = why.and_then(|delay| csr::condition(request, delay));
        Self {
            signer: request.spec.signer_name.clone(),
            name: request.name_any(),
            api: RequestApi::Request,
            state,
            since: since.and_then(view::to_offset_date_time),
            why: why.map(|delay| format!("{} {}", delay.type_, csr::describe_condition(delay))),
            chain: csr::certificate(request).map(|text| String::from_utf8_lossy(text).into_owned()),
        }
    }

    /// Reads the state of a PodCertificateRequest of any version. These need no approval: the signer decides.
    pub fn from_pod_request(request: &DynamicObject) -> Self {
        let conditions = request.data["status"]["conditions"].as_array();
        let has = |kind: &str| {
            let counts = |condition: &serde_json::Value| {
                csr::status_counts(condition["status"].as_str().unwrap_or_default())
            };
            let mut of_kind = conditions.into_iter().flatten().filter(|each| each["type"] == kind);
            of_kind.any(counts)
        };
        let state = match () {
            () if has("Issued") => RequestState::Issued,
            () if has("Denied") => RequestState::Denied,
            () if has("Failed") => RequestState::Failed,
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

/// Number of requests of a kind by state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestCounts {
    pub awaiting_approval: usize,
    pub awaiting_signature: usize,
    /// Since when the oldest request awaits a signature.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "serialize_time")]
    pub oldest_awaiting_signature: Option<OffsetDateTime>,
    pub denied: usize,
    pub failed: usize,
    pub issued: usize,
}

fn serialize_time<S: serde::Serializer>(time: &Option<OffsetDateTime>, to: S) -> Result<S::Ok, S::Error> {
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

/// Counts requests by signer: CertificateSigningRequests, then PodCertificateRequests.
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
