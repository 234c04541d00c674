use std::sync::LazyLock;

use serde_json::{Value, json};
use windlass_pki::Validity;

use super::*;

/// Two distinct root certificates (PEM), generated once per test process.
static ANCHORS: LazyLock<[String; 2]> = LazyLock::new(|| {
    ["one", "two"].map(|name| {
        let now = time::OffsetDateTime::UNIX_EPOCH + time::Duration::days(20_000);
        let validity = Validity::new(now, now + time::Duration::days(30)).unwrap();
        windlass_testkit::ca_with_validity(name, validity).certificate().to_pem()
    })
});

/// Returns a bundle with a label and one of these certificates, of the signer `a.b/c` if its name
/// has a colon.
pub fn bundle(name: &str, label: &str, generation: i64, anchors: usize) -> TrustBundle {
    let labels = [("set".to_owned(), label.to_owned())].into();
    let signer = if name.contains(':') { "a.b/c" } else { "" };
    TrustBundle::new(name, generation, signer, labels, &ANCHORS[anchors])
}

/// Returns the entry of this bundle in the report of a node.
fn carried_bundle(bundle: &TrustBundle) -> Value {
    json!({"name": bundle.name, "generation": bundle.generation,
           "digest": digest_text(&bundle.anchors.digest())})
}

/// Returns a source that selects by name or label value and carries these bundles.
fn source(select: &str, bundles: &[&TrustBundle]) -> Value {
    let mut source = json!({"volumes": ["ns/p/v"], "bundles":
        bundles.iter().map(|bundle| carried_bundle(bundle)).collect::<Vec<_>>()});
    if !bundles.is_empty() {
        source["digest"] = json!("sha256:of all of them");
    }
    match select.strip_prefix("set=") {
        Some("") => {
            source["signerName"] = json!("a.b/c");
            source["labelSelector"] = json!({});
        }
        Some(label) => {
            source["signerName"] = json!("a.b/c");
            source["labelSelector"] = json!({"matchLabels": {"set": label}});
        }
        None => source["name"] = json!(select),
    }
    source
}

pub fn trust_state(bundles: Vec<TrustBundle>, reports: &[(&str, Value)]) -> TrustState {
    let mut world = TrustState::default();
    bundles.into_iter().for_each(|bundle| world.set_bundle(bundle));
    for (node, sources) in reports {
        let status = json!({"sources": sources});
        let status = serde_json::from_value(status).unwrap();
        let at = "2026-03-01T12:00:00Z".to_owned();
        world.reports.insert((*node).to_owned(), NodeReport { status, at });
        world.nodes.insert((*node).to_owned(), NodeState { ours: true, lost: None });
    }
    world
}

/// Formats each delivery: name, nodes, have, lacking, leftover, state.
fn lines(world: &TrustState) -> Vec<String> {
    let nodes = |all: &[NodeVolumes]| all.iter().map(|at| at.node.as_str()).collect::<Vec<_>>().join(",");
    let line = |each: BundleDelivery| {
        let (lacking, leftover) = (nodes(&each.lacking), nodes(&each.leftover));
        format!("{} {}/{} -[{lacking}] +[{leftover}] {}", each.name, each.have, each.nodes, each.state())
    };
    overview(world).deliveries.into_iter().map(line).collect()
}

#[test]
fn nodes_have_what_all_their_volumes_have() {
    let (old, new) = (bundle("x", "", 1, 0), bundle("x", "", 2, 1));
    let reports = [
        ("n1", json!([source("x", &[&new])])),
        ("n2", json!([source("x", &[&old])])),
        ("n3", json!([source("x", &[&new]), source("x", &[&old])])),
        ("n4", json!([source("x", &[])])),
        ("n5", json!([])),
        ("n6", json!([source("x", &[&new]), source("x", &[&new])])),
    ];
    let world = trust_state(vec![new.clone(), bundle("y", "", 1, 0)], &reports);
    assert_eq!(lines(&world), ["x 2/5 -[n2,n3,n4] +[] Incomplete", "y 0/0 -[] +[] Unused"]);
    let found = overview(&world).deliveries;
    let carries = found[0].lacking.iter().map(|at| at.volumes[0].carries.clone());
    let digest = digest_text(&old.anchors.digest());
    let before = CarriedContent::Bundle { generation: 1, digest };
    assert_eq!(carries.collect::<Vec<_>>(), [before.clone(), before, CarriedContent::Unknown]);
    assert_eq!(found[0].carriers.len(), 4);
}

#[test]
fn it_is_the_content_that_counts() {
    let (one, again) = (bundle("x", "", 1, 0), bundle("x", "", 7, 0));
    let world = trust_state(vec![again], &[("n1", json!([source("x", &[&one])]))]);
    assert_eq!(lines(&world), ["x 1/1 -[] +[] Delivered"]);
}

#[test]
fn label_selectors_determine_which_nodes_need_a_bundle() {
    let (live, next) = (bundle("a.b:c:live", "live", 1, 0), bundle("a.b:c:next", "next", 1, 1));
    let nothing = json!({"signerName": "a.b/c", "volumes": ["ns/p/v"]});
    let reports = [
        ("canary", json!([source("set=next", &[&next]), source("set=", &[&live, &next])])),
        ("n1", json!([source("set=live", &[&live])])),
        ("n2", json!([source("set=live", &[&live, &next])])),
        ("n3", json!([source("set=", &[&live])])),
        ("n4", json!([nothing])),
    ];
    let world = trust_state(vec![live, next], &reports);
    assert_eq!(
        lines(&world),
        ["a.b:c:live 4/5 -[n4] +[] Incomplete", "a.b:c:next 1/3 -[n3,n4] +[n2] Incomplete"]
    );
    let why = "no bundle matches signerName=a.b/c without a labelSelector";
    assert_eq!(overview(&world).deliveries[0].lacking[0].volumes[0].message, why);
    assert!(
        overview(&world).deliveries[1].is_from_signer("a.b/c")
            && !overview(&world).deliveries[1].is_from_signer("a.b/d")
    );
}

