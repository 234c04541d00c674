//! PersistentVolumes: storage that outlives pods. Stored and served only; nothing here acts on
//! them.

use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::names::dns1123_subdomain;

use super::kind::{Kind, Scope, ServedVersion, Subresource};
use super::object_fields::{
    count, default, entries, immutable, map, non_null, part, restore_field, text, texts,
};
use super::table_cells;

/// Descriptor of PersistentVolume, which is cluster-scoped.
pub(crate) const KIND: Kind = Kind {
    name: "PersistentVolume",
    plural: "persistentvolumes",
    short_names: &["pv"],
    scope: Scope::Cluster,
    served: &[ServedVersion::new("", "v1", "io.k8s.api.core.v1.PersistentVolume")],
    subresources: &[Subresource::STATUS],
    columns: &[
        table_cells::NAME,
        table_cells::column("Capacity"),
        table_cells::column("Access Modes"),
        table_cells::column("Reclaim Policy"),
        table_cells::column("Status"),
        table_cells::column("Claim"),
        table_cells::column("StorageClass"),
        table_cells::column("VolumeAttributesClass"),
        table_cells::column("Reason"),
        table_cells::AGE,
        table_cells::wide(table_cells::column("VolumeMode")),
    ],
    row,
    defaults,
    prepare_create: |object| {
        map(object).insert("status".into(), json!({"phase": "Pending"}));
    },
    prepare_update: |new, old| restore_field(new, old, "status"),
    validate_create: validate,
    validate_update,
    returns_deleted: true,
    ..Kind::DEFAULT
};

/// Volume sources; exactly one is set.
const SOURCES: [&str; 22] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

fn defaults(object: &mut Value) {
    let spec = part(object, "spec");
    default(spec, "persistentVolumeReclaimPolicy", "Retain");
    default(spec, "volumeMode", "Filesystem");
    default_source(spec, "hostPath", &[("type", json!(""))]);
    default_source(spec, "iscsi", &[("iscsiInterface", json!("default"))]);
    default_source(
        spec,
        "rbd",
        &[("pool", json!("rbd")), ("user", json!("admin")), ("keyring", json!("/etc/ceph/keyring"))],
    );
    default_source(spec, "scaleIO", &[("storageMode", json!("ThinProvisioned")), ("fsType", json!("xfs"))]);
    default_source(
        spec,
        "azureDisk",
        &[
            ("cachingMode", json!("ReadWrite")),
            ("kind", json!("Shared")),
            ("fsType", json!("ext4")),
            ("readOnly", json!(false)),
        ],
    );
    default(part(object, "status"), "phase", "Pending");
}

fn default_source(spec: &mut Map<String, Value>, source: &str, fields: &[(&str, Value)]) {
    let Some(Value::Object(source)) = spec.get_mut(source) else { return };
    for (field, value) in fields {
        default(source, field, value.clone());
    }
}

fn validate(object: &Value, errors: &mut FieldErrors) {
    let spec = FieldPath::new("spec");
    if count(object, "/spec/accessModes") == 0 {
        errors.required(&spec.child("accessModes"), "");
    }
    validate_access_modes(object, errors);
    let capacity = spec.child("capacity");
    match count(object, "/spec/capacity") {
        0 => errors.required(&capacity, ""),
        1 if non_null(object, "/spec/capacity/storage").is_some() => {}
        _ => {
            let shown = non_null(object, "/spec/capacity").unwrap_or(&Value::Null).to_string();
            errors.not_supported(&capacity, &shown, &["storage"]);
        }
    }
    for (resource, amount) in entries(object, "/spec/capacity") {
        validate_positive(amount, &capacity.key(resource), errors);
    }
    const POLICIES: [&str; 3] = ["Delete", "Recycle", "Retain"];
    let policy = text(object, "/spec/persistentVolumeReclaimPolicy");
    if !policy.is_empty() && !POLICIES.contains(&policy) {
        errors.not_supported(&spec.child("persistentVolumeReclaimPolicy"), policy, &POLICIES);
    }
    validate_source(object, errors);
    validate_class(object, &spec, "storageClassName", errors);
    validate_volume_mode(object, errors);
    if let Some(class) = non_null(object, "/spec/volumeAttributesClassName") {
        if class == "" {
            let path = spec.child("volumeAttributesClassName");
            errors.required(&path, "an empty string is disallowed");
        }
        validate_class(object, &spec, "volumeAttributesClassName", errors);
        if non_null(object, "/spec/csi").is_none() {
            let detail = "has to be specified when using volumeAttributesClassName";
            errors.required(&spec.child("csi"), detail);
        }
    }
}

