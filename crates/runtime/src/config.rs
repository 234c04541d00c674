//! Configuration files in YAML or JSON, such as `signers.yaml` and projections.
//!
//! Every value knows its position. All errors of a file are collected and reported together, one per line, as
//! `file:line:column: path: message`; a file with errors is not used at all.
//!
//! A parser reads every field of a section before it returns early, so that no error hides another one:
//!
//! ```
//! # use std::path::Path;
//! # use windlass_runtime::config::{ConfigField, ConfigResult, parse_config};
//! struct Listener { name: String, port: i64 }
//!
//! fn parse_listener(section: &ConfigField<'_>) -> ConfigResult<Listener> {
//!     let fields = section.fields(&["name", "port"])?;
//!     let name = fields.required("name", ConfigField::text);
//!     let port = fields.optional("port", |field| field.integer_in(1..=65535));
//!     Ok(Listener { name: name?.to_owned(), port: port?.unwrap_or(80) })
//! }
//!
//! let text = b"apiVersion: windlass.dev/v1\nkind: Listeners\nlisteners:\n- {nmae: a, port: 0}\n";
//! let parsed = parse_config(Path::new("f"), text, "Listeners", "listeners", |list| list.parse_items(parse_listener));
//! let errors = parsed.err().map(|errors| errors.to_string()).unwrap_or_default();
//! assert_eq!(errors, "f:4:3: listeners[0].name: is missing\n\
//!     f:4:4: listeners[0].nmae: unknown field; known fields: name, port\n\
//!     f:4:19: listeners[0].port: 0 is out of range; use 1 to 65535");
//! ```

mod field;
mod value;

use std::cell::RefCell;
use std::fmt;
use std::path::{Path, PathBuf};

use serde_saphyr::{Location, Spanned};
use windlass_api::decode::yaml_options;

use crate::file_watch::FileReadError;

pub use field::{ConfigField, ConfigFields, join_names};
use value::ConfigValue;

/// Limit on the size of a configuration file. Files written by hand are far smaller.
pub const MAX_CONFIG_BYTES: usize = 1 << 20;

/// How many errors of one file are listed; the others are counted.
const MAX_LISTED: usize = 100;
/// How many characters of one error are shown. A value can be as long as the file.
const MAX_MESSAGE_CHARACTERS: usize = 2000;
const API_VERSION: &str = "windlass.dev/v1";

