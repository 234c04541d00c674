//! PersistentVolumeClaims: a pod's request for storage. Stored and served only; nothing here acts
//! on them.

use serde_json::{Value, json};
use time::OffsetDateTime;
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::names::{dns1123_label, dns1123_subdomain};
use windlass_api::selector::labels::validate_label_selector;

use super::kind::{Kind, ServedVersion, Subresource};
use super::object_fields::{count, default, immutable, map, non_null, part, restore_field, text};
use super::persistentvolumes::{
    access_modes, amount, class, or_unset, phase, validate_access_modes, validate_attributes_class_stays,
    validate_class, validate_positive, validate_volume_mode,
};
use super::table_cells;

/// Descriptor of PersistentVolumeClaim in the core group.
pub(crate) const KIND: Kind = Kind {
    name: "PersistentVolumeClaim",
    plural: "persistentvolumeclaims",
    short_names: &["pvc"],
    served: &[ServedVersion::new("", "v1", "io.k8s.api.core.v1.PersistentVolumeClaim")],
    subresources: &[Subresource::STATUS],
    columns: &[
        table_cells::NAME,
        table_cells::column("Status"),
        table_cells::column("Volume"),
        table_cells::column("Capacity"),
        table_cells::column("Access Modes"),
        table_cells::column("StorageClass"),
        table_cells::column("VolumeAttributesClass"),
        table_cells::AGE,
        table_cells::wide(table_cells::column("VolumeMode")),
    ],
    row,
    defaults: |object| {
        default(part(object, "spec"), "volumeMode", "Filesystem");
        default(part(object, "status"), "phase", "Pending");
    },
    prepare_create: |object| {
        map(object).insert("status".into(), json!({"phase": "Pending"}));
        drop_unknown_source(object);
        agree_on_source(object);
    },
    prepare_update: |new, old| {
        restore_field(new, old, "status");
        agree_on_source(new);
    },
    validate_create: validate,
    validate_update,
    returns_deleted: true,
    ..Kind::DEFAULT
};

/// `dataSource` names a claim or a snapshot; anything else is ignored, as in Kubernetes.
fn drop_unknown_source(object: &mut Value) {
    let Some(source) = non_null(object, "/spec/dataSource") else { return };
    let known = matches!(
        (text(source, "/apiGroup"), text(source, "/kind")),
        ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
    );
    if !known {
        part(object, "spec").remove("dataSource");
    }
}

/// `dataSource` and `dataSourceRef` are equivalent; an absent one is copied from the other.
fn agree_on_source(object: &mut Value) {
    let source = non_null(object, "/spec/dataSource").cloned();
    let reference = non_null(object, "/spec/dataSourceRef").cloned();
    match (source, reference) {
        (Some(source), None) => {
            part(object, "spec").insert("dataSourceRef".into(), source);
        }
        (None, Some(reference)) if text(&reference, "/namespace").is_empty() => {
            part(object, "spec").insert("dataSource".into(), reference);
            drop_unknown_source(object);
        }
        _ => {}
    }
}

fn validate(object: &Value, errors: &mut FieldErrors) {
    let spec = FieldPath::new("spec");
    if count(object, "/spec/accessModes") == 0 {
        errors.required(&spec.child("accessModes"), "at least 1 access mode is required");
    }
    if let Some(selector) = non_null(object, "/spec/selector") {
        validate_label_selector(&spec.child("selector"), selector, errors);
    }
    validate_access_modes(object, errors);
    let storage = spec.child("resources").key("storage");
    match non_null(object, "/spec/resources/requests/storage") {
        None => errors.required(&storage, ""),
        Some(amount) => validate_positive(amount, &storage, errors),
    }
    validate_class(object, &spec, "storageClassName", errors);
    validate_volume_mode(object, errors);
    for field in ["dataSource", "dataSourceRef"] {
        validate_source(object, &spec, field, errors);
    }
    validate_sources_agree(object, errors);
    validate_class(object, &spec, "volumeAttributesClassName", errors);
}

fn validate_sources_agree(object: &Value, errors: &mut FieldErrors) {
    let (Some(source), Some(reference)) =
        (non_null(object, "/spec/dataSource"), non_null(object, "/spec/dataSourceRef"))
    else {
        return;
    };
    let detail = if !text(reference, "/namespace").is_empty() {
        "may not be specified when dataSourceRef.namespace is specified"
    } else if ["/apiGroup", "/kind", "/name"]
        .iter()
        .any(|part| non_null(source, part) != non_null(reference, part))
    {
        "must match dataSourceRef"
    } else {
        return;
    };
    // Kubernetes shows a path struct here, which has no public fields and encodes as `{}`.
    errors.invalid(&FieldPath::new("spec"), &json!({}), detail);
}

