//! A YAML file of which every value knows where it stands, so that what is wrong with it can be
//! told by file, line, column and the path of the field.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::DuplicateKeyPolicy;
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
    pub(super) fn for_file(file: &Path, words: String) -> ConfigError {
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
pub struct ConfigDocument {
    file: PathBuf,
    root: Spanned<ConfigValue>,
}

impl ConfigDocument {
    /// Reads the text of a file: one YAML document.
    pub fn parse(file: &Path, text: &str) -> Result<ConfigDocument, ConfigError> {
        let options = serde_saphyr::options! {
            strict_booleans: true,
            // All of them come, and are told of with the paths of their fields.
            duplicate_keys: DuplicateKeyPolicy::LastWins,
            with_snippet: false,
        };
        if text.len() > MAX_BYTES {
            let words = format!("it is longer than {MAX_BYTES} bytes");
            return Err(ConfigError::for_file(file, words));
        }
        match serde_saphyr::from_str_with_options(text, options) {
            Ok(root) => Ok(ConfigDocument { file: file.to_owned(), root }),
            Err(error) => Err(ConfigError {
                file: file.to_owned(),
                at: error.location().map(|at| (at.line(), at.column())),
                path: String::new(),
                words: syntax_message(&error),
            }),
        }
    }

    /// The top-level value of the document.
    pub fn root(&self) -> ConfigField<'_> {
        ConfigField { file: &self.file, path: String::new(), node: &self.root }
    }
}

/// What is wrong with the YAML, on one line, without its place, which is told anyway.
fn syntax_message(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let line = text.lines().next().unwrap_or_default();
    let words = line.rsplit_once(" at line ").map_or(line, |(words, _)| words);
    if words.contains("alias") {
        return format!("{words}; a text that begins with \"*\" needs quotes");
    }
    words.to_owned()
}

/// A value that stands in the file.
#[derive(Clone)]
pub struct ConfigField<'a> {
    file: &'a Path,
    path: String,
    node: &'a Spanned<ConfigValue>,
}

impl<'a> ConfigField<'a> {
    /// Says what is wrong with it.
    pub fn error(&self, words: impl Into<String>) -> ConfigError {
        let at = line_and_column(&self.node.referenced);
        self.error_at(at, self.path.clone(), words.into())
    }

    /// The fields of a map that has no others than these.
    pub fn fields(&self, known: &[&str]) -> Result<ConfigFields<'a>, ConfigError> {
        let entries = self.entries()?;
        for (key, _) in entries {
            if !known.contains(&key.value.as_str()) {
                let words = format!("unknown field; there are {}", known.join(", "));
                return Err(self.error_at(
                    line_and_column(&key.referenced),
                    self.child_path(&key.value),
                    words,
                ));
            }
        }
        Ok(ConfigFields { of: self.clone(), entries })
    }

    /// The keys and values of a map.
    pub fn pairs(&self) -> Result<Vec<(&'a str, ConfigField<'a>)>, ConfigError> {
        let entries = self.entries()?.iter();
        Ok(entries
            .map(|(key, node)| (key.value.as_str(), self.child_field(&key.value, node)))
            .collect())
    }

    /// The values of a list.
    pub fn items(&self) -> Result<Vec<ConfigField<'a>>, ConfigError> {
        let ConfigValue::List(items) = &self.node.value else {
            return Err(self.unexpected("a list"));
        };
        let item = |(index, node)| ConfigField {
            file: self.file,
            path: format!("{}[{index}]", self.path),
            node,
        };
        Ok(items.iter().enumerate().map(item).collect())
    }

    /// A text that is not empty.
    pub fn text(&self) -> Result<&'a str, ConfigError> {
        match self.text_or_empty()? {
            "" => Err(self.error("is empty")),
            text => Ok(text),
        }
    }

    /// A text, perhaps without anything in it.
    pub fn text_or_empty(&self) -> Result<&'a str, ConfigError> {
        match &self.node.value {
            ConfigValue::Text(text) => Ok(text),
            ConfigValue::Number(_) | ConfigValue::Bool(_) => {
                Err(self.error(format!("{} is not text; put it in quotes", self.node.value)))
            }
            ConfigValue::Null | ConfigValue::List(_) | ConfigValue::Map(_) => {
                Err(self.unexpected("text"))
            }
        }
    }

    /// What was written, if it is one word or number.
    pub fn scalar(&self) -> Result<&'a str, ConfigError> {
        match &self.node.value {
            ConfigValue::Number(text) => Ok(text),
            _ => self.text(),
        }
    }

    /// Parses the value as a YAML boolean.
    pub fn boolean(&self) -> Result<bool, ConfigError> {
        match self.node.value {
            ConfigValue::Bool(value) => Ok(value),
            _ => Err(self.unexpected("true or false")),
        }
    }

    /// The folder of the file.
    pub fn directory(&self) -> &'a Path {
        self.file.parent().unwrap_or(Path::new(""))
    }

    fn entries(&self) -> Result<&'a [ConfigEntry], ConfigError> {
        let ConfigValue::Map(entries) = &self.node.value else {
            return Err(self.unexpected("a map"));
        };
        for (index, (key, _)) in entries.iter().enumerate() {
            if entries.iter().take(index).any(|(known, _)| known.value == key.value) {
                let words = "is given twice".to_owned();
                return Err(self.error_at(
                    line_and_column(&key.referenced),
                    self.child_path(&key.value),
                    words,
                ));
            }
        }
        Ok(entries)
    }

    fn unexpected(&self, wanted: &str) -> ConfigError {
        match &self.node.value {
            ConfigValue::Null => self.error(format!("has no value, must be {wanted}")),
            found => self.error(format!("must be {wanted}, not {found}")),
        }
    }

    fn child_field(&self, key: &str, node: &'a Spanned<ConfigValue>) -> ConfigField<'a> {
        ConfigField { file: self.file, path: self.child_path(key), node }
    }

    fn child_path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn error_at(&self, at: Option<(u64, u64)>, path: String, words: String) -> ConfigError {
        ConfigError { file: self.file.to_owned(), at, path, words }
    }
}

