//! The tree of values, each with its location.

use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};
use serde_saphyr::{Location, Spanned};
use windlass_api::field::FieldPath;

/// Key and value of a map, in the order of the file. A key can occur twice.
pub(super) type ConfigEntry = (Spanned<String>, Spanned<ConfigValue>);

/// A value without its location.
#[derive(Debug)]
pub(super) enum ConfigValue {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Spanned<ConfigValue>>),
    Map(Vec<ConfigEntry>),
}

impl ConfigValue {
    /// Names the type of the value, for errors that must not show it.
    pub fn type_name(&self) -> &'static str {
        match self {
            ConfigValue::Null => "null",
            ConfigValue::Bool(_) => "a boolean",
            ConfigValue::Number(_) => "a number",
            ConfigValue::Text(_) => "text",
            ConfigValue::List(_) => "a list",
            ConfigValue::Map(_) => "a map",
        }
    }

    /// Converts the value to JSON, as Kubernetes does with a manifest.
    pub fn to_json(&self) -> Value {
        match self {
            ConfigValue::Null => Value::Null,
            ConfigValue::Bool(value) => Value::Bool(*value),
            ConfigValue::Number(number) => Value::Number(number.clone()),
            ConfigValue::Text(text) => Value::String(text.clone()),
            ConfigValue::List(items) => Value::Array(items.iter().map(|item| item.value.to_json()).collect()),
            ConfigValue::Map(entries) => {
                let pair = |(key, node): &ConfigEntry| (key.value.clone(), node.value.to_json());
                Value::Object(entries.iter().map(pair).collect())
            }
        }
    }
}

/// Finds keys that occur more than once in their map.
pub(super) fn find_duplicates(root: &ConfigValue) -> Vec<(Location, FieldPath)> {
    let mut found = Vec::new();
    collect_duplicates(root, &FieldPath::default(), &mut found);
    found
}

fn collect_duplicates(value: &ConfigValue, path: &FieldPath, found: &mut Vec<(Location, FieldPath)>) {
    match value {
        ConfigValue::List(items) => {
            for (index, item) in items.iter().enumerate() {
                collect_duplicates(&item.value, &path.index(index), found);
            }
        }
        ConfigValue::Map(entries) => {
            let mut seen = HashSet::new();
            for (key, node) in entries {
                let path = path.child(&key.value);
                if !seen.insert(&key.value) {
                    found.push((key.referenced, path.clone()));
                }
                collect_duplicates(&node.value, &path, found);
            }
        }
        ConfigValue::Null | ConfigValue::Bool(_) | ConfigValue::Number(_) | ConfigValue::Text(_) => {}
    }
}

/// Finds the value at a path in the notation of Kubernetes errors, or the innermost value on the way that exists.
pub(super) fn locate<'n>(node: &'n Spanned<ConfigValue>, path: &str) -> &'n Spanned<ConfigValue> {
    let next = match &node.value {
        _ if path.is_empty() => None,
        ConfigValue::Map(entries) => {
            entries.iter().find_map(|(key, child)| Some((strip_key(path, &key.value)?, child)))
        }
        ConfigValue::List(items) => {
            let index = path.strip_prefix('[').and_then(|rest| rest.split_once(']'));
            index.and_then(|(index, rest)| Some((rest, items.get(index.parse::<usize>().ok()?)?)))
        }
        ConfigValue::Null | ConfigValue::Bool(_) | ConfigValue::Number(_) | ConfigValue::Text(_) => None,
    };
    next.map_or(node, |(rest, child)| locate(child, rest))
}

/// Strips `.key` or `[key]` from the beginning of a path.
fn strip_key<'p>(path: &'p str, key: &str) -> Option<&'p str> {
    let rest = match path.strip_prefix('[') {
        Some(bracketed) => bracketed.strip_prefix(key)?.strip_prefix(']')?,
        None => path.strip_prefix('.').unwrap_or(path).strip_prefix(key)?,
    };
    Some(rest).filter(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

impl<'de> Deserialize<'de> for ConfigValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ConfigValue, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = ConfigValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<ConfigValue, E> {
        Ok(ConfigValue::Null)
    }

    fn visit_none<E>(self) -> Result<ConfigValue, E> {
        Ok(ConfigValue::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<ConfigValue, E> {
        Ok(ConfigValue::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<ConfigValue, E> {
        Ok(ConfigValue::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<ConfigValue, E> {
        Ok(ConfigValue::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<ConfigValue, E> {
        // Kubernetes reads a whole number written as a float, such as `1e3`, as an integer. Below this bound the
        // conversion is exact.
        const BOUND: f64 = 9_007_199_254_740_992.0;
        if value.fract() == 0.0 && value.abs() <= BOUND {
            return Ok(ConfigValue::Number((value as i64).into()));
        }
        let number = Number::from_f64(value);
        number.map(ConfigValue::Number).ok_or_else(|| E::custom("a number is not finite"))
    }

    fn visit_str<E>(self, text: &str) -> Result<ConfigValue, E> {
        Ok(ConfigValue::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<ConfigValue, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(ConfigValue::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<ConfigValue, A::Error> {
        let mut map: Vec<ConfigEntry> = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(ConfigValue::Map(map))
    }
}
