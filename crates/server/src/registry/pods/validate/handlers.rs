//! Validation of probes and lifecycle hooks, which share their actions.

use serde_json::Value;
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::names;

use super::super::fields::{int, list, part, text};
use super::{in_range, report_all};

/// Validates the hooks and probes of a container.
pub(super) fn validate_handlers(
    container: &Value,
    grace: Option<i64>,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    if let Some(hooks) = part(container, "lifecycle") {
        let path = path.child("lifecycle");
        for hook in ["postStart", "preStop"] {
            if let Some(action) = part(hooks, hook) {
                let kinds = ["exec", "httpGet", "tcpSocket", "sleep"];
                handler(action, &kinds, grace, &path.child(hook), errors);
            }
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = part(container, name) {
            self::probe(name, probe, grace, &path.child(name), errors);
        }
    }
}

fn probe(name: &str, probe: &Value, grace: Option<i64>, path: &FieldPath, errors: &mut FieldErrors) {
    handler(probe, &["exec", "httpGet", "tcpSocket", "grpc"], grace, path, errors);
    for field in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        let number = int(probe, field).unwrap_or_default();
        if number < 0 {
            let detail = "must be greater than or equal to 0";
            errors.invalid(&path.child(field), &number.into(), detail);
        }
    }
    let at = path.child("terminationGracePeriodSeconds");
    let own_grace = int(probe, "terminationGracePeriodSeconds");
    if let Some(seconds) = own_grace
        && seconds <= 0
    {
        errors.invalid(&at, &seconds.into(), "must be greater than 0");
    }
    if name == "readinessProbe" {
        if let Some(seconds) = own_grace {
            errors.invalid(&at, &seconds.into(), "must not be set for readinessProbes");
        }
        return;
    }
    let successes = int(probe, "successThreshold").unwrap_or_default();
    if successes != 1 {
        errors.invalid(&path.child("successThreshold"), &successes.into(), "must be 1");
    }
}

/// Validates one action of the allowed `kinds`: the first counts, every other is an error.
fn handler(action: &Value, kinds: &[&str], grace: Option<i64>, path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen = false;
    for kind in kinds {
        let Some(action) = part(action, kind) else { continue };
        let at = path.child(kind);
        if seen {
            errors.forbidden(&at, "may not specify more than 1 handler type");
            continue;
        }
        seen = true;
        match *kind {
            "exec" if list(action, "command").is_empty() => {
                errors.required(&at.child("command"), "");
            }
            "exec" => {}
            "httpGet" => http_get(action, &at, errors),
            "sleep" => sleep(action, grace, &at, errors),
            _ => port(action, &at.child("port"), errors),
        }
    }
    if !seen {
        errors.required(path, "must specify a handler type");
    }
}

fn http_get(get: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    super::required(path, get, "path", errors);
    port(get, &path.child("port"), errors);
    let scheme = text(get, "scheme");
    if !["HTTP", "HTTPS"].contains(&scheme) {
        errors.not_supported(&path.child("scheme"), scheme, &["HTTP", "HTTPS"]);
    }
    for header in list(get, "httpHeaders") {
        let name = text(header, "name");
        let good = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if !good {
            let words = names::regex_error(
                "a valid HTTP header must consist of alphanumeric characters or '-'",
                "[-A-Za-z0-9]+",
                &["X-Header-Name"],
            );
            errors.invalid_str(&path.child("httpHeaders"), name, &words);
        }
    }
}

/// Validates a port given by number or name.
fn port(action: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    match part(action, "port") {
        Some(Value::String(name)) => report_all(path, name, names::port_name(name), errors),
        other => {
            let number = other.and_then(Value::as_i64).unwrap_or_default();
            in_range(path, number, 1, 65535, errors);
        }
    }
}

fn sleep(sleep: &Value, grace: Option<i64>, path: &FieldPath, errors: &mut FieldErrors) {
    let seconds = int(sleep, "seconds").unwrap_or_default();
    let Some(grace) = grace else { return };
    if seconds < 0 || seconds > grace {
        let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        errors.invalid(path, &seconds.into(), &detail);
    }
}
