//! What every node may do, whichever pods run on it.

use super::super::attributes::Resource;
use crate::features::Features;

struct Rule {
    groups: &'static [&'static str],
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
}

const READ: &[&str] = &["get", "list", "watch"];

/// Kinds that the node authorizer looks into itself are not here.
const RULES: &[Rule] = &[
    Rule { groups: &["authentication.k8s.io"], resources: &["tokenreviews"], verbs: &["create"] },
    Rule {
        groups: &["authorization.k8s.io"],
        resources: &["subjectaccessreviews", "localsubjectaccessreviews"],
        verbs: &["create"],
    },
    Rule { groups: &[""], resources: &["services"], verbs: READ },
    Rule { groups: &[""], resources: &["endpoints"], verbs: &["get"] },
    Rule {
        groups: &["", "events.k8s.io"],
        resources: &["events"],
        verbs: &["create", "update", "patch"],
    },
    Rule {
        groups: &["certificates.k8s.io"],
        resources: &["certificatesigningrequests"],
        verbs: &["create", "get", "list", "watch"],
    },
    Rule { groups: &["storage.k8s.io"], resources: &["csidrivers"], verbs: READ },
    Rule { groups: &["node.k8s.io"], resources: &["runtimeclasses"], verbs: READ },
];

/// Pods that project trust bundles need them.
const TRUST_BUNDLES: Rule =
    Rule { groups: &["certificates.k8s.io"], resources: &["clustertrustbundles"], verbs: READ };

/// Whether a rule for all nodes lets it through.
pub fn allow(verb: &str, of: &Resource<'_>, features: Features) -> bool {
    // No rule covers a subresource.
    let covers = |rule: &Rule| {
        of.subresource.is_empty()
            && rule.verbs.contains(&verb)
            && rule.groups.contains(&of.group)
            && rule.resources.contains(&of.resource)
    };
    RULES.iter().any(covers) || (features.cluster_trust_bundle && covers(&TRUST_BUNDLES))
}
