//! CSIDrivers: capabilities of a storage driver. Stored and served only; nothing here acts on them.

use std::collections::HashSet;

use serde_json::{Value, json};
use time::OffsetDateTime;
use windlass_api::field::{FieldErrors, FieldPath};

use super::kind::{Kind, Scope, ServedVersion};
use super::object_fields::{bool_at, count, default, immutable, integer, list, non_null, part, text, texts};
use super::table_cells;

/// Descriptor of CSIDriver in `storage.k8s.io`, read by kubelets.
pub(crate) const KIND: Kind = Kind {
    name: "CSIDriver",
    plural: "csidrivers",
    scope: Scope::Cluster,
    served: &[ServedVersion::new("storage.k8s.io", "v1", "io.k8s.api.storage.v1.CSIDriver")],
    columns: &[
        table_cells::NAME,
        table_cells::with_type("boolean", table_cells::column("AttachRequired")),
        table_cells::with_type("boolean", table_cells::column("PodInfoOnMount")),
        table_cells::with_type("boolean", table_cells::column("StorageCapacity")),
        table_cells::column("TokenRequests"),
        table_cells::with_type("boolean", table_cells::column("RequiresRepublish")),
        table_cells::column("Modes"),
        table_cells::AGE,
    ],
    row,
    generation: true,
    unconditional_update: false,
    defaults,
    validate_create: validate,
    validate_update: |new, old, errors| {
        validate(new, errors);
        let spec = FieldPath::new("spec");
        immutable(new, old, "/spec/attachRequired", &spec.child("attachedRequired"), errors);
        let modes = "volumeLifecycleModes";
        immutable(new, old, &format!("/spec/{modes}"), &spec.child(modes), errors);
    },
    returns_deleted: true,
    ..Kind::DEFAULT
};

fn defaults(object: &mut Value) {
    let modes = count(object, "/spec/volumeLifecycleModes");
    let spec = part(object, "spec");
    for (field, value) in [
        ("attachRequired", json!(true)),
        ("podInfoOnMount", json!(false)),
        ("storageCapacity", json!(false)),
        ("fsGroupPolicy", json!("ReadWriteOnceWithFSType")),
        ("requiresRepublish", json!(false)),
        ("seLinuxMount", json!(false)),
        ("preventPodSchedulingIfMissing", json!(false)),
    ] {
        default(spec, field, value);
    }
    if modes == 0 {
        spec.insert("volumeLifecycleModes".into(), json!(["Persistent"]));
    }
}

fn validate(object: &Value, errors: &mut FieldErrors) {
    let spec = FieldPath::new("spec");
    // Kubernetes spells the first of these with one `d` more than the field has.
    for (field, shown) in [
        ("attachRequired", "attachedRequired"),
        ("podInfoOnMount", "podInfoOnMount"),
        ("storageCapacity", "storageCapacity"),
    ] {
        if bool_at(object, &format!("/spec/{field}")).is_none() {
            errors.required(&spec.child(shown), "");
        }
    }
    const POLICIES: [&str; 3] = ["File", "None", "ReadWriteOnceWithFSType"];
    let policy = text(object, "/spec/fsGroupPolicy");
    if non_null(object, "/spec/fsGroupPolicy").is_some() && !POLICIES.contains(&policy) {
        errors.not_supported(&spec.child("fsGroupPolicy"), policy, &POLICIES);
    }
    validate_token_requests(object, errors);
    const MODES: [&str; 2] = ["Persistent", "Ephemeral"];
    for mode in texts(object, "/spec/volumeLifecycleModes").filter(|mode| !MODES.contains(mode)) {
        errors.not_supported(&spec.child("volumeLifecycleModes"), mode, &MODES);
    }
    if bool_at(object, "/spec/seLinuxMount").is_none() {
        errors.required(&spec.child("seLinuxMount"), "");
    }
    let period = integer(object, "/spec/nodeAllocatableUpdatePeriodSeconds");
    if let Some(seconds) = period.filter(|seconds| *seconds < 10) {
        let path = spec.child("nodeAllocatableUpdatePeriodSeconds");
        errors.invalid(&path, &seconds.into(), "must be greater than or equal to 10 seconds");
    }
}

fn validate_token_requests(object: &Value, errors: &mut FieldErrors) {
    let mut audiences = HashSet::new();
    for (i, request) in list(object, "/spec/tokenRequests").iter().enumerate() {
        let path = FieldPath::new("spec").child("tokenRequests").index(i);
        let audience = text(request, "/audience");
        if !audiences.insert(audience) {
            errors.duplicate(&path.child("audience"), &audience.into());
            continue;
        }
        let Some(seconds) = integer(request, "/expirationSeconds") else { continue };
        let path = path.child("expirationSeconds");
        if seconds < 600 {
            let detail = "may not specify a duration less than 10 minutes";
            errors.invalid(&path, &seconds.into(), detail);
        }
        if seconds > 1 << 32 {
            let detail = "may not specify a duration larger than 2^32 seconds";
            errors.invalid(&path, &seconds.into(), detail);
        }
    }
}

fn row(object: &Value, now: OffsetDateTime) -> Vec<Value> {
    let flag =
        |field: &str, absent: bool| Value::Bool(bool_at(object, &format!("/spec/{field}")).unwrap_or(absent));
    let tokens = match non_null(object, "/spec/tokenRequests") {
        None => "<unset>".to_owned(),
        Some(_) => {
            let requests = list(object, "/spec/tokenRequests");
            let audiences: Vec<&str> = requests.iter().map(|r| text(r, "/audience")).collect();
            audiences.join(",")
        }
    };
    let modes: Vec<&str> = texts(object, "/spec/volumeLifecycleModes").collect();
    let modes = if modes.is_empty() { "<none>".to_owned() } else { modes.join(",") };
    vec![
        table_cells::name(object),
        flag("attachRequired", true),
        flag("podInfoOnMount", false),
        flag("storageCapacity", false),
        tokens.into(),
        flag("requiresRepublish", false),
        modes.into(),
        table_cells::age(object, now),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::object_fields::tests::{cells, created, refusals};
    use super::*;

    fn driver() -> Value {
        let metadata = json!({"name": "d", "creationTimestamp": "1970-01-01T00:00:00Z"});
        created(&KIND, json!({"metadata": metadata, "spec": {}}))
    }

    #[test]
    fn defaults_are_filled_in() {
        assert_eq!(
            driver()["spec"],
            json!({
                "attachRequired": true, "podInfoOnMount": false, "storageCapacity": false,
                "fsGroupPolicy": "ReadWriteOnceWithFSType", "requiresRepublish": false,
                "seLinuxMount": false, "preventPodSchedulingIfMissing": false,
                "volumeLifecycleModes": ["Persistent"]
            })
        );
        assert_eq!(refusals(&KIND, &driver()), Vec::<String>::new());
    }

    #[test]
    fn rows() {
        assert_eq!(
            cells(&KIND, &driver()),
            json!(["d", true, false, false, "<unset>", false, "Persistent", "120m"])
        );
    }
}
