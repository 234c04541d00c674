//! Trust anchors in pods, as in KEP-3257 and the tests of Kubernetes.

use serde_json::{Value, json};

use super::volume_fixture::{
    VolumeFixture, anchor, bundle, bundle_source_by_name, certificates, pod_object, read, selected,
    signed_bundle, wait_for_text, wait_until,
};

fn optional(mut source: Value) -> Value {
    source["clusterTrustBundle"]["optional"] = json!(true);
    source
}

#[test]
fn by_name_by_signer_and_missing() {
    let world = VolumeFixture::start();
    let [one, two, other] = [anchor(), anchor(), anchor()];
    let live = json!({"labelSelector": {"matchLabels": {"version": "live"}}});
    let either = json!({"key": "version", "operator": "In", "values": ["live", "canary"]});
    world.apply(&[
        bundle("roots", &one),
        signed_bundle("a", "live", &one),
        signed_bundle("b", "live", &two),
        signed_bundle("c", "canary", &other),
        pod_object("name", json!([bundle_source_by_name("roots")])),
        pod_object("labels", json!([selected(live)])),
        pod_object("any", json!([selected(json!({"labelSelector": {"matchExpressions": [either]}}))])),
        pod_object("optional", json!([optional(bundle_source_by_name("later"))])),
        pod_object("missing", json!([bundle_source_by_name("later")])),
    ]);
    for name in ["name", "labels", "any", "optional"] {
        world.wait_until_ready(name);
    }
    let anchors_of = |pod: &str| read(&world.volume(pod).join("ca.pem"));
    let sorted = |all: &[&String]| certificates(&all.iter().copied().cloned().collect::<String>());
    assert_eq!(anchors_of("name"), one);
    assert_eq!(certificates(&anchors_of("labels")), sorted(&[&one, &two]));
    assert_eq!(certificates(&anchors_of("any")), sorted(&[&one, &two, &other]));
    assert_eq!(anchors_of("optional"), "");

    // A required bundle blocks the volume, with an error, until it exists.
    let why = "MountVolume.SetUp failed for volume \"v\" : while getting ClusterTrustBundle: \
               clustertrustbundle.certificates.k8s.io \"later\" not found";
    assert_eq!(world.wait_until_not_ready("missing", "FailedMount"), why);
    assert_eq!(world.failed_mounts("missing"), [why]);
    assert_eq!(world.failed_mounts("optional"), [""; 0]);
    assert!(!world.volume("missing").join("ca.pem").exists());
    world.apply(&[bundle("later", &two)]);
    wait_for_text(&world.volume("missing").join("ca.pem"), &two);
    wait_for_text(&world.volume("optional").join("ca.pem"), &two);
    world.wait_until_ready("missing");
}

#[test]
fn a_hundred_and_fifty_bundles_in_one_file() {
    let world = VolumeFixture::start();
    let anchors = (0..150).map(|_| anchor()).collect::<Vec<_>>();
    let all = json!([selected(json!({"labelSelector": {}}))]);
    let several = anchors.iter().enumerate();
    let several = several.map(|(at, text)| signed_bundle(&format!("b{at}"), "live", text));
    let mut objects = several.collect::<Vec<_>>();
    // A duplicate certificate, and text that is not a certificate.
    let talk = format!("about the next one\n{}", anchors[7]);
    objects.push(signed_bundle("again", "canary", &talk));
    objects.push(pod_object("first", all.clone()));
    world.create(&objects);
    world.wait_until_ready("first");
    let file = |pod: &str| world.volume(pod).join("ca.pem");
    wait_until("not all of them are there", || {
        (read(&file("first")).matches("BEGIN").count() == anchors.len()).then_some(())
    });
    let first = read(&file("first"));
    assert_eq!(certificates(&first), certificates(&anchors.concat()));

    // The same set, from one bundle and in another order.
    let (front, back) = anchors.split_at(anchors.len() / 2);
    world.create(&[signed_bundle("other", "other", &[back, front].concat().concat())]);
    let path = "/apis/certificates.k8s.io/v1/clustertrustbundles?labelSelector=version=live";
    world.kubectl_ok(&["delete", "--raw", path]);
    assert_eq!(world.kubectl_ok(&["get", "clustertrustbundles", "-l", "version=live", "-o", "name"]), "");
    world.create(&[pod_object("second", all)]);
    world.wait_until_ready("second");
    for pod in ["first", "second"] {
        assert_eq!(read(&file(pod)), first, "{pod}");
    }
}

#[test]
fn no_selector_selects_nothing_and_an_empty_one_everything() {
    let world = VolumeFixture::start();
    let (one, two) = (anchor(), anchor());
    world.apply(&[
        signed_bundle("a", "live", &one),
        signed_bundle("b", "canary", &two),
        pod_object("nil", json!([optional(selected(json!({})))])),
        pod_object("empty", json!([selected(json!({"labelSelector": {}}))])),
        pod_object("nothing", json!([selected(json!({}))])),
    ]);
    world.wait_until_ready("nil");
    world.wait_until_ready("empty");
    assert_eq!(read(&world.volume("nil").join("ca.pem")), "");
    let found = read(&world.volume("empty").join("ca.pem"));
    assert_eq!(certificates(&found), certificates(&format!("{one}{two}")));
    let why = world.wait_until_not_ready("nothing", "FailedMount");
    let zero = "combination of signerName and labelSelector matched zero ClusterTrustBundles";
    assert!(why.ends_with(zero), "{why}");
    assert!(!world.volume("nothing").join("ca.pem").exists());
}

#[test]
fn bundles_change_and_go_after_the_start() {
    let world = VolumeFixture::start();
    let (one, two) = (anchor(), anchor());
    let (linked, gone) = ("example.com:hand:linked", "example.com:hand:gone");
    let by_label = json!({"labelSelector": {"matchLabels": {"version": "gone"}}});
    world.apply(&[
        signed_bundle("linked", "live", &one),
        signed_bundle("gone", "gone", &one),
        pod_object("linked", json!([bundle_source_by_name(linked)])),
        pod_object("optional", json!([optional(bundle_source_by_name(gone))])),
        pod_object("needed", json!([bundle_source_by_name(gone)])),
        pod_object("labels", json!([selected(by_label)])),
    ]);
    let pods = ["linked", "optional", "needed", "labels"];
    let file = |pod: &str| world.volume(pod).join("ca.pem");
    for pod in pods {
        world.wait_until_ready(pod);
        assert_eq!(read(&file(pod)), one, "{pod}");
    }
    world.apply(&[signed_bundle("linked", "live", &two)]);
    wait_for_text(&file("linked"), &two);

    world.kubectl_ok(&["delete", "clustertrustbundle", gone]);
    wait_for_text(&file("optional"), "");
    for (pod, end) in
        [("needed", "\"example.com:hand:gone\" not found"), ("labels", "matched zero ClusterTrustBundles")]
    {
        let why = world.wait_until_not_ready(pod, "KeepingOldContent");
        assert!(why.ends_with(end), "{why}");
        assert_eq!(read(&file(pod)), one, "{pod}");
    }
    world.wait_until_ready("optional");

    world.apply(&[signed_bundle("gone", "gone", &two)]);
    for pod in ["optional", "needed", "labels"] {
        wait_for_text(&file(pod), &two);
        world.wait_until_ready(pod);
    }
}
