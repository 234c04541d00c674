//! What a volume depends on: bundles, objects, tokens and certificates.

use crate::sources::objects::{ObjectId, ObjectKind};
use crate::volume::definition::{
    BundleSource, CertificateSource, ObjectSource, ProjectedSource, TokenSource, VolumeDefinition,
};

/// Returns the `clusterTrustBundle` sources of a definition, in order.
pub fn bundle_sources(definition: &VolumeDefinition) -> impl Iterator<Item = &BundleSource> {
    definition.sources.iter().filter_map(|(_, source)| match source {
        ProjectedSource::Bundle(source) => Some(source),
        _ => None,
    })
}

/// Returns the ConfigMaps and Secrets of a definition, in this namespace.
pub fn objects<'a>(
    definition: &'a VolumeDefinition,
    namespace: &'a str,
) -> impl Iterator<Item = ObjectId> + 'a {
    let id = |kind, source: &ObjectSource| {
        let (namespace, name) = (namespace.to_owned(), source.name.clone());
        Some(ObjectId { kind, namespace, name })
    };
    definition.sources.iter().filter_map(move |(_, source)| match source {
        ProjectedSource::ConfigMap(source) => id(ObjectKind::ConfigMap, source),
        ProjectedSource::Secret(source) => id(ObjectKind::Secret, source),
        _ => None,
    })
}

/// Returns the token sources, each with its index.
pub fn tokens(definition: &VolumeDefinition) -> impl Iterator<Item = (usize, &TokenSource)> {
    definition.sources.iter().filter_map(|(index, source)| match source {
        ProjectedSource::Token(source) => Some((*index, source)),
        _ => None,
    })
}

/// Returns the certificate sources, each with its index.
pub fn certificates(definition: &VolumeDefinition) -> impl Iterator<Item = (usize, &CertificateSource)> {
    definition.sources.iter().filter_map(|(index, source)| match source {
        ProjectedSource::Certificate(source) => Some((*index, source)),
        _ => None,
    })
}

/// Returns whether it has a source of certificate revocation lists.
pub fn has_revocation_lists(definition: &VolumeDefinition) -> bool {
    definition.sources.iter().any(|(_, source)| matches!(source, ProjectedSource::RevocationLists(_)))
}

/// Returns whether it has a `downwardAPI` source, whose files change with the pod.
pub fn has_downward(definition: &VolumeDefinition) -> bool {
    definition.sources.iter().any(|(_, source)| matches!(source, ProjectedSource::Downward(_)))
}

/// Returns whether it has a source that static pods cannot have, because no server authorizes them.
pub fn needs_server(definition: &VolumeDefinition) -> bool {
    let is_such = |source: &ProjectedSource| {
        matches!(source, ProjectedSource::Bundle(_) | ProjectedSource::Certificate(_))
    };
    definition.sources.iter().any(|(_, source)| is_such(source))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use windlass_api::field::FieldPath;

    use super::*;

    fn definition(sources: Value) -> VolumeDefinition {
        let source = serde_json::from_value(json!({ "sources": sources })).unwrap();
        VolumeDefinition::parse(&source, &FieldPath::new("v")).unwrap()
    }

    fn everything() -> VolumeDefinition {
        definition(json!([
            {"clusterTrustBundle": {"name": "a", "path": "a.pem"}},
            {"configMap": {"name": "m"}},
            {"serviceAccountToken": {"path": "token"}},
            {"secret": {"name": "s"}},
            {"podCertificate": {"signerName": "a.b/c", "keyType": "ED25519", "keyPath": "k"}},
            {"downwardAPI": {"items": [
                {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
            ]}},
            {"configMap": {"name": "m", "items": [{"key": "k", "path": "other"}]}},
        ]))
    }

    #[test]
    fn dependencies_of_all_source_types() {
        let all = everything();
        let object = |kind, name: &str| ObjectId { kind, namespace: "n".into(), name: name.into() };
        let named = objects(&all, "n").collect::<std::collections::BTreeSet<_>>();
        let expected = [object(ObjectKind::ConfigMap, "m"), object(ObjectKind::Secret, "s")];
        assert_eq!(named, expected.into());
        // By the index in the list, as in `SourceId`.
        assert_eq!(tokens(&all).map(|(index, _)| index).collect::<Vec<_>>(), [2]);
        assert_eq!(certificates(&all).map(|(index, _)| index).collect::<Vec<_>>(), [4]);
        assert!(has_downward(&all) && needs_server(&all));
        let plain = definition(json!([{"configMap": {"name": "m"}}]));
        assert!(!has_downward(&plain) && !needs_server(&plain));
    }
}
