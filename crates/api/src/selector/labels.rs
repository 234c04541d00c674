//! Label selectors: the query parameter `labelSelector` and the `LabelSelector` object.
//!
//! Both become a [`LabelSelector`], whose values are validated once, so that matching an object
//! takes a few string comparisons.

mod parse;

use std::fmt;

use serde_json::{Map, Value, json};

use crate::field::{FieldErrors, FieldPath};
use crate::limits::MAX_REQUIREMENTS;
use crate::meta::validate_labels;
use crate::names;

/// Label requirements, all of which must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<LabelRequirement>,
    /// An absent `LabelSelector` object selects nothing; an empty one selects everything.
    nothing: bool,
}

/// One requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelRequirement {
    key: String,
    test: LabelTest,
}

/// Condition that a label must meet.
#[derive(Clone, Debug, PartialEq, Eq)]
enum LabelTest {
    Equals(String),
    DoubleEquals(String),
    NotEquals(String),
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    GreaterThan(i64),
    LessThan(i64),
}

/// Reason for rejecting a selector text or object, in Kubernetes' wording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LabelSelectorError(String);

impl LabelSelector {
    /// Returns the empty selector, which matches every object.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Returns the selector that matches no object, as a null `LabelSelector` does.
    pub fn nothing() -> Self {
        LabelSelector { requirements: Vec::new(), nothing: true }
    }

    /// Parses the text of a `labelSelector` parameter.
    pub fn parse(text: &str) -> Result<Self, LabelSelectorError> {
        parse::parse(text).map(Self::from_requirements).map_err(LabelSelectorError)
    }

    /// Parses a `LabelSelector` object; `null` selects nothing and `{}` everything.
    pub fn from_object(selector: &Value) -> Result<Self, LabelSelectorError> {
        if selector.is_null() {
            return Ok(Self::nothing());
        }
        if count(selector) > MAX_REQUIREMENTS {
            return Err(LabelSelectorError(too_many()));
        }
        let mut requirements = Vec::new();
        for (key, value) in object(selector, "matchLabels") {
            let value = value.as_str().unwrap_or_default().to_owned();
            requirements.push(LabelRequirement::new(key, SelectorOperator::Equals, vec![value])?);
        }
        for expression in array(selector, "matchExpressions") {
            let word = string(expression, "operator");
            let operator = SelectorOperator::from_object_form(word).ok_or_else(|| {
                let word = crate::field::quote(word);
                LabelSelectorError(format!("{word} is not a valid label selector operator"))
            })?;
            let key = string(expression, "key");
            requirements.push(LabelRequirement::new(key, operator, strings(expression, "values"))?);
        }
        Ok(Self::from_requirements(requirements))
    }

    /// Returns the equivalent `LabelSelector` object in a stable form; `null` selects nothing. An
    /// object cannot express numeric comparisons, so these select nothing either.
    pub fn to_object(&self) -> Value {
        if self.nothing {
            return Value::Null;
        }
        let (mut labels, mut expressions) = (Map::new(), Vec::new());
        for LabelRequirement { key, test } in &self.requirements {
            let (operator, values) = match test {
                LabelTest::Equals(value) | LabelTest::DoubleEquals(value) if !labels.contains_key(key) => {
                    labels.insert(key.clone(), json!(value));
                    continue;
                }
                LabelTest::Equals(value) | LabelTest::DoubleEquals(value) => ("In", vec![value]),
                LabelTest::NotEquals(value) => ("NotIn", vec![value]),
                LabelTest::In(values) => ("In", values.iter().collect()),
                LabelTest::NotIn(values) => ("NotIn", values.iter().collect()),
                LabelTest::Exists => ("Exists", Vec::new()),
                LabelTest::DoesNotExist => ("DoesNotExist", Vec::new()),
                LabelTest::GreaterThan(_) | LabelTest::LessThan(_) => return Value::Null,
            };
            let mut expression = json!({ "key": key, "operator": operator });
            if !values.is_empty() {
                expression["values"] = json!(values);
            }
            expressions.push(expression);
        }
        let mut object = Map::new();
        if !labels.is_empty() {
            object.insert("matchLabels".into(), labels.into());
        }
        if !expressions.is_empty() {
            object.insert("matchExpressions".into(), expressions.into());
        }
        object.into()
    }

