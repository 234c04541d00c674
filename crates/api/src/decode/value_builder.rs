//! Builds a JSON value from any serde format and detects duplicate keys.
//!
//! `serde_json::Value` cannot report duplicates. The builder below tracks its path as a chain of
//! references on the stack, so it allocates nothing until there is something to report.

use std::fmt::{self, Write as _};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};

use crate::field::truncate;
use crate::limits::{MAX_DUPLICATES, MAX_KEY_BYTES};

/// State shared by all builders of one document.
pub(super) struct BuildContext {
    /// Paths of duplicate keys found so far.
    pub duplicates: Vec<String>,
    /// If true, a whole number written as a float (`1e3`) becomes an integer.
    pub whole_floats_are_integers: bool,
}

pub(super) struct ValueBuilder<'a> {
    place: ValuePath<'a>,
    build: &'a mut BuildContext,
}

impl<'a> ValueBuilder<'a> {
    /// Starts at the root, with an empty path.
    pub fn root(build: &'a mut BuildContext) -> Self {
        ValueBuilder { place: ValuePath::Root, build }
    }
}

#[derive(Clone, Copy)]
enum ValuePath<'a> {
    Root,
    Field(&'a ValuePath<'a>, &'a str),
    Element(&'a ValuePath<'a>, usize),
}

impl fmt::Display for ValuePath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValuePath::Root => Ok(()),
            ValuePath::Field(ValuePath::Root, name) => f.write_str(name),
            ValuePath::Field(parent, name) => write!(f, "{parent}.{name}"),
            ValuePath::Element(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

impl<'de> DeserializeSeed<'de> for ValueBuilder<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueBuilder<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        // Within these bounds every whole float fits an i64, and the cast is exact.
        const BOUND: f64 = 9_007_199_254_740_992.0;
        if self.build.whole_floats_are_integers && value.fract() == 0.0 && value.abs() <= BOUND {
            return Ok(Value::Number((value as i64).into()));
        }
        let number = Number::from_f64(value);
        number.map(Value::Number).ok_or_else(|| E::custom("a number is not finite"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut elements = Vec::new();
        loop {
            let place = ValuePath::Element(&self.place, elements.len());
            match list.next_element_seed(ValueBuilder { place, build: &mut *self.build })? {
                Some(element) => elements.push(element),
                None => return Ok(Value::Array(elements)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = map.next_key_seed(KeySeed)? {
            let entry = object.entry(key);
            let place = ValuePath::Field(&self.place, entry.key());
            if matches!(entry, Entry::Occupied(_)) {
                duplicate(&mut self.build.duplicates, place);
            }
            let value = map.next_value_seed(ValueBuilder { place, build: &mut *self.build })?;
            match entry {
                Entry::Vacant(free) => {
                    free.insert(value);
                }
                Entry::Occupied(mut taken) => {
                    taken.insert(value);
                }
            }
        }
        Ok(Value::Object(object))
    }
}

fn duplicate(duplicates: &mut Vec<String>, place: ValuePath<'_>) {
    if duplicates.len() >= MAX_DUPLICATES {
        return;
    }
    let mut path = BoundedString(String::new());
    // Fails when the length limit is reached.
    let _ = write!(path, "{place}");
    if !duplicates.contains(&path.0) {
        duplicates.push(path.0);
    }
}

/// Keeps the first [`MAX_KEY_BYTES`] written and then fails. A key can be duplicated a hundred
/// thousand times, below keys of any length.
struct BoundedString(String);

impl fmt::Write for BoundedString {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let taken = truncate(text, MAX_KEY_BYTES - self.0.len());
        self.0.push_str(taken);
        if taken.len() < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

/// Deserializes a key. JSON keys are strings; a YAML key may be any scalar and becomes its text.
struct KeySeed;

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for KeySeed {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, number or boolean as a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<String, E> {
        Ok(key.to_owned())
    }

    fn visit_string<E: Error>(self, key: String) -> Result<String, E> {
        Ok(key)
    }

    fn visit_bool<E: Error>(self, key: bool) -> Result<String, E> {
        Ok(key.to_string())
    }

    fn visit_i64<E: Error>(self, key: i64) -> Result<String, E> {
        Ok(key.to_string())
    }

    fn visit_u64<E: Error>(self, key: u64) -> Result<String, E> {
        Ok(key.to_string())
    }

    fn visit_f64<E: Error>(self, key: f64) -> Result<String, E> {
        Ok(key.to_string())
    }
}
