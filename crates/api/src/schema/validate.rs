//! Checks an object against the limits, formats, enums and rules of its type.

use serde_json::{Map, Value};

use super::limits::ValueLimits;
use super::{FieldPresence, HEADER_FIELDS, Schema, SchemaField, TypeId, ValueShape};
use crate::field::{FieldErrors, FieldPath};

/// Wording of errors, and whether validation continues after one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValidationStyle {
    /// As API servers validate kinds of their own. Strings are measured in bytes; the elements of a
    /// list that is too long are not checked.
    BuiltIn,
    /// As API servers validate custom resources. Strings are measured in characters; rules are
    /// checked only if the values could be read.
    CustomResource,
}

/// Error for the rules of a custom resource with values that cannot be read.
const UNCHECKED: &str = "some validation rules were not checked because the object was invalid; \
                         correct the existing errors to complete validation";

impl Schema {
    /// Checks an object of a type: its fields except those that every object has, and what they hold.
    pub fn validate(&self, id: TypeId, style: ValidationStyle, object: &Value, errors: &mut FieldErrors) {
        let fields = self.get_type(id).fields_by_tag();
        for field in fields.filter(|field| !HEADER_FIELDS.contains(&field.name)) {
            let path = FieldPath::new(field.name);
            match object.get(field.name).filter(|value| !value.is_null()) {
                Some(value) => {
                    let mut run = ValidationRun { schema: self, style, errors, blocked: false };
                    run.check(&path, field.into(), value);
                    if !run.blocked {
                        run.check_rules(&path, &field.shape, value);
                    } else if style == ValidationStyle::CustomResource {
                        errors.invalid_shown(&FieldPath::default(), "null", UNCHECKED);
                    }
                }
                None if field.required => errors.required(&path, ""),
                None => {}
            }
        }
    }
}

struct ValidationRun<'a> {
    schema: &'a Schema,
    style: ValidationStyle,
    errors: &'a mut FieldErrors,
    /// Whether a value is such that rules cannot be evaluated.
    blocked: bool,
}

/// What a value must look like.
#[derive(Clone, Copy)]
struct Constraints<'a> {
    shape: &'a ValueShape,
    limits: &'a ValueLimits,
    items: &'a ValueLimits,
    one_of: &'a [&'static str],
}

static UNLIMITED: ValueLimits = ValueLimits { min: None, max: None, format: None };

impl<'a> From<&'a SchemaField> for Constraints<'a> {
    fn from(field: &'a SchemaField) -> Self {
        let SchemaField { shape, limits, item_limits, one_of, .. } = field;
        Constraints { shape, limits, items: item_limits, one_of }
    }
}

impl<'a> Constraints<'a> {
    /// The constraints on the elements of a list or the values of a map.
    fn element(self, shape: &'a ValueShape) -> Self {
        Constraints { shape, limits: self.items, items: &UNLIMITED, one_of: self.one_of }
    }
}

