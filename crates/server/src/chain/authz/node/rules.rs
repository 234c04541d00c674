//! What every node may do, whichever pods run on it.

use super::super::attributes::ResourceAttributes;
use crate::feature_gates::ServerFeatureGates;

struct NodeRule {
    groups: &'static [&'static str],
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
}

const READ: &[&str] = &["get", "list", "watch"];

/// Kinds that the node authorizer looks into itself are not here.
const RULES: &[NodeRule] = &[
    NodeRule {
        groups: &["authentication.k8s.io"],
        resources: &["tokenreviews"],
        verbs: &["create"],
    },
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
    NodeRule { groups: &["node.k8s.io"], resources: &["runtimeclasses"], verbs: READ },
];

/// Pods that project trust bundles need them.
const TRUST_BUNDLES: NodeRule =
    NodeRule { groups: &["certificates.k8s.io"], resources: &["clustertrustbundles"], verbs: READ };

/// Whether a rule for all nodes lets it through.
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
