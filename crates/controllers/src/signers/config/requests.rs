//! The section `requests`: which CertificateSigningRequests a signer signs.

mod display;

use std::collections::BTreeSet;
use std::time::Duration;

use windlass_pki::limits::MIN_RSA_BITS;
use windlass_pki::{CertificateUsages, KeyAlgorithm, KeyType, SubjectKey};
use windlass_runtime::config::{ConfigField, ConfigResult};

use super::pattern::{AddressBlock, NamePattern};
use super::usages::{parse_required_usage, parse_usages};
use super::{DistributionPointTemplate, parse_key_type};

/// The minimum that the API accepts as `expirationSeconds`.
const MIN_DURATION: Duration = Duration::from_secs(10 * 60);

/// Everything that a request may ask for; anything else is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestProfile {
    /// Allowed common names; none are allowed if empty.
    pub common_names: Vec<NamePattern>,
    /// Allowed organizations; none are allowed if empty.
    pub organizations: Vec<NamePattern>,
    /// Allowed DNS names; none are allowed if empty.
    pub dns_names: Vec<NamePattern>,
    /// Allowed IP addresses; none are allowed if empty.
    pub ip_addresses: Vec<AddressBlock>,
    /// Allowed e-mail addresses; none are allowed if empty.
    pub email_addresses: Vec<NamePattern>,
    /// Allowed URIs; none are allowed if empty.
    pub uris: Vec<NamePattern>,
    /// Allowed usages; a request may ask for a part of them.
    pub usages: CertificateUsages,
    /// Names of usages that every request must include.
    pub required_usages: Vec<String>,
    /// Allowed key types; `None` allows every strong key.
    pub key_types: Option<Vec<KeyType>>,
    /// Maximum lifetime of a certificate; at least ten minutes.
    pub max_duration: Duration,
    /// Lifetime of a certificate if the request has none; at most `max_duration`.
    pub duration: Duration,
    /// Whether the intermediates of the CA are appended to certificates.
    pub include_chain: bool,
    /// Whether requests are approved manually or automatically.
    pub approval: ApprovalMode,
    /// URLs of the CA's list in certificates, from the section `crl`; none if empty.
    pub distribution_points: Vec<DistributionPointTemplate>,
}

/// How requests to the signer are approved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalMode {
    /// Another approver decides; the signer approves nothing itself.
    Manual,
    /// The signer approves requests of these users that its profile allows.
    Automatic(AllowedRequesters),
}

/// Users and groups whose requests are approved automatically.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedRequesters {
    users: BTreeSet<String>,
    groups: BTreeSet<String>,
}

impl AllowedRequesters {
    /// Whether the user, or one of the groups, is listed.
    pub fn contains(&self, user: &str, groups: &[String]) -> bool {
        self.users.contains(user) || groups.iter().any(|group| self.groups.contains(group))
    }
}

