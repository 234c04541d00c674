//! Values of flags that are more than a path or a number.

use std::str::FromStr;
use std::time::Duration;

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

/// Reads a duration as Go writes it: `90s`, `1m30s`, `500ms`, and a plain `0`.
pub fn duration(text: &str) -> Result<Duration, &'static str> {
    const MALFORMED: &str = "must be a duration such as 30s, 1m30s or 500ms";
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.is_empty() {
        return Err(MALFORMED);
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits =
            rest.find(|c: char| !c.is_ascii_digit()).ok_or("a unit is missing: s, m, h")?;
        let (number, tail) = rest.split_at(digits);
        let end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let number = number.parse::<u64>().map_err(|_| MALFORMED)?;
        let unit = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(MALFORMED),
        };
        let part = number.checked_mul(unit).map(Duration::from_millis);
        total = part.and_then(|part| total.checked_add(part)).ok_or("it is too long")?;
        rest = tail;
    }
    Ok(total)
}

/// Reads the name of a node, which is a DNS subdomain as every object's of its kind.
pub fn node_name(text: &str) -> Result<String, &'static str> {
    let label = |label: &str| {
        let inner = label
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        !label.is_empty() && inner && !label.starts_with('-') && !label.ends_with('-')
    };
    if text.len() <= 253 && text.split('.').all(label) {
        Ok(text.to_owned())
    } else {
        Err("must be a DNS name: lower-case letters, digits, '-' and '.'")
    }
}
