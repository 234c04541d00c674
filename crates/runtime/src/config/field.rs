//! Typed access to the values of a file.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use serde_saphyr::Spanned;
use windlass_api::duration;
use windlass_api::field::{FieldError, FieldPath};

use super::value::{ConfigEntry, ConfigValue, locate};
use super::{ConfigDocument, ConfigResult, ReportedError};

/// A value of the file, with its path.
#[derive(Clone)]
pub struct ConfigField<'a> {
    document: &'a ConfigDocument,
    path: FieldPath,
    node: &'a Spanned<ConfigValue>,
    sensitive: bool,
}

impl<'a> ConfigField<'a> {
    pub(super) fn new(document: &'a ConfigDocument) -> ConfigField<'a> {
        let (path, node) = (FieldPath::default(), &document.root);
        ConfigField { document, path, node, sensitive: false }
    }

    /// Reports an error of this value.
    pub fn error(&self, message: impl Into<String>) -> ReportedError {
        self.document.report(&self.node.referenced, self.path.as_str(), message.into())
    }

    /// Reports errors of values below this one that were found by rules of Kubernetes, in its words.
    pub fn report_field_errors<'e>(
        &self,
        errors: impl IntoIterator<Item = &'e FieldError>,
    ) -> ConfigResult<()> {
        let report = |error: &FieldError| {
            let path = error.path.as_str();
            let node = locate(&self.document.root, path);
            Err(self.document.report(&node.referenced, path, error.message.clone()))
        };
        errors.into_iter().map(report).fold(Ok(()), ConfigResult::and)
    }

    /// Returns the path in the notation of Kubernetes errors.
    pub fn path(&self) -> &FieldPath {
        &self.path
    }

