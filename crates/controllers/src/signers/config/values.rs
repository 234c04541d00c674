//! Values that several sections of the file have.

use std::path::PathBuf;
use std::time::Duration;

use windlass_api::{duration, names};
use windlass_pki::{CertificateUsages, KeyType, KeyUsageSet};

use super::document::{ConfigError, ConfigField};

/// A duration such as `24h`.
pub fn parse_duration(field: &ConfigField<'_>) -> Result<Duration, ConfigError> {
    let text = field.scalar()?;
    match duration::parse(text) {
        Ok(duration) => Ok(duration),
        Err(_) => Err(field.error(format!("{text:?} is not a duration such as 24h"))),
    }
}

/// A duration that is not shorter than this, which is written `shown`.
pub fn parse_duration_at_least(
    field: &ConfigField<'_>,
    shortest: Duration,
    shown: &str,
) -> Result<Duration, ConfigError> {
    let duration = parse_duration(field)?;
    if duration < shortest {
        let text = field.scalar()?;
        return Err(field.error(format!("{text:?} is too short, must be at least {shown}")));
    }
    Ok(duration)
}

/// The name of a usage that may be given out.
pub fn parse_usage<'a>(field: &ConfigField<'a>) -> Result<&'a str, ConfigError> {
    let name = field.text()?;
    let usages = CertificateUsages::from_names(&[name])
        .map_err(|_| field.error(format!("{name:?} is not a usage such as \"server auth\"")))?;
    if usages.key.contains(KeyUsageSet::CERT_SIGN) || usages.key.contains(KeyUsageSet::CRL_SIGN) {
        return Err(field.error(format!("{name:?} is for authorities and never given out")));
    }
    Ok(name)
}

/// The usages of these names, which [`parse_usage`] has read.
pub fn parse_usages(
    field: &ConfigField<'_>,
    names: &[&str],
) -> Result<CertificateUsages, ConfigError> {
    CertificateUsages::from_names(names).map_err(|error| field.error(error.to_string()))
}

/// One of several words, by a table.
pub fn parse_one_of<T: Copy>(
    field: &ConfigField<'_>,
    table: &[(&str, T)],
) -> Result<T, ConfigError> {
    let text = field.text()?;
    match table.iter().find(|(name, _)| *name == text) {
        Some((_, value)) => Ok(*value),
        None => {
            let known: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
            Err(field.error(format!("{text:?} is not one of {}", known.join(", "))))
        }
    }
}

/// One of several key types, by its name.
pub fn parse_key_type(
    field: &ConfigField<'_>,
    allowed: &[KeyType],
) -> Result<KeyType, ConfigError> {
    let table: Vec<_> = allowed.iter().map(|key| (key.name(), *key)).collect();
    parse_one_of(field, &table)
}

/// A list of key types, which must not be empty.
pub fn parse_key_types(
    list: &ConfigField<'_>,
    allowed: &[KeyType],
) -> Result<Vec<KeyType>, ConfigError> {
    let items = list.items()?;
    if items.is_empty() {
        return Err(list.error("is empty: no key would be allowed"));
    }
    items.iter().map(|item| parse_key_type(item, allowed)).collect()
}

/// A path, seen from the folder of the file if it is relative.
pub fn parse_path(field: &ConfigField<'_>) -> Result<PathBuf, ConfigError> {
    Ok(field.directory().join(field.text()?))
}

/// The name of a namespace.
pub fn parse_namespace(field: &ConfigField<'_>) -> Result<String, ConfigError> {
    parse_validated_name(field, field.text()?, names::dns1123_label)
}

/// A name that has to meet one of Kubernetes' rules.
pub fn parse_validated_name(
    field: &ConfigField<'_>,
    name: &str,
    rule: fn(&str) -> Vec<String>,
) -> Result<String, ConfigError> {
    match rule(name).first() {
        None => Ok(name.to_owned()),
        Some(words) => Err(field.error(format!("{name:?}: {words}"))),
    }
}

/// The value of a label, which may be empty.
pub fn parse_label(field: &ConfigField<'_>) -> Result<String, ConfigError> {
    parse_validated_name(field, field.text_or_empty()?, names::label_value)
}