fn validate_source(object: &Value, errors: &mut FieldErrors) {
    let spec = FieldPath::new("spec");
    let mut set = SOURCES.iter().filter(|s| non_null(object, &format!("/spec/{s}")).is_some());
    let first = set.next();
    for source in set {
        errors.forbidden(&spec.child(source), "may not specify more than 1 volume type");
    }
    match first {
        None => errors.required(&spec, "must specify a volume type"),
        Some(&"local") if non_null(object, "/spec/nodeAffinity").is_none() => {
            errors.required(&spec.child("nodeAffinity"), "Local volume requires node affinity");
        }
        Some(_) => {}
    }
    let recycled = text(object, "/spec/persistentVolumeReclaimPolicy") == "Recycle";
    let path = text(object, "/spec/hostPath/path");
    let is_root = !path.is_empty() && path.split('/').all(|part| ["", "."].contains(&part));
    if non_null(object, "/spec/hostPath").is_some() && path.starts_with('/') && is_root && recycled {
        let path = spec.child("persistentVolumeReclaimPolicy");
        errors.forbidden(&path, "may not be 'recycle' for a hostPath mount of '/'");
    }
}

/// Validates `spec.accessModes` of volumes and claims.
pub(super) fn validate_access_modes(object: &Value, errors: &mut FieldErrors) {
    const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    let path = FieldPath::new("spec").child("accessModes");
    let modes: Vec<&str> = texts(object, "/spec/accessModes").collect();
    for mode in modes.iter().filter(|mode| !MODES.contains(mode)) {
        errors.not_supported(&path, mode, &MODES);
    }
    let other = |mode: &&str| *mode != "ReadWriteOncePod" && MODES.contains(mode);
    if modes.contains(&"ReadWriteOncePod") && modes.iter().any(other) {
        errors.forbidden(&path, "may not use ReadWriteOncePod with other access modes");
    }
}

/// Checks that an amount of storage is greater than zero.
pub(super) fn validate_positive(amount: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let amount = amount.as_str().unwrap_or_default();
    let digits = amount.trim_start_matches('+').split(|c: char| c.is_ascii_alphabetic()).next();
    let digits = digits.unwrap_or_default();
    if digits.starts_with('-') || !digits.bytes().any(|b| matches!(b, b'1'..=b'9')) {
        errors.invalid_str(path, amount, "must be greater than zero");
    }
}

/// Validates the name of a storage class or similar class in `spec`.
pub(super) fn validate_class(object: &Value, spec: &FieldPath, field: &str, errors: &mut FieldErrors) {
    let name = text(object, &format!("/spec/{field}"));
    if !name.is_empty() {
        errors.invalid_each(&spec.child(field), name, dns1123_subdomain(name));
    }
}

/// Validates `spec.volumeMode` of volumes and claims.
pub(super) fn validate_volume_mode(object: &Value, errors: &mut FieldErrors) {
    const MODES: [&str; 2] = ["Block", "Filesystem"];
    let mode = text(object, "/spec/volumeMode");
    if non_null(object, "/spec/volumeMode").is_some() && !MODES.contains(&mode) {
        errors.not_supported(&FieldPath::new("spec").child("volumeMode"), mode, &MODES);
    }
}

fn validate_update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    validate(new, errors);
    // The only part of a source that may be added later.
    let secret = "controllerExpandSecretRef";
    let may_come = non_null(old, &format!("/spec/csi/{secret}")).is_none();
    let source_of = |object: &Value, source: &str| {
        let mut source = non_null(object, &format!("/spec/{source}")).cloned();
        if let Some(Value::Object(fields)) = source.as_mut().filter(|_| may_come) {
            fields.remove(secret);
        }
        source
    };
    if SOURCES.iter().any(|source| source_of(new, source) != source_of(old, source)) {
        let path = FieldPath::new("spec").child("persistentvolumesource");
        errors.forbidden(&path, "spec.persistentvolumesource is immutable after creation");
    }
    immutable(new, old, "/spec/volumeMode", &FieldPath::new("volumeMode"), errors);
    validate_attributes_class_stays(new, old, errors);
}