    /// Returns the value with the mark that errors about the type of this value and those below it must not show them,
    /// because they may be secrets.
    #[must_use]
    pub fn sensitive(&self) -> ConfigField<'a> {
        ConfigField { sensitive: true, ..self.clone() }
    }

    /// Returns the fields of a map, and reports those that are not `known`.
    pub fn fields(&self, known: &[&str]) -> ConfigResult<ConfigFields<'a>> {
        let entries = self.entries()?;
        for (key, _) in entries.iter().filter(|(key, _)| !known.contains(&key.value.as_str())) {
            let message = format!("unknown field; known fields: {}", known.join(", "));
            let path = self.path.child(&key.value);
            self.document.report(&key.referenced, path.as_str(), message);
        }
        Ok(ConfigFields { section: self.clone(), entries })
    }

    /// Parses the entries of a map whose keys are chosen by the user.
    pub fn parse_entries<T>(
        &self,
        mut parse: impl FnMut(&'a str, &ConfigField<'a>) -> ConfigResult<T>,
    ) -> ConfigResult<Vec<T>> {
        let parsed = self.entries()?.iter().map(|(key, node)| {
            let path = self.path.key(&key.value);
            parse(&key.value, &ConfigField { path, node, ..self.clone() })
        });
        collect_all(parsed)
    }

    /// Returns the items of a list, which may be empty.
    pub fn items(&self) -> ConfigResult<Vec<ConfigField<'a>>> {
        let ConfigValue::List(items) = &self.node.value else {
            return Err(self.unexpected("a list"));
        };
        let item = |(index, node)| {
            let path = self.path.index(index);
            ConfigField { path, node, ..self.clone() }
        };
        Ok(items.iter().enumerate().map(item).collect())
    }

    /// Parses the items of a list, which may be empty.
    pub fn parse_items<T>(
        &self,
        mut parse: impl FnMut(&ConfigField<'a>) -> ConfigResult<T>,
    ) -> ConfigResult<Vec<T>> {
        collect_all(self.items()?.iter().map(&mut parse))
    }

    /// Parses the items of a list with at least one item; `consequence` says what an empty list would mean.
    pub fn parse_nonempty<T>(
        &self,
        consequence: &str,
        parse: impl FnMut(&ConfigField<'a>) -> ConfigResult<T>,
    ) -> ConfigResult<Vec<T>> {
        let items = self.parse_items(parse)?;
        if items.is_empty() {
            return Err(self.error(format!("is empty: {consequence}; add an item or remove it")));
        }
        Ok(items)
    }

    /// Returns text that is not empty.
    pub fn text(&self) -> ConfigResult<&'a str> {
        match self.text_or_empty()? {
            "" => Err(self.error("is empty")),
            text => Ok(text),
        }
    }

    /// Returns text, perhaps empty.
    pub fn text_or_empty(&self) -> ConfigResult<&'a str> {
        match (&self.node.value, self.document.source(self.node)) {
            (ConfigValue::Text(text), _) => Ok(text),
            // `NO` is a boolean in Kubernetes' YAML, and a country for everybody else.
            (ConfigValue::Bool(_), Some(source)) if !is_boolean(source) => Ok(source),
            (ConfigValue::Number(_) | ConfigValue::Bool(_), _) if self.sensitive => {
                Err(self.error("is not text; put it in quotes"))
            }
            (ConfigValue::Number(_) | ConfigValue::Bool(_), _) => {
                Err(self.error(format!("{} is not text; put it in quotes", self.shown())))
            }
            (ConfigValue::Null | ConfigValue::List(_) | ConfigValue::Map(_), _) => {
                Err(self.unexpected("text"))
            }
        }
    }

    /// Returns an integer in this range.
    pub fn integer_in(&self, range: RangeInclusive<i64>) -> ConfigResult<i64> {
        let number = match &self.node.value {
            ConfigValue::Number(number) => number.as_i64(),
            _ => None,
        };
        let number = number.ok_or_else(|| self.unexpected("an integer"))?;
        if range.contains(&number) {
            return Ok(number);
        }
        let (first, last) = range.into_inner();
        Err(self.error(format!("{} is out of range; use {first} to {last}", self.shown())))
    }

    /// Returns a number greater than 0 and less than 1.
    pub fn fraction(&self) -> ConfigResult<f64> {
        let number = match &self.node.value {
            ConfigValue::Number(number) => number.as_f64(),
            ConfigValue::Text(text) => text.parse().ok(),
            _ => return Err(self.unexpected("a number between 0 and 1, such as 0.66")),
        };
        number.filter(|number| *number > 0.0 && *number < 1.0).ok_or_else(|| {
            self.error(format!("{} is not a number between 0 and 1, such as 0.66", self.shown()))
        })
    }

    /// Returns a boolean, which must be written as `true` or `false`.
    pub fn boolean(&self) -> ConfigResult<bool> {
        match (&self.node.value, self.document.source(self.node)) {
            (ConfigValue::Bool(value), source) if source.is_none_or(is_boolean) => Ok(*value),
            _ => Err(self.unexpected("true or false")),
        }
    }

    /// Returns a duration in Go's notation, such as `24h`.
    pub fn duration(&self) -> ConfigResult<Duration> {
        let parsed = match &self.node.value {
            ConfigValue::Text(text) => duration::parse(text).ok(),
            ConfigValue::Number(_) | ConfigValue::Bool(_) => None,
            _ => return Err(self.unexpected("a duration, such as 24h")),
        };
        parsed.ok_or_else(|| {
            self.error(format!("{} is not a duration; use a number and a unit, such as 24h", self.shown()))
        })
    }

    /// Returns a duration that is not shorter than this.
    pub fn duration_at_least(&self, minimum: Duration) -> ConfigResult<Duration> {
        let duration = self.duration()?;
        if duration < minimum {
            let minimum = describe_duration(minimum);
            return Err(self.error(format!("{} is too short; use at least {minimum}", self.shown())));
        }
        Ok(duration)
    }

    /// Returns the value that a table has for this text.
    pub fn one_of<T: Copy>(&self, table: &[(&str, T)]) -> ConfigResult<T> {
        let text = self.text()?;
        if let Some((_, value)) = table.iter().find(|(name, _)| *name == text) {
            return Ok(*value);
        }
        let names: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
        Err(self.error(format!("{text:?} is not supported; use {}", join_names(&names, "or"))))
    }

    /// Returns text that meets one of Kubernetes' rules for names.
    pub fn valid_name(&self, rule: fn(&str) -> Vec<String>) -> ConfigResult<String> {
        let text = self.text()?;
        self.check_name(text, rule).map(|()| text.to_owned())
    }

    /// Checks a part of this value, or its key, against one of Kubernetes' rules for names.
    pub fn check_name(&self, name: &str, rule: fn(&str) -> Vec<String>) -> ConfigResult<()> {
        match rule(name).first() {
            None => Ok(()),
            Some(detail) => Err(self.error(format!("{name:?} is not valid: {detail}"))),
        }
    }

    /// Returns a path; a relative one is relative to the directory of the file.
    pub fn file_path(&self) -> ConfigResult<PathBuf> {
        let text = self.text()?;
        let errors = self.document.errors.borrow();
        Ok(errors.file.parent().unwrap_or(Path::new("")).join(text))
    }

    /// Converts the value to JSON, as Kubernetes does with a manifest.
    pub fn to_json(&self) -> Value {
        self.node.value.to_json()
    }

    /// Reports that text, a number or a boolean is invalid, with the value in front of `detail`.
    pub fn invalid(&self, detail: impl Display) -> ReportedError {
        self.error(format!("{} {detail}", self.shown()))
    }

    /// Whether the value is a map.
    pub fn is_map(&self) -> bool {
        matches!(self.node.value, ConfigValue::Map(_))
    }

    fn entries(&self) -> ConfigResult<&'a [ConfigEntry]> {
        match &self.node.value {
            ConfigValue::Map(entries) => Ok(entries),
            _ => Err(self.unexpected("a map")),
        }
    }

    fn unexpected(&self, expected: &str) -> ReportedError {
        match &self.node.value {
            ConfigValue::Null => self.error(format!("has no value; it must be {expected}")),
            value if self.sensitive => self.error(format!("must be {expected}, not {}", value.type_name())),
            _ => self.error(format!("must be {expected}, not {}", self.shown())),
        }
    }

    /// Formats a scalar as it is in the file, and the type of other values.
    fn shown(&self) -> String {
        let source = self.document.source(self.node);
        match (&self.node.value, source) {
            (ConfigValue::Text(text), _) => format!("{text:?}"),
            (ConfigValue::Bool(_), Some(source)) if !is_boolean(source) => format!("{source:?}"),
            (ConfigValue::Bool(_) | ConfigValue::Number(_), Some(source)) => source.to_owned(),
            (value, _) => value.type_name().to_owned(),
        }
    }
}