impl ValidationRun<'_> {
    fn check(&mut self, path: &FieldPath, wanted: Constraints<'_>, value: &Value) {
        match (wanted.shape, value) {
            (ValueShape::String, Value::String(text)) => self.check_text(path, wanted, text),
            (ValueShape::Bytes, Value::String(text)) => self.check_text(path, wanted, text),
            (ValueShape::Time | ValueShape::MicroTime, Value::String(_))
            | (ValueShape::Bool, Value::Bool(_))
            | (ValueShape::Float, Value::Number(_))
            | (ValueShape::Quantity | ValueShape::IntOrString, _)
            | (ValueShape::Raw | ValueShape::FieldsV1, _) => {}
            (ValueShape::Int32 | ValueShape::Int64, Value::Number(number))
                if number.is_i64() || number.is_u64() =>
            {
                self.check_number(path, wanted.limits, number.as_i64(), value);
            }
            (ValueShape::Map(of), Value::Object(entries)) => {
                self.check_properties(path, entries.len(), wanted.limits.min.unwrap_or(0));
                if let Some(max) = wanted.limits.max.filter(|max| entries.len() > *max) {
                    self.errors.too_many(path, entries.len(), max);
                    self.blocked = true;
                    return;
                }
                for (key, entry) in entries {
                    self.check(&path.child(key), wanted.element(of), entry);
                }
            }
            (ValueShape::List(of), Value::Array(list)) => {
                if self.check_count(path, list.len(), wanted.limits) {
                    for (index, element) in list.iter().enumerate() {
                        self.check(&path.index(index), wanted.element(of), element);
                    }
                }
            }
            (ValueShape::Object(id), Value::Object(object)) => self.check_object(path, *id, object),
            (shape, other) => {
                let found = format!("\"{}\"", json_type(other));
                let words = format!("{path} in body must be of type {}: {found}", shape.json_type());
                self.errors.invalid_shown(path, &found, &words);
                self.blocked = true;
            }
        }
    }

    fn check_number(&mut self, path: &FieldPath, limits: &ValueLimits, number: Option<i64>, value: &Value) {
        let bound = |limit: Option<usize>| limit.and_then(|limit| i64::try_from(limit).ok());
        let words = if let Some(min) = bound(limits.min).filter(|min| number.is_some_and(|n| n < *min)) {
            format!("greater than or equal to {min}")
        } else if let Some(max) = bound(limits.max).filter(|max| number.is_none_or(|n| n > *max)) {
            format!("less than or equal to {max}")
        } else {
            return;
        };
        let words = match self.style {
            ValidationStyle::BuiltIn => format!("must be {words}"),
            ValidationStyle::CustomResource => format!("{path} in body should be {words}"),
        };
        self.errors.invalid(path, value, &words);
    }

    fn check_text(&mut self, path: &FieldPath, wanted: Constraints<'_>, text: &str) {
        if !wanted.one_of.is_empty() && !wanted.one_of.contains(&text) {
            self.errors.not_supported(path, text, wanted.one_of);
            self.blocked = true;
        }
        let ValueLimits { min, max, format } = *wanted.limits;
        let length = match self.style {
            ValidationStyle::BuiltIn => text.len(),
            ValidationStyle::CustomResource => text.chars().count(),
        };
        if let Some(min) = min.filter(|min| length < *min) {
            match self.style {
                ValidationStyle::BuiltIn => self.errors.required(path, ""),
                ValidationStyle::CustomResource => {
                    let words = format!("{path} in body should be at least {min} chars long");
                    self.errors.invalid_str(path, text, &words);
                }
            }
        } else if let Some(max) = max.filter(|max| length > *max) {
            self.errors.too_long(path, max);
            self.blocked = true;
        } else if let Some(format) = format.filter(|format| !format.matches(text)) {
            self.errors.invalid_str(path, text, format.message());
        }
    }

    /// Checks the length of a list; returns whether its elements are to be checked.
    fn check_count(&mut self, path: &FieldPath, count: usize, limits: &ValueLimits) -> bool {
        if let Some(min) = limits.min.filter(|min| count < *min) {
            let words = format!("{path} in body should have at least {min} items");
            self.errors.invalid(path, &count.into(), &words);
        } else if let Some(max) = limits.max.filter(|max| count > *max) {
            self.errors.too_many(path, count, max);
            self.blocked = true;
            return self.style == ValidationStyle::CustomResource;
        }
        true
    }

    fn check_object(&mut self, path: &FieldPath, id: TypeId, object: &Map<String, Value>) {
        let ty = self.schema.get_type(id);
        self.check_properties(path, object.len(), ty.min_properties);
        for field in ty.fields_by_tag() {
            let path = path.child(field.name);
            // The normal form writes such a field with its default.
            let default = field.default.as_ref().filter(|_| field.presence == FieldPresence::Always);
            match object.get(field.name).filter(|value| !value.is_null()).or(default) {
                Some(value) => self.check(&path, field.into(), value),
                None if field.required => {
                    self.errors.required(&path, "");
                    self.blocked = true;
                }
                None => {}
            }
        }
    }

    fn check_properties(&mut self, path: &FieldPath, count: usize, min: usize) {
        if count < min {
            // API servers show the bound, not the number of properties.
            let words = format!("{path} in body should have at least {min} properties");
            self.errors.invalid(path, &min.into(), &words);
        }
    }

    fn check_rules(&mut self, path: &FieldPath, shape: &ValueShape, value: &Value) {
        match (shape, value) {
            (ValueShape::Object(id), Value::Object(object)) => {
                let ty = self.schema.get_type(*id);
                for rule in ty.rules.iter().filter(|rule| !rule.holds(object)) {
                    self.errors.invalid_shown(path, rule.message, "");
                }
                for field in ty.fields_by_tag() {
                    if let Some(value) = object.get(field.name) {
                        self.check_rules(&path.child(field.name), &field.shape, value);
                    }
                }
            }
            (ValueShape::List(of), Value::Array(list)) => {
                for (index, element) in list.iter().enumerate() {
                    self.check_rules(&path.index(index), of, element);
                }
            }
            _ => {}
        }
    }
}

fn json_type(value: &Value) -> &'static str {
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
