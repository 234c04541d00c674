//! A small language for schemas of custom kinds: one table is checked against, gives defaults, and
//! is written out as the OpenAPI schema of a CustomResourceDefinition.
//!
//! The words are those of the API server's own checks of custom resources.

use serde_json::{Map, Value, json};

use crate::field::{FieldErrors, FieldPath};

/// What a value looks like.
pub(super) enum PropertySchema {
    /// A text of so many characters.
    Text {
        least: usize,
        most: usize,
    },
    /// A text with a value if there is none.
    Defaulted {
        least: usize,
        most: usize,
        value: &'static str,
    },
    OneOf(&'static [&'static str]),
    AnyText,
    /// An RFC 3339 timestamp (`format: date-time`).
    Moment,
    Flag,
    Number,
    /// Texts under any keys, at least so many.
    Texts {
        least: usize,
    },
    /// A list that is replaced as a whole, or whose elements are told apart by a field.
    List {
        of: &'static PropertySchema,
        least: usize,
        most: usize,
        key: Option<&'static str>,
    },
    /// An object with these fields.
    Object(ObjectSchema),
}

pub(super) struct ObjectSchema {
    pub fields: &'static [PropertyField],
    /// How many fields it has at least.
    pub least: usize,
    /// Whether it is replaced as a whole.
    pub atomic: bool,
    pub rules: &'static [ValidationRule],
}

/// A field of an object.
pub(super) struct PropertyField {
    pub name: &'static str,
    pub shape: &'static PropertySchema,
    pub required: bool,
}

/// A rule on an object as a whole: for other API servers as an expression, for ours as a function.
/// Without a function it is one that ours words otherwise, as trust-manager's webhook does.
pub(super) struct ValidationRule {
    pub expression: &'static str,
    pub message: &'static str,
    pub holds: Option<RulePredicate>,
}

/// Whether a rule holds for an object.
type RulePredicate = fn(&Map<String, Value>) -> bool;

const fn field(
    name: &'static str,
    shape: &'static PropertySchema,
    required: bool,
) -> PropertyField {
    PropertyField { name, shape, required }
}

/// A field that may be absent.
pub(super) const fn optional_field(
    name: &'static str,
    shape: &'static PropertySchema,
) -> PropertyField {
    field(name, shape, false)
}

/// A field that is always there.
pub(super) const fn required_field(
    name: &'static str,
    shape: &'static PropertySchema,
) -> PropertyField {
    field(name, shape, true)
}

/// A rule for other API servers only.
pub(super) const fn external_rule(
    expression: &'static str,
    message: &'static str,
) -> ValidationRule {
    ValidationRule { expression, message, holds: None }
}

/// How many of these fields there are.
pub(super) fn count(object: &Map<String, Value>, names: &[&str]) -> usize {
    names.iter().filter(|name| is_set(object, name)).count()
}

/// Whether there is this field.
pub(super) fn is_set(object: &Map<String, Value>, name: &str) -> bool {
    object.get(name).is_some_and(|value| !value.is_null())
}

/// What is said when something is so wrong that the rules were not looked at.
const UNCHECKED: &str = "some validation rules were not checked because the object was invalid; \
                         correct the existing errors to complete validation";

impl PropertySchema {
    /// Checks a value: first its form, then, if that can be told, the rules.
    pub fn validate(&self, path: &FieldPath, value: &Value, errors: &mut FieldErrors) {
        let mut blocked = false;
        self.check(path, value, errors, &mut blocked);
        if blocked {
            errors.invalid_shown(&FieldPath::default(), "null", UNCHECKED);
        } else {
            self.check_rules(path, value, errors);
        }
    }

    fn check(&self, path: &FieldPath, value: &Value, errors: &mut FieldErrors, blocked: &mut bool) {
        match (self, value) {
            (
                PropertySchema::Text { least, most }
                | PropertySchema::Defaulted { least, most, .. },
                Value::String(text),
            ) => {
                let length = text.chars().count();
                if length < *least {
                    let words = format!("{path} in body should be at least {least} chars long");
                    errors.invalid(path, value, &words);
                } else if length > *most {
                    errors.too_long(path, *most);
                    *blocked = true;
                }
            }
            (PropertySchema::OneOf(values), Value::String(text)) => {
                if !values.contains(&text.as_str()) {
                    errors.not_supported(path, text, values);
                    *blocked = true;
                }
            }
            (PropertySchema::AnyText | PropertySchema::Moment, Value::String(_)) => {}
            (PropertySchema::Flag, Value::Bool(_)) => {}
            (PropertySchema::Number, Value::Number(number))
                if number.is_i64() || number.is_u64() => {}
            (PropertySchema::Texts { least }, Value::Object(entries)) => {
                check_minimum(path, entries.len(), *least, errors);
                for (key, entry) in entries {
                    PropertySchema::AnyText.check(&path.child(key), entry, errors, blocked);
                }
            }
            (PropertySchema::List { of, least, most, .. }, Value::Array(list)) => {
                if list.len() < *least {
                    let words = format!("{path} in body should have at least {least} items");
                    errors.invalid(path, &list.len().into(), &words);
                } else if list.len() > *most {
                    errors.too_many(path, list.len(), *most);
                    *blocked = true;
                }
                for (index, element) in list.iter().enumerate() {
                    of.check(&path.index(index), element, errors, blocked);
                }
            }
            (PropertySchema::Object(shape), Value::Object(object)) => {
                shape.check(path, object, errors, blocked);
            }
            (shape, other) => {
                let (wanted, found) = (shape.type_name(), json_type_name(other));
                let found = format!("\"{found}\"");
                let words = format!("{path} in body must be of type {wanted}: {found}");
                errors.invalid_shown(path, &found, &words);
                *blocked = true;
            }
        }
    }

