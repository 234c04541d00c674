//! Values of flags that are more than a path or a number.

use std::str::FromStr;
use std::time::Duration;

use windlass_api::duration::DurationError;
use windlass_api::names;

/// A feature and whether it is on, from `Name=true`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeatureGate {
    /// The feature's name, as Kubernetes calls it.
    pub name: String,
    /// Whether it is on.
    pub enabled: bool,
}

impl FromStr for FeatureGate {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, value) = text.split_once('=').ok_or("must be NAME=true or NAME=false")?;
        let (name, value) = (name.trim(), value.trim());
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err("a feature's name has letters and digits");
        }
        let enabled = match value {
            "true" | "True" | "TRUE" | "t" | "T" | "1" => true,
            "false" | "False" | "FALSE" | "f" | "F" | "0" => false,
            _ => return Err("must be NAME=true or NAME=false"),
        };
        Ok(Self { name: name.to_owned(), enabled })
    }
}

/// Reads a duration as Go writes it, without fractions: `90s`, `1m30s`, `500ms`, and a plain `0`.
pub fn duration(text: &str) -> Result<Duration, DurationError> {
    if text.contains('.') {
        return Err(DurationError::Format);
    }
    windlass_api::duration::parse(text)
}

/// Reads the name of a node, which is a DNS subdomain as every object's of its kind.
pub fn node_name(text: &str) -> Result<String, &'static str> {
    if names::dns1123_subdomain(text).is_empty() {
        Ok(text.to_owned())
    } else {
        Err("must be a DNS name: lower-case letters, digits, '-' and '.'")
    }
}
