//! Table tests of the rules.

use super::super::super::object_fields::tests::{change_refusals, refusals};
use super::super::{CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING};
use super::*;

#[test]
fn rules_of_roles() {
    let table: &[(Value, &[&str], &[&str])] = &[
        (json!([]), &[], &[]),
        (json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]), &[], &[]),
        (
            json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["a", "b"], "resourceNames": ["n"]}]),
            &[],
            &[],
        ),
        (
            json!([{"verbs": ["get"], "nonResourceURLs": ["/a"]}]),
            &["rules[0].nonResourceURLs: Invalid value: [\"/a\"]: namespaced rules cannot apply \
               to non-resource URLs"],
            &[],
        ),
        (
            json!([{"verbs": ["get"], "nonResourceURLs": ["/a"], "resources": ["pods"]}]),
            &[
                "rules[0].nonResourceURLs: Invalid value: [\"/a\"]: namespaced rules cannot apply \
                 to non-resource URLs",
                "rules[0].nonResourceURLs: Invalid value: [\"/a\"]: rules cannot apply to both \
                 regular resources and non-resource URLs",
            ],
            &["rules[0].nonResourceURLs: Invalid value: [\"/a\"]: rules cannot apply to both \
               regular resources and non-resource URLs"],
        ),
        (json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {}]), NOTHING_SAID, NOTHING_SAID),
    ];
    for (rules, in_namespace, in_cluster) in table {
        let object = json!({ "rules": rules });
        assert_eq!(refusals(&ROLE, &object), *in_namespace, "{rules}");
        assert_eq!(change_refusals(&ROLE, &object, &json!({})), *in_namespace, "{rules}");
        assert_eq!(refusals(&CLUSTER_ROLE, &object), *in_cluster, "{rules}");
        assert_eq!(change_refusals(&CLUSTER_ROLE, &object, &json!({})), *in_cluster, "{rules}");
    }
}

const NOTHING_SAID: &[&str] = &[
    "rules[1].apiGroups: Required value: resource rules must supply at least one api group",
    "rules[1].resources: Required value: resource rules must supply at least one resource",
    "rules[1].verbs: Required value",
];

#[test]
fn rules_of_aggregation() {
    let table: &[(Value, &[&str])] = &[
        (json!(null), &[]),
        (json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}, {}]}), &[]),
        (
            json!({}),
            &["aggregationRule.clusterRoleSelectors: Required value: at least one \
               clusterRoleSelector required if aggregationRule is non-nil"],
        ),
        (
            json!({"clusterRoleSelectors": [{}, {"matchExpressions": [{"key": "a", "operator": "Is"}]}]}),
            &[
                "aggregationRule.clusterRoleSelectors[1].matchExpressions[0].operator: Invalid \
                 value: \"Is\": not a valid selector operator",
                "aggregationRule.clusterRoleSelectors[1]: Invalid value: \"null\": invalid label selector.",
            ],
        ),
    ];
    for (rule, expected) in table {
        let object = json!({ "aggregationRule": rule });
        assert_eq!(refusals(&CLUSTER_ROLE, &object), *expected, "{rule}");
    }
}

#[test]
fn roles_of_bindings() {
    let role = |group: &str, kind: &str, name: &str| json!({"apiGroup": group, "kind": kind, "name": name});
    let table: Vec<(Value, Vec<&str>, Vec<&str>)> = vec![
        (role(GROUP, "ClusterRole", "a:b"), vec![], vec![]),
        (
            role(GROUP, "Role", "a"),
            vec![],
            vec!["roleRef.kind: Unsupported value: \"Role\": supported values: \"ClusterRole\""],
        ),
        (
            role("apps", "Thing", ""),
            vec![
                "roleRef.apiGroup: Unsupported value: \"apps\": supported values: \
                 \"rbac.authorization.k8s.io\"",
                "roleRef.kind: Unsupported value: \"Thing\": supported values: \"Role\", \"ClusterRole\"",
                "roleRef.name: Required value",
            ],
            vec![
                "roleRef.apiGroup: Unsupported value: \"apps\": supported values: \
                 \"rbac.authorization.k8s.io\"",
                "roleRef.kind: Unsupported value: \"Thing\": supported values: \"ClusterRole\"",
                "roleRef.name: Required value",
            ],
        ),
        (
            role(GROUP, "ClusterRole", "a/b"),
            vec!["roleRef.name: Invalid value: \"a/b\": may not contain '/'"],
            vec!["roleRef.name: Invalid value: \"a/b\": may not contain '/'"],
        ),
    ];
    for (role, in_namespace, in_cluster) in table {
        let object = json!({ "roleRef": role });
        assert_eq!(refusals(&ROLE_BINDING, &object), in_namespace, "{role}");
        assert_eq!(refusals(&CLUSTER_ROLE_BINDING, &object), in_cluster, "{role}");
    }
}

