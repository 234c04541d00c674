//! Validation of a pod's volumes: unique names, and exactly one source each.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::names;
use windlass_api::selector::labels;

use super::super::fields::{entries, flag, int, list, optional_text, part, text, texts};
use super::super::nano_quantity::NanoQuantity;
use super::{env, one_of, paths, projected, report_all, required, required_name};

/// Validates all volumes and returns the valid ones by name.
pub(super) fn check<'a>(
    volumes: &'a [Value],
    pod_name: &str,
    path: &FieldPath,
    errors: &mut FieldErrors,
) -> BTreeMap<&'a str, &'a Value> {
    // Without the pod's name, the names of its claims are unknown.
    let own_claims: BTreeSet<String> = volumes
        .iter()
        .filter(|volume| !pod_name.is_empty() && part(volume, "ephemeral").is_some())
        .map(|volume| format!("{pod_name}-{}", text(volume, "name")))
        .collect();
    let mut valid = BTreeMap::new();
    for (index, volume) in volumes.iter().enumerate() {
        let at = path.index(index);
        let mut found = FieldErrors::new();
        source(volume, pod_name, &at, &mut found);
        let name = text(volume, "name");
        required_name(&at.child("name"), name, names::dns1123_label, &mut found);
        if valid.contains_key(name) {
            found.duplicate(&at.child("name"), &name.into());
        }
        if found.is_empty() {
            valid.insert(name, volume);
        }
        errors.extend(found);
        if let Some(claim) = part(volume, "persistentVolumeClaim")
            && own_claims.contains(text(claim, "claimName"))
        {
            errors.invalid_str(
                &at.child("persistentVolumeClaim").child("claimName"),
                text(claim, "claimName"),
                "must not reference a PVC that gets created for an ephemeral volume",
            );
        }
    }
    valid
}

/// A volume source: its field, its two names in errors (upstream misspells some), and its rules.
struct VolumeSourceRule {
    field: &'static str,
    in_forbidden: &'static str,
    in_path: &'static str,
    rules: fn(&Value, &FieldPath, &mut FieldErrors),
}

const fn source_kind(
    field: &'static str,
    rules: fn(&Value, &FieldPath, &mut FieldErrors),
) -> VolumeSourceRule {
    VolumeSourceRule { field, in_forbidden: field, in_path: field, rules }
}

/// In order of lookup: the first source counts, every other is an error.
const SOURCES: [VolumeSourceRule; 30] = [
    source_kind("emptyDir", empty_dir),
    source_kind("hostPath", host_path),
    source_kind("gitRepo", git_repo),
    VolumeSourceRule {
        field: "gcePersistentDisk",
        in_forbidden: "gcePersistentDisk",
        in_path: "persistentDisk",
        rules: |disk, path, errors| partitioned_disk(disk, "pdName", path, errors),
    },
    source_kind("awsElasticBlockStore", |disk, path, errors| {
        partitioned_disk(disk, "volumeID", path, errors);
    }),
    source_kind("secret", |source, path, errors| keyed(source, "secretName", path, errors)),
    source_kind("nfs", nfs),
    source_kind("iscsi", iscsi),
    source_kind("glusterfs", |source, path, errors| {
        all_required(source, &["endpoints", "path"], path, errors);
    }),
    source_kind("flocker", flocker),
    source_kind("persistentVolumeClaim", |source, path, errors| {
        required(path, source, "claimName", errors);
    }),
    source_kind("rbd", |source, path, errors| {
        monitors(source, path, errors);
        required(path, source, "image", errors);
    }),
    source_kind("cinder", |source, path, errors| {
        required(path, source, "volumeID", errors);
        secret_ref(source, path, errors);
    }),
    VolumeSourceRule { field: "cephfs", in_forbidden: "cephFS", in_path: "cephfs", rules: monitors },
    source_kind("quobyte", quobyte),
    VolumeSourceRule {
        field: "downwardAPI",
        in_forbidden: "downwarAPI",
        in_path: "downwardAPI",
        rules: downward_api,
    },
    source_kind("fc", fibre_channel),
    source_kind("flexVolume", flex_volume),
    source_kind("configMap", |source, path, errors| keyed(source, "name", path, errors)),
    source_kind("azureFile", |source, path, errors| {
        all_required(source, &["secretName", "shareName"], path, errors);
    }),
    source_kind("vsphereVolume", |source, path, errors| {
        required(path, source, "volumePath", errors);
    }),
    source_kind("photonPersistentDisk", |source, path, errors| {
        required(path, source, "pdID", errors);
    }),
    source_kind("portworxVolume", |source, path, errors| {
        required(path, source, "volumeID", errors);
    }),
    source_kind("azureDisk", azure_disk),
    source_kind("storageos", storageos),
    source_kind("projected", projected::check),
    source_kind("scaleIO", |source, path, errors| {
        all_required(source, &["gateway", "system", "volumeName"], path, errors);
    }),
    source_kind("csi", csi),
    source_kind("ephemeral", ephemeral),
    source_kind("image", |source, path, errors| {
        required(path, source, "reference", errors);
        let policy = text(source, "pullPolicy");
        one_of(&path.child("pullPolicy"), policy, &["Always", "IfNotPresent", "Never"], errors);
    }),
];

