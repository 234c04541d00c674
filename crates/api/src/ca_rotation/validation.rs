//! Rules for CARotations that the schema cannot express.

use std::collections::HashSet;

use serde_json::Value;

use super::RESOURCE;
use crate::conditions::validate_conditions;
use crate::field::{FieldErrors, FieldPath};
use crate::schema::{Schema, ValidationStyle};

/// Validates a CARotation before it is stored: against the schema and, if that passes, the rules.
pub fn validate(object: &Value, errors: &mut FieldErrors) {
    Schema::get().validate(RESOURCE.type_id(), ValidationStyle::BuiltIn, object, errors);
    if errors.is_empty() {
        for field in ["excludedNodes", "acceptedConsumers"] {
            reject_duplicates(&FieldPath::new("spec").child(field), &object["spec"][field], errors);
        }
    }
}

/// Validates an update: the rules of a new object; the signer and the trigger are immutable, and a
/// rollback cannot be taken back.
pub fn validate_update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    validate(new, errors);
    let path = FieldPath::new("spec");
    if new["spec"]["signerName"] != old["spec"]["signerName"] {
        errors.invalid(&path.child("signerName"), &new["spec"]["signerName"], "field is immutable");
    }
    if trigger(new) != trigger(old) {
        errors.invalid_str(&path.child("trigger"), trigger(new), "field is immutable");
    }
    if old["spec"]["rollback"] == true && new["spec"]["rollback"] != true {
        errors.forbidden(&path.child("rollback"), "cannot be unset; start another rotation instead");
    }
}

/// Validates the status that a controller writes.
pub fn validate_status(object: &Value, errors: &mut FieldErrors) {
    Schema::get().validate(RESOURCE.type_id(), ValidationStyle::BuiltIn, object, errors);
    if errors.is_empty() {
        let path = FieldPath::new("status").child("conditions");
        validate_conditions(&path, &object["status"]["conditions"], errors);
    }
}

/// An absent trigger is the same as a manual one.
fn trigger(object: &Value) -> &str {
    object["spec"]["trigger"].as_str().unwrap_or("Manual")
}

/// Other API servers reject duplicates in sets as well.
fn reject_duplicates(path: &FieldPath, list: &Value, errors: &mut FieldErrors) {
    let mut seen = HashSet::new();
    for (index, value) in list.as_array().into_iter().flatten().enumerate() {
        if !seen.insert(value.as_str()) {
            errors.duplicate(&path.index(index), value);
        }
    }
}
