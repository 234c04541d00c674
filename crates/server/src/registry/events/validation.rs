//! Validation of events.

use serde_json::Value;
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::names::{dns1123_subdomain, qualified_name};

use super::super::object_fields::{immutable, integer, non_null, text};
use super::super::table_cells::is_zero_time;

/// Maximum bytes of an action, reason or reporting instance.
const SHORT: usize = 128;
/// Maximum bytes of a message.
const MESSAGE: usize = 1024;

pub(super) fn create(event: &Value, errors: &mut FieldErrors) {
    validate_both(event, errors);
    if !is_strict(event) {
        return;
    }
    validate_series(event, errors);
    if is_zero_time(text(event, "/eventTime")) {
        errors.required(&FieldPath::new("eventTime"), "");
    }
    let kind = text(event, "/type");
    if !["Normal", "Warning"].contains(&kind) {
        errors.invalid_str(&FieldPath::new("type"), "", &format!("has invalid value: {kind}"));
    }
    let mut unset = |field: &str, is_set: bool| {
        if is_set {
            errors.invalid_str(&FieldPath::new(field), "", "needs to be unset");
        }
    };
    unset("firstTimestamp", !is_zero_time(text(event, "/firstTimestamp")));
    unset("lastTimestamp", !is_zero_time(text(event, "/lastTimestamp")));
    unset("count", integer(event, "/count").unwrap_or_default() != 0);
    let source = text(event, "/source/component").len() + text(event, "/source/host").len();
    unset("source", source != 0);
}

pub(super) fn update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    validate_both(new, errors);
    if !is_strict(new) {
        return;
    }
    if non_null(new, "/series") != non_null(old, "/series") {
        validate_series(new, errors);
    }
    for (field, shown) in [
        ("involvedObject", "involvedObject"),
        ("reason", "reason"),
        ("message", "message"),
        ("source", "source"),
        ("firstTimestamp", "firstTimestamp"),
        ("lastTimestamp", "lastTimestamp"),
        ("count", "count"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingComponent", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ] {
        immutable(new, old, &format!("/{field}"), &FieldPath::new(shown), errors);
    }
}

/// Returns true if the rules of `events.k8s.io/v1` apply.
fn is_strict(event: &Value) -> bool {
    text(event, "/apiVersion") == "events.k8s.io/v1"
}

/// Rules of both groups: an event with an `eventTime` has the new format.
fn validate_both(event: &Value, errors: &mut FieldErrors) {
    let namespace = text(event, "/metadata/namespace");
    let involved = text(event, "/involvedObject/namespace");
    let agree = if is_zero_time(text(event, "/eventTime")) {
        namespace == involved || (involved.is_empty() && namespace == "default")
    } else {
        !involved.is_empty() || ["default", "kube-system"].contains(&namespace)
    };
    if !agree {
        let path = FieldPath::new("involvedObject").child("namespace");
        errors.invalid_str(&path, involved, "does not match event.namespace");
    }
    if !is_zero_time(text(event, "/eventTime")) {
        validate_new(event, errors);
    }
    errors.invalid_each(&FieldPath::new("namespace"), namespace, dns1123_subdomain(namespace));
}

fn validate_new(event: &Value, errors: &mut FieldErrors) {
    let controller = text(event, "/reportingComponent");
    let path = FieldPath::new(if is_strict(event) { "reportingController" } else { "reportingComponent" });
    if controller.is_empty() {
        errors.required(&path, "");
    }
    errors.invalid_each(&path, controller, qualified_name(controller));
    for (field, max, required) in [
        ("reportingInstance", SHORT, true),
        ("action", SHORT, true),
        ("reason", SHORT, true),
        ("message", MESSAGE, false),
    ] {
        let value = text(event, &format!("/{field}"));
        if required && value.is_empty() {
            errors.required(&FieldPath::new(field), "");
        }
        if value.len() > max {
            let detail = format!("can have at most {max} characters");
            errors.invalid_str(&FieldPath::new(field), "", &detail);
        }
    }
}

fn validate_series(event: &Value, errors: &mut FieldErrors) {
    if non_null(event, "/series").is_none() {
        return;
    }
    if integer(event, "/series/count").unwrap_or_default() < 2 {
        errors.invalid_str(&FieldPath::new("series.count"), "", "should be at least 2");
    }
    if is_zero_time(text(event, "/series/lastObservedTime")) {
        errors.required(&FieldPath::new("series.lastObservedTime"), "");
    }
}
