//! A request for a certificate with everything in it decoded, for people and for programs.

use k8s_openapi::api::certificates::v1::CertificateSigningRequestCondition as Condition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use serde::Serialize;
use time::OffsetDateTime;
use windlass_api::age::human_duration;
use windlass_api::timestamp;
use windlass_pki::{
    AltNames, CertificateRequest, DistinguishedName, ForeignCertificate, SubjectKey,
    parse_certificate_blocks,
};

use super::CsrObject;

/// A CertificateSigningRequest with its PEM fields decoded, as `-o json` prints it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CsrView {
    pub name: String,
    pub signer: String,
    pub requestor: CsrRequester,
    pub created: Option<String>,
    /// How long ago that was.
    #[serde(skip)]
    pub age: String,
    pub usages: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_seconds: Option<i32>,
    /// As kubectl has it: Pending, or Approved, Denied, Failed and Issued.
    pub state: String,
    pub request: DecodeOutcome<CsrContents>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<DecodeOutcome<IssuedCertificate>>,
    pub conditions: Vec<ConditionView>,
}

/// Who asked. The server knows; the requestor cannot choose.
#[derive(Debug, Serialize)]
pub struct CsrRequester {
    pub username: String,
    pub groups: Vec<String>,
}

/// What could be read, or why it could not.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum DecodeOutcome<T> {
    Read(T),
    Unreadable { unreadable: String },
}

/// What a request asks for.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CsrContents {
    #[serde(flatten)]
    pub names: SubjectNames,
    pub key: String,
    /// Why the request does not prove that who asks has the key; none if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unproven: Option<String>,
    /// Identifiers of extensions beside the names. Kubernetes' own signers leave them out.
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
    /// How it stands with its validity now.
    #[serde(skip)]
    pub standing: String,
    pub key: String,
    /// Whether its key is the request's; none if the request cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_matches: Option<bool>,
    /// How many certificates there are, with this one.
    pub chain_length: usize,
}

/// Whom a request or a certificate names.
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
pub struct ConditionView {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    pub reason: String,
    pub message: String,
    pub updated: Option<String>,
    /// How long ago that was.
    #[serde(skip)]
    pub age: String,
}

impl CsrView {
    /// What a request says, at this time.
    pub fn from_csr(request: &CsrObject, now: OffsetDateTime) -> Self {
        let asked = CertificateRequest::from_pem(&request.spec.request.0);
        let certificate = request.status.as_ref().and_then(|status| status.certificate.as_ref());
        let certificate = certificate.filter(|text| !text.0.is_empty());
        let key = asked.as_ref().ok().map(CertificateRequest::public_key);
        let created = request.metadata.creation_timestamp.as_ref();
        Self {
            name: request.name_any(),
            signer: request.spec.signer_name.clone(),
            requestor: CsrRequester {
                username: request.spec.username.clone().unwrap_or_default(),
                groups: request.spec.groups.clone().unwrap_or_default(),
            },
            created: created.and_then(to_offset_date_time).map(timestamp::format),
            age: format_age(created, now),
            usages: request.spec.usages.clone().unwrap_or_default(),
            requested_seconds: request.spec.expiration_seconds,
            state: state(request, certificate.is_some()),
            certificate: certificate.map(|text| issued(&text.0, key, now)),
            request: asked.as_ref().map(CsrContents::from_request).into(),
            conditions: conditions(request)
                .iter()
                .map(|said| ConditionView::from_condition(said, now))
                .collect(),
        }
    }

    /// Whether nobody has decided on it.
    pub fn is_pending(&self) -> bool {
        !self.conditions.iter().any(|said| said.kind == "Approved" || said.kind == "Denied")
    }
}

/// The conditions of a request.
pub fn conditions(request: &CsrObject) -> &[Condition] {
    request.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default()
}

fn state(request: &CsrObject, has_certificate: bool) -> String {
    let said = |kind: &str| conditions(request).iter().any(|condition| condition.type_ == kind);
    let decision = match (said("Approved"), said("Denied")) {
        (_, true) => "Denied",
        (true, false) => "Approved",
        (false, false) => "Pending",
    };
    let failed = said("Failed").then_some("Failed");
    let issued = has_certificate.then_some("Issued");
    [Some(decision), failed, issued].into_iter().flatten().collect::<Vec<_>>().join(",")
}

impl<T, E: std::fmt::Display> From<Result<T, E>> for DecodeOutcome<T> {
    fn from(read: Result<T, E>) -> Self {
        match read {
            Ok(read) => Self::Read(read),
            Err(error) => Self::Unreadable { unreadable: error.to_string() },
        }
    }
}

impl CsrContents {
    fn from_request(request: &CertificateRequest) -> Self {
        let others = request.extensions().iter().map(|extension| extension.oid());
        Self {
            names: SubjectNames::from_subject(request.subject(), request.alt_names()),
            key: key_description(request.public_key()),
            unproven: request.verify_signature().err().map(|error| error.to_string()),
            other_extensions: others.filter(|oid| oid != SUBJECT_ALT_NAME).collect(),
        }
    }
}

const SUBJECT_ALT_NAME: &str = "2.5.29.17";

fn issued(
    text: &[u8],
    key: Option<&SubjectKey>,
    now: OffsetDateTime,
) -> DecodeOutcome<IssuedCertificate> {
    match parse_certificate_blocks(text).as_deref() {
        Ok([leaf, rest @ ..]) => {
            DecodeOutcome::Read(IssuedCertificate::from_certificate(leaf, 1 + rest.len(), key, now))
        }
        Ok([]) => DecodeOutcome::Unreadable { unreadable: "there is no certificate".into() },
        Err(error) => DecodeOutcome::Unreadable { unreadable: error.to_string() },
    }
}

impl IssuedCertificate {
    /// What the first certificate of a chain says, at this time.
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
            standing: validity_status(leaf, now),
            key: key_description(leaf.public_key()),
            key_matches: asked.map(|asked| asked == leaf.public_key()),
            chain_length,
        }
    }
}

impl SubjectNames {
    /// A subject and what else it is called.
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
            updated: updated.and_then(to_offset_date_time).map(timestamp::format),
            age: format_age(updated, now),
        }
    }
}

/// A time of the API's.
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
        format!("ended {} ago", human_duration(-ends.whole_seconds()))
    } else if begins.is_positive() {
        format!("begins in {}", human_duration(begins.whole_seconds()))
    } else {
        format!("ends in {}", human_duration(ends.whole_seconds()))
    }
}

/// A serial number, octet by octet.
pub fn serial(number: &[u8]) -> String {
    let octets = number.iter().map(|octet| format!("{octet:02x}")).collect::<Vec<_>>();
    if octets.is_empty() { "00".into() } else { octets.join(":") }
}

/// What kind of key it is.
pub fn key_description(key: &SubjectKey) -> String {
    key.algorithm().description()
}

/// A distinguished name in its own order, with RFC 4514's escapes: what stands in one value cannot
/// look like another attribute.
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