fn source(volume: &Value, pod_name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen = false;
    for kind in &SOURCES {
        let Some(source) = part(volume, kind.field) else { continue };
        if seen {
            let at = path.child(kind.in_forbidden);
            errors.forbidden(&at, "may not specify more than 1 volume type");
        } else {
            seen = true;
            (kind.rules)(source, &path.child(kind.in_path), errors);
        }
    }
    if !seen {
        errors.required(path, "must specify a volume type");
    }
    let name = text(volume, "name");
    if let Some(iscsi) = part(volume, "iscsi")
        && optional_text(iscsi, "initiatorName").is_some()
        && name.len() + 1 + text(iscsi, "targetPortal").len() > 64
    {
        errors.invalid_str(
            &path.child("name"),
            name,
            "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
             iscsi.initiatorName is specified.",
        );
    }
    if part(volume, "ephemeral").is_some() && !pod_name.is_empty() && !name.is_empty() {
        let claim = format!("{pod_name}-{name}");
        for words in names::dns1123_subdomain(&claim) {
            let words = format!("PVC name {}: {words}", windlass_api::field::quote(&claim));
            errors.invalid_str(&path.child("name"), name, &words);
        }
    }
}

fn all_required(source: &Value, fields: &[&str], path: &FieldPath, errors: &mut FieldErrors) {
    for field in fields {
        required(path, source, field, errors);
    }
}

fn secret_ref(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(secret) = part(source, "secretRef") {
        required(&path.child("secretRef"), secret, "name", errors);
    }
}

fn empty_dir(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if part(source, "sizeLimit").is_some_and(|limit| NanoQuantity::from_value(limit).sign().is_lt()) {
        let detail = "SizeLimit field must be a valid resource quantity";
        errors.forbidden(&path.child("sizeLimit"), detail);
    }
}

fn host_path(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    const TYPES: [&str; 8] =
        ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    let target = text(source, "path");
    if target.is_empty() {
        return errors.required(&path.child("path"), "");
    }
    paths::no_backsteps(&path.child("path"), target, errors);
    if !TYPES.contains(&text(source, "type")) {
        errors.not_supported(&path.child("type"), text(source, "type"), &TYPES);
    }
}

fn git_repo(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    required(path, source, "repository", errors);
    paths::local(&path.child("directory"), text(source, "directory"), errors);
}

fn partitioned_disk(disk: &Value, id: &str, path: &FieldPath, errors: &mut FieldErrors) {
    required(path, disk, id, errors);
    let partition = int(disk, "partition").unwrap_or_default();
    if !(0..=255).contains(&partition) {
        let words = "must be between 1 and 255, inclusive";
        errors.invalid(&path.child("partition"), &partition.into(), words);
    }
}

/// Validates a Secret or ConfigMap volume.
fn keyed(source: &Value, name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    required(path, source, name, errors);
    paths::mode(&path.child("defaultMode"), int(source, "defaultMode"), errors);
    for (index, item) in list(source, "items").iter().enumerate() {
        projected::key_to_path(item, &path.child("items").index(index), errors);
    }
}

fn downward_api(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    paths::mode(&path.child("defaultMode"), int(source, "defaultMode"), errors);
    for file in list(source, "items") {
        env::downward_file(file, path, errors);
    }
}

fn nfs(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    all_required(source, &["server", "path"], path, errors);
    if !text(source, "path").starts_with('/') {
        errors.invalid_str(&path.child("path"), text(source, "path"), "must be an absolute path");
    }
}