/// The fields of a map.
pub struct ConfigFields<'a> {
    of: ConfigField<'a>,
    entries: &'a [ConfigEntry],
}

impl<'a> ConfigFields<'a> {
    /// A field that may be left out.
    pub fn get(&self, name: &str) -> Option<ConfigField<'a>> {
        let entry = self.entries.iter().find(|(key, _)| key.value == name);
        entry.map(|(_, node)| self.of.child_field(name, node))
    }

    /// A field that must be there.
    pub fn require(&self, name: &str) -> Result<ConfigField<'a>, ConfigError> {
        self.get(name).ok_or_else(|| {
            let at = line_and_column(&self.of.node.referenced);
            self.of.error_at(at, self.of.child_path(name), "is missing".to_owned())
        })
    }

    /// A field read by `read`, if it is there.
    pub fn read<T>(
        &self,
        name: &str,
        read: impl FnOnce(&ConfigField<'a>) -> Result<T, ConfigError>,
    ) -> Result<Option<T>, ConfigError> {
        self.get(name).map(|field| read(&field)).transpose()
    }

    /// What each item of a list is by `read`; none if the list is not there.
    pub fn list<T>(
        &self,
        name: &str,
        mut read: impl FnMut(&ConfigField<'a>) -> Result<T, ConfigError>,
    ) -> Result<Vec<T>, ConfigError> {
        let Some(list) = self.get(name) else { return Ok(Vec::new()) };
        list.items()?.iter().map(&mut read).collect()
    }
}

fn line_and_column(at: &Location) -> Option<(u64, u64)> {
    (*at != Location::UNKNOWN).then(|| (at.line(), at.column()))
}

type ConfigEntry = (Spanned<String>, Spanned<ConfigValue>);

/// A value without its place.
#[derive(Debug)]
enum ConfigValue {
    Null,
    Bool(bool),
    Number(String),
    Text(String),
    List(Vec<Spanned<ConfigValue>>),
    Map(Vec<ConfigEntry>),
}

impl fmt::Display for ConfigValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigValue::Null => f.write_str("nothing"),
            ConfigValue::Bool(value) => write!(f, "{value}"),
            ConfigValue::Number(text) => f.write_str(text),
            ConfigValue::Text(text) => write!(f, "{text:?}"),
            ConfigValue::List(_) => f.write_str("a list"),
            ConfigValue::Map(_) => f.write_str("a map"),
        }
    }
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
        Ok(ConfigValue::Number(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<ConfigValue, E> {
        Ok(ConfigValue::Number(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<ConfigValue, E> {
        Ok(ConfigValue::Number(value.to_string()))
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
