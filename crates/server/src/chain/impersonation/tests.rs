//! Impersonation with an authorizer that knows a list of permissions.

use http::{HeaderName, HeaderValue, Method};

use super::*;
use crate::chain::authz::Decision;
use crate::chain::authz::attributes::AuthorizationTarget;

/// Formats a permission as `verb group/resource namespace/name`, or `verb path`.
fn right(asked: &AuthorizationAttributes<'_>) -> String {
    match &asked.target {
        AuthorizationTarget::Path(path) => format!("{} {path}", asked.verb),
        AuthorizationTarget::Resource(r) => {
            let what = r.with_subresource();
            format!("{} {}/{what} {}/{}", asked.verb, r.group, r.namespace, r.name)
        }
    }
}

/// Returns the outcome of `GET path` by `caller` with these headers and permissions.
fn outcome(caller: &User, path: &str, lines: &[(&str, &str)], rights: &[&str]) -> Result<User, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        headers.append(name, HeaderValue::from_str(value).unwrap());
    }
    let wanted = headers::read(&headers).unwrap().expect("somebody to act as");
    let info = RequestInfo::parse(&Method::GET, path, false, None).unwrap();
    let target = AuthorizationAttributes::from_request(caller, &info, None);
    let ask = |asked: &AuthorizationAttributes<'_>| {
        assert_eq!(asked.user.name, caller.name, "it is the caller who needs rights");
        if rights.contains(&right(asked).as_str()) {
            Decision::Allow(String::new())
        } else {
            Decision::NoOpinion(String::new())
        }
    };
    modes::decide(&wanted, &target, &ask).map_err(|error| error.status().message)
}

fn alice() -> User {
    User::authenticated("alice", "", vec!["dev".into()])
}

/// A service account whose token was issued for a pod on `node-1`.
fn agent() -> User {
    let mut agent = User::authenticated("system:serviceaccount:ns:agent", "", Vec::new());
    let node = "authentication.kubernetes.io/node-name";
    agent.extra.insert(node.into(), vec!["node-1".into()]);
    agent
}

const PODS: &str = "/api/v1/namespaces/ns/pods";
const USER: (&str, &str) = ("Impersonate-User", "jane");

struct ImpersonationCase {
    caller: fn() -> User,
    path: &'static str,
    headers: &'static [(&'static str, &'static str)],
    /// Required permissions, in the order in which they are checked.
    rights: &'static [&'static str],
    groups: &'static [&'static str],
}