#[test]
fn subjects_of_bindings() {
    let table: Vec<(Value, Vec<&str>, Vec<&str>)> = vec![
        (json!({"kind": "User", "name": "Ann Lee", "apiGroup": GROUP}), vec![], vec![]),
        (json!({"kind": "Group", "name": "a:b", "apiGroup": GROUP}), vec![], vec![]),
        (json!({"kind": "ServiceAccount", "name": "a", "namespace": "n"}), vec![], vec![]),
        (
            json!({"kind": "ServiceAccount", "name": "a"}),
            vec![],
            vec!["subjects[0].namespace: Required value"],
        ),
        (
            json!({"kind": "ServiceAccount", "name": "", "namespace": "n", "apiGroup": GROUP}),
            vec![
                "subjects[0].apiGroup: Unsupported value: \"rbac.authorization.k8s.io\": \
                 supported values: \"\"",
                "subjects[0].name: Required value",
            ],
            vec![
                "subjects[0].apiGroup: Unsupported value: \"rbac.authorization.k8s.io\": \
                 supported values: \"\"",
                "subjects[0].name: Required value",
            ],
        ),
        (
            json!({"kind": "Group", "name": "", "apiGroup": "x"}),
            vec![
                "subjects[0].apiGroup: Unsupported value: \"x\": supported values: \
                 \"rbac.authorization.k8s.io\"",
                "subjects[0].name: Required value",
            ],
            vec![
                "subjects[0].apiGroup: Unsupported value: \"x\": supported values: \
                 \"rbac.authorization.k8s.io\"",
                "subjects[0].name: Required value",
            ],
        ),
        (
            json!({"kind": "user", "name": "u", "apiGroup": GROUP}),
            vec![
                "subjects[0].kind: Unsupported value: \"user\": supported values: \
                 \"ServiceAccount\", \"User\", \"Group\"",
            ],
            vec![
                "subjects[0].kind: Unsupported value: \"user\": supported values: \
                 \"ServiceAccount\", \"User\", \"Group\"",
            ],
        ),
    ];
    let role = json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": "r"});
    for (subject, in_namespace, in_cluster) in table {
        let object = json!({"roleRef": role, "subjects": [subject]});
        assert_eq!(refusals(&ROLE_BINDING, &object), in_namespace, "{subject}");
        assert_eq!(refusals(&CLUSTER_ROLE_BINDING, &object), in_cluster, "{subject}");
    }
    let bad = json!({"roleRef": role, "subjects": [{"kind": "ServiceAccount", "name": "A"}]});
    let said = refusals(&ROLE_BINDING, &bad);
    assert_eq!(said.len(), 1);
    assert!(said[0].starts_with("subjects[0].name: Invalid value: \"A\": a lowercase RFC 1123"));
}

#[test]
fn a_binding_keeps_its_role() {
    let binding = |name: &str| json!({"roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}});
    for kind in [&ROLE_BINDING, &CLUSTER_ROLE_BINDING] {
        assert!(change_refusals(kind, &binding("a"), &binding("a")).is_empty());
        assert_eq!(
            change_refusals(kind, &binding("b"), &binding("a")),
            ["roleRef: Invalid value: {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\
              \"ClusterRole\",\"Name\":\"b\"}: field is immutable"]
        );
    }
}
