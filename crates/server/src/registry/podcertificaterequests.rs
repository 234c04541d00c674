//! PodCertificateRequests: a node requests a certificate for one of its pods, and a signer issues,
//! denies or fails it, permanently.

mod certificate_times;
mod key_material;
mod prepare;
mod status;
#[cfg(test)]
mod tests;
mod validate;

use serde_json::Value;

use super::kind::{Kind, SelectableField, ServedVersion, Subresource, VersionConversion};
use super::object_fields::{entries, list, text};
use super::table_cells;

const ISSUED: &str = "Issued";
const DENIED: &str = "Denied";
const FAILED: &str = "Failed";

/// Descriptor of PodCertificateRequest in `certificates.k8s.io`.
pub(crate) const KIND: Kind = Kind {
    name: "PodCertificateRequest",
    plural: "podcertificaterequests",
    served: &[
        // Stored in the version that can represent everything: v1 has no fields for the older
        // proofs.
        served("v1beta1", "io.k8s.api.certificates.v1beta1.PodCertificateRequest", None),
        served("v1", "io.k8s.api.certificates.v1.PodCertificateRequest", Some(STABLE)),
        served("v1alpha1", "io.k8s.api.certificates.v1alpha1.PodCertificateRequest", None),
    ],
    subresources: &[Subresource::status(|new, old, _| prepare::status(new, old), status::update)],
    selectable: &[
        SelectableField::new("spec.signerName", &["/spec/signerName"]),
        SelectableField::new("spec.podName", &["/spec/podName"]),
        SelectableField::new("spec.nodeName", &["/spec/nodeName"]),
    ],
    selects_namespace: false,
    columns: &[
        table_cells::NAME,
        table_cells::column("PodName"),
        table_cells::column("ServiceAccountName"),
        table_cells::column("NodeName"),
        table_cells::column("SignerName"),
        table_cells::column("State"),
        table_cells::column("UnverifiedUserAnnotations"),
    ],
    row: |object, _| {
        vec![
            table_cells::name(object),
            text(object, "/spec/podName").into(),
            text(object, "/spec/serviceAccountName").into(),
            text(object, "/spec/nodeName").into(),
            text(object, "/spec/signerName").into(),
            state(object).into(),
            annotations(object).into(),
        ]
    },
    unconditional_update: false,
    defaults: prepare::defaults,
    prepare_create: prepare::create,
    prepare_update: prepare::update,
    validate_create: validate::create,
    validate_update: validate::update,
    enabled: |features| features.pod_certificate_request,
    ..Kind::DEFAULT
};

const fn served(
    version: &'static str,
    type_name: &'static str,
    convert: Option<VersionConversion>,
) -> ServedVersion {
    ServedVersion { group: "certificates.k8s.io", version, type_name, convert }
}

/// Conversion of v1, which lacks the older proofs. On input, defaulting restores their fields.
const STABLE: VersionConversion = VersionConversion {
    to_stored: |object| object,
    from_stored: |mut object| {
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            for field in prepare::OLDER_PROOF {
                spec.remove(field);
            }
        }
        object
    },
};

/// Returns the state of the request for display.
fn state(object: &Value) -> &'static str {
    let settled = |kind: &str| has_condition(object, kind);
    [ISSUED, DENIED, FAILED].into_iter().find(|kind| settled(kind)).unwrap_or("Pending")
}

/// Returns true if the condition `kind` is true.
fn has_condition(object: &Value, kind: &str) -> bool {
    let mut conditions = list(object, "/status/conditions").iter();
    conditions.any(|c| text(c, "/type") == kind && text(c, "/status") == "True")
}

fn annotations(object: &Value) -> String {
    let all = entries(object, "/spec/unverifiedUserAnnotations");
    let all: Vec<String> =
        all.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    if all.is_empty() { "<none>".to_owned() } else { all.join(",") }
}
