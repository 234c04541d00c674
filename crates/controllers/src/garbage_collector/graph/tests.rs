use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::ApiResource;
use serde_json::json;

use super::*;

const MAPS: KindId = KindId(0);
const NODES: KindId = KindId(1);

fn graph() -> OwnerGraph {
    let mut graph = OwnerGraph::new();
    let kinds = [resource("ConfigMap", "configmaps", true), resource("Node", "nodes", false)];
    let (new, gone) = graph.set_kinds(&kinds, &BTreeMap::new());
    assert_eq!(new.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [MAPS, NODES]);
    assert!(gone.is_empty());
    graph
}

fn resource(kind: &str, plural: &str, namespaced: bool) -> Arc<ServedResource> {
    let gvk = kube::core::GroupVersionKind::gvk("", "v1", kind);
    Arc::new(ServedResource::new(ApiResource::from_gvk_with_plural(&gvk, plural), namespaced))
}

/// Builds a ConfigMap in namespace `n` whose UID is its name, with owners `kind/name[!]`; `!` sets
/// `blockOwnerDeletion`.
fn map(name: &str, owners: &[&str]) -> ObjectMeta {
    let owners: Vec<_> = owners
        .iter()
        .map(|owner| {
            let (kind, rest) = owner.split_once('/').unwrap();
            let name = rest.trim_end_matches('!');
            json!({
                "apiVersion": "v1", "kind": kind, "name": name, "uid": name,
                "blockOwnerDeletion": rest.ends_with('!'),
            })
        })
        .collect();
    let meta = json!({"namespace": "n", "name": name, "uid": name, "ownerReferences": owners});
    serde_json::from_value(meta).unwrap()
}

fn deleting(mut meta: ObjectMeta, finalizer: &str) -> ObjectMeta {
    meta.deletion_timestamp = Some(Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
    meta.finalizers = Some(vec![finalizer.to_owned()]);
    meta
}

fn sorted(uids: Vec<ObjectUid>) -> Vec<String> {
    let mut uids: Vec<String> = uids.iter().map(ToString::to_string).collect();
    uids.sort();
    uids
}

#[test]
fn an_object_with_a_missing_or_misnamed_owner_is_suspect() {
    let mut graph = graph();
    assert!(graph.observe(MAPS, &map("a", &[])).is_empty());
    assert!(graph.observe(MAPS, &map("b", &["ConfigMap/a"])).is_empty());
    assert_eq!(sorted(graph.observe(MAPS, &map("c", &["ConfigMap/x"]))), ["c"]);
    assert_eq!(sorted(graph.observe(MAPS, &map("d", &["Secret/a"]))), ["d"], "another kind");
    let mut elsewhere = map("e", &["ConfigMap/a"]);
    elsewhere.namespace = Some("m".into());
    assert_eq!(sorted(graph.observe(MAPS, &elsewhere)), ["e"], "another namespace");
    let node = ObjectMeta { namespace: None, ..map("node", &[]) };
    graph.observe(NODES, &node);
    assert!(graph.observe(MAPS, &map("f", &["Node/node"])).is_empty(), "an owner of the cluster");
    assert_eq!(sorted(graph.suspects()), ["c", "d", "e"]);
}

#[test]
fn dependents_of_deleted_owners_are_processed() {
    let mut graph = graph();
    graph.observe(MAPS, &map("a", &[]));
    graph.observe(MAPS, &map("b", &["ConfigMap/a"]));
    graph.observe(MAPS, &map("c", &["ConfigMap/a", "ConfigMap/b"]));
    assert_eq!(sorted(graph.remove(&ObjectUid::from("a"))), ["b", "c"]);
    assert_eq!(sorted(graph.remove(&ObjectUid::from("b"))), ["c"]);
    graph.observe(MAPS, &map("c", &[]));
    assert!(graph.dependents.is_empty(), "no object names an owner any more");
    assert!(graph.location(&ObjectUid::from("c")).is_none());
}

#[test]
fn a_listing_forgets_what_it_does_not_show() {
    let mut graph = graph();
    assert_eq!(graph.first_unlisted_kind().as_deref(), Some("configmaps"));
    for kind in [MAPS, NODES] {
        graph.begin_listing(kind);
        graph.observe(MAPS, &map("a", &[]));
        graph.observe(MAPS, &map("b", &["ConfigMap/a"]));
        graph.finish_listing(kind);
    }
    assert_eq!(graph.first_unlisted_kind(), None);
    graph.begin_listing(MAPS);
    graph.observe(MAPS, &map("b", &["ConfigMap/a"]));
    assert_eq!(sorted(graph.finish_listing(MAPS)), ["b"]);
    assert_eq!(sorted(graph.suspects()), ["b"]);
}

#[test]
fn foreground_deletion_processes_dependents_before_the_owner() {
    let mut graph = graph();
    let foreground = || deleting(map("a", &[]), "foregroundDeletion");
    graph.observe(MAPS, &map("a", &[]));
    graph.observe(MAPS, &map("b", &["ConfigMap/a!"]));
    graph.observe(MAPS, &map("c", &["ConfigMap/a"]));
    assert_eq!(sorted(graph.observe(MAPS, &foreground())), ["a", "b", "c"]);
    assert_eq!(sorted(graph.observe(MAPS, &foreground())), ["a"], "dependents know already");
    let mut dependents = graph.dependents(&ObjectUid::from("a"));
    dependents.sort_by_key(|(uid, _)| uid.to_string());
    let blocks: Vec<bool> = dependents.iter().map(|(_, dependent)| dependent.blocks).collect();
    assert_eq!(blocks, [true, false]);
    assert_eq!(sorted(graph.observe(MAPS, &map("b", &["ConfigMap/a"]))), ["a", "b"], "unblocked");
    assert_eq!(sorted(graph.remove(&ObjectUid::from("b"))), ["a"]);
    assert_eq!(sorted(graph.observe(MAPS, &deleting(map("d", &[]), "orphan"))), ["d"]);
}

#[test]
fn an_object_is_not_its_own_dependent() {
    let mut graph = graph();
    graph.observe(MAPS, &map("a", &["ConfigMap/a!"]));
    assert!(graph.dependents(&ObjectUid::from("a")).is_empty());
}

#[test]
fn kinds_come_and_go_but_not_while_their_group_is_silent() {
    let mut graph = graph();
    graph.observe(MAPS, &map("a", &[]));
    graph.observe(MAPS, &map("b", &["Node/node"]));
    let maps = [resource("ConfigMap", "configmaps", true)];
    let silent = BTreeMap::from([("v1".to_owned(), "503".to_owned())]);
    assert_eq!(graph.set_kinds(&maps, &silent), (vec![], vec![]));
    assert_eq!(graph.set_kinds(&maps, &BTreeMap::new()), (vec![], vec![NODES]));
    assert!(graph.observe(NODES, &map("late", &[])).is_empty());
    assert!(!graph.nodes.contains_key(&ObjectUid::from("late")), "of a kind that is not watched");
    let both = [maps[0].clone(), resource("Node", "nodes", false)];
    let (new, _) = graph.set_kinds(&both, &BTreeMap::new());
    assert_eq!(new[0].0, KindId(2), "a separate number");
}
