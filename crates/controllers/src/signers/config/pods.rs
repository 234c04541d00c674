//! The section `pods`: which PodCertificateRequests a signer signs.

use std::collections::BTreeSet;
use std::time::Duration;

use windlass_api::names;
use windlass_pki::{CertificateUsages, KeyType, KeyUsageSet};
use windlass_runtime::config::{ConfigField, ConfigFields, ConfigResult};

use super::usages::parse_usages;
use super::{DistributionPointTemplate, parse_key_type};

/// The minimum that the API accepts as `maxExpirationSeconds`.
const MIN_DURATION: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Which pods get certificates, and what these contain. Certificates have a URI, DNS names, or both.
#[derive(Clone, Debug, PartialEq)]
pub struct PodProfile {
    /// Trust domain of the URI `spiffe://<trust domain>/ns/<namespace>/sa/<service account>`; `None` for no URI.
    pub trust_domain: Option<String>,
    /// Cluster domain, if certificates have the DNS names of the pod's services; `None` for no DNS names.
    pub service_names: Option<String>,
    /// Pods whose requests the signer accepts.
    pub allowed: AllowedPods,
    /// Configured usages; `None` for the defaults of [`PodProfile::usages`].
    chosen_usages: Option<CertificateUsages>,
    /// Allowed key types; never empty.
    pub key_types: Vec<KeyType>,
    /// Maximum lifetime of a certificate; at least one hour.
    pub max_duration: Duration,
    /// Fraction of its lifetime after which a certificate is renewed: between 0 and 1.
    pub refresh_after: f64,
    /// URLs of the CA's list in certificates, from the section `crl`; none if empty.
    pub distribution_points: Vec<DistributionPointTemplate>,
}

/// Selects the pods that can get certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedPods {
    /// Pods in all namespaces with any service account.
    Everyone,
    /// Pods in these namespaces, and pods with these service accounts.
    Only {
        /// Namespaces whose pods are all allowed.
        namespaces: BTreeSet<String>,
        /// Service accounts, by namespace and name.
        service_accounts: BTreeSet<(String, String)>,
    },
}

impl AllowedPods {
    /// Whether pods with this service account get certificates.
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
    /// Whether keys of this type are allowed.
    pub fn allows_key(&self, key: KeyType) -> bool {
        self.key_types.contains(&key)
    }

    /// Returns the usages of a certificate for this key type.
    pub fn usages(&self, key: KeyType) -> CertificateUsages {
        if let Some(usages) = &self.chosen_usages {
            return usages.clone();
        }
        let both = [windlass_pki::ExtendedUsage::ServerAuth, windlass_pki::ExtendedUsage::ClientAuth];
        let signature = KeyUsageSet::DIGITAL_SIGNATURE;
        let key = if key.can_encipher() {
            // The RSA key exchange of TLS 1.2 needs it.
            signature.with(KeyUsageSet::KEY_ENCIPHERMENT)
        } else {
            signature
        };
        CertificateUsages { key, extended: BTreeSet::from(both) }
    }

    pub(super) fn parse(section: &ConfigField<'_>) -> ConfigResult<PodProfile> {
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
        let trust_domain = fields.optional("trustDomain", parse_trust_domain);
        let service_names = parse_service_names(&fields);
        if trust_domain == Ok(None) && service_names == Ok(None) {
            section.error("issues certificates without names; add trustDomain or serviceNames");
        }
        let allowed = AllowedPods::parse(&fields);
        let chosen_usages =
            fields.optional("usages", |list| parse_usages(list, "certificates would have no purpose"));
        let key_types = fields.optional("keyTypes", |list| {
            list.parse_nonempty("no key would be allowed", |item| {
                parse_key_type(item, KeyType::POD_CERTIFICATE)
            })
        });
        let max_duration = fields.optional("maxDuration", |field| field.duration_at_least(MIN_DURATION));
        let refresh_after = fields.optional("refreshAfter", ConfigField::fraction);
        Ok(PodProfile {
            trust_domain: trust_domain?,
            service_names: service_names?,
            allowed: allowed?,
            chosen_usages: chosen_usages?,
            key_types: key_types?.unwrap_or_else(|| KeyType::POD_CERTIFICATE.to_vec()),
            max_duration: max_duration?.unwrap_or(DAY),
            refresh_after: refresh_after?.unwrap_or(0.66),
            distribution_points: Vec::new(),
        })
    }
}

impl AllowedPods {
    fn parse(fields: &ConfigFields<'_>) -> ConfigResult<AllowedPods> {
        if fields.get("namespaces").is_none() && fields.get("serviceAccounts").is_none() {
            return Ok(AllowedPods::Everyone);
        }
        let namespaces = fields.list("namespaces", |field| field.valid_name(names::dns1123_label));
        let service_accounts = fields.list("serviceAccounts", |field| {
            let Some((namespace, name)) = field.text()?.split_once('/') else {
                return Err(field.invalid("is not a service account; write namespace/name"));
            };
            field.check_name(namespace, names::dns1123_label)?;
            field.check_name(name, names::dns1123_subdomain)?;
            Ok((namespace.to_owned(), name.to_owned()))
        });
        Ok(AllowedPods::Only {
            namespaces: namespaces?.into_iter().collect(),
            service_accounts: service_accounts?.into_iter().collect(),
        })
    }
}

fn parse_trust_domain(field: &ConfigField<'_>) -> ConfigResult<String> {
    let name = field.text()?;
    let is_permitted = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-' | '_');
    if name.len() > 255 || !name.chars().all(is_permitted) {
        return Err(field
            .invalid("is not a trust domain; use at most 255 lower-case letters, digits, '.', '-' and '_'"));
    }
    Ok(name.to_owned())
}

fn parse_service_names(fields: &ConfigFields<'_>) -> ConfigResult<Option<String>> {
    let enabled = fields.optional("serviceNames", ConfigField::boolean);
    let domain = fields.optional("clusterDomain", |field| {
        if enabled.is_ok_and(|enabled| enabled != Some(true)) {
            return Err(field.error("has no effect without serviceNames: true; add that"));
        }
        field.valid_name(names::dns1123_subdomain)
    });
    let (enabled, domain) = (enabled?, domain?);
    Ok((enabled == Some(true)).then(|| domain.unwrap_or_else(|| "cluster.local".to_owned())))
}
