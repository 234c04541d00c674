//! ClusterTrustBundles: cluster-wide trust anchors, optionally linked to a signer.

#[cfg(test)]
mod tests;

use serde_json::Value;
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::meta::ObjectMetaView;
use windlass_api::signer_name::{SignerName, trust_bundle_name_rule};
use windlass_pki::limits::MAX_TRUST_BUNDLE_BYTES;
use windlass_pki::{AnchorError, parse_trust_anchors};

use super::kind::{Kind, Scope, SelectableField, ServedVersion};
use super::object_fields::text;
use super::table_cells;

/// Descriptor of ClusterTrustBundle in `certificates.k8s.io`.
pub(crate) const KIND: Kind = Kind {
    name: "ClusterTrustBundle",
    plural: "clustertrustbundles",
    scope: Scope::Cluster,
    served: &[
        served("v1", "io.k8s.api.certificates.v1.ClusterTrustBundle"),
        served("v1beta1", "io.k8s.api.certificates.v1beta1.ClusterTrustBundle"),
        served("v1alpha1", "io.k8s.api.certificates.v1alpha1.ClusterTrustBundle"),
    ],
    // The rule depends on the signer: see `validate_names`.
    name_rule: |_, _| Vec::new(),
    selectable: &[SelectableField::new("spec.signerName", &["/spec/signerName"])],
    columns: &[table_cells::NAME, table_cells::column("SignerName")],
    row: |object, _| {
        let signer = match text(object, "/spec/signerName") {
            "" => "<none>",
            signer => signer,
        };
        vec![table_cells::name(object), signer.into()]
    },
    // Kubernetes has no generation here; it lets consumers of bundles detect changes.
    generation: true,
    unconditional_update: false,
    validate_create: |bundle, errors| {
        validate_names(bundle, errors);
        validate_trust_bundle(bundle, errors);
    },
    validate_update: |new, old, errors| {
        validate_names(new, errors);
        // Certificates accepted once stay valid, even if parsers become stricter.
        if text(new, TRUST_BUNDLE) != text(old, TRUST_BUNDLE) {
            validate_trust_bundle(new, errors);
        }
        let (signer, before) = (text(new, "/spec/signerName"), text(old, "/spec/signerName"));
        if signer != before {
            let path = FieldPath::new("spec").child("signerName");
            errors.invalid_str(&path, signer, "field is immutable");
        }
    },
    enabled: |features| features.cluster_trust_bundle,
    ..Kind::DEFAULT
};

const TRUST_BUNDLE: &str = "/spec/trustBundle";

const fn served(version: &'static str, type_name: &'static str) -> ServedVersion {
    ServedVersion { group: "certificates.k8s.io", version, type_name, convert: None }
}

/// A bundle with a signer has the signer's name prefix; one without must not have a prefix.
fn validate_names(bundle: &Value, errors: &mut FieldErrors) {
    let (signer, metadata) = (text(bundle, "/spec/signerName"), FieldPath::new("metadata"));
    let (prefix, name) =
        (ObjectMetaView::from_object(bundle).generate_name(), ObjectMetaView::from_object(bundle).name());
    for (field, value, is_prefix) in [("generateName", prefix, true), ("name", name, false)] {
        if value.is_empty() {
            continue;
        }
        for words in trust_bundle_name_rule(signer, value, is_prefix) {
            errors.invalid_str(&metadata.child(field), value, &words);
        }
    }
    if !signer.is_empty() {
        SignerName::parse(&FieldPath::new("spec").child("signerName"), signer, errors);
    }
}

fn validate_trust_bundle(bundle: &Value, errors: &mut FieldErrors) {
    let path = FieldPath::new("spec").child("trustBundle");
    match parse_trust_anchors(text(bundle, TRUST_BUNDLE), MAX_TRUST_BUNDLE_BYTES) {
        Ok(_) => {}
        Err(AnchorError::TooLong { limit }) => errors.too_long(&path, limit),
        Err(error) => {
            for words in error.messages() {
                errors.invalid_omitted(&path, &words);
            }
        }
    }
}
