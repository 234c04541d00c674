//! Certificates of the ledger, for text and structured output.

use serde::{Serialize, Serializer};
use time::OffsetDateTime;
use windlass_api::timestamp;
use windlass_ledger::{CertificateState, CertificateView};

use crate::commands::print::{plain, sanitize_word, word, words};

/// A certificate as `-o json` prints it, as far as the index knows it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateSummary<'a> {
    pub serial_number: String,
    pub signer_name: &'a str,
    #[serde(rename = "authorityID")]
    pub authority_id: String,
    pub state: &'static str,
    pub holder: HolderSummary<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub subject: &'a str,
    /// Alternative names with their types, such as `DNS:web.example.com`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<&'a str>,
    pub not_before: String,
    pub not_after: String,
    pub recorded_time: String,
    /// Serial number of the certificate that superseded this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revocation: Option<RevocationSummary>,
}

/// Who holds a certificate; what is unknown or does not apply is absent.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HolderSummary<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub node_name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub namespace: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub pod_name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub service_account_name: &'a str,
}

/// When and why a certificate was revoked.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RevocationSummary {
    pub reason: &'static str,
    pub revoked_time: String,
}

/// Certificates that are serialized one by one: all documents of a large ledger would not fit into memory.
pub struct CertificateSequence<'a> {
    pub certificates: &'a [CertificateView<'a>],
    pub now: i64,
}

impl Serialize for CertificateSequence<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.certificates.iter().map(|view| CertificateSummary::new(view, self.now)))
    }
}

impl<'a> CertificateSummary<'a> {
    /// Summarizes a certificate; its state is that at `now`.
    pub fn new(view: &CertificateView<'a>, now: i64) -> Self {
        let holder = view.holder();
        Self {
            serial_number: view.serial().to_string(),
            signer_name: view.signer(),
            authority_id: authority(view),
            state: state(view, now),
            holder: HolderSummary {
                node_name: holder.node,
                namespace: if holder.pod.is_empty() { "" } else { holder.namespace },
                pod_name: holder.pod,
                service_account_name: holder.service_account,
            },
            subject: view.subject(),
            names: view.names().collect(),
            not_before: format_time(view.not_before()),
            not_after: format_time(view.not_after()),
            recorded_time: format_time(view.recorded()),
            superseded_by: view.superseded_by().map(|newer| newer.serial().to_string()),
            revocation: view.revocation().map(|found| RevocationSummary {
                reason: found.reason.name(),
                revoked_time: format_time(found.time),
            }),
        }
    }
}

/// Describes the state in one word. If several apply, the one that says most about the use of the certificate wins.
pub fn state(view: &CertificateView<'_>, now: i64) -> &'static str {
    match view.state() {
        state @ (CertificateState::Abandoned | CertificateState::Revoked) => state.name(),
        _ if view.not_after() < now => "Expired",
        _ if view.superseded_by().is_some() => "Superseded",
        state => state.name(),
    }
}

/// Formats the subject key identifier of the CA key.
pub fn authority(view: &CertificateView<'_>) -> String {
    view.authority().map(|id| id.to_string()).unwrap_or_default()
}

/// Formats the name that identifies a certificate among all: authority and serial number.
pub fn certificate_name(view: &CertificateView<'_>) -> String {
    format!("certificate/{}-{}", authority(view), view.serial())
}

/// Describes the holder: the pod, the node, or the names in the certificate.
pub fn holder(view: &CertificateView<'_>) -> String {
    let holder = view.holder();
    if !holder.pod.is_empty() {
        return ["pod/", &sanitize_word(holder.namespace), "/", &sanitize_word(holder.pod)].concat();
    }
    if !holder.node.is_empty() {
        return format!("node/{}", word(holder.node));
    }
    match view.subject() {
        "" if view.names().next().is_none() => "<none>".into(),
        "" => words(&view.names().collect::<Vec<_>>()),
        subject => plain(subject),
    }
}

/// Formats seconds since 1970 as RFC 3339.
pub fn format_time(seconds: i64) -> String {
    OffsetDateTime::from_unix_timestamp(seconds).map_or_else(|_| "unknown".into(), timestamp::format)
}