fn iscsi(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    required(path, source, "targetPortal", errors);
    match text(source, "iqn") {
        "" => errors.required(&path.child("iqn"), ""),
        iqn => iscsi_name(&path.child("iqn"), iqn, errors),
    }
    let lun = int(source, "lun").unwrap_or_default();
    super::in_range(&path.child("lun"), lun, 0, 255, errors);
    let chap = flag(source, "chapAuthDiscovery") || flag(source, "chapAuthSession");
    if chap && part(source, "secretRef").is_none() {
        errors.required(&path.child("secretRef"), "");
    }
    if let Some(initiator) = optional_text(source, "initiatorName") {
        iscsi_name(&path.child("initiatorname"), initiator, errors);
    }
}

fn iscsi_name(path: &FieldPath, name: &str, errors: &mut FieldErrors) {
    let good = match name.get(..3) {
        Some("iqn") => is_iqn(name),
        Some("eui") => is_alphanumeric_of_length(name, 16),
        Some("naa") => is_alphanumeric_of_length(name, 32),
        _ => {
            let words = "must be valid format starting with iqn, eui, or naa";
            return errors.invalid_str(path, name, words);
        }
    };
    if !good {
        errors.invalid_str(path, name, "must be valid format");
    }
}

/// Matches iSCSI qualified names, for example `iqn.2003-01.com.example:anything-without-blanks`.
fn is_iqn(name: &str) -> bool {
    let Some((authority, rest)) = name.split_once(':') else { return false };
    let Some(dated) = authority.strip_prefix("iqn.").filter(|dated| dated.is_ascii()) else {
        return false;
    };
    let (Some(date), Some(host)) = (dated.get(..7), dated.get(8..)) else { return false };
    let dated_well = date.bytes().enumerate().all(|(at, b)| match at {
        4 => b == b'-',
        _ => b.is_ascii_digit(),
    });
    dated_well
        && dated.as_bytes().get(7) == Some(&b'.')
        && !host.is_empty()
        && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'))
        && !rest.is_empty()
        && !rest.contains(|c: char| ",;*&$|".contains(c) || c.is_ascii_whitespace())
}

fn is_alphanumeric_of_length(name: &str, digits: usize) -> bool {
    let rest = name.as_bytes().get(4..).unwrap_or_default();
    rest.len() == digits && rest.iter().all(u8::is_ascii_alphanumeric)
}

fn flocker(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (name, uuid) = (text(source, "datasetName"), text(source, "datasetUUID"));
    if name.is_empty() && uuid.is_empty() {
        errors.required(path, "one of datasetName and datasetUUID is required");
    }
    if !name.is_empty() && !uuid.is_empty() {
        let words = "datasetName and datasetUUID can not be specified simultaneously";
        errors.invalid_str(path, "resource", words);
    }
    if name.contains('/') {
        errors.invalid_str(&path.child("datasetName"), name, "must not contain '/'");
    }
}

fn monitors(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if list(source, "monitors").is_empty() {
        errors.required(&path.child("monitors"), "");
    }
}

fn quobyte(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let words = "must be a host:port pair or multiple pairs separated by commas";
    let registry = text(source, "registry");
    if registry.is_empty() {
        errors.required(&path.child("registry"), words);
    } else if text(source, "tenant").len() >= 65 {
        let words = "must be a UUID and may not exceed a length of 64 characters";
        errors.required(&path.child("tenant"), words);
    } else {
        for _ in registry.split(',').filter(|pair| !is_host_port(pair)) {
            errors.invalid_str(&path.child("registry"), registry, words);
        }
    }
    required(path, source, "volume", errors);
}

fn is_host_port(pair: &str) -> bool {
    match pair.strip_prefix('[') {
        Some(rest) => rest
            .split_once("]:")
            .is_some_and(|(host, port)| !host.contains(['[', ']']) && !port.contains([':', '['])),
        None => pair.matches(':').count() == 1 && !pair.contains(['[', ']']),
    }
}

fn fibre_channel(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (targets, wwids) = (list(source, "targetWWNs"), list(source, "wwids"));
    let at = path.child("targetWWNs");
    if targets.is_empty() && wwids.is_empty() {
        errors.required(&at, "must specify either targetWWNs or wwids, but not both");
    }
    if !targets.is_empty() && !wwids.is_empty() {
        let words = "targetWWNs and wwids can not be specified simultaneously";
        errors.invalid(&at, &targets.into(), words);
    }
    if targets.is_empty() {
        return;
    }
    match int(source, "lun") {
        None => errors.required(&path.child("lun"), "lun is required if targetWWNs is specified"),
        Some(lun) => super::in_range(&path.child("lun"), lun, 0, 255, errors),
    }
}