const CASES: &[ImpersonationCase] = &[
    ImpersonationCase {
        caller: alice,
        path: PODS,
        headers: &[USER],
        rights: &[
            "impersonate-on:user-info:list /pods ns/",
            "impersonate:user-info authentication.k8s.io/users /jane",
        ],
        groups: &["system:authenticated"],
    },
    ImpersonationCase {
        caller: alice,
        path: PODS,
        headers: &[
            USER,
            ("Impersonate-Uid", "7"),
            ("Impersonate-Group", "a"),
            ("Impersonate-Group", "b"),
            ("Impersonate-Extra-Acme.io%2Fk", "v"),
        ],
        rights: &[
            "impersonate-on:user-info:list /pods ns/",
            "impersonate:user-info authentication.k8s.io/users /jane",
            "impersonate:user-info authentication.k8s.io/uids /7",
            "impersonate:user-info authentication.k8s.io/groups /a",
            "impersonate:user-info authentication.k8s.io/groups /b",
            "impersonate:user-info authentication.k8s.io/userextras/acme.io/k /v",
        ],
        groups: &["a", "b", "system:authenticated"],
    },
    ImpersonationCase {
        caller: alice,
        path: "/metrics",
        headers: &[("Impersonate-User", "system:anonymous")],
        rights: &[
            "impersonate-on:user-info:get /metrics",
            "impersonate:user-info authentication.k8s.io/users /system:anonymous",
        ],
        groups: &["system:unauthenticated"],
    },
    ImpersonationCase {
        caller: alice,
        path: PODS,
        headers: &[("Impersonate-User", "system:serviceaccount:ns:builder")],
        rights: &[
            "impersonate-on:serviceaccount:list /pods ns/",
            "impersonate:serviceaccount authentication.k8s.io/serviceaccounts ns/builder",
        ],
        groups: &["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"],
    },
    ImpersonationCase {
        caller: alice,
        path: PODS,
        headers: &[("Impersonate-User", "system:node:node-1")],
        rights: &[
            "impersonate-on:arbitrary-node:list /pods ns/",
            "impersonate:arbitrary-node authentication.k8s.io/nodes /node-1",
        ],
        groups: &["system:nodes", "system:authenticated"],
    },
    ImpersonationCase {
        caller: agent,
        path: PODS,
        headers: &[("Impersonate-User", "system:node:node-1")],
        rights: &[
            "impersonate-on:associated-node:list /pods ns/",
            "impersonate:associated-node authentication.k8s.io/nodes /*",
        ],
        groups: &["system:nodes", "system:authenticated"],
    },
    // The unconstrained permission to impersonate.
    ImpersonationCase {
        caller: alice,
        path: PODS,
        headers: &[USER],
        rights: &["impersonate /users /jane"],
        groups: &["system:authenticated"],
    },
    ImpersonationCase {
        caller: alice,
        path: PODS,
        headers: &[
            USER,
            ("Impersonate-Uid", "7"),
            ("Impersonate-Group", "system:masters"),
            ("Impersonate-Extra-Scopes", "view"),
            ("Impersonate-Extra-Scopes", "edit"),
        ],
        rights: &[
            "impersonate /users /jane",
            "impersonate authentication.k8s.io/uids /7",
            "impersonate /groups /system:masters",
            "impersonate authentication.k8s.io/userextras/scopes /view",
            "impersonate authentication.k8s.io/userextras/scopes /edit",
        ],
        groups: &["system:masters", "system:authenticated"],
    },
    ImpersonationCase {
        caller: alice,
        path: PODS,
        headers: &[("Impersonate-User", "system:serviceaccount:ns:builder")],
        rights: &["impersonate /serviceaccounts ns/builder"],
        groups: &["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"],
    },
    // Explicit groups replace the implied ones.
    ImpersonationCase {
        caller: alice,
        path: PODS,
        headers: &[
            ("Impersonate-User", "system:serviceaccount:ns:builder"),
            ("Impersonate-Group", "system:unauthenticated"),
        ],
        rights: &["impersonate /serviceaccounts ns/builder", "impersonate /groups /system:unauthenticated"],
        groups: &["system:unauthenticated"],
    },
    // In the legacy mode, a node is a user like any other.
    ImpersonationCase {
        caller: alice,
        path: PODS,
        headers: &[("Impersonate-User", "system:node:node-1")],
        rights: &["impersonate /users /system:node:node-1"],
        groups: &["system:authenticated"],
    },
    // Names that only resemble nodes or service accounts.
    ImpersonationCase {
        caller: alice,
        path: PODS,
        headers: &[("Impersonate-User", "system:node:Not_A_Node")],
        rights: &[
            "impersonate-on:user-info:list /pods ns/",
            "impersonate:user-info authentication.k8s.io/users /system:node:Not_A_Node",
        ],
        groups: &["system:authenticated"],
    },
    ImpersonationCase {
        caller: alice,
        path: PODS,
        headers: &[("Impersonate-User", "system:serviceaccount:ns:a:b")],
        rights: &[
            "impersonate-on:user-info:list /pods ns/",
            "impersonate:user-info authentication.k8s.io/users /system:serviceaccount:ns:a:b",
        ],
        groups: &["system:authenticated"],
    },
];

#[test]
fn every_permission_is_required() {
    for case in CASES {
        let caller = (case.caller)();
        let ask = |rights: &[&str]| outcome(&caller, case.path, case.headers, rights);
        let user = ask(case.rights).unwrap_or_else(|e| panic!("{:?}: {e}", case.headers));
        assert_eq!(user.name, case.headers[0].1);
        assert_eq!(user.groups, case.groups, "{:?}", case.headers);
        for missing in case.rights {
            let rest: Vec<&str> = case.rights.iter().filter(|r| *r != missing).copied().collect();
            assert!(ask(&rest).is_err(), "{:?} without {missing}", case.headers);
        }
    }
}

#[test]
fn uid_and_extra_are_those_requested() {
    let case = &CASES[1];
    let user = outcome(&alice(), case.path, case.headers, case.rights).unwrap();
    assert_eq!(user.uid, "7");
    assert_eq!(user.extra, [("acme.io/k".to_owned(), vec!["v".to_owned()])].into());
}

