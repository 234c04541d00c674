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
    singular: "csidriver",
    scope: Scope::Cluster,
    served: &[ServedVersion {
        group: "storage.k8s.io",
        version: "v1",
        type_name: "io.k8s.api.storage.v1.CSIDriver",
        convert: None,
    }],
    columns: &[
        table_cells::NAME,
        table_cells::with_type(
            "boolean",
            table_cells::column(
                "AttachRequired",
                "attachRequired indicates this CSI volume driver requires an attach operation (because \
             it implements the CSI ControllerPublishVolume() method), and that the Kubernetes \
             attach detach controller should call the attach volume interface which checks the \
             volumeattachment status and waits until the volume is attached before proceeding to \
             mounting. The CSI external-attacher coordinates with CSI volume driver and updates \
             the volumeattachment status when the attach operation is complete. If the value is \
             specified to false, the attach operation will be skipped. Otherwise the attach \
             operation will be called.\n\nThis field is immutable.",
            ),
        ),
        table_cells::with_type(
            "boolean",
            table_cells::column(
                "PodInfoOnMount",
                "podInfoOnMount indicates this CSI volume driver requires additional pod information \
             (like podName, podUID, etc.) during mount operations, if set to true. If set to \
             false, pod information will not be passed on mount. Default is false.\n\nThe CSI \
             driver specifies podInfoOnMount as part of driver deployment. If true, Kubelet will \
             pass pod information as VolumeContext in the CSI NodePublishVolume() calls. The CSI \
             driver is responsible for parsing and validating the information passed in as \
             VolumeContext.\n\nThe following VolumeContext will be passed if podInfoOnMount is set \
             to true. This list might grow, but the prefix will be used. \
             \"csi.storage.k8s.io/pod.name\": pod.Name \"csi.storage.k8s.io/pod.namespace\": \
             pod.Namespace \"csi.storage.k8s.io/pod.uid\": string(pod.UID) \
             \"csi.storage.k8s.io/ephemeral\": \"true\" if the volume is an ephemeral inline \
             volume\n                                defined by a CSIVolumeSource, otherwise \
             \"false\"\n\n\"csi.storage.k8s.io/ephemeral\" is a new feature in Kubernetes 1.16. It \
             is only required for drivers which support both the \"Persistent\" and \"Ephemeral\" \
             VolumeLifecycleMode. Other drivers can leave pod info disabled and/or ignore this \
             field. As Kubernetes 1.15 doesn't support this field, drivers can only support one \
             mode when deployed on such a cluster and the deployment determines which mode that \
             is, for example via a command line parameter of the driver.\n\nThis field was \
             immutable in Kubernetes < 1.29 and now is mutable.",
            ),
        ),
        table_cells::with_type(
            "boolean",
            table_cells::column(
                "StorageCapacity",
                "storageCapacity indicates that the CSI volume driver wants pod scheduling to consider \
             the storage capacity that the driver deployment will report by creating \
             CSIStorageCapacity objects with capacity information, if set to true.\n\nThe check \
             can be enabled immediately when deploying a driver. In that case, provisioning new \
             volumes with late binding will pause until the driver deployment has published some \
             suitable CSIStorageCapacity object.\n\nAlternatively, the driver can be deployed with \
             the field unset or false and it can be flipped later when storage capacity \
             information has been published.\n\nThis field was immutable in Kubernetes <= 1.22 and \
             now is mutable.",
            ),
        ),
        table_cells::column(
            "TokenRequests",
            "tokenRequests indicates the CSI driver needs pods' service account tokens it is \
             mounting volume for to do necessary authentication. Kubelet will pass the tokens in \
             VolumeContext in the CSI NodePublishVolume calls. The CSI driver should parse and \
             validate the following VolumeContext: \"csi.storage.k8s.io/serviceAccount.tokens\": \
             {\n  \"<audience>\": {\n    \"token\": <token>,\n    \"expirationTimestamp\": \
             <expiration timestamp in RFC3339>,\n  },\n  ...\n}\n\nNote: Audience in each \
             TokenRequest should be different and at most one token is empty string. To receive a \
             new token after expiry, RequiresRepublish can be used to trigger NodePublishVolume \
             periodically.",
        ),
        table_cells::with_type(
            "boolean",
            table_cells::column(
                "RequiresRepublish",
                "requiresRepublish indicates the CSI driver wants `NodePublishVolume` being \
             periodically called to reflect any possible change in the mounted volume. This field \
             defaults to false.\n\nNote: After a successful initial NodePublishVolume call, \
             subsequent calls to NodePublishVolume should only update the contents of the volume. \
             New mount points will not be seen by a running container.",
            ),
        ),
        table_cells::column(
            "Modes",
            "volumeLifecycleModes defines what kind of volumes this CSI volume driver supports. \
             The default if the list is empty is \"Persistent\", which is the usage defined by the \
             CSI specification and implemented in Kubernetes via the usual PV/PVC \
             mechanism.\n\nThe other mode is \"Ephemeral\". In this mode, volumes are defined \
             inline inside the pod spec with CSIVolumeSource and their lifecycle is tied to the \
             lifecycle of that pod. A driver has to be aware of this because it is only going to \
             get a NodePublishVolume call for such a volume.\n\nFor more information about \
             implementing this mode, see \
             https://kubernetes-csi.github.io/docs/ephemeral-local-volumes.html A driver can \
             support one or more of these modes and more modes may be added in the future.\n\nThis \
             field is beta. This field is immutable.",
        ),
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
    use super::super::object_fields::tests::{cells, change_refusals, created, refusals};
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
    fn rules() {
        let mut bad = driver();
        bad["spec"]["fsGroupPolicy"] = json!("Odd");
        bad["spec"]["volumeLifecycleModes"] = json!(["Odd"]);
        bad["spec"]["nodeAllocatableUpdatePeriodSeconds"] = json!(9);
        bad["spec"]["tokenRequests"] =
            json!([{"audience": "a", "expirationSeconds": 599}, {"audience": "a"}]);
        let told = [
            "spec.fsGroupPolicy: Unsupported value: \"Odd\": supported values: \"File\", \"None\", \
             \"ReadWriteOnceWithFSType\"",
            "spec.tokenRequests[0].expirationSeconds: Invalid value: 599: may not specify a \
             duration less than 10 minutes",
            "spec.tokenRequests[1].audience: Duplicate value: \"a\"",
            "spec.volumeLifecycleModes: Unsupported value: \"Odd\": supported values: \
             \"Persistent\", \"Ephemeral\"",
            "spec.nodeAllocatableUpdatePeriodSeconds: Invalid value: 9: must be greater than or \
             equal to 10 seconds",
        ];
        assert_eq!(refusals(&KIND, &bad), told);
        let mut new = driver();
        new["spec"]["attachRequired"] = json!(false);
        assert_eq!(
            change_refusals(&KIND, &new, &driver()),
            ["spec.attachedRequired: Invalid value: false: field is immutable"]
        );
    }

    #[test]
    fn rows() {
        assert_eq!(
            cells(&KIND, &driver()),
            json!(["d", true, false, false, "<unset>", false, "Persistent", "120m"])
        );
    }
}