fn flex_volume(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    required(path, source, "driver", errors);
    for (key, _) in entries(source, "options") {
        let domain = key.split_once('/').map_or(key, |(domain, _)| domain);
        let domain = format!(".{}", domain.to_lowercase());
        if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
            let words = "kubernetes.io and k8s.io namespaces are reserved";
            errors.invalid_str(&path.child("options").key(key), key, words);
        }
    }
}

fn azure_disk(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    const MANAGED_URI: &str = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/\
                               microsoft.compute/disks/{disk-id}";
    const BLOB_URI: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
    all_required(source, &["diskName", "diskURI"], path, errors);
    for (field, known) in
        [("cachingMode", ["None", "ReadOnly", "ReadWrite"]), ("kind", ["Dedicated", "Managed", "Shared"])]
    {
        if let Some(value) = optional_text(source, field)
            && !known.contains(&value)
        {
            errors.not_supported(&path.child(field), value, &known);
        }
    }
    let uri = text(source, "diskURI");
    match optional_text(source, "kind") {
        Some("Managed") if !uri.starts_with("/subscriptions/") => {
            errors.not_supported(&path.child("diskURI"), uri, &[MANAGED_URI]);
        }
        Some(kind) if kind != "Managed" && !uri.starts_with("https://") => {
            errors.not_supported(&path.child("diskURI"), uri, &[BLOB_URI]);
        }
        _ => {}
    }
}

fn storageos(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let name = text(source, "volumeName");
    required_name(&path.child("volumeName"), name, names::dns1123_label, errors);
    let namespace = text(source, "volumeNamespace");
    super::name(&path.child("volumeNamespace"), namespace, names::dns1123_label, errors);
    secret_ref(source, path, errors);
}

fn csi(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let driver = text(source, "driver");
    let at = path.child("driver");
    if driver.is_empty() {
        errors.required(&at, "");
    }
    if driver.len() > 63 {
        errors.too_long(&at, 63);
    }
    report_all(&at, driver, names::dns1123_subdomain(&driver.to_lowercase()), errors);
    if let Some(secret) = part(source, "nodePublishSecretRef") {
        match text(secret, "name") {
            "" => errors.required(&path.child("nodePublishSecretRef").child("name"), ""),
            name => report_all(&path.child("name"), name, names::dns1123_subdomain(name), errors),
        }
    }
}

fn ephemeral(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let at = path.child("volumeClaimTemplate");
    let Some(template) = part(source, "volumeClaimTemplate") else {
        return errors.required(&at, "");
    };
    if let Some(metadata) = part(template, "metadata") {
        let at = at.child("metadata");
        super::labels(&at.child("labels"), metadata, "labels", errors);
        for (field, value) in metadata.as_object().into_iter().flatten() {
            let settable = matches!(field.as_str(), "labels" | "annotations");
            if !settable && !value.is_null() && *value != Value::String(String::new()) {
                errors.forbidden(&at.child(field), "cannot be set");
            }
        }
    }
    claim(part(template, "spec").unwrap_or(&Value::Null), &at.child("spec"), errors);
}

fn claim(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    let modes = texts(spec, "accessModes");
    let at = path.child("accessModes");
    if modes.is_empty() {
        errors.required(&at, "at least 1 access mode is required");
    }
    if let Some(labels) = part(spec, "selector") {
        labels::validate_label_selector(&path.child("selector"), labels, errors);
    }
    for mode in modes.iter().filter(|mode| !MODES.contains(mode)) {
        errors.not_supported(&at, mode, &MODES);
    }
    let once_pod = modes.contains(&"ReadWriteOncePod");
    if once_pod && modes.iter().any(|m| MODES.contains(m) && *m != "ReadWriteOncePod") {
        errors.forbidden(&at, "may not use ReadWriteOncePod with other access modes");
    }
    let at = path.child("resources").key("storage");
    match spec.pointer("/resources/requests/storage") {
        None => errors.required(&at, ""),
        Some(amount) if !NanoQuantity::from_value(amount).sign().is_gt() => {
            errors.invalid(&at, amount, "must be greater than zero");
        }
        Some(_) => {}
    }
    let class = text(spec, "storageClassName");
    super::name(&path.child("storageClassName"), class, names::dns1123_subdomain, errors);
    if let Some(mode) = optional_text(spec, "volumeMode")
        && !["Block", "Filesystem"].contains(&mode)
    {
        errors.not_supported(&path.child("volumeMode"), mode, &["Block", "Filesystem"]);
    }
}