fn validate_source(object: &Value, spec: &FieldPath, field: &str, errors: &mut FieldErrors) {
    let Some(source) = non_null(object, &format!("/spec/{field}")) else { return };
    let path = spec.child(field);
    for part in ["name", "kind"] {
        if text(source, &format!("/{part}")).is_empty() {
            errors.required(&path.child(part), "");
        }
    }
    let group = text(source, "/apiGroup");
    if group.is_empty() && text(source, "/kind") != "PersistentVolumeClaim" {
        errors.invalid_str(
            &path,
            text(source, "/kind"),
            "must be 'PersistentVolumeClaim' when referencing the default apiGroup",
        );
    }
    if !group.is_empty() {
        errors.invalid_each(&path.child("apiGroup"), group, dns1123_subdomain(group));
    }
    let namespace = text(source, "/namespace");
    if !namespace.is_empty() {
        errors.invalid_each(&path.child("namespace"), namespace, dns1123_label(namespace));
    }
}

fn validate_update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    validate(new, errors);
    let bound = text(new, "/status/phase") == "Bound";
    let compared = |object: &Value| {
        let mut spec = object.get("spec").cloned().unwrap_or_default();
        let spec_map = map(&mut spec);
        if text(old, "/spec/volumeName").is_empty() {
            spec_map.remove("volumeName");
        }
        if non_null(old, "/spec/storageClassName").is_none() {
            spec_map.remove("storageClassName");
        }
        spec_map.remove("volumeAttributesClassName");
        let resources = spec_map.get_mut("resources");
        if let Some(Value::Object(requests)) = resources.and_then(|r| r.get_mut("requests"))
            && bound
        {
            requests.remove("storage");
        }
        spec
    };
    if compared(new) != compared(old) {
        errors.forbidden(
            &FieldPath::new("spec"),
            "spec is immutable after creation except resources.requests and \
             volumeAttributesClassName for bound claims",
        );
    }
    immutable(new, old, "/spec/volumeMode", &FieldPath::new("volumeMode"), errors);
    validate_attributes_class_stays(new, old, errors);
    let class = "/spec/volumeAttributesClassName";
    let emptied = non_null(new, class).is_some_and(|class| class == "");
    if emptied && non_null(old, class).is_some() && non_null(new, class) != non_null(old, class) {
        let path = FieldPath::new("spec").child("volumeAttributesClassName");
        errors.forbidden(&path, "update from non-nil value to an empty string is forbidden");
    }
}

fn row(object: &Value, now: OffsetDateTime) -> Vec<Value> {
    let volume = text(object, "/spec/volumeName");
    let (capacity, modes) = if volume.is_empty() {
        Default::default()
    } else {
        (amount(object, "/status/capacity/storage"), access_modes(object, "/status/accessModes"))
    };
    vec![
        table_cells::name(object),
        phase(object).into(),
        volume.into(),
        capacity.into(),
        modes.into(),
        class(object).into(),
        or_unset(object, "/spec/volumeAttributesClassName").into(),
        table_cells::age(object, now),
        or_unset(object, "/spec/volumeMode").into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::object_fields::tests::{cells, created, refusals};
    use super::*;

    fn claim() -> Value {
        json!({
            "metadata": {"name": "c", "creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}
            }
        })
    }

    #[test]
    fn defaults_are_filled_in() {
        let object = created(&KIND, claim());
        assert_eq!(object["spec"]["volumeMode"], "Filesystem");
        assert_eq!(object["status"], json!({"phase": "Pending"}));
        assert_eq!(refusals(&KIND, &object), Vec::<String>::new());
    }

    #[test]
    fn sources_agree() {
        let mut object = claim();
        object["spec"]["dataSource"] = json!({"kind": "PersistentVolumeClaim", "name": "x"});
        let object = created(&KIND, object);
        assert_eq!(object["spec"]["dataSourceRef"], object["spec"]["dataSource"]);
        let mut object = claim();
        object["spec"]["dataSource"] = json!({"apiGroup": "my.io", "kind": "Thing", "name": "x"});
        assert_eq!(created(&KIND, object)["spec"].get("dataSource"), None);
    }

    #[test]
    fn rows() {
        let mut object = created(&KIND, claim());
        assert_eq!(
            cells(&KIND, &object),
            json!(["c", "Pending", "", "", "", "", "<unset>", "120m", "Filesystem"])
        );
        object["spec"]["volumeName"] = json!("pv");
        object["status"] = json!({"phase": "Bound", "accessModes": ["ReadWriteMany"],
                                  "capacity": {"storage": "1Gi"}});
        assert_eq!(
            cells(&KIND, &object),
            json!(["c", "Bound", "pv", "1Gi", "RWX", "", "<unset>", "120m", "Filesystem"])
        );
    }
}