#[test]
fn deleted_bundles_are_reported_where_they_remain() {
    let (gone, live) = (bundle("a.b:c:gone", "live", 1, 0), bundle("a.b:c:live", "live", 1, 1));
    let mut blocked = source("set=live", &[&gone]);
    blocked["message"] = json!("no disk");
    let mut optional = source("never", &[]);
    optional["optional"] = json!(true);
    let reports = [
        ("n1", json!([source("set=live", &[&live])])),
        ("n2", json!([blocked, source("a.b:c:gone", &[&gone])])),
        ("n3", json!([source("never", &[])])),
        ("n4", json!([optional])),
    ];
    let world = trust_state(vec![live], &reports);
    assert_eq!(
        lines(&world),
        [
            "a.b:c:gone 1/1 -[] +[n2] Gone",
            "a.b:c:live 1/2 -[n2] +[] Incomplete",
            "never 0/1 -[n3] +[] Absent",
        ]
    );
    let found = overview(&world).deliveries;
    assert!(found[0].is_from_signer("a.b/c") && !found[2].is_from_signer("a.b/c"));
    assert_eq!(found[0].carriers[0].volumes.len(), 2);
    assert_eq!(found[1].lacking[0].volumes[0].message, "no disk");
    assert_eq!(found[1].lacking[0].volumes[0].carries, CarriedContent::Nothing);
}

#[test]
fn a_truncated_report_is_no_proof_of_delivery() {
    let new = bundle("x", "", 2, 1);
    let mut world = trust_state(vec![new.clone()], &[("n1", json!([source("x", &[&new])]))]);
    world.reports.get_mut("n1").unwrap().status.more_sources = 1;
    assert_eq!(lines(&world), ["x 0/1 -[n1] +[] Incomplete"]);
    assert_eq!(overview(&world).deliveries[0].lacking[0].volumes[0].message, CUT);
}

#[test]
fn nodes_without_a_report_are_distinguished() {
    let mut world = trust_state(Vec::new(), &[("n1", json!([]))]);
    assert!(overview(&world).agentless.is_empty() && overview(&world).unreported.is_empty());
    let node = |ours| NodeState { ours, lost: None };
    world.nodes.extend([("n2".to_owned(), node(false)), ("n3".to_owned(), node(true))]);
    world.reports.get_mut("n1").unwrap().status.more_sources = 1;
    let found = overview(&world);
    assert_eq!(found.agentless, ["n2"]);
    let unreported = [UnreportedNode::new("n1", CUT), UnreportedNode::new("n3", NO_REPORT)];
    assert_eq!(found.unreported, unreported);
}

#[test]
fn an_empty_selection_counts_if_the_bundle_may_have_been_selected() {
    let (live, other) = (bundle("a.b:c:live", "live", 1, 0), bundle("roots", "", 1, 1));
    let mut optional = source("set=lvie", &[]);
    optional["optional"] = json!(true);
    let mut signer = source("set=live", &[]);
    signer["signerName"] = json!("a.b/d");
    let reports = [
        ("n1", json!([source("set=live", &[&live])])),
        ("n2", json!([source("set=lvie", &[])])),
        ("n3", json!([source("a.b:c:lvie", &[])])),
        ("n4", json!([signer])),
        ("n5", json!([source("rots", &[])])),
        ("n6", json!([source("x.y:z:live", &[])])),
        ("n7", json!([optional])),
    ];
    let world = trust_state(vec![live, other], &reports);
    assert_eq!(
        lines(&world),
        [
            "a.b:c:live 1/3 -[n2,n3] +[] Incomplete",
            "a.b:c:lvie 0/1 -[n3] +[] Absent",
            "roots 0/1 -[n5] +[] Incomplete",
            "rots 0/1 -[n5] +[] Absent",
            "x.y:z:live 0/1 -[n6] +[] Absent",
        ]
    );
    let found = overview(&world);
    let at = &found.deliveries[0].lacking[0];
    assert_eq!(at.state, Some(DeliveryShortfall::Blocked));
    let why = "no bundle matches signerName=a.b/c, labelSelector set=lvie";
    assert_eq!(at.volumes[0].message, why);
    let unmatched = found.unmatched.iter().map(|at| at.node.as_str()).collect::<Vec<_>>();
    assert_eq!(unmatched, ["n4", "n6"]);
    assert_eq!(found.unmatched[1].volumes[0].message, "no bundle matches name=x.y:z:live");
}

#[test]
fn a_silent_node_has_nothing() {
    let new = bundle("x", "", 2, 1);
    let has = || json!([source("x", &[&new])]);
    let mut world = trust_state(vec![new.clone()], &[("n1", has()), ("n2", has()), ("n3", has())]);
    assert_eq!(lines(&world), ["x 3/3 -[] +[] Delivered"]);
    world.nodes.get_mut("n2").unwrap().lost = Some("2026-03-01T12:01:00Z".into());
    world.nodes.remove("n3");
    assert_eq!(lines(&world), ["x 1/3 -[n2,n3] +[] Incomplete"]);
    let found = &overview(&world).deliveries[0];
    let why = found.lacking.iter().map(|at| at.volumes[0].message.as_str()).collect::<Vec<_>>();
    assert_eq!(why, ["node status Unknown since 2026-03-01T12:01:00Z", "the Node does not exist"]);
    assert!(found.lacking.iter().all(|at| at.state == Some(DeliveryShortfall::Silent)));
    // The earlier content is still there.
    assert_eq!(found.carriers.len(), 3);
}
