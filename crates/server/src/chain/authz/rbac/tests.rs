//! Table tests of RBAC rules and bindings.

use serde_json::{Value, json};

use super::super::attributes::ResourceAttributes;
use super::*;
use crate::object::{Object, encode_object};
use crate::registry::KINDS;

fn user(name: &str, groups: &[&str]) -> User {
    let groups = groups.iter().map(|g| (*g).to_owned()).collect();
    User { name: name.into(), groups, ..User::default() }
}

fn allows(rule: &PolicyRule, verb: &str, resource: ResourceAttributes<'_>) -> bool {
    let user = user("u", &[]);
    let asked =
        AuthorizationAttributes { user: &user, verb, target: AuthorizationTarget::Resource(resource) };
    rule.allows(&RuleQuery::from_attributes(&asked))
}

fn resource_attributes<'a>(
    group: &'a str,
    resource: &'a str,
    subresource: &'a str,
    name: &'a str,
) -> ResourceAttributes<'a> {
    ResourceAttributes { group, resource, subresource, name, ..ResourceAttributes::default() }
}

#[test]
fn rules_match_as_in_kubernetes() {
    let rule = |verbs: &[&str], groups: &[&str], resources: &[&str], names: &[&str]| {
        let value =
            json!({"verbs": verbs, "apiGroups": groups, "resources": resources, "resourceNames": names});
        PolicyRule::parse(&value).unwrap()
    };
    let pods = resource_attributes("", "pods", "", "");
    let status = resource_attributes("", "pods", "status", "p");
    let cases = [
        (rule(&["get"], &[""], &["pods"], &[]), "get", pods.clone(), true),
        (rule(&["get"], &[""], &["pods"], &[]), "list", pods.clone(), false),
        (rule(&["*"], &[""], &["pods"], &[]), "anything", pods.clone(), true),
        (rule(&["get"], &["*"], &["pods"], &[]), "get", resource_attributes("x.io", "pods", "", ""), true),
        (rule(&["get"], &["apps"], &["pods"], &[]), "get", pods.clone(), false),
        (rule(&["get"], &[], &["pods"], &[]), "get", pods.clone(), false),
        (rule(&["get"], &[""], &[], &[]), "get", pods.clone(), false),
        (rule(&[], &[""], &["pods"], &[]), "get", pods.clone(), false),
        // A resource does not cover its subresources, nor vice versa.
        (rule(&["get"], &[""], &["pods"], &[]), "get", status.clone(), false),
        (rule(&["get"], &[""], &["pods/status"], &[]), "get", status.clone(), true),
        (rule(&["get"], &[""], &["pods/status"], &[]), "get", pods.clone(), false),
        (rule(&["get"], &[""], &["*/status"], &[]), "get", status.clone(), true),
        (rule(&["get"], &[""], &["*/status"], &[]), "get", pods.clone(), false),
        (rule(&["get"], &[""], &["*/stat"], &[]), "get", status.clone(), false),
        (rule(&["get"], &[""], &["*/"], &[]), "get", pods.clone(), false),
        (rule(&["get"], &[""], &["pods/*"], &[]), "get", status.clone(), false),
        (rule(&["get"], &[""], &["*"], &[]), "get", status.clone(), true),
        (rule(&["get"], &[""], &["po*"], &[]), "get", pods.clone(), false),
        // Resource names.
        (rule(&["get"], &[""], &["pods"], &["a.b"]), "get", resource_attributes("", "pods", "", "a.b"), true),
        (
            rule(&["get"], &[""], &["pods"], &["a.b"]),
            "get",
            resource_attributes("", "pods", "", "axb"),
            false,
        ),
        (rule(&["get"], &[""], &["pods"], &["*"]), "get", resource_attributes("", "pods", "", "axb"), false),
        (rule(&["get"], &[""], &["pods"], &["a"]), "get", pods, false),
        (rule(&["get"], &[""], &["pods"], &["a"]), "get", resource_attributes("", "pods", "", "ab"), false),
    ];
    for (rule, verb, resource, want) in cases {
        let words = format!("{rule:?} {verb} {resource:?}");
        assert_eq!(allows(&rule, verb, resource), want, "{words}");
    }
}

