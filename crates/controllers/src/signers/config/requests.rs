//! Which requests for certificates a signer signs: the section `requests`.

mod display;

use std::collections::BTreeSet;
use std::time::Duration;

use windlass_pki::limits::MIN_RSA_BITS;
use windlass_pki::{CertificateUsages, KeyAlgorithm, KeyType, SubjectKey};

use super::document::{ConfigError, ConfigField};
use super::pattern::{AddressBlock, NamePattern};
use super::values;

const SHORTEST: Duration = Duration::from_secs(10 * 60);

/// What may be asked of a signer. What is not allowed here is refused.
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
    /// The most usages that may be asked for.
    pub usages: CertificateUsages,
    /// Names of usages that must be asked for.
    pub required_usages: Vec<String>,
    /// The kinds of key; `None` for all that are strong.
    pub key_types: Option<Vec<KeyType>>,
    /// The longest that a certificate lasts: ten minutes at least.
    pub max_duration: Duration,
    /// How long one lasts if the request does not say; not longer than `longest`.
    pub duration: Duration,
    /// Whether certificates come with those that vouch for the CA.
    pub include_chain: bool,
    /// Whether requests are approved manually or automatically.
    pub approval: ApprovalMode,
}

/// How requests for the signer get approved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalMode {
    /// Another approver decides; the signer approves nothing itself.
    Manual,
    /// The signer, if these ask for what it signs.
    Automatic(AllowedRequesters),
}

/// Those whose requests are approved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedRequesters {
    users: BTreeSet<String>,
    groups: BTreeSet<String>,
}

impl AllowedRequesters {
    /// Whether it is one of them.
    pub fn contains(&self, user: &str, groups: &[String]) -> bool {
        self.users.contains(user) || groups.iter().any(|group| self.groups.contains(group))
    }
}

impl RequestProfile {
    pub(super) fn parse(section: &ConfigField<'_>) -> Result<RequestProfile, ConfigError> {
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
        let usages = parse_usages(&fields.require("usages")?)?;
        let longest =
            values::parse_duration_at_least(&fields.require("maxDuration")?, SHORTEST, "10m")?;
        let lifetime = fields.read("duration", |field| parse_lifetime(field, longest))?;
        Ok(RequestProfile {
            common_names: fields.list("commonNames", NamePattern::parse_common_name_field)?,
            organizations: fields.list("organizations", NamePattern::parse_organization_field)?,
            dns_names: fields.list("dnsNames", NamePattern::parse_dns_name_field)?,
            ip_addresses: fields.list("ipAddresses", AddressBlock::parse_field)?,
            email_addresses: fields.list("emailAddresses", NamePattern::parse_email_field)?,
            uris: fields.list("uris", NamePattern::parse_uri_field)?,
            required_usages: fields
                .list("requiredUsages", |field| parse_required_usage(field, &usages))?,
            usages,
            key_types: fields
                .read("keyTypes", |list| values::parse_key_types(list, KeyType::ALL))?,
            max_duration: longest,
            duration: lifetime.unwrap_or(longest),
            include_chain: fields.read("includeChain", ConfigField::boolean)?.unwrap_or(true),
            approval: fields.read("approval", parse_approval)?.unwrap_or(ApprovalMode::Manual),
        })
    }

    /// Whether a key may be certified: one of those that are named, or else any that is not weak.
    pub fn allows_key(&self, key: &SubjectKey) -> bool {
        match (&self.key_types, key.algorithm()) {
            (Some(named), _) => key.key_type().is_some_and(|kind| named.contains(&kind)),
            // Kubernetes' own signers take shorter ones; these have no past to keep up with.
            (None, KeyAlgorithm::Rsa { modulus_bits }) => modulus_bits >= MIN_RSA_BITS,
            // Other weak ones are refused for everybody when they are to be signed.
            (None, _) => true,
        }
    }
}

impl RequestProfile {
    /// Wildcards under which several requesters can be issued each other's names, with the fields
    /// that have them. Only requests that are approved automatically count: of the others, somebody
    /// sees who asks for what.
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
        let all =
            lists.into_iter().flat_map(|(field, list)| list.iter().map(move |each| (field, each)));
        all.filter(|(_, pattern)| pattern.is_shared_wildcard()).collect()
    }
}

fn parse_usages(list: &ConfigField<'_>) -> Result<CertificateUsages, ConfigError> {
    let names = list.items()?.iter().map(values::parse_usage).collect::<Result<Vec<_>, _>>()?;
    if names.is_empty() {
        return Err(list.error("is empty: nothing could be asked for"));
    }
    values::parse_usages(list, &names)
}

fn parse_required_usage(
    field: &ConfigField<'_>,
    allowed: &CertificateUsages,
) -> Result<String, ConfigError> {
    let name = values::parse_usage(field)?;
    let wanted = values::parse_usages(field, &[name])?;
    if !allowed.key.contains(wanted.key) || !allowed.extended.is_superset(&wanted.extended) {
        return Err(field.error(format!("{name:?} is not among the usages")));
    }
    Ok(name.to_owned())
}

fn parse_lifetime(field: &ConfigField<'_>, longest: Duration) -> Result<Duration, ConfigError> {
    let lifetime = values::parse_duration_at_least(field, SHORTEST, "10m")?;
    if lifetime > longest {
        return Err(field.error(format!("{:?} is longer than maxDuration", field.scalar()?)));
    }
    Ok(lifetime)
}

fn parse_approval(field: &ConfigField<'_>) -> Result<ApprovalMode, ConfigError> {
    if let Ok(text) = field.text() {
        return match text {
            "manual" => Ok(ApprovalMode::Manual),
            _ => Err(field.error(format!(
                "{text:?} is not an approval; there are manual and the map automatic"
            ))),
        };
    }
    let section = field.fields(&["automatic"])?.require("automatic")?;
    let who = section.fields(&["users", "groups"])?;
    let name = |field: &ConfigField<'_>| {
        let name = field.text()?;
        if name.contains('*') {
            return Err(field.error(format!("{name:?}: patterns are not for requesters")));
        }
        Ok(name.to_owned())
    };
    let users: BTreeSet<String> = who.list("users", name)?.into_iter().collect();
    let groups: BTreeSet<String> = who.list("groups", name)?.into_iter().collect();
    if users.is_empty() && groups.is_empty() {
        return Err(section.error("names neither users nor groups"));
    }
    Ok(ApprovalMode::Automatic(AllowedRequesters { users, groups }))
}