/// Checks that a volume or claim with a VolumeAttributesClass keeps having one.
pub(super) fn validate_attributes_class_stays(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let pointer = "/spec/volumeAttributesClassName";
    if non_null(old, pointer).is_some() && non_null(new, pointer).is_none() {
        let path = FieldPath::new("spec").child("volumeAttributesClassName");
        errors.forbidden(&path, "update from non-nil value to nil is forbidden");
    }
}

fn row(object: &Value, now: OffsetDateTime) -> Vec<Value> {
    let claim = match non_null(object, "/spec/claimRef") {
        None => String::new(),
        Some(claim) => format!("{}/{}", text(claim, "/namespace"), text(claim, "/name")),
    };
    vec![
        table_cells::name(object),
        amount(object, "/spec/capacity/storage").into(),
        access_modes(object, "/spec/accessModes").into(),
        text(object, "/spec/persistentVolumeReclaimPolicy").into(),
        phase(object).into(),
        claim.into(),
        class(object).into(),
        or_unset(object, "/spec/volumeAttributesClassName").into(),
        text(object, "/status/reason").into(),
        table_cells::age(object, now),
        or_unset(object, "/spec/volumeMode").into(),
    ]
}

/// Returns an amount of storage; 0 if absent.
pub(super) fn amount(object: &Value, pointer: &str) -> String {
    match text(object, pointer) {
        "" => "0".to_owned(),
        amount => amount.to_owned(),
    }
}

/// Abbreviates access modes as kubectl does, for example `RWO,ROX`.
pub(super) fn access_modes(object: &Value, pointer: &str) -> String {
    let modes: Vec<&str> = texts(object, pointer).collect();
    let short: Vec<&str> = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ]
    .into_iter()
    .filter(|(mode, _)| modes.contains(mode))
    .map(|(_, short)| short)
    .collect();
    short.join(",")
}

/// Returns the phase of a volume or claim for display.
pub(super) fn phase(object: &Value) -> &str {
    match non_null(object, "/metadata/deletionTimestamp") {
        Some(_) => "Terminating",
        None => text(object, "/status/phase"),
    }
}

/// Returns the storage class of a volume or claim; old objects name it in an annotation.
pub(super) fn class(object: &Value) -> &str {
    non_null(object, "/metadata/annotations/volume.beta.kubernetes.io~1storage-class")
        .and_then(Value::as_str)
        .unwrap_or_else(|| text(object, "/spec/storageClassName"))
}

/// Returns a string, or a placeholder if absent.
pub(super) fn or_unset<'a>(object: &'a Value, pointer: &str) -> &'a str {
    non_null(object, pointer).and_then(Value::as_str).unwrap_or("<unset>")
}

#[cfg(test)]
mod tests {
    use super::super::object_fields::tests::{cells, created, refusals};
    use super::*;

    fn volume() -> Value {
        json!({
            "metadata": {"name": "pv", "creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOncePod"],
                "hostPath": {"path": "/data"}
            }
        })
    }

    #[test]
    fn defaults_are_filled_in() {
        let object = created(&KIND, volume());
        assert_eq!(object["spec"]["persistentVolumeReclaimPolicy"], "Retain");
        assert_eq!(object["spec"]["volumeMode"], "Filesystem");
        assert_eq!(object["spec"]["hostPath"], json!({"path": "/data", "type": ""}));
        assert_eq!(object["status"], json!({"phase": "Pending"}));
        assert_eq!(refusals(&KIND, &object), Vec::<String>::new());
    }

    #[test]
    fn rows() {
        let mut object = created(&KIND, volume());
        object["spec"]["claimRef"] = json!({"namespace": "n", "name": "c"});
        object["spec"]["storageClassName"] = json!("fast");
        assert_eq!(
            cells(&KIND, &object),
            json!([
                "pv",
                "1Gi",
                "RWOP",
                "Retain",
                "Pending",
                "n/c",
                "fast",
                "<unset>",
                "",
                "120m",
                "Filesystem"
            ])
        );
    }
}
