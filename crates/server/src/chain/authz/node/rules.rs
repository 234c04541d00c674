//! Permissions of every node, independent of its pods.

use super::super::attributes::ResourceAttributes;
use crate::feature_gates::ServerFeatureGates;

struct NodeRule {
    groups: &'static [&'static str],
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
}

const READ: &[&str] = &["get", "list", "watch"];

/// Excludes kinds that the node authorizer checks itself.
const RULES: &[NodeRule] = &[
    NodeRule { groups: &["authentication.k8s.io"], resources: &["tokenreviews"], verbs: &["create"] },
    NodeRule {
        groups: &["authorization.k8s.io"],
        resources: &["subjectaccessreviews", "localsubjectaccessreviews"],
        verbs: &["create"],
    },
    NodeRule { groups: &[""], resources: &["services"], verbs: READ },
    NodeRule { groups: &[""], resources: &["endpoints"], verbs: &["get"] },
    NodeRule {
        groups: &["", "events.k8s.io"],
        resources: &["events"],
        verbs: &["create", "update", "patch"],
    },
    NodeRule {
        groups: &["certificates.k8s.io"],
        resources: &["certificatesigningrequests"],
        verbs: &["create", "get", "list", "watch"],
    },
    NodeRule { groups: &["storage.k8s.io"], resources: &["csidrivers"], verbs: READ },
    // Volumes can contain them.
    NodeRule { groups: &["windlass.dev"], resources: &["certificaterevocationlists"], verbs: READ },
    NodeRule { groups: &["node.k8s.io"], resources: &["runtimeclasses"], verbs: READ },
];

/// Needed for pods that project trust bundles.
const TRUST_BUNDLES: NodeRule =
    NodeRule { groups: &["certificates.k8s.io"], resources: &["clustertrustbundles"], verbs: READ };

/// Returns true if a rule for all nodes allows the request.
pub(super) fn allow(verb: &str, of: &ResourceAttributes<'_>, features: ServerFeatureGates) -> bool {
    // No rule covers a subresource.
    let covers = |rule: &NodeRule| {
        of.subresource.is_empty()
            && rule.verbs.contains(&verb)
            && rule.groups.contains(&of.group)
            && rule.resources.contains(&of.resource)
    };
    RULES.iter().any(covers) || (features.cluster_trust_bundle && covers(&TRUST_BUNDLES))
}
