//! What a signer gives to pods: the section `pods`.

use std::collections::BTreeSet;
use std::time::Duration;

use windlass_api::names;
use windlass_pki::{CertificateUsages, KeyType, KeyUsageSet};

use super::document::{ConfigError, ConfigField, ConfigFields};
use super::values;

/// The shortest that a pod's certificate may be asked for.
const SHORTEST: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What a signer gives to pods, and to which. Certificates have a URI, or DNS names, or both.
#[derive(Clone, Debug, PartialEq)]
pub struct PodProfile {
    /// Certificates have the URI `spiffe://<this>/ns/<namespace>/sa/<service account>`; `None` for
    /// no URI.
    pub trust_domain: Option<String>,
    /// The cluster's domain, if certificates have the DNS names of the pod's services; `None` for
    /// no DNS names.
    pub service_names: Option<String>,
    /// Pods whose requests the signer accepts.
    pub allowed: AllowedPods,
    /// The usages, unless it is left to [`PodProfile::usages`].
    chosen_usages: Option<CertificateUsages>,
    /// The key types that are allowed; never empty.
    pub key_types: Vec<KeyType>,
    /// The longest that a certificate lasts: an hour at least.
    pub max_duration: Duration,
    /// After which part of its life a certificate is to be replaced: between 0 and 1.
    pub refresh_after: f64,
}

/// Selects the pods that can get certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedPods {
    /// Pods in all namespaces with any service account.
    Everyone,
    /// Those in these namespaces, and those of these service accounts, which are a namespace and a
    /// name.
    Only {
        /// Namespaces of which all pods are allowed.
        namespaces: BTreeSet<String>,
        /// Service accounts, by namespace and name.
        service_accounts: BTreeSet<(String, String)>,
    },
}

impl AllowedPods {
    /// Whether pods of this service account get certificates.
    pub fn contains(&self, namespace: &str, service_account: &str) -> bool {
        match self {
            AllowedPods::Everyone => true,
            AllowedPods::Only { namespaces, service_accounts } => {
                namespaces.contains(namespace)
                    || service_accounts
                        .iter()
                        .any(|(within, name)| within == namespace && name == service_account)
            }
        }
    }
}

impl PodProfile {
    /// Whether keys of this type get certificates.
    pub fn allows_key(&self, key: KeyType) -> bool {
        self.key_types.contains(&key)
    }

    /// The usages of a certificate for a key of this type.
    pub fn usages(&self, key: KeyType) -> CertificateUsages {
        if let Some(usages) = &self.chosen_usages {
            return usages.clone();
        }
        let both =
            [windlass_pki::ExtendedUsage::ServerAuth, windlass_pki::ExtendedUsage::ClientAuth];
        let signature = KeyUsageSet::DIGITAL_SIGNATURE;
        let key = if key.can_encipher() {
            // Older clients send RSA servers a key that is enciphered for them.
            signature.with(KeyUsageSet::KEY_ENCIPHERMENT)
        } else {
            signature
        };
        CertificateUsages { key, extended: BTreeSet::from(both) }
    }

    pub(super) fn parse(section: &ConfigField<'_>) -> Result<PodProfile, ConfigError> {
        let fields = section.fields(&[
            "trustDomain",
            "serviceNames",
            "clusterDomain",
            "namespaces",
            "serviceAccounts",
            "usages",
            "keyTypes",
            "maxDuration",
            "refreshAfter",
        ])?;
        let key_types = match fields.get("keyTypes") {
            None => KeyType::POD_CERTIFICATE.to_vec(),
            Some(list) => values::parse_key_types(&list, KeyType::POD_CERTIFICATE)?,
        };
        let longest = fields
            .read("maxDuration", |field| values::parse_duration_at_least(field, SHORTEST, "1h"))?;
        let trust_domain = fields.read("trustDomain", parse_trust_domain)?;
        let service_names = parse_service_names(&fields)?;
        if trust_domain.is_none() && service_names.is_none() {
            let words = "has neither trustDomain nor serviceNames: certificates would name nobody";
            return Err(section.error(words));
        }
        Ok(PodProfile {
            trust_domain,
            service_names,
            allowed: parse_allowed(&fields)?,
            chosen_usages: fields.read("usages", parse_usages)?,
            key_types,
            max_duration: longest.unwrap_or(DAY),
            refresh_after: fields.read("refreshAfter", parse_fraction)?.unwrap_or(0.66),
        })
    }
}

fn parse_usages(list: &ConfigField<'_>) -> Result<CertificateUsages, ConfigError> {
    let items = list.items()?;
    if items.is_empty() {
        return Err(list.error("is empty: certificates would be of no use"));
    }
    let names = items.iter().map(values::parse_usage).collect::<Result<Vec<_>, _>>()?;
    values::parse_usages(list, &names)
}

fn parse_trust_domain(field: &ConfigField<'_>) -> Result<String, ConfigError> {
    let name = field.text()?;
    let is_of_it =
        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-' | '_');
    if name.len() > 255 || !name.chars().all(is_of_it) {
        return Err(field.error(format!(
            "{name:?} is not a trust domain: lower-case letters, digits, '.', '-' and '_'"
        )));
    }
    Ok(name.to_owned())
}

fn parse_service_names(fields: &ConfigFields<'_>) -> Result<Option<String>, ConfigError> {
    let wanted = fields.read("serviceNames", ConfigField::boolean)?.unwrap_or(false);
    let domain = fields.read("clusterDomain", |field| {
        if !wanted {
            return Err(field.error("is of no use without serviceNames: true"));
        }
        values::parse_validated_name(field, field.text()?, names::dns1123_subdomain)
    })?;
    Ok(wanted.then(|| domain.unwrap_or_else(|| "cluster.local".to_owned())))
}

fn parse_allowed(fields: &ConfigFields<'_>) -> Result<AllowedPods, ConfigError> {
    if fields.get("namespaces").is_none() && fields.get("serviceAccounts").is_none() {
        return Ok(AllowedPods::Everyone);
    }
    let namespaces = fields.list("namespaces", values::parse_namespace)?;
    let accounts = fields.list("serviceAccounts", |field| {
        let text = field.text()?;
        let Some((namespace, name)) = text.split_once('/') else {
            let words = format!("{text:?} is not a service account such as namespace/name");
            return Err(field.error(words));
        };
        let namespace = values::parse_validated_name(field, namespace, names::dns1123_label)?;
        Ok((namespace, values::parse_validated_name(field, name, names::dns1123_subdomain)?))
    })?;
    Ok(AllowedPods::Only {
        namespaces: namespaces.into_iter().collect(),
        service_accounts: accounts.into_iter().collect(),
    })
}

/// A part of a whole, such as `0.66`.
fn parse_fraction(field: &ConfigField<'_>) -> Result<f64, ConfigError> {
    let text = field.scalar()?;
    match text.parse::<f64>() {
        Ok(part) if part > 0.0 && part < 1.0 => Ok(part),
        _ => Err(field.error(format!("{text} is not a number between 0 and 1 such as 0.66"))),
    }
}
