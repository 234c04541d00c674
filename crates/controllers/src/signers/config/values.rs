//! Values that several sections of the file have.

use std::path::PathBuf;
use std::time::Duration;

use windlass_api::{duration, names};
use windlass_pki::{KeyUsageSet, Usages};

use super::document::{ConfigError, Field};

/// A duration such as `24h`.
pub fn duration(field: &Field<'_>) -> Result<Duration, ConfigError> {
    let text = field.scalar()?;
    match duration::parse(text) {
        Ok(duration) => Ok(duration),
        Err(_) => Err(field.error(format!("{text:?} is not a duration such as 24h"))),
    }
}

/// A duration that is not shorter than this, which is written `shown`.
pub fn duration_of_at_least(
    field: &Field<'_>,
    shortest: Duration,
    shown: &str,
) -> Result<Duration, ConfigError> {
    let duration = duration(field)?;
    if duration < shortest {
        let text = field.scalar()?;
        return Err(field.error(format!("{text:?} is too short, must be at least {shown}")));
    }
    Ok(duration)
}

/// The name of a usage that may be given out.
pub fn usage<'a>(field: &Field<'a>) -> Result<&'a str, ConfigError> {
    let name = field.text()?;
    let usages = Usages::from_names(&[name])
        .map_err(|_| field.error(format!("{name:?} is not a usage such as \"server auth\"")))?;
    if usages.key.contains(KeyUsageSet::CERT_SIGN) || usages.key.contains(KeyUsageSet::CRL_SIGN) {
        return Err(field.error(format!("{name:?} is for authorities and never given out")));
    }
    Ok(name)
}

/// The usages of these names, which [`usage`] has read.
pub fn usages(field: &Field<'_>, names: &[&str]) -> Result<Usages, ConfigError> {
    Usages::from_names(names).map_err(|error| field.error(error.to_string()))
}

/// One of several words, by a table.
pub fn one_of<T: Copy>(field: &Field<'_>, table: &[(&str, T)]) -> Result<T, ConfigError> {
    let text = field.text()?;
    match table.iter().find(|(name, _)| *name == text) {
        Some((_, value)) => Ok(*value),
        None => {
            let known: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
            Err(field.error(format!("{text:?} is not one of {}", known.join(", "))))
        }
    }
}

/// A path, seen from the folder of the file if it is relative.
pub fn path(field: &Field<'_>) -> Result<PathBuf, ConfigError> {
    Ok(field.folder().join(field.text()?))
}

/// The name of a namespace.
pub fn namespace(field: &Field<'_>) -> Result<String, ConfigError> {
    named(field, field.text()?, names::dns1123_label)
}

/// A name that has to meet one of Kubernetes' rules.
pub fn named(
    field: &Field<'_>,
    name: &str,
    rule: fn(&str) -> Vec<String>,
) -> Result<String, ConfigError> {
    match rule(name).first() {
        None => Ok(name.to_owned()),
        Some(words) => Err(field.error(format!("{name:?}: {words}"))),
    }
}

/// The value of a label, which may be empty.
pub fn label(field: &Field<'_>) -> Result<String, ConfigError> {
    named(field, field.text_or_nothing()?, names::label_value)
}
