//! What the signers of Kubernetes take, and what they say of what they do not.
//!
//! The first rule that is broken is named. These texts are part of the interface.

use std::collections::BTreeSet;

use crate::{AltNames, CertificateRequest};

/// What somebody asks for, as far as a signer looks at it.
#[derive(Debug, Clone)]
pub struct RequestedAttributes<'a> {
    /// The common name; empty if there is none.
    pub common_name: &'a str,
    /// Organizations of the requested subject, in order; empty if there are none.
    pub organizations: Vec<&'a str>,
    /// Subject alternative names of the request, possibly empty.
    pub alt_names: &'a AltNames,
    /// The usages by their names, in order.
    pub usages: Vec<&'a str>,
}

/// Why a signer does not take a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The organizations of a node are others.
    #[error("subject organization is not system:nodes")]
    Organization,
    /// The common name of a node is another.
    #[error("subject common name does not begin with system:node:")]
    CommonName,
    /// A server that has no name.
    #[error("DNS or IP subjectAltName is required")]
    AltNameRequired,
    /// There is a DNS name.
    #[error("DNS subjectAltNames are not allowed")]
    DnsName,
    /// There is an e-mail address.
    #[error("Email subjectAltNames are not allowed")]
    EmailAddress,
    /// The request contains an IP address, which the signer forbids.
    #[error("IP subjectAltNames are not allowed")]
    IpAddress,
    /// The request contains a URI, which the signer forbids.
    #[error("URI subjectAltNames are not allowed")]
    Uri,
    /// The usages are others than these.
    #[error("usages did not match [{}]", .0.join(" "))]
    Usages(&'static [&'static str]),
    /// A usage that clients have no use for.
    #[error("invalid usage for client certificate: {0}")]
    InvalidUsage(String),
    /// A usage that clients cannot do without.
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
    /// What a request asks for, and for which usages.
    pub fn new<Text: AsRef<str>>(request: &'a CertificateRequest, usages: &'a [Text]) -> Self {
        Self {
            common_name: request.subject().common_name(),
            organizations: request.subject().organizations(),
            alt_names: request.alt_names(),
            usages: usages.iter().map(AsRef::as_ref).collect(),
        }
    }
}

/// What `kubernetes.io/kubelet-serving` takes: the serving certificates of nodes.
pub fn validate_kubelet_serving(asked: &RequestedAttributes<'_>) -> Result<(), PolicyError> {
    organization(asked)?;
    let names = asked.alt_names;
    reject_if(
        names.dns_names.is_empty() && names.ip_addresses.is_empty(),
        PolicyError::AltNameRequired,
    )?;
    reject_if(!names.email_addresses.is_empty(), PolicyError::EmailAddress)?;
    reject_if(!names.uris.is_empty(), PolicyError::Uri)?;
    usages(asked, &SERVING)?;
    common_name(asked)
}

/// What `kubernetes.io/kube-apiserver-client-kubelet` takes: the client certificates of nodes.
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

/// What `kubernetes.io/kube-apiserver-client` takes: client certificates of anybody, whatever the
/// names in them.
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

/// Exactly these, in any order. Only RSA enciphers keys, so that one may be missing.
fn usages(
    asked: &RequestedAttributes<'_>,
    wanted: &'static [&'static str],
) -> Result<(), PolicyError> {
    let mut given = asked.usages.iter().copied().collect::<BTreeSet<_>>();
    given.insert(KEY_ENCIPHERMENT);
    reject_if(given != wanted.iter().copied().collect(), PolicyError::Usages(wanted))
}

fn reject_if(broken: bool, error: PolicyError) -> Result<(), PolicyError> {
    if broken { Err(error) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
