//! A YAML file of which every value knows where it stands, so that what is wrong with it can be
//! told by file, line, column and the path of the field.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned};

/// Nobody writes so much by hand.
pub const MAX_BYTES: usize = 1 << 20;

/// What is wrong with a file, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    file: PathBuf,
    at: Option<(u64, u64)>,
    path: String,
    words: String,
}

impl ConfigError {
    pub(super) fn of_file(file: &Path, words: String) -> ConfigError {
        ConfigError { file: file.to_owned(), at: None, path: String::new(), words }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some((line, column)) = self.at {
            write!(f, ":{line}:{column}")?;
        }
        if !self.path.is_empty() {
            write!(f, ": {}", self.path)?;
        }
        write!(f, ": {}", self.words)
    }
}

impl std::error::Error for ConfigError {}

/// A file that has been read.
pub struct Document {
    file: PathBuf,
    root: Spanned<Value>,
}

impl Document {
    /// Reads the text of a file: one YAML document.
    pub fn parse(file: &Path, text: &str) -> Result<Document, ConfigError> {
        let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
        if text.len() > MAX_BYTES {
            let words = format!("it is longer than {MAX_BYTES} bytes");
            return Err(ConfigError::of_file(file, words));
        }
        match serde_saphyr::from_str_with_options(text, options) {
            Ok(root) => Ok(Document { file: file.to_owned(), root }),
            Err(error) => {
                let words = error.without_snippet().to_string();
                Err(ConfigError {
                    file: file.to_owned(),
                    at: error.location().map(|at| (at.line(), at.column())),
                    path: String::new(),
                    words: words.lines().next().unwrap_or_default().to_owned(),
                })
            }
        }
    }

    /// The whole of it.
    pub fn root(&self) -> Field<'_> {
        Field { file: &self.file, path: String::new(), node: &self.root }
    }
}

/// A value that stands in the file.
#[derive(Clone)]
pub struct Field<'a> {
    file: &'a Path,
    path: String,
    node: &'a Spanned<Value>,
}

impl<'a> Field<'a> {
    /// Says what is wrong with it.
    pub fn error(&self, words: impl Into<String>) -> ConfigError {
        let at = place(&self.node.referenced);
        self.error_at(at, self.path.clone(), words.into())
    }

    /// The fields of a map that has no others than these.
    pub fn fields(&self, known: &[&str]) -> Result<Fields<'a>, ConfigError> {
        let entries = self.entries()?;
        for (key, _) in entries {
            if !known.contains(&key.value.as_str()) {
                let words = format!("unknown field; there are {}", known.join(", "));
                return Err(self.error_at(place(&key.referenced), self.child(&key.value), words));
            }
        }
        Ok(Fields { of: self.clone(), entries })
    }

    /// The keys and values of a map.
    pub fn pairs(&self) -> Result<Vec<(&'a str, Field<'a>)>, ConfigError> {
        let entries = self.entries()?.iter();
        Ok(entries.map(|(key, node)| (key.value.as_str(), self.below(&key.value, node))).collect())
    }

    /// The values of a list.
    pub fn items(&self) -> Result<Vec<Field<'a>>, ConfigError> {
        let Value::List(items) = &self.node.value else {
            return Err(self.unexpected("a list"));
        };
        let item = |(index, node)| Field {
            file: self.file,
            path: format!("{}[{index}]", self.path),
            node,
        };
        Ok(items.iter().enumerate().map(item).collect())
    }

    /// A text that is not empty.
    pub fn text(&self) -> Result<&'a str, ConfigError> {
        match self.text_or_nothing()? {
            "" => Err(self.error("is empty")),
            text => Ok(text),
        }
    }

    /// A text, perhaps without anything in it.
    pub fn text_or_nothing(&self) -> Result<&'a str, ConfigError> {
        match &self.node.value {
            Value::Text(text) => Ok(text),
            Value::Number(_) | Value::Bool(_) => {
                Err(self.error(format!("{} is not text; put it in quotes", self.node.value)))
            }
            Value::Null | Value::List(_) | Value::Map(_) => Err(self.unexpected("text")),
        }
    }

    /// What was written, if it is one word or number.
    pub fn scalar(&self) -> Result<&'a str, ConfigError> {
        match &self.node.value {
            Value::Number(text) => Ok(text),
            _ => self.text(),
        }
    }

    /// Yes or no.
    pub fn boolean(&self) -> Result<bool, ConfigError> {
        match self.node.value {
            Value::Bool(value) => Ok(value),
            _ => Err(self.unexpected("true or false")),
        }
    }

    /// The folder of the file.
    pub fn folder(&self) -> &'a Path {
        self.file.parent().unwrap_or(Path::new(""))
    }

    fn entries(&self) -> Result<&'a [Entry], ConfigError> {
        match &self.node.value {
            Value::Map(entries) => Ok(entries),
            _ => Err(self.unexpected("a map")),
        }
    }

    fn unexpected(&self, wanted: &str) -> ConfigError {
        match &self.node.value {
            Value::Null => self.error(format!("has no value, must be {wanted}")),
            found => self.error(format!("must be {wanted}, not {found}")),
        }
    }

    fn below(&self, key: &str, node: &'a Spanned<Value>) -> Field<'a> {
        Field { file: self.file, path: self.child(key), node }
    }

    fn child(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn error_at(&self, at: Option<(u64, u64)>, path: String, words: String) -> ConfigError {
        ConfigError { file: self.file.to_owned(), at, path, words }
    }
}

/// The fields of a map.
pub struct Fields<'a> {
    of: Field<'a>,
    entries: &'a [Entry],
}