/// Parses a file of this `kind`: its only section besides `apiVersion` and `kind` is the list `list`, which `parse` reads.
pub fn parse_config<T>(
    file: &Path,
    text: &[u8],
    kind: &str,
    list: &str,
    parse: impl FnOnce(&ConfigField<'_>) -> ConfigResult<T>,
) -> Result<T, ConfigErrors> {
    let document = ConfigDocument::parse(file, text)?;
    let root = || {
        let fields = document.root().fields(&["apiVersion", "kind", list])?;
        let header = [("apiVersion", API_VERSION), ("kind", kind)]
            .map(|(name, expected)| fields.required(name, |field| field.one_of(&[(expected, ())])));
        let parsed = fields.required(list, parse);
        header.into_iter().collect::<ConfigResult<()>>()?;
        parsed
    };
    let parsed = root();
    document.finish(parsed)
}

/// Result of reading a value whose errors are collected by its document.
pub type ConfigResult<T> = Result<T, ReportedError>;

/// Proof that an error was reported to the document. [`ConfigDocument::finish`] then fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedError(());

/// All errors of one file, in the order of their positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    file: PathBuf,
    listed: Vec<ConfigProblem>,
    total: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ConfigProblem {
    position: Option<(u64, u64)>,
    path: String,
    message: String,
}

impl ConfigErrors {
    /// Creates an error that concerns the file as a whole, such as a failed read.
    pub fn for_file(file: &Path, message: impl Into<String>) -> ConfigErrors {
        let mut errors = ConfigErrors::new(file);
        errors.push(None, "", message.into());
        errors
    }

    /// Lists the errors as `path: message`, without file and positions, for configuration that is not in a file.
    pub fn messages(&self) -> Vec<String> {
        let text = |ConfigProblem { path, message, .. }: &ConfigProblem| match path.as_str() {
            "" => message.clone(),
            path => format!("{path}: {message}"),
        };
        self.listed.iter().map(text).collect()
    }

    fn new(file: &Path) -> ConfigErrors {
        ConfigErrors { file: file.to_owned(), listed: Vec::new(), total: 0 }
    }

    fn push(&mut self, position: Option<(u64, u64)>, path: &str, message: String) {
        self.total += 1;
        if self.listed.len() < MAX_LISTED {
            let message = match message.char_indices().nth(MAX_MESSAGE_CHARACTERS) {
                Some((end, _)) => format!("{}…", &message[..end]),
                None => message,
            };
            self.listed.push(ConfigProblem { position, path: path.to_owned(), message });
        }
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        for (index, ConfigProblem { position, path, message }) in self.listed.iter().enumerate() {
            write!(f, "{}{file}", if index == 0 { "" } else { "\n" })?;
            if let Some((line, column)) = position {
                write!(f, ":{line}:{column}")?;
            }
            if !path.is_empty() {
                write!(f, ": {path}")?;
            }
            write!(f, ": {message}")?;
        }
        match self.total - self.listed.len() {
            0 => Ok(()),
            more => write!(f, "\n{file}: {more} more errors"),
        }
    }
}

impl std::error::Error for ConfigErrors {}

impl From<FileReadError> for ConfigErrors {
    fn from(error: FileReadError) -> ConfigErrors {
        match error {
            FileReadError::Io { path, source } => {
                ConfigErrors::for_file(&path, format!("cannot be read: {source}"))
            }
            FileReadError::Empty(path) => ConfigErrors::for_file(&path, "is empty"),
        }
    }
}

/// A file that is valid YAML, and the errors found in it so far.
pub struct ConfigDocument {
    text: String,
    root: Spanned<ConfigValue>,
    errors: RefCell<ConfigErrors>,
}

impl ConfigDocument {
    /// Parses one YAML document by the rules and limits that apply to Kubernetes manifests.
    pub fn parse(file: &Path, text: &[u8]) -> Result<ConfigDocument, ConfigErrors> {
        if text.len() > MAX_CONFIG_BYTES {
            let message = format!("is longer than {MAX_CONFIG_BYTES} bytes");
            return Err(ConfigErrors::for_file(file, message));
        }
        let text =
            std::str::from_utf8(text).map_err(|_| ConfigErrors::for_file(file, "is not UTF-8 text"))?;
        let mut errors = ConfigErrors::new(file);
        match serde_saphyr::from_str_with_options::<Spanned<ConfigValue>>(text, yaml_options()) {
            Ok(Spanned { value: ConfigValue::Null, .. }) => Err(ConfigErrors::for_file(file, "is empty")),
            Ok(root) => {
                for (key, path) in value::find_duplicates(&root.value) {
                    let message = "is set twice; remove one of them";
                    errors.push(position(&key), path.as_str(), message.to_owned());
                }
                Ok(ConfigDocument { text: text.to_owned(), root, errors: RefCell::new(errors) })
            }
            Err(error) => {
                let at = error.location().and_then(|at| position(&at));
                errors.push(at, "", syntax_message(&error));
                Err(errors)
            }
        }
    }

    /// Returns the top-level value of the document.
    pub fn root(&self) -> ConfigField<'_> {
        ConfigField::new(self)
    }

    /// Returns the parsed value if no error was reported, also none that `parsed` does not depend on.
    pub fn finish<T>(&self, parsed: ConfigResult<T>) -> Result<T, ConfigErrors> {
        match parsed {
            Ok(parsed) if self.errors.borrow().total == 0 => Ok(parsed),
            Ok(_) | Err(ReportedError(())) => {
                let mut errors = self.errors.borrow().clone();
                errors.listed.sort_by_key(|problem| problem.position);
                Err(errors)
            }
        }
    }

    fn report(&self, at: &Location, path: &str, message: String) -> ReportedError {
        self.errors.borrow_mut().push(position(at), path, message);
        ReportedError(())
    }

    /// Returns the text of a scalar as it is in the file, which its value may not show: `0640`, `yes`.
    fn source(&self, node: &Spanned<ConfigValue>) -> Option<&str> {
        let span = node.defined.span();
        let start = usize::try_from(span.byte_offset()?).ok()?;
        let length = usize::try_from(span.byte_len()?).ok()?;
        self.text.get(start..start.checked_add(length)?).map(str::trim).filter(|text| !text.is_empty())
    }
}

fn position(at: &Location) -> Option<(u64, u64)> {
    (*at != Location::UNKNOWN).then(|| (at.line(), at.column()))
}

/// Describes a syntax error on one line, without its position, which is reported separately.
fn syntax_message(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let line = text.lines().next().unwrap_or_default();
    let message = line.rsplit_once(" at line ").map_or(line, |(message, _)| message);
    if message.contains("alias") {
        return format!("{message}; put text that begins with \"*\" in quotes");
    }
    message.to_owned()
}

#[cfg(test)]
mod tests;