#[test]
fn the_first_refusal_is_reported() {
    let who = "User \"alice\" cannot";
    let on = "resource \"pods\" in API group \"\" in the namespace \"ns\"";
    for (headers, rights, want) in [
        (&[USER][..], &[][..], format!("pods is forbidden: {who} impersonate-on:user-info:list {on}")),
        (
            &[USER],
            &["impersonate-on:user-info:list /pods ns/"],
            format!(
                "users.authentication.k8s.io \"jane\" is forbidden: {who} impersonate:user-info \
                 resource \"users\" in API group \"authentication.k8s.io\" at the cluster scope"
            ),
        ),
        (
            &[("Impersonate-User", "system:node:n")],
            &[],
            format!("pods is forbidden: {who} impersonate-on:arbitrary-node:list {on}"),
        ),
        (
            &[("Impersonate-User", "system:serviceaccount:a:b")],
            &[],
            format!("pods is forbidden: {who} impersonate-on:serviceaccount:list {on}"),
        ),
        (
            &[("Impersonate-User", "system:serviceaccount:a:b"), ("Impersonate-Group", "g")],
            &[],
            format!(
                "serviceaccounts \"b\" is forbidden: {who} impersonate resource \
                 \"serviceaccounts\" in API group \"\" in the namespace \"a\""
            ),
        ),
        (
            &[USER, ("Impersonate-Group", "system:masters")],
            &[
                "impersonate-on:user-info:list /pods ns/",
                "impersonate:user-info authentication.k8s.io/users /jane",
                "impersonate:user-info authentication.k8s.io/groups /system:masters",
            ],
            format!(
                "groups.authentication.k8s.io \"system:masters\" is forbidden: {who} \
                 impersonate:user-info resource \"groups\" in API group \"authentication.k8s.io\" at \
                 the cluster scope: impersonating the system:masters group is not allowed"
            ),
        ),
        (
            &[USER, ("Impersonate-Group", "")],
            &[
                "impersonate-on:user-info:list /pods ns/",
                "impersonate:user-info authentication.k8s.io/users /jane",
                "impersonate:user-info authentication.k8s.io/groups /",
            ],
            format!(
                "groups.authentication.k8s.io is forbidden: {who} impersonate:user-info resource \
                 \"groups\" in API group \"authentication.k8s.io\" at the cluster scope: \
                 impersonating the empty string group is not allowed"
            ),
        ),
    ] {
        assert_eq!(outcome(&alice(), PODS, headers, rights), Err(want), "{headers:?} {rights:?}");
    }
}

#[test]
fn only_the_accounts_own_node_is_associated() {
    let headers = |node| [("Impersonate-User", node)];
    let rights = [
        "impersonate-on:associated-node:list /pods ns/",
        "impersonate:associated-node authentication.k8s.io/nodes /*",
    ];
    assert!(outcome(&agent(), PODS, &headers("system:node:node-1"), &rights).is_ok());
    assert!(outcome(&agent(), PODS, &headers("system:node:node-2"), &rights).is_err());
    let mut twice = agent();
    for nodes in twice.extra.values_mut() {
        nodes.push("node-2".into());
    }
    assert!(outcome(&twice, PODS, &headers("system:node:node-1"), &rights).is_err());
    let person = User { name: "alice".into(), ..agent() };
    assert!(outcome(&person, PODS, &headers("system:node:node-1"), &rights).is_err());
    // With more than a name, it is no node identity set by the server.
    let with_group = [("Impersonate-User", "system:node:node-1"), ("Impersonate-Group", "g")];
    assert!(outcome(&agent(), PODS, &with_group, &rights).is_err());
}

#[test]
fn many_groups_or_extras_can_be_allowed_at_once() {
    let groups = ["a", "b", "c", "d"].map(|g| ("Impersonate-Group", g));
    let extras = ["1", "2", "3", "4"].map(|v| ("Impersonate-Extra-acme.io%2fk", v));
    let base = [
        "impersonate-on:user-info:list /pods ns/",
        "impersonate:user-info authentication.k8s.io/users /jane",
    ];
    for (more, all) in [
        (groups, "impersonate:user-info authentication.k8s.io/groups /*"),
        (extras, "impersonate:user-info authentication.k8s.io/userextras/* /*"),
    ] {
        let rights = [base[0], base[1], all];
        let headers: Vec<_> = std::iter::once(USER).chain(more).collect();
        assert!(outcome(&alice(), PODS, &headers, &rights).is_ok(), "{all}");
        // Three are checked one by one.
        assert!(outcome(&alice(), PODS, &headers[..4], &rights).is_err(), "{all}");
    }
}
