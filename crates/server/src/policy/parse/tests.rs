//! Tests of the policy syntax and of the defaults.

use super::*;
use crate::registry::object_fields::{list, text};

fn objects(text: &str) -> Vec<Value> {
    let defaults = parse(text, ServerFeatureGates::default()).unwrap();
    defaults.into_iter().map(|default| default.object).collect()
}

#[test]
fn a_role_and_its_binding() {
    let text = "role r\n  to group g\n  to account n/a\n  update,read core,apps pods named p,q\n  get at /a,/b/*\n  events";
    let metadata = json!({
        "name": "r",
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    });
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata,
        "rules": [
            {"verbs": ["get", "list", "update", "watch"], "apiGroups": ["", "apps"],
             "resources": ["pods"], "resourceNames": ["p", "q"]},
            {"verbs": ["get"], "nonResourceURLs": ["/a", "/b/*"]},
            {"verbs": ["create", "patch", "update"], "apiGroups": ["", "events.k8s.io"],
             "resources": ["events"]},
        ],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "r"},
        "subjects": [
            {"kind": "Group", "apiGroup": GROUP, "name": "g"},
            {"kind": "ServiceAccount", "name": "a", "namespace": "n"},
        ],
    });
    assert_eq!(objects(text), [role, binding]);
}

#[test]
fn in_namespaces_and_alone() {
    let text = "role r in n\n  read core pods\n\n# words\nbinding b in n of r\n  to user u";
    let defaults = parse(text, ServerFeatureGates::default()).unwrap();
    let found: Vec<_> = defaults.iter().map(|d| (d.kind.name, d.key.as_str(), d.path())).collect();
    let paths = "/apis/rbac.authorization.k8s.io/v1/namespaces/n";
    assert_eq!(
        found,
        [
            ("Role", "n/r", format!("{paths}/roles/r")),
            ("RoleBinding", "n/b", format!("{paths}/rolebindings/b")),
        ]
    );
    assert_eq!(defaults[1].object["roleRef"]["kind"], "Role");
    assert_eq!(defaults[1].object["roleRef"]["name"], "r");
}

#[test]
fn invalid_lines_are_reported() {
    let table = [
        ("  events", "line 1: a line before any role"),
        ("rule r", "line 1: neither a role nor a binding"),
        ("role r\n  to", "line 2: not a user, group, account or nobody"),
        ("role r\n  to account a", "line 2: an account has a namespace"),
        ("role r\n  get core", "line 2: not a rule"),
        ("role r\n  get core b,a", "line 2: a list is not sorted, or has something twice"),
        ("role r\n  get,read core a", "line 2: a list is not sorted, or has something twice"),
        ("role r if Magic", "line 1: no such feature"),
    ];
    for (text, expected) in table {
        assert_eq!(parse(text, ServerFeatureGates::default()).err().unwrap().to_string(), expected, "{text}");
    }
}

#[test]
fn features_gate_rules_and_roles() {
    let all = defaults(ServerFeatureGates::default()).unwrap();
    let off = ServerFeatureGates { pod_certificate_request: false, ..ServerFeatureGates::default() };
    let fewer = defaults(off).unwrap();
    let mentions = |defaults: &[DefaultObject]| -> Vec<String> {
        let found = defaults.iter().filter(|d| d.object.to_string().contains("podcertificate"));
        found.map(|d| format!("{} {}", d.kind.name, d.key)).collect()
    };
    assert_eq!(
        mentions(&all),
        [
            "ClusterRole system:node",
            "ClusterRole system:controller:podcertificaterequestcleaner",
            "ClusterRoleBinding system:controller:podcertificaterequestcleaner",
        ]
    );
    assert_eq!(mentions(&fewer), Vec::<String>::new());
}

#[test]
fn the_defaults_keep_the_rules_of_their_kinds() {
    use crate::registry::object_fields::tests::refusals;
    let mut seen = std::collections::HashSet::new();
    for default in defaults(ServerFeatureGates::default()).unwrap() {
        let DefaultObject { kind, key, object } = default;
        assert_eq!(refusals(kind, &object), Vec::<String>::new(), "{key}");
        assert!(seen.insert((kind.name, key.clone())), "{key} is there twice");
    }
    // Every binding references an existing role.
    for default in defaults(ServerFeatureGates::default()).unwrap() {
        let (kind, name) = match default.kind.name {
            "RoleBinding" | "ClusterRoleBinding" => {
                (text(&default.object, "/roleRef/kind"), text(&default.object, "/roleRef/name"))
            }
            _ => continue,
        };
        let namespace = default.key.split_once('/').map(|(namespace, _)| namespace);
        let key = namespace.map_or(name.to_owned(), |namespace| format!("{namespace}/{name}"));
        assert!(seen.iter().any(|(k, n)| *k == kind && *n == key), "{key}");
    }
}

#[test]
fn default_roles_have_their_subjects() {
    let table = [
        ("cluster-admin", "system:masters"),
        ("system:basic-user", "system:authenticated"),
        ("system:cluster-trust-bundle-discovery", "system:serviceaccounts"),
        ("system:controller:certificate-controller", "kube-system/certificate-controller"),
        ("system:discovery", "system:authenticated"),
        ("system:kube-controller-manager", "system:kube-controller-manager"),
        ("system:monitoring", "system:monitoring"),
        ("system:node", ""),
        ("system:public-info-viewer", "system:authenticated system:unauthenticated"),
        ("system:service-account-issuer-discovery", "system:serviceaccounts"),
        ("kube-public/system:controller:bootstrap-signer", "kube-system/bootstrap-signer"),
        ("kube-system/system:controller:token-cleaner", "kube-system/token-cleaner"),
        (
            "kube-system/system::extension-apiserver-authentication-reader",
            "system:kube-controller-manager system:kube-scheduler",
        ),
    ];
    let defaults = defaults(ServerFeatureGates::default()).unwrap();
    let bindings = || defaults.iter().filter(|d| d.kind.name.ends_with("Binding"));
    for (key, expected) in table {
        let binding = bindings().find(|d| d.key == key).unwrap_or_else(|| panic!("no {key}"));
        let subjects = list(&binding.object, "/subjects").iter();
        let names: Vec<String> = subjects
            .map(|s| match text(s, "/namespace") {
                "" => text(s, "/name").to_owned(),
                namespace => format!("{namespace}/{}", text(s, "/name")),
            })
            .collect();
        assert_eq!(names.join(" "), expected, "{key}");
    }
    // Administrators bind these as needed.
    for key in ["admin", "edit", "view", "system:node-bootstrapper", "system:auth-delegator"] {
        assert!(bindings().all(|d| d.key != key), "{key}");
    }
}
