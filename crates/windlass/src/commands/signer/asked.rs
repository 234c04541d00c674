//! What was asked of a signer and what became of it, whether by a CertificateSigningRequest or by a
//! PodCertificateRequest.

use std::collections::BTreeMap;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde::Serialize;
use time::OffsetDateTime;
use windlass_api::timestamp;
use windlass_controllers::{approve, sign};

use crate::commands::csr::view;

/// A request of either kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub signer: String,
    /// Its name, for pods' with the namespace.
    pub name: String,
    pub api: Kind,
    pub state: State,
    /// Since when it is in that state, if that can be told.
    pub since: Option<OffsetDateTime>,
    /// Why it is in it, if somebody said so.
    pub why: Option<String>,
    /// The certificate that was issued and those that came with it, as PEM.
    pub chain: Option<String>,
}

/// Of which kind a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A CertificateSigningRequest.
    Request,
    /// A PodCertificateRequest.
    Pod,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Nobody has decided on it.
    ToApprove,
    /// The signer has to answer.
    ToSign,
    /// It was denied.
    Denied,
    /// The signer does not sign it.
    Failed,
    /// There is a certificate.
    Issued,
}

impl Asked {
    /// A CertificateSigningRequest.
    pub fn of_request(request: &CertificateSigningRequest) -> Self {
        let conditions = view::conditions(request);
        let said = |kind: &str| conditions.iter().find(|condition| condition.type_ == kind);
        let certificate = request.status.as_ref().and_then(|status| status.certificate.as_ref());
        let (approved, waits) = (said("Approved"), said(sign::DELAYED));
        let state = if certificate.is_some_and(|text| !text.0.is_empty()) {
            State::Issued
        } else if said("Denied").is_some() {
            State::Denied
        } else if said("Failed").is_some() {
            State::Failed
        } else if approved.is_some() {
            State::ToSign
        } else {
            State::ToApprove
        };
        let created = request.metadata.creation_timestamp.as_ref();
        let changed = approved.and_then(|approved| {
            approved.last_transition_time.as_ref().or(approved.last_update_time.as_ref())
        });
        let (since, why) = match state {
            State::ToSign => (changed.or(created), waits),
            State::ToApprove => (created, said(approve::DELAYED)),
            State::Denied | State::Failed | State::Issued => (created, None),
        };
        let words = |reason: &Option<String>, message: &Option<String>| {
            let (reason, message) = (reason.as_deref(), message.as_deref());
            format!("{}: {}", reason.unwrap_or_default(), message.unwrap_or_default())
        };
        Self {
            signer: request.spec.signer_name.clone(),
            name: request.name_any(),
            api: Kind::Request,
            state,
            since: since.and_then(view::moment),
            why: why.map(|said| format!("{} {}", said.type_, words(&said.reason, &said.message))),
            chain: certificate.map(|text| String::from_utf8_lossy(&text.0).into_owned()),
        }
    }

    /// A PodCertificateRequest of any version. Nobody approves these: the signer decides.
    pub fn of_pod(request: &DynamicObject) -> Self {
        let conditions = request.data["status"]["conditions"].as_array();
        let said = |kind: &str| {
            conditions.into_iter().flatten().any(|condition| condition["type"] == kind)
        };
        let state = match () {
            () if said("Issued") => State::Issued,
            () if said("Denied") => State::Denied,
            () if said("Failed") => State::Failed,
            () => State::ToSign,
        };
        let created = request.metadata.creation_timestamp.as_ref();
        let namespace = request.namespace().unwrap_or_default();
        let signer = &request.data["spec"]["signerName"];
        Self {
            signer: signer.as_str().unwrap_or_default().to_owned(),
            name: format!("{namespace}/{}", request.name_any()),
            api: Kind::Pod,
            state,
            since: created.and_then(view::moment),
            why: None,
            chain: request.data["status"]["certificateChain"].as_str().map(str::to_owned),
        }
    }
}

/// How many requests of a kind there are, by what became of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tally {
    pub awaiting_approval: usize,
    pub awaiting_signature: usize,
    /// Since when the oldest of those that wait for a signature does.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "moment")]
    pub oldest_awaiting_signature: Option<OffsetDateTime>,
    pub denied: usize,
    pub failed: usize,
    pub issued: usize,
}

fn moment<S: serde::Serializer>(time: &Option<OffsetDateTime>, to: S) -> Result<S::Ok, S::Error> {
    time.map(timestamp::format).serialize(to)
}

impl Tally {
    fn add(&mut self, asked: &Asked) {
        match asked.state {
            State::ToApprove => self.awaiting_approval += 1,
            State::ToSign => {
                self.awaiting_signature += 1;
                let oldest = [self.oldest_awaiting_signature, asked.since];
                self.oldest_awaiting_signature = oldest.into_iter().flatten().min();
            }
            State::Denied => self.denied += 1,
            State::Failed => self.failed += 1,
            State::Issued => self.issued += 1,
        }
    }

    /// Both together.
    pub fn with(&self, other: &Self) -> Self {
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
pub fn tallies(asked: &[Asked]) -> BTreeMap<&str, (Tally, Tally)> {
    let mut tallies: BTreeMap<&str, (Tally, Tally)> = BTreeMap::new();
    for each in asked {
        let (requests, pods) = tallies.entry(&each.signer).or_default();
        match each.api {
            Kind::Request => requests.add(each),
            Kind::Pod => pods.add(each),
        }
    }
    tallies
}

#[cfg(test)]
mod tests;
