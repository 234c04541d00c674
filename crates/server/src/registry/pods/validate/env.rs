//! Environment variables, and references to a pod's own fields, which files also use.

use std::collections::BTreeMap;

use serde_json::Value;
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::names;

use super::super::fields::{int, list, part, text};
use super::{paths, report_all, required, required_name};

const VARIABLE_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const FILE_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

pub(super) fn variables(container: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for (index, variable) in list(container, "env").iter().enumerate() {
        let at = path.index(index);
        required_name(&at.child("name"), text(variable, "name"), names::env_var_name, errors);
        if let Some(source) = part(variable, "valueFrom") {
            value_from(source, text(variable, "value"), &at.child("valueFrom"), errors);
        }
    }
}

fn value_from(source: &Value, value: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let mut count = 0;
    let mut given = |field: &str| {
        let part = part(source, field);
        count += usize::from(part.is_some());
        part
    };
    if let Some(field) = given("fieldRef") {
        field_ref(field, &VARIABLE_FIELDS, &path.child("fieldRef"), errors);
    }
    if let Some(resource) = given("resourceFieldRef") {
        resource_ref(resource, false, &path.child("resourceFieldRef"), errors);
    }
    for kind in ["configMapKeyRef", "secretKeyRef"] {
        let Some(reference) = given(kind) else { continue };
        let at = path.child(kind);
        let name = text(reference, "name");
        report_all(&at.child("name"), name, names::dns1123_subdomain(name), errors);
        required_name(&at.child("key"), text(reference, "key"), names::config_map_key, errors);
    }
    if let Some(file) = given("fileKeyRef") {
        let at = path.child("fileKeyRef");
        required_name(&at.child("key"), text(file, "key"), names::env_var_name, errors);
        let volume = text(file, "volumeName");
        required_name(&at.child("volumeName"), volume, names::dns1123_label, errors);
        required(&at, file, "path", errors);
        paths::no_backsteps(&at.child("path"), text(file, "path"), errors);
    }
    if count == 0 {
        let detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, \
                      `secretKeyRef` or `fileKeyRef`";
        errors.invalid_str(path, "", detail);
    } else if !value.is_empty() {
        errors.invalid_str(path, "", "may not be specified when `value` is not empty");
    } else if count > 1 {
        errors.invalid_str(path, "", "may not have more than one field specified at a time");
    }
}

/// Validates whole Secrets and ConfigMaps as variables.
pub(super) fn sources(container: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for (index, source) in list(container, "envFrom").iter().enumerate() {
        let at = path.index(index);
        super::name(&at.child("prefix"), text(source, "prefix"), names::env_var_name, errors);
        let mut count = 0;
        for kind in ["configMapRef", "secretRef"] {
            let Some(reference) = part(source, kind) else { continue };
            count += 1;
            let name = text(reference, "name");
            let at = at.child(kind).child("name");
            required_name(&at, name, |name| names::dns1123_subdomain_rule(name, true), errors);
        }
        if count == 0 {
            let detail = "must specify one of: `configMapRef` or `secretRef`";
            errors.invalid_str(path, "", detail);
        } else if count > 1 {
            errors.invalid_str(path, "", "may not have more than one field specified at a time");
        }
    }
}

/// Files that variables are read from must be in `emptyDir` volumes.
pub(super) fn files_are_in_empty_dirs(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let volumes: BTreeMap<&str, &Value> =
        list(spec, "volumes").iter().map(|volume| (text(volume, "name"), volume)).collect();
    for field in ["initContainers", "containers", "ephemeralContainers"] {
        for (index, container) in list(spec, field).iter().enumerate() {
            let path = path.child(field).index(index).child("env");
            for (index, variable) in list(container, "env").iter().enumerate() {
                let Some(file) = variable.pointer("/valueFrom/fileKeyRef") else { continue };
                let at = path.index(index).child("valueFrom").child("fileKeyRef");
                let at = at.child("volumeName");
                let name = text(file, "volumeName");
                match volumes.get(name) {
                    None => errors.not_found(&at, name),
                    Some(volume) if part(volume, "emptyDir").is_none() => {
                        let detail = "referenced volume must be of type emptyDir";
                        errors.invalid_str(&at, name, detail);
                    }
                    Some(_) => {}
                }
            }
        }
    }
}

