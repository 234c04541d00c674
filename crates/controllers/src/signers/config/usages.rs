//! Usages that certificates may have, by their names in Kubernetes.

use windlass_pki::{CertificateUsages, KeyUsageSet};
use windlass_runtime::config::{ConfigField, ConfigResult};

/// Parses a list of usages; `consequence` says what an empty one would mean.
pub fn parse_usages(list: &ConfigField<'_>, consequence: &str) -> ConfigResult<CertificateUsages> {
    let names = list.parse_nonempty(consequence, parse_usage_name)?;
    CertificateUsages::from_names(&names).map_err(|error| list.error(error.to_string()))
}

/// Parses a usage that a request must include. It has to be one of `allowed`, if these are known.
pub fn parse_required_usage(
    field: &ConfigField<'_>,
    allowed: Option<&CertificateUsages>,
) -> ConfigResult<String> {
    let name = parse_usage_name(field)?;
    let usage = CertificateUsages::from_names(&[name]).unwrap_or_default();
    match allowed {
        Some(allowed)
            if !allowed.key.contains(usage.key) || !allowed.extended.is_superset(&usage.extended) =>
        {
            Err(field.invalid("is not one of the usages; add it to usages"))
        }
        _ => Ok(name.to_owned()),
    }
}

fn parse_usage_name<'a>(field: &ConfigField<'a>) -> ConfigResult<&'a str> {
    let name = field.text()?;
    let usages = CertificateUsages::from_names(&[name])
        .map_err(|_| field.invalid("is not a usage; use a name such as \"server auth\""))?;
    if usages.key.contains(KeyUsageSet::CERT_SIGN) || usages.key.contains(KeyUsageSet::CRL_SIGN) {
        return Err(field.invalid("is reserved for CAs; remove it"));
    }
    Ok(name)
}
