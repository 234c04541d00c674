//! Validation of security contexts of pods and containers.

use std::collections::BTreeSet;

use serde_json::Value;
use windlass_api::field::{FieldErrors, FieldPath};

use super::super::fields::{flag, int, list, optional_flag, optional_text, part, text, texts};
use super::{PodContext, in_range, paths};

const MAX_ID: i64 = i32::MAX as i64;

pub(super) fn pod_security_context(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(context) = part(spec, "securityContext") else { return };
    validate_ids(context, &["fsGroup", "runAsUser", "runAsGroup"], path, errors);
    for (index, group) in list(context, "supplementalGroups").iter().enumerate() {
        let group = group.as_i64().unwrap_or_default();
        in_range(&path.child("supplementalGroups").index(index), group, 0, MAX_ID, errors);
    }
    if flag(spec, "shareProcessNamespace") && flag(spec, "hostPID") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(&path.child("shareProcessNamespace"), &true.into(), detail);
    }
    sysctls(spec, context, &path.child("sysctls"), errors);
    supported(context, "fsGroupChangePolicy", &["Always", "OnRootMismatch"], path, errors);
    profiles(context, path, errors);
    supported(context, "supplementalGroupsPolicy", &["Merge", "Strict"], path, errors);
    supported(context, "seLinuxChangePolicy", &["MountOption", "Recursive"], path, errors);
}

pub(super) fn container_security_context(
    rules: &Value,
    context: &PodContext,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    validate_ids(rules, &["runAsUser", "runAsGroup"], path, errors);
    supported(rules, "procMount", &["Default", "Unmasked"], path, errors);
    if context.host_users && text(rules, "procMount") == "Unmasked" {
        let detail = "`hostUsers` must be false to use `Unmasked`";
        errors.invalid_str(&path.child("procMount"), "Unmasked", detail);
    }
    seccomp(rules, &path.child("seccompProfile"), errors);
    if optional_flag(rules, "allowPrivilegeEscalation") == Some(false) {
        escalation(rules, path, errors);
    }
    app_armor(rules, &path.child("appArmorProfile"), errors);
}

fn escalation(rules: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if flag(rules, "privileged") {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        errors.invalid(path, rules, detail);
    }
    let added = part(rules, "capabilities").map(|all| texts(all, "add")).unwrap_or_default();
    for _ in added.iter().filter(|capability| **capability == "CAP_SYS_ADMIN") {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
        errors.invalid(path, rules, detail);
    }
}

/// A pod with its own user namespace cannot share host namespaces or use raw devices.
pub(super) fn host_users(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if optional_flag(spec, "hostUsers") != Some(false) {
        return;
    }
    for (field, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if flag(spec, field) {
            errors.forbidden(&path.child(shown), "when `hostUsers` is false");
        }
    }
    for field in ["initContainers", "containers", "ephemeralContainers"] {
        for (index, container) in list(spec, field).iter().enumerate() {
            if !list(container, "volumeDevices").is_empty() {
                let at = path.child(field).index(index).child("volumeDevices");
                errors.forbidden(&at, "when `hostUsers` is false");
            }
        }
    }
}

/// A Linux pod has no Windows options.
pub(super) fn no_windows_options(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    const DETAIL: &str = "windows options cannot be set for a linux pod";
    let set =
        |holder: &Value| part(holder, "securityContext").is_some_and(|c| part(c, "windowsOptions").is_some());
    if set(spec) {
        errors.forbidden(&path.child("securityContext").child("windowsOptions"), DETAIL);
    }
    for field in ["initContainers", "containers", "ephemeralContainers"] {
        for (index, container) in list(spec, field).iter().enumerate() {
            if set(container) {
                let at = path.child(field).index(index).child("securityContext");
                errors.forbidden(&at.child("windowsOptions"), DETAIL);
            }
        }
    }
}

fn validate_ids(context: &Value, fields: &[&str], path: &FieldPath, errors: &mut FieldErrors) {
    for field in fields {
        if let Some(id) = int(context, field) {
            in_range(&path.child(field), id, 0, MAX_ID, errors);
        }
    }
}

