//! A certificate signing request with its contents decoded, for text and structured output.

use k8s_openapi::api::certificates::v1::CertificateSigningRequestCondition as Condition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use serde::Serialize;
use time::OffsetDateTime;
use windlass_api::age::human_duration;
use windlass_api::timestamp;
use windlass_pki::{
    AltNames, CertificateRequest, DistinguishedName, ForeignCertificate, SubjectKey, parse_certificate_blocks,
};

use windlass_runtime::csr::{self, ApprovalDecision};

use super::CsrObject;

/// A CertificateSigningRequest with its PEM fields decoded, as `-o json` prints it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CsrView {
    pub name: String,
    pub signer_name: String,
    pub requester: CsrRequester,
    pub creation_timestamp: Option<String>,
    #[serde(skip)]
    pub age: String,
    pub usages: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiration_seconds: Option<i32>,
    /// The column CONDITION of kubectl: Pending, or Approved, Denied, Failed and Issued.
    pub state: String,
    pub request: DecodeOutcome<CsrContents>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<DecodeOutcome<IssuedCertificate>>,
    pub conditions: Vec<ConditionView>,
    #[serde(skip)]
    pub is_pending: bool,
}

/// User that created the request, as authenticated by the server.
#[derive(Debug, Serialize)]
pub struct CsrRequester {
    pub username: String,
    pub groups: Vec<String>,
}

/// Decoded contents, or the reason why they cannot be decoded.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum DecodeOutcome<T> {
    Read(T),
    Unreadable { error: String },
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CsrContents {
    #[serde(flatten)]
    pub names: SubjectNames,
    pub key: String,
    /// Why the proof of possession of the key failed; `None` if it is verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof_error: Option<String>,
    /// Object identifiers of requested extensions besides names. Built-in signers ignore them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_extensions: Vec<String>,
}

/// The leaf certificate of an issued chain, as `-o json` prints it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IssuedCertificate {
    pub serial: String,
    #[serde(flatten)]
    pub names: SubjectNames,
    pub issuer: String,
    pub not_before: String,
    pub not_after: String,
    #[serde(skip)]
    pub validity: String,
    pub key: String,
    /// Whether it has the key of the request; `None` if the request is unreadable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_matches: Option<bool>,
    /// Number of certificates in the chain, including the leaf.
    pub chain_length: usize,
}

/// Subject and alternative names of a request or certificate.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SubjectNames {
    pub subject: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dns_names: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ip_addresses: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub uris: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub email_addresses: Vec<String>,
}

/// A condition of the request, as `-o json` prints it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConditionView {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    pub reason: String,
    pub message: String,
    pub last_update_time: Option<String>,
    #[serde(skip)]
    pub age: String,
}

impl CsrView {
    /// Decodes a request; ages are relative to `now`.
    pub fn from_csr(request: &CsrObject, now: OffsetDateTime) -> Self {
        let asked = CertificateRequest::from_pem(&request.spec.request.0);
        let key = asked.as_ref().ok().map(CertificateRequest::public_key);
        let created = request.metadata.creation_timestamp.as_ref();
        Self {
            name: request.name_any(),
            signer_name: request.spec.signer_name.clone(),
            requester: CsrRequester {
                username: request.spec.username.clone().unwrap_or_default(),
                groups: request.spec.groups.clone().unwrap_or_default(),
            },
            creation_timestamp: created.and_then(to_offset_date_time).map(timestamp::format),
            age: format_age(created, now),
            usages: request.spec.usages.clone().unwrap_or_default(),
            expiration_seconds: request.spec.expiration_seconds,
            state: csr::condition_column(request),
            certificate: csr::certificate(request).map(|text| issued(text, key, now)),
            request: asked.as_ref().map(CsrContents::from_request).into(),
            conditions: csr::conditions(request)
                .iter()
                .map(|condition| ConditionView::from_condition(condition, now))
                .collect(),
            is_pending: csr::decision(request) == ApprovalDecision::Undecided,
        }
    }
}

impl<T, E: std::fmt::Display> From<Result<T, E>> for DecodeOutcome<T> {
    fn from(read: Result<T, E>) -> Self {
        match read {
            Ok(read) => Self::Read(read),
            Err(error) => Self::Unreadable { error: error.to_string() },
        }
    }
}

impl CsrContents {
    fn from_request(request: &CertificateRequest) -> Self {
        let others = request.extensions().iter().map(|extension| extension.oid());
        Self {
            names: SubjectNames::from_subject(request.subject(), request.alt_names()),
            key: key_description(request.public_key()),
            proof_error: request.verify_signature().err().map(|error| error.to_string()),
            other_extensions: others.filter(|oid| oid != SUBJECT_ALT_NAME).collect(),
        }
    }
}