/// The fields of a map.
pub struct ConfigFields<'a> {
    section: ConfigField<'a>,
    entries: &'a [ConfigEntry],
}

impl<'a> ConfigFields<'a> {
    /// Returns a field, if it is set.
    pub fn get(&self, name: &str) -> Option<ConfigField<'a>> {
        let (_, node) = self.entries.iter().find(|(key, _)| key.value == name)?;
        Some(ConfigField { path: self.section.path.child(name), node, ..self.section.clone() })
    }

    /// Parses a field that must be set.
    pub fn required<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&ConfigField<'a>) -> ConfigResult<T>,
    ) -> ConfigResult<T> {
        match self.get(name) {
            Some(field) => parse(&field),
            None => {
                let path = self.section.path.child(name);
                let at = &self.section.node.referenced;
                Err(self.section.document.report(at, path.as_str(), "is missing".to_owned()))
            }
        }
    }

    /// Parses a field if it is set.
    pub fn optional<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&ConfigField<'a>) -> ConfigResult<T>,
    ) -> ConfigResult<Option<T>> {
        self.get(name).map(|field| parse(&field)).transpose()
    }

    /// Parses the items of a list; none if it is not set.
    pub fn list<T>(
        &self,
        name: &str,
        parse: impl FnMut(&ConfigField<'a>) -> ConfigResult<T>,
    ) -> ConfigResult<Vec<T>> {
        self.get(name).map_or(Ok(Vec::new()), |list| list.parse_items(parse))
    }

    /// Returns the only one of these fields that is set, and its name.
    pub fn exactly_one<'n>(&self, names: &[&'n str]) -> ConfigResult<(&'n str, ConfigField<'a>)> {
        let set = |name: &&'n str| self.get(name).map(|field| (*name, field));
        let mut fields: Vec<_> = names.iter().filter_map(set).collect();
        match (fields.pop(), fields.is_empty()) {
            (Some(only), true) => Ok(only),
            (Some(_), false) => Err(self
                .section
                .error(format!("has more than one of {}; keep one", join_names(names, "and")))),
            (None, _) => Err(self.section.error(format!("needs one of {}", join_names(names, "and")))),
        }
    }
}

/// Collects the results of all items, so that the errors of each are reported.
fn collect_all<T>(results: impl Iterator<Item = ConfigResult<T>>) -> ConfigResult<Vec<T>> {
    results.collect::<Vec<_>>().into_iter().collect()
}

/// Joins names for a message: `a, b and c`.
pub fn join_names(names: &[&str], conjunction: &str) -> String {
    match names {
        [rest @ .., last] if !rest.is_empty() => {
            format!("{} {conjunction} {last}", rest.join(", "))
        }
        _ => names.concat(),
    }
}

fn is_boolean(source: &str) -> bool {
    source.eq_ignore_ascii_case("true") || source.eq_ignore_ascii_case("false")
}

/// Formats a duration in its largest unit.
fn describe_duration(duration: Duration) -> String {
    match duration.as_secs() {
        seconds if seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        seconds if seconds % 60 == 0 => format!("{}m", seconds / 60),
        seconds => format!("{seconds}s"),
    }
}