#[test]
fn paths_match_whole_or_by_what_they_begin_with() {
    for (url, path, want) in [
        ("/healthz", "/healthz", true),
        ("/healthz", "/healthz/ping", false),
        ("/healthz/*", "/healthz/ping", true),
        ("/healthz/*", "/healthz", false),
        ("/healthz*", "/healthz", true),
        ("/health.", "/healthz", false),
        ("/*/x", "/a/x", false),
        ("/api/***", "/api/v1", true),
        ("*", "/anything", true),
    ] {
        let rule = PolicyRule::parse(&json!({"verbs": ["get"], "nonResourceURLs": [url]})).unwrap();
        let somebody = user("u", &[]);
        let at =
            |verb| AuthorizationAttributes { user: &somebody, verb, target: AuthorizationTarget::Path(path) };
        assert_eq!(rule.allows(&RuleQuery::from_attributes(&at("get"))), want, "{url} {path}");
        assert!(!rule.allows(&RuleQuery::from_attributes(&at("post"))), "{url} {path}");
    }
    let resources = PolicyRule::parse(&json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
    let (somebody, path) = (user("u", &[]), AuthorizationTarget::Path("/healthz"));
    let asked = AuthorizationAttributes { user: &somebody, verb: "get", target: path };
    assert!(!resources.unwrap().allows(&RuleQuery::from_attributes(&asked)), "no path is a resource");
}

#[test]
fn unreadable_rules_allow_nothing() {
    for broken in [
        json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": "a"}),
        json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": [1]}),
        json!({"verbs": "*", "apiGroups": [""], "resources": ["pods"]}),
        json!(["get"]),
        json!(null),
    ] {
        assert_eq!(PolicyRule::parse(&broken), None, "{broken}");
    }
    for broken in [json!("x"), json!({"matchLabels": "x"}), json!({"matchLabels": {"a": 1}}), json!(null)] {
        let rule = json!({"clusterRoleSelectors": [broken]});
        assert_eq!(aggregate::selectors(&rule).unwrap().len(), 0, "{rule}");
    }
    assert_eq!(aggregate::selectors(&json!({"clusterRoleSelectors": [{}]})).unwrap().len(), 1);
}

/// Caches that a test writes to like the store.
struct RbacFixture {
    caches: Arc<ResourceCaches>,
    rbac: RbacAuthorizer,
    revision: u64,
}

impl RbacFixture {
    fn new() -> RbacFixture {
        let caches = Arc::new(ResourceCaches::new(KINDS));
        caches.finish_load(0, 0);
        let rbac = RbacAuthorizer::new(&caches, &KindRegistry::new(KINDS));
        RbacFixture { caches, rbac, revision: 0 }
    }

    fn write(&mut self, plural: &str, key: &str, value: Option<Value>) {
        self.revision += 1;
        let stored = value.map(|v| encode_object("K", "rbac.authorization.k8s.io/v1", &v, false));
        let event = windlass_store::ChangeEvent {
            key: format!("{GROUP}/{plural}/{key}"),
            revision: self.revision,
            created: self.revision,
            value: stored,
            previous: None,
        };
        self.caches.handle_message(windlass_store::FeedMessage::Changes(&[event]));
    }

    fn cluster_role(&mut self, name: &str, labels: Value, rest: Value) {
        let mut value = json!({"metadata": {"name": name, "labels": labels}});
        value.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        self.write("clusterroles", name, Some(value));
    }

    fn bind(&mut self, plural: &str, key: &str, kind: &str, role: &str, subjects: Value) {
        let role = json!({"apiGroup": GROUP, "kind": kind, "name": role});
        let value = json!({"metadata": {"name": "b"}, "roleRef": role, "subjects": subjects});
        self.write(plural, key, Some(value));
    }

    fn decide(&self, who: &User, verb: &str, namespace: &str) -> Decision {
        let resource = ResourceAttributes { namespace, ..resource_attributes("", "configmaps", "", "") };
        let target = AuthorizationTarget::Resource(resource);
        self.rbac.decide(&AuthorizationAttributes { user: who, verb, target })
    }
}

fn reader(verb: &str) -> Value {
    json!({"rules": [{"verbs": [verb], "apiGroups": [""], "resources": ["configmaps"]}]})
}

#[test]
fn bindings_apply_to_those_they_name() {
    let mut world = RbacFixture::new();
    world.cluster_role("read", json!({}), reader("get"));
    world.write("roles", "a/read", Some(json!({"metadata": {}, "rules": reader("list")["rules"]})));
    let (alice, dev) = (user("alice", &["x"]), user("bob", &["y", "dev"]));
    let account = user("system:serviceaccount:a:robot", &[]);
    let to =
        |kind: &str, name: &str| json!([{"kind": "User", "name": "nobody"}, {"kind": kind, "name": name}]);
    world.bind("clusterrolebindings", "b", "ClusterRole", "read", to("User", "alice"));
    world.bind("rolebindings", "a/dev", "Role", "read", to("Group", "dev"));
    world.bind("rolebindings", "a/sa", "ClusterRole", "read", to("ServiceAccount", "robot"));
    // In a cluster role binding, a service account without a namespace matches nobody.
    world.bind("clusterrolebindings", "sa", "ClusterRole", "read", to("ServiceAccount", "robot"));
    let no = Decision::NoOpinion(String::new());
    let by = |text: &str| Decision::Allow(format!("RBAC: allowed by {text}"));
    let cluster = by(r#"ClusterRoleBinding "b" of ClusterRole "read" to User "alice""#);
    for (who, verb, namespace, want) in [
        (&alice, "get", "", cluster.clone()),
        (&alice, "get", "a", cluster),
        (&alice, "list", "a", no.clone()),
        (&dev, "list", "a", by(r#"RoleBinding "dev/a" of Role "read" to Group "dev""#)),
        (&dev, "list", "b", no.clone()),
        (&dev, "list", "", no.clone()),
        (&account, "get", "a", by(r#"RoleBinding "sa/a" of ClusterRole "read" to ServiceAccount "robot/a""#)),
        (&account, "get", "b", no.clone()),
        (&user("Alice", &[]), "get", "", no.clone()),
        (&user("dev", &["alice"]), "get", "a", no),
    ] {
        assert_eq!(world.decide(who, verb, namespace), want, "{who:?} {verb} {namespace}");
    }
}

#[test]
fn changes_apply_immediately() {
    let mut world = RbacFixture::new();
    let alice = user("alice", &[]);
    let to_alice = json!([{"kind": "User", "name": "alice"}, {"kind": "User", "name": "alice"}]);
    world.bind("clusterrolebindings", "b", "ClusterRole", "read", to_alice.clone());
    let missing = r#"RBAC: clusterrole.rbac.authorization.k8s.io "read" not found"#;
    assert_eq!(world.decide(&alice, "get", ""), Decision::NoOpinion(missing.into()));
    world.cluster_role("read", json!({}), reader("get"));
    assert!(world.decide(&alice, "get", "").is_allowed());
    world.cluster_role("read", json!({}), reader("list"));
    assert!(!world.decide(&alice, "get", "").is_allowed());
    assert!(world.decide(&alice, "list", "").is_allowed());
    world.bind("clusterrolebindings", "b", "ClusterRole", "read", json!([]));
    assert!(!world.decide(&alice, "list", "").is_allowed());
    world.bind("clusterrolebindings", "b", "ClusterRole", "read", to_alice);
    assert!(world.decide(&alice, "list", "").is_allowed());
    assert_eq!(world.rbac.resolve(&alice, "").rules.len(), 1);
    world.write("clusterrolebindings", "b", None);
    assert!(!world.decide(&alice, "list", "").is_allowed());
    world.write("clusterroles", "read", None);
    assert_eq!(world.rbac.role_rules(&RoleRef::ClusterRole("read".into()), ""), None);
}

#[test]
fn changes_that_fell_out_of_the_window_are_found() {
    let mut world = RbacFixture::new();
    let alice = user("alice", &[]);
    world.cluster_role("read", json!({}), reader("get"));
    world.bind("clusterrolebindings", "b", "ClusterRole", "read", json!([{"kind": "User", "name": "alice"}]));
    assert!(world.decide(&alice, "get", "").is_allowed());
    world.write("clusterrolebindings", "b", None);
    // The change that revoked the grant leaves the window before the next query.
    world.caches.finish_load(world.revision, world.revision);
    assert!(!world.decide(&alice, "get", "").is_allowed());
}

#[test]
fn a_panic_in_the_index_does_not_stay() {
    let mut world = RbacFixture::new();
    let alice = user("alice", &[]);
    world.cluster_role("read", json!({}), reader("get"));
    world.bind("clusterrolebindings", "b", "ClusterRole", "read", json!([{"kind": "User", "name": "alice"}]));
    let shared = world.rbac.0.clone();
    let broken = std::thread::spawn(move || {
        let mut index = shared.index.write().unwrap();
        *index = RbacIndex::default();
        index.revision = u64::MAX;
        panic!("on purpose");
    });
    assert!(broken.join().is_err());
    assert!(world.decide(&alice, "get", "").is_allowed());
    world.write("clusterrolebindings", "b", None);
    assert!(!world.decide(&alice, "get", "").is_allowed());
}

#[test]
fn aggregated_roles_have_the_rules_of_those_they_select() {
    let mut world = RbacFixture::new();
    let alice = user("alice", &[]);
    world.bind("clusterrolebindings", "b", "ClusterRole", "sum", json!([{"kind": "User", "name": "alice"}]));
    let of = |labels: Value| json!({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": labels}]}});
    let mut sum = of(json!({"part": "sum"}));
    // Rules stored in an aggregated role are ignored.
    sum["rules"] = reader("delete")["rules"].clone();
    world.cluster_role("sum", json!({"part": "sum", "also": "mid"}), sum);
    assert!(!world.decide(&alice, "delete", "").is_allowed());
    world.cluster_role("leaf", json!({"part": "sum"}), reader("get"));
    assert!(world.decide(&alice, "get", "").is_allowed());
    // Through another aggregated role, which in turn selects the first one.
    world.cluster_role("mid", json!({"part": "sum"}), of(json!({"also": "mid"})));
    world.cluster_role("deep", json!({"also": "mid"}), reader("list"));
    assert!(world.decide(&alice, "list", "").is_allowed());
    let names = |world: &RbacFixture| world.rbac.resolve(&alice, "").rules.len();
    assert_eq!(names(&world), 2);
    world.cluster_role("same", json!({"part": "sum"}), reader("get"));
    assert_eq!(names(&world), 2, "equal rules come once");
    world.cluster_role("leaf", json!({}), reader("get"));
    world.write("clusterroles", "same", None);
    assert!(!world.decide(&alice, "get", "").is_allowed(), "a label that goes takes the rules along");
    world.write("clusterroles", "mid", None);
    assert!(!world.decide(&alice, "list", "").is_allowed());
}

#[test]
fn a_decision_among_thousands_of_bindings_is_quick() {
    let mut world = RbacFixture::new();
    for i in 0..1000 {
        world.cluster_role(&format!("r{i}"), json!({}), reader("get"));
    }
    for i in 0..5000 {
        let subject = json!([{"kind": "User", "name": format!("u{i}")}]);
        let (key, role) = (format!("ns{}/b{i}", i % 50), format!("r{}", i % 1000));
        world.bind("rolebindings", &key, "ClusterRole", &role, subject);
    }
    let (known, stranger) = (user("u77", &["a", "b", "c"]), user("x", &["a", "b", "c"]));
    assert!(world.decide(&known, "get", "ns27").is_allowed());
    let begun = std::time::Instant::now();
    for _ in 0..2000 {
        assert!(!world.decide(&stranger, "get", "ns27").is_allowed());
        assert!(world.decide(&known, "get", "ns27").is_allowed());
    }
    let each = begun.elapsed() / 4000;
    // Unoptimized code on a busy machine; a walk over all bindings must not happen.
    assert!(each < std::time::Duration::from_micros(100), "{each:?}");
    println!("a decision takes {each:?}");
}

#[test]
fn an_object_of_the_wrong_shape_is_harmless() {
    let stored = encode_object(
        "ClusterRoleBinding",
        "v1",
        &json!({"metadata": {}, "subjects": {"kind": "User"}}),
        false,
    );
    let object = Object::new(&CLUSTER_ROLE_BINDING, "b", 1, &stored).unwrap();
    let mut index = RbacIndex::default();
    index.upsert(RbacKind::ClusterRoleBindings, &object);
    let found = index.visit(&user("", &[""]), "", |_| ControlFlow::Break(()));
    assert_eq!(found, ControlFlow::Continue(()));
}

/// The role allows more only while nobody is bound to it. Mixing an old binding with a new role, or
/// the reverse, would let alice delete.
#[test]
fn the_four_kinds_are_seen_as_they_were_at_one_time() {
    let mut world = RbacFixture::new();
    let alice = user("alice", &[]);
    let over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (rbac, over, alice) = (RbacAuthorizer(world.rbac.0.clone()), over.clone(), alice.clone());
            std::thread::spawn(move || {
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    let target = AuthorizationTarget::Resource(resource_attributes("", "configmaps", "", ""));
                    let asked = AuthorizationAttributes { user: &alice, verb: "delete", target };
                    assert!(!rbac.decide(&asked).is_allowed());
                }
            })
        })
        .collect();
    for _ in 0..1500 {
        world.cluster_role("r", json!({}), reader("get"));
        let to_alice = json!([{"kind": "User", "name": "alice"}]);
        world.bind("clusterrolebindings", "b", "ClusterRole", "r", to_alice);
        assert!(world.decide(&alice, "get", "").is_allowed());
        world.write("clusterrolebindings", "b", None);
        assert!(!world.decide(&alice, "get", "").is_allowed());
        world.cluster_role("r", json!({}), reader("delete"));
    }
    over.store(true, std::sync::atomic::Ordering::Relaxed);
    for reader in readers {
        reader.join().unwrap();
    }
}
