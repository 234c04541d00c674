//! Trust anchors in pods: what KEP-3257 and Kubernetes' own tests of it look at.

use serde_json::{Value, json};

use super::world::{
    World, anchor, bundle, certificates, named, pod, read, selected, signed_bundle, until,
    until_text,
};

fn optional(mut source: Value) -> Value {
    source["clusterTrustBundle"]["optional"] = json!(true);
    source
}

#[test]
fn by_name_by_signer_and_missing() {
    let world = World::start();
    let [one, two, other] = [anchor(), anchor(), anchor()];
    let live = json!({"labelSelector": {"matchLabels": {"version": "live"}}});
    let either = json!({"key": "version", "operator": "In", "values": ["live", "canary"]});
    world.apply(&[
        bundle("roots", &one),
        signed_bundle("a", "live", &one),
        signed_bundle("b", "live", &two),
        signed_bundle("c", "canary", &other),
        pod("name", json!([named("roots")])),
        pod("labels", json!([selected(live)])),
        pod("any", json!([selected(json!({"labelSelector": {"matchExpressions": [either]}}))])),
        pod("optional", json!([optional(named("later"))])),
        pod("missing", json!([named("later")])),
    ]);
    for name in ["name", "labels", "any", "optional"] {
        world.is_ready(name);
    }
    let anchors_of = |pod: &str| read(&world.volume(pod).join("ca.pem"));
    let sorted = |all: &[&String]| certificates(&all.iter().copied().cloned().collect::<String>());
    assert_eq!(anchors_of("name"), one);
    assert_eq!(certificates(&anchors_of("labels")), sorted(&[&one, &two]));
    assert_eq!(certificates(&anchors_of("any")), sorted(&[&one, &two, &other]));
    assert_eq!(anchors_of("optional"), "");

    // Whoever cannot do without waits, says so, and has it as soon as it is there.
    let why = "MountVolume.SetUp failed for volume \"v\" : while getting ClusterTrustBundle: \
               clustertrustbundle.certificates.k8s.io \"later\" not found";
    assert_eq!(world.is_not_ready("missing", "FailedMount"), why);
    assert_eq!(world.failed_mounts("missing"), [why]);
    assert_eq!(world.failed_mounts("optional"), [""; 0]);
    assert!(!world.volume("missing").join("ca.pem").exists());
    world.apply(&[bundle("later", &two)]);
    until_text(&world.volume("missing").join("ca.pem"), &two);
    until_text(&world.volume("optional").join("ca.pem"), &two);
    world.is_ready("missing");
}

#[test]
fn a_hundred_and_fifty_bundles_in_one_file() {
    let world = World::start();
    let anchors = (0..150).map(|_| anchor()).collect::<Vec<_>>();
    let all = json!([selected(json!({"labelSelector": {}}))]);
    let several = anchors.iter().enumerate();
    let several = several.map(|(at, text)| signed_bundle(&format!("b{at}"), "live", text));
    let mut objects = several.collect::<Vec<_>>();
    // One of them twice, and what is no certificate.
    let talk = format!("about the next one\n{}", anchors[7]);
    objects.push(signed_bundle("again", "canary", &talk));
    objects.push(pod("first", all.clone()));
    world.create(&objects);
    world.is_ready("first");
    let file = |pod: &str| world.volume(pod).join("ca.pem");
    until("not all of them are there", || {
        (read(&file("first")).matches("BEGIN").count() == anchors.len()).then_some(())
    });
    let first = read(&file("first"));
    assert_eq!(certificates(&first), certificates(&anchors.concat()));

    // The same set, from one bundle and in another order.
    let (front, back) = anchors.split_at(anchors.len() / 2);
    world.create(&[signed_bundle("other", "other", &[back, front].concat().concat())]);
    let path = "/apis/certificates.k8s.io/v1/clustertrustbundles?labelSelector=version=live";
    world.ok(&["delete", "--raw", path]);
    assert_eq!(world.ok(&["get", "clustertrustbundles", "-l", "version=live", "-o", "name"]), "");
    world.create(&[pod("second", all)]);
    world.is_ready("second");
    for pod in ["first", "second"] {
        assert_eq!(read(&file(pod)), first, "{pod}");
    }
}

#[test]
fn no_selector_selects_nothing_and_an_empty_one_everything() {
    let world = World::start();
    let (one, two) = (anchor(), anchor());
    world.apply(&[
        signed_bundle("a", "live", &one),
        signed_bundle("b", "canary", &two),
        pod("nil", json!([optional(selected(json!({})))])),
        pod("empty", json!([selected(json!({"labelSelector": {}}))])),
        pod("nothing", json!([selected(json!({}))])),
    ]);
    world.is_ready("nil");
    world.is_ready("empty");
    assert_eq!(read(&world.volume("nil").join("ca.pem")), "");
    let found = read(&world.volume("empty").join("ca.pem"));
    assert_eq!(certificates(&found), certificates(&format!("{one}{two}")));
    let why = world.is_not_ready("nothing", "FailedMount");
    let zero = "combination of signerName and labelSelector matched zero ClusterTrustBundles";
    assert!(why.ends_with(zero), "{why}");
    assert!(!world.volume("nothing").join("ca.pem").exists());
}

#[test]
fn bundles_change_and_go_after_the_start() {
    let world = World::start();
    let (one, two) = (anchor(), anchor());
    let (linked, gone) = ("example.com:hand:linked", "example.com:hand:gone");
    let by_label = json!({"labelSelector": {"matchLabels": {"version": "gone"}}});
    world.apply(&[
        signed_bundle("linked", "live", &one),
        signed_bundle("gone", "gone", &one),
        pod("linked", json!([named(linked)])),
        pod("optional", json!([optional(named(gone))])),
        pod("needed", json!([named(gone)])),
        pod("labels", json!([selected(by_label)])),
    ]);
    let pods = ["linked", "optional", "needed", "labels"];
    let file = |pod: &str| world.volume(pod).join("ca.pem");
    for pod in pods {
        world.is_ready(pod);
        assert_eq!(read(&file(pod)), one, "{pod}");
    }
    world.apply(&[signed_bundle("linked", "live", &two)]);
    until_text(&file("linked"), &two);

    world.ok(&["delete", "clustertrustbundle", gone]);
    until_text(&file("optional"), "");
    for (pod, end) in [
        ("needed", "\"example.com:hand:gone\" not found"),
        ("labels", "matched zero ClusterTrustBundles"),
    ] {
        let why = world.is_not_ready(pod, "KeepingOldContent");
        assert!(why.ends_with(end), "{why}");
        assert_eq!(read(&file(pod)), one, "{pod}");
    }
    world.is_ready("optional");

    world.apply(&[signed_bundle("gone", "gone", &two)]);
    for pod in ["optional", "needed", "labels"] {
        until_text(&file(pod), &two);
        world.is_ready(pod);
    }
}