/// Validates one downward API file; error paths name the source, without the file's index.
pub(super) fn downward_file(file: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    required(path, file, "path", errors);
    paths::local_and_not_reserved(&path.child("path"), text(file, "path"), errors);
    match (part(file, "fieldRef"), part(file, "resourceFieldRef")) {
        (Some(field), other) => {
            field_ref(field, &FILE_FIELDS, &path.child("fieldRef"), errors);
            if other.is_some() {
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.invalid_str(path, "resource", detail);
            }
        }
        (None, Some(resource)) => {
            resource_ref(resource, true, &path.child("resourceFieldRef"), errors);
        }
        (None, None) => {
            errors.required(path, "one of fieldRef and resourceFieldRef is required");
        }
    }
    paths::mode(&path.child("mode"), int(file, "mode"), errors);
}

fn field_ref(reference: &Value, known: &[&str], path: &FieldPath, errors: &mut FieldErrors) {
    let (version, field) = (text(reference, "apiVersion"), text(reference, "fieldPath"));
    if version.is_empty() {
        return errors.required(&path.child("apiVersion"), "");
    }
    if field.is_empty() {
        return errors.required(&path.child("fieldPath"), "");
    }
    if let Some(reason) = unconvertible(version, field) {
        let detail = format!("error converting fieldPath: {reason}");
        return errors.invalid_str(&path.child("fieldPath"), field, &detail);
    }
    match subscripted(field) {
        Some(("metadata.annotations", key)) => {
            let key = key.to_lowercase();
            report_all(path, &key, names::qualified_name(&key), errors);
        }
        Some(("metadata.labels", key)) => report_all(path, key, names::qualified_name(key), errors),
        Some((whole, _)) => errors.invalid_str(path, whole, "does not support subscript"),
        // Old name of `spec.nodeName`.
        None if field == "spec.host" && known.contains(&"spec.nodeName") => {}
        None if known.contains(&field) => {}
        None => errors.not_supported(&path.child("fieldPath"), field, known),
    }
}

/// Returns why a pod field cannot be referenced, if so.
fn unconvertible(version: &str, field: &str) -> Option<String> {
    if version != "v1" {
        return Some(format!("unsupported pod version: {version}"));
    }
    if let Some((whole, _)) = subscripted(field) {
        let mapped = matches!(whole, "metadata.annotations" | "metadata.labels");
        return (!mapped).then(|| format!("field label does not support subscript: {field}"));
    }
    let known = VARIABLE_FIELDS.contains(&field)
        || FILE_FIELDS.contains(&field)
        || matches!(field, "spec.restartPolicy" | "spec.schedulerName" | "status.phase" | "spec.host");
    (!known).then(|| format!("field label not supported: {field}"))
}

/// Splits `metadata.labels['a']` into its two parts.
fn subscripted(field: &str) -> Option<(&str, &str)> {
    let inner = field.strip_suffix("']")?;
    let (whole, key) = inner.split_once("['")?;
    (!whole.is_empty()).then_some((whole, key))
}

fn resource_ref(reference: &Value, in_volume: bool, path: &FieldPath, errors: &mut FieldErrors) {
    let resource = text(reference, "resource");
    let huge = resource.starts_with("limits.hugepages-") || resource.starts_with("requests.hugepages-");
    if in_volume && text(reference, "containerName").is_empty() {
        errors.required(&path.child("containerName"), "");
    } else if resource.is_empty() {
        errors.required(&path.child("resource"), "");
    } else if !huge && !RESOURCES.contains(&resource) {
        errors.not_supported(&path.child("resource"), resource, &RESOURCES);
    }
    let divisor = text(reference, "divisor");
    if matches!(divisor, "" | "0") {
        return;
    }
    let by_size = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
    let of_what = match resource.split_once('.').map_or("", |(_, name)| name) {
        "cpu" if !matches!(divisor, "1" | "1m") => {
            let detail = "only divisor's values 1m and 1 are supported with the cpu resource";
            return errors.invalid_str(&path.child("divisor"), resource, detail);
        }
        _ if by_size.contains(&divisor) => return,
        "memory" => "memory",
        "ephemeral-storage" => "local ephemeral storage",
        _ if huge => "hugepages",
        _ => return,
    };
    let detail = format!(
        "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are \
         supported with the {of_what} resource"
    );
    errors.invalid_str(&path.child("divisor"), resource, &detail);
}
