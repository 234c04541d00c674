//! Bundles that a change affects: those that read an object or select a namespace.

use std::collections::BTreeMap;

use serde_json::Value;
use windlass_api::selector::labels::LabelSelector;
use windlass_api::trust_bundle::{Bundle, BundleSource, ObjectSource};

use super::target::TargetKind;

/// Labels of an object; `None` if it does not exist.
pub type Labels<'a> = Option<&'a BTreeMap<String, String>>;

/// Whether a Bundle reads this ConfigMap or Secret, before or after the change.
pub fn reads_object(bundle: &Bundle, kind: TargetKind, name: &str, labels: [Labels<'_>; 2]) -> bool {
    let of_kind = |source: &BundleSource| -> Option<ObjectSource> {
        match kind {
            TargetKind::ConfigMap => source.config_map.clone(),
            TargetKind::Secret => source.secret.clone(),
            TargetKind::ClusterTrustBundle => None,
        }
    };
    bundle.spec.sources.iter().filter_map(of_kind).any(|source| {
        match source.name.as_deref().filter(|name| !name.is_empty()) {
            Some(wanted) => wanted == name,
            None => selects(source.selector.as_ref(), labels),
        }
    })
}

/// Whether a Bundle reads this ClusterTrustBundle, before or after the change.
pub fn reads_trust_bundle(bundle: &Bundle, name: &str, signer: &str, labels: [Labels<'_>; 2]) -> bool {
    let sources = bundle.spec.sources.iter();
    sources.filter_map(|source| source.cluster_trust_bundle.as_ref()).any(|source| {
        match source.name.as_deref().filter(|name| !name.is_empty()) {
            Some(wanted) => wanted == name,
            None => {
                source.signer_name.as_deref().unwrap_or_default() == signer
                    && selects(source.label_selector.as_ref(), labels)
            }
        }
    })
}

/// Whether a Bundle selects a namespace, before or after the change. A Bundle with an invalid selector counts, so that
/// the error is reported.
pub fn targets_namespace(bundle: &Bundle, labels: [Labels<'_>; 2]) -> bool {
    let Some(target) = &bundle.spec.target else { return false };
    match &target.namespace_selector {
        None | Some(Value::Null) => true,
        selector => selects(selector.as_ref(), labels),
    }
}

pub fn has_sources(bundle: &Bundle, kind: TargetKind) -> bool {
    bundle.spec.sources.iter().any(|source| match kind {
        TargetKind::ConfigMap => source.config_map.is_some(),
        TargetKind::Secret => source.secret.is_some(),
        TargetKind::ClusterTrustBundle => source.cluster_trust_bundle.is_some(),
    })
}

pub fn has_targets(bundle: &Bundle, kind: TargetKind) -> bool {
    bundle.spec.target.as_ref().is_some_and(|target| match kind {
        TargetKind::ConfigMap => target.config_map.is_some(),
        TargetKind::Secret => target.secret.is_some(),
        TargetKind::ClusterTrustBundle => target.cluster_trust_bundle.is_some(),
    })
}

fn selects(selector: Option<&Value>, labels: [Labels<'_>; 2]) -> bool {
    let Ok(selector) = LabelSelector::from_object(selector.unwrap_or(&Value::Null)) else {
        return true;
    };
    let mut labels = labels.into_iter().flatten();
    labels.any(|labels| selector.matches(|key| labels.get(key).map(String::as_str)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::bundles::fixtures;

    #[test]
    fn changes_enqueue_the_bundles_that_select_them() {
        let sources = json!([
            {"configMap": {"name": "a", "key": "k"}},
            {"secret": {"selector": {"matchLabels": {"x": "1"}}, "key": "k"}},
            {"clusterTrustBundle": {"signerName": "s.io/a", "labelSelector": {}}},
        ]);
        let selector = json!({"matchLabels": {"team": "a"}});
        let target = json!({"configMap": {"key": "k"}, "namespaceSelector": selector});
        let bundle = fixtures::bundle(sources, target);
        let (one, none) = (BTreeMap::from([("x".to_owned(), "1".to_owned())]), BTreeMap::new());
        let (old, new) = ([Some(&one), Some(&none)], [None, Some(&none)]);
        assert!(reads_object(&bundle, TargetKind::ConfigMap, "a", new));
        assert!(!reads_object(&bundle, TargetKind::ConfigMap, "b", old));
        assert!(reads_object(&bundle, TargetKind::Secret, "any", old));
        assert!(!reads_object(&bundle, TargetKind::Secret, "a", new));
        assert!(reads_trust_bundle(&bundle, "s.io:a:x", "s.io/a", new));
        assert!(!reads_trust_bundle(&bundle, "s.io:b:x", "s.io/b", new));
        let team = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
        assert!(
            targets_namespace(&bundle, [Some(&team), None])
                && targets_namespace(&bundle, [None, Some(&team)])
        );
        assert!(!targets_namespace(&bundle, new));
        assert!(has_sources(&bundle, TargetKind::ClusterTrustBundle));
        assert!(has_targets(&bundle, TargetKind::ConfigMap) && !has_targets(&bundle, TargetKind::Secret));
        let everywhere = fixtures::bundle(json!([{"inLine": "x"}]), json!({"secret": {"key": "k"}}));
        assert!(targets_namespace(&everywhere, new));
        let nowhere = fixtures::bundle(json!([{"inLine": "x"}]), Value::Null);
        assert!(!targets_namespace(&nowhere, new));
    }
}