    fn from_requirements(mut requirements: Vec<LabelRequirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        LabelSelector { requirements, nothing: false }
    }

    /// Returns true if the object matches; `get` returns its labels.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        !self.nothing && self.requirements.iter().all(|r| r.test.matches(get(&r.key)))
    }

    /// Returns true if there are no requirements, so every object matches.
    pub fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    /// Returns true if no object can match.
    pub fn is_nothing(&self) -> bool {
        self.nothing
    }

    /// Returns the only value that a label may have, if there is exactly one.
    pub fn requires_exact(&self, key: &str) -> Option<&str> {
        match &self.requirements.iter().find(|r| r.key == key)?.test {
            LabelTest::Equals(value) | LabelTest::DoubleEquals(value) => Some(value),
            LabelTest::In(values) if values.len() == 1 => values.first().map(String::as_str),
            _ => None,
        }
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, requirement) in self.requirements.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for LabelRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        match &self.test {
            LabelTest::Equals(value) => write!(f, "{key}={value}"),
            LabelTest::DoubleEquals(value) => write!(f, "{key}=={value}"),
            LabelTest::NotEquals(value) => write!(f, "{key}!={value}"),
            LabelTest::In(values) => write!(f, "{key} in ({})", values.join(",")),
            LabelTest::NotIn(values) => write!(f, "{key} notin ({})", values.join(",")),
            LabelTest::Exists => f.write_str(key),
            LabelTest::DoesNotExist => write!(f, "!{key}"),
            LabelTest::GreaterThan(number) => write!(f, "{key}>{number}"),
            LabelTest::LessThan(number) => write!(f, "{key}<{number}"),
        }
    }
}

impl LabelTest {
    fn matches(&self, label: Option<&str>) -> bool {
        let number = || label.and_then(|value| value.parse::<i64>().ok());
        match self {
            LabelTest::Equals(want) | LabelTest::DoubleEquals(want) => label == Some(want),
            LabelTest::NotEquals(other) => label != Some(other),
            LabelTest::In(wanted) => label.is_some_and(|value| contains_sorted(value, wanted)),
            LabelTest::NotIn(others) => label.is_none_or(|value| !contains_sorted(value, others)),
            LabelTest::Exists => label.is_some(),
            LabelTest::DoesNotExist => label.is_none(),
            LabelTest::GreaterThan(bound) => number().is_some_and(|n| n > *bound),
            LabelTest::LessThan(bound) => number().is_some_and(|n| n < *bound),
        }
    }
}

/// Binary search in values sorted by [`LabelRequirement::new`].
fn contains_sorted(value: &str, sorted: &[String]) -> bool {
    sorted.binary_search_by(|other| other.as_str().cmp(value)).is_ok()
}

/// Counts the requirements of a `LabelSelector` object.
fn count(selector: &Value) -> usize {
    let labels = selector.get("matchLabels").and_then(Value::as_object);
    labels.map_or(0, Map::len) + array(selector, "matchExpressions").len()
}

fn too_many() -> String {
    format!("too many requirements: at most {MAX_REQUIREMENTS} are allowed")
}

/// Operators of the text and object forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SelectorOperator {
    Equals,
    DoubleEquals,
    NotEquals,
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

impl SelectorOperator {
    fn from_object_form(word: &str) -> Option<Self> {
        match word {
            "In" => Some(SelectorOperator::In),
            "NotIn" => Some(SelectorOperator::NotIn),
            "Exists" => Some(SelectorOperator::Exists),
            "DoesNotExist" => Some(SelectorOperator::DoesNotExist),
            _ => None,
        }
    }
}