fn supported(context: &Value, field: &str, known: &[&str], path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(value) = optional_text(context, field)
        && !known.contains(&value)
    {
        errors.not_supported(&path.child(field), value, known);
    }
}

fn profiles(context: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    seccomp(context, &path.child("seccompProfile"), errors);
    app_armor(context, &path.child("appArmorProfile"), errors);
}

const PROFILE_TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];

fn seccomp(context: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(profile) = part(context, "seccompProfile") else { return };
    let kind = text(profile, "type");
    if kind.is_empty() {
        errors.required(&path.child("type"), "type is required when seccompProfile is set");
    } else if !PROFILE_TYPES.contains(&kind) {
        errors.not_supported(&path.child("type"), kind, &PROFILE_TYPES);
    }
    let at = path.child("localhostProfile");
    match (kind, optional_text(profile, "localhostProfile")) {
        ("Localhost", None) => {
            errors.required(&at, "must be set when seccomp type is Localhost");
        }
        ("Localhost", Some(file)) => paths::local(&at, file, errors),
        (_, Some(_)) => {
            let shown = super::go_json::object(&[
                ("Type", super::go_json::string(kind)),
                ("LocalhostProfile", super::go_json::value(part(profile, "localhostProfile"))),
            ]);
            errors.invalid_shown(&at, &shown, "can only be set when seccomp type is Localhost");
        }
        (_, None) => {}
    }
}

fn app_armor(context: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    const REQUIRED: &str = "must be set when AppArmor type is Localhost";
    let Some(profile) = part(context, "appArmorProfile") else { return };
    let at = path.child("localhostProfile");
    let file = optional_text(profile, "localhostProfile");
    match (text(profile, "type"), file) {
        ("Localhost", None) => errors.required(&at, REQUIRED),
        ("Localhost", Some(file)) => {
            if file != file.trim() {
                errors.invalid_str(&at, file, "must not be padded with whitespace");
            } else if file.is_empty() {
                errors.required(&at, REQUIRED);
            }
            if file.len() > 4095 {
                errors.too_long(&at, 4095);
            }
        }
        ("RuntimeDefault" | "Unconfined", Some(file)) => {
            errors.invalid_str(&at, file, "can only be set when AppArmor type is Localhost");
        }
        ("RuntimeDefault" | "Unconfined", None) => {}
        ("", _) => {
            errors.required(&path.child("type"), "type is required when appArmorProfile is set");
        }
        (other, _) => errors.not_supported(&path.child("type"), other, &PROFILE_TYPES),
    }
}

fn sysctls(spec: &Value, context: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for (index, sysctl) in list(context, "sysctls").iter().enumerate() {
        let at = path.index(index).child("name");
        let name = text(sysctl, "name");
        if name.is_empty() {
            errors.required(&at, "");
        } else if name.len() > 253 || !is_sysctl(name) {
            let detail = "must have at most 253 characters and match regex \
                ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
            errors.invalid_str(&at, name, detail);
        } else if seen.contains(name) {
            errors.duplicate(&at, &name.into());
        }
        seen.insert(name);
        let dotted = name.replace('/', ".");
        let of_ipc = ["kernel.shm", "kernel.msg", "fs.mqueue."].iter().any(|p| dotted.starts_with(p))
            || dotted == "kernel.sem";
        if flag(spec, "hostNetwork") && dotted.starts_with("net.") {
            errors.invalid_str(&at, name, "may not be specified when 'hostNetwork' is true");
        } else if flag(spec, "hostIPC") && of_ipc {
            errors.invalid_str(&at, name, "may not be specified when 'hostIPC' is true");
        }
    }
}

fn is_sysctl(name: &str) -> bool {
    name.split(['.', '/']).all(|segment| {
        let outer = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let bytes = segment.as_bytes();
        outer(bytes.first())
            && outer(bytes.last())
            && bytes.iter().all(|b| outer(Some(b)) || matches!(b, b'-' | b'_'))
    })
}
