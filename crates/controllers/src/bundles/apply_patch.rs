//! Bodies of server-side apply, under the field manager of trust-manager.
//!
//! No body contains a namespace, so that one body serves all namespaces; the server takes it from the URL.

use k8s_openapi::ByteString;
use serde_json::{Map, Value, json};
use windlass_api::trust_bundle::{API_VERSION, BUNDLE_LABEL, BundleMeta, KIND};

use super::encoder::EncodedBundle;
use super::target::{DesiredTarget, TargetKind};

/// API version of ConfigMaps and Secrets.
pub const CORE: &str = "v1";

/// Builds the body of a target. Servers serve different versions of ClusterTrustBundle.
pub fn apply_body(
    owner: &BundleMeta,
    api_version: &str,
    desired: &DesiredTarget,
    content: &EncodedBundle,
) -> Value {
    let mut body = json!({
        "apiVersion": api_version,
        "kind": desired.kind.to_string(),
        "metadata": {
            "name": desired.name,
            "labels": desired.labels,
            "annotations": desired.annotations,
            "ownerReferences": [owner_reference(owner)],
        },
    });
    let stores = || content.stores.iter().map(|(key, bytes)| (key.clone(), encode_base64(bytes)));
    match desired.kind {
        TargetKind::ConfigMap => {
            body["data"] = json!({&desired.key: content.pem});
            let binary: Map<_, _> = stores().collect();
            if !binary.is_empty() {
                body["binaryData"] = binary.into();
            }
        }
        TargetKind::Secret => {
            let pem = (desired.key.clone(), encode_base64(content.pem.as_bytes()));
            body["data"] = stores().chain([pem]).collect::<Map<_, _>>().into();
        }
        TargetKind::ClusterTrustBundle => {
            body["spec"] = json!({"trustBundle": content.authorities});
            if let Some(signer) = &desired.signer {
                body["spec"]["signerName"] = signer.as_str().into();
            }
        }
    }
    body
}

/// Builds the body that removes the content of a ConfigMap or Secret. Label and owner stay, so that the target is still
/// known if this is the last write that succeeds. The name is a parameter, because a target may have been copied under
/// another name.
pub fn release_body(owner: &BundleMeta, kind: TargetKind, name: &str) -> Value {
    json!({
        "apiVersion": CORE,
        "kind": kind.to_string(),
        "metadata": {
            "name": name,
            "labels": {BUNDLE_LABEL: owner.name},
            "ownerReferences": [owner_reference(owner)],
        },
    })
}

/// Builds the body that releases a ConfigMap or Secret with content of other managers: it is not a target any more and
/// is not deleted with the Bundle.
pub fn disown_body(kind: TargetKind, name: &str) -> Value {
    json!({"apiVersion": CORE, "kind": kind.to_string(), "metadata": {"name": name}})
}

/// Whether a ConfigMap or Secret has no data.
pub fn has_no_data(object: &Value) -> bool {
    let holds = |field| object.get(field).and_then(Value::as_object).is_some_and(|map| !map.is_empty());
    !holds("data") && !holds("binaryData")
}

fn owner_reference(owner: &BundleMeta) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": owner.name,
        "uid": owner.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

fn encode_base64(bytes: &[u8]) -> Value {
    // Serializing bytes does not fail.
    serde_json::to_value(ByteString(bytes.to_vec())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundles::certificate_set::{CertificateFilter, CertificateSet};
    use crate::bundles::encoder::encode;
    use crate::bundles::fixtures::{self, P256};
    use crate::bundles::target::desired_targets;

    #[test]
    fn bodies_are_as_trust_managers() {
        let metadata = json!({"labels": {"l": "1"}, "annotations": {"a": "2"}});
        let target = json!({
            "configMap": {"key": "ca.crt", "metadata": metadata},
            "secret": {"key": "ca.crt"},
            "clusterTrustBundle": {"signerName": "example.com/ca"},
            "additionalFormats": {"jks": {"key": "j"}},
        });
        let bundle = fixtures::bundle(json!([{"inLine": "x"}]), target);
        let mut pool = CertificateSet::new(CertificateFilter::default(), fixtures::now());
        pool.add(format!("{P256}{}", fixtures::leaf_certificate()).as_bytes()).unwrap();
        let formats = bundle.spec.target.as_ref().unwrap().additional_formats.as_ref();
        let content = encode(&pool, formats).unwrap();
        let bodies = desired_targets(&bundle, &pool);
        let bodies: Vec<Value> =
            bodies.iter().map(|each| apply_body(&bundle.metadata, CORE, each, &content)).collect();
        let [config_map, secret, trust_bundle] = bodies.as_slice() else { panic!("{bodies:?}") };
        let owner = json!({
            "apiVersion": "trust.cert-manager.io/v1alpha1", "kind": "Bundle", "name": "bundle",
            "uid": "123", "controller": true, "blockOwnerDeletion": true,
        });
        assert_eq!(
            config_map["metadata"],
            json!({
                "name": "bundle",
                "labels": {"l": "1", "trust.cert-manager.io/bundle": "bundle"},
                "annotations": {
                    "a": "2",
                    "trust.cert-manager.io/hash":
                        config_map["metadata"]["annotations"]["trust.cert-manager.io/hash"],
                },
                "ownerReferences": [owner],
            })
        );
        assert_eq!(config_map["data"], json!({"ca.crt": pool.pem()}));
        let keys = |map: &Value| map.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&config_map["binaryData"]), ["j"]);
        assert_eq!(keys(&secret["data"]), ["ca.crt", "j"]);
        assert!(secret.get("binaryData").is_none() && secret.get("type").is_none());
        assert_eq!(trust_bundle["metadata"]["name"], "example.com:ca:bundle");
        assert_eq!(
            trust_bundle["spec"],
            json!({"trustBundle": P256.trim_end(), "signerName": "example.com/ca"})
        );
    }

    #[test]
    fn written_data_is_released() {
        let bundle = fixtures::bundle(json!([{"inLine": "x"}]), Value::Null);
        let body = release_body(&bundle.metadata, TargetKind::Secret, "copy");
        assert!(has_no_data(&body));
        assert_eq!(body["metadata"]["name"], "copy");
        assert_eq!(body["metadata"]["labels"]["trust.cert-manager.io/bundle"], "bundle");
        let body = disown_body(TargetKind::Secret, "copy");
        assert_eq!(body, json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "copy"}}));
        assert!(!has_no_data(&json!({"binaryData": {"a": ""}})));
        assert!(!has_no_data(&json!({"data": {"a": ""}})));
        assert!(has_no_data(&json!({"data": {}})));
    }
}
