//! Checks requests against the profile of a custom signer, without I/O and clock.

use std::fmt;

use windlass_pki::{CertificateRequest, CertificateUsages, NameAttribute, SubjectKey};

use super::config::{NamePattern, RequestProfile, RequesterIdentity};

/// Part of a request that the profile does not permit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProfileViolation {
    /// A name or a usage that is not allowed.
    Value {
        /// Kind of the value, for the message.
        what: &'static str,
        /// The value as requested.
        value: String,
    },
    /// A subject attribute other than common name and organization: its object identifier, and its value if that is text.
    Attribute(String, Option<String>),
    /// A required usage that is not requested.
    MissingUsage(String),
    /// The key type is not allowed; holds its description.
    Key(String),
    /// Neither a subject nor a subject alternative name.
    Nameless,
}

impl fmt::Display for ProfileViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProfileViolation::Value { what, value } => {
                write!(f, "{what} {value:?} is not allowed by the signer's profile")
            }
            ProfileViolation::Attribute(oid, value) => {
                write!(f, "subject attribute {oid} ")?;
                if let Some(value) = value {
                    write!(f, "({value:?}) ")?;
                }
                f.write_str("is not allowed by the signer's profile")
            }
            ProfileViolation::MissingUsage(name) => {
                write!(f, "usage {name:?} is required by the signer's profile")
            }
            ProfileViolation::Nameless => {
                f.write_str("the request has neither a subject nor a subject alternative name")
            }
            ProfileViolation::Key(kind) => {
                write!(f, "a key of type {kind} is not allowed by the signer's profile")
            }
        }
    }
}

/// Checks that the profile allows everything that was requested; the error is the first violation.
pub fn check(
    profile: &RequestProfile,
    requester: &RequesterIdentity<'_>,
    request: &CertificateRequest,
    usages: &[String],
) -> Result<(), ProfileViolation> {
    for attribute in request.subject().attributes() {
        check_attribute(profile, requester, attribute)?;
    }
    let names = request.alt_names();
    for (what, names, patterns) in [
        ("DNS name", &names.dns_names, &profile.dns_names),
        ("e-mail address", &names.email_addresses, &profile.email_addresses),
        ("URI", &names.uris, &profile.uris),
    ] {
        for name in names {
            check_name(what, name, patterns, requester)?;
        }
    }
    for address in &names.ip_addresses {
        if !profile.ip_addresses.iter().any(|block| block.contains(*address)) {
            return Err(ProfileViolation::Value { what: "IP address", value: address.to_string() });
        }
    }
    check_usages(profile, usages)?;
    if !profile.allows_key(request.public_key()) {
        return Err(ProfileViolation::Key(key_description(request.public_key())));
    }
    Ok(())
}

/// Whether a request has a subject or a subject alternative name. Empty names, which `*` allows, do not count.
pub fn has_subject(request: &CertificateRequest) -> bool {
    let names = request.alt_names();
    let texts = [&names.dns_names, &names.email_addresses, &names.uris].into_iter().flatten();
    let subject = request.subject().attributes().iter().filter_map(NameAttribute::value);
    !names.ip_addresses.is_empty()
        || texts.map(String::as_str).chain(subject).any(|text| !text.trim().is_empty())
}

const COMMON_NAME: &str = "2.5.4.3";
const ORGANIZATION: &str = "2.5.4.10";

/// Every attribute is checked, also those that other readers ignore.
fn check_attribute(
    profile: &RequestProfile,
    requester: &RequesterIdentity<'_>,
    attribute: &NameAttribute,
) -> Result<(), ProfileViolation> {
    let oid = attribute.oid();
    match (oid.as_str(), attribute.value()) {
        (COMMON_NAME, Some(name)) => check_name("common name", name, &profile.common_names, requester),
        (ORGANIZATION, Some(name)) => check_name("organization", name, &profile.organizations, requester),
        (_, value) => Err(ProfileViolation::Attribute(oid, value.map(str::to_owned))),
    }
}

fn check_name(
    what: &'static str,
    name: &str,
    patterns: &[NamePattern],
    requester: &RequesterIdentity<'_>,
) -> Result<(), ProfileViolation> {
    if patterns.iter().any(|pattern| pattern.allows(name, requester)) {
        return Ok(());
    }
    Err(ProfileViolation::Value { what, value: name.to_owned() })
}

fn check_usages(profile: &RequestProfile, usages: &[String]) -> Result<(), ProfileViolation> {
    let mut asked = CertificateUsages::default();
    for name in usages {
        let usage =
            CertificateUsages::from_names(&[name]).ok().filter(|usage| contains_all(&profile.usages, usage));
        let Some(usage) = usage else {
            return Err(ProfileViolation::Value { what: "usage", value: name.clone() });
        };
        asked.key = asked.key.with(usage.key);
        asked.extended.extend(usage.extended);
    }
    for name in &profile.required_usages {
        if !CertificateUsages::from_names(&[name]).is_ok_and(|usage| contains_all(&asked, &usage)) {
            return Err(ProfileViolation::MissingUsage(name.clone()));
        }
    }
    Ok(())
}

fn contains_all(all: &CertificateUsages, some: &CertificateUsages) -> bool {
    all.key.contains(some.key) && all.extended.is_superset(&some.extended)
}

fn key_description(key: &SubjectKey) -> String {
    key.algorithm().type_name()
}

#[cfg(test)]
mod tests;