const SUBJECT_ALT_NAME: &str = "2.5.29.17";

fn issued(text: &[u8], key: Option<&SubjectKey>, now: OffsetDateTime) -> DecodeOutcome<IssuedCertificate> {
    match parse_certificate_blocks(text).as_deref() {
        Ok([leaf, rest @ ..]) => {
            DecodeOutcome::Read(IssuedCertificate::from_certificate(leaf, 1 + rest.len(), key, now))
        }
        Ok([]) => DecodeOutcome::Unreadable { error: "no certificate found".into() },
        Err(error) => DecodeOutcome::Unreadable { error: error.to_string() },
    }
}

impl IssuedCertificate {
    /// Decodes the leaf of a chain.
    pub fn from_certificate(
        leaf: &ForeignCertificate,
        chain_length: usize,
        asked: Option<&SubjectKey>,
        now: OffsetDateTime,
    ) -> Self {
        Self {
            serial: serial(&leaf.serial()),
            names: SubjectNames::from_subject(leaf.subject(), leaf.alt_names()),
            issuer: name(&leaf.issuer()),
            not_before: timestamp::format(leaf.not_before()),
            not_after: timestamp::format(leaf.not_after()),
            validity: validity_status(leaf, now),
            key: key_description(leaf.public_key()),
            key_matches: asked.map(|asked| asked == leaf.public_key()),
            chain_length,
        }
    }
}

impl SubjectNames {
    pub fn from_subject(subject: &DistinguishedName, names: &AltNames) -> Self {
        Self {
            subject: name(subject),
            dns_names: names.dns_names.clone(),
            ip_addresses: names.ip_addresses.iter().map(ToString::to_string).collect(),
            uris: names.uris.clone(),
            email_addresses: names.email_addresses.clone(),
        }
    }
}

impl ConditionView {
    fn from_condition(condition: &Condition, now: OffsetDateTime) -> Self {
        let updated = condition.last_update_time.as_ref();
        Self {
            kind: condition.type_.clone(),
            status: condition.status.clone(),
            reason: condition.reason.clone().unwrap_or_default(),
            message: condition.message.clone().unwrap_or_default(),
            last_update_time: updated.and_then(to_offset_date_time).map(timestamp::format),
            age: format_age(updated, now),
        }
    }
}

/// Converts a timestamp of the API.
pub fn to_offset_date_time(time: &Time) -> Option<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp(time.0.as_second()).ok()
}

fn format_age(time: Option<&Time>, now: OffsetDateTime) -> String {
    match time.and_then(to_offset_date_time) {
        Some(time) => human_duration((now - time).whole_seconds()),
        None => "<unknown>".into(),
    }
}

fn validity_status(leaf: &ForeignCertificate, now: OffsetDateTime) -> String {
    let (begins, ends) = (leaf.not_before() - now, leaf.not_after() - now);
    if ends.is_negative() {
        format!("expired {} ago", human_duration(-ends.whole_seconds()))
    } else if begins.is_positive() {
        format!("valid in {}", human_duration(begins.whole_seconds()))
    } else {
        format!("expires in {}", human_duration(ends.whole_seconds()))
    }
}

/// Formats a serial number in hex, separated by colons.
pub fn serial(number: &[u8]) -> String {
    let octets = number.iter().map(|octet| format!("{octet:02x}")).collect::<Vec<_>>();
    if octets.is_empty() { "00".into() } else { octets.join(":") }
}

pub fn key_description(key: &SubjectKey) -> String {
    key.algorithm().description()
}

/// Formats a distinguished name in its own order, with RFC 4514's escapes, so that a value cannot look like another
/// attribute.
pub fn name(name: &DistinguishedName) -> String {
    let attributes = name.attributes().iter().map(|attribute| {
        let oid = attribute.oid();
        let label = match oid.as_str() {
            "2.5.4.3" => "CN",
            "2.5.4.5" => "SERIALNUMBER",
            "2.5.4.6" => "C",
            "2.5.4.7" => "L",
            "2.5.4.8" => "ST",
            "2.5.4.9" => "STREET",
            "2.5.4.10" => "O",
            "2.5.4.11" => "OU",
            "2.5.4.17" => "POSTALCODE",
            "0.9.2342.19200300.100.1.25" => "DC",
            other => other,
        };
        let value = attribute.value().map_or_else(|| "#".to_owned(), escaped);
        format!("{label}={value}")
    });
    attributes.collect::<Vec<_>>().join(", ")
}

fn escaped(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for c in value.chars() {
        if ",+\"\\<>;=".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}
