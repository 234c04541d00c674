//! Policies of the Kubernetes signers, and their error messages.
//!
//! The first violated rule is reported. The messages are part of the interface.

use std::collections::BTreeSet;

use crate::{AltNames, CertificateRequest};

/// The parts of a request that signers check.
#[derive(Debug, Clone)]
pub struct RequestedAttributes<'a> {
    /// Requested common name; empty if absent.
    pub common_name: &'a str,
    /// Organizations of the requested subject, in order; empty if there are none.
    pub organizations: Vec<&'a str>,
    /// Subject alternative names of the request, possibly empty.
    pub alt_names: &'a AltNames,
    /// Requested usages by name, in order.
    pub usages: Vec<&'a str>,
}

/// Reason why a signer rejects a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The organizations are not those of a node.
    #[error("subject organization is not system:nodes")]
    Organization,
    /// The common name is not that of a node.
    #[error("subject common name does not begin with system:node:")]
    CommonName,
    /// A serving certificate requires an alternative name.
    #[error("DNS or IP subjectAltName is required")]
    AltNameRequired,
    /// The request contains a DNS name, which the signer forbids.
    #[error("DNS subjectAltNames are not allowed")]
    DnsName,
    /// The request contains an e-mail address, which the signer forbids.
    #[error("Email subjectAltNames are not allowed")]
    EmailAddress,
    /// The request contains an IP address, which the signer forbids.
    #[error("IP subjectAltNames are not allowed")]
    IpAddress,
    /// The request contains a URI, which the signer forbids.
    #[error("URI subjectAltNames are not allowed")]
    Uri,
    /// The usages differ from the required ones.
    #[error("usages did not match [{}]", .0.join(" "))]
    Usages(&'static [&'static str]),
    /// A usage that client certificates may not have.
    #[error("invalid usage for client certificate: {0}")]
    InvalidUsage(String),
    /// A usage that client certificates must have.
    #[error("missing required usage for client certificate: {0}")]
    MissingUsage(&'static str),
}

const NODES: &str = "system:nodes";
const NODE_PREFIX: &str = "system:node:";
const CLIENT_AUTH: &str = "client auth";
const DIGITAL_SIGNATURE: &str = "digital signature";
const KEY_ENCIPHERMENT: &str = "key encipherment";
const SERVING: [&str; 3] = [DIGITAL_SIGNATURE, KEY_ENCIPHERMENT, "server auth"];
const CLIENT: [&str; 3] = [CLIENT_AUTH, DIGITAL_SIGNATURE, KEY_ENCIPHERMENT];

impl<'a> RequestedAttributes<'a> {
    /// Extracts the attributes of a request with the given usages.
    pub fn new<Text: AsRef<str>>(request: &'a CertificateRequest, usages: &'a [Text]) -> Self {
        Self {
            common_name: request.subject().common_name(),
            organizations: request.subject().organizations(),
            alt_names: request.alt_names(),
            usages: usages.iter().map(AsRef::as_ref).collect(),
        }
    }
}

/// Validates a request to `kubernetes.io/kubelet-serving`: serving certificates of nodes.
pub fn validate_kubelet_serving(asked: &RequestedAttributes<'_>) -> Result<(), PolicyError> {
    organization(asked)?;
    let names = asked.alt_names;
    reject_if(names.dns_names.is_empty() && names.ip_addresses.is_empty(), PolicyError::AltNameRequired)?;
    reject_if(!names.email_addresses.is_empty(), PolicyError::EmailAddress)?;
    reject_if(!names.uris.is_empty(), PolicyError::Uri)?;
    usages(asked, &SERVING)?;
    common_name(asked)
}

/// Validates a request to `kubernetes.io/kube-apiserver-client-kubelet`: client certificates of
/// nodes.
pub fn validate_kubelet_client(asked: &RequestedAttributes<'_>) -> Result<(), PolicyError> {
    organization(asked)?;
    let names = asked.alt_names;
    reject_if(!names.dns_names.is_empty(), PolicyError::DnsName)?;
    reject_if(!names.email_addresses.is_empty(), PolicyError::EmailAddress)?;
    reject_if(!names.ip_addresses.is_empty(), PolicyError::IpAddress)?;
    reject_if(!names.uris.is_empty(), PolicyError::Uri)?;
    common_name(asked)?;
    usages(asked, &CLIENT)
}

/// Validates a request to `kubernetes.io/kube-apiserver-client`: client certificates with any
/// names.
pub fn validate_api_client(asked: &RequestedAttributes<'_>) -> Result<(), PolicyError> {
    let invalid = asked.usages.iter().find(|usage| !CLIENT.contains(usage));
    if let Some(usage) = invalid {
        return Err(PolicyError::InvalidUsage((*usage).to_owned()));
    }
    reject_if(!asked.usages.contains(&CLIENT_AUTH), PolicyError::MissingUsage(CLIENT_AUTH))
}

fn organization(asked: &RequestedAttributes<'_>) -> Result<(), PolicyError> {
    reject_if(asked.organizations != [NODES], PolicyError::Organization)
}

fn common_name(asked: &RequestedAttributes<'_>) -> Result<(), PolicyError> {
    reject_if(!asked.common_name.starts_with(NODE_PREFIX), PolicyError::CommonName)
}

/// Requires exactly these usages, in any order. Key encipherment is optional, because only RSA uses
/// it.
fn usages(asked: &RequestedAttributes<'_>, wanted: &'static [&'static str]) -> Result<(), PolicyError> {
    let mut given = asked.usages.iter().copied().collect::<BTreeSet<_>>();
    given.insert(KEY_ENCIPHERMENT);
    reject_if(given != wanted.iter().copied().collect(), PolicyError::Usages(wanted))
}

fn reject_if(broken: bool, error: PolicyError) -> Result<(), PolicyError> {
    if broken { Err(error) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