    fn check_rules(&self, path: &FieldPath, value: &Value, errors: &mut FieldErrors) {
        match (self, value) {
            (PropertySchema::Object(shape), Value::Object(object)) => {
                for rule in shape.rules {
                    if rule.holds.is_some_and(|holds| !holds(object)) {
                        errors.invalid_shown(path, rule.message, "");
                    }
                }
                for field in shape.fields {
                    if let Some(value) = object.get(field.name) {
                        field.shape.check_rules(&path.child(field.name), value, errors);
                    }
                }
            }
            (PropertySchema::List { of, .. }, Value::Array(list)) => {
                for (index, element) in list.iter().enumerate() {
                    of.check_rules(&path.index(index), element, errors);
                }
            }
            _ => {}
        }
    }

    /// Puts values where there are none.
    pub fn set_defaults(&self, value: &mut Value) {
        match (self, value) {
            (PropertySchema::Object(shape), Value::Object(object)) => {
                for field in shape.fields {
                    if let PropertySchema::Defaulted { value, .. } = field.shape
                        && !is_set(object, field.name)
                    {
                        object.insert(field.name.to_owned(), (*value).into());
                    } else if let Some(value) = object.get_mut(field.name) {
                        field.shape.set_defaults(value);
                    }
                }
            }
            (PropertySchema::List { of, .. }, Value::Array(list)) => {
                list.iter_mut().for_each(|element| of.set_defaults(element));
            }
            _ => {}
        }
    }

    /// The schema as a CustomResourceDefinition has it.
    pub fn open_api(&self) -> Value {
        let mut schema = json!({"type": self.type_name()});
        match self {
            PropertySchema::Text { least, most } => {
                schema["minLength"] = (*least).into();
                schema["maxLength"] = (*most).into();
            }
            PropertySchema::Defaulted { least, most, value } => {
                schema["minLength"] = (*least).into();
                schema["maxLength"] = (*most).into();
                schema["default"] = (*value).into();
            }
            PropertySchema::OneOf(values) => schema["enum"] = (*values).into(),
            PropertySchema::AnyText | PropertySchema::Flag => {}
            PropertySchema::Moment => schema["format"] = "date-time".into(),
            PropertySchema::Number => schema["format"] = "int64".into(),
            PropertySchema::Texts { least } => {
                schema["additionalProperties"] = json!({"type": "string"});
                if *least > 0 {
                    schema["minProperties"] = (*least).into();
                }
            }
            PropertySchema::List { of, least, most, key } => {
                schema["items"] = of.open_api();
                schema["x-kubernetes-list-type"] =
                    if key.is_some() { "map" } else { "atomic" }.into();
                if let Some(key) = key {
                    schema["x-kubernetes-list-map-keys"] = json!([key]);
                }
                if *least > 0 {
                    schema["minItems"] = (*least).into();
                }
                if *most < usize::MAX {
                    schema["maxItems"] = (*most).into();
                }
            }
            PropertySchema::Object(shape) => shape.describe(&mut schema),
        }
        schema
    }

    fn type_name(&self) -> &'static str {
        match self {
            PropertySchema::Text { .. }
            | PropertySchema::Defaulted { .. }
            | PropertySchema::OneOf(_)
            | PropertySchema::AnyText
            | PropertySchema::Moment => "string",
            PropertySchema::Flag => "boolean",
            PropertySchema::Number => "integer",
            PropertySchema::List { .. } => "array",
            PropertySchema::Texts { .. } | PropertySchema::Object(_) => "object",
        }
    }
}

impl ObjectSchema {
    fn check(
        &self,
        path: &FieldPath,
        object: &Map<String, Value>,
        errors: &mut FieldErrors,
        blocked: &mut bool,
    ) {
        check_minimum(path, object.len(), self.least, errors);
        for field in self.fields {
            let path = path.child(field.name);
            match object.get(field.name).filter(|value| !value.is_null()) {
                Some(value) => field.shape.check(&path, value, errors, blocked),
                None if field.required => {
                    errors.required(&path, "");
                    *blocked = true;
                }
                None => {}
            }
        }
    }

    fn describe(&self, schema: &mut Value) {
        let named = self.fields.iter();
        let properties = named.map(|field| (field.name.to_owned(), field.shape.open_api()));
        schema["properties"] = Value::Object(properties.collect());
        let required = self.fields.iter().filter(|field| field.required).map(|field| field.name);
        let required = required.collect::<Vec<_>>();
        if !required.is_empty() {
            schema["required"] = required.into();
        }
        if self.least > 0 {
            schema["minProperties"] = self.least.into();
        }
        if self.atomic {
            schema["x-kubernetes-map-type"] = "atomic".into();
        }
        let rules = self.rules.iter();
        let rules = rules.map(|rule| json!({"rule": rule.expression, "message": rule.message}));
        let rules = rules.collect::<Vec<_>>();
        if !rules.is_empty() {
            schema["x-kubernetes-validations"] = rules.into();
        }
    }
}

fn check_minimum(path: &FieldPath, found: usize, least: usize, errors: &mut FieldErrors) {
    if found < least {
        // The number shown is the bound: so it is there.
        let words = format!("{path} in body should have at least {least} properties");
        errors.invalid(path, &least.into(), &words);
    }
}

fn json_type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