impl LabelRequirement {
    /// Creates a requirement if key and values are valid for the operator.
    fn new(
        key: &str,
        operator: SelectorOperator,
        mut values: Vec<String>,
    ) -> Result<Self, LabelSelectorError> {
        let mut errors = FieldErrors::new();
        let broken = names::qualified_name(key);
        if !broken.is_empty() {
            errors.invalid_str(&FieldPath::new("key"), key, &broken.join("; "));
        }
        let number = check_count(operator, &values, &mut errors);
        for (i, value) in values.iter().enumerate() {
            let broken = names::label_value(value);
            if !broken.is_empty() {
                let at = FieldPath::new("values").index(i).key(key);
                errors.invalid_str(&at, value, &broken.join("; "));
            }
        }
        if !errors.is_empty() {
            return Err(LabelSelectorError(errors.joined()));
        }
        let test = match operator {
            SelectorOperator::Equals => LabelTest::Equals(values.swap_remove(0)),
            SelectorOperator::DoubleEquals => LabelTest::DoubleEquals(values.swap_remove(0)),
            SelectorOperator::NotEquals => LabelTest::NotEquals(values.swap_remove(0)),
            SelectorOperator::In | SelectorOperator::NotIn => {
                values.sort_unstable();
                if operator == SelectorOperator::In {
                    LabelTest::In(values)
                } else {
                    LabelTest::NotIn(values)
                }
            }
            SelectorOperator::Exists => LabelTest::Exists,
            SelectorOperator::DoesNotExist => LabelTest::DoesNotExist,
            SelectorOperator::GreaterThan => LabelTest::GreaterThan(number),
            SelectorOperator::LessThan => LabelTest::LessThan(number),
        };
        Ok(LabelRequirement { key: key.to_owned(), test })
    }
}

/// Checks the number of values for the operator. Returns the number that a comparison operator
/// compares with.
fn check_count(operator: SelectorOperator, values: &[String], errors: &mut FieldErrors) -> i64 {
    let at = FieldPath::new("values");
    let (good, words) = match operator {
        SelectorOperator::In | SelectorOperator::NotIn => {
            (!values.is_empty(), "for 'in', 'notin' operators, values set can't be empty")
        }
        SelectorOperator::Equals | SelectorOperator::DoubleEquals | SelectorOperator::NotEquals => {
            (values.len() == 1, "exact-match compatibility requires one single value")
        }
        SelectorOperator::Exists | SelectorOperator::DoesNotExist => {
            (values.is_empty(), "values set must be empty for exists and does not exist")
        }
        SelectorOperator::GreaterThan | SelectorOperator::LessThan => {
            (values.len() == 1, "for 'Gt', 'Lt' operators, exactly one value is required")
        }
    };
    if !good {
        errors.invalid(&at, &Value::from(values.to_vec()), words);
    }
    if !matches!(operator, SelectorOperator::GreaterThan | SelectorOperator::LessThan) {
        return 0;
    }
    let mut number = 0;
    for (i, value) in values.iter().enumerate() {
        match value.parse() {
            Ok(n) => number = n,
            Err(_) => errors.invalid_str(
                &at.index(i),
                value,
                "for 'Gt', 'Lt' operators, the value must be an integer",
            ),
        }
    }
    number
}

/// Validates a `LabelSelector` object and appends every violation to `errors`.
pub fn validate_label_selector(path: &FieldPath, selector: &Value, errors: &mut FieldErrors) {
    if count(selector) > MAX_REQUIREMENTS {
        return errors.too_many(path, count(selector), MAX_REQUIREMENTS);
    }
    validate_labels(&path.child("matchLabels"), &selector["matchLabels"], errors);
    for (i, expression) in array(selector, "matchExpressions").iter().enumerate() {
        validate_expression(&path.child("matchExpressions").index(i), expression, errors);
    }
}

fn validate_expression(path: &FieldPath, expression: &Value, errors: &mut FieldErrors) {
    let at_values = path.child("values");
    let values = array(expression, "values");
    match string(expression, "operator") {
        "In" | "NotIn" if values.is_empty() => {
            errors.required(&at_values, "must be specified when `operator` is 'In' or 'NotIn'")
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            errors.forbidden(&at_values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => {
            errors.invalid_str(&path.child("operator"), other, "not a valid selector operator");
        }
    }
    let key = string(expression, "key");
    errors.invalid_each(&path.child("key"), key, names::qualified_name(key));
    for (i, value) in values.iter().enumerate() {
        let value = value.as_str().unwrap_or_default();
        errors.invalid_each(&at_values.index(i), value, names::label_value(value));
    }
}

fn object<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    value.get(field).and_then(Value::as_object).into_iter().flatten()
}

fn array<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn string<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn strings(value: &Value, field: &str) -> Vec<String> {
    array(value, field).iter().map(|v| v.as_str().unwrap_or_default().to_owned()).collect()
}

#[cfg(test)]
mod tests;