impl<'a> Fields<'a> {
    /// A field that may be left out.
    pub fn get(&self, name: &str) -> Option<Field<'a>> {
        let entry = self.entries.iter().find(|(key, _)| key.value == name);
        entry.map(|(_, node)| self.of.below(name, node))
    }

    /// A field that must be there.
    pub fn need(&self, name: &str) -> Result<Field<'a>, ConfigError> {
        self.get(name).ok_or_else(|| {
            let at = place(&self.of.node.referenced);
            self.of.error_at(at, self.of.child(name), "is missing".to_owned())
        })
    }

    /// A field read by `read`, if it is there.
    pub fn read<T>(
        &self,
        name: &str,
        read: impl FnOnce(&Field<'a>) -> Result<T, ConfigError>,
    ) -> Result<Option<T>, ConfigError> {
        self.get(name).map(|field| read(&field)).transpose()
    }

    /// What each item of a list is by `read`; none if the list is not there.
    pub fn list<T>(
        &self,
        name: &str,
        mut read: impl FnMut(&Field<'a>) -> Result<T, ConfigError>,
    ) -> Result<Vec<T>, ConfigError> {
        let Some(list) = self.get(name) else { return Ok(Vec::new()) };
        list.items()?.iter().map(&mut read).collect()
    }
}

fn place(at: &Location) -> Option<(u64, u64)> {
    (*at != Location::UNKNOWN).then(|| (at.line(), at.column()))
}

type Entry = (Spanned<String>, Spanned<Value>);

/// A value without its place.
#[derive(Debug)]
enum Value {
    Null,
    Bool(bool),
    Number(String),
    Text(String),
    List(Vec<Spanned<Value>>),
    Map(Vec<Entry>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("nothing"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Number(text) => f.write_str(text),
            Value::Text(text) => write!(f, "{text:?}"),
            Value::List(_) => f.write_str("a list"),
            Value::Map(_) => f.write_str("a map"),
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(Any)
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Number(value.to_string()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map: Vec<Entry> = Vec::new();
        while let Some((key, value)) = entries.next_entry::<Spanned<String>, _>()? {
            if map.iter().any(|(known, _)| known.value == key.value) {
                return Err(A::Error::custom(format!("the field {:?} is given twice", key.value)));
            }
            map.push((key, value));
        }
        Ok(Value::Map(map))
    }
}