impl RequestProfile {
    pub(super) fn parse(section: &ConfigField<'_>) -> ConfigResult<RequestProfile> {
        let fields = section.fields(&[
            "commonNames",
            "organizations",
            "dnsNames",
            "ipAddresses",
            "emailAddresses",
            "uris",
            "usages",
            "requiredUsages",
            "keyTypes",
            "maxDuration",
            "duration",
            "includeChain",
            "approval",
        ])?;
        let common_names = fields.list("commonNames", NamePattern::parse_common_name);
        let organizations = fields.list("organizations", NamePattern::parse_organization);
        let dns_names = fields.list("dnsNames", NamePattern::parse_dns_name);
        let ip_addresses = fields.list("ipAddresses", AddressBlock::parse);
        let email_addresses = fields.list("emailAddresses", NamePattern::parse_email);
        let uris = fields.list("uris", NamePattern::parse_uri);
        let usages = fields.required("usages", |list| parse_usages(list, "every request would be rejected"));
        let required_usages =
            fields.list("requiredUsages", |field| parse_required_usage(field, usages.as_ref().ok()));
        let key_types = fields.optional("keyTypes", |list| {
            list.parse_nonempty("no key would be allowed", |item| parse_key_type(item, KeyType::ALL))
        });
        let max_duration = fields.required("maxDuration", |field| field.duration_at_least(MIN_DURATION));
        let duration = fields.optional("duration", |field| {
            let duration = field.duration_at_least(MIN_DURATION)?;
            match max_duration {
                Ok(maximum) if duration > maximum => {
                    Err(field.invalid("is longer than maxDuration; shorten it"))
                }
                _ => Ok(duration),
            }
        });
        let include_chain = fields.optional("includeChain", ConfigField::boolean);
        let approval = fields.optional("approval", ApprovalMode::parse);
        let max_duration = max_duration?;
        Ok(RequestProfile {
            common_names: common_names?,
            organizations: organizations?,
            dns_names: dns_names?,
            ip_addresses: ip_addresses?,
            email_addresses: email_addresses?,
            uris: uris?,
            usages: usages?,
            required_usages: required_usages?,
            key_types: key_types?,
            max_duration,
            duration: duration?.unwrap_or(max_duration),
            include_chain: include_chain?.unwrap_or(true),
            approval: approval?.unwrap_or(ApprovalMode::Manual),
            distribution_points: Vec::new(),
        })
    }

    /// Whether a key may be certified: it has one of the listed types or, without a list, is not weak.
    pub fn allows_key(&self, key: &SubjectKey) -> bool {
        match (&self.key_types, key.algorithm()) {
            (Some(named), _) => key.key_type().is_some_and(|kind| named.contains(&kind)),
            // The built-in signers of Kubernetes accept shorter keys for compatibility.
            (None, KeyAlgorithm::Rsa { modulus_bits }) => modulus_bits >= MIN_RSA_BITS,
            // Other weak keys are rejected for all signers at issuance.
            (None, _) => true,
        }
    }
}

impl RequestProfile {
    /// Wildcards with which several requesters can obtain each other's names, with the names of their fields. They are a
    /// risk only if requests are approved automatically; otherwise an approver sees who requests what.
    pub fn shared_wildcards(&self) -> Vec<(&'static str, &NamePattern)> {
        let ApprovalMode::Automatic(requesters) = &self.approval else { return Vec::new() };
        if requesters.users.len() < 2 && requesters.groups.is_empty() {
            return Vec::new();
        }
        let lists = [
            ("commonNames", &self.common_names),
            ("dnsNames", &self.dns_names),
            ("emailAddresses", &self.email_addresses),
            ("uris", &self.uris),
        ];
        let all = lists.into_iter().flat_map(|(field, list)| list.iter().map(move |each| (field, each)));
        all.filter(|(_, pattern)| pattern.is_shared_wildcard()).collect()
    }
}

impl ApprovalMode {
    fn parse(field: &ConfigField<'_>) -> ConfigResult<ApprovalMode> {
        if !field.is_map() {
            return match field.text()? {
                "manual" => Ok(ApprovalMode::Manual),
                _ => Err(field.invalid("is not supported; use manual, or a map with automatic")),
            };
        }
        let section = field.fields(&["automatic"])?;
        section.required("automatic", AllowedRequesters::parse).map(ApprovalMode::Automatic)
    }
}

impl AllowedRequesters {
    fn parse(section: &ConfigField<'_>) -> ConfigResult<AllowedRequesters> {
        let fields = section.fields(&["users", "groups"])?;
        let parse_name = |field: &ConfigField<'_>| match field.text()? {
            name if name.contains('*') => {
                Err(field.invalid("is a pattern; list requesters by their full names"))
            }
            name => Ok(name.to_owned()),
        };
        let users = fields.list("users", parse_name);
        let groups = fields.list("groups", parse_name);
        let (users, groups) = (users?, groups?);
        if users.is_empty() && groups.is_empty() {
            return Err(section.error("must list at least one user or group"));
        }
        let (users, groups) = (users.into_iter().collect(), groups.into_iter().collect());
        Ok(AllowedRequesters { users, groups })
    }
}
