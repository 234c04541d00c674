//! Projected volume sources behind feature gates: dropped from new pods while the feature is
//! disabled, kept in pods that already use them.

use serde_json::Value;

use super::AdmissionOperation;
use crate::verbs::RequestContext;

/// Drops the projected sources of disabled features from a pod.
pub(super) fn drop_disabled(call: &RequestContext<'_>, operation: AdmissionOperation<'_>, pod: &mut Value) {
    if call.kind.name != "Pod" {
        return;
    }
    let features = call.server.features;
    for (source, on) in [
        ("clusterTrustBundle", features.cluster_trust_bundle_projection),
        ("podCertificate", features.pod_certificate_request),
    ] {
        let used_before = matches!(operation, AdmissionOperation::Update(old) if uses(old, source));
        if !on && !used_before {
            drop_source(pod, source);
        }
    }
}

fn uses(pod: &Value, source: &str) -> bool {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let mut sources = volumes.flat_map(|v| v["projected"]["sources"].as_array()).flatten();
    sources.any(|s| s.get(source).is_some())
}

fn drop_source(pod: &mut Value, source: &str) {
    let Some(volumes) = pod.pointer_mut("/spec/volumes").and_then(Value::as_array_mut) else {
        return;
    };
    for volume in volumes {
        let sources = volume.pointer_mut("/projected/sources").and_then(Value::as_array_mut);
        for projection in sources.into_iter().flatten().filter_map(Value::as_object_mut) {
            projection.remove(source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_the_named_source_goes() {
        let mut pod = json!({"spec": {"volumes": [{"name": "v", "projected": {"sources": [
            {"clusterTrustBundle": {"name": "x", "path": "p"}}, {"secret": {"name": "s"}},
        ]}}]}});
        assert!(uses(&pod, "clusterTrustBundle"));
        drop_source(&mut pod, "clusterTrustBundle");
        assert!(!uses(&pod, "clusterTrustBundle"));
        assert!(uses(&pod, "secret"));
    }
}
