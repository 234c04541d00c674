//! Validation of volume mounts and devices.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use windlass_api::field::{FieldErrors, FieldPath};

use super::super::fields::{flag, list, optional_text, part, text};
use super::{PodContext, paths};

/// Validates the mounts and raw devices of a container.
pub(super) fn check(container: &Value, context: &PodContext, path: &FieldPath, errors: &mut FieldErrors) {
    let by_name = |field, target| -> BTreeMap<&str, &str> {
        list(container, field).iter().map(|m| (text(m, "name"), text(m, target))).collect()
    };
    let mounts = by_name("volumeMounts", "mountPath");
    let devices = by_name("volumeDevices", "devicePath");
    self::mounts(container, context, &devices, &path.child("volumeMounts"), errors);
    self::devices(container, context, &mounts, &path.child("volumeDevices"), errors);
}

fn mounts(
    container: &Value,
    context: &PodContext,
    devices: &BTreeMap<&str, &str>,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let mut taken = BTreeSet::new();
    let device_paths: BTreeSet<&str> = devices.values().copied().collect();
    for (index, mount) in list(container, "volumeMounts").iter().enumerate() {
        let at = path.index(index);
        let (name, target) = (text(mount, "name"), text(mount, "mountPath"));
        super::required(&at, mount, "name", errors);
        if !context.volumes.contains_key(name) {
            errors.not_found(&at.child("name"), name);
        }
        super::required(&at, mount, "mountPath", errors);
        if !taken.insert(target) {
            errors.invalid_str(&at.child("mountPath"), target, "must be unique");
        }
        if devices.contains_key(name) {
            let detail = "must not already exist in volumeDevices";
            errors.invalid_str(&at.child("name"), name, detail);
        }
        if device_paths.contains(target) {
            let detail = "must not already exist as a path in volumeDevices";
            errors.invalid_str(&at.child("mountPath"), target, detail);
        }
        sub_paths(mount, path, &at, errors);
        propagation(mount, container, &path.child("mountPropagation"), errors);
        recursive_read_only(mount, &path.child("recursiveReadOnly"), errors);
    }
}

/// Error paths inside a sub-path omit the mount's index, as upstream does.
fn sub_paths(mount: &Value, path: &FieldPath, at: &FieldPath, errors: &mut FieldErrors) {
    let (plain, expression) = (text(mount, "subPath"), text(mount, "subPathExpr"));
    paths::local(&path.child("subPath"), plain, errors);
    if !plain.is_empty() && !expression.is_empty() {
        let detail = "subPathExpr and subPath are mutually exclusive";
        errors.invalid_str(&at.child("subPathExpr"), expression, detail);
    }
    paths::local(&path.child("subPathExpr"), expression, errors);
}

fn propagation(mount: &Value, container: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    const MODES: [&str; 3] = ["Bidirectional", "HostToContainer", "None"];
    let Some(mode) = optional_text(mount, "mountPropagation") else { return };
    if !MODES.contains(&mode) {
        errors.not_supported(path, mode, &MODES);
    }
    let privileged = part(container, "securityContext").is_some_and(|rules| flag(rules, "privileged"));
    if mode == "Bidirectional" && !privileged {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        errors.forbidden(path, detail);
    }
}

fn recursive_read_only(mount: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    match optional_text(mount, "recursiveReadOnly") {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if !flag(mount, "readOnly") {
                errors.forbidden(path, "may only be specified when readOnly is true");
            }
            if !matches!(optional_text(mount, "mountPropagation"), None | Some("None")) {
                let detail = "may only be specified when mountPropagation is None or not specified";
                errors.forbidden(path, detail);
            }
        }
        Some(other) => {
            errors.not_supported(path, other, &["Disabled", "Enabled", "IfPossible"]);
        }
    }
}

fn devices(
    container: &Value,
    context: &PodContext,
    mounts: &BTreeMap<&str, &str>,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let mut names = BTreeSet::new();
    let mut targets = BTreeSet::new();
    let mount_paths: BTreeSet<&str> = mounts.values().copied().collect();
    for (index, device) in list(container, "volumeDevices").iter().enumerate() {
        let (name_at, path_at) = (path.index(index).child("name"), path.index(index).child("devicePath"));
        let (name, target) = (text(device, "name"), text(device, "devicePath"));
        if name.is_empty() {
            errors.required(&name_at, "");
        } else if !names.insert(name) {
            errors.invalid_str(&name_at, name, "must be unique");
        }
        match context.volumes.get(name) {
            Some(volume)
                if part(volume, "persistentVolumeClaim").is_none() && part(volume, "ephemeral").is_none() =>
            {
                let detail = "can only use volume source type of PersistentVolumeClaim or \
                              Ephemeral for block mode";
                errors.invalid_str(&name_at, name, detail);
            }
            Some(_) => {}
            None => errors.not_found(&name_at, name),
        }
        if target.is_empty() {
            errors.required(&path_at, "");
        }
        if targets.contains(target) {
            errors.invalid_str(&path_at, target, "must be unique");
        }
        if paths::has_backsteps(target) {
            errors.invalid_str(&path_at, target, "can not contain backsteps ('..')");
        } else {
            targets.insert(target);
        }
        if mounts.contains_key(name) {
            let detail = "must not already exist in volumeMounts";
            errors.invalid_str(&name_at, name, detail);
        }
        if mount_paths.contains(target) {
            let detail = "must not already exist as a path in volumeMounts";
            errors.invalid_str(&path_at, target, detail);
        }
    }
}
